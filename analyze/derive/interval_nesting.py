"""Nest intervals into trees, and number distinct values and pairs of values.

The rule of nesting is torch.profiler's (`EventList._populate_cpu_children`): on one thread, in order of start (longer
first), the parent of an event is the last event before it that ends at or after its end, and after its start. Events
that overlap in part are not nested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from analyze.derive.numpy_columns import Ints, Mask


def nest(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return parents (-1 for roots), last descendants and depths of n intervals (all int64, shape n).

    The intervals are sorted by thread, then start, then longest first. O(n) for every level of nesting.
    """
    n = len(start)
    parent = np.full(n, -1, np.int64)
    last = np.arange(n, dtype=np.int64)
    depth = np.zeros(n, np.int64)
    # Remaining events: their numbers, their ends (raised above those of earlier threads), where segments begin.
    left = np.arange(n, dtype=np.int64)
    new_segment = firsts(thread)
    raised = lifted(end, new_segment)
    empty = start == end
    level = 0
    while len(left):
        root = _not_enclosed(raised, empty)
        if not root[new_segment].all():
            # Something before a segment reaches into it: events that overlap in part.
            root = _not_enclosed(lifted(end[left], new_segment), empty)
        roots = np.flatnonzero(root)
        # The descendants of a root are the events up to the next root.
        ends = np.append(roots[1:], len(left))
        of_root = left[roots]
        depth[of_root] = level
        last[of_root] = left[ends - 1]
        below = ~root
        new_segment = np.append(False, root[:-1])[below]
        left, raised, empty = left[below], raised[below], empty[below]
        parent[left] = np.repeat(of_root, ends - roots - 1)
        level += 1
    return parent, last, depth


def self_times(parent: Ints, last: Ints, start: Ints, end: Ints) -> Ints:
    """Return the length of each of the n intervals of `nest`, without its children's."""
    own = end - start
    child = np.flatnonzero(parent >= 0)
    np.subtract.at(own, parent[child], (end - start)[child])
    for i in np.flatnonzero(own < 0):
        # Children that overlap each other, as under the thread number of an accelerator: each moment counts once.
        inside = np.arange(i + 1, last[i] + 1)
        children = inside[parent[inside] == i]
        covered = np.append(start[i], np.maximum.accumulate(end[children])[:-1])
        own[i] = end[i] - start[i] - np.maximum(end[children] - np.maximum(start[children], covered), 0).sum()
    return own


def last_below(parent: Ints, depth: Ints) -> Ints:
    """Return the last descendant of each event, or the event itself. Events are in pre-order."""
    last = np.arange(len(parent))
    by_level = by_number(depth)
    ends = np.cumsum(np.bincount(depth, minlength=1))
    for begin, end in zip(ends[-2::-1], ends[:0:-1], strict=True):
        level = by_level[begin:end]
        # The last child of each parent comes last, and its last event is the parent's.
        last[parent[level]] = last[level]
    return last


def in_order(lane: Ints, start: Ints, ties: tuple[Any, ...]) -> Ints:
    """Return places of events in the order of lane, start and `ties`.

    Files are nearly in the order of start, so this is fast.
    """
    order = np.argsort(start, kind="stable")
    order = order[by_number(lane[order])]
    same = (lane[order[1:]] == lane[order[:-1]]) & (start[order[1:]] == start[order[:-1]])
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    if len(tied):
        group = np.cumsum(~np.append(False, same))[tied]
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(t[rows] for t in reversed(ties)), group))]
    return order


def by_number(numbers: Ints) -> Ints:
    """Return places in the order of numbers from 0; equal ones keep their order.

    Numbers of 16 bits are sorted by their digits, which is several times as fast.
    """
    return np.argsort(numbers.astype(np.uint16) if numbers.max(initial=0) < 2**16 else numbers, kind="stable")


def lifted(values: Ints, new_segment: Mask) -> Ints:
    """Return values in the same order within a segment and above all of the segments before: one maximum serves all."""
    if not len(values):
        return values
    segment = np.cumsum(new_segment)
    low, high = int(values.min()), int(values.max())
    if int(segment[-1] + 1) * (high - low + 1) >= 2**62:
        values = np.unique(values, return_inverse=True)[1]
        low, high = 0, len(values)
    return segment * (high - low + 1) + (values - low)


def firsts(*columns: npt.NDArray[np.integer[Any]]) -> Mask:
    """Return which rows begin a run of equal ones."""
    changes = np.logical_or.reduce([c[1:] != c[:-1] for c in columns])
    return np.append(True, changes)[: len(columns[0])]


def _not_enclosed(ends: Ints, empty: Mask) -> Mask:
    """Return whether nothing before an event ends at or after its end; where that is also its start, after its end."""
    reached = np.maximum.accumulate(ends)
    root = np.ones(len(ends), bool)
    root[1:] = reached[:-1] < ends[1:] + empty[1:]
    return root


def dense(values: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Return values as numbers from 0 in their order, and the value of each number."""
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
    """Return a number for each pair of values, in the order of the pairs."""
    inner, known = dense(b)
    return dense(a)[0] * max(len(known), 1) + inner
