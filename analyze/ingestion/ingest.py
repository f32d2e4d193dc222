"""Raw files -> Parquet in a store, run by run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from analyze.cpus import cpus
from analyze.errors import InputError, MachineError
from analyze.ingestion import kernel_names
from analyze.ingestion.derived_version import derived_digest, derived_version, rules_digest
from analyze.ingestion.duplicate_ranks import drop_duplicate_ranks
from analyze.ingestion.file_merging import merged
from analyze.ingestion.grouping import read_as
from analyze.ingestion.process_pool import worker_pool
from analyze.ingestion.progress import Progress
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.staging import FileResult, read_files, workers
from analyze.ingestion.table_files import TableWriter, write_rows
from analyze.ingestion.write_derived_tables import full_tables
from analyze.store.catalogue import PARSER_VERSION, StoredFile, StoredRun
from analyze.store.file_digest import file_state
from analyze.store.store import StagedFile, Store

_MOST_FILES = 64
"""Files of a table of a run; more are merged."""
MOST_REPORTED = 3
"""Reasons in the message if nothing could be read."""
_NAMES = 16 << 10
"""Kernel names classified per batch."""


@dataclass
class IngestResult:
    """What an ingest did, by run."""

    ingested: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Runs without a readable file; `warnings` say why."""
    warnings: list[str] = field(default_factory=list)
    rows: int = 0
    lost: int = 0
    """Rows of the raw files that could not be read; `warnings` say which."""
    bytes: int = 0
    read_as: str = ""
    """How files were grouped into runs and ranks, ingested and unchanged ones."""

    def add(self, run: RunInput, files: list[StoredFile], done: list[FileResult]) -> None:
        """Count a run that was brought into the store."""
        self.ingested.append(run.run_id)
        self.bytes += sum(f.bytes for f in files)
        self.rows += sum(n for d in done for n in d.report.rows.values())
        self.lost += sum(d.report.lost for d in done)
        self.warnings += [w for d in done for w in d.report.warnings] + run.warnings


