"""Nesting of CPU events: which operator or range lies inside which.

Two trees are made of them. One is torch.profiler's own, which files a CUDA call that no operator made and its own
overhead under the main thread, where they may take operators in. The other is of places: operators, ranges and Python
functions alone, each on its thread.

The rule of nesting is torch.profiler's (`EventList._populate_cpu_children`): on one thread, in order of start (longer
first), the parent of an event is the last event before it that ends at or after its end, and after its start. Events
that overlap in part are not nested. Done level by level over whole arrays: the events that nothing encloses are the
roots of their thread; every other one belongs to the last root before it, and the rest is the same question inside each
root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BATCH = 16_000_000
"""Events that are sorted and nested at once, to the next whole rank: what bounds the memory."""

_TYPES = """
CREATE TYPE IF NOT EXISTS call_kind AS ENUM ('async', 'call', 'op', 'overhead', 'python', 'range');
CREATE TYPE IF NOT EXISTS call_name AS ENUM (SELECT DISTINCT name FROM cpu_events WHERE name IS NOT NULL ORDER BY name);
"""
_PROCESSES = """
CREATE OR REPLACE TEMP TABLE call_processes AS
SELECT
    run_id, rank, row_number() OVER in_order AS process, main, (sum(events) OVER in_order - events) // $batch AS batch
FROM (
    SELECT run_id, rank, count(*) AS events, min(pid) FILTER (kind IN ('op', 'range')) AS main
    FROM cpu_events
    GROUP BY run_id, rank
)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
_NODES = """
CREATE OR REPLACE TEMP TABLE call_nodes AS
WITH processes AS (
    SELECT * FROM call_processes WHERE batch = $batch
),
known_ops AS (
    SELECT DISTINCT process, op_id
    FROM cpu_events JOIN processes USING (run_id, rank)
    WHERE kind IN ('op', 'range') AND op_id > 0
),
launched AS (
    SELECT process, op_id, sum(dur_ns)::BIGINT AS gpu_ns
    FROM linked_to_ops('gpu_work') JOIN processes USING (run_id, rank)
    WHERE op_id > 0
    GROUP BY process, op_id
)
SELECT
    e.run_id, e.rank, run_group, kind::call_kind AS kind, name::call_name AS name, tid, e.op_id, start_ns, dur_ns,
    process, CASE WHEN kind IN ('op', 'range') THEN coalesce(gpu_ns, 0) ELSE 0 END AS launched_ns,
    {thread} AS thread, {owner} AS owner
FROM {events} e
JOIN processes USING (run_id, rank)
LEFT JOIN known_ops k USING (process, op_id)
LEFT JOIN launched l USING (process, op_id)
WHERE dur_ns IS NOT NULL AND {among}
ORDER BY process, kind = 'async', owner, thread, start_ns, dur_ns DESC, kind = 'call', e.op_id
"""
_TREE = "SELECT n.* EXCLUDE (process, thread, owner, launched_ns), x.* FROM call_nodes n POSITIONAL JOIN call_nesting x"


class _Kind(NamedTuple):
    """What tells the trees apart, in SQL: the events, which of them, and the process and thread each counts for."""

    events: str
    among: str
    owner: str
    thread: str


