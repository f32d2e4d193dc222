"""The critical path of a rank: the chain of CPU time, launches, GPU work and waits that a window's length is made of.

Walked backwards from the end of the window. At any time the path is in one place, and goes on where that place had to
wait:

- GPU work began when it was launched, if its stream had nothing else to do by then; else when the work before it on its
  stream was done, or, where the launching thread made a stream wait for an event since the last launch into that
  stream, the work of another stream that ended last.
- The CPU goes on behind a synchronisation (or a copy that blocks) when the GPU work that ended last inside the call was
  done.
- A thread that did nothing for a while (the caller of backward, or the autograd thread before) goes on when the
  activity of another thread that began and ended in that while was done.
- Otherwise the CPU was busy with what came before on the thread.

What of the CPU's pieces the profiler took (its overhead ranges) is cut out of them as pieces of its own. The pieces are
laid end to end, so their lengths add up to the window's exactly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.query import spill
from analyze.query.computed.call_paths import dense
from analyze.query.computed.call_tree import in_order

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Ints = npt.NDArray[np.int64]

_UNKNOWN = int(np.iinfo(np.int64).min)
"""A number that the recording does not say."""

_BATCH = 4_000_000
"""Operators, calls and GPU work that are read at once, to the next whole rank: what bounds the memory."""

_EVENT_BYTES = 250
"""Memory that each of them takes meanwhile."""

_HERE = "true /* of these ranks */"
"""Stands in the SQL for a condition on run_id and rank."""

_RANKS = """
WITH _counts AS (
    SELECT run_id, rank, count(*) AS events FROM cpu_ops GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, count(*) FROM cuda_calls GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, count(*) FROM gpu_work GROUP BY run_id, rank
),
_events AS (
    SELECT run_id, rank, sum(events) AS events FROM _counts GROUP BY run_id, rank
)
SELECT run_id, rank, run_group, events, (sum(events) OVER in_order - events)::BIGINT // $batch AS batch,
    row_number() OVER in_order AS process
FROM run_groups JOIN _events USING (run_id, rank)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
_GPU = """
WITH _launches AS (
    SELECT * FROM launch_calls WHERE true /* of these ranks */
),
_work AS (
    SELECT * FROM linked_to_ops('gpu_work') WHERE true /* of these ranks */
)
SELECT
    p.process, w.device, w.stream, coalesce(n.short_name, w.name, w.kind) AS name, w.correlation_id, w.op_id,
    CASE WHEN n.family = 'communication' THEN 'communication' WHEN w.kind = 'kernel' THEN 'kernel' ELSE 'copy' END
        AS class,
    w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns,
    l.tid, l.start_ns AS launch_ns, l.start_ns + l.dur_ns AS launch_end_ns, l.name AS launch
FROM _work w
JOIN path_ranks p ON p.run_id = w.run_id AND p.rank = w.rank
LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
LEFT JOIN _launches l ON l.run_id = w.run_id AND l.rank = w.rank AND l.correlation_id = w.correlation_id
ORDER BY process
"""

_WAITS = """
SELECT process, tid, start_ns
FROM cuda_calls JOIN path_ranks USING (run_id, rank)
WHERE name IN (SELECT name FROM api_roles WHERE role = 'stream_wait') AND api <> 'sync' AND tid IS NOT NULL
    AND true /* of these ranks */
ORDER BY process
"""

# What keeps a thread busy: operators, calls that launch or wait. Those that only ask (cudaEventQuery) do not.
_OPS = """
SELECT process, tid, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_ops JOIN path_ranks USING (run_id, rank)
WHERE tid IS NOT NULL AND dur_ns IS NOT NULL AND true /* of these ranks */
ORDER BY process
"""
_CALLS = """
WITH _launched AS (SELECT run_id, rank, correlation_id FROM gpu_work WHERE true /* of these ranks */),
_calls AS (
    SELECT
        run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns, name, correlation_id,
        CASE WHEN role IN ('copy', 'copy_async') THEN 'copy' WHEN role = 'sync' THEN 'sync' END AS blocks
    FROM cuda_calls LEFT JOIN api_roles USING (name)
    WHERE api <> 'sync' AND dur_ns IS NOT NULL AND tid IS NOT NULL AND true /* of these ranks */
)
SELECT process, tid, start_ns, end_ns, name, correlation_id, blocks
FROM (
    SELECT * FROM _calls WHERE blocks IS NOT NULL
    UNION ALL
    SELECT * FROM _calls SEMI JOIN _launched USING (run_id, rank, correlation_id) WHERE blocks IS NULL
)
JOIN path_ranks USING (run_id, rank)
ORDER BY process
"""

