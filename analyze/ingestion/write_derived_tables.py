"""Derive tables for each rank of a raw file (`analyze.derive`) and write them next to its other tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyze.derive import DERIVED, FULL_TABLES
from analyze.derive.interface import FULL
from analyze.derive.numpy_columns import text_codes
from analyze.ingestion import kernel_names
from analyze.ingestion.table_files import TableWriter, reading_parquet
from analyze.sources.interface import Mapper, batch_schema

if TYPE_CHECKING:
    from analyze.store.store import Store


def full_tables(store: Store, full: str | None, folder: Path) -> dict[tuple[str, int], Path]:
    """Return the Parquet files of a full block that its GPU-only block needs, by table and rank.

    `folder` is for copies of files of object storage.
    """
    if full is None or full not in store.snapshot.runs:
        return {}
    found: dict[tuple[str, int], Path] = {}
    for table in FULL_TABLES:
        for file in store.snapshot.runs[full].tables.get(table, []):
            found |= dict.fromkeys(((FULL + table, rank) for rank in file.ranks), store.fetch(file, folder))
    return found


def write_derived(
    written: Mapping[tuple[str, int], Path],
    run_id: str,
    folder: Path,
    mapper: Mapper,
    full: Mapping[tuple[str, int], Path] = MappingProxyType({}),
) -> dict[tuple[str, int], Path]:
    """Derive tables of each rank from its Parquet files and write those that have rows to a folder.

    `written`: Parquet file by table and rank; `full`: those of the full block of a GPU-only block. Returns the same of
    the derived tables. Tables that do not read each other are derived in parallel.
    """
    there = {table for table, _ in (*written, *full)}
    left = {}
    for one in DERIVED:
        if there & one.reads.keys() and (full or not one.of_gpu_block):
            left[one.name] = one
            there.add(one.name)
    found = {**written, **full}
    while left:
        ready = [one.name for one in left.values() if not one.reads.keys() & left.keys()]
        ranks = sorted({rank for _, rank in written})
        tasks = [(table, rank, found, run_id, folder) for rank in ranks for table in ready]
        for (table, rank, *_), path in zip(tasks, mapper(_write_one, tasks), strict=True):
            if path is not None:
                found[table, rank] = path
        left = {table: one for table, one in left.items() if table not in ready}
    return {key: path for key, path in found.items() if key not in written and key not in full}


def _write_one(
    table: str, rank: int, written: Mapping[tuple[str, int], Path], run_id: str, folder: Path
) -> Path | None:
    """Derive one table of one rank; return its file, or None if it has no rows."""
    [one] = [one for one in DERIVED if one.name == table]
    rows = one.compute(
        {
            name: _kernel_names(written.get(("kernels", rank)), rank).select([*columns])
            if name == "kernel_names"
            else _read(written.get((name, rank)), name, rank, columns)
            for name, columns in one.reads.items()
        }
    )
    if not rows.num_rows:
        return None
    path = folder / table / f"rank-{rank}.parquet"
    with TableWriter(path, table, run_id, rank) as writer:
        for batch in rows.select(batch_schema(table).names).to_batches():
            writer.write(batch)
    return path


def _kernel_names(path: Path | None, rank: int) -> pa.Table:
    """Return the rows of `kernel_names`, a table of the run, for the names of the kernels of a rank."""
    names = text_codes([_read(path, "kernels", rank, ["name"])["name"]])[1].to_pylist()
    return pa.Table.from_batches([kernel_names.batch(names)])


def _read(path: Path | None, table: str, rank: int, columns: Iterable[str]) -> pa.Table:
    """Read columns of a rank's rows of a Parquet file, NULL if an older version did not write them; without a file, no
    rows. Raises InputError for a damaged file."""
    schema = pa.schema([batch_schema(table.removeprefix(FULL)).field(c) for c in columns])
    if path is None:
        return schema.empty_table()
    with reading_parquet(path), pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        there = [c for c in schema.names if c in names]
        ranks = [file.metadata.row_group(g).column(names.index("rank")).statistics for g in range(file.num_row_groups)]
        of_rank = [g for g, found in enumerate(ranks) if found.min <= rank <= found.max]
        if all(ranks[g].min == ranks[g].max for g in of_rank):
            rows = file.read_row_groups(of_rank, there)
        else:
            rows = file.read_row_groups(of_rank, [*there, "rank"])
            rows = rows.filter(pc.equal(rows["rank"], rank))
    for name in set(schema.names) - set(there):
        rows = rows.append_column(schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(schema.names).cast(schema)
