"""The commit of a sharded ingest (see `shards`): makes what all shards wrote visible in one step."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from analyze.errors import InputError
from analyze.ingestion.duplicate_ranks import drop_duplicate_ranks
from analyze.ingestion.file_merging import merge
from analyze.ingestion.grouping import read_as, spans
from analyze.ingestion.ingest import MOST_REPORTED, IngestResult, replaced, sentences, tables_of_run
from analyze.ingestion.run_folders import RunInput
from analyze.ingestion.shards import (
    COMMIT,
    FOLDER,
    PLAN,
    SHARD,
    PlannedRun,
    ShardPart,
    ShardPlan,
    Share,
    files_of,
    planned_run,
    shards_of,
)
from analyze.ingestion.staging import FileResult
from analyze.sources.interface import FileReport
from analyze.sources.remote import raw_path
from analyze.store.catalogue import PARSER_VERSION, RUN_TABLES, StoredFile, StoredRun, TableFile, decoded
from analyze.store.store import SHARDS, StagedFile, Store

T = TypeVar("T")


@dataclass
class _Waiting:
    """The finished shards of a plan that is not committed."""

    folder: str
    plan: ShardPlan
    parts: dict[int, ShardPart]
    """By shard number; the last attempt of each."""
    again: set[int] = field(default_factory=set)
    """Shards with several attempts."""
    names: list[str] = field(default_factory=list)
    """Names of the files of its shards."""

    @property
    def missing(self) -> set[int]:
        """Shards that are not finished."""
        return set(range(self.plan.of)) - set(self.parts)

    @property
    def unchanged(self) -> set[str]:
        """Runs that the store already holds."""
        return {run_id for part in self.parts.values() for run_id in part.unchanged}

    def __str__(self) -> str:
        return _numbered(set(self.parts), self.plan.of)


def commit(store: Store, allow_missing: bool = False) -> IngestResult:
    """Make what the shards of an ingest wrote visible, all of it or nothing.

    Raises InputError if a shard is missing or has other inputs than the others. With `allow_missing`, the files of
    missing shards are left out; a warning and `runs.warnings` say so.
    """
    result = IngestResult()
    with ExitStack() as stack:
        stack.enter_context(sentences(store))
        stack.enter_context(store.lock())
        kept = store.read_shards()
        committed = _committed(store, kept)
        waiting = _waiting(store, kept, committed)
        unfinished = _finish(store, committed, {one.folder for one in waiting})
        chosen = _chosen(store, waiting, allow_missing, result.warnings)
        staging = stack.enter_context(store.staging())
        written: list[tuple[str, StoredRun, list[StagedFile]]] = []
        failures: list[str] = []
        for one in chosen:
            if one.again:
                result.warnings.append(
                    f"{_numbered(one.again, one.plan.of)} done more than once; the last attempt counts"
                )
            if one.missing:
                result.warnings.append(f"{_missing(one)} missing: {_unread(one)} are not in the store")
            unchanged = one.unchanged
            for run, numbers in zip(one.plan.runs, shards_of(one.plan.runs, one.plan.of), strict=True):
                if run.run_id in unchanged:
                    result.unchanged.append(run.run_id)
                    continue
                read = _taken(one, run, numbers)
                if problem := store.damage_of(file for files in read.tables.values() for file in files):
                    raise InputError(f"{problem}; ingest its shard again")
                if read.lost and not read.done:
                    result.failed.append(run.run_id)
                    failures += read.lost
                elif read.done or not one.missing:
                    folder = staging / str(len(written))
                    result.warnings += replaced(store, read.run, read.files)
                    written.append((run.run_id, *_finished(read, store, folder)))
                    result.add(read.run, read.files, read.done)
        found = [run for _, run, _ in written] + [store.snapshot.runs[r] for r in result.unchanged]
        if failures and not found:
            raise InputError("; ".join(failures[:MOST_REPORTED]))
        result.warnings += [f"{problem}; left out" for problem in failures]
        mark = secrets.token_hex(8)
        for one in chosen:
            store.write_shard(f"{one.folder}/commit-{mark}.json", msgspec.json.encode(one.names))
        store.commit_all(written, [*unfinished, mark])
        for one in chosen:
            store.forget_shards(one.folder)
        store.sweep()
    result.read_as = read_as((run.ranks, run.world_size) for run in found)
    return result


def _waiting(store: Store, kept: Mapping[str, bytes], committed: Mapping[str, list[str]]) -> list[_Waiting]:
    """Return the plans with finished shards. Raises InputError for a file that cannot be read."""
    done = {name for names in committed.values() for name in names}
    found: dict[str, _Waiting] = {}
    for name in kept:
        folder, _, file = name.partition("/")
        match = SHARD.fullmatch(file)
        if match is None or not FOLDER.fullmatch(folder) or name in done or f"{folder}/{PLAN}" not in kept:
            continue
        if folder not in found:
            found[folder] = _Waiting(folder, _decoded(store, kept, f"{folder}/{PLAN}", ShardPlan), {})
        one, part, number = found[folder], _decoded(store, kept, name, ShardPart), int(match[1])
        with _says_which(store, name):
            part.check(one.plan, Share(number, int(match[2])), match[3])
            if gone := next((run_id for run_id in part.unchanged if run_id not in store.snapshot.runs), None):
                raise ValueError(f"it found run {gone!r} in the store, which is not there any more")
        one.names.append(file)
        if number in one.parts:
            one.again.add(number)
        if number not in one.parts or one.parts[number].finished_ns < part.finished_ns:
            one.parts[number] = part
    return list(found.values())


def _committed(store: Store, kept: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the names of the shard files of each commit whose mark is in the catalogue."""
    found: dict[str, list[str]] = {}
    for name in kept:
        folder, _, file = name.partition("/")
        match = COMMIT.fullmatch(file)
        if match and FOLDER.fullmatch(folder) and match[1] in store.snapshot.commits:
            found.setdefault(match[1], []).extend(f"{folder}/{n}" for n in _decoded(store, kept, name, list[str]))
    return found