# The profiler's own time. CUPTI's number of the thread need not be the one that the rest of the trace has for it: where
# nothing else ran on such a thread, tid is NULL, and the time counts wherever the path was on the CPU.
_OVERHEAD = """
WITH _threads AS (
    SELECT DISTINCT run_id, rank, tid FROM cpu_events WHERE kind IN ('op', 'range', 'call')
)
SELECT p.process, t.tid, o.start_ns, o.end_ns, o.name
FROM profiler_overhead o JOIN path_ranks p USING (run_id, rank) LEFT JOIN _threads t USING (run_id, rank, tid)
WHERE o.end_ns > o.start_ns
ORDER BY p.process, o.start_ns, o.end_ns DESC
"""

_STEPS = """
SELECT process, step, start_ns, end_ns, NOT ends_on_gpu FROM step_windows JOIN path_ranks USING (run_id, rank)
ORDER BY process, start_ns
"""


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

    starts: list[int]
    ends: list[int]
    sync_ends: list[int]
    syncs: list[tuple[int, str, int]]
    """Start, name, and index of the GPU work waited for."""


class Rank:
    """What ran on one rank, indexed for the walk. Times in ns."""

    def __init__(self, work: pa.Table, cpu: pa.Table):
        """`work` by start, with the columns of _GPU and `waits`: whether it may have had to wait for another stream, as
        its thread was made to since the last launch into its own; `cpu` by thread and start, as _CALLS has it."""
        import pyarrow.compute as pc

        self.texts = {c: work[c].combine_chunks() for c in ("name", "class", "launch")}
        columns = {c: _ints(work[c]) for c in _PLACE + _TIMES}
        # Columns as memory, of which bisect and the walk take single numbers as quickly as of a list.
        self.place = [columns[c].data for c in _PLACE]
        self.start, self.end, self.tid, self.launch, self.launch_end = (columns[c].data for c in _TIMES)
        self.waits = work["waits"].to_numpy(zero_copy_only=False)
        by_end = np.argsort(columns["end_ns"], kind="stable")
        ends = columns["end_ns"][by_end]
        self.by_end, self.ends = by_end.data, ends.data
        self.stream = _streams(work)
        self.before = _before(self.stream).data
        """The work before it on its stream; -1 for the first."""

        tid, start, end = (_ints(cpu[c]) for c in ("tid", "start_ns", "end_ns"))
        blocks = pc.fill_null(cpu["blocks"], "").to_numpy(zero_copy_only=False)
        after = np.searchsorted(ends, end, "right") - 1
        awaited = np.where(blocks == "sync", np.append(by_end, -1)[after], -1)
        awaited = np.where(blocks == "copy", _last_of(columns["correlation_id"], _ints(cpu["correlation_id"])), awaited)
        done = np.append(columns["end_ns"], _UNKNOWN)[awaited]
        waited = (awaited >= 0) & (start < done) & (done <= end)
        self.threads: dict[int, _Thread] = {}
        activities = []
        for rows in _runs(tid):
            calls = rows.start + np.flatnonzero(waited[rows])
            calls = calls[np.argsort(end[calls], kind="stable")]
            names = cpu["name"].take(calls).to_pylist()
            syncs = list(zip(start[calls].tolist(), names, awaited[calls].tolist(), strict=True))
            starts, finishes = _merged(start[rows], end[rows])
            thread = _Thread(starts.tolist(), finishes.tolist(), end[calls].tolist(), syncs)
            self.threads[int(tid[rows.start])] = thread
            activities.append((finishes, starts, np.full(len(starts), tid[rows.start])))
        finishes, starts, tids = map(np.concatenate, zip(*activities, strict=True)) if activities else (ends[:0],) * 3
        order = np.lexsort((tids, starts, finishes))
        self.activity_ends, self.activity_starts, self.activity_tids = (
            c[order].tolist() for c in (finishes, starts, tids)
        )

    def last_end(self, at: int) -> int | None:
        """The GPU work that ended last, at `at` or before."""
        n = bisect_right(self.ends, at)
        return self.by_end[n - 1] if n else None

    def span(self) -> tuple[int, int] | None:
        """First start and last end of all that the walk knows; None if that is nothing."""
        launches = np.asarray(self.launch)
        launches = launches[launches != _UNKNOWN]
        starts = [*self.start[:1], *(t.starts[0] for t in self.threads.values())]
        starts += [int(launches.min())] if len(launches) else []
        ends = [*self.ends[-1:], *self.activity_ends[-1:]]
        return (min(starts), max(ends)) if starts and ends else None

    def walk(self, begin: int, end: int, on_cpu: bool) -> list[Segment]:
        """The path through [begin, end) in order of time: it ends on the CPU if `on_cpu`, else with what ended last."""
        walk = _Walk(self, begin, end)
        walk.run(on_cpu)
        return walk.path[::-1]


