"""The tables `work_of_{choice}_calls`: GPU work, and the call of some operators that launched it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.query.computed import rank_batches
from analyze.query.computed.in_turn import in_turn
from analyze.query.computed.launching import (
    POINT,
    Columns,
    Work,
    by_process,
    by_thread,
    on_threads,
    points,
    read_by_process,
    together,
    work_of,
)
from analyze.query.computed.nesting import UNKNOWN
from analyze.query.computed.pieces import Apart, unless_not_apart
from analyze.query.computed.places import integers
from analyze.query.computed.registered import registered
from analyze.query.computed.tree_batch import column

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]

_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 200
"""Memory that each of them takes meanwhile."""

_COUNTED = ("cpu_ops", "gpu_work")
_AMONG = "kind IN ('op', 'range')"
_TABLE = """
CREATE OR REPLACE TABLE {table} (
    run_id run_key, rank INTEGER, device INTEGER, is_kernel BOOLEAN, is_product BOOLEAN, is_tf32 BOOLEAN,
    start_ns BIGINT, dur_ns BIGINT, call BIGINT
)
"""
# A name is a text of hundreds of characters, and there are millions of rows. With the condition on ranks that OF_RANKS
# stands for, `linked_to_ops` joins what is of these alone.
_WORK = """
SELECT
    process, device, w.kind = 'kernel' AS is_kernel, coalesce(n.is_product, false) AS is_product,
    coalesce(n.is_tf32, false) AS is_tf32, correlation_id, op_id, start_ns, dur_ns
FROM gpu_work w
JOIN (SELECT * FROM work_ranks WHERE batch = $batch) USING (run_id, rank)
LEFT JOIN (
    SELECT
        run_id, name, family IN ('gemm', 'convolution', 'attention') IS TRUE AS is_product,
        is_tf32_kernel(name) AS is_tf32
    FROM kernel_names
) n USING (run_id, name)
WHERE true /* of these ranks */ AND true /* of this work */
"""
_OPS = """
SELECT process, coalesce(tid, {unknown}) AS tid, op_id, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_events JOIN (SELECT * FROM work_ranks WHERE batch = $batch) USING (run_id, rank)
WHERE
    kind IN ('op', 'range') AND op_id > 0 AND dur_ns IS NOT NULL
    AND true /* of these ranks */ AND true /* of this time */
"""
_CALLS = """
SELECT process, coalesce(tid, {unknown}) AS tid, start_ns, end_ns, call
FROM {calls} JOIN (SELECT * FROM work_ranks WHERE batch = $batch) USING (run_id, rank)
WHERE end_ns IS NOT NULL AND true /* of these ranks */ AND true /* of this time */
"""
_INSERT = """
INSERT INTO {table} BY NAME
SELECT run_id, rank, m.* EXCLUDE (process) FROM work_rows m JOIN work_ranks USING (process)
"""
_LAST = ("process", "device", "is_kernel", "is_product", "is_tf32", "start_ns", "dur_ns")


class _Events(NamedTuple):
    """What some ranks did."""

    work: Work
    launching: dict[int, Columns]
    """Operators and ranges with the External id of any work; likewise by the number of the process:"""
    calls: dict[int, Columns]


class _Placed(NamedTuple):
    """GPU work with the call that launched it."""

    rows: pa.Table
    unlinked: pa.Table
    """What no External id places, or one of several threads: still without its call."""
    calls: _Calls


def create(connection: duckdb.DuckDBPyConnection, table: str, calls: str) -> None:
    """Make the table, whose columns `analyze.query.computed` has, of the calls in a table.

    None of these lies in another of its thread.
    """
    unless_not_apart(lambda cut: _make(connection, table, calls, cut))
    connection.execute("DROP TABLE work_ranks")


def _make(connection: duckdb.DuckDBPyConnection, table: str, calls: str, cut: bool) -> None:
    connection.execute(_TABLE.format(table=table))
    among = _AMONG if cut else ""
    batches = rank_batches.create_cut(connection, "work_ranks", _COUNTED, _EVENT_BYTES, _BATCH, among)
    apart = Apart(batch.piece for batch in batches)
    for placed in in_turn(_placed, (_read(connection, calls, batch, apart) for batch in batches)):
        rows = placed.rows
        if len(placed.unlinked):
            found = by_thread(connection, "work_ranks", placed.unlinked)
            called = placed.calls.of(*(integers(found[c]) for c in ("process", *POINT[:2])))
            rows = pa.concat_tables([rows, _called(found, called)])
        with registered(connection, work_rows=rows):
            connection.execute(_INSERT.format(table=table))
    apart.finish()


def _read(connection: duckdb.DuckDBPyConnection, calls: str, batch: rank_batches.Batch, apart: Apart) -> _Events:
    work = work_of(batch.select(connection, _WORK).to_arrow_table())
    launching: dict[int, list[Columns]] = {}
    ids = []
    for number, found in read_by_process(batch.select(connection, _OPS.format(unknown=UNKNOWN))):
        if batch.piece:
            ids.append(found["op_id"])
        if number in work.ids:
            launching.setdefault(number, []).append(work.launching(number, found))
    apart.add(batch.piece, ids, work.op)
    made: dict[int, list[Columns]] = {}
    for number, found in read_by_process(batch.select(connection, _CALLS.format(unknown=UNKNOWN, calls=calls))):
        made.setdefault(number, []).append(found)
    return _Events(work, *({n: together(of) for n, of in parts.items()} for parts in (launching, made)))


def _placed(events: _Events) -> _Placed:
    work = events.work
    found, several = points(work, events.launching)
    calls = _Calls(events.calls)
    called = calls.of(work.process, *(found[c] for c in POINT[:2]))
    unlinked = several | (work.op <= 0) | (work.op == UNKNOWN)
    if not unlinked.any():
        return _Placed(_called(work.rows, called), work.rows.slice(0, 0), calls)
    linked = pa.array(~unlinked)
    return _Placed(_called(work.rows, called).filter(linked), work.rows.filter(pa.array(unlinked)), calls)


class _Calls:
    """Calls by where they are on the CPU."""

    def __init__(self, calls: dict[int, Columns]):
        self._calls = {}
        for number, of_process in calls.items():
            order, places = on_threads(of_process)
            self._calls[number] = places, of_process["call"][order]

    def of(self, process: Ints, tid: Ints, at_ns: Ints) -> Ints:
        """The call in which each thread is at a time; UNKNOWN for none."""
        found = np.full(len(process), UNKNOWN)
        for number, rows in by_process(process):
            if held := self._calls.get(number):
                places, call = held
                here, place = places.of(rows, tid, at_ns)
                found[here] = call[place]
        return found


def _called(rows: pa.Table, call: Ints) -> pa.Table:
    return rows.select(_LAST).append_column("call", column(call, call == UNKNOWN))
