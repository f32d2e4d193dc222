"""Nesting of CPU events: which operator or range lies inside which.

Two trees are made of them. One is torch.profiler's own, which files a CUDA call that no operator made and its own
overhead under the main thread, where they may take operators in. The other is of places: operators, ranges and Python
functions alone, each on its thread.

`nesting` has the rule.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query import spill
from analyze.query.computed.call_paths import number_paths
from analyze.query.computed.nesting import ASYNC, KINDS, UNKNOWN, tree_of

Bools = npt.NDArray[np.bool_]

_BATCH = 4_000_000
"""Events that are sorted and nested at once, to the next whole rank: what bounds the memory."""

_EVENT_BYTES = 360
"""Memory that an event takes while it is nested, and those of the next batch are read."""

# There is a row for every event, in memory, so texts are stored as numbers; the view makes them texts again.
_TEXTS = f"""
CREATE TYPE {{table}}_kind AS ENUM {KINDS};
CREATE TYPE {{table}}_name AS ENUM (SELECT DISTINCT name FROM cpu_events WHERE name IS NOT NULL ORDER BY name);
CREATE OR REPLACE TEMP TABLE call_kinds AS
SELECT text, enum_code(text) AS code FROM (SELECT unnest(enum_range(NULL::{{table}}_kind))::{{table}}_kind AS text);
CREATE OR REPLACE TEMP TABLE call_names AS
SELECT text, enum_code(text) AS code FROM (SELECT unnest(enum_range(NULL::{{table}}_name))::{{table}}_name AS text);
"""
_PROCESSES = """
CREATE OR REPLACE TEMP TABLE call_processes AS
SELECT
    run_id, rank, run_group, (row_number() OVER in_order)::INTEGER AS process, main, events,
    (sum(events) OVER in_order - events) // $batch AS batch
FROM (
    SELECT
        run_id, rank, any_value(run_group) AS run_group, count(*) FILTER ({among}) AS events,
        min(pid) FILTER (kind IN ('op', 'range')) AS main
    FROM cpu_events
    GROUP BY run_id, rank
)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
_EVENTS = """
WITH processes AS (
    SELECT * FROM call_processes WHERE batch = $batch
),
launched AS (
    SELECT process, op_id, sum(dur_ns)::BIGINT AS gpu_ns
    FROM linked_to_ops('gpu_work') JOIN processes USING (run_id, rank)
    WHERE op_id > 0
    GROUP BY process, op_id
),
_calls AS (
    SELECT * FROM cpu_events WHERE kind = 'call'
)
SELECT
    p.process, enum_code(kind::{table}_kind)::TINYINT AS kind, coalesce(enum_code(name::{table}_name)::INTEGER, -1)
        AS name,
    coalesce({place}, {unknown}) AS {place_of}, tid, e.op_id, start_ns, dur_ns, coalesce(gpu_ns, 0) AS launched_ns
FROM {events} e
JOIN processes p USING (run_id, rank)
LEFT JOIN launched l ON l.process = p.process AND l.op_id = CASE WHEN kind IN ('op', 'range') THEN e.op_id END
WHERE dur_ns IS NOT NULL AND {among}
"""
_ROWS = """
SELECT run_id, rank, run_group, k.text AS kind, n.text AS name, r.* EXCLUDE (process, kind, name)
FROM call_rows r
JOIN call_processes USING (process)
JOIN call_kinds k ON k.code = r.kind
LEFT JOIN call_names n ON n.code = r.name
"""
_SUMS = """
SELECT run_id, rank, run_group, k.text AS kind, n.text AS name, s.* EXCLUDE (process, kind, name)
FROM (
    SELECT
        process, kind, name, folded, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
        sum(self_ns)::BIGINT AS self_ns, sum(gpu_ns)::BIGINT AS gpu_ns, sum(total_gpu_ns)::BIGINT AS total_gpu_ns
    FROM call_rows
    GROUP BY process, kind, name, folded
) s
JOIN call_processes USING (process)
JOIN call_kinds k ON k.code = s.kind
LEFT JOIN call_names n ON n.code = s.name
"""
_PATHS = """
CREATE TABLE {table}_paths AS
WITH sums AS (
    SELECT
        path, min(node) AS first_node, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
        sum(self_ns)::BIGINT AS self_ns, min(start_ns) AS first_ns
    FROM {table}_rows
    WHERE path IS NOT NULL
    GROUP BY path
)
SELECT r.run_id, r.rank, r.run_group, r.kind, r.name, p.*, s.* EXCLUDE (path, first_node)
FROM {table}_path_rows p JOIN sums s USING (path) JOIN {table}_rows r ON r.node = s.first_node
"""