class _Walk:
    def __init__(self, rank: Rank, begin: int, end: int):
        self.rank = rank
        self.begin = begin
        self.at = end
        self.path: list[Segment] = []
        self.done: set[tuple[int, int]] = set()

    def _emit(self, kind: str, name: str | None, start: int, work: int | None = None, tid: int | None = None) -> None:
        """The piece from `start` to where the path is now; the path is at its start then."""
        start = max(start, self.begin)
        if start < self.at:
            device, stream, correlation, op = (
                (None,) * len(_PLACE)
                if work is None
                else (None if c[work] == _UNKNOWN else c[work] for c in self.rank.place)
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
                work, tid = self._leave_work(work)
            elif tid is not None:
                work, tid = self._leave_cpu(tid)
            else:
                break
        self._emit("other", None, self.begin)

    def _leave_work(self, index: int) -> tuple[int | None, int | None]:
        """Go through GPU work to what it waited for: other work, or the thread that launched it."""
        rank = self.rank
        name = rank.texts["name"][index].as_py()
        self._emit("gap", name, rank.end[index], index)
        self._emit(rank.texts["class"][index].as_py(), name, rank.start[index], index)
        before = rank.before[index] if rank.before[index] >= 0 else None
        other = self._other_stream(index) if rank.waits[index] else None
        kind = "gap"
        if other is not None and (before is None or rank.end[other] > rank.end[before]):
            before, kind = other, "stream_wait"
        released = rank.end[before] if before is not None else _UNKNOWN
        if _UNKNOWN not in (rank.launch[index], rank.launch_end[index]) and rank.launch[index] >= released:
            self._emit("launch", rank.texts["launch"][index].as_py(), rank.launch_end[index], index)
            return None, None if rank.tid[index] == _UNKNOWN else rank.tid[index]
        if before is not None:
            self._emit(kind, name, released, index)
        return before, None

    def _other_stream(self, index: int) -> int | None:
        """The work of another stream that ended last before this began, of those launched before it."""
        rank = self.rank
        launch = rank.launch[index]
        n = bisect_right(rank.ends, rank.start[index])
        for i in reversed(rank.by_end[max(0, n - 16) : n]):
            if rank.stream[i] != rank.stream[index] and (
                _UNKNOWN in (rank.launch[i], launch) or rank.launch[i] <= launch
            ):
                return i if rank.start[i] < rank.start[index] else None
        return None

    def _leave_cpu(self, tid: int) -> tuple[int | None, int | None]:
        """Go back on a thread to the wait for GPU work, or for another thread, that is nearest."""
        thread = self.rank.threads.get(tid)
        if thread is None:
            self._emit("cpu", None, self.begin, tid=tid)
            return None, None
        entered = self.at
        now = entered
        while now > self.begin:
            s = bisect_right(thread.sync_ends, now) - 1
            while s >= 0 and (tid, s) in self.done:
                s -= 1
            sync_end = thread.sync_ends[s] if s >= 0 else self.begin
            # The activity that began last before now: the thread is in it, or in the idle time behind it.
            a = bisect_right(thread.starts, now - 1) - 1
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
            now = min(now, thread.starts[a])
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


def without_overhead(path: Sequence[Segment], overhead: Sequence[tuple[int | None, int, int, str]]) -> list[Segment]:
    """The path with the profiler's time cut out of what it was on the CPU (cpu, sync), as pieces `profiler`.

    `overhead`: (tid, start, end, name) by start; on any thread where `tid` is None.
    """
    starts = [o[1] for o in overhead]
    # The furthest end so far: what begins after it can't be reached by anything before.
    reached = list(accumulate((o[2] for o in overhead), max))
    pieces: list[Segment] = []
    for segment in path:
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


def create(connection: duckdb.DuckDBPyConnection, table: str, steps: bool) -> None:
    """Make the table of the critical paths of all ranks: of each step if `steps`, else of the whole recording.

    The whole goes from the first to the last thing that operators, CUDA calls and GPU work did. A step is its window
    (block step_ranges). `analyze.query.computed` has its columns. Kinds: cpu; launch (from the end of the launch call
    to the start of its work); kernel, communication, copy; gap (between two pieces of GPU work, the second queued);
    stream_wait (the same between two streams); sync (from the end of the GPU work to the return of the call that
    waited for it); profiler (what the profiler took of cpu and sync); other.

    The blocks that its declaration uses must have been made.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE path_ranks AS {_RANKS}", {"batch": _BATCH})
    spill.check_room(connection, "path_ranks", _EVENT_BYTES)
    ranks = connection.execute("SELECT batch, process, run_id, rank, run_group FROM path_ranks ORDER BY ALL").fetchall()
    overhead = _by_process(connection.sql(_OVERHEAD).to_arrow_table())
    windows = _by_process(connection.sql(_STEPS).to_arrow_table()) if steps else None
    made = []
    for _, batch in groupby(ranks, key=itemgetter(0)):
        there = list(batch)
        only = _only(there) if len(there) < len(ranks) else "true"
        work, waits, ops, calls = (
            _by_process(connection.sql(sql.replace(_HERE, only)).to_arrow_table())
            for sql in (_GPU, _WAITS, _OPS, _CALLS)
        )
        for _, process, *key in there:
            rank = Rank(_in_turn(work(process), waits(process)), _busy(ops(process), calls(process)))
            span = rank.span()
            if span is None:
                continue
            ranges = _tuples(overhead(process))
            for step, begin, end, on_cpu in _tuples(windows(process)) if windows else [(None, *span, False)]:
                path = without_overhead(rank.walk(begin, end, on_cpu), ranges)
                made.append(_rows((*key, step), path))
    _store(connection, table, made)


def _only(ranks: Sequence[tuple[Any, ...]]) -> str:
    """A condition that few other ranks fulfil, and that says which files need not be read."""
    runs = ", ".join(sorted({"'" + run_id.replace("'", "''") + "'" for _, _, run_id, *_ in ranks}))
    numbers = [rank for *_, rank, _ in ranks]
    return f"run_id IN ({runs}) AND rank BETWEEN {min(numbers)} AND {max(numbers)}"


def _by_process(rows: pa.Table) -> Callable[[int], pa.Table]:
    """The rows of a process, of a table by process."""
    process = rows["process"].to_numpy()
    found = {int(process[r.start]): r for r in _runs(process)}

    def of(number: int) -> pa.Table:
        place = found.get(number, slice(0, 0))
        return rows.slice(place.start, place.stop - place.start).drop_columns("process")

    return of


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in rows.columns), strict=True))


def _in_turn(work: pa.Table, waits: pa.Table) -> pa.Table:
    """GPU work by start, and which `waits`. The trace does not say which stream a call makes wait: the one into which
    its thread launches next, if that is later than the last launch into it."""
    import pyarrow as pa

    start, end, correlation = (_ints(work[c]) for c in ("start_ns", "end_ns", "correlation_id"))
    work = work.take(in_order(np.zeros(len(start), np.int64), start, (end, correlation == _UNKNOWN, correlation)))
    tid, launch = _ints(work["tid"]), _ints(work["launch_ns"])
    thread, called = _ints(waits["tid"]), _ints(waits["start_ns"])
    made_to = np.full(len(tid), _UNKNOWN)
    for number in np.unique(thread):
        rows = np.flatnonzero(tid == number)
        of_thread = np.append(np.sort(called[thread == number]), _UNKNOWN)
        made_to[rows] = of_thread[np.searchsorted(of_thread[:-1], launch[rows], "right") - 1]
    last = np.append(launch, _UNKNOWN)[_before(_streams(work))]
    return work.append_column("waits", pa.array((made_to != _UNKNOWN) & (made_to >= last)))


def _streams(work: pa.Table) -> Ints:
    """A number for the stream of each piece of work."""
    stream, known = dense(_ints(work["stream"]))
    return dense(_ints(work["device"]))[0] * max(len(known), 1) + stream


def _before(stream: Ints) -> Ints:
    """The place of the one before it on its stream; -1 for the first."""
    in_turn = np.argsort(stream, kind="stable")
    same = stream[in_turn[1:]] == stream[in_turn[:-1]]
    before = np.full(len(stream), -1)
    before[in_turn[1:][same]] = in_turn[:-1][same]
    return before


def _busy(ops: pa.Table, calls: pa.Table) -> pa.Table:
    """Calls, and the operators that no other operator encloses, by thread and start."""
    import pyarrow as pa

    tid, start, end = (_ints(ops[c]) for c in ("tid", "start_ns", "end_ns"))
    order = in_order(dense(tid)[0], start, (-end,))
    outer = np.zeros(len(order), bool)
    for rows in _runs(tid[order]):
        here = order[rows]
        outer[rows] = np.append(True, start[here[1:]] >= np.maximum.accumulate(end[here])[:-1])
    both = pa.concat_tables([ops.take(order[outer]), calls], promote_options="default")
    tid, start, end = (_ints(both[c]) for c in ("tid", "start_ns", "end_ns"))
    return both.take(in_order(dense(tid)[0], start, (-end,)))


def _ints(column: pa.ChunkedArray) -> Ints:
    """Numbers of 64 bits; _UNKNOWN where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(column.cast(pa.int64()), _UNKNOWN).to_numpy()


def _runs(values: Ints) -> list[slice]:
    """Where equal values stand side by side."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return [slice(a, b) for a, b in pairwise([*begins.tolist(), len(values)])]


def _merged(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of intervals, by start, of which those that overlap are one."""
    reached = np.maximum.accumulate(end)
    new = np.flatnonzero(np.append(True, start[1:] >= reached[:-1]))
    return start[new], reached[np.append(new[1:], len(end)) - 1]


def _last_of(values: Ints, wanted: Ints) -> Ints:
    """The place of the last value that is what is wanted; -1 for none, and for _UNKNOWN."""
    order = np.argsort(values, kind="stable")
    at = np.append(order, -1)[np.searchsorted(values[order], wanted, "right") - 1]
    return np.where((np.append(values, _UNKNOWN)[at] == wanted) & (wanted != _UNKNOWN), at, -1)


_PLACE = ("device", "stream", "correlation_id", "op_id")
_TIMES = ("start_ns", "end_ns", "tid", "launch_ns", "launch_end_ns")
_TYPES = {
    "run_id": "string", "rank": "int32", "run_group": "int32", "step": "int32", "seq": "int64", "kind": "string",
    "name": "string", "tid": "int64", "device": "int32", "stream": "int64", "correlation_id": "int64", "op_id": "int64",
    "start_ns": "int64", "dur_ns": "int64",
}  # fmt: skip


def _rows(of: tuple[Any, ...], path: Sequence[Segment]) -> pa.Table:
    """A path as a table: what it is of, then the number of each piece and the piece."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = len(path)
    *told, starts, ends = zip(*path, strict=True) if path else [()] * len(Segment._fields)
    types = [getattr(pa, t)() for t in _TYPES.values()]
    columns = [pa.repeat(pa.scalar(value, type_), n) for value, type_ in zip(of, types, strict=False)]
    values = [range(n), *told, starts]
    columns += [pa.array(c, type_) for c, type_ in zip(values, types[len(of) : -1], strict=True)]
    columns.append(pc.subtract(pa.array(ends, pa.int64()), columns[-1]))
    return pa.table(columns, names=list(_TYPES))


def _store(connection: duckdb.DuckDBPyConnection, table: str, made: Sequence[pa.Table]) -> None:
    import pyarrow as pa

    empty = pa.schema([(name, getattr(pa, t)()) for name, t in _TYPES.items()]).empty_table()
    connection.register("critical_path_made", pa.concat_tables([empty, *made]))
    connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM critical_path_made")
    connection.unregister("critical_path_made")
