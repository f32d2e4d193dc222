"""Raw files -> Parquet in a store, run by run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from analyze import kernel_names, sources
from analyze.discover import RunInput
from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, SourceFile, inline_map
from analyze.store import PARSER_VERSION, Store, StoredFile, StoredRun
from analyze.workers import worker_pool

if TYPE_CHECKING:
    import pyarrow as pa

_BIG_FILE = 48 << 20
"""Bytes on disk from which a file's chunks go to several processes; smaller files go to one process each."""
_ROW_GROUP = 256 << 10

KERNEL_NAME_COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""Where kernel names stand, by table."""


class Progress(Protocol):
    """What the ingest tells while it works."""

    def start(self, total_bytes: int) -> None:
        """Work of so many bytes begins."""

    def advance(self, done_bytes: int, name: str) -> None:
        """So many more bytes of a file are done."""


class Silent:
    """Progress to nobody."""

    def start(self, total_bytes: int) -> None:
        """Do nothing."""

    def advance(self, done_bytes: int, name: str) -> None:
        """Do nothing."""


@dataclass
class IngestResult:
    """What an ingest did, by run."""

    ingested: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rows: int = 0
    lost: int = 0
    """Rows of the raw files that could not be read; `warnings` say which."""
    bytes: int = 0


@dataclass
class _FileResult:
    """A file written to the staging folder."""

    file: SourceFile
    report: FileReport
    kernel_names: set[str]


def ingest(
    runs: Iterable[RunInput], store: Store, jobs: int | None = None, progress: Progress | None = None
) -> IngestResult:
    """Bring runs into a store; a run whose raw files are unchanged since it was ingested is left as it is.

    Every run is committed by itself when it is whole. Raises InputError for a file that cannot be read as what it is;
    runs before it are kept, the store holds nothing of its own run.
    """
    progress = progress or Silent()
    jobs = jobs or _cpus()
    result = IngestResult()
    with ExitStack() as stack:
        stack.enter_context(store.lock())
        todo: list[tuple[RunInput, list[StoredFile]]] = []
        for run in runs:
            files = _stored_files(run)
            if _is_current(store, run, files):
                result.unchanged.append(run.run_id)
            else:
                todo.append((run, files))
        if not todo:
            return result
        staging = stack.enter_context(store.staging())
        sizes = [f.bytes for _, files in todo for f in files]
        progress.start(sum(sizes))
        pool = stack.enter_context(worker_pool(max(1, min(jobs, _tasks(sizes)))))
        for run, files in todo:
            folder = staging / run.run_id
            done = _read_files(run, folder, pool, jobs, progress)
            stored = _finish_run(run, files, done, folder, pool)
            store.commit(run.run_id, stored, folder)
            result.ingested.append(run.run_id)
            result.bytes += sum(f.bytes for f in files)
            result.rows += sum(n for d in done for n in d.report.rows.values())
            result.lost += sum(d.report.lost for d in done)
            result.warnings += [w for d in done for w in d.report.warnings] + run.warnings
    return result


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tasks(sizes: list[int]) -> int:
    return sum(max(1, size // (8 << 20)) for size in sizes)


def _stored_files(run: RunInput) -> list[StoredFile]:
    found = []
    for path in ([run.manifest] if run.manifest else []) + [f.path for f in run.files]:
        try:
            stat = path.stat()
        except OSError as e:
            raise InputError(f"{path}: cannot be read: {e.strerror}") from e
        found.append(StoredFile(path=str(path.resolve()), bytes=stat.st_size, mtime_ns=stat.st_mtime_ns))
    return found


def is_current(store: Store, run: RunInput) -> bool:
    """Whether the store holds the run as its raw files are now."""
    return _is_current(store, run, _stored_files(run))


def _is_current(store: Store, run: RunInput, files: list[StoredFile]) -> bool:
    old = store.snapshot.runs.get(run.run_id)
    return old is not None and old.parser == PARSER_VERSION and old.files == files


def _read_files(
    run: RunInput, folder: Path, pool: ProcessPoolExecutor, jobs: int, progress: Progress
) -> list[_FileResult]:
    """Write every file of a run to the staging folder, small files side by side, large ones chunk by chunk."""
    done: dict[SourceFile, _FileResult] = {}
    waiting: list[tuple[SourceFile, Future[_FileResult]]] = []
    large = []
    for file in run.files:
        if file.path.stat().st_size >= _BIG_FILE and sources.BY_KIND[file.kind].splits and jobs > 1:
            large.append(file)
        else:
            waiting.append((file, pool.submit(_write_file, run.run_id, file, folder)))
    for file in large:
        done[file] = _write_file(run.run_id, file, folder, _pool_map(pool, jobs), progress)
    for file, future in waiting:
        done[file] = future.result()
        progress.advance(file.path.stat().st_size, file.path.name)
    return [done[f] for f in run.files]


def _pool_map(pool: ProcessPoolExecutor, jobs: int) -> Mapper:
    def ordered(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        # Bounded look-ahead: at most 2 x jobs chunks are in memory.
        pending: deque[Future[Any]] = deque()
        for args in arguments:
            pending.append(pool.submit(function, *args))
            if len(pending) > 2 * jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    return ordered


def _write_file(
    run_id: str, file: SourceFile, folder: Path, mapper: Mapper = inline_map, progress: Progress | None = None
) -> _FileResult:
    """Read one raw file and write its rows to FOLDER/TABLE/rank-N.parquet."""
    result = _FileResult(file, FileReport(), set())
    size = file.path.stat().st_size
    told = 0
    with ExitStack() as stack:
        writers: dict[tuple[str, int], TableWriter] = {}
        for table, own_rank, batch in sources.read(file.kind, file.path, result.report, mapper):
            rank = file.rank if own_rank is None else own_rank
            if (table, rank) not in writers:
                if (folder / table / f"rank-{rank}.parquet").exists():
                    raise InputError(f"{file.path}: another file of the run already has {table} of rank {rank}")
                writers[table, rank] = stack.enter_context(TableWriter(folder, table, run_id, rank))
            writers[table, rank].write(batch)
            if table in KERNEL_NAME_COLUMNS:
                names = batch.column(KERNEL_NAME_COLUMNS[table])
                result.kernel_names.update(n for n in names.dictionary.to_pylist() if n is not None)
            if progress:
                step = min(size, sum(w.rows for w in writers.values()) * 400) - told
                if step > 0:
                    progress.advance(step, file.path.name)
                    told += step
        result.report.rows = {key: w.rows for key, w in writers.items()}
    if progress:
        progress.advance(size - told, file.path.name)
    return result


class TableWriter:
    """Writes one table of one rank as zstd Parquet; run_id and rank are added here."""

    def __init__(self, folder: Path, table: str, run_id: str, rank: int):
        from schemas.tables import arrow_schema

        self.rows = 0
        self._schema = arrow_schema(table)
        self._path = folder / table / f"rank-{rank}.parquet"
        self._run_id, self._rank = run_id, rank
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._writer: Any = None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch that has the table's columns without run_id and rank."""
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._pending_rows:
            return
        rows = pa.Table.from_batches(self._pending).unify_dictionaries()
        arrays = {
            "run_id": pa.DictionaryArray.from_arrays(
                pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows), pa.repeat(pa.scalar(self._run_id), 1)
            ),
            "rank": pa.repeat(pa.scalar(self._rank, pa.int32()), rows.num_rows),
        }
        table = pa.table(
            [arrays[n] if n in arrays else rows.column(n) for n in self._schema.names], schema=self._schema
        )
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            strings = [f.name for f in self._schema if pa.types.is_dictionary(f.type)]
            # Numbers seldom repeat: a dictionary of them costs time and space.
            self._writer = pq.ParquetWriter(
                self._path, self._schema, compression="zstd", compression_level=3, use_dictionary=strings
            )
        self._writer.write_table(table, row_group_size=_ROW_GROUP)
        self._pending, self._pending_rows = [], 0


