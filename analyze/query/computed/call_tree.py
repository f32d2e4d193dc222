"""Nesting of CPU events: which operator or range lies inside which.

Two trees are made of them. One is torch.profiler's own, which files a CUDA call that no operator made and its own
overhead under the main thread, where they may take operators in. The other is of places: operators, ranges and Python
functions alone, each on its thread.

There is a node for each event, so a tree is made of some ranks after the other, and most questions keep only its sums:
by name, or by path. `nesting` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query import spill
from analyze.query.computed.call_paths import dense, number_paths, pairs
from analyze.query.computed.nesting import ASYNC, KINDS, OP, RANGE, UNKNOWN, Room, tree_of

Bools = npt.NDArray[np.bool_]

_BATCH = 4_000_000
"""Events that are sorted and nested at once, to the next whole rank: what bounds the memory."""

_ROWS_READ = 122_880
"""Events that DuckDB hands over at once."""

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
# GPU work may be of ranks that have no events.
_PROCESSES = """
CREATE OR REPLACE TEMP TABLE call_processes AS
WITH counts AS (
    SELECT
        run_id, rank, count(*) FILTER ({among}) AS events, min(pid) FILTER (kind IN ('op', 'range')) AS main
    FROM cpu_events
    GROUP BY run_id, rank
)
SELECT
    run_id, rank, run_group, (row_number() OVER in_order)::INTEGER AS process, main, events,
    (sum(events) OVER in_order - events) // $batch AS batch
FROM (
    SELECT run_id, rank, run_group, main, coalesce(events, 0) AS events
    FROM (SELECT DISTINCT run_id, rank, run_group FROM run_groups) LEFT JOIN counts USING (run_id, rank)
)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
_BATCHES = "SELECT batch::BIGINT, sum(events)::BIGINT FROM call_processes GROUP BY batch ORDER BY batch"
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
    coalesce({place}, {unknown}) AS {place_of}, coalesce(tid, {unknown}) AS tid,
    coalesce(e.op_id, {unknown}) AS op_id, start_ns, dur_ns, coalesce(gpu_ns, 0) AS launched_ns
FROM {events} e
JOIN processes p USING (run_id, rank)
LEFT JOIN launched l ON l.process = p.process AND l.op_id = CASE WHEN kind IN ('op', 'range') THEN e.op_id END
WHERE dur_ns IS NOT NULL AND {among}
"""
_NAMED = """
SELECT run_id, rank, run_group, k.text AS kind, n.text AS name, r.* EXCLUDE (process, kind, name)
FROM {rows} r
JOIN call_processes USING (process)
JOIN call_kinds k ON k.code = r.kind
LEFT JOIN call_names n ON n.code = r.name
"""
_SUMS = """(
    SELECT
        process, kind, name, folded, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
        sum(self_ns)::BIGINT AS self_ns, sum(gpu_ns)::BIGINT AS gpu_ns, sum(total_gpu_ns)::BIGINT AS total_gpu_ns
    FROM call_rows
    GROUP BY process, kind, name, folded
)"""
_PATHS = """
SELECT p.*, s.* EXCLUDE (path)
FROM {paths} p
JOIN (
    SELECT
        path, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, sum(self_ns)::BIGINT AS self_ns,
        min(start_ns) AS first_ns
    FROM {rows}
    WHERE path IS NOT NULL
    GROUP BY path
) s USING (path)
"""
_WORK_SUMS = """
SELECT
    run_id, rank, run_group, path, kind, name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns,
    min(start_ns) AS first_ns, max(start_ns) AS last_ns
