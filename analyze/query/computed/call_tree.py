"""Nesting of CPU events: which operator or range lies inside which.

Two trees are made of them. One is torch.profiler's own, which files a CUDA call that no operator made and its own
overhead under the main thread, where they may take operators in. The other is of places: operators, ranges and Python
functions alone, each on its thread.

There is a node for each event, so a tree is made of some ranks after the other, and most questions keep only its sums:
by name, or by path. `nesting` has the rule.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from analyze.query import spill
from analyze.query.computed import piece_sums, pieces, rank_batches, tree_work
from analyze.query.computed.in_turn import ROWS_READ, in_turn
from analyze.query.computed.launched import Launched
from analyze.query.computed.nesting import CALL, KINDS, OP, RANGE, UNKNOWN, Room, tree_of
from analyze.query.computed.path_sums import paths_of
from analyze.query.computed.registered import registered
from analyze.query.computed.tree_batch import Batch, paths_of_batch, rows_of, sums_of_batch
from analyze.query.interrupts import end_if_told

_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 360
"""Memory that an event takes while it is nested and made a row, and those of the next batch are read."""
_SUMMED_BYTES = 200
"""The same where there are only sums."""

# There is a row for every event, in memory, so texts are stored as numbers; the view makes them texts again.
_TEXTS = f"""
CREATE TYPE IF NOT EXISTS {{table}}_kind AS ENUM {KINDS};
CREATE TYPE IF NOT EXISTS {{table}}_name AS ENUM (
    SELECT DISTINCT name FROM cpu_events WHERE name IS NOT NULL AND {{among}} ORDER BY name
);
CREATE OR REPLACE TEMP TABLE call_kinds AS
SELECT text, enum_code(text) AS code FROM (SELECT unnest(enum_range(NULL::{{table}}_kind))::{{table}}_kind AS text);
CREATE OR REPLACE TEMP TABLE call_names AS
SELECT text, enum_code(text) AS code FROM (SELECT unnest(enum_range(NULL::{{table}}_name))::{{table}}_name AS text);
"""
# GPU work may be of ranks that have no events.
_PROCESSES = """
CREATE OR REPLACE TEMP TABLE call_processes AS
WITH counts AS (
    SELECT run_id, rank, count(*) AS events, {main} AS main
    FROM cpu_events
    WHERE {among}
    GROUP BY run_id, rank
)
SELECT
    run_id, rank, run_group, (row_number() OVER in_order)::INTEGER AS process, main, events,
    (sum(events) OVER in_order - events) // $batch AS batch
FROM (
    SELECT run_id, rank, run_group, main, coalesce(events, 0) AS events
    FROM (SELECT DISTINCT run_id, rank, run_group FROM run_groups WHERE {which}) LEFT JOIN counts USING (run_id, rank)
)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
_WITH_MEMORY = "(run_id, rank) IN (SELECT DISTINCT run_id, rank FROM memory_events)"
# With the condition on ranks that OF_RANKS stands for, `linked_to_ops` joins what is of these alone.
_EVENTS = """
WITH _calls AS (
    SELECT * FROM cpu_events WHERE kind = 'call'
)
SELECT
    p.process, enum_code(kind::{table}_kind)::TINYINT AS kind, coalesce(enum_code(name::{table}_name)::INTEGER, -1)
        AS name,
    coalesce({place}, {unknown}) AS {place_of}, coalesce(tid, {unknown}) AS tid,
    coalesce(e.op_id, {unknown}) AS op_id, start_ns, dur_ns
FROM {events} e
JOIN (SELECT * FROM call_processes WHERE batch = $batch) p USING (run_id, rank)
WHERE dur_ns IS NOT NULL AND {among} AND true /* of these ranks */ AND true /* of this time */
"""
_LAUNCHED = """
SELECT process::BIGINT AS process, op_id, {gpu}::BIGINT AS ns
FROM linked_to_ops('gpu_work') JOIN (SELECT * FROM call_processes WHERE batch = $batch) USING (run_id, rank)
WHERE op_id > 0 AND true /* of these ranks */ AND true /* of this work */
"""
_NAMED = """
SELECT run_id, rank, run_group, k.text{text} AS kind, n.text{text} AS name, r.* EXCLUDE (process, kind, name)
FROM {rows} r
JOIN call_processes USING (process)
JOIN call_kinds k ON k.code = r.kind
LEFT JOIN call_names n ON n.code = r.name
"""


class _Kind(NamedTuple):
    """What tells the trees apart, in SQL: the events, which of them, and where they count for."""

    events: str
    among: str
    place_of: str
    """`owner`: the process of each; `stray`: the thread of a call or overhead that no operator made."""
    place: str
    main: str
    """The main thread of a rank, whose number is the process's; where that is asked."""


