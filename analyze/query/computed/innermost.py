"""Which interval of a lane is the innermost at a time: of those that are open then, the one that began last.

Of several that began together it is the shortest, of equal ones that of the highest label. Intervals may overlap in any
way; empty ones are never open. `_innermost.c` walks over them where it is compiled (`analyze.compiled`), elsewhere
`of_edges` finds the same with arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.compiled import if_compiled
from analyze.query.computed.call_paths import pairs
from analyze.query.computed.nesting import in_order, nest

compiled = if_compiled("analyze.query.computed._innermost")

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


class Intervals(NamedTuple):
    """n intervals in any order; all of shape n."""

    lane: Numbers
    start: Ints
    end: Ints
    label: Numbers
    """From 0 on."""


class Windows(NamedTuple):
    """m windows by lane and start, those of a lane disjoint; all of shape m."""

    lane: Numbers
    """From 0 on."""
    start: Ints
    end: Ints


class Times(NamedTuple):
    """For how long an interval of a label was the innermost in a window, in any order; all of one shape."""

    window: Numbers
    """Its place."""
    label: Numbers
    ns: Ints


_ROW = np.dtype([("window", np.int32), ("label", np.int32), ("ns", np.int64)])
"""Of `_innermost.c`."""


def times(intervals: Intervals, windows: Windows) -> Times:
    """For how long which labels were the innermost in which windows; above 0."""
    return of_edges(intervals, windows) if compiled is None else one_by_one(intervals, windows)


def one_by_one(intervals: Intervals, windows: Windows) -> Times:
    """The same: compiled."""
    if compiled is None:
        raise ImportError("analyze.query.computed._innermost is not built, or switched off")
    given = (intervals.lane, intervals.start, intervals.end, intervals.label)
    rows = np.frombuffer(compiled.times(len(intervals.lane), *given, len(windows.lane), *windows), _ROW)
    return Times(rows["window"], rows["label"], rows["ns"])


def of_edges(intervals: Intervals, windows: Windows) -> Times:
    """The same where nothing could be compiled, and what the compiled one is held to.

    Between two edges of a lane, the innermost is the last that began, or of those that enclose it the first that has
    not ended. O(n) for every level of nesting.
    """
    some = np.flatnonzero(intervals.end > intervals.start)
    lane, start, end, label = (c[some].astype(np.int64) for c in intervals)
    order = in_order(lane, start, (-end, label))
    lane, start, end, label = (c[order] for c in (lane, start, end, label))
    parent = nest(lane, start, end)[0]
    # The edges of windows are some, too, so that a stretch lies in one or in none.
    edges = np.concatenate([start, end, windows.start, windows.end])
    lanes = np.concatenate([lane, lane, windows.lane, windows.lane])
    places = np.unique(pairs(lanes, edges), return_index=True)[1]
    lanes, edges = lanes[places], edges[places]
    last = _last_begun(lane, start, lanes, edges)
    open_ = np.flatnonzero(last >= 0)
    while len(open_):
        open_ = open_[end[last[open_]] <= edges[open_]]
        last[open_] = parent[last[open_]]
        open_ = open_[last[open_] >= 0]
    window = _last_begun(windows.lane, windows.start, lanes, edges)
    held = np.flatnonzero((window >= 0) & (last >= 0))
    held = held[windows.end[window[held]] > edges[held]]
    key, place = np.unique(pairs(window[held], label[last[held]]), return_inverse=True)
    first = np.zeros(len(key), np.int64)
    first[place] = held
    ns = np.zeros(len(key), np.int64)
    np.add.at(ns, place, edges[held + 1] - edges[held])
    return Times(window[first].astype(np.int32), label[last[first]].astype(np.int32), ns)


def _last_begun(lane: npt.NDArray[np.integer], start: Ints, lanes: Ints, edges: Ints) -> Ints:
    """The place of the last of a lane that began at an edge or before, of what stands by lane and start; else -1."""
    n = len(start)
    both = pairs(np.concatenate([lane, lanes]), np.concatenate([start, edges]))
    found = np.searchsorted(both[:n], both[n:], "right") - 1
    return np.where(np.append(lane, -1)[found] == lanes, found, -1)
