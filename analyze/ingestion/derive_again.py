"""Derive the tables of stored runs again, from their recorded tables: after their raw files are gone, too.

`analyze compact` does so in the store. A query does so in the cache, with copies of the recorded tables.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from analyze.derive import DERIVED
from analyze.ingestion import kernel_names
from analyze.ingestion.derived_version import derived_digest, rules_digest
from analyze.ingestion.file_merging import merged
from analyze.ingestion.process_pool import worker_pool
from analyze.ingestion.progress import Progress
from analyze.ingestion.staging import LITTLE, pool_map
from analyze.ingestion.table_files import TableWriter, reading_parquet
from analyze.ingestion.write_derived_tables import full_tables, write_derived
from analyze.sources.interface import Mapper
from analyze.store.catalogue import StoredRun, TableFile
from analyze.store.parquet_checksums import verify
from analyze.store.store import StagedFile, Store
from analyze.stored_tables import DERIVED_TABLES

_READ = {table for one in DERIVED for table in one.reads} - DERIVED_TABLES.keys()


def derive_again(store: Store, run_ids: Collection[str], target: Store, jobs: int, progress: Progress) -> None:
    """Derive the tables of runs of a store again, one commit per run: in this store, or in another one, with copies of
    the recorded tables.

    Call under `lock` of the target. Raises InputError for a file that cannot be read.
    """
    runs = store.snapshot.runs
    bytes_of = {run_id: sum(file.bytes or 0 for file in runs[run_id].table_files) for run_id in run_ids}
    size = sum(bytes_of.values())
    progress.start(size)
    with worker_pool(jobs - 1 if size >= LITTLE else 0) as pool:
        # A GPU-only block is derived from its full block, which comes first.
        for run_id in sorted(run_ids, key=lambda run_id: runs[run_id].full is not None):
            with target.staging() as staging:
                run, files = _derived_run(store, run_id, target, staging, pool_map(pool, jobs))
                files = merged(files, staging / "merged", pool)
                if target is not store:
                    recorded, run.tables = run.tables, {}
                    files += [
                        StagedFile(t, f.ranks, _copy(store, f, staging)) for t, fs in recorded.items() for f in fs
                    ]
                target.commit(run_id, run, files)
            progress.advance(bytes_of[run_id], run_id)


def _copy(store: Store, file: TableFile, folder: Path) -> Path:
    """Return a copy of a file of a store in a folder; a hard link where possible, which takes no space."""
    there = store.fetch(file, folder)
    if there.parent == folder:
        return there
    copy = folder / file.path.replace("/", "-")
    with suppress(OSError):
        os.link(there, copy)
        return copy
    return shutil.copyfile(there, copy)


def _derived_run(
    store: Store, run_id: str, target: Store, folder: Path, mapper: Mapper
) -> tuple[StoredRun, list[StagedFile]]:
    """Write derived tables and `kernel_names` of a run to a folder; return the run without them, and these files.

    `target` has the full block of a GPU-only block.
    """
    run = store.snapshot.runs[run_id]
    for files in run.tables.values():
        verify(store, files)
    recorded = {t: [*files] for t, files in run.tables.items() if t not in DERIVED_TABLES and t != "kernel_names"}
    read = {
        (table, rank): path
        for table in recorded.keys() & _READ
        for file in recorded[table]
        for path in [store.fetch(file, folder)]
        for rank in file.ranks
    }
    written = write_derived(read, run_id, folder, mapper, full_tables(target, run.full, folder))
    staged = [StagedFile(table, [rank], path) for (table, rank), path in written.items()]
    names = sorted(_kernel_names(store, run, folder))
    if names:
        path = folder / "kernel_names.parquet"
        with TableWriter(path, "kernel_names", run_id) as writer:
            writer.write(kernel_names.batch(names))
        staged.append(StagedFile("kernel_names", [0], path))
    derived = derived_digest(target.snapshot.runs, run.full)
    return msgspec.structs.replace(run, rules=rules_digest(), derived=derived, tables=recorded), staged


def _kernel_names(store: Store, run: StoredRun, folder: Path) -> Iterator[str]:
    for file in run.tables.get("kernel_names", []):
        path = store.fetch(file, folder)
        with reading_parquet(path):
            yield from pq.read_table(path, columns=["name"], partitioning=None)["name"].to_pylist()
