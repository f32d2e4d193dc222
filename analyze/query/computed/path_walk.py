"""The walk along a critical path, over what ran on one rank (`critical_path` has the rules, and reads it)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.query.computed.call_paths import dense
from analyze.query.computed.nesting import by_number, in_order
from analyze.query.computed.path_chains import Chain, chain
from analyze.query.computed.places import UNKNOWN, Places

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]

SYNCHRONIZES, COPIES = 1, 2
"""How a call may wait for GPU work: for all that was launched, or for its own."""

_ASK = -2
_FEW = 8
"""Pieces of work that are gone through one by one as quickly as in arrays."""

_PLACE = ("device", "stream", "correlation_id", "op_id")
_TIMES = ("start_ns", "end_ns", "tid", "launch_ns", "launch_end_ns")


class Segment(NamedTuple):
    """A piece of the path: kind, name, place, time in ns; `correlation_id` and `op_id` of GPU work and its launch."""

    kind: str
    name: str | None
    tid: int | None
    device: int | None
    stream: int | None
    correlation_id: int | None
    op_id: int | None
    start: int
    end: int


class _Thread(NamedTuple):
    """Activities of a thread, one after the other, and the calls on it that waited for GPU work (by their end)."""

    starts: Sequence[int]
    ends: Sequence[int]
    sync_ends: list[int]
    syncs: list[tuple[int, str, int]]
    """Start, name, and index of the GPU work waited for."""
    handed: Sequence[int]
    """Activities, but for the last, in the idle time behind which another thread handed over to this one."""


class Rank:
    """What ran on one rank, indexed for the walk. Times in ns."""

    def __init__(self, work: pa.Table, busy: pa.Table, blocking: pa.Table):
        """`work` by start, with the columns of `path_events._WORK`, those of the launch, and `waits`: whether it may
        have had to wait for another stream, as its thread was made to since the last launch into its own; `busy` by
        thread and start: tid, start_ns, end_ns; `blocking`, calls that may wait for work: the same and name,
        correlation_id and `blocks`, which is SYNCHRONIZES or COPIES."""
        self.texts = {c: work[c].combine_chunks() for c in ("name", "class", "launch")}
        columns = {c: integers(work[c]) for c in _PLACE + _TIMES}
        # Columns as memory, of which bisect and the walk take single numbers as quickly as of a list.
        self.place = [columns[c].data for c in _PLACE]
        self.start, self.end, self.tid, self.launch, self.launch_end = (columns[c].data for c in _TIMES)
        self.waits = work["waits"].to_numpy(zero_copy_only=False)
        by_end = np.argsort(columns["end_ns"], kind="stable")
        self.by_end, self.ends = by_end.data, columns["end_ns"][by_end].data
        self.stream = stream_numbers(work)
        before = before_on_stream(self.stream)
        self.before = before.data
        """The work before it on its stream; -1 for the first."""
        _, end, _, launch, launch_end = (columns[c] for c in _TIMES)
        known = (launch != UNKNOWN) & (launch_end != UNKNOWN)
        launched = known & (launch >= np.append(end, UNKNOWN)[before])
        self.behind = np.where(self.waits, _ASK, np.where(launched, -1, before)).data
        """The work that released it: as `before`, or -1 if its launch did; _ASK where it may be of another stream."""

        syncs = self._syncs(columns["correlation_id"], blocking)
        self.threads: dict[int, _Thread] = {}
        tid, start, end = (integers(busy[c]) for c in ("tid", "start_ns", "end_ns"))
        activities = [(int(tid[rows.start]), *_merged(start[rows], end[rows])) for rows in equal_runs(tid)]
        none = np.empty(0, np.int64)
        columns_of = [(s, e, np.full(len(s), number)) for number, s, e in activities]
        starts, ends, tids = map(np.concatenate, zip((none, none, none), *columns_of, strict=True))
        order = in_order(np.zeros(len(ends), np.int64), ends, (starts, tids))
        starts, ends, tids = starts[order], ends[order], tids[order]
        self.activity_starts, self.activity_ends, self.activity_tids = starts.data, ends.data, tids.data
        for number, own_starts, own_ends in activities:
            idle_from, idle_to = own_ends[:-1], own_starts[1:]
            # As _handed_over says it. The own activity has ended by then, so there is a last one.
            last = np.searchsorted(ends, idle_to, "right") - 1
            other = (tids[last] != number) & (starts[last] >= idle_from) & (ends[last] > starts[last])
            handed = np.flatnonzero(other & (idle_from < idle_to))
            self.threads[number] = _Thread(own_starts.data, own_ends.data, *syncs.get(number, ([], [])), handed.data)

    def _syncs(self, correlation: Ints, blocking: pa.Table) -> dict[int, tuple[list[int], list[tuple[int, str, int]]]]:
        """The calls that waited, of each thread, as _Thread has them. `correlation`: of the work."""
        blocks, tid, start, end = (integers(blocking[c]) for c in ("blocks", "tid", "start_ns", "end_ns"))
        by_end = np.asarray(self.by_end)
        awaited = np.append(by_end, -1)[np.searchsorted(np.asarray(self.ends), end, "right") - 1]
        copies = np.flatnonzero(blocks == COPIES)
        awaited[copies] = Places(correlation).of(integers(blocking["correlation_id"])[copies])
        done = np.append(np.asarray(self.end), UNKNOWN)[awaited]
        calls = np.flatnonzero((awaited >= 0) & (start < done) & (done <= end))
        calls = calls[np.lexsort((start[calls], end[calls], tid[calls]))]
        names = blocking["name"].take(calls).to_pylist()
        told = list(zip(start[calls].tolist(), names, awaited[calls].tolist(), strict=True))
        ends = end[calls].tolist()
        return {int(tid[calls[rows.start]]): (ends[rows], told[rows]) for rows in equal_runs(tid[calls])}

    def last_end(self, at: int) -> int | None:
        """The GPU work that ended last, at `at` or before."""
        n = bisect_right(self.ends, at)
        return self.by_end[n - 1] if n else None

    def span(self) -> tuple[int, int] | None:
        """First start and last end of all that the walk knows; None if that is nothing."""
        launches = np.asarray(self.launch)
        launches = launches[launches != UNKNOWN]
        starts = [*self.start[:1], *(t.starts[0] for t in self.threads.values())]
        starts += [int(launches.min())] if len(launches) else []
        ends = [*self.ends[-1:], *self.activity_ends[-1:]]
        return (min(starts), max(ends)) if starts and ends else None

    def walk(self, begin: int, end: int, on_cpu: bool) -> list[Segment | Chain]:
        """The path through [begin, end) in order of time: it ends on the CPU if `on_cpu`, else with what ended last."""
        walk = _Walk(self, begin, end)
        walk.run(on_cpu)
        return walk.path[::-1]


class _Walk:
    def __init__(self, rank: Rank, begin: int, end: int):
        self.rank = rank
        self.begin = begin
        self.at = end
        self.path: list[Segment | Chain] = []
        self.done: set[tuple[int, int]] = set()

    def _emit(self, kind: str, name: str | None, start: int, work: int | None = None, tid: int | None = None) -> None:
        """The piece from `start` to where the path is now; the path is at its start then."""
        start = max(start, self.begin)
        if start < self.at:
            device, stream, correlation, op = (
                (None,) * len(_PLACE)
                if work is None
                else (None if c[work] == UNKNOWN else c[work] for c in self.rank.place)
            )
            self.path.append(Segment(kind, name, tid, device, stream, correlation, op, start, self.at))
            self.at = start

    def run(self, on_cpu: bool) -> None:
        """Walk until the beginning."""
        rank = self.rank
        work = None if on_cpu else rank.last_end(self.at)
        n = bisect_right(rank.activity_ends, self.at)
        tid = rank.activity_tids[n - 1] if n else None
        if work is not None and n and rank.activity_ends[n - 1] >= rank.end[work]:
            work = None
        # A step may begin and end inside of one operator.
        if tid is None and rank.activity_tids:
            tid = rank.activity_tids[0]
        # Each turn leaves a piece of work, a sync or an activity behind; the limit only guards against damaged times.
        for _ in range(4 * (len(rank.start) + len(rank.activity_ends)) + 100):
            if self.at <= self.begin:
                return
            if work is not None:
                work, tid = self._leave_work(self._through_work(work))
            elif tid is not None:
                work, tid = self._leave_cpu(tid)
            else:
                break
        self._emit("other", None, self.begin)

    def _through_work(self, index: int) -> int:
        """Go through GPU work as long as it was other work that released it."""
        behind, starts = self.rank.behind, self.rank.start
        works, waited = array("q"), array("q")
        while starts[index] > self.begin:
            before, stream_wait = behind[index], False
            if before == _ASK:
                before, stream_wait, _ = self._released(index)
            if before < 0:
                break
            if stream_wait:
                waited.append(len(works))
            works.append(index)
            index = before
        if len(works) < _FEW:
            for work in works:
                self._leave_work(work)
        else:
            works.append(index)
            along, of_others = np.frombuffer(works, np.int64), np.frombuffer(waited, np.int64)
            found = chain(along, of_others, np.asarray(starts), np.asarray(self.rank.end), self.at, self.begin)
            self.path.append(found)
            self.at = int(found.start[0]) if len(found.start) else self.at
        return index

    def _released(self, index: int) -> tuple[int, bool, int]:
        """The work that GPU work waited for, whether that is of another stream, and its end; -1 if its launch came
        later, or there is none."""
        rank = self.rank
        before, other = rank.before[index], self._other_stream(index) if rank.waits[index] else -1
        stream_wait = other >= 0 and (before < 0 or rank.end[other] > rank.end[before])
        before = other if stream_wait else before
        released = rank.end[before] if before >= 0 else UNKNOWN
        launched = UNKNOWN not in (rank.launch[index], rank.launch_end[index]) and rank.launch[index] >= released
        return -1 if launched else before, stream_wait, released

    def _leave_work(self, index: int) -> tuple[int | None, int | None]:
        """Go through GPU work to what it waited for: other work, or the thread that launched it."""
        rank = self.rank
        name = rank.texts["name"][index].as_py()
        self._emit("gap", name, rank.end[index], index)
        self._emit(rank.texts["class"][index].as_py(), name, rank.start[index], index)
        before, stream_wait, released = self._released(index)
        if before >= 0:
            self._emit("stream_wait" if stream_wait else "gap", name, released, index)
            return before, None
        if UNKNOWN in (rank.launch[index], rank.launch_end[index]) or rank.launch[index] < released:
            return None, None
        self._emit("launch", rank.texts["launch"][index].as_py(), rank.launch_end[index], index)
        return None, None if rank.tid[index] == UNKNOWN else rank.tid[index]

    def _other_stream(self, index: int) -> int:
        """The work of another stream that ended last before this began, of those launched before it; -1: none."""
        rank = self.rank
        launch = rank.launch[index]
        n = bisect_right(rank.ends, rank.start[index])
        for i in reversed(rank.by_end[max(0, n - 16) : n]):
            if rank.stream[i] != rank.stream[index] and (
                UNKNOWN in (rank.launch[i], launch) or rank.launch[i] <= launch
            ):
                return i if rank.start[i] < rank.start[index] else -1
        return -1

    def _leave_cpu(self, tid: int) -> tuple[int | None, int | None]:
        """Go back on a thread to the wait for GPU work, or for another thread, that is nearest."""
        thread = self.rank.threads.get(tid)
        if thread is None:
            self._emit("cpu", None, self.begin, tid=tid)
            return None, None
        now = self.at
        s = bisect_right(thread.sync_ends, now) - 1
        while s >= 0 and (tid, s) in self.done:
            s -= 1
        sync_end = thread.sync_ends[s] if s >= 0 else self.begin
        # The activity that began last before now: the thread is in it, or in the idle time behind it.
        a = bisect_right(thread.starts, now - 1) - 1
        while now > self.begin:
            idle_from = thread.ends[a] if a >= 0 else self.begin
            if idle_from < now:
                handed = self._handed_over(tid, idle_from, now)
                if handed is not None and handed[0] >= sync_end:
                    self._emit("cpu", None, handed[0], tid=tid)
                    return None, handed[1]
            if s >= 0 and sync_end >= (thread.starts[a] if a >= 0 else self.begin):
                self.done.add((tid, s))
                start, name, awaited = thread.syncs[s]
                self._emit("cpu", None, sync_end, tid=tid)
                self._emit("sync", name, max(start, self.rank.end[awaited]), tid=tid)
                return awaited, None
            if a < 0:
                break
            # On to the next activity before it at which one of these may be; the sync ended in or behind its own.
            h = bisect_left(thread.handed, a) - 1
            a = max(thread.handed[h] if h >= 0 else -1, bisect_right(thread.starts, sync_end) - 1 if s >= 0 else -1)
            now = min(now, thread.starts[a + 1])
        self._emit("cpu", None, self.begin, tid=tid)
        return None, None

    def _handed_over(self, tid: int, idle_from: int, idle_to: int) -> tuple[int, int] | None:
        """End and thread of the activity that ended last in a thread's idle time, if it began in it."""
        n = bisect_right(self.rank.activity_ends, idle_to)
        if n == 0:
            return None
        rank = self.rank
        end, start, other = rank.activity_ends[n - 1], rank.activity_starts[n - 1], rank.activity_tids[n - 1]
        return (end, other) if other != tid and start >= idle_from and end > start else None


