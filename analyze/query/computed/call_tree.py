"""Nesting of CPU events: which operator or range lies inside which.

Two trees are made of them. One is torch.profiler's own, which files a CUDA call that no operator made and its own
overhead under the main thread, where they may take operators in. The other is of places: operators, ranges and Python
functions alone, each on its thread.

The rule of nesting is torch.profiler's (`EventList._populate_cpu_children`): on one thread, in order of start (longer
first), the parent of an event is the last event before it that ends at or after its end, and after its start. Events
that overlap in part are not nested.

It is done event by event by `_nesting.c` where that is compiled (`analyze.compiled`); elsewhere level by level over
whole arrays: the events that nothing encloses are the roots of their thread; every other one belongs to the last root
before it, and the rest is the same question inside each root.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.compiled import if_compiled
from analyze.query import spill
from analyze.query.computed.call_paths import dense, number_paths

compiled = if_compiled("analyze.query.computed._nesting")

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BATCH = 4_000_000
"""Events that are sorted and nested at once, to the next whole rank: what bounds the memory."""

_EVENT_BYTES = 360
"""Memory that an event takes while it is nested, and those of the next batch are read."""

_UNKNOWN = np.iinfo(np.int64).max
"""What a file does not say comes behind what it says."""

_KINDS = ("async", "call", "op", "overhead", "python", "range")
_ASYNC, _CALL, _OP, _OVERHEAD, _, _RANGE = range(len(_KINDS))

# There is a row for every event, in memory, so texts are stored as numbers; the view makes them texts again.
_TEXTS = f"""
CREATE TYPE {{table}}_kind AS ENUM {_KINDS};
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
    events = _EVENTS.format(**(kind._asdict() | {"among": among, "table": table, "unknown": _UNKNOWN}))
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


class Tree(NamedTuple):
    """A tree of n events, of which each has those below it behind it (pre-order); all of shape n."""

    order: Ints
    """Where each event stands among those that were given."""
    parent: npt.NDArray[np.integer[Any]]
    """-1 for a root."""
    last: npt.NDArray[np.integer[Any]]
    """The last event below; its own number if there is none."""
    depth: npt.NDArray[np.integer[Any]]
    self_ns: Ints
    folded: Bools
    gpu_ns: Ints
    total_gpu_ns: Ints


def _nested(events: dict[str, Any], first_node: int, first_path: int | None) -> tuple[pa.Table, pa.Table | None]:
    """The rows of a tree, in pre-order, from the columns of _EVENTS; and its paths, unless `first_path` is None."""
    tree = (level_by_level if compiled is None else event_by_event)(events)
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
    path, paths = number_paths(process, tree.parent, np.where(kind == _ASYNC, -1, tree.depth), label)
    rows["path"] = _column((path + first_path).astype(np.int32), path < 0)
    numbered = {
        "path": _column((np.arange(len(paths.parent)) + first_path).astype(np.int32)),
        "parent": _column((paths.parent + first_path).astype(np.int32), paths.parent < 0),
        "last_path": _column((paths.last + first_path).astype(np.int32)),
        "depth": _column(paths.depth.astype(np.int16)),
    }
    return pa.Table.from_pydict(rows), pa.Table.from_pydict(numbered)


def event_by_event(events: dict[str, Any]) -> Tree:
    """The tree of the columns of _EVENTS: compiled."""
    if compiled is None:
        raise ImportError("analyze.query.computed._nesting is not built, or switched off")
    thread, op = (np.ma.filled(events[c], _UNKNOWN) for c in ("tid", "op_id"))
    columns = [np.ascontiguousarray(c) if c is not None else None for c in (
        events["process"], events["kind"], events["name"], events.get("owner"), events.get("stray"), thread, op,
        events["start_ns"], events["dur_ns"], events["launched_ns"],
    )]  # fmt: skip
    made = compiled.tree(len(thread), *columns)
    types = (np.int64, np.int32, np.int32, np.int16, np.int64, np.bool_, np.int64, np.int64)
    return Tree(*(np.frombuffer(column, kind) for column, kind in zip(made, types, strict=True)))


