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

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from analyze.query import spill
from analyze.query.computed.call_paths import dense, pairs
from analyze.query.computed.in_turn import ROWS_READ, in_turn
from analyze.query.computed.nesting import in_order
from analyze.query.computed.path_walk import (
    UNKNOWN,
    Rank,
    Segment,
    before_on_stream,
    equal_runs,
    integers,
    stream_numbers,
    without_overhead,
)
from analyze.query.literals import of_others, of_run, of_runs

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from analyze.store.kept import Kept

_BATCH = 4_000_000
"""Operators, calls and GPU work that are read at once, to the next whole rank: what bounds the memory."""

_EVENT_BYTES = 250
"""Memory that each of them takes meanwhile."""

_HERE = "true /* of these ranks */"
"""Stands in the SQL for a condition on run_id and rank."""

_RANKS = """
WITH _counts AS (
    SELECT run_id, rank, count(*) AS events FROM cpu_ops WHERE {left} GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, count(*) FROM cuda_calls WHERE {left} GROUP BY run_id, rank
    UNION ALL
    SELECT run_id, rank, count(*) FROM gpu_work WHERE {left} GROUP BY run_id, rank
),
_events AS (
    SELECT run_id, rank, sum(events) AS events FROM _counts GROUP BY run_id, rank
)
SELECT run_id, rank, run_group, events, (sum(events) OVER in_order - events)::BIGINT // $batch AS batch,
    row_number() OVER in_order AS process
FROM run_groups JOIN _events USING (run_id, rank)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
# There are millions of them and few texts, which are asked for where the path goes.
_TEXTS = """
CREATE TYPE {table}_class AS ENUM ('communication', 'copy', 'kernel');
CREATE TYPE {table}_call AS ENUM (SELECT DISTINCT name FROM cuda_calls WHERE name IS NOT NULL ORDER BY name);
CREATE TYPE {table}_work AS ENUM (
    SELECT short_name AS name FROM kernel_names WHERE short_name IS NOT NULL
    UNION
    SELECT name FROM gpu_work WHERE name IS NOT NULL
    UNION
    SELECT unnest(['kernel', 'memcpy', 'memset'])
    ORDER BY name
);
"""
_GPU = """
WITH _made AS NOT MATERIALIZED (
    SELECT * FROM cuda_calls WHERE true /* of these ranks */
),
_launches AS (
    SELECT * FROM calls_that_launch('_made')
),
_work AS (
    SELECT * FROM linked_to_ops('gpu_work') WHERE true /* of these ranks */
)
SELECT
    p.process, w.device, w.stream, coalesce(n.short_name, w.name, w.kind)::{table}_work AS name, w.correlation_id,
    w.op_id,
    (
        CASE WHEN n.family = 'communication' THEN 'communication' WHEN w.kind = 'kernel' THEN 'kernel' ELSE 'copy' END
    )::{table}_class AS class,
    w.start_ns, w.start_ns + greatest(coalesce(w.dur_ns, 0), 0) AS end_ns,
    l.tid, l.start_ns AS launch_ns, l.start_ns + l.dur_ns AS launch_end_ns,
    l.name::{table}_call AS launch
FROM _work w
JOIN path_ranks p ON p.run_id = w.run_id AND p.rank = w.rank
LEFT JOIN kernel_names n ON n.run_id = w.run_id AND n.name = w.name
LEFT JOIN _launches l ON l.run_id = w.run_id AND l.rank = w.rank AND l.correlation_id = w.correlation_id
"""

_WAITS = """
SELECT process, tid, start_ns
FROM cuda_calls JOIN path_ranks USING (run_id, rank)
WHERE name IN (SELECT name FROM api_roles WHERE role = 'stream_wait') AND api <> 'sync' AND tid IS NOT NULL
    AND true /* of these ranks */
