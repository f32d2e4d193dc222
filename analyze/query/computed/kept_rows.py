"""Rows of a computed table that are taken from what was kept of runs, and kept for the next question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from analyze.query.computed.in_turn import ROWS_READ
from analyze.query.computed.registered import registered
from analyze.query.literals import of_run

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from analyze.store.kept import Kept

_KEPT = """
INSERT INTO {table} BY NAME
SELECT g.run_id::VARCHAR AS run_id, g.run_group, k.*
FROM (SELECT DISTINCT run_id, rank, run_group FROM run_groups WHERE {run}) g JOIN kept_rows k USING (rank)
"""


def restore(connection: duckdb.DuckDBPyConnection, table: str, known: Mapping[str, pa.Table]) -> None:
    """Add the rows that are kept of runs to a table, of the ranks that exist."""
    for run_id, rows in known.items():
        with registered(connection, kept_rows=rows):
            connection.execute(_KEPT.format(table=table, run=of_run(run_id)))


def keep(connection: duckdb.DuckDBPyConnection, table: str, kept: Kept, known: Iterable[str]) -> None:
    """Let the rows of the other runs be kept."""
    import pyarrow as pa

    for run_id in kept.lacking(known):
        of_one = connection.sql(f"SELECT * EXCLUDE (run_id, run_group) FROM {table} WHERE {of_run(run_id)}")
        reader = of_one.to_arrow_reader(ROWS_READ)
        parts = (pa.Table.from_batches([rows]) for rows in reader)
        kept.write(table, run_id, pa.concat_tables(map(_told, chain([reader.schema.empty_table()], parts))))
    kept.make_room()


def _told(rows: pa.Table) -> pa.Table:
    """Rows with their texts by number: there may be millions, and few texts."""
    import pyarrow as pa

    for at, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            rows = rows.set_column(at, field.name, rows[at].dictionary_encode())
    return rows
