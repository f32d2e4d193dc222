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

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_GPU = """
WITH _waits AS (
    SELECT run_id, rank, tid, start_ns AS wait_ns FROM cuda_calls JOIN api_roles USING (name)
    WHERE role = 'stream_wait' AND api <> 'sync'
),
_work AS (
    SELECT
        w.run_id, w.rank, w.device, w.stream, coalesce(n.short_name, w.name, w.kind) AS name, w.correlation_id, w.op_id,
        CASE WHEN n.family = 'communication' THEN 'communication' WHEN w.kind = 'kernel' THEN 'kernel' ELSE 'copy' END
            AS class,
        w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns,
        l.tid, l.start_ns AS launch_ns, l.start_ns + l.dur_ns AS launch_end_ns, l.name AS launch
    FROM linked_to_ops('gpu_work') w
    LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
    LEFT JOIN launch_calls l ON l.run_id = w.run_id AND l.rank = w.rank AND l.correlation_id = w.correlation_id
)
SELECT
    w.*,
    -- The trace does not say which stream a call makes wait: this one, if later than the last launch into it.
    coalesce(s.wait_ns >= lag(launch_ns) OVER (
        PARTITION BY w.run_id, w.rank, device, stream ORDER BY start_ns, end_ns, correlation_id
    ), s.wait_ns IS NOT NULL) AS waits
FROM _work w
ASOF LEFT JOIN _waits s ON s.run_id = w.run_id AND s.rank = w.rank AND s.tid = w.tid AND w.launch_ns >= s.wait_ns
ORDER BY w.run_id, w.rank, start_ns, end_ns, w.correlation_id
"""

# What keeps a thread busy: operators, calls that launch or wait. Those that only ask (cudaEventQuery) do not.
_CPU = """
WITH _linked AS (SELECT DISTINCT run_id, rank, correlation_id FROM gpu_work),
_calls AS (
    SELECT c.run_id, c.rank, c.tid, c.start_ns, c.start_ns + c.dur_ns AS end_ns, c.name, c.correlation_id,
        CASE WHEN r.role IN ('copy', 'copy_async') THEN 'copy' WHEN r.role = 'sync' THEN 'sync' END AS blocks,
        g.correlation_id IS NOT NULL AS linked
    FROM cuda_calls c
    LEFT JOIN _linked g USING (run_id, rank, correlation_id)
    LEFT JOIN api_roles r ON r.name = c.name
    WHERE c.api <> 'sync' AND c.dur_ns IS NOT NULL AND c.tid IS NOT NULL
)
SELECT run_id, rank, tid, start_ns, end_ns, NULL AS name, NULL AS correlation_id, NULL AS blocks FROM outer_ops
WHERE tid IS NOT NULL AND end_ns IS NOT NULL
UNION ALL
SELECT run_id, rank, tid, start_ns, end_ns, name, correlation_id, blocks FROM _calls WHERE linked OR blocks IS NOT NULL
ORDER BY run_id, rank, tid, start_ns, end_ns DESC
"""

# The profiler's own time. CUPTI's number of the thread need not be the one that the rest of the trace has for it: where
# nothing else ran on such a thread, tid is NULL, and the time counts wherever the path was on the CPU.
_OVERHEAD = """
WITH _threads AS (
    SELECT DISTINCT run_id, rank, tid FROM cpu_events WHERE kind IN ('op', 'range', 'call')
)
SELECT o.run_id, o.rank, t.tid, o.start_ns, o.end_ns, o.name
FROM profiler_overhead o LEFT JOIN _threads t USING (run_id, rank, tid)
WHERE o.end_ns > o.start_ns
ORDER BY o.run_id, o.rank, o.start_ns, o.end_ns DESC
"""

_STEPS = """
SELECT run_id, rank, step, start_ns, end_ns, NOT ends_on_gpu FROM step_windows
ORDER BY run_id, rank, start_ns
"""


class Work(NamedTuple):
    """GPU work, as the walk needs it. Times in ns; None where the trace has no launch call."""

    device: int | None
    stream: int | None
    name: str
    correlation_id: int | None
    op_id: int | None
    kind: str
    start: int
    end: int
    tid: int | None
    launch: int | None
    launch_end: int | None
    launch_name: str | None
    waits: bool


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


