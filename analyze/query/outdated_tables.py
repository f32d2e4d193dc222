"""Derived tables of runs whose stored ones have another version: computed again when a query reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import duckdb

from analyze.derive import derive
from analyze.derive.interface import FULL
from analyze.ingestion.derived_version import is_stale
from analyze.ingestion.kernel_names import with_kernel_names
from analyze.query.databases import registered_tables
from analyze.query.sql_checks import failure
from analyze.query.table_scans import Run, TableScans
from analyze.stored_tables import DERIVED_TABLES, TABLES
from schemas.table_declaration import arrow_schema, row_schema

if TYPE_CHECKING:
    import pyarrow as pa


def derive_outdated(scans: TableScans, tables: Sequence[str], runs: Sequence[Run] | None = None) -> dict[str, str]:
    """Derive tables again for runs with outdated ones, and return a SELECT for each table; empty if none is outdated.

    `runs`: by default all.
    """
    runs = scans.runs if runs is None else runs
    outdated = [run for run in runs if is_stale(run[0].snapshot.runs, run[1])]
    if not outdated:
        return {}
    current = [run for run in runs if run not in outdated]
    for table in tables:
        scans.execute(f"CREATE OR REPLACE TABLE {table}_derived AS {scans.scan(table, current)}")
    for store, run_id in outdated:
        for rank in scans.ranks_of((store, run_id)):
            full = store.snapshot.runs[run_id].full
            read = with_kernel_names(partial(_columns, scans, (store, run_id), rank))
            found = derive(read, tables.__contains__, full in store.snapshot.runs)
            for table in tables:
                with registered_tables(scans.connection, derived_rows=found[table]):
                    scans.execute(
                        f"INSERT INTO {table}_derived BY NAME"
                        " SELECT $1::run_key AS run_id, $2::INTEGER AS rank, * FROM derived_rows",
                        [run_id, rank],
                    )
    return {table: f"SELECT * FROM {table}_derived" for table in tables}


def _columns(scans: TableScans, run: Run, rank: int, table: str, columns: Sequence[str]) -> pa.Table:
    """Return stored columns of a rank as its Parquet file has them: texts dictionary-encoded."""
    import pyarrow as pa

    if table.startswith(FULL):
        return _columns_of_full_block(scans, run, rank, table.removeprefix(FULL), columns)
    listed = ", ".join(f'"{c}"' for c in columns)
    schema = pa.schema([arrow_schema(TABLES[table]).field(c) for c in columns])
    try:
        rows = scans.connection.sql(f"SELECT {listed} FROM ({scans.scan(table, [run])}) WHERE rank = {rank}")
        return rows.to_arrow_table().cast(schema)
    except duckdb.Error as e:
        raise failure(e, str(scans)) from e


def _columns_of_full_block(scans: TableScans, run: Run, rank: int, table: str, columns: Sequence[str]) -> pa.Table:
    """Return columns of a rank in the full block of a GPU-only block; no rows without one."""
    store, run_id = run
    full = store.snapshot.runs[run_id].full
    if full not in store.snapshot.runs:
        return row_schema(TABLES[table]).empty_table().select([*columns])
    if table not in DERIVED_TABLES or not is_stale(store.snapshot.runs, full):
        return _columns(scans, (store, full), rank, table, columns)
    read = with_kernel_names(partial(_columns, scans, (store, full), rank))
    return derive(read, {table}.__contains__)[table].select([*columns])