FROM ({work})
GROUP BY run_id, rank, run_group, path, kind, name
"""
_WORK = "SELECT w.*, n.path FROM work_nodes('{work}', '{tree}') w LEFT JOIN {tree} n USING (node)"
# What an External id links to an operator, as `work_nodes` has it, without a look at each node.
_BATCH_WORK = """
CREATE OR REPLACE TEMP TABLE call_batch_work AS
SELECT w.*, o.path, coalesce(o.several, coalesce(w.op_id, 0) = 0) AS unlinked
FROM gpu_named_work w
JOIN (SELECT * FROM call_processes WHERE batch = $batch) p USING (run_id, rank)
LEFT JOIN call_ops o ON o.process = p.process AND o.op_id = w.op_id
"""
_LINKED = "SELECT * EXCLUDE (unlinked) FROM call_batch_work WHERE NOT unlinked"
_UNLINKED = """
CREATE OR REPLACE TEMP VIEW call_batch_unlinked AS
SELECT * EXCLUDE (path, unlinked) FROM call_batch_work WHERE unlinked
"""


_COLUMNS = (
    "process", "kind", "name", "tid", "op_id", "start_ns", "dur_ns", "node", "parent", "last_node", "depth", "self_ns",
    "folded", "gpu_ns", "total_gpu_ns", "path",
)  # fmt: skip
"""Of the rows of a tree."""


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

_OF_PLACES = {"call_tree": ("call_tree", "call_tree_paths"), "call_tree_sums": ("call_paths", "call_work")}
"""What is made of a tree of places, together: its rows, or their sums."""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table of a call tree, or of its sums, from the blocks that its declaration uses.

    Its name says which: `torch_tree_` (torch.profiler's) with `no` or `yes` for Python functions; `call_tree_` (of
    places) with `no`, `module` (those of nn.Modules) or `stack` (all of them). `torch_sums_` is what torch_tree_ has
    for each name, `call_tree_sums_` (the tables call_paths_ and call_work_) what call_tree_ has for each path: without
    the rows of the tree, which are as many as the events.

    `analyze.query.computed` has their columns.
    """
    tree, _, functions = table.rpartition("_")
    if tree in _OF_PLACES and (same := _same(connection, tree, functions)):
        for name in _OF_PLACES[tree]:
            connection.execute(f"CREATE VIEW {name}_{functions} AS SELECT * FROM {name}_{same}")
        return
    if tree == "call_tree_sums" and (same := _same(connection, "call_tree", functions)):
        rows = f"call_tree_{same}"
        paths = _PATHS.format(paths=f"call_tree_paths_{same}", rows=f"{rows}_rows")
        connection.execute(f"CREATE TABLE call_paths_{functions} AS {paths}")
        work = _WORK_SUMS.format(work=_WORK.format(work="gpu_named_work", tree=rows))
        connection.execute(f"CREATE VIEW call_work_{functions} AS {work}")
        return
    kind = _BY_PLACE if tree in _OF_PLACES else _AS_TORCH
    among = f"{kind.among} AND {_PYTHON_FUNCTIONS[functions]}"
    events = _EVENTS.format(**(kind._asdict() | {"among": among, "table": table, "unknown": UNKNOWN}))
    connection.execute(_PROCESSES.format(among=among), {"batch": _BATCH})
    spill.check_room(connection, "call_processes", _EVENT_BYTES)
    connection.execute(_TEXTS.format(table=table))
    batches = connection.execute(_BATCHES).fetchall() or [(0, 0)]
    most = max(n for _, n in batches)
    adding = _Adding(connection, tree, functions)
    room = Room(most)
    # DuckDB reads the events of the next batch meanwhile.
    with ThreadPoolExecutor(1) as beside:
        before: Future[_Batch] | None = None
        for (number, _), place in zip(batches, cycle((Room(most), Room(most)))):
            found = _read(connection, events, number, place)
            if before is not None:
                adding.add(before.result())
            before = beside.submit(_nested, found, number, adding.nodes, adding.paths, tree, room)
        if before is not None:
            adding.add(before.result())
    adding.finish()