_AS_TORCH = _Kind(
    "(SELECT * FROM cpu_events WHERE kind <> 'call' UNION ALL SELECT * FROM linked_to_ops('_calls'))",
    "true",
    # torch.profiler knows threads by their number alone.
    "stray",
    "coalesce(main, tid)",
    "min(pid) FILTER (kind IN ('op', 'range'))",
)
_BY_PLACE = _Kind("cpu_events", "kind IN ('op', 'range', 'async', 'python')", "owner", "e.pid", "NULL")
_PYTHON_FUNCTIONS = {
    "no": "kind <> 'python'",
    "yes": "true",
    "module": "(kind <> 'python' OR starts_with(name, 'nn.Module: '))",
    "stack": "true",
}
"""Which Python functions are part of a tree, by the end of its name."""

_OF_PLACES = {"call_tree": ("call_tree", "call_tree_paths"), "call_tree_sums": ("call_paths", "call_work")}
"""What is made of a tree of places, together: its rows, or their sums."""
_SUMMED = {"torch_sums": ("torch_sums",), "call_tree_sums": ("call_paths", "call_work")}
"""Tables with few rows for each run."""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table of a call tree, or of its sums, from the blocks that its declaration uses.

    Its name says which: `torch_tree_` (torch.profiler's) with `no` or `yes` for Python functions, and `memory_tree_`,
    the same of ranks with allocator events alone; `call_tree_` (of places) with `no`, `module` (those of nn.Modules) or
    `stack` (all of them). `torch_sums_` is what torch_tree_ has
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
        connection.execute(f"CREATE VIEW call_paths_{functions} AS SELECT * FROM call_tree_paths_{same}")
        work = tree_work.sums_in("gpu_named_work", f"call_tree_{same}")
        connection.execute(f"CREATE VIEW call_work_{functions} AS {work}")
        return
    pieces.unless_not_apart(lambda cut: _make(connection, table, cut and tree in _SUMMED))


def _make(connection: duckdb.DuckDBPyConnection, table: str, cut: bool) -> None:
    """`create` where nothing is there yet; `cut`: large ranks, of whose pieces the sums can be added up."""
    tree, _, functions = table.rpartition("_")
    kind = _BY_PLACE if tree in _OF_PLACES else _AS_TORCH
    among = f"{kind.among} AND {_PYTHON_FUNCTIONS[functions]}"
    # Of sums by path, only which operators launched anything is asked.
    launched = _LAUNCHED.format(gpu="1" if tree == "call_tree_sums" else "dur_ns")
    events = _EVENTS.format(**(kind._asdict() | {"among": among, "table": table, "unknown": UNKNOWN}))
    adding = _Adding(connection, tree, functions)
    which = _WITH_MEMORY if tree == "memory_tree" else "true"
    connection.execute(_PROCESSES.format(among=among, which=which, main=kind.main), {"batch": _BATCH})
    found = pieces.cut(connection, "call_processes", among, _BATCH) if cut else {}
    apart = pieces.Apart(found.values())
    spill.check_room(connection, "call_processes", _SUMMED_BYTES if tree in _SUMMED else _EVENT_BYTES)
    batches = rank_batches.batches(connection, "call_processes", found)
    if not batches:
        batches = [rank_batches.Batch(0, "true")]
    connection.execute(_TEXTS.format(table=table, among=among))
    adding.batches = {of.number: of for of in batches}
    most = rank_batches.most(connection, "call_processes")
    room = Room(most)
    places = cycle((Room(most), Room(most)))

    read = ((of.number, _read(connection, (events, launched), of, next(places), apart)) for of in batches)
    for batch in in_turn(lambda one: _nested(one[1], one[0], adding.nodes, adding.paths, tree, room), read):
        adding.add(batch)
    apart.finish()
    if found:
        adding.bring_together()
    adding.finish()


def _same(connection: duckdb.DuckDBPyConnection, tree: str, functions: str) -> str | None:
    """The Python functions of what is there of trees of places and holds the same: without stacks, none has any."""
    stem, here = _OF_PLACES[tree][-1], "database_name = current_database()"
    with_rows = connection.execute(
        f"SELECT regexp_extract(table_name, '^{stem}_(no|module|stack)_rows$', 1) AS name FROM duckdb_tables()"
        f" WHERE {here} AND name <> ''"
    ).fetchall()
    if not with_rows:  # to list views takes a new DuckDB 9 ms
        return None
    # Its last view: where it is, all of it is. One of another view has no rows of its own.
    views = {v for (v,) in connection.execute(f"SELECT view_name FROM duckdb_views() WHERE {here}").fetchall()}
    made = [name for (name,) in with_rows if f"{stem}_{name}" in views]
    held = _functions_held(connection) if made else {}
    return next((name for name in made if held[name] == held[functions]), None)


def _functions_held(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many Python functions are part of a tree, by the end of its name."""
    of_all, of_modules = connection.execute(
        "SELECT count(*), count(*) FILTER (starts_with(name, 'nn.Module: ')) FROM cpu_events WHERE kind = 'python'"
    ).fetchall()[0]
    return {"no": 0, "module": of_modules, "stack": of_all, "yes": of_all}


class _Adding:
    """The tables of a name, to which batches are added: the first one makes them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tree: str, functions: str):
        self._connection = connection
        self._tree = tree
        self._functions = functions
        self._made: dict[str, None] = {}
        self.nodes = 0
        self.paths = 0
        self.batches: dict[int, rank_batches.Batch] = {}

    def add(self, batch: Batch) -> None:
        """Add what there is of a batch."""
        if self._tree == "call_tree_sums":
            self._into(
                "call_paths", _NAMED.format(rows="call_batch", text="::VARCHAR"), call_batch=paths_of_batch(batch)
            )
            work = tree_work.sums(self._connection, batch, self.batches[batch.number], _NAMED)
            self._into("call_work", work)
        elif self._tree == "torch_sums":
            self._into(
                "torch_sums", _NAMED.format(rows="call_batch", text="::VARCHAR"), call_batch=sums_of_batch(batch)
            )
        else:
            self._into(self._tree, _NAMED.format(rows="call_rows", text=""), call_rows=rows_of(batch))
        if self._tree == "call_tree":
            self._into(
                "call_tree_paths", _NAMED.format(rows="call_batch", text="::VARCHAR"), call_batch=paths_of_batch(batch)
            )
        self.nodes += len(batch.tree.order)
        self.paths += len(batch.sums.parent) if batch.sums else 0

    def bring_together(self) -> None:
        """Make sums of ranks of those of their pieces."""
        made = [f"{stem}_{self._functions}_rows" for stem in _SUMMED[self._tree]]
        if self._tree == "torch_sums":
            piece_sums.names(self._connection, *made)
        else:
            piece_sums.paths(self._connection, *made)

    def _into(self, stem: str, sql: str, **tables: pa.Table) -> None:
        """Add what SQL selects, of tables that it may read."""
        name = f"{stem}_{self._functions}"
        into = f"INSERT INTO {name}_rows" if name in self._made else f"CREATE OR REPLACE TABLE {name}_rows AS"
        with registered(self._connection, **tables):
            self._connection.execute(f"{into} {sql}")
        self._made[name] = None

    def finish(self) -> None:
        """Make the views, which have texts; what was made on the way goes."""
        tree_work.drop(self._connection)
        texts = "kind::VARCHAR AS kind, name::VARCHAR AS name"
        for name in self._made:
            self._connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({texts}) FROM {name}_rows")


def _read(
    connection: duckdb.DuckDBPyConnection,
    sql: tuple[str, str],
    batch: rank_batches.Batch,
    room: Room,
    apart: pieces.Apart,
) -> dict[str, Any]:
    """The columns of _EVENTS, and `launched_ns`: of _LAUNCHED, what each operator or range launched."""
    events, launched = sql
    found = batch.select(connection, launched).fetchnumpy()
    process, op, ns = (np.ma.getdata(found[c]) for c in ("process", "op_id", "ns"))
    work = Launched(process, op, ns, room)
    reader = batch.select(connection, events).to_arrow_reader(ROWS_READ)
    types: dict[str, Any] = {c.name: np.dtype(str(c.type)) for c in reader.schema}
    n = 0
    for rows in reader:
        end_if_told()
        end = n + rows.num_rows
        read = {name: column.to_numpy() for name, column in zip(types, rows.columns, strict=True)}
        for name, kind in types.items():
            room.array(name, kind, end)[n:] = read[name]
        ids = np.where((read["kind"] == OP) | (read["kind"] == RANGE), read["op_id"], UNKNOWN)
        room.array("launched_ns", np.int64, end)[n:] = work.of(read["process"], ids)
        n = end
    columns = {name: room.array(name, kind, n) for name, kind in {**types, "launched_ns": np.int64}.items()}
    if batch.piece:
        kind, ids = columns["kind"], columns["op_id"]
        apart.add(batch.piece, [ids[(kind == OP) | (kind == RANGE)]], np.concatenate([ids[kind == CALL], op]))
    return columns


def _nested(events: dict[str, Any], number: int, nodes: int, paths: int, tree: str, room: Room) -> Batch:
    """A batch from the columns of _EVENTS; its nodes and paths are numbered from these on."""
    batch = Batch(number, events, tree_of(events, room), room, nodes, paths)
    if tree not in _OF_PLACES:
        return batch
    path, sums = paths_of(batch.tree, events, room)
    return batch._replace(path=path, sums=sums)
