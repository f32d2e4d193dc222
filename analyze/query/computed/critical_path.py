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

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from analyze.query.computed import path_events, path_rows, rank_batches
from analyze.query.computed.in_turn import in_turn
from analyze.query.computed.path_walk import without_overhead
from analyze.query.computed.registered import registered
from analyze.query.literals import of_ranks

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 250
"""Memory that each of them takes meanwhile, and those of the next batch."""
_ALONE_BYTES = 60
"""The same where no other batch is read."""

_COUNTED = ("cpu_ops", "cuda_calls", "gpu_work")
"""What its events are."""

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


def create(connection: duckdb.DuckDBPyConnection, table: str, steps: bool) -> None:
    """Make the table of the critical paths of all ranks: of each step if `steps`, else of the whole recording.

    The whole goes from the first to the last thing that operators, CUDA calls and GPU work did. A step is its window
    (block step_ranges). `analyze.query.computed` has its columns. Kinds: cpu; launch (from the end of the launch call
    to the start of its work); kernel, communication, copy; gap (between two pieces of GPU work, the second queued);
    stream_wait (the same between two streams); sync (from the end of the GPU work to the return of the call that
    waited for it); profiler (what the profiler took of cpu and sync); other.

    The blocks that its declaration uses must have been made.
    """
    alone = rank_batches.create(connection, "path_ranks", _COUNTED, _EVENT_BYTES, _BATCH, "true", _ALONE_BYTES)
    ranks = connection.execute("SELECT batch, process, run_id, rank, run_group FROM path_ranks ORDER BY ALL").fetchall()
    overhead = path_events.by_process(connection.sql(_OVERHEAD).to_arrow_table())
    windows = path_events.by_process(connection.sql(_STEPS).to_arrow_table()) if steps else None
    path_events.create_types(connection, table)

    def read(there: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], path_events.Events]:
        """Some ranks, and what they did."""
        only = of_ranks((o[2] for o in there), (o[3] for o in there)) if len(there) < len(ranks) else "true"
        return there, path_events.read(connection, table, only)

    def walk(done: tuple[list[tuple[Any, ...]], path_events.Events]) -> list[pa.Table]:
        """Their paths."""
        there, events = done
        found = []
        for _, process, *key in there:
            rank = events.rank(process)
            span = rank.span()
            if span is None:
                continue
            ranges = _tuples(overhead(process))
            for step, begin, end, on_cpu in _tuples(windows(process)) if windows else [(None, *span, False)]:
                path = without_overhead(rank.walk(begin, end, on_cpu), ranges)
                found.append(path_rows.rows((*key, step), rank, path))
        return found

    batches = (read(list(batch)) for _, batch in groupby(ranks, key=itemgetter(0)))
    _insert(connection, f"CREATE OR REPLACE TABLE {table} AS", [path_rows.none()])
    for paths in in_turn(walk, batches, alone):
        if paths:
            _insert(connection, f"INSERT INTO {table}", paths)


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in rows.columns), strict=True))


def _insert(connection: duckdb.DuckDBPyConnection, into: str, paths: Sequence[pa.Table]) -> None:
    import pyarrow as pa

    with registered(connection, critical_path_made=pa.concat_tables(paths)):
        connection.execute(f"{into} SELECT * FROM critical_path_made")