def _finish(store: Store, committed: Mapping[str, list[str]], waiting: set[str]) -> list[str]:
    """Remove the shard files of killed commits, except for plans in `waiting`.

    Returns the marks of the commits whose files stay.
    """
    folders = {mark: {name.partition("/")[0] for name in names} for mark, names in committed.items()}
    for folder in set().union(*folders.values()) - waiting:  # one may have shards of several commits
        store.forget_shards(folder)
    return [mark for mark, own in folders.items() if own & waiting]


def _decoded(store: Store, kept: Mapping[str, bytes], name: str, kind: type[T]) -> T:
    with _says_which(store, name):
        return decoded(kept[name], kind)


@contextmanager
def _says_which(store: Store, name: str) -> Iterator[None]:
    """Raise InputError that names the file in place of ValueError."""
    try:
        yield
    except ValueError as e:
        raise InputError(f"{store}/{SHARDS}/{name}: not what a shard of an ingest writes: {e}") from e


def done_shards(runs: Sequence[RunInput], store: Store, of: int, again: bool) -> set[int]:
    """Return the finished shards of an ingest of these runs."""
    folder = ShardPlan(of=of, again=again, runs=[planned_run(run) for run in runs]).digest()
    kept = store.read_shards()
    waiting = _waiting(store, kept, _committed(store, kept))
    return {number for one in waiting if one.folder == folder for number in one.parts}


def _chosen(store: Store, waiting: list[_Waiting], allow_missing: bool, warnings: list[str]) -> list[_Waiting]:
    """Return the plans to commit. Raises InputError if there is none, or shards are missing or have other inputs."""
    if not waiting:
        raise InputError(f"{store}: there is no shard to commit; `analyze ingest --shard I/N` writes shards")
    if newer := [one for one in waiting if one.plan.parser != PARSER_VERSION]:
        raise InputError(f"{store}: {newer[0]} were read by another version of tracequarry; ingest them again")
    whole = [one for one in waiting if not one.missing]
    part = [one for one in waiting if one.missing]
    if whole:
        made = {run.run_id for one in whole for run in one.plan.runs}
        for one in part:
            if made & {run.run_id for run in one.plan.runs}:
                # Some shards read an earlier state of the files; all shards of a later plan are finished.
                warnings.append(f"{one} of an earlier state of the inputs: removed")
                store.forget_shards(one.folder)
            else:
                warnings.append(f"{one} of other inputs: still waiting, {_missing(one)} missing")
    elif len(part) > 1:
        differences = "; ".join(f"{one}: {_first_difference(one, part[0])}" for one in part[1:])
        raise InputError(f"{store}: {part[0]} and others are of different inputs: {differences}")
    elif not allow_missing:
        raise InputError(
            f"{store}: {_missing(part[0])} missing, and with that {_unread(part[0])}; "
            "ingest what is missing, or commit the rest with --allow-missing"
        )
    runs = [run.run_id for one in whole for run in one.plan.runs]
    if twice := next((run for run in runs if runs.count(run) > 1), None):
        differences = _first_difference(whole[1], whole[0])
        raise InputError(f"{store}: two whole ingests hold run {twice}, of different inputs: {differences}")
    return whole or part