def level_by_level(events: dict[str, Any]) -> Tree:
    """The same where nothing could be compiled, and what the compiled one is held to."""
    process, kind, name, start, length = (
        np.asarray(events[c]) for c in ("process", "kind", "name", "start_ns", "dur_ns")
    )
    is_op = (kind == _OP) | (kind == _RANGE)
    stray = np.flatnonzero((kind == _CALL) | (kind == _OVERHEAD))
    thread = np.ma.filled(events["tid"], _UNKNOWN)
    op = np.ma.filled(events["op_id"], _UNKNOWN)
    if len(stray):
        calls = _pairs(process, np.ma.filled(events["op_id"], 0))
        stray = stray[~np.isin(calls[stray], calls[is_op & (op > 0) & (op != _UNKNOWN)])]
        thread = thread.copy()
        thread[stray] = np.asarray(events["stray"])[stray]
    owner = process * 2 + (kind == _ASYNC)
    if "owner" in events:
        owner = _pairs(owner, np.asarray(events["owner"]))
    lane = dense(_pairs(owner, thread))[0]
    order = in_order(lane, start, (-length, kind == _CALL, op))
    kind, name, start, length, lane = (c[order] for c in (kind, name, start, length, lane))
    # The range of a collective ends on another thread than it began on: nobody's child and nobody's parent.
    alone = kind == _ASYNC
    end = start + length
    changes = _changes(lane)
    changes |= alone
    changes[1:] |= alone[:-1]
    parent, last, depth = nest(np.cumsum(changes), start, end)
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    self_ns = length.copy()
    np.subtract.at(self_ns, above, length[child])
    for i in np.flatnonzero(self_ns < 0):
        # Children that overlap each other, as under the thread number of an accelerator: each moment counts once.
        inside = np.arange(i + 1, last[i] + 1)
        children = inside[parent[inside] == i]
        covered = np.append(start[i], np.maximum.accumulate(end[children])[:-1])
        self_ns[i] = end[i] - start[i] - np.maximum(end[children] - np.maximum(start[children], covered), 0).sum()
    folded = np.zeros(len(parent), bool)
    folded[child] = (np.bincount(above, minlength=len(parent))[above] == 1) & (name[child] == name[above])
    gpu = np.asarray(events["launched_ns"])[order]
    gpu[parent[folded]] = 0
    so_far = np.append(0, np.cumsum(gpu))
    return Tree(order, parent, last, depth, self_ns, folded, gpu, so_far[last + 1] - so_far[np.arange(len(parent))])


def _column(values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
    """The values as they lie there; pa.array would import pandas first, which takes half a second."""
    known = None if null is None or not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    held = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(held)])


def _pairs(a: Ints, b: Ints) -> Ints:
    """A number for each pair of values, in the order of the pairs."""
    inner, known = dense(b)
    return dense(a)[0] * max(len(known), 1) + inner


def in_order(lane: Ints, start: Ints, ties: tuple[Any, ...]) -> Ints:
    """Places of events in the order of lane, start and `ties`. Files are nearly in that of start, so this is fast."""
    order = np.argsort(start, kind="stable")
    lanes = lane[order]
    order = order[np.argsort(lanes.astype(np.uint16) if lanes.max(initial=0) < 2**16 else lanes, kind="stable")]
    same = (np.diff(lane[order]) == 0) & (np.diff(start[order]) == 0)
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    if len(tied):
        group = np.cumsum(~np.append(False, same))[tied]
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(t[rows] for t in reversed(ties)), group))]
    return order


def nest(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Parents (-1 for roots), last descendants and depths of n intervals (all int64, shape n).

    The intervals are sorted by thread, then start, then longest first. O(n) for every level of nesting.
    """
    n = len(start)
    parent = np.full(n, -1, np.int64)
    last = np.arange(n, dtype=np.int64)
    depth = np.zeros(n, np.int64)
    # Of those that are left: their numbers, their ends above those of the threads before, and where a segment begins.
    left = np.arange(n, dtype=np.int64)
    new_segment = _changes(thread)
    lifted = _lifted(end, new_segment)
    empty = start == end
    level = 0
    while len(left):
        root = _not_enclosed(lifted, empty)
        if not root[new_segment].all():
            # Something before a segment reaches into it: events that overlap in part.
            root = _not_enclosed(_lifted(end[left], new_segment), empty)
        roots = np.flatnonzero(root)
        # The descendants of a root are the events up to the next root.
        ends = np.append(roots[1:], len(left))
        of_root = left[roots]
        depth[of_root] = level
        last[of_root] = left[ends - 1]
        below = ~root
        new_segment = np.append(False, root[:-1])[below]
        left, lifted, empty = left[below], lifted[below], empty[below]
        parent[left] = np.repeat(of_root, ends - roots - 1)
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