_AS_TORCH = _Kind(
    "linked_to_ops('cpu_events')",
    "true",
    # torch.profiler knows threads by their number alone.
    "0",
    "CASE WHEN kind IN ('call', 'overhead') AND k.op_id IS NULL THEN coalesce(main, tid) ELSE tid END",
)
_BY_PLACE = _Kind("cpu_events", "kind IN ('op', 'range', 'async', 'python')", "e.pid", "tid")
_PYTHON = {
    "no": "kind <> 'python'",
    "yes": "true",
    "module": "(kind <> 'python' OR starts_with(name, 'nn.Module: '))",
    "stack": "true",
}
"""Which Python functions are part of a tree, by the end of its name."""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table of a call tree, from the blocks cpu_events, gpu_work and op_links.

    Its name says which: `torch_tree_` (torch.profiler's) with `no` or `yes` for Python functions; `call_tree_` (of
    places) with `no`, `module` (those of nn.Modules) or `stack` (all of them).

    `analyze.query.computed` has its columns.
    """
    # There is a row for every event, in memory, so texts are stored as numbers; the view makes them texts again.
    tree, _, functions = table.rpartition("_")
    kind = _AS_TORCH if tree == "torch_tree" else _BY_PLACE
    among = f"{kind.among} AND {_PYTHON[functions]}"
    nodes = _NODES.format(**(kind._asdict() | {"among": among}))
    connection.execute(_TYPES)
    connection.execute(_PROCESSES, {"batch": _BATCH})
    batches = connection.execute("SELECT DISTINCT batch FROM call_processes ORDER BY batch").fetchall()
    first_node = 0
    for (batch,) in batches or [(0,)]:
        connection.execute(nodes, {"batch": batch})
        nesting = _nesting(connection, first_node)
        connection.register("call_nesting", nesting)
        verb = f"INSERT INTO {table}_rows" if first_node else f"CREATE OR REPLACE TEMP TABLE {table}_rows AS"
        connection.execute(f"{verb} {_TREE}")
        connection.unregister("call_nesting")
        first_node += len(nesting)
    connection.execute("DROP TABLE call_nodes")
    texts = "kind::VARCHAR AS kind, name::VARCHAR AS name"
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT * REPLACE ({texts}) FROM {table}_rows")


def _nesting(connection: duckdb.DuckDBPyConnection, first_node: int) -> pa.Table:
    """The columns from `node` on, for the rows of call_nodes."""
    import pyarrow as pa

    columns = connection.execute(
        # Numbers for NULL, whose place in an array holds anything: threads and names that the file does not say.
        "SELECT process, coalesce(owner, -1) AS owner, coalesce(thread, -9223372036854775807) AS thread,"
        " kind = 'async' AS alone, start_ns, start_ns + dur_ns AS end_ns,"
        " coalesce(enum_code(name)::BIGINT, -1) AS name, launched_ns FROM call_nodes"
    ).fetchnumpy()
    process, owner, thread, alone, start, end, name, launched = (np.asarray(c) for c in columns.values())
    # The range of a collective ends on another thread than it began on: nobody's child and nobody's parent.
    elsewhere = (process[1:] != process[:-1]) | (owner[1:] != owner[:-1]) | (thread[1:] != thread[:-1])
    changed = elsewhere | alone[1:] | alone[:-1]
    parent, last, depth = nest(np.cumsum(np.append(False, changed))[: len(start)], start, end)
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    self_ns = end - start
    np.subtract.at(self_ns, above, (end - start)[child])
    for i in np.flatnonzero(self_ns < 0):
        # Children that overlap each other, as under the thread number of an accelerator: each moment counts once.
        inside = np.arange(i + 1, last[i] + 1)
        children = inside[parent[inside] == i]
        covered = np.append(start[i], np.maximum.accumulate(end[children])[:-1])
        self_ns[i] = end[i] - start[i] - np.maximum(end[children] - np.maximum(start[children], covered), 0).sum()
    folded = np.zeros(len(parent), bool)
    folded[child] = (np.bincount(above, minlength=len(parent))[above] == 1) & (name[child] == name[above])
    gpu = launched.copy()
    gpu[parent[folded]] = 0
    so_far = np.append(0, np.cumsum(gpu))
    numbers = np.arange(len(parent))
    return pa.table(
        {
            "node": pa.array(numbers + first_node, pa.int32()),
            "parent": pa.array(parent + first_node, pa.int32(), mask=parent < 0),
            "last_node": pa.array(last + first_node, pa.int32()),
            "depth": pa.array(depth, pa.int16()),
            "self_ns": self_ns,
            "folded": folded,
            "gpu_ns": gpu,
            "total_gpu_ns": so_far[last + 1] - so_far[numbers],
        }
    )


def nest(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Parents (-1 for roots), last descendants and depths of n intervals (all int64, shape n).

    The intervals are sorted by thread, then start, then longest first. O(n) for every level of nesting.
    """
    n = len(start)
    parent = np.full(n, -1, np.int64)
    last = np.arange(n, dtype=np.int64)
    depth = np.zeros(n, np.int64)
    empty = start == end
    lifted = _lifted(end, _changes(thread))
    remaining = np.arange(n, dtype=np.int64)
    owner = thread
    level = 0
    while len(remaining):
        new_segment = _changes(owner)
        root = _not_enclosed(lifted[remaining], empty[remaining])
        if not root[new_segment].all():
            # Something before a segment reaches into it: events that overlap in part.
            root = _not_enclosed(_lifted(end[remaining], new_segment), empty[remaining])
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


def _changes(values: Ints) -> Bools:
    """Where a value differs from the one before it; the first does."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _not_enclosed(ends: Ints, empty: Bools) -> Bools:
    """Whether nothing before an event ends at or after its end; where that is also its start, after its end."""
    reached = np.maximum.accumulate(ends)
    root = np.ones(len(ends), bool)
    root[1:] = reached[:-1] < ends[1:] + empty[1:]
    return root


def _lifted(values: Ints, new_segment: Bools) -> Ints:
    """Values in the same order within a segment and above those of the segments before: one maximum serves them all."""
    if not len(values):
        return values
    segment = np.cumsum(new_segment)
    low, high = int(values.min()), int(values.max())
    if int(segment[-1] + 1) * (high - low + 1) >= 2**62:
        values = np.unique(values, return_inverse=True)[1]
        low, high = 0, len(values)
    return segment * (high - low + 1) + (values - low)
