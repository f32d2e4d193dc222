"""Raw files -> Parquet in a store, run by run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from analyze import sources
from analyze.errors import InputError, MachineError, StorageError
from analyze.sources.base import FileReport, Mapper, SourceFile, inline_map
from analyze.sources.packed import is_packed
from analyze.sources.remote import RemotePath
from analyze.store import kernel_names
from analyze.store.catalogue import PARSER_VERSION, StoredFile, StoredRun
from analyze.store.file_digest import file_state, printable_text
from analyze.store.grouping import read_as
from analyze.store.packing import packed
from analyze.store.run_folders import RunInput
from analyze.store.store import StagedFile, Store
from analyze.store.table_files import TableWriter, write_rows
from analyze.store.workers import worker_pool

LITTLE = 1 << 20
"""Bytes on disk, of all files together, below which no process is started."""
_BIG_FILE = 48 << 20
"""Bytes on disk from which a file's chunks go to several processes; smaller files go to one process each."""
_AHEAD = 2
"""Chunks that each process has before it, with the one that it reads, before this process takes one."""
_PACKED_INTO = 8
"""Bytes of a trace that gzip packs into one, or more: so much sooner is a packed file big."""
_MOST_FILES = 64
"""Files of a table of a run; those of more ranks are put together."""
TOLD = 3
"""Reasons that are told where nothing could be read."""
_NAMES = 16 << 10
"""Kernel names that are classified at a time."""
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
    failed: list[str] = field(default_factory=list)
    """Runs of which no file could be read; `warnings` say why."""
    warnings: list[str] = field(default_factory=list)
    rows: int = 0
    lost: int = 0
    """Rows of the raw files that could not be read; `warnings` say which."""
    bytes: int = 0
    read_as: str = ""
    """Which runs and ranks the files were taken for, ingested and unchanged ones."""

    def add(self, run: RunInput, files: list[StoredFile], done: list[FileResult]) -> None:
        """Count a run that was brought into the store."""
        self.ingested.append(run.run_id)
        self.bytes += sum(f.bytes for f in files)
        self.rows += sum(n for d in done for n in d.report.rows.values())
        self.lost += sum(d.report.lost for d in done)
        self.warnings += [w for d in done for w in d.report.warnings] + run.warnings


@dataclass
class FileResult:
    """A raw file written to the staging folder."""

    file: SourceFile
    report: FileReport
    kernel_names: set[str] | None
    """None if there are too many to keep them."""
    written: dict[tuple[str, int], Path]
    """Parquet file by table and rank."""