def _same(connection: duckdb.DuckDBPyConnection, tree: str, functions: str) -> str | None:
    """The Python functions of what is there of trees of places and holds the same: without stacks, none has any."""
    # Its last view: where it is, all of it is. One of another view has no rows of its own.
    made = connection.execute(
        "SELECT regexp_extract(view_name, '_(no|module|stack)$', 1) FROM duckdb_views() v JOIN duckdb_tables() t"
        " ON t.table_name = view_name || '_rows' WHERE starts_with(view_name, $1 || '_')",
        [_OF_PLACES[tree][-1]],
    ).fetchall()
    if not made:
        return None
    of_all, of_modules = connection.execute(
        "SELECT count(*), count(*) FILTER (starts_with(name, 'nn.Module: ')) FROM cpu_events WHERE kind = 'python'"
    ).fetchall()[0]
    held = {"no": 0, "module": of_modules, "stack": of_all}
    return next((name for (name,) in made if held[name] == held[functions]), None)


class _Batch(NamedTuple):
    """Nodes of a tree in pre-order; of a tree of places, also their paths and their operators by External id."""

    number: int
    rows: pa.Table
    paths: pa.Table | None = None
    ops: pa.Table | None = None


class _Adding:
    """The tables of a name, to which batches are added: the first one makes them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tree: str, functions: str):
        self._connection = connection
        self._tree = tree
        self._functions = functions
        self._made: dict[str, None] = {}
        self.nodes = 0
        self.paths = 0

    def add(self, batch: _Batch) -> None:
        """Add what there is of a batch."""
        tables = {"call_rows": batch.rows, "call_path_rows": batch.paths, "call_ops": batch.ops}
        for name, table in tables.items():
            if table is not None:
                self._connection.register(name, table)
        if self._tree == "call_tree_sums":
            self._into("call_paths", _PATHS.format(paths=f"({_NAMED.format(rows='call_path_rows')})", rows="call_rows"))
            self._into("call_work", _WORK_SUMS.format(work=self._work(batch.number)))
        else:
            self._into(self._tree, _NAMED.format(rows=_SUMS if self._tree == "torch_sums" else "call_rows"))
            if batch.paths is not None:
                self._into(f"{self._tree}_paths", _NAMED.format(rows="call_path_rows"))
        for name, table in tables.items():
            if table is not None:
                self._connection.unregister(name)
        self.nodes += len(batch.rows)
        self.paths += 0 if batch.paths is None else len(batch.paths)

    def _work(self, batch: int) -> str:
        """SQL of the GPU work of a batch with the paths of the nodes that launched it."""
        self._connection.execute(_BATCH_WORK, {"batch": batch})
        left = "SELECT 1 FROM call_batch_work WHERE unlinked LIMIT 1"
        if not self._connection.execute(left).fetchall():
            return _LINKED
        self._connection.execute(_UNLINKED)
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW call_batch AS {_NAMED.format(rows='call_rows')}")
        return f"{_LINKED} UNION ALL BY NAME ({_WORK.format(work='call_batch_unlinked', tree='call_batch')})"

    def _into(self, stem: str, sql: str) -> None:
        name = f"{stem}_{self._functions}"
        into = f"INSERT INTO {name}_rows" if name in self._made else f"CREATE OR REPLACE TABLE {name}_rows AS"
        self._connection.execute(f"{into} {sql}")
        self._made[name] = None

    def finish(self) -> None:
        """Make the views, which have texts."""
        texts = "kind::VARCHAR AS kind, name::VARCHAR AS name"
        for name in self._made:
            self._connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({texts}) FROM {name}_rows")


def _read(connection: duckdb.DuckDBPyConnection, sql: str, batch: int, room: Room) -> dict[str, Any]:
    """The columns of _EVENTS."""
    reader = connection.sql(sql, params={"batch": batch}).to_arrow_reader(_ROWS_READ)
    n = 0
    for rows in reader:
        end = n + rows.num_rows
        for field, column in zip(rows.schema, rows.columns, strict=True):
            room.array(field.name, field.type.to_pandas_dtype(), end)[n:] = column.to_numpy()
        n = end
    return {c.name: room.array(c.name, c.type.to_pandas_dtype(), n) for c in reader.schema}


def _nested(events: dict[str, Any], number: int, nodes: int, paths: int, tree: str, room: Room) -> _Batch:
    """A batch from the columns of _EVENTS; its nodes and paths are numbered from these on."""
    made = tree_of(events, room)
    n = len(made.order)

    def taken(name: str) -> npt.NDArray[Any]:
        # (mode="raise" would make a copy.)
        return np.take(events[name], made.order, out=room.array(name, events[name].dtype, n), mode="clip")

    process, kind, name = taken("process"), taken("kind"), taken("name")
    rows = {"process": _column(process), "kind": _column(kind), "name": _column(name)}
    rows["dur_ns"] = _column(taken("dur_ns"))
    rows |= {c: _column(getattr(made, c)) for c in ("self_ns", "folded", "gpu_ns", "total_gpu_ns")}
    if tree == "torch_sums":
        return _Batch(number, _table(rows), None)
    tid, op = taken("tid"), taken("op_id")
    root = made.parent < 0
    rows |= {
        "tid": _column(tid, tid == UNKNOWN),
        "op_id": _column(op, op == UNKNOWN),
        "start_ns": _column(taken("start_ns")),
        "node": _column(np.arange(nodes, nodes + n, dtype=np.int32)),
        "last_node": _column((made.last + nodes).astype(np.int32)),
        "depth": _column(made.depth.astype(np.int16)),
        "parent": _column((made.parent + nodes).astype(np.int32), root),
    }
    if tree == "torch_tree":
        return _Batch(number, _table(rows), None)
    label = kind.astype(np.int64) * (int(name.max(initial=0)) + 2) + name + 1
    path, known = number_paths(process, made.parent, np.where(kind == ASYNC, -1, made.depth), label)
    on = path >= 0
    rows["path"] = _column((path + paths).astype(np.int32), ~on)
    of_path = np.empty(len(known.parent), np.int64)
    of_path[path[on]] = np.flatnonzero(on)
    numbered = {
        "process": _column(process[of_path]),
        "kind": _column(kind[of_path]),
        "name": _column(name[of_path]),
        "path": _column((np.arange(len(known.parent)) + paths).astype(np.int32)),
        "parent": _column((known.parent + paths).astype(np.int32), known.parent < 0),
        "last_path": _column((known.last + paths).astype(np.int32)),
        "depth": _column(known.depth.astype(np.int16)),
    }
    return _Batch(number, _table(rows), pa.Table.from_pydict(numbered), _ops(process, kind, tid, op, path + paths))


def _ops(process: Any, kind: Any, tid: Any, op: Any, path: Any) -> pa.Table:
    """The path of the last operator or range of each External id, and whether several threads have the id."""
    here = np.flatnonzero(((kind == OP) | (kind == RANGE)) & (op > 0) & (op != UNKNOWN))
    process, tid, op, path = process[here], tid[here], op[here], path[here]
    key, known = dense(pairs(process, op))
    node, of_tid = np.empty(len(known), np.int64), np.empty(len(known), np.int64)
    node[key] = np.arange(len(here))  # of several, the last
    of_tid[key] = tid
    several = np.zeros(len(known), bool)
    several[key[of_tid[key] != tid]] = True
    return pa.Table.from_pydict(
        {
            "process": _column(process[node]),
            "op_id": _column(op[node]),
            "path": _column(path[node].astype(np.int32)),
            "several": _column(several),
        }
    )


def _table(rows: Mapping[str, pa.Array]) -> pa.Table:
    return pa.Table.from_pydict({name: rows[name] for name in _COLUMNS if name in rows})


def _column(values: npt.NDArray[Any], null: Bools | None = None) -> pa.Array:
    """The values as they lie there; pa.array would import pandas first, which takes half a second."""
    known = None if null is None or not null.any() else pa.py_buffer(np.packbits(~null, bitorder="little"))
    held = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [known, pa.py_buffer(held)])