"""

# What keeps a thread busy: operators, calls that launch or wait. Those that only ask (cudaEventQuery) do not.
_OPS = """
SELECT process, tid, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_ops JOIN path_ranks USING (run_id, rank)
WHERE tid IS NOT NULL AND dur_ns IS NOT NULL AND true /* of these ranks */
"""
_CALLS = """
WITH _launched AS (SELECT run_id, rank, correlation_id FROM gpu_work WHERE true /* of these ranks */),
_calls AS (
    SELECT
        run_id, rank, tid, start_ns, start_ns + dur_ns AS end_ns, CASE WHEN role IS NOT NULL THEN name END AS name,
        correlation_id,
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
"""

# The profiler's own time. CUPTI's number of the thread need not be the one that the rest of the trace has for it: where
# nothing else ran on such a thread, tid is NULL, and the time counts wherever the path was on the CPU.
_OVERHEAD = """
WITH _threads AS (
    SELECT DISTINCT run_id, rank, tid
    FROM cpu_events SEMI JOIN (SELECT DISTINCT run_id, rank, tid FROM profiler_overhead) USING (run_id, rank, tid)
    WHERE kind IN ('op', 'range', 'call')
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


_KEPT = """
SELECT g.run_id::VARCHAR AS run_id, g.run_group, k.*
FROM (SELECT DISTINCT run_id, rank, run_group FROM run_groups WHERE {run}) g JOIN critical_path_kept k USING (rank)
"""


def create(connection: duckdb.DuckDBPyConnection, table: str, steps: bool, kept: Kept | None = None) -> None:
    """Make the table of the critical paths of all ranks: of each step if `steps`, else of the whole recording.

    The whole goes from the first to the last thing that operators, CUDA calls and GPU work did. A step is its window
    (block step_ranges). `analyze.query.computed` has its columns. Kinds: cpu; launch (from the end of the launch call
    to the start of its work); kernel, communication, copy; gap (between two pieces of GPU work, the second queued);
    stream_wait (the same between two streams); sync (from the end of the GPU work to the return of the call that
    waited for it); profiler (what the profiler took of cpu and sync); other.

    The blocks that its declaration uses must have been made. Paths are taken from `kept` and put there.
    """
    known = kept.read(table) if kept else {}
    left = _RANKS.format(left=of_others(known))
    connection.execute(f"CREATE OR REPLACE TEMP TABLE path_ranks AS {left}", {"batch": _BATCH})
    spill.check_room(connection, "path_ranks", _EVENT_BYTES)
    ranks = connection.execute("SELECT batch, process, run_id, rank, run_group FROM path_ranks ORDER BY ALL").fetchall()
    overhead = _by_process(connection.sql(_OVERHEAD).to_arrow_table())
    windows = _by_process(connection.sql(_STEPS).to_arrow_table()) if steps else None
    connection.execute(_TEXTS.format(table=table))

    def read(there: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Some ranks, and what they did."""
        only = _only(there) if len(there) < len(ranks) else "true"
        sources = [connection.sql(sql.format(table=table).replace(_HERE, only)) for sql in (_GPU, _WAITS, _CALLS)]
        work, waits, calls = (_by_process(s.to_arrow_table()) for s in sources)
        ops = _by_process(_not_inside(connection.sql(_OPS.replace(_HERE, only)).to_arrow_reader(ROWS_READ)))
        return there, work, waits, ops, calls

    def walk(done: tuple[Any, ...]) -> list[pa.Table]:
        """Their paths."""
        there, work, waits, ops, calls = done
        found = []
        for _, process, *key in there:
            rank = Rank(_in_turn(work(process), waits(process)), _busy(ops(process), calls(process)))
            span = rank.span()
            if span is None:
                continue
            ranges = _tuples(overhead(process))
            for step, begin, end, on_cpu in _tuples(windows(process)) if windows else [(None, *span, False)]:
                path = without_overhead(rank.walk(begin, end, on_cpu), ranges)
                found.append(_rows((*key, step), path))
        return found

    batches = (read(list(batch)) for _, batch in groupby(ranks, key=itemgetter(0)))
    made = [path for paths in in_turn(walk, batches) for path in paths]
    _store(connection, table, made)
    for run_id, rows in known.items():
        connection.register("critical_path_kept", rows)
        connection.execute(f"INSERT INTO {table} BY NAME {_KEPT.format(run=of_run(run_id))}")
        connection.unregister("critical_path_kept")
    if kept:
        for run_id in kept.lacking(known):
            of_one = connection.sql(f"SELECT * EXCLUDE (run_id, run_group) FROM {table} WHERE {of_run(run_id)}")
            kept.write(table, run_id, of_one.to_arrow_table())
        kept.make_room()


def _only(ranks: Sequence[tuple[Any, ...]]) -> str:
    """A condition that few other ranks fulfil, and that says which files need not be read."""
    runs = sorted({run_id for _, _, run_id, *_ in ranks})
    numbers = [rank for *_, rank, _ in ranks]
    return f"{of_runs(runs)} AND rank BETWEEN {min(numbers)} AND {max(numbers)}"


def _not_inside(reader: pa.RecordBatchReader) -> pa.Table:
    """The rows of _OPS, but for most that lie inside of another one: what stands together in a file is compared."""
    import pyarrow as pa

    found = [reader.schema.empty_table()]
    for rows in reader:
        process, tid, start, end = (rows[c].to_numpy() for c in ("process", "tid", "start_ns", "end_ns"))
        lane = dense(pairs(process, tid))[0]
        order = in_order(lane, start, (-end,))
        inside = np.zeros(len(order), bool)
        for run in equal_runs(lane[order]):
            here = order[run]
            reached = np.maximum.accumulate(end[here])[:-1]
            inside[here[1:]] = (start[here[1:]] < reached) & (end[here[1:]] <= reached)
        found.append(pa.Table.from_batches([rows.filter(pa.array(~inside))]))
    return pa.concat_tables(found)


def _by_process(rows: pa.Table) -> Callable[[int], pa.Table]:
    """The rows of a process."""
    process = rows["process"].to_numpy()
    if (process[1:] < process[:-1]).any():
        rows = rows.take(np.argsort(process, kind="stable"))
        process = rows["process"].to_numpy()
    found = {int(process[r.start]): r for r in equal_runs(process)}

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

    start, end, correlation = (integers(work[c]) for c in ("start_ns", "end_ns", "correlation_id"))
    work = work.take(in_order(np.zeros(len(start), np.int64), start, (end, correlation == UNKNOWN, correlation)))
    tid, launch = integers(work["tid"]), integers(work["launch_ns"])
    thread, called = integers(waits["tid"]), integers(waits["start_ns"])
    made_to = np.full(len(tid), UNKNOWN)
    for number in np.unique(thread):
        rows = np.flatnonzero(tid == number)
        of_thread = np.append(np.sort(called[thread == number]), UNKNOWN)
        made_to[rows] = of_thread[np.searchsorted(of_thread[:-1], launch[rows], "right") - 1]
    last = np.append(launch, UNKNOWN)[before_on_stream(stream_numbers(work))]
    return work.append_column("waits", pa.array((made_to != UNKNOWN) & (made_to >= last)))


def _busy(ops: pa.Table, calls: pa.Table) -> pa.Table:
    """Calls, and the operators that no other operator encloses, by thread and start."""
    import pyarrow as pa

    tid, start, end = (integers(ops[c]) for c in ("tid", "start_ns", "end_ns"))
    order = in_order(dense(tid)[0], start, (-end,))
    outer = np.zeros(len(order), bool)
    for rows in equal_runs(tid[order]):
        here = order[rows]
        outer[rows] = np.append(True, start[here[1:]] >= np.maximum.accumulate(end[here])[:-1])
    both = pa.concat_tables([ops.take(order[outer]), calls], promote_options="default")
    tid, start, end = (integers(both[c]) for c in ("tid", "start_ns", "end_ns"))
    return both.take(in_order(dense(tid)[0], start, (-end,)))


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