def ingest(
    runs: Iterable[RunInput],
    store: Store,
    jobs: int | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> IngestResult:
    """Bring runs into a store; a run whose raw files are unchanged since it was ingested is left as it is.

    With `again` it is read all the same. Every run is committed by itself when it is whole. A file that cannot be read
    as what it is, or that holds the same rank as another one, is left out with a warning. Raises InputError for one
    that the user named, or if there is no other, and for a store that cannot be written; runs before it are kept, the
    store holds nothing of its own run.
    """
    progress = progress or Silent()
    jobs = jobs or cpus()
    result = IngestResult()
    found: list[StoredRun] = []
    failures: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(sentences(store))
        stack.enter_context(store.lock())
        store.sweep()
        todo: list[tuple[RunInput, list[StoredFile]]] = []
        for run in runs:
            files = stored_files(run)
            if not again and is_current(store, run, files):
                result.unchanged.append(run.run_id)
                found.append(store.snapshot.runs[run.run_id])
            else:
                todo.append((run, files))
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
                done, lost = read_files(run, staging / str(at), pool, jobs, progress)
                if not done and lost:
                    result.failed.append(run.run_id)
                    failures += lost.values()
                    continue
                run.warnings += [f"{problem}; left out" for problem in lost.values()]
                stored, written = _finish_run(run, files, done, staging / str(at), pool, jobs)
                store.commit(run.run_id, stored, written)
                found.append(stored)
                result.add(run, files, done)
    if failures and not found:
        raise InputError("; ".join(failures[:TOLD]))
    result.warnings += [f"{problem}; left out" for problem in failures]
    result.read_as = read_as((run.ranks, run.world_size) for run in found)
    return result


@contextmanager
def sentences(store: Store) -> Iterator[None]:
    """What stops the machine, not the input, as MachineError: a full disk, too little memory."""
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
    """A warning if a run takes the place of one that came from other files."""
    old = store.snapshot.runs.get(run.run_id)
    if old is None or not old.files or {f.path for f in old.files} & {f.path for f in files}:
        return []
    return [f"{run.columns['source']}: replaces {run.run_id}, which was read from {old.files[0].path}"]


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(files: Sequence[tuple[SourceFile, int]], jobs: int) -> int:
    """How many processes to start for raw files of so many bytes; 0 if starting one would take longer than the work.

    Where all files are read by all processes, this one reads with the others, and is one of the jobs.
    """
    if sum(size for _, size in files) < LITTLE:
        return 0
    here = len(_by_all(files, jobs)) == len(files)
    return min(jobs - here, sum(max(1, size // (8 << 20)) for _, size in files))


def stored_files(run: RunInput) -> list[StoredFile]:
    """The raw files of a run as they are now, its run.json first, or those of its parts."""
    states = [(path, file_state(path)) for path in run.manifests + [f.path for f in run.files]]
    return [
        StoredFile(**state._asdict(), digest=run.digests.if_known(state), looked=run.looked.get(path))
        for path, state in states
    ]


def is_current(store: Store, run: RunInput, files: list[StoredFile]) -> bool:
    """Whether the store holds the run, undamaged, as its raw files are now."""
    old = store.snapshot.runs.get(run.run_id)
    return (
        old is not None
        and old.parser == PARSER_VERSION
        and [f.state for f in old.files] == [f.state for f in files]
        and store.damage(run.run_id) is None
    )


def read_files(
    run: RunInput, folder: Path, pool: Executor, jobs: int, progress: Progress
) -> tuple[list[FileResult], dict[SourceFile, str]]:
    """Write every file of a run to the staging folder, small files side by side, large ones chunk by chunk.

    Returns what was read, and why files that the user did not name could not be.
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
            waiting.append((file, pool.submit(_write_file, run.run_id, file, own)))

    def take(file: SourceFile, read: Callable[[], FileResult]) -> None:
        try:
            done[file] = read()
        except InputError as e:
            if file.path in run.named or isinstance(e, StorageError):
                raise
            lost[file] = str(e)

    for file, _ in large[:1]:
        for _ in range(jobs - 1):  # so that processes start at once, and not when this one has read its first chunks
            pool.submit(sources.load, file.kind)
    for file, own in large:
        take(file, partial(_write_file, run.run_id, file, own, _pool_map(pool, jobs), progress))
    for file, future in waiting:
        take(file, future.result)
        progress.advance(file_state(file.path).bytes, file.path.name)
    return [done[f] for f in run.files if f in done], lost


def _by_all(files: Iterable[tuple[SourceFile, int]], jobs: int) -> set[SourceFile]:
    """Of files of so many bytes those whose chunks go to all processes."""
    large = {file for file, size in files if _is_large(file, size)} if jobs > 1 else set()
    if len(large) >= jobs:
        # Of those at URLs each process takes its own: one is fetched while another one is read.
        return {file for file in large if isinstance(file.path, Path)}
    return large


def _is_large(file: SourceFile, size: int) -> bool:
    return sources.BY_KIND[file.kind].splits and size * (_PACKED_INTO if is_packed(file.path) else 1) >= _BIG_FILE


def _pool_map(pool: Executor, jobs: int) -> Mapper:
    def ordered(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        # Bounded look-ahead: at most 2 x jobs chunks are in memory.
        pending: deque[Future[Any]] = deque()
        for args in arguments:
            # This process takes a chunk itself when the others have enough before them.
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


def _write_file(
    run_id: str, file: SourceFile, folder: Path, mapper: Mapper = inline_map, progress: Progress | None = None
) -> FileResult:
    """Read one raw file and write its rows to FOLDER/TABLE/rank-N.parquet."""
    result = FileResult(file, FileReport(), set(), {})
    size = file_state(file.path).bytes
    before = size // 2 if isinstance(file.path, RemotePath) else 0  # half of the work is that it is fetched
    told = 0

    def tell(position: int) -> None:
        nonlocal told
        if progress and position > told:
            progress.advance(position - told, file.path.name)
            told = position

    with ExitStack() as stack:
        writers: dict[tuple[str, int], TableWriter] = {}
        folder.mkdir(parents=True, exist_ok=True)
        path = stack.enter_context(sources.on_disk(file.kind, file.path, folder, lambda there: tell(there // 2)))
        for table, own_rank, batch in sources.read(file.kind, path, result.report, mapper):
            rank = file.rank if own_rank is None else own_rank
            if (table, rank) not in writers:
                target = folder / table / f"rank-{rank}.parquet"
                writers[table, rank] = stack.enter_context(TableWriter(target, table, run_id, rank))
            writers[table, rank].write(batch)
            if table in KERNEL_NAME_COLUMNS and result.kernel_names is not None:
                names = batch.column(KERNEL_NAME_COLUMNS[table])
                result.kernel_names.update(n for n in names.dictionary.to_pylist() if n is not None)
                if len(result.kernel_names) > kernel_names.MOST:
                    result.kernel_names = None
            tell(before + min(size, result.report.position) * (size - before) // max(size, 1))
        result.report.rows = {key: w.rows for key, w in writers.items()}
        result.written = {key: w.path for key, w in writers.items() if w.rows}
    result.report.warnings = [printable_text(w) for w in result.report.warnings]
    tell(size)
    return result


def _finish_run(
    run: RunInput, files: list[StoredFile], done: list[FileResult], folder: Path, pool: Executor, jobs: int
) -> tuple[StoredRun, list[StagedFile]]:
    """Add the tables that are of the run as a whole: runs and kernel_names.

    Of two files that overlap, the second is left out. Raises InputError if the user named it.
    """
    leave_out_second(run, done)
    stored, staged = tables_of_run(run, files, done, folder, pool, jobs)
    staged += [StagedFile(table, [rank], path) for d in done for (table, rank), path in d.written.items()]
    return stored, packed(staged, folder / "packed", pool, _MOST_FILES)


def leave_out_second(run: RunInput, done: list[FileResult]) -> None:
    """Of files that have rows of a rank in the same table, leave all but the first out of `done`, with a warning.

    Raises InputError if the user named it.
    """
    owners: dict[tuple[str, int], SourceFile] = {}
    for result in list(done):
        if twice := next((key for key in result.written if key in owners), None):
            table, rank = twice
            other = owners[twice].path
            problem = f"{result.file.path}: has {table} of rank {rank}, and so has {other}, of the same run"
            if result.file.path in run.named:
                raise InputError(problem)
            run.warnings.append(f"{problem}; left out")
            done.remove(result)
            continue
        owners |= dict.fromkeys(result.written, result.file)


def tables_of_run(
    run: RunInput, files: list[StoredFile], done: list[FileResult], folder: Path, pool: Executor, jobs: int
) -> tuple[StoredRun, list[StagedFile]]:
    """What the store holds of a run, without the files of its ranks, and those of `RUN_TABLES`, written to a folder."""
    ranks = {rank for d in done for _, rank in d.report.rows} or {f.rank for f in run.files}
    info: dict[str, Any] = {}
    for result in sorted(done, key=lambda d: d.file.rank, reverse=True):
        info |= result.report.info
    warnings = run.warnings + [w for d in done for w in d.report.warnings]
    known = {k: v for k, v in run.columns.items() if v is not None}
    row = {**info, **known, "run_id": run.run_id, "ranks": len(ranks), "warnings": "\n".join(warnings) or None}
    staged = [StagedFile("runs", [0], folder / "runs.parquet")]
    write = pool.submit(write_rows, "runs", [row], staged[0].path)
    if hosts := _hosts(run, done):
        staged.append(StagedFile("rank_hosts", sorted(hosts), folder / "rank_hosts.parquet"))
        rows = [{"run_id": run.run_id, "rank": rank, "host": hosts[rank]} for rank in sorted(hosts)]
        write_rows("rank_hosts", rows, staged[-1].path)
    path = folder / "kernel_names.parquet"
    with TableWriter(path, "kernel_names", run.run_id) as writer:
        parts = ((part,) for part in names_of(done, folder))
        for batch in _pool_map(pool, jobs)(kernel_names.batch, parts):
            writer.write(batch)
    if writer.rows:
        staged.append(StagedFile("kernel_names", [0], path))
    write.result()
    stored = StoredRun(
        parser=PARSER_VERSION,
        rules=kernel_names.rules_digest(),
        files=files,
        world_size=row.get("world_size"),
    )
    return stored, staged


def _hosts(run: RunInput, done: Sequence[FileResult]) -> dict[int, str]:
    """Where the ranks that were read ran: as the manifest says, else the file."""
    said = {rank: d.report.info.get("host") for d in done for _, rank in d.report.rows}
    return {rank: host for rank, file_host in said.items() if (host := run.hosts.get(rank) or file_host)}


def names_of(done: Sequence[FileResult], folder: Path) -> Iterator[list[str]]:
    """The kernel names of some files in ascending order, some at a time; what is too much for memory is in `folder`."""
    if any(d.kernel_names is None for d in done):
        written = [(table, path) for d in done for (table, _), path in d.written.items()]
        columns = [(path, KERNEL_NAME_COLUMNS[table]) for table, path in written if table in KERNEL_NAME_COLUMNS]
        yield from kernel_names.distinct(columns, folder / "names", _NAMES)
        return
    names = sorted(set().union(*(d.kernel_names or () for d in done)))
    for start in range(0, len(names), _NAMES):
        yield names[start : start + _NAMES]
