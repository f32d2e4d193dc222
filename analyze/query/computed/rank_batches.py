"""Ranks in batches of as many events as are worked on at once, to the next whole rank: what bounds the memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from analyze.query import spill
from analyze.query.computed import pieces
from analyze.query.literals import OF_RANKS, of_ranks

if TYPE_CHECKING:
    import duckdb

EVENTS = 4_000_000
"""That a batch has before it ends."""


def create(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    counted: Iterable[str],
    event_bytes: int,
    batch: int,
    only: str,
    alone_bytes: int | None = None,
) -> bool:
    """Make the temporary table of what `sql` selects, with so many events a batch.

    Raises InputError if those of a rank, of so many bytes each, take more memory than there is; gives whether there is
    enough only if no batch is read while another one is worked on (`spill.check_room`).
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {sql(counted, only)}", {"batch": batch})
    return spill.check_room(connection, table, event_bytes, alone_bytes)


def create_cut(
    connection: duckdb.DuckDBPyConnection, table: str, counted: Iterable[str], event_bytes: int, batch: int, among: str,
    only: str = "true",
) -> list[Batch]:  # fmt: skip
    """The same of ranks of which large ones are cut (`pieces.cut`, unless `among` is empty); gives the batches."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {sql(counted, only)}", {"batch": batch})
    found = pieces.cut(connection, table, among, batch) if among else {}
    spill.check_room(connection, table, event_bytes)
    return batches(connection, table, found)


class Batch(NamedTuple):
    """Ranks that are worked on together, or a piece of one."""

    number: int
    only: str
    """A condition that holds for them (`of_ranks`)."""
    piece: pieces.Piece | None = None

    def filled(self, sql: str) -> str:
        """SQL with the conditions in the places of OF_RANKS and, for a piece, of those of `pieces`."""
        conditions = {OF_RANKS: self.only} | (self.piece.conditions() if self.piece else {})
        for mark, condition in conditions.items():
            sql = sql.replace(mark, condition)
        return sql

    def select(self, connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
        """What SQL with the parameter $batch selects, the conditions in their places."""
        return connection.sql(self.filled(sql), params={"batch": self.number})


def batches(
    connection: duckdb.DuckDBPyConnection, table: str, cut: Mapping[int, pieces.Piece] | None = None
) -> list[Batch]:
    """The batches of a table that `create` made, or of one with these columns; `cut`: what `pieces.cut` gave."""
    found = connection.execute(
        f"SELECT batch, list(DISTINCT run_id::VARCHAR), min(rank), max(rank) FROM {table} GROUP BY batch ORDER BY batch"
    ).fetchall()
    several, of = len(found) > 1, cut or {}
    return [Batch(n, of_ranks(runs, ranks) if several else "true", of.get(n)) for n, runs, *ranks in found]


def most(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """The events of the largest batch of such a table; 0 without any."""
    of_batches = f"SELECT sum(events) AS events FROM {table} GROUP BY batch"
    [(events,)] = connection.execute(f"SELECT coalesce(max(events), 0)::BIGINT FROM ({of_batches})").fetchall()
    return int(events)


def sql(counted: Iterable[str], only: str) -> str:
    """SQL of the ranks with rows in the tables `counted`: run_id, rank, run_group, events (those rows), process (a
    number of the rank, from 1) and batch (ascending with process).

    `only`: a condition on run_id and rank. The SQL has a parameter, $batch: the events of one.
    """
    # What `only` asks of ranks is asked of the counts: of every row, a subquery in it takes twice the time.
    counts = (f"SELECT run_id, rank, count(*) AS events FROM {t} GROUP BY run_id, rank" for t in counted)
    return f"""
WITH _counts AS (
    {" UNION ALL ".join(counts)}
),
_events AS (
    SELECT run_id, rank, sum(events)::BIGINT AS events FROM _counts WHERE {only} GROUP BY run_id, rank
)
SELECT
    run_id, rank, run_group, events, (row_number() OVER in_order)::INTEGER AS process,
    ((sum(events) OVER in_order - events) // $batch)::BIGINT AS batch
FROM run_groups JOIN _events USING (run_id, rank)
WINDOW in_order AS (ORDER BY run_id, rank)
"""
