"""Sharded ingest: each shard reads its share of the raw files without a lock; one `commit` makes all visible.

Every shard discovers the runs itself, so all agree on the run and rank of each file without communication. Shard i of N
reads the i-th part of all bytes, whole files in order. It writes Parquet files that the catalogue does not name yet,
and then what it read, in `.shards/PLAN/i-of-N.MARK.json`. The plan is what all shards of an ingest share; its name is a
digest of its content.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from analyze.cpus import cpus
from analyze.errors import InputError
from analyze.ingestion.file_merging import merged
from analyze.ingestion.ingest import IngestResult, is_current, sentences, stored_files
from analyze.ingestion.process_pool import worker_pool
from analyze.ingestion.progress import Progress
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.staging import FileResult, read_files, workers
from analyze.sources import BY_KIND
from analyze.sources.interface import SourceFile
from analyze.sources.remote import raw_path
from analyze.store.catalogue import PARSER_VERSION, Count, Rank, StoredFile, TableFile, table_path
from analyze.store.file_digest import printable
from analyze.store.store import StagedFile, Store
from analyze.stored_tables import TABLES

PLAN = "plan.json"
"""Name of the plan of a folder of shards."""
FOLDER = re.compile(r"[0-9a-f]{16}")
"""Folder names of plans."""
SHARD = re.compile(r"([0-9]{1,6})-of-([0-9]{1,6})\.([0-9a-f]+)\.json")
"""File names of finished shards: number, count, mark."""
COMMIT = re.compile(r"commit-([0-9a-f]+)\.json")
"""File names of commits, each a list of shard files. The commit succeeded if the catalogue has its mark."""
MOST = 999_999
"""Most shards of an ingest."""
_TAKEN = tuple[str, Rank]
"""A table and a rank."""
_VALUE = str | int | bool | None
"""Value of a column of the table `runs`."""
_TYPES: dict[str, Any] = {
    "string": str,
    "bool": bool,
    "int32": Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)],
    "int64": Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
}


class Share(NamedTuple):
    """The part of the work that a shard does."""

    number: int
    """From 0."""
    of: int


def parse_share(text: str) -> Share:
    """Parse a share such as 3/8. Raises InputError."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not int(match[1]) < int(match[2]):
        raise InputError(f"--shard {text}: must be I/N, with I from 0 to N - 1")
    return Share(int(match[1]), int(match[2]))


class PlannedRun(msgspec.Struct, kw_only=True):
    """A run as the shards discovered it."""

    run_id: str
    columns: dict[str, _VALUE]
    warnings: list[str]
    stored: list[StoredFile]
    """The raw files, the run.json of run folders first."""
    files: list[tuple[str, str, Rank]]
    """Path, kind and rank of each raw file."""
    named: list[str]
    """Paths that the user named."""
    hosts: dict[Rank, str]
    """Hosts of its ranks that its manifest names."""
    full: str | None = None
    """The run of its full block, if it is a GPU-only block."""

    def __post_init__(self) -> None:
        if len(self.stored) < len(self.files) or any(kind not in BY_KIND for _, kind, _ in self.files):
            raise ValueError(f"its raw files are not those of run {self.run_id!r}")
        _check_columns(self.columns)


class ShardPlan(msgspec.Struct, kw_only=True):
    """What all shards of an ingest share."""

    parser: Count = PARSER_VERSION
    of: Annotated[int, Meta(ge=1, le=MOST)]
    again: bool
    runs: list[PlannedRun]

    def digest(self) -> str:
        """Return a digest of the files, their states, and their runs and ranks."""
        runs = [(run.run_id, [f.state for f in run.stored], run.files) for run in self.runs]
        content = msgspec.json.encode([self.parser, self.of, self.again, runs])
        return hashlib.blake2b(content, digest_size=8).hexdigest()


class ReadFile(msgspec.Struct, kw_only=True):
    """A raw file as a shard read it."""

    place: Count
    """Its index among the files of its run."""
    problem: str | None = None
    """Why it could not be read; None if it was."""
    warnings: list[str] = []
    lost: Count = 0
    info: dict[str, _VALUE] = {}
    rows: list[tuple[str, Rank, Count]] = []
    """Table, rank and rows."""
    written: list[_TAKEN] = []
    kernel_names: list[str] = []

    def __post_init__(self) -> None:
        _check_columns(self.info)


class ShardPart(msgspec.Struct, kw_only=True):
    """The result of a shard."""

    finished_ns: int
    files: dict[str, list[ReadFile]] = {}
    """By run, in the order of the run's files."""
    tables: dict[str, dict[str, list[TableFile]]] = {}
    """The Parquet files, by run and table."""
    unchanged: list[str] = []
    """Runs that the store held already."""

    def check(self, plan: ShardPlan, share: Share, mark: str) -> None:
        """Raise ValueError unless this can be the result of that shard of the plan."""
        if share.of != plan.of or not share.number < plan.of:
            raise ValueError(f"it is shard {share.number} of {share.of}, and the plan has {plan.of}")
        runs = {run.run_id: numbers for run, numbers in zip(plan.runs, shards_of(plan.runs, plan.of), strict=True)}
        if len(runs) != len(plan.runs) or not runs.keys() >= {*self.files, *self.tables, *self.unchanged}:
            raise ValueError("its runs are not those of the plan")
        for run_id, files in self.files.items():
            numbers = dict(enumerate(runs[run_id]))
            if any(numbers.pop(file.place, None) != share.number for file in files):
                raise ValueError(f"its raw files of run {run_id!r} are not those of its share")
        for run_id in {*self.files, *self.tables}:
            tables = self.tables.get(run_id, {})
            read = Counter(taken for file in self.files.get(run_id, ()) for taken in file.written)
            held = Counter((table, rank) for table, own in tables.items() for file in own for rank in file.ranks)
            if read != held:
                raise ValueError(f"its Parquet files do not have the ranks that it read of run {run_id!r}")
            for table, own in tables.items():
                if table not in TABLES or any(file.path != table_path(table, run_id, file.ranks, mark) for file in own):
                    raise ValueError(f"a Parquet file of run {run_id!r} is not one of this shard")


