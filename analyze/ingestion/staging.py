"""Raw files to Parquet files in a staging folder, on all cores: small files in parallel, large ones by chunks."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analyze import sources
from analyze.errors import InputError, StorageError
from analyze.ingestion import kernel_names
from analyze.ingestion.drop_impossible_work import drop_impossible_work
from analyze.ingestion.graph_captures import captured_rows
from analyze.ingestion.progress import Progress
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.table_files import TableWriter
from analyze.ingestion.write_derived_tables import write_derived
from analyze.sources.compressed import is_gzip
from analyze.sources.interface import FileReport, Mapper, SourceFile, inline_map
from analyze.sources.remote import RemotePath
from analyze.store.file_digest import file_state, printable_text

LITTLE = 1 << 20
"""Total bytes on disk below which no process is started."""
_BIG_FILE = 48 << 20
"""Bytes on disk from which a file's chunks go to several processes; smaller files go to one process each."""
_AHEAD = 2
"""Chunks queued per process before this process reads one itself."""
_GZIP_RATIO = 8
"""Compression ratio of gzipped traces, at least; a compressed file counts as so much larger."""


@dataclass
class FileResult:
    """A raw file written to the staging folder."""

    file: SourceFile
    report: FileReport
    kernel_names: set[str]
    written: dict[tuple[str, int], Path]
    """Parquet file by table and rank."""