def without_overhead(
    path: Sequence[Segment | Chain], overhead: Sequence[tuple[int | None, int, int, str]]
) -> list[Segment | Chain]:
    """The path with the profiler's time cut out of what it was on the CPU (cpu, sync), as pieces `profiler`.

    `overhead`: (tid, start, end, name) by start; on any thread where `tid` is None.
    """
    starts = [o[1] for o in overhead]
    # The furthest end so far: what begins after it can't be reached by anything before.
    reached = list(accumulate((o[2] for o in overhead), max))
    pieces: list[Segment | Chain] = []
    for segment in path:
        if isinstance(segment, Chain):
            pieces.append(segment)
            continue
        at = segment.start
        if overhead and segment.kind in ("cpu", "sync"):
            first = bisect_right(reached, segment.start)
            for tid, start, end, name in overhead[first : bisect_left(starts, segment.end)]:
                begin, end = max(start, at), min(end, segment.end)
                if begin < end and tid in (None, segment.tid):
                    if at < begin:
                        pieces.append(segment._replace(start=at, end=begin))
                    pieces.append(Segment("profiler", name, segment.tid, None, None, None, None, begin, end))
                    at = end
        if at == segment.start:
            pieces.append(segment)
        elif at < segment.end:
            pieces.append(segment._replace(start=at))
    return pieces


def stream_numbers(work: pa.Table) -> Ints:
    """A number for the stream of each piece of work."""
    stream, known = dense(integers(work["stream"]))
    return dense(integers(work["device"]))[0] * max(len(known), 1) + stream


def before_on_stream(stream: Ints) -> Ints:
    """The place of the one before it on its stream; -1 for the first."""
    in_turn = by_number(stream)
    same = stream[in_turn[1:]] == stream[in_turn[:-1]]
    before = np.full(len(stream), -1)
    before[in_turn[1:][same]] = in_turn[:-1][same]
    return before


def integers(column: pa.ChunkedArray) -> Ints:
    """Numbers of 64 bits; UNKNOWN where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.cast(pa.int64())
    return (pc.fill_null(column, UNKNOWN) if column.null_count else column).to_numpy()


def equal_runs(values: Ints) -> list[slice]:
    """Where equal values stand side by side."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return [slice(a, b) for a, b in pairwise([*begins.tolist(), len(values)])]


def _merged(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of intervals, by start, of which those that overlap are one."""
    reached = np.maximum.accumulate(end)
    new = np.flatnonzero(np.append(True, start[1:] >= reached[:-1]))
    return start[new], reached[np.append(new[1:], len(end)) - 1]
