"""The table `launch_points`: GPU work with an External id, and where on the CPU it comes from.

As `work_points` has it, which is asked where several threads have one id; and with the outermost operator there. Looked
up rank by rank in arrays: as joins and windows, DuckDB would hash all work and sort all operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query.computed import rank_batches
from analyze.query.computed.call_paths import dense
from analyze.query.computed.in_turn import in_turn
from analyze.query.computed.launching import (
    POINT,
    TIMES,
    Columns,
    OnThreads,
    Work,
    by_process,
    by_thread,
    points,
    read_by_process,
    taken,
    together,
    work_of,
)
from analyze.query.computed.nesting import UNKNOWN, in_order, lifted
from analyze.query.computed.pieces import Apart, unless_not_apart
from analyze.query.computed.places import integers
from analyze.query.computed.registered import registered
from analyze.query.computed.tree_batch import column

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 200
"""Memory that each of them takes meanwhile."""

# There are millions of rows and few texts.
_NAMES = """
CREATE TYPE IF NOT EXISTS {table}_text AS ENUM (
    SELECT name
    FROM (
        SELECT name FROM cpu_events WHERE kind IN ('op', 'range')
        UNION
        SELECT name FROM kernels
        UNION
        SELECT memcpy_name(kind, src_memory, dst_memory) FROM memcpys
        UNION
        SELECT memset_name(dst_memory) FROM memsets
    )
    WHERE name IS NOT NULL
    ORDER BY name
);
CREATE OR REPLACE TABLE {table}_names AS
SELECT enum_code(name)::INTEGER AS number, name::VARCHAR AS name
FROM (SELECT unnest(enum_range(NULL::{table}_text))::{table}_text AS name);
CREATE OR REPLACE TABLE {table} (
    run_id run_key, rank INTEGER, run_group INTEGER, device INTEGER, name INTEGER, correlation_id BIGINT, op_id BIGINT,
    start_ns BIGINT, dur_ns BIGINT, from_tid BIGINT, from_ns BIGINT, from_end_ns BIGINT,
    outer_op BIGINT, outer_name INTEGER, outer_pieces BIGINT
);
"""
_COUNTED = ("cpu_ops", "gpu_work")
_AMONG = "kind IN ('op', 'range')"
# With the condition on ranks that OF_RANKS stands for, `linked_to_ops` joins what is of these alone.
_WORK = """
WITH _work AS (
    SELECT run_id, rank, device, name, correlation_id, op_id, start_ns, dur_ns FROM linked_to_ops('kernels')
    UNION ALL
    SELECT
        run_id, rank, device, memcpy_name(kind, src_memory, dst_memory), correlation_id, op_id, start_ns, dur_ns
    FROM linked_to_ops('memcpys')
    UNION ALL
    SELECT run_id, rank, device, memset_name(dst_memory), correlation_id, op_id, start_ns, dur_ns
    FROM linked_to_ops('memsets')
)
SELECT process, device, enum_code(name::{table}_text)::INTEGER AS name, correlation_id, op_id, start_ns, dur_ns
FROM _work JOIN (SELECT * FROM launch_point_ranks WHERE batch = $batch) USING (run_id, rank)
WHERE op_id > 0 AND true /* of these ranks */ AND true /* of this work */
"""
_OPS = """
SELECT
    process, kind = 'op' AS is_op, coalesce(tid, {unknown}) AS tid, coalesce(op_id, 0) AS op_id, start_ns,
    start_ns + dur_ns AS end_ns,
    coalesce(enum_code(name::{table}_text)::INTEGER, -1) AS name
FROM cpu_events JOIN (SELECT * FROM launch_point_ranks WHERE batch = $batch) USING (run_id, rank)
WHERE kind IN ('op', 'range') AND dur_ns IS NOT NULL AND true /* of these ranks */ AND true /* of this time */
"""
_INSERT = """
INSERT INTO {table} BY NAME
SELECT run_id, rank, run_group, m.* EXCLUDE (process) FROM launch_points_made m JOIN launch_point_ranks USING (process)
"""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table and `{table}_names`, whose columns `analyze.query.computed` has."""
    unless_not_apart(lambda cut: _make(connection, table, cut))
    connection.execute("DROP TABLE launch_point_ranks")


def _make(connection: duckdb.DuckDBPyConnection, table: str, cut: bool) -> None:
    connection.execute(_NAMES.format(table=table))
    among = _AMONG if cut else ""
    batches = rank_batches.create_cut(connection, "launch_point_ranks", _COUNTED, _EVENT_BYTES, _BATCH, among)
    apart = Apart(batch.piece for batch in batches)
    for placed in in_turn(_placed, (_read(connection, table, batch, apart) for batch in batches)):
        rows = placed.rows
        if len(placed.unlinked):
            rows = pa.concat_tables([rows, by_thread(connection, "launch_point_ranks", placed.unlinked)])
            process, tid, start, end = (integers(rows[c]) for c in ("process", *POINT))
            at = _At(process, tid, start, end, np.full(len(rows), UNKNOWN))
            rows = _in_place(rows, at, placed.outermost)
        with registered(connection, launch_points_made=rows):
            connection.execute(_INSERT.format(table=table))
    apart.finish()


class _Events(NamedTuple):
    """What some ranks did."""

    work: Work
    launching: dict[int, Columns]
    """Operators and ranges with the External id of any work; likewise by the number of the process:"""
    ops: dict[int, Columns]
    """Operators, of which some that lie inside of another one are left out."""


