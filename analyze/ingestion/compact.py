"""Compaction: derive tables of older versions again and merge the small files of a store, run by run."""

from __future__ import annotations

import msgspec

from analyze.cpus import cpus
from analyze.ingestion.derive_again import derive_again
from analyze.ingestion.derived_version import is_stale
from analyze.ingestion.file_merging import groups, merge_groups
from analyze.ingestion.ingest import sentences
from analyze.ingestion.process_pool import worker_pool
from analyze.ingestion.progress import Progress
from analyze.ingestion.staging import LITTLE
from analyze.store.catalogue import RUN_TABLES, StoredRun, TableFile
from analyze.store.store import StagedFile, Store


class Compacted(msgspec.Struct, kw_only=True):
    """What a compaction merged."""

    derived: list[str] = []
    """The runs whose derived tables were of another version."""
    runs: list[str] = []
    """The runs whose files were merged."""
    files_before: int = 0
    """Parquet files of all runs."""
    files_after: int = 0
    bytes: int = 0
    """Bytes of the merged files."""


def compact(store: Store, jobs: int | None = None) -> Compacted:
    """Derive tables of older versions again, then merge small Parquet files of the ranks of each run
    (`analyze.ingestion.file_merging`), one commit per run.

    Raises InputError for a file that cannot be read or a store that cannot be written; earlier runs stay compacted.
    """
    result = Compacted()
    jobs = jobs or cpus()
    with sentences(store), store.lock():
        store.sweep()
        result.files_before = sum(len(list(run.table_files)) for run in store.snapshot.runs.values())
        result.derived = [r for r in store.snapshot.runs if is_stale(store.snapshot.runs, r)]
        derive_again(store, result.derived, store, jobs, Progress())
        runs = store.snapshot.runs
        todo = {run_id: found for run_id, run in runs.items() if (found := _groups(run))}
        if todo:
            size = sum(f.bytes or 0 for together in todo.values() for _, files in together for f in files)
            workers = min(jobs, sum(map(len, todo.values()))) if size >= LITTLE else 0
            with worker_pool(workers) as pool:
                for run_id, together in todo.items():
                    with store.staging() as staging:
                        sources = [[StagedFile(t, f.ranks, store.fetch(f, staging)) for f in fs] for t, fs in together]
                        written = merge_groups(sources, staging / "merged", pool)
                        old = {f.path for _, files in together for f in files}
                        run = msgspec.structs.replace(
                            runs[run_id],
                            tables={t: [f for f in fs if f.path not in old] for t, fs in runs[run_id].tables.items()},
                        )
                        store.commit(run_id, run, written)
                    result.runs.append(run_id)
                    result.bytes += sum(f.bytes or 0 for _, files in together for f in files)
        if result.derived or result.runs:
            store.sweep()
        result.files_after = sum(len(list(run.table_files)) for run in store.snapshot.runs.values())
    return result


def _groups(run: StoredRun) -> list[tuple[str, list[TableFile]]]:
    """Return the groups of files of a run to merge, each with its table."""
    return [
        (table, [files[at] for at in group])
        for table, files in run.tables.items()
        if table not in RUN_TABLES
        for group in groups([f.bytes or 0 for f in files])
    ]