def _numbered(numbers: set[int], of: int) -> str:
    return f"shard{'s' if len(numbers) > 1 else ''} {spans(numbers)} of {of}"


def _missing(one: _Waiting) -> str:
    return f"{_numbered(one.missing, one.plan.of)} {'are' if len(one.missing) > 1 else 'is'}"


def _unread(one: _Waiting) -> str:
    """Say how many files the missing shards were to read."""
    numbers = [number for files in shards_of(one.plan.runs, one.plan.of) for number in files]
    return f"{sum(number not in one.parts for number in numbers)} of {len(numbers)} raw files"


def _first_difference(one: _Waiting, other: _Waiting) -> str:
    """Say how a plan differs from another one."""
    if one.plan.of != other.plan.of:
        return f"of {one.plan.of} shards, not {other.plan.of}"
    mine, theirs = ({f.path: f for run in w.plan.runs for f in run.stored} for w in (one, other))
    for path, file in mine.items():
        if path not in theirs:
            return f"{path} is only in these"
        if file.state != theirs[path].state:
            return f"{path} changed meanwhile"
    return next((f"{path} is not in these" for path in theirs if path not in mine), "read with other options")


@dataclass
class _Taken:
    """What the shards read of a run."""

    run: RunInput
    """With the files of the finished shards."""
    files: list[StoredFile]
    done: list[FileResult]
    lost: list[str]
    tables: dict[str, list[TableFile]]


def _taken(one: _Waiting, planned: PlannedRun, numbers: list[int]) -> _Taken:
    """`numbers`: the shard of each file of the run."""
    places = [place for place, number in enumerate(numbers) if number in one.parts]
    pairs = dict(zip(places, files_of(planned, places), strict=True))
    manifests = planned.stored[: len(planned.stored) - len(planned.files)]
    run = RunInput(
        run_id=planned.run_id,
        files=[source for _, source in pairs.values()],
        columns=planned.columns,
        warnings=list(planned.warnings),
        named=frozenset(map(raw_path, planned.named)),
        hosts=planned.hosts,
        full=planned.full,
    )
    taken = _Taken(run, manifests + [stored for stored, _ in pairs.values()], [], [], {})
    for part in (part for _, part in sorted(one.parts.items())):
        for file in part.files.get(planned.run_id, ()):
            if file.problem is not None:
                taken.lost.append(file.problem)
                continue
            rows = {(table, rank): n for table, rank, n in file.rows}
            report = FileReport(file.warnings, file.lost, file.info, rows)
            written = dict.fromkeys(file.written, Path())
            taken.done.append(FileResult(pairs[file.place][1], report, set(file.kernel_names), written))
        for table, files in part.tables.get(planned.run_id, {}).items():
            taken.tables.setdefault(table, []).extend(files)
    run.warnings += [f"{problem}; left out" for problem in taken.lost]
    if len(run.files) < len(planned.files):
        left = len(planned.files) - len(run.files)
        run.warnings.append(f"{left} of {len(planned.files)} raw files were not read: {_missing(one)} missing")
    return taken


def _finished(read: _Taken, store: Store, folder: Path) -> tuple[StoredRun, list[StagedFile]]:
    """Return the run for the catalogue, and the files still to be moved into the store."""
    every = list(read.done)
    drop_duplicate_ranks(read.run, read.done)
    stored, staged = tables_of_run(read.run, read.files, read.done, folder)
    stored.tables = read.tables
    if len(read.done) < len(every):
        for table in (t for t in read.tables if t not in RUN_TABLES):
            # The merged file of a shard has each rank of a table once: from the first raw file that has it.
            kept = _owners(every, read.done, table)
            files, stored.tables[table] = read.tables[table], []
            for file in files:
                gone = {r for r in file.ranks if not kept[r].pop(0)}
                if not gone:
                    stored.tables[table].append(file)
                elif gone < set(file.ranks):
                    path = folder / f"{table}-{len(staged)}.parquet"
                    merge([store.fetch(file, folder)], path, gone)
                    staged.append(StagedFile(table, sorted(set(file.ranks) - gone), path))
        stored.tables = {table: files for table, files in stored.tables.items() if files}
    return stored, staged


def _owners(every: list[FileResult], done: list[FileResult], table: str) -> dict[int, list[bool]]:
    """Return for each rank of a table whether each raw file that has it counts, in the order of the files."""
    found: dict[int, list[bool]] = {}
    for one in every:
        for name, rank in one.written:
            if name == table:
                found.setdefault(rank, []).append(one in done)
    return found
