"""Derived tables of the ranks of a raw file, written beside its other tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from analyze.derive import DERIVED, derive
from analyze.derive.columns import text_codes
from analyze.ingestion import kernel_names
from analyze.ingestion.table_files import TableWriter
from analyze.sources.base import batch_schema
from schemas import api_roles

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def derived_version() -> str:
    """Return a digest of the versions of all derived tables and of the rules that they follow."""
    roles = [(rule.role, rule.waits_for, rule.matches) for rule in api_roles.rules()]
    versions = repr([(one.table, one.version) for one in DERIVED]) + kernel_names.rules_digest() + repr(roles)
    return hashlib.blake2b(versions.encode(), digest_size=8).hexdigest()


def write_derived(written: dict[tuple[str, int], Path], run_id: str, folder: Path) -> dict[tuple[str, int], Path]:
    """Derive tables of each rank from its Parquet files and write those that have rows to a folder.

    `written`: Parquet file by table and rank. Returns the same of the derived tables.
    """
    found: dict[tuple[str, int], Path] = {}
    there, wanted = {table for table, _ in written}, set()
    for one in DERIVED:
        if there & one.reads.keys():
            there.add(one.table)
            wanted.add(one.table)
    for rank in sorted({rank for _, rank in written}) if wanted else ():

        def read(table: str, columns: Iterable[str], rank: int = rank) -> pa.Table:
            if table == "kernel_names":
                return names_of_kernels(_read(written.get(("kernels", rank)), "kernels", ["name"]), columns)
            return _read(written.get((table, rank)), table, columns)

        for table, rows in derive(read, wanted.__contains__).items():
            if rows.num_rows:
                path = folder / table / f"rank-{rank}.parquet"
                with TableWriter(path, table, run_id, rank) as writer:
                    for batch in rows.select(batch_schema(table).names).to_batches():
                        writer.write(batch)
                found[table, rank] = path
    return found


def names_of_kernels(kernels: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Return columns of the table `kernel_names` for the names of some kernels, each once."""
    import pyarrow as pa

    names = text_codes([kernels["name"]])[1].to_pylist()
    return pa.Table.from_batches([kernel_names.batch(names)]).select([*columns])


def _read(path: Path | None, table: str, columns: Iterable[str]) -> pa.Table:
    """Columns of a Parquet file; without one, of no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path is None:
        return pa.schema([batch_schema(table).field(c) for c in columns]).empty_table()
    with pq.ParquetFile(path) as file:
        return file.read([*columns])