def _finish_run(
    run: RunInput, files: list[StoredFile], done: list[_FileResult], folder: Path, pool: ProcessPoolExecutor
) -> StoredRun:
    """Add the tables that are of the run as a whole: runs and kernel_names."""
    ranks = {rank for d in done for _, rank in d.report.rows} or {f.rank for f in run.files}
    info: dict[str, Any] = {}
    for result in sorted(done, key=lambda d: d.file.rank, reverse=True):
        info |= result.report.info
    warnings = run.warnings + [w for d in done for w in d.report.warnings]
    known = {k: v for k, v in run.columns.items() if v is not None}
    row = {**info, **known, "run_id": run.run_id, "ranks": len(ranks), "warnings": "\n".join(warnings) or None}
    writes = [pool.submit(write_rows, "runs", [row], folder / "runs" / "rank-0.parquet")]
    tables: dict[str, list[int]] = {"runs": [0]}
    for result in done:
        for (table, rank), rows in result.report.rows.items():
            if rows:
                tables.setdefault(table, []).append(rank)
    names = sorted(set().union(*(d.kernel_names for d in done)))
    if names:
        classes = kernel_names.rows(run.run_id, names)
        writes.append(pool.submit(write_rows, "kernel_names", classes, folder / "kernel_names" / "rank-0.parquet"))
        tables["kernel_names"] = [0]
    for write in writes:
        write.result()
    return StoredRun(
        parser=PARSER_VERSION,
        rules=kernel_names.rules_digest(),
        files=files,
        tables={t: sorted(r) for t, r in tables.items()},
    )


def write_rows(table: str, rows: list[dict[str, Any]], path: Path) -> None:
    """Write a small table from dicts; keys that the table does not have raise KeyError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from schemas.tables import arrow_schema

    schema = arrow_schema(table)
    unknown = {k for r in rows for k in r} - set(schema.names)
    if unknown:
        raise KeyError(f"{table} has no column {sorted(unknown)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