class _At(NamedTuple):
    """Where work comes from on the CPU: the operator or range that launched it; UNKNOWN where that is not known."""

    process: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    """Of a range; -1 of an operator."""


class _Placed(NamedTuple):
    """GPU work, and where it comes from."""

    rows: pa.Table
    unlinked: pa.Table
    """What has an External id that several threads have. Where there is any, `rows` lack what is outermost."""
    outermost: dict[int, _Outermost]


def _read(connection: duckdb.DuckDBPyConnection, table: str, batch: rank_batches.Batch, apart: Apart) -> _Events:
    work = work_of(batch.select(connection, _WORK.format(table=table)).to_arrow_table())
    launching: dict[int, list[Columns]] = {}
    ops: dict[int, list[Columns]] = {}
    ids = []
    for number, found in read_by_process(batch.select(connection, _OPS.format(table=table, unknown=UNKNOWN))):
        is_op = found.pop("is_op")
        if batch.piece:
            ids.append(found["op_id"])
        if number in work.ids:
            ranges = found | {"name": np.where(is_op, -1, found["name"]).astype(np.int64)}
            launching.setdefault(number, []).append(work.launching(number, ranges))
        found = found if is_op.all() else taken(found, np.flatnonzero(is_op), *TIMES, "name")
        ops.setdefault(number, []).append(taken(found, np.flatnonzero(_maybe_outer(found)), *TIMES, "name"))
    apart.add(batch.piece, ids, work.op)
    return _Events(work, *({n: together(of) for n, of in parts.items()} for parts in (launching, ops)))


def _maybe_outer(ops: Columns) -> Bools:
    """Whether operators are not inside of one before, as far as they come by thread and start."""
    tid, start, end = (ops[c] for c in ("tid", "start_ns", "end_ns"))
    turns = np.append(True, (tid[1:] != tid[:-1]) | (start[1:] < start[:-1]))[: len(tid)]
    if 8 * np.count_nonzero(turns) > len(turns):
        lane = dense(tid)[0]
        order = in_order(lane, start, (-end,))
        outer = np.empty(len(order), bool)
        outer[order] = _ends_later(lane[order], end[order])
        return outer
    return _ends_later(np.cumsum(turns), end)


def _ends_later(lane: Ints, end: Ints) -> Bools:
    """Whether an interval ends later than all before it in its lane; lanes ascend."""
    places = lifted(end, np.append(True, lane[1:] != lane[:-1])[: len(lane)])
    return np.append(True, places[1:] > np.maximum.accumulate(places)[:-1])[: len(lane)]


def _placed(events: _Events) -> _Placed:
    columns, unlinked = points(events.work, events.launching)
    names = columns.pop("from_name", np.full(len(unlinked), UNKNOWN))
    outermost = {number: _Outermost(number, ops) for number, ops in events.ops.items()}
    work = _with(events.work.rows, columns)
    if not unlinked.any():
        tid, start, end = (columns[c] for c in POINT)
        work = _in_place(work, _At(events.work.process, tid, start, end, names), outermost)
        return _Placed(work, work.slice(0, 0), outermost)
    return _Placed(work.filter(pa.array(~unlinked)), events.work.rows.filter(pa.array(unlinked)), outermost)


def _in_place(rows: pa.Table, at: _At, outermost: dict[int, _Outermost]) -> pa.Table:
    """With the outermost operator in which each comes from the CPU; where there is none, the range that launched it."""
    columns = {c: np.full(len(rows), UNKNOWN) for c in ("outer_op", "outer_name", "outer_pieces")}
    for number, rows_of in by_process(at.process):
        if number not in outermost:
            continue
        ops = outermost[number]
        here, place = ops.of(rows_of, at.tid, at.start_ns)
        # An operator that began with the range that launched the work, and ended before it, is inside of that range.
        around = (ops.start[place] < at.start_ns[here]) | (ops.end[place] >= at.end_ns[here])
        here, place = here[around], place[around]
        columns["outer_op"][here] = (number << 32) + place
        columns["outer_name"][here] = ops.name[place]
        columns["outer_pieces"][here] = np.bincount(place)[place]
        of_range = (at.name[rows_of] >= 0) & (at.name[rows_of] != UNKNOWN)
        alone = np.setdiff1d(rows_of[of_range], here)
        ranges, place = np.unique(np.stack([a[alone] for a in at[1:]]), axis=1, return_inverse=True)
        columns["outer_op"][alone] = (number << 32) + len(ops.name) + place
        columns["outer_name"][alone] = ranges[3][place]
        columns["outer_pieces"][alone] = np.bincount(place)[place]
    return _with(rows, columns)


class _Outermost:
    """The operators of a process that end later than all that began before on their thread."""

    def __init__(self, process: int, ops: Columns):
        lane, tids = dense(ops["tid"])
        order = in_order(lane, ops["start_ns"], (-ops["end_ns"],))
        order = order[_ends_later(lane[order], ops["end_ns"][order])]
        self.start, self.end = ops["start_ns"][order], ops["end_ns"][order]
        self.of = OnThreads(lane[order], tids, self.start, self.end).of
        self.name = ops["name"][order]


def _with(rows: pa.Table, columns: Columns) -> pa.Table:
    for name, values in columns.items():
        rows = rows.append_column(name, column(values, values == UNKNOWN))
    return rows