def workers(files: Sequence[tuple[SourceFile, int]], jobs: int) -> int:
    """Return how many processes to start for raw files of these sizes; 0 if that would take longer than the work.

    If all files are read chunk by chunk, this process reads, too, and is one of the jobs.
    """
    if sum(size for _, size in files) < LITTLE:
        return 0
    here = len(_by_all(files, jobs)) == len(files)
    return min(jobs - here, sum(max(1, size // (8 << 20)) for _, size in files))


def read_files(
    run: RunInput,
    folder: Path,
    pool: Executor,
    jobs: int,
    progress: Progress,
    full: Mapping[tuple[str, int], Path] = MappingProxyType({}),
) -> tuple[list[FileResult], dict[SourceFile, str]]:
    """Write every file of a run to the staging folder, small files in parallel, large ones chunk by chunk.

    `full`: Parquet files of the full block of a GPU-only block. Returns the results, and for files that the user did
    not name and that cannot be read the reason.
    """
    done: dict[SourceFile, FileResult] = {}
    lost: dict[SourceFile, str] = {}
    waiting: list[tuple[SourceFile, Future[FileResult]]] = []
    large = []
    split = _by_all(((file, file_state(file.path).bytes) for file in run.files), jobs)
    for at, file in enumerate(run.files):
        own = folder / str(at)
        if file in split:
            large.append((file, own))
        else:
            waiting.append((file, pool.submit(_write_file, run.run_id, file, own, dict(full))))

    def take(file: SourceFile, read: Callable[[], FileResult]) -> None:
        try:
            done[file] = read()
        except InputError as e:
            if file.path in run.named or isinstance(e, StorageError):
                raise
            lost[file] = str(e)

    for file, own in large:
        take(file, partial(_write_file, run.run_id, file, own, full, pool_map(pool, jobs), progress))
    for file, future in waiting:
        take(file, future.result)
        progress.advance(file_state(file.path).bytes, file.path.name)
    return [done[f] for f in run.files if f in done], lost


def _by_all(files: Iterable[tuple[SourceFile, int]], jobs: int) -> set[SourceFile]:
    """Return the files whose chunks are read by all processes, given the sizes in bytes."""
    if jobs < 2:
        return set()
    splitting = [(file, size) for file, size in files if sources.BY_KIND[file.kind].splits]
    large = {file for file, size in splitting if size * (_GZIP_RATIO if is_gzip(file.path) else 1) >= _BIG_FILE}
    if len(large) >= jobs:
        # Remote files go to one process each: one is fetched while another one is read.
        return {file for file in large if isinstance(file.path, Path)}
    return large


def pool_map(pool: Executor, jobs: int) -> Mapper:
    """Return a mapper over the processes of a pool and this one, which is one of the jobs."""

    def ordered(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        # Bounded look-ahead: at most 2 x jobs chunks are in memory.
        pending: deque[Future[Any]] = deque()
        for args in arguments:
            # This process reads a chunk itself when enough are queued for the others.
            if sum(not future.done() for future in pending) < _AHEAD * (jobs - 1):
                pending.append(pool.submit(function, *args))
            else:
                pending.append(Future())
                pending[-1].set_result(function(*args))
            while pending and (pending[0].done() or len(pending) > 2 * jobs):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    return ordered


def shifted(batch: pa.RecordBatch, shift_ns: int) -> pa.RecordBatch:
    """Return a batch with shifted times."""
    at = batch.schema.get_field_index("start_ns") if shift_ns else -1
    if at < 0:
        return batch
    return batch.set_column(at, batch.schema.field(at), pc.add(batch.column(at), shift_ns))


def _with_ranks(table: str, batch: pa.RecordBatch, shift: int) -> pa.RecordBatch:
    """Return a batch with shifted ranks of process groups and peers."""
    at = batch.schema.get_field_index("ranks" if table == "process_groups" else "group_ranks") if shift else -1
    if at < 0:
        return batch
    field, texts = batch.schema.field(at), batch.column(at).to_pylist()
    moved = [text and re.sub(r"\d+", lambda m: str(int(m[0]) + shift), text) for text in texts]
    batch = batch.set_column(at, field, pa.array(moved, field.type))
    at = batch.schema.get_field_index("peer")
    if at < 0:
        return batch
    field = batch.schema.field(at)
    return batch.set_column(at, field, pc.add(batch.column(at), pa.scalar(shift, field.type)))


def _write_file(
    run_id: str,
    file: SourceFile,
    folder: Path,
    full: Mapping[tuple[str, int], Path],
    mapper: Mapper = inline_map,
    progress: Progress | None = None,
) -> FileResult:
    """Read one raw file and write its rows to FOLDER/TABLE/rank-N.parquet."""
    result = FileResult(file, FileReport(), set(), {})
    size = file_state(file.path).bytes
    before = size // 2 if isinstance(file.path, RemotePath) else 0  # fetching counts as half of the work
    reported = 0

    def advance(position: int) -> None:
        nonlocal reported
        if progress and position > reported:
            progress.advance(position - reported, file.path.name)
            reported = position

    with ExitStack() as stack:
        writers: dict[tuple[str, int], TableWriter] = {}
        folder.mkdir(parents=True, exist_ok=True)
        path = stack.enter_context(sources.on_disk(file.kind, file.path, folder, lambda there: advance(there // 2)))
        rows = sources.read(file.kind, path, result.report, mapper)
        for table, own_rank, batch in chain(rows, captured_rows(file, folder, result.report, mapper)):
            rank = file.rank if own_rank is None else file.first_rank + own_rank
            batch = _with_ranks(table, shifted(batch, file.shift_ns), file.shift_ranks)
            if (table, rank) not in writers:
                target = folder / table / f"rank-{rank}.parquet"
                writers[table, rank] = stack.enter_context(TableWriter(target, table, run_id, rank))
            writers[table, rank].write(batch)
            if table in kernel_names.COLUMNS:
                found = batch.column(kernel_names.COLUMNS[table]).dictionary.to_pylist()
                result.kernel_names.update(n for n in found if n is not None)
            advance(before + min(size, result.report.position) * (size - before) // max(size, 1))
        result.report.rows = {key: w.rows for key, w in writers.items()}
        result.written = {key: w.path for key, w in writers.items() if w.rows}
    drop_impossible_work(file, result.written, result.report)
    pa.default_memory_pool().release_unused()  # else what the chunks took is added to what the derived tables take
    result.written |= write_derived(result.written, run_id, folder, mapper, full)
    result.report.warnings = [printable_text(w) for w in result.report.warnings]
    advance(size)
    return result