class _Kind(NamedTuple):
    """What tells the trees apart, in SQL: the events, which of them, and where they count for."""

    events: str
    among: str
    place_of: str
    """`owner`: the process of each; `stray`: the thread of a call or overhead that no operator made."""
    place: str


_AS_TORCH = _Kind(
    "(SELECT * FROM cpu_events WHERE kind <> 'call' UNION ALL SELECT * FROM linked_to_ops('_calls'))",
    "true",
    # torch.profiler knows threads by their number alone.
    "stray",
    "coalesce(main, tid)",
)
_BY_PLACE = _Kind("cpu_events", "kind IN ('op', 'range', 'async', 'python')", "owner", "e.pid")
_PYTHON_FUNCTIONS = {
    "no": "kind <> 'python'",
    "yes": "true",
    "module": "(kind <> 'python' OR starts_with(name, 'nn.Module: '))",
    "stack": "true",
}
"""Which Python functions are part of a tree, by the end of its name."""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table of a call tree, from the blocks cpu_events, gpu_work and op_links.

    Its name says which: `torch_tree_` (torch.profiler's) with `no` or `yes` for Python functions; `call_tree_` (of
    places) with `no`, `module` (those of nn.Modules) or `stack` (all of them), which has its paths beside it.
    `torch_sums_` is what torch_tree_ has for each name, without the rows of the tree: those are as many as the events.

    `analyze.query.computed` has its columns.
    """
    tree, _, functions = table.rpartition("_")
    if tree == "call_tree" and (same := _same(connection, functions)):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM call_tree_{same}")
        connection.execute(f"CREATE VIEW call_paths_{functions} AS SELECT * FROM call_paths_{same}")
        return
    kind = _BY_PLACE if tree == "call_tree" else _AS_TORCH
    among = f"{kind.among} AND {_PYTHON_FUNCTIONS[functions]}"
    events = _EVENTS.format(**(kind._asdict() | {"among": among, "table": table, "unknown": UNKNOWN}))
    connection.execute(_PROCESSES.format(among=among), {"batch": _BATCH})
    spill.check_room(connection, "call_processes", _EVENT_BYTES)
    connection.execute(_TEXTS.format(table=table))
    batches = connection.execute("SELECT DISTINCT batch FROM call_processes ORDER BY batch").fetchall()
    nodes = paths = 0

    def add(made: tuple[pa.Table, pa.Table | None]) -> None:
        nonlocal nodes, paths
        rows, numbered = made
        _add(connection, f"{table}_rows", _SUMS if tree == "torch_sums" else _ROWS, rows, nodes)
        nodes += len(rows)
        if numbered is not None:
            _add(connection, f"{table}_path_rows", "SELECT * FROM call_rows", numbered, paths)
            paths += len(numbered)

    # DuckDB reads the events of the next batch meanwhile.
    with ThreadPoolExecutor(1) as beside:
        before: Future[tuple[pa.Table, pa.Table | None]] | None = None
        for (batch,) in batches or [(0,)]:
            found = connection.execute(events, {"batch": batch}).fetchnumpy()
            if before is not None:
                add(before.result())
            before = beside.submit(_nested, found, nodes, paths if tree == "call_tree" else None)
        if before is not None:
            add(before.result())
    texts = "kind::VARCHAR AS kind, name::VARCHAR AS name"
    connection.execute(f"CREATE VIEW {table} AS SELECT * REPLACE ({texts}) FROM {table}_rows")
    if tree == "call_tree":
        connection.execute(_PATHS.format(table=table))
        connection.execute(f"CREATE VIEW call_paths_{functions} AS SELECT * REPLACE ({texts}) FROM {table}_paths")


def _same(connection: duckdb.DuckDBPyConnection, functions: str) -> str | None:
    """A tree of places that is there and holds the same Python functions: without stacks, none of them has any."""
    # Its paths come last: where they are, all of it is.
    made = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE regexp_matches(view_name, '^call_paths_(no|module|stack)$')"
    ).fetchall()
    if not made:
        return None
    of_all, of_modules = connection.execute(
        "SELECT count(*), count(*) FILTER (starts_with(name, 'nn.Module: ')) FROM cpu_events WHERE kind = 'python'"
    ).fetchall()[0]
    held = {"no": 0, "module": of_modules, "stack": of_all}
    names = (name.rpartition("_")[2] for (name,) in made)
    return next((name for name in names if held[name] == held[functions]), None)


def _add(connection: duckdb.DuckDBPyConnection, table: str, sql: str, rows: pa.Table, there: int) -> None:
    """Add what the SQL makes of rows (call_rows) to a table that has so many; the first make it."""
    connection.register("call_rows", rows)
    connection.execute(f"INSERT INTO {table} {sql}" if there else f"CREATE OR REPLACE TABLE {table} AS {sql}")
    connection.unregister("call_rows")


def _nested(events: dict[str, Any], first_node: int, first_path: int | None) -> tuple[pa.Table, pa.Table | None]:
    """The rows of a tree, in pre-order, from the columns of _EVENTS; and its paths, unless `first_path` is None."""
    tree = tree_of(events)
    order = tree.order
    process, kind, name = (np.asarray(events[c])[order] for c in ("process", "kind", "name"))
    numbers = np.arange(first_node, first_node + len(order), dtype=np.int32)
    rows = {
        "process": _column(process),
        "kind": _column(kind),
        "name": _column(name),
        "tid": _column(np.ma.getdata(events["tid"])[order], np.ma.getmaskarray(events["tid"])[order]),
        "op_id": _column(np.ma.getdata(events["op_id"])[order], np.ma.getmaskarray(events["op_id"])[order]),
        "start_ns": _column(np.asarray(events["start_ns"])[order]),
        "dur_ns": _column(np.asarray(events["dur_ns"])[order]),
        "node": _column(numbers),
        "parent": _column((tree.parent + first_node).astype(np.int32), tree.parent < 0),
        "last_node": _column((tree.last + first_node).astype(np.int32)),
        "depth": _column(tree.depth.astype(np.int16)),
        "self_ns": _column(tree.self_ns),
        "folded": _column(tree.folded),
        "gpu_ns": _column(tree.gpu_ns),
        "total_gpu_ns": _column(tree.total_gpu_ns),
    }
    if first_path is None:
        return pa.Table.from_pydict(rows), None
    label = kind.astype(np.int64) * (int(name.max(initial=0)) + 2) + name + 1
    path, paths = number_paths(process, tree.parent, np.where(kind == ASYNC, -1, tree.depth), label)
    rows["path"] = _column((path + first_path).astype(np.int32), path < 0)
    numbered = {
        "path": _column((np.arange(len(paths.parent)) + first_path).astype(np.int32)),
        "parent": _column((paths.parent + first_path).astype(np.int32), paths.parent < 0),
        "last_path": _column((paths.last + first_path).astype(np.int32)),
        "depth": _column(paths.depth.astype(np.int16)),
    }
    return pa.Table.from_pydict(rows), pa.Table.from_pydict(numbered)


def _column(values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
    """The values as they lie there; pa.array would import pandas first, which takes half a second."""
    known = None if null is None or not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    held = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(held)])