def _check_columns(values: Mapping[str, _VALUE]) -> None:
    """Raise ValueError unless these are values of columns of the table `runs`."""
    types = {column.name: _TYPES[column.type] for column in TABLES["runs"].columns}
    for name, value in values.items():
        if name not in types:
            raise ValueError(f"runs has no column {name!r}")
        msgspec.convert(value, types[name] | None)


def ingest_shard(
    runs: Iterable[RunInput],
    store: Store,
    share: Share,
    jobs: int | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> IngestResult:
    """Read a share of the raw files of all runs and write it into the store, where `commit` makes it visible.

    Shards can run concurrently. A shard can run again; the last result counts.
    Raises InputError as `analyze.ingestion.ingest.ingest` does.
    """
    runs = list(runs)
    jobs = cpus() if jobs is None else jobs
    progress = progress or Progress()
    result = IngestResult()
    with sentences(store):
        store.make()
        planned = [planned_run(run) for run in runs]
        plan = ShardPlan(of=share.of, again=again, runs=planned)
        part = ShardPart(finished_ns=0)
        folder, mark = plan.digest(), secrets.token_hex(4)
        name = f"{folder}/{share.number}-of-{share.of}.{mark}"
        own = [
            [place for place, number in enumerate(files) if number == share.number]
            for files in shards_of(planned, share.of)
        ]
        raw = [
            (file, stored.bytes)
            for run, places in zip(planned, own, strict=True)
            for stored, file in files_of(run, places)
        ]
        with ExitStack() as stack:
            staging = stack.enter_context(store.shard_at_work(name))
            pool = stack.enter_context(worker_pool(workers(raw, jobs)))
            progress.start(sum(size for _, size in raw))
            for at, (run, plan_of_run) in enumerate(zip(runs, planned, strict=True)):
                if not again and is_current(store, run, plan_of_run.stored):
                    part.unchanged.append(run.run_id)
                    result.unchanged.append(run.run_id)
                elif own[at]:
                    mine = replace(run, files=[run.files[place] for place in own[at]])
                    done, lost = read_files(mine, staging / str(at), pool, jobs, progress)
                    places = {run.files[place]: place for place in own[at]}
                    part.files[run.run_id] = sorted(
                        [_read_file(places[d.file], d) for d in done]
                        + [ReadFile(place=places[file], problem=problem) for file, problem in lost.items()],
                        key=lambda f: f.place,
                    )
                    tables = part.tables.setdefault(run.run_id, {})
                    for file in _merged(done, staging / f"{at}-merged", pool):
                        tables.setdefault(file.table, []).append(store.place(run.run_id, file, mark))
                    result.add(mine, [s for s, _ in files_of(plan_of_run, own[at])], done)
                    result.warnings += [f"{problem}; left out" for problem in lost.values()]
            part.finished_ns = time.time_ns()
            store.write_shard(f"{folder}/{PLAN}", msgspec.json.encode(plan))
            store.write_shard(f"{name}.json", msgspec.json.encode(part))
    result.read_as = f"shard {share.number} of {share.of}: {len(raw)} of {sum(len(r.files) for r in runs)} raw files"
    return result


def planned_run(run: RunInput) -> PlannedRun:
    """Return a run for a plan. Raises InputError for a raw file that is gone."""
    return PlannedRun(
        run_id=run.run_id,
        columns=run.columns,
        warnings=run.warnings,
        stored=stored_files(run),
        files=[(printable(f.path), f.kind, f.rank) for f in run.files],
        named=sorted(printable(p) for p in run.named),
        hosts=run.hosts,
        full=run.full,
    )


def files_of(run: PlannedRun, places: Iterable[int]) -> Iterator[tuple[StoredFile, SourceFile]]:
    """Yield raw files of a run by index, as stored and as they are read."""
    manifests = len(run.stored) - len(run.files)
    for place in places:
        path, kind, rank = run.files[place]
        yield run.stored[manifests + place], SourceFile(raw_path(path), kind, rank)


def shards_of(runs: list[PlannedRun], of: int) -> list[list[int]]:
    """Return the shard of each file by run: the one whose part of all bytes has the middle of the file."""
    sizes = [[max(stored.bytes, 1) for stored in run.stored[len(run.stored) - len(run.files) :]] for run in runs]
    total = sum(map(sum, sizes))
    before = 0
    found: list[list[int]] = []
    for files in sizes:
        found.append([])
        for size in files:
            found[-1].append((2 * before + size) * of // (2 * total))
            before += size
    return found


def _read_file(place: int, done: FileResult) -> ReadFile:
    report = done.report
    return ReadFile(
        place=place,
        warnings=report.warnings,
        lost=report.lost,
        info=report.info,
        rows=[(table, rank, rows) for (table, rank), rows in report.rows.items()],
        written=list(done.written),
        kernel_names=sorted(done.kernel_names),
    )


def _merged(done: list[FileResult], folder: Path, pool: Any) -> list[StagedFile]:
    """Merge the Parquet files of some raw files, except those that repeat a rank of a table.

    The commit decides which of those counts.
    """
    seen: set[_TAKEN] = set()
    alone: list[StagedFile] = []
    together: list[StagedFile] = []
    for one in done:
        for key, path in one.written.items():
            (alone if key in seen else together).append(StagedFile(key[0], [key[1]], path))
            seen.add(key)
    return merged(together, folder, pool) + alone