def ingest(
    runs: Iterable[RunInput],
    store: Store,
    jobs: int | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> IngestResult:
    """Ingest runs into a store; skip runs whose raw files are unchanged, unless `again`.

    Each run is committed when it is complete. A file that cannot be read, or that has the same rank as another one, is
    left out with a warning. Raises InputError if the user named that file or no other is left, and for a store that
    cannot be written; earlier runs stay committed, and the store has nothing of the run that failed.
    """
    progress = progress or Progress()
    jobs = jobs or cpus()
    result = IngestResult()
    found: list[StoredRun] = []
    failures: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(sentences(store))
        stack.enter_context(store.lock())
        store.sweep()
        todo: list[tuple[RunInput, list[StoredFile]]] = []
        changed: set[str] = set()
        # A GPU-only block is derived from its full block, which comes first.
        for run in sorted(runs, key=lambda run: run.full is not None):
            files = stored_files(run)
            if not again and run.full not in changed and is_current(store, run, files):
                result.unchanged.append(run.run_id)
                found.append(store.snapshot.runs[run.run_id])
            else:
                todo.append((run, files))
                changed.add(run.run_id)
        if todo:
            progress.start(sum(f.bytes for _, files in todo for f in files))
            raw = [
                (file, stored.bytes)
                for run, files in todo
                for file, stored in zip(run.files, files[len(run.manifests) :], strict=True)
            ]
            stack.callback(store.sweep)
            staging = stack.enter_context(store.staging())
            pool = stack.enter_context(worker_pool(workers(raw, jobs)))
            for at, (run, files) in enumerate(todo):
                result.warnings += replaced(store, run, files)
                full = full_tables(store, run.full, staging)
                done, lost = read_files(run, staging / str(at), pool, jobs, progress, full)
                if not done and lost:
                    result.failed.append(run.run_id)
                    failures += map(run.shown, lost.values())
                    continue
                run.warnings += [f"{run.shown(problem)}; left out" for problem in lost.values()]
                for one in done:
                    one.report.warnings = list(map(run.shown, one.report.warnings))
                derived = derived_digest(store.snapshot.runs, run.full)
                stored, written = _finish_run(run, files, done, staging / str(at), pool, derived)
                store.commit(run.run_id, stored, written)
                found.append(stored)
                result.add(run, files, done)
    if failures and not found:
        raise InputError("; ".join(failures[:MOST_REPORTED]))
    result.warnings += [f"{problem}; left out" for problem in failures]
    result.read_as = read_as((run.ranks, run.world_size) for run in found)
    return result


@contextmanager
def sentences(store: Store) -> Iterator[None]:
    """Raise MachineError for a fault of the machine: a full disk, too little memory."""
    try:
        yield
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno else str(e).partition("\n")[0]
        raise MachineError(f"{store}: cannot be written: {reason}") from e
    except (BrokenProcessPool, MemoryError) as e:
        raise MachineError(
            f"{store}: a process of the ingest was killed or ran out of memory; --jobs 1 needs the least"
        ) from e


def replaced(store: Store, run: RunInput, files: list[StoredFile]) -> list[str]:
    """Return a warning if a run replaces one that was read from other files."""
    old = store.snapshot.runs.get(run.run_id)
    if old is None or not old.files or {f.path for f in old.files} & {f.path for f in files}:
        return []
    return [f"{run.columns['source']}: replaces {run.run_id}, which was read from {old.files[0].path}"]


def stored_files(run: RunInput) -> list[StoredFile]:
    """Return the raw files of a run as they are now, run.json files first."""
    states = [(path, file_state(path)) for path in run.manifests + [f.path for f in run.files]]
    return [
        StoredFile(
            **state._replace(path=run.shown(state.path))._asdict(),
            digest=run.digests.if_known(state),
            looked=run.looked.get(path),
        )
        for path, state in states
    ]


def is_current(store: Store, run: RunInput, files: list[StoredFile]) -> bool:
    """Return whether the store holds the run undamaged, in today's version and from the same raw files."""
    old = store.snapshot.runs.get(run.run_id)
    return (
        old is not None
        and old.parser == PARSER_VERSION
        and old.derived == derived_digest(store.snapshot.runs, run.full)
        and [f.state for f in old.files] == [f.state for f in files]
        and store.damage(run.run_id) is None
    )


def _finish_run(
    run: RunInput,
    files: list[StoredFile],
    done: list[FileResult],
    folder: Path,
    pool: Executor,
    derived: str,
) -> tuple[StoredRun, list[StagedFile]]:
    """Add the tables of the run as a whole: runs, rank_hosts and kernel_names.

    Of two files with the same rows, the second is left out. Raises InputError if the user named it.
    """
    drop_duplicate_ranks(run, done)
    stored, staged = tables_of_run(run, files, done, folder)
    stored.derived = derived
    staged += [StagedFile(table, [rank], path) for d in done for (table, rank), path in d.written.items()]
    return stored, merged(staged, folder / "merged", pool, _MOST_FILES)


def tables_of_run(
    run: RunInput, files: list[StoredFile], done: list[FileResult], folder: Path
) -> tuple[StoredRun, list[StagedFile]]:
    """Write the tables of RUN_TABLES to a folder; return the run for the catalogue, without files, and these files."""
    # Chunks were read into this memory; a million kernel names on top would be the peak.
    pa.default_memory_pool().release_unused()
    ranks = {rank for d in done for _, rank in d.report.rows} or {f.rank for f in run.files}
    info: dict[str, Any] = {}
    for result in sorted(done, key=lambda d: d.file.rank, reverse=True):
        info |= result.report.info
    warnings = run.warnings + [w for d in done for w in d.report.warnings]
    known = {k: v for k, v in run.columns.items() if v is not None}
    row = {**info, **known, "run_id": run.run_id, "ranks": len(ranks), "warnings": "\n".join(warnings) or None}
    staged = [StagedFile("runs", [0], folder / "runs.parquet")]
    write_rows("runs", [row], staged[0].path)
    if hosts := _hosts(run, done):
        staged.append(StagedFile("rank_hosts", sorted(hosts), folder / "rank_hosts.parquet"))
        rows = [{"run_id": run.run_id, "rank": rank, "host": hosts[rank]} for rank in sorted(hosts)]
        write_rows("rank_hosts", rows, staged[-1].path)
    path = folder / "kernel_names.parquet"
    names = sorted(set().union(*(d.kernel_names for d in done)))
    with TableWriter(path, "kernel_names", run.run_id) as writer:
        for first in range(0, len(names), _NAMES):
            writer.write(kernel_names.batch(names[first : first + _NAMES]))
    if names:
        staged.append(StagedFile("kernel_names", [0], path))
    stored = StoredRun(
        parser=PARSER_VERSION,
        rules=rules_digest(),
        derived=derived_version(),
        full=run.full,
        files=files,
        world_size=row.get("world_size"),
    )
    return stored, staged


def _hosts(run: RunInput, done: Sequence[FileResult]) -> dict[int, str]:
    """Return the host of each rank: from the manifest, else from the file."""
    said = {rank: d.report.info.get("host") for d in done for _, rank in d.report.rows}
    return {rank: host for rank, file_host in said.items() if (host := run.hosts.get(rank) or file_host)}
