"""Nesting of CPU events: which operator, range or CUDA call lies inside which.

The rule is torch.profiler's (`EventList._populate_cpu_children`): on one thread, in order of start (longer first), the
parent of an event is the last event before it that ends at or after its end, and after its start. Events that overlap
in part are not nested. Done level by level over whole arrays: the events that nothing encloses are the roots of their
thread; every other one belongs to the last root before it, and the rest is the same question inside each root.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NODES = """
CREATE OR REPLACE TEMP TABLE call_nodes AS
WITH parts AS (
    SELECT run_id, rank, run_group, 'op' AS kind, name, pid, tid, op_id, start_ns, dur_ns FROM cpu_ops
    UNION ALL
    SELECT run_id, rank, run_group,
        CASE
            WHEN origin = 'python_function' THEN 'python'
            WHEN origin = 'overhead' THEN 'overhead'
            WHEN regexp_matches(name, '^(nccl|gloo|mpi|ucc|xccl):') THEN 'async'
            ELSE 'range'
        END,
        regexp_replace(name, '^ProfilerStep#\\d+$', 'ProfilerStep*'), pid, tid, op_id, start_ns, dur_ns
    FROM ranges
    WHERE origin IN ('record_function', 'profiler_step', 'overhead') OR origin = 'python_function' AND $python
    UNION ALL
    SELECT run_id, rank, run_group, 'call', name, pid, tid, op_id, start_ns, dur_ns
    FROM cuda_calls WHERE api <> 'sync'
),
known_ops AS (
    SELECT DISTINCT run_id, rank, op_id FROM parts WHERE kind IN ('op', 'range') AND op_id > 0
),
main_threads AS (
    SELECT run_id, rank, min(pid) AS main FROM parts WHERE kind IN ('op', 'range') GROUP BY run_id, rank
),
threads AS (
    -- torch.profiler files a CUDA call that no operator made, and its own overhead, under the main thread. The range
    -- of a collective ends on another thread than it began on, so it is nobody's child and nobody's parent.
    SELECT
        p.*, kind = 'async' AS alone,
        CASE WHEN kind = 'async' THEN row_number() OVER ()
            WHEN kind IN ('call', 'overhead') AND k.op_id IS NULL THEN coalesce(main, tid)
            ELSE tid END AS thread_id
    FROM parts p
    LEFT JOIN known_ops k USING (run_id, rank, op_id)
    LEFT JOIN main_threads USING (run_id, rank)
)
SELECT
    row_number() OVER (
        ORDER BY run_id, rank, alone, thread_id, start_ns, dur_ns DESC, kind = 'call', op_id
    ) - 1 AS node,
    dense_rank() OVER (ORDER BY run_id, rank, alone, thread_id) AS thread,
    * EXCLUDE (alone, thread_id)
FROM threads
WHERE dur_ns IS NOT NULL
"""


def create(connection: duckdb.DuckDBPyConnection, table: str, python: bool) -> None:
    """Make a table of the call tree from cpu_ops, ranges and cuda_calls; Python functions are part of it if `python`.

    A row is an event: run_id, rank, run_group, kind (op, range, async, call, overhead, python), name, pid, tid, op_id,
    start_ns, dur_ns; `node`, its number in pre-order; `parent`, its parent's (NULL for a root); `last_node`, the number
    of the last event below it (its own if there is none); `depth`, 0 for a root.
    """
    connection.execute(_NODES, {"python": python})
    columns = connection.execute(
        "SELECT thread, start_ns, start_ns + dur_ns AS end_ns FROM call_nodes ORDER BY node"
    ).fetchnumpy()
    thread, start, end = (np.asarray(columns[n], dtype=np.int64) for n in ("thread", "start_ns", "end_ns"))
    parent, last, depth = nest(thread, start, end)
    _store(connection, table, parent, last, depth)


def _store(connection: duckdb.DuckDBPyConnection, table: str, parent: Ints, last: Ints, depth: Ints) -> None:
    import pyarrow as pa

    nesting: Any = pa.table({"node": np.arange(len(parent)), "parent": parent, "last_node": last, "depth": depth})
    connection.register("call_nesting", nesting)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT n.* EXCLUDE (thread), nullif(parent, -1) AS parent,"
        " last_node, depth FROM call_nodes n JOIN call_nesting USING (node)"
    )
    connection.unregister("call_nesting")
    connection.execute("DROP TABLE call_nodes")


def nest(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Parents (-1 for roots), last descendants and depths of n intervals (all int64, shape n).

    The intervals are sorted by thread, then start, then longest first. O(n) for every level of nesting.
    """
    n = len(start)
    parent = np.full(n, -1, np.int64)
    last = np.arange(n, dtype=np.int64)
    depth = np.zeros(n, np.int64)
    remaining = np.arange(n, dtype=np.int64)
    owner = thread
    level = 0
    while len(remaining):
        ends, needed = end[remaining], end[remaining] + (start[remaining] == end[remaining])
        new_segment = np.append(True, owner[1:] != owner[:-1])
        reached = _running_max_before(ends, new_segment)
        root = new_segment | (reached < needed)
        roots = np.flatnonzero(root)
        depth[remaining[roots]] = level
        # The descendants of a root are the events up to the next root.
        last[remaining[roots]] = remaining[np.append(roots[1:], len(remaining)) - 1]
        parents = remaining[roots][np.cumsum(root) - 1][~root]
        remaining = remaining[~root]
        parent[remaining] = parents
        owner = parents
        level += 1
    return parent, last, depth


def _running_max_before(values: Ints, new_segment: npt.NDArray[np.bool_]) -> Ints:
    """For each value the maximum of those before it in its segment; meaningless at the start of a segment."""
    segment = np.cumsum(new_segment) - 1
    low = values[new_segment].min()
    span = int(values.max() - low) + 1
    base = max(1, int(2**62 // span))
    before = np.empty_like(values)
    # Each segment is lifted above the one before it, so that one cumulative maximum serves them all; in blocks of
    # segments where the lifted values would not fit into 64 bits.
    for first in range(0, int(segment[-1]) + 1, base):
        a, b = np.searchsorted(segment, [first, first + base])
        lifted = (segment[a:b] - first) * span + (values[a:b] - low)
        reached = np.maximum.accumulate(lifted)
        before[a:b] = np.append(0, reached[:-1]) - (segment[a:b] - first) * span + low
    return before
