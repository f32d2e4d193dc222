"""Derive the tables of stored runs again, from their recorded tables: after their raw files are gone, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from analyze.derive import DERIVED
from analyze.ingestion import kernel_names
from analyze.ingestion.derived_version import derived_digest, is_stale, rules_digest
from analyze.ingestion.file_merging import merged
from analyze.ingestion.process_pool import worker_pool
from analyze.ingestion.staging import LITTLE, pool_map
from analyze.ingestion.table_files import TableWriter
from analyze.ingestion.write_derived_tables import full_tables, write_derived
from analyze.sources.interface import Mapper
from analyze.store.catalogue import StoredRun
from analyze.store.store import StagedFile, Store
from analyze.stored_tables import DERIVED_TABLES

_READ = {table for one in DERIVED for table in one.reads} - DERIVED_TABLES.keys()


def derive_again(store: Store, jobs: int) -> list[str]:
    """Derive the tables of runs whose stored ones are of another version, one commit per run; return these runs.

    Call under `lock`. Raises InputError for a file that cannot be read.
    """
    runs = store.snapshot.runs
    # A GPU-only block is derived from its full block, which comes first.
    stale = sorted((r for r in runs if is_stale(runs, r)), key=lambda run_id: runs[run_id].full is not None)
    size = sum(file.bytes or 0 for run_id in stale for file in runs[run_id].table_files)
    with worker_pool(jobs - 1 if size >= LITTLE else 0) as pool:
        for run_id in stale:
            with store.staging() as staging:
                run, files = _derived_run(store, run_id, staging, pool_map(pool, jobs))
                store.commit(run_id, run, merged(files, staging / "merged", pool))
    return stale


def _derived_run(store: Store, run_id: str, folder: Path, mapper: Mapper) -> tuple[StoredRun, list[StagedFile]]:
    """Write derived tables and `kernel_names` of a run to a folder; return the run without them, and these files."""
    run = store.snapshot.runs[run_id]
    recorded = {t: [*files] for t, files in run.tables.items() if t not in DERIVED_TABLES and t != "kernel_names"}
    read = {
        (table, rank): path
        for table in recorded.keys() & _READ
        for file in recorded[table]
        for path in [store.fetch(file, folder)]
        for rank in file.ranks
    }
    written = write_derived(read, run_id, folder, mapper, full_tables(store, run.full, folder))
    files = [StagedFile(table, [rank], path) for (table, rank), path in written.items()]
    names = sorted(_kernel_names(store, run, folder))
    if names:
        path = folder / "kernel_names.parquet"
        with TableWriter(path, "kernel_names", run_id) as writer:
            writer.write(kernel_names.batch(names))
        files.append(StagedFile("kernel_names", [0], path))
    derived = derived_digest(store.snapshot.runs, run.full)
    return msgspec.structs.replace(run, rules=rules_digest(), derived=derived, tables=recorded), files


def _kernel_names(store: Store, run: StoredRun, folder: Path) -> Iterator[str]:
    for file in run.tables.get("kernel_names", []):
        yield from pq.read_table(store.fetch(file, folder), columns=["name"], partitioning=None)["name"].to_pylist()