@dataclass
class _Thread:
    """Activities of a thread, one after the other, and the calls on it that waited for GPU work (by their end)."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    sync_ends: list[int] = field(default_factory=list)
    syncs: list[tuple[int, str, int]] = field(default_factory=list)
    """Start, name, and index of the GPU work waited for."""


class Rank:
    """What ran on one rank, indexed for the walk."""

    def __init__(self, work: Sequence[Work], cpu: Sequence[tuple[Any, ...]]):
        """`work` by start; `cpu`: (tid, start, end, name, correlation_id, blocks) by thread and start."""
        self.work = work
        self.by_end = sorted(range(len(work)), key=lambda i: work[i].end)
        self.ends = [work[i].end for i in self.by_end]
        self.before: list[int | None] = []
        last: dict[tuple[Any, Any], int] = {}
        by_correlation: dict[int, int] = {}
        for i, w in enumerate(work):
            self.before.append(last.get((w.device, w.stream)))
            last[w.device, w.stream] = i
            if w.correlation_id is not None:
                by_correlation[w.correlation_id] = i
        self.threads: dict[int, _Thread] = {}
        for tid, start, end, name, correlation_id, blocks in cpu:
            thread = self.threads.setdefault(tid, _Thread())
            if thread.ends and start < thread.ends[-1]:
                thread.ends[-1] = max(end, thread.ends[-1])
            else:
                thread.starts.append(start)
                thread.ends.append(end)
            if blocks is not None:
                awaited = self._last_end(end) if blocks == "sync" else by_correlation.get(correlation_id)
                if awaited is not None and start < work[awaited].end <= end:
                    thread.syncs.append((start, name, awaited))
                    thread.sync_ends.append(end)
        for thread in self.threads.values():
            order = sorted(range(len(thread.syncs)), key=thread.sync_ends.__getitem__)
            thread.syncs = [thread.syncs[i] for i in order]
            thread.sync_ends = [thread.sync_ends[i] for i in order]
        activities = sorted(
            (e, s, tid) for tid, t in self.threads.items() for s, e in zip(t.starts, t.ends, strict=True)
        )
        self.activities = activities
        self.activity_ends = [a[0] for a in activities]

    def _last_end(self, at: int) -> int | None:
        """The GPU work that ended last, at `at` or before."""
        n = bisect_right(self.ends, at)
        return self.by_end[n - 1] if n else None

    def span(self) -> tuple[int, int] | None:
        """First start and last end of all that the walk knows; None if that is nothing."""
        starts = [w.start for w in self.work[:1]] + [t.starts[0] for t in self.threads.values()]
        starts += [w.launch for w in self.work if w.launch is not None]
        ends = self.ends[-1:] + self.activity_ends[-1:]
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

    def _emit(self, kind: str, name: str | None, start: int, work: Work | None = None, tid: int | None = None) -> None:
        """The piece from `start` to where the path is now; the path is at its start then."""
        start = max(start, self.begin)
        if start < self.at:
            place = (work.device, work.stream, work.correlation_id, work.op_id) if work else (None,) * 4
            self.path.append(Segment(kind, name, tid, *place, start, self.at))
            self.at = start

    def run(self, on_cpu: bool) -> None:
        """Walk until the beginning."""
        work = None if on_cpu else self.rank._last_end(self.at)
        n = bisect_right(self.rank.activity_ends, self.at)
        tid = self.rank.activities[n - 1][2] if n else None
        if work is not None and n and self.rank.activity_ends[n - 1] >= self.rank.work[work].end:
            work = None
        # A step may begin and end inside of one operator.
        if tid is None and self.rank.activities:
            tid = self.rank.activities[0][2]
        # Each turn leaves a piece of work, a sync or an activity behind; the limit only guards against damaged times.
        for _ in range(4 * (len(self.rank.work) + len(self.rank.activities)) + 100):
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
        work = self.rank.work[index]
        self._emit("gap", work.name, work.end, work)
        self._emit(work.kind, work.name, work.start, work)
        before = self.rank.before[index]
        other = self._other_stream(work) if work.waits else None
        kind = "gap"
        if other is not None and (before is None or self.rank.work[other].end > self.rank.work[before].end):
            before, kind = other, "stream_wait"
        released = self.rank.work[before].end if before is not None else None
        if work.launch is not None and work.launch_end is not None and (released is None or work.launch >= released):
            self._emit("launch", work.launch_name, work.launch_end, work)
            return None, work.tid
        if before is not None and released is not None:
            self._emit(kind, work.name, released, work)
        return before, None

    def _other_stream(self, work: Work) -> int | None:
        """The work of another stream that ended last before this began, of those launched before it."""
        n = bisect_right(self.rank.ends, work.start)
        for i in self.rank.by_end[max(0, n - 16) : n][::-1]:
            other = self.rank.work[i]
            if (other.device, other.stream) != (work.device, work.stream) and (
                other.launch is None or work.launch is None or other.launch <= work.launch
            ):
                return i if other.start < work.start else None
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
                self._emit("sync", name, max(start, self.rank.work[awaited].end), tid=tid)
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
        end, start, other = self.rank.activities[n - 1]
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
    with _uncollected():
        ranks = connection.execute("SELECT run_id, rank, run_group FROM run_groups ORDER BY run_id, rank").fetchall()
        work = _by_rank(connection.execute(_GPU).fetchall())
        cpu = _by_rank(connection.execute(_CPU).fetchall())
        overhead = _by_rank(connection.execute(_OVERHEAD).fetchall())
        windows = _by_rank(connection.execute(_STEPS).fetchall()) if steps else {}
        made = []
        for run_id, number, group in ranks:
            key = (run_id, number)
            # As _GPU has them: device, stream, name, correlation_id, op_id, class, start, end, tid, launch ...
            rank = Rank(list(map(Work._make, work.pop(key, ()))), cpu.pop(key, ()))
            span = rank.span()
            if span is None:
                continue
            for step, begin, end, on_cpu in windows.get(key, ()) if steps else [(None, *span, False)]:
                path = without_overhead(rank.walk(begin, end, on_cpu), overhead.get(key, ()))
                made.append(_rows((*key, group, step), path))
    _store(connection, table, made)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without looking for garbage: what is made here are tuples by the million, and no circles of them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _by_rank(rows: Sequence[tuple[Any, ...]]) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault((row[0], row[1]), []).append(row[2:])
    return found


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
