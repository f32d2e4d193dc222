"""The critical path added up: by kind, or by kind and name, for which a piece on the CPU is cut where the innermost
operator, range or CUDA call of its thread changes.

What a path's threads did is read rank after rank: only names, as numbers, and times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from analyze.query.computed import rank_batches
from analyze.query.computed.in_turn import ROWS_READ, in_turn
from analyze.query.computed.innermost import Intervals, Times, Windows, times
from analyze.query.computed.nesting import Room
from analyze.query.computed.registered import registered

if TYPE_CHECKING:
    import duckdb


_BATCH = rank_batches.EVENTS

_EVENT_BYTES = 80
"""Memory that an event takes meanwhile, and those of the next batch."""
_ALONE_BYTES = 45
"""The same where no other batch is read."""

# `lane`: of the CPU, with a known thread; numbered with the batches, so that a batch has neighbours.
_PIECES = """
SELECT
    *, row_number() OVER (ORDER BY run_id, rank, step, seq) AS piece,
    CASE WHEN kind = 'cpu' AND tid IS NOT NULL THEN dense_rank() OVER (ORDER BY run_id, rank, tid)::INTEGER END AS lane
FROM {path}
"""
_COUNTED = ("cpu_ops", "cuda_calls", "ranges")
_RANKS = "(run_id, rank) IN (SELECT run_id, rank FROM total_pieces WHERE lane IS NOT NULL)"
_LANES = """
SELECT run_id, rank, tid, lane, batch
FROM total_ranks JOIN (SELECT DISTINCT run_id, rank, tid, lane FROM total_pieces WHERE lane IS NOT NULL)
    USING (run_id, rank)
"""
# Of all ranks: to look up which ones are asked about takes longer.
_NAMES = """
WITH _names AS (
    SELECT DISTINCT name FROM cpu_events WHERE kind NOT IN ('async', 'overhead', 'python') AND name IS NOT NULL
)
SELECT name, (row_number() OVER (ORDER BY name) - 1)::INTEGER AS label FROM _names
"""
_WINDOWS = """
SELECT batch, p.lane, p.start_ns, p.start_ns + p.dur_ns AS end_ns, piece
FROM total_pieces p JOIN total_lanes USING (lane)
ORDER BY batch, p.lane, p.start_ns
"""
# Of equal events the last by name is the innermost, one without a name before all.
_EVENTS = """
SELECT lane, coalesce(label, {unnamed}) AS label, start_ns, start_ns + dur_ns AS end_ns
FROM cpu_events
JOIN (SELECT * FROM total_lanes WHERE batch = $batch) USING (run_id, rank, tid)
LEFT JOIN total_names USING (name)
WHERE kind NOT IN ('async', 'overhead', 'python') AND dur_ns > 0
"""
_BY_KIND = """
SELECT run_id, rank, run_group, step, kind, NULL::VARCHAR AS name, count(*) AS pieces, sum(dur_ns)::BIGINT AS total_ns
FROM {path}
WHERE dur_ns > 0
GROUP BY run_id, rank, run_group, step, kind
"""
_BY_NAME = """
WITH _cut AS (
    SELECT piece, sum(ns)::BIGINT AS ns FROM total_parts GROUP BY piece
),
_named AS (
    SELECT piece, coalesce(name, '(no event)') AS name, dur_ns - coalesce(ns, 0) AS ns
    FROM total_pieces LEFT JOIN _cut USING (piece)
    UNION ALL
    SELECT piece, n.name, t.ns FROM total_parts t LEFT JOIN total_names n USING (label)
)
SELECT
    run_id, rank, run_group, step, kind, n.name, count(DISTINCT piece) AS pieces, sum(n.ns)::BIGINT AS total_ns
FROM _named n JOIN total_pieces USING (piece)
WHERE n.ns > 0
GROUP BY run_id, rank, run_group, step, kind, n.name
"""


class _Batch(NamedTuple):
    intervals: Intervals
    windows: Windows
    pieces: Any
    """The piece of each window."""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Make `critical_path_by_kind_` or `critical_path_by_name_`, for `span` or `step` as its name says.

    The blocks that its declaration uses must have been made; `analyze.query.computed` has the columns.
    """
    stem, _, window = table.rpartition("_")
    path = f"critical_path_{window}"
    if stem.endswith("_kind"):
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS {_BY_KIND.format(path=path)}")
        return
    pieces = _PIECES.format(path=path)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE total_pieces AS {pieces}")
    alone = rank_batches.create(connection, "total_ranks", _COUNTED, _EVENT_BYTES, _BATCH, _RANKS, _ALONE_BYTES)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE total_lanes AS {_LANES}")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE total_names AS {_NAMES}")
    _store(connection, table, in_turn(_parts, _batches(connection, alone), alone))


def _batches(connection: duckdb.DuckDBPyConnection, alone: bool) -> Iterator[_Batch]:
    """What ran on the threads of the paths, and when these were there; `alone`: one lies where the one before did."""
    asked = {c: np.ma.getdata(v) for c, v in connection.execute(_WINDOWS).fetchnumpy().items()}
    most = rank_batches.most(connection, "total_ranks")
    rooms = cycle([Room(most) for _ in range(1 if alone else 2)])
    [(unnamed,)] = connection.execute("SELECT count(*) FROM total_names").fetchall()
    sql = _EVENTS.format(unnamed=unnamed)
    for batch, first in zip(*np.unique(asked["batch"], return_index=True), strict=True):
        here = slice(int(first), int(np.searchsorted(asked["batch"], batch, "right")))
        lane, start, end, piece = (asked[c][here] for c in ("lane", "start_ns", "end_ns", "piece"))
        # (Lanes from 0 on, for there is memory for each.)
        low = int(lane[0])
        room, n = next(rooms), 0
        types = {"lane": np.int32, "start_ns": np.int64, "end_ns": np.int64, "label": np.int32}
        for rows in connection.sql(sql, params={"batch": int(batch)}).to_arrow_reader(ROWS_READ):
            for name, kind in types.items():
                room.array(name, kind, n + rows.num_rows)[n:] = rows[name].to_numpy()
            n += rows.num_rows
        columns = {name: room.array(name, kind, n) for name, kind in types.items()}
        columns["lane"] -= low
        yield _Batch(Intervals(*columns.values()), Windows((lane - low).astype(np.int32), start, end), piece)


def _parts(batch: _Batch) -> tuple[Any, Times]:
    """Pieces, and their times."""
    found = times(batch.intervals, batch.windows)
    return batch.pieces[found.window], found


def _store(connection: duckdb.DuckDBPyConnection, table: str, made: Iterator[tuple[Any, Times]]) -> None:
    import pyarrow as pa

    schema = pa.schema([("piece", pa.int64()), ("label", pa.int32()), ("ns", pa.int64())])
    parts = [
        pa.Table.from_arrays([pa.array(pieces), pa.array(found.label), pa.array(found.ns)], schema=schema)
        for pieces, found in made
    ]
    with registered(connection, total_parts=pa.concat_tables([schema.empty_table(), *parts])):
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS {_BY_NAME}")
    for name in ("total_pieces", "total_ranks", "total_lanes", "total_names"):
        connection.execute(f"DROP TABLE {name}")
