"""The table `enclosing_ops`: in which operator or range a CUDA call begins, of ranks whose files do not say it.

They are read rank after rank, as numbers: there may be tens of millions of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.query.computed import rank_batches
from analyze.query.computed.call_paths import dense, pairs
from analyze.query.computed.in_turn import ROWS_READ, in_turn
from analyze.query.computed.innermost import Intervals, Windows, times
from analyze.query.computed.nesting import UNKNOWN, in_order
from analyze.query.computed.registered import registered

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]

_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 160
"""Memory that an event takes meanwhile, and those of the next batch."""

_COUNTED = ("cpu_ops", "cuda_calls", "ranges")
# A call of the driver inside of one of the runtime is in its piece.
_AMONG = "kind IN ('op', 'range', 'call')"
_RANKS = "(run_id, rank) IN (SELECT run_id, rank FROM ranks_without_op_ids)"
_OPS = """
SELECT process, coalesce(tid, {unknown}) AS tid, op_id, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_events JOIN (SELECT * FROM enclosed_ranks WHERE batch = $batch) USING (run_id, rank)
WHERE kind IN ('op', 'range') AND op_id > 0 AND dur_ns > 0 AND true /* of this time */
"""
_CALLS = """
WITH _made AS NOT MATERIALIZED (
    SELECT * FROM cuda_calls SEMI JOIN (SELECT * FROM enclosed_ranks WHERE batch = $batch) USING (run_id, rank)
    WHERE true /* of this time */
)
SELECT process, coalesce(tid, {unknown}) AS tid, correlation_id, start_ns
FROM calls_that_launch('_made') JOIN (SELECT * FROM enclosed_ranks WHERE batch = $batch) USING (run_id, rank)
"""
_FOUND = """
SELECT run_id, rank, correlation_id, op_id FROM enclosed_calls JOIN enclosed_ranks USING (process)
"""
_OP_TYPES = {"process": np.int32, "tid": np.int64, "op_id": np.int64, "start_ns": np.int64, "end_ns": np.int64}
_CALL_TYPES = {"process": np.int32, "tid": np.int64, "correlation_id": np.int64, "start_ns": np.int64}


class _Batch(NamedTuple):
    ops: dict[str, Any]
    calls: dict[str, Any]


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make the table from the blocks that its declaration uses; `analyze.query.computed` has its columns."""
    import pyarrow as pa

    batches = rank_batches.create_cut(connection, "enclosed_ranks", _COUNTED, _EVENT_BYTES, _BATCH, _AMONG, _RANKS)
    types = {"process": pa.int32(), "correlation_id": pa.int64(), "op_id": pa.int64()}
    into = f"CREATE OR REPLACE TABLE {table} AS"
    none = [np.empty(0, np.int64)] * 3
    for found in (none, *in_turn(_enclosing, _batches(connection, batches))):
        rows = {name: pa.array(column, kind) for column, (name, kind) in zip(found, types.items(), strict=True)}
        with registered(connection, enclosed_calls=pa.table(rows)):
            connection.execute(f"{into} {_FOUND}")
        into = f"INSERT INTO {table}"
    connection.execute("DROP TABLE enclosed_ranks")


def _batches(connection: duckdb.DuckDBPyConnection, batches: list[rank_batches.Batch]) -> Iterator[_Batch]:
    """Operators and ranges, and the calls."""
    for batch in batches:
        yield _Batch(_read(connection, batch, _OPS, _OP_TYPES), _read(connection, batch, _CALLS, _CALL_TYPES))


def _read(
    connection: duckdb.DuckDBPyConnection, batch: rank_batches.Batch, sql: str, types: dict[str, Any]
) -> dict[str, Any]:
    reader = batch.select(connection, sql.format(unknown=UNKNOWN)).to_arrow_reader(ROWS_READ)
    parts: dict[str, list[Any]] = {name: [np.empty(0, kind)] for name, kind in types.items()}
    for rows in reader:
        for name, found in parts.items():
            found.append(rows[name].to_numpy())
    # (One after the other, so that no column is there twice for long.)
    return {name: np.concatenate(parts.pop(name)) for name in types}


def _enclosing(batch: _Batch) -> tuple[Ints, Ints, Ints]:
    """Process, correlation id and operator of the calls inside one."""
    ops, calls = batch
    n = len(ops["process"])
    lane = pairs(*(np.concatenate([ops[c], calls[c]]) for c in ("process", "tid")))
    label, ids = dense(ops["op_id"])
    order = in_order(lane[n:], calls["start_ns"], ())
    of_lane, at = lane[n:][order], calls["start_ns"][order]
    # A moment of a thread is asked for once, though several calls may begin in it.
    new = np.append(True, (of_lane[1:] != of_lane[:-1]) | (at[1:] != at[:-1]))[: len(at)]
    windows = Windows(of_lane[new].astype(np.int32), at[new], at[new] + 1)
    found = times(Intervals(lane[:n].astype(np.int32), ops["start_ns"], ops["end_ns"], label.astype(np.int32)), windows)
    held = np.full(len(windows.lane), -1, np.int64)
    held[found.window] = ids[found.label]
    op = held[np.cumsum(new) - 1]
    inside = np.flatnonzero(op >= 0)
    places = order[inside]
    return calls["process"][places], calls["correlation_id"][places], op[inside]
