"""The graph of a critical path: which piece of work each point in time waited for, and the pieces between points.

A path is followed backwards, from the end of a window to its beginning. It changes its place only at a *node*:

- GPU work, at its start: it goes on at the work that released it, or on the thread that launched it;
- a call that waited for GPU work (a sync): it goes on at the end of that work;
- an activity of another thread that a thread waited for, at its end: it goes on on that other thread.

Nodes are numbered in this order: work, syncs, activities. What a node goes back to does not depend on how the path came
there, so `Graph.back` has it for all nodes, computed with arrays. docs/critical-path.md explains the rules.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.interval_nesting import dense, in_order
from analyze.derive.numpy_columns import NULL, Ints, Mask, values_at

PIECES = ("cpu", "launch", "kernel", "communication", "copy", "gap", "stream_wait", "sync", "profiler", "other")
"""Kinds of pieces."""
CPU, LAUNCH, KERNEL, COMMUNICATION, COPY, GAP, STREAM_WAIT, SYNC, PROFILER, OTHER = range(len(PIECES))

NONE = -1
"""The path goes back to no node: it stays where it is."""
_RECENT = 16
"""Pieces of GPU work, those that ended last, among which one of another stream is looked for."""


class Work(NamedTuple):
    """GPU work in the order of its starts; all of shape n, NULL where not known."""

    stream: Ints
    """A number for each stream of each device, from 0."""
    start: Ints
    end: Ints
    launch_tid: Ints
    launch_start: Ints
    launch_end: Ints
    """Of the call that launched it."""
    may_wait: Mask
    """Whether its stream was made to wait for another one since the launch before it."""


class Syncs(NamedTuple):
    """Calls that waited for GPU work, in the order of their ends; all of one shape."""

    tid: Ints
    end: Ints
    work: Ints
    """Place of the work that was waited for."""


class Activities(NamedTuple):
    """Disjoint stretches in which threads were busy, by thread and start; all of one shape."""

    tid: Ints
    start: Ints
    end: Ints


class Window(NamedTuple):
    """A stretch of time that has a path."""

    begin: int
    end: int
    on_cpu: bool
    """Whether its path ends on the CPU; else it ends with what ended last."""


class Pieces(NamedTuple):
    """Pieces of a path, end to end in order of time; all of one shape."""

    kind: npt.NDArray[np.integer[Any]]
    tid: Ints
    """Of a piece on the CPU; NULL for others."""
    item: Ints
    """Place of the GPU work of a piece on the GPU and of its launch, of the sync; NONE for others."""
    start: Ints
    end: Ints


def merge_activities(tid: Ints, start: Ints, end: Ints) -> Activities:
    """Merge what overlaps on a thread. Intervals that only touch are two activities."""
    order = in_order(dense(tid)[0], start, ())
    tid, start, end = tid[order], start[order], end[order]
    bounds = [*np.flatnonzero(np.append(True, tid[1:] != tid[:-1])[: len(tid)]).tolist(), len(tid)]
    merged = [(np.empty(0, np.int64),) * 3]
    for first, last in pairwise(bounds):
        reached = np.maximum.accumulate(end[first:last])
        new = np.flatnonzero(np.append(True, start[first + 1 : last] >= reached[:-1]))
        ends = reached[np.append(new[1:], last - first) - 1]
        merged.append((tid[first:last][new], start[first:last][new], ends))
    return Activities(*map(np.concatenate, zip(*merged, strict=True)))


class Graph:
    """The nodes of a rank, and where the path goes back to from each."""

    def __init__(self, work: Work, syncs: Syncs, busy: Activities):
        self.work, self.syncs, self.busy = work, syncs, busy
        self._index_work()
        self._index_threads()
        self.first_sync = len(work.start)
        self.first_activity = self.first_sync + len(syncs.end)
        from_launch = np.flatnonzero(self.launched)
        self.back = np.concatenate([self.released_by, syncs.work, np.full(len(busy.end), NONE)])
        at = np.minimum(work.start[from_launch], work.launch_end[from_launch])
        self.back[from_launch] = self.back_on_thread(work.launch_tid[from_launch], at)
        self.back[self.first_activity :] = self.back_on_thread(busy.tid, busy.end)
        self.at = np.concatenate([work.start, work.end[syncs.work], busy.end])
        """When the path leaves each node."""
        self.tid = np.concatenate(
            [np.where(self.launched, work.launch_tid, NULL), np.full(len(syncs.end), NULL), busy.tid]
        )
        """The thread that the path is on then; NULL for none."""

    def _index_work(self) -> None:
        """Find what released each piece of work: other work (`released_by`), or its launch (`launched`)."""
        work = self.work
        self._work_by_end = np.argsort(work.end, kind="stable")
        before = before_on_stream(work.stream)
        other = np.full(len(before), NONE)
        may_wait = np.flatnonzero(work.may_wait)
        other[may_wait] = self._of_other_stream(may_wait)
        end = np.append(work.end, NULL)  # NONE takes the last
        self.stream_wait = end[other] > end[before]
        released_by = np.where(self.stream_wait, other, before)
        known = (work.launch_start != NULL) & (work.launch_end != NULL)
        self.launched = known & (work.launch_start >= end[released_by])
        self.released_by = np.where(self.launched, NONE, released_by)

    def _of_other_stream(self, wanted: Ints) -> Ints:
        """Return the work of another stream that ended last before each of these began, if it was launched earlier."""
        work, by_end = self.work, self._work_by_end
        ended = np.searchsorted(work.end[by_end], work.start[wanted], "right")
        found = np.full(len(wanted), NONE)
        left = np.arange(len(wanted))
        for back in range(1, _RECENT + 1):
            left = left[ended[left] >= back]
            own, other = wanted[left], by_end[ended[left] - back]
            launch, other_launch = work.launch_start[own], work.launch_start[other]
            fits = (work.stream[other] != work.stream[own]) & (
                (launch == NULL) | (other_launch == NULL) | (other_launch <= launch)
            )
            found[left[fits]] = np.where(work.start[other] < work.start[own], other, NONE)[fits]
            left = left[~fits]
        return found

    def _index_threads(self) -> None:
        """Find the idle times of threads that end as another thread hands over to them."""
        busy = self.busy
        self._busy_by_end = in_order(np.zeros(len(busy.end), np.int64), busy.end, (busy.start, busy.tid))
        self._busy_ends = busy.end[self._busy_by_end]
        same = np.append(False, busy.tid[1:] == busy.tid[:-1])[: len(busy.tid)]
        idle_from = np.where(same, np.append(NULL, busy.end)[:-1], NULL)
        handed = self._handed_over(busy.tid, idle_from, busy.start)
        """The activity of another thread that ended the idle time before each activity."""
        last = np.maximum.accumulate(np.where(handed >= 0, np.arange(len(handed)), NONE))
        first = np.searchsorted(busy.tid, busy.tid)
        self._last_handed = np.where(last >= first, np.append(handed, NONE)[last], NONE)
        """The same of the last idle time that was ended so, before each activity of the thread."""

    def _handed_over(self, tid: Ints, idle_from: Ints, idle_to: Ints) -> Ints:
        """Return the activity that ended last in idle time, if it is another thread's and began in it, too."""
        busy = self.busy
        if not len(busy.end):
            return np.full(len(tid), NONE)
        # None that ended by then: the first one, which did not begin early enough.
        last = self._busy_by_end[np.maximum(np.searchsorted(self._busy_ends, idle_to, "right") - 1, 0)]
        start, end = busy.start[last], busy.end[last]
        inside = (start >= idle_from) & (end > start) & (end <= idle_to) & (idle_from < idle_to)
        return np.where(inside & (busy.tid[last] != tid), last, NONE)

    def back_on_thread(self, tid: Ints, at: Ints) -> Ints:
        """Return the node that a path on a thread at a time goes back to: the sync or handover that was last."""
        busy, syncs = self.busy, self.syncs
        handed, sync = np.full(len(tid), NONE), np.full(len(tid), NONE)
        for number in np.unique(tid):
            rows = np.flatnonzero(tid == number)
            first, end = (int(np.searchsorted(busy.tid, number, side)) for side in ("left", "right"))
            own = first + np.searchsorted(busy.start[first:end], at[rows], "left") - 1
            idle_from = np.where(own >= first, values_at(busy.end, own), NULL)
            now = self._handed_over(tid[rows], idle_from, at[rows])
            before = np.where(own >= first, np.append(self._last_handed, NONE)[own], NONE)
            handed[rows] = np.where(now >= 0, now, before)
            own_syncs = np.flatnonzero(syncs.tid == number)
            sync[rows] = np.append(own_syncs, NONE)[np.searchsorted(syncs.end[own_syncs], at[rows], "right") - 1]
        handed_at, synced_at = values_at(busy.end, handed), values_at(syncs.end, sync)
        by_sync = np.where(sync >= 0, self.first_sync + sync, NONE)
        return np.where((handed >= 0) & (handed_at >= synced_at), self.first_activity + handed, by_sync)

    def paths(self, windows: Sequence[Window]) -> list[Pieces]:
        """Return the path of each window."""
        ends, on_cpu = (np.array([getattr(w, c) for w in windows], t) for c, t in (("end", np.int64), ("on_cpu", bool)))
        nodes, tids = self._last_nodes(ends, on_cpu)
        return [
            self._pieces(self._follow(node, window.begin), tid, window)
            for window, node, tid in zip(windows, nodes.tolist(), tids.tolist(), strict=True)
        ]

    def _last_nodes(self, ends: Ints, on_cpu: Mask) -> tuple[Ints, Ints]:
        """Return the nodes that paths go back to from their ends, and the threads that they end on (NULL: a GPU)."""
        work, busy = self.work, self.busy
        nodes, tids, cpu_end = np.full(len(ends), NONE), np.full(len(ends), NULL), np.full(len(ends), NULL)
        if len(busy.end):
            ended = np.searchsorted(self._busy_ends, ends, "right") - 1
            cpu_end = np.where(ended >= 0, self._busy_ends[ended], NULL)
            # A window may begin and end inside of the first activity.
            tids = busy.tid[self._busy_by_end[np.maximum(ended, 0)]]
            nodes = self.back_on_thread(tids, ends)
        if len(work.end):
            work_ends = work.end[self._work_by_end]
            ended = np.searchsorted(work_ends, ends, "right") - 1
            on_gpu = ~on_cpu & (ended >= 0) & (work_ends[ended] > cpu_end)
            nodes, tids = np.where(on_gpu, self._work_by_end[ended], nodes), np.where(on_gpu, NULL, tids)
        return nodes, tids

    def _follow(self, node: int, begin: int) -> Ints:
        """Return the nodes from one back to the beginning."""
        back, at = self.back.data, self.at.data
        found = array("q")
        # Damaged times may lead back to a node that was there before.
        while node >= 0 and len(found) < len(back):
            found.append(node)
            if at[node] <= begin:
                break
            node = back[node]
        return np.frombuffer(found, np.int64) if found else np.empty(0, np.int64)

    def _pieces(self, nodes: Ints, tid: int, window: Window) -> Pieces:
        """Lay pieces between the nodes of a path that ends on a thread, or on a GPU (NULL)."""
        work, syncs = self.work, self.syncs
        is_work, is_activity = nodes < self.first_sync, nodes >= self.first_activity
        is_sync = ~is_work & ~is_activity
        launched = np.zeros(len(nodes), bool)
        launched[is_work] = self.launched[nodes[is_work]]
        # A wait, the work, and perhaps its launch; CPU time and a sync; CPU time; and the rest of the window.
        count = np.where(is_work, 2 + launched, np.where(is_sync, 2, 1))
        first = np.append(0, np.cumsum(count))
        total = int(first[-1]) + 1
        kind, item = np.full(total, CPU, np.int8), np.full(total, NONE)
        tids, reached = np.full(total, NULL), np.full(total, window.begin)
        came_from = np.append(tid, self.tid[nodes])
        """The thread that the path is on as it comes to each node, and at the beginning."""

        at, own = first[:-1][is_work], nodes[is_work]
        later = np.append(NONE, nodes[:-1])[is_work]
        waited = (later >= 0) & (later < self.first_sync)
        kind[at], item[at], reached[at] = GAP, np.where(waited, later, own), work.end[own]
        kind[at[waited & self.stream_wait[np.where(waited, later, 0)]]] = STREAM_WAIT
        kind[at + 1], item[at + 1], reached[at + 1] = KERNEL, own, work.start[own]
        at, own = first[:-1][launched] + 2, nodes[launched]
        kind[at], item[at], reached[at] = LAUNCH, own, work.launch_end[own]
        at, own = first[:-1][is_sync], nodes[is_sync] - self.first_sync
        tids[at], reached[at] = syncs.tid[own], syncs.end[own]
        kind[at + 1], item[at + 1], tids[at + 1] = SYNC, own, syncs.tid[own]
        reached[at + 1] = work.end[syncs.work[own]]
        at = first[:-1][is_activity]
        tids[at], reached[at] = came_from[:-1][is_activity], self.at[nodes[is_activity]]
        kind[-1], tids[-1] = (OTHER if came_from[-1] == NULL else CPU), came_from[-1]

        # Each piece goes from where the one before began back to what it reached.
        bounds = np.maximum(np.minimum.accumulate(np.append(window.end, reached)), window.begin)
        some = np.flatnonzero(bounds[1:] < bounds[:-1])[::-1]
        return Pieces(kind[some], tids[some], item[some], bounds[1:][some], bounds[:-1][some])


def before_on_stream(stream: Ints) -> Ints:
    """Return the place of the work before each on its stream; NONE for the first."""
    order = np.argsort(stream, kind="stable")
    same = stream[order[1:]] == stream[order[:-1]]
    before = np.full(len(stream), NONE)
    before[order[1:][same]] = order[:-1][same]
    return before
