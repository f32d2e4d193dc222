"""Paths of a call tree: the calls that have the same names from the root down are one path.

A recording with millions of calls has thousands of paths.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analyze.derive.interval_nesting import Ints, by_number, dense
from analyze.derive.numpy_columns import values_at


def number_paths(parent: Ints, depth: Ints, label: Ints) -> Ints:
    """Return the path of each of n nodes (-1: none). Paths are numbered in pre-order.

    The nodes (all of shape n) have a parent (-1 for a root), a level from 0, and the number of a name. A node of
    depth -1 is on no path; it must be nobody's parent.
    """
    of = np.full(len(parent), -1, np.int64)
    labels = int(label.max(initial=0)) + 1
    by_level = by_number(depth + 1)
    ends = np.cumsum(np.bincount(depth + 1, minlength=1))
    above, made = [], [0]
    for begin, end in pairwise(ends):
        here = by_level[begin:end]
        root = len(made) == 1
        number, known = dense((0 if root else of[parent[here]]) * labels + label[here])
        of[here] = made[-1] + number
        above.append(np.full(len(known), -1) if root else known // labels)
        made.append(made[-1] + len(known))
    at = _in_pre_order(np.concatenate([np.empty(0, np.int64), *above]), made)
    return values_at(at, of, missing=-1)


def _in_pre_order(parent: Ints, made: list[int]) -> Ints:
    """Return the number of each path in pre-order. The paths of level i start at made[i]."""
    levels = [slice(begin, end) for begin, end in pairwise(made)]
    size = np.ones(len(parent), np.int64)
    for level in levels[:0:-1]:
        np.add.at(size, parent[level], size[level])
    at = np.empty(len(parent), np.int64)
    for number, level in enumerate(levels):
        siblings = level.start + np.argsort(parent[level], kind="stable")
        above = parent[siblings]
        begins = np.cumsum(size[siblings]) - size[siblings]
        new = np.append(True, above[1:] != above[:-1])
        inside = begins - np.maximum.accumulate(np.where(new, begins, 0))
        at[siblings] = inside + (at[above] + 1 if number else 0)
    return at
