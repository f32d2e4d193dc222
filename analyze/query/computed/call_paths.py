"""Paths of a call tree: the calls that have the same names from the root down are one path.

There are thousands of paths where there are millions of calls, so what is asked by name is asked of the paths.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Paths(NamedTuple):
    """Paths in pre-order: each has those below it behind it, up to `last`."""

    parent: Ints
    """The path above; -1 for a root."""
    last: Ints
    """The last path below; its own number if there is none."""
    depth: Ints


def number_paths(
    owner: npt.NDArray[np.integer[Any]],
    parent: npt.NDArray[np.integer[Any]],
    depth: npt.NDArray[np.integer[Any]],
    label: Ints,
) -> tuple[Ints, Paths]:
    """The path of each of n nodes (-1: none), and the paths.

    Of the nodes (all of shape n): the parent (-1 for a root), the level from 0, and the number of the name.

    `owner`: paths of one are apart from those of another. A node of a negative depth is on no path; it is nobody's
    parent.
    """
    of = np.full(len(parent), -1, np.int64)
    labels = int(label.max(initial=0)) + 1
    depth = depth.astype(np.int16)  # which NumPy sorts in O(n)
    by_level = np.argsort(depth, kind="stable")
    ends = np.searchsorted(depth[by_level], np.arange(depth.max(initial=-1) + 2))
    above, made = [], [0]
    for begin, end in pairwise(ends):
        here = by_level[begin:end]
        root = len(made) == 1
        number, known = dense((owner[here] if root else of[parent[here]]) * labels + label[here])
        of[here] = made[-1] + number
        above.append(np.full(len(known), -1) if root else known // labels)
        made.append(made[-1] + len(known))
    at, paths = _in_pre_order(np.concatenate([np.empty(0, np.int64), *above]), made)
    return np.append(at, -1)[of], paths


def dense(values: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Values as numbers from 0 in their order, and the value of each number."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > 4 * len(values) + 2**16:
        # (np.unique would hash every value, which takes ten times as long.)
        known = np.sort(values[np.append(True, values[1:] != values[:-1])])
        known = known[np.append(True, known[1:] != known[:-1])]
        return np.searchsorted(known, values), known
    there = np.zeros(high - low + 1, bool)
    there[values - low] = True
    return (np.cumsum(there) - 1)[values - low], np.flatnonzero(there) + low


def pairs(a: npt.NDArray[np.integer[Any]], b: npt.NDArray[np.integer[Any]]) -> Ints:
    """A number for each pair of values, in the order of the pairs."""
    inner, known = dense(b)
    return dense(a)[0] * max(len(known), 1) + inner


def _in_pre_order(parent: Ints, made: list[int]) -> tuple[Ints, Paths]:
    """The number of each path in pre-order, and the paths so. Before, those of level i are numbered from made[i]."""
    levels = [slice(begin, end) for begin, end in pairwise(made)]
    size = np.ones(len(parent), np.int64)
    for level in levels[:0:-1]:
        np.add.at(size, parent[level], size[level])
    at = np.empty(len(parent), np.int64)
    depth = np.empty(len(parent), np.int64)
    for number, level in enumerate(levels):
        siblings = level.start + np.argsort(parent[level], kind="stable")
        above = parent[siblings]
        begins = np.cumsum(size[siblings]) - size[siblings]
        new = np.append(True, above[1:] != above[:-1])
        inside = begins - np.maximum.accumulate(np.where(new, begins, 0))
        at[siblings] = inside + (at[above] + 1 if number else 0)
        depth[level] = number
    order = np.argsort(at)
    above = np.append(at, -1)[parent[order]]
    return at, Paths(above, at[order] + size[order] - 1, depth[order])
