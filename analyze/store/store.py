"""The Parquet store: a folder `TABLE/run_id=.../rank-N.parquet` and its catalogue, `store.json`.

`store.json` is replaced by rename after every file of a run is in place, and only files in it are read. So a reader
sees a run's old rows or its new ones, also after a killed ingest. A run that is ingested again gets files of the next
generation (`rank-0.g2.parquet`). The old ones are removed once nobody reads the store: readers hold a shared lock on
`.readers`.

Shards of an ingest need no lock: their files have a unique mark in their names and are not in the catalogue until
`commit` adds them. `.shards` lists the marks of finished and running shards.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analyze.atomic_output import protect
from analyze.errors import InputError, os_failure, unreadable
from analyze.store.catalogue import (
    PARSER_VERSION,
    Catalogue,
    StoredFile,
    StoredRun,
    TableFile,
    decode,
    encode,
    generation_mark,
    table_path,
)
from analyze.store.file_digest import FileState, crc32
from analyze.store.file_lock import locked, make_lock_file
from analyze.store.safe_folder import Folder

STORE_NAME = "store.json"

_WRITER_LOCK = ".lock"
_READER_LOCK = ".readers"
_PART = ".part-"
SHARDS = ".shards"
_AT_WORK = ".work"
ORPHAN_TTL_S = 86_400
"""Age in s from which files without a lock or a catalogue entry are orphans: locks may not reach other hosts."""
_RANKS = re.compile(r"ranks?-[^/]*\.parquet")
"""Names of Parquet files of a store."""
REMOVED = ".removed-"
"""Prefix of folders that are being removed."""


@dataclass(frozen=True)
class StagedFile:
    """A Parquet file in a staging folder, with rows of these ranks of a table."""

    table: str
    ranks: list[int]
    path: Path


class Store:
    """A store folder. Opening reads `store.json` once; `snapshot` does not change unless this object changes it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._inside = Folder(folder)
        self._held: weakref.finalize[[int], Store] | None = None
        self.snapshot = self._read()

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def filesystem(self) -> Any:
        """The fsspec file system that DuckDB needs to read it, if it needs one."""
        return None

    def for_readers(self, files: Iterable[TableFile]) -> list[str]:
        """Return the paths that DuckDB opens. Raises InputError for links, which it would follow."""
        files = list(files)
        try:
            for _ in self._inside.sizes(f.path for f in files):
                pass
        except OSError as e:
            raise unreadable(e.filename, e) from e
        return [f"{self._resolved}{os.sep}{f.path.replace('/', os.sep)}" for f in files]

    @cached_property
    def _resolved(self) -> Path:
        return self.folder.resolve()

    @staticmethod
    def is_store(folder: Path) -> bool:
        """Return whether a folder is a store; also if its catalogue is a link, which cannot be read."""
        try:
            return not stat.S_ISDIR((folder / STORE_NAME).lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def hold(self) -> None:
        """Read the snapshot again and keep its files from being removed until `release`: for readers.

        This process can no longer write outputs into the folder (`protect`).
        Where the lock file cannot be opened (a read-only disk) nobody removes files, and where the file system has no
        locks nobody writes.
        """
        self.release()
        protect(self.folder)
        try:
            handle = locked(self._inside, _READER_LOCK, shared=True, create=False)
        except OSError:
            handle = None
        if handle is not None:
            self._held = weakref.finalize(self, os.close, handle)
        self.snapshot = self._read()

    def open(self) -> list[str]:
        """Hold a store that the user named; return warnings.

        Raises InputError if a file is damaged or a newer tracequarry wrote it.
        """
        self.hold()
        runs = self.snapshot.runs
        for run_id, run in runs.items():
            if run.parser > PARSER_VERSION:
                raise InputError(f"{self}: {run_id} was ingested by a newer tracequarry; upgrade this one")
            if problem := self.damage(run_id):
                raise InputError(f"{problem}; ingest {run_id} again")
        older = sum(run.parser < PARSER_VERSION for run in runs.values())
        missing = "were ingested by an older tracequarry; columns that it did not read are missing; ingest them again"
        return [f"{self}: {older} run(s) {missing}"] if older else []

    def release(self) -> None:
        """Release the lock of `hold`."""
        if self._held:
            self._held()
            self._held = None

    def exists(self) -> bool:
        """Return whether the store exists."""
        return self.is_store(self.folder)

    def make(self) -> None:
        """Create the store if it does not exist. Raises InputError as `lock`."""
        if not self.exists():
            with self.lock():
                pass

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store for writing; wait for other writers. Creates the folder and reads the snapshot again.

        Raises InputError if it cannot be written, or has runs but no catalogue: they would be removed.
        """
        handle = None
        try:
            while handle is None:  # another process may evict a cached store in between
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = locked(self._inside, _WRITER_LOCK)
            make_lock_file(self._inside, _READER_LOCK)
        except OSError as e:
            raise os_failure(e, f"{self.folder}: cannot be written: {e.strerror}") from e
        try:
            if not self.is_store(self.folder):
                if any(self._run_folders()):
                    raise InputError(f"{self.folder}: has runs, but {STORE_NAME}, which lists them, is gone")
                self._replace({})
            self.snapshot = self._read()
            yield
        finally:
            os.close(handle)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder inside the store for unfinished files; it is removed at the end."""
        folder = Path(tempfile.mkdtemp(prefix=_PART, dir=self.folder))
        try:
            yield folder
        finally:
            self._inside.remove_tree(folder.name)

    def raw_files(self) -> Mapping[FileState, StoredFile]:
        """Return the raw files of all runs with their hints, except those of older parsers."""
        runs = self.snapshot.runs.values()
        return {f.state: f for run in runs if run.parser == PARSER_VERSION for f in run.files}

    def damage(self, run_id: str) -> str | None:
        """Return what is wrong with the first missing or resized Parquet file of a run; None if all is well."""
        return self.damage_of(self.snapshot.runs[run_id].table_files)

    def damage_of(self, files: Iterable[TableFile]) -> str | None:
        """Return `damage` of some files."""
        files = list(files)
        try:
            for file, there in zip(files, self._inside.sizes(f.path for f in files), strict=True):
                if file.bytes not in (None, there):
                    return f"{self.folder / file.path}: damaged: it has {there} bytes and had {file.bytes}"
        except OSError as e:
            return str(unreadable(e.filename, e))
        return None

    def commit(self, run_id: str, run: StoredRun, staged: Iterable[StagedFile]) -> None:
        """Commit one run; see `commit_all`."""
        self.commit_all([(run_id, run, staged)])

    def commit_all(
        self, runs: Iterable[tuple[str, StoredRun, Iterable[StagedFile]]], commits: Iterable[str] | None = None
    ) -> None:
        """Move files of runs into place, then add them to the catalogue in one step.

        `commits` replace those in the catalogue. Call under `lock`.
        """
        changed = dict(self.snapshot.runs)
        for run_id, run, staged in runs:
            old = self.snapshot.runs.get(run_id)
            run.generation = old.generation + 1 if old else 1
            for file in staged:
                named = self.place(run_id, file, self._mark(run.generation))
                run.tables.setdefault(file.table, []).append(named)
            for files in run.tables.values():
                files.sort(key=lambda f: f.ranks)
            changed[run_id] = run
        self._replace(changed, commits)

    def _mark(self, generation: int) -> str:
        return generation_mark(generation)

    def place(self, run_id: str, file: StagedFile, mark: str) -> TableFile:
        """Move a file into place under a name with its mark."""
        target = table_path(file.table, run_id, file.ranks, mark)
        named = TableFile(path=target, bytes=file.path.stat().st_size, crc32=crc32(file.path), ranks=file.ranks)
        self._inside.take(file.path, target)
        return named

    def fetch(self, file: TableFile, folder: Path) -> Path:
        """Return a local path of a file of the store; `folder` is for a copy if one is needed."""
        return Path(*self.for_readers([file]))

    @contextmanager
    def shard_at_work(self, name: str) -> Iterator[Path]:
        """Yield a locked folder for the files of a shard, `name` in `.shards`; it is removed at the end."""
        work = f"{SHARDS}/{name}{_AT_WORK}"
        self._inside.make(work)
        with ExitStack() as stack:
            stack.callback(self._inside.remove_tree, work)
            handle = locked(self._inside, f"{work}/{_WRITER_LOCK}")
            if handle is not None:
                stack.callback(os.close, handle)
            yield self.folder / work

    def write_shard(self, name: str, data: bytes) -> None:
        """Write a file of `.shards` atomically."""
        self._inside.write(f"{SHARDS}/{name}", data)

    def read_shards(self) -> dict[str, bytes]:
        """Return the files of `write_shard` by name."""
        plans = self._inside.folders(SHARDS)
        names = [f"{plan}/{n}" for plan in plans for n in self._inside.files(f"{SHARDS}/{plan}") if n.endswith(".json")]
        return {name: self._inside.read(f"{SHARDS}/{name}") for name in names}

    def forget_shards(self, folder: str) -> None:
        """Remove the files of a plan in `.shards`; `sweep` removes Parquet files that are not in the catalogue."""
        # Renamed first: half of a plan would look like missing shards.
        gone = f"{_PART}{secrets.token_hex(8)}"
        self._inside.rename(f"{SHARDS}/{folder}", gone)
        self._inside.remove_tree(gone)

    def _marks_of_shards(self) -> set[str]:
        """Return the marks of finished and running shards; remove folders of shards that were killed."""
        names: list[str] = []
        for plan in self._inside.folders(SHARDS):
            place = f"{SHARDS}/{plan}"
            for work in self._inside.folders(place):
                if work.endswith(_AT_WORK):
                    self._remove_if_dead(f"{place}/{work}")
            names += self._inside.folders(place) + self._inside.files(place)
        return {name.split(".")[1] for name in names if name.count(".") > 1}

    def _remove_if_dead(self, work: str) -> None:
        lock = f"{work}/{_WRITER_LOCK}"
        with suppress(OSError):  # no locks here, or just removed
            handle = locked(self._inside, lock, wait=False, create=False)
            if handle is not None:
                os.close(handle)
            free = handle is not None or _WRITER_LOCK not in self._inside.files(work)
            if free and time.time() - self._inside.stat(work).st_mtime > ORPHAN_TTL_S:
                self._inside.remove_tree(work)

    def _run_folders(self) -> Iterator[str]:
        """Yield every TABLE/run_id=..."""
        for table in self._inside.folders():
            if not table.startswith("."):
                for name in self._inside.folders(table):
                    if name.startswith("run_id="):
                        yield f"{table}/{name}"

    def forget(self, run_id: str) -> None:
        """Remove a run from the catalogue. Call under `lock`."""
        runs = dict(self.snapshot.runs)
        del runs[run_id]
        self._replace(runs)

    def sweep(self) -> None:
        """Remove files that are not in the catalogue: old generations, orphans. Call under `lock`, outside `staging`.

        Removes nothing while there are readers; the next sweep does.
        """
        for part in self._inside.folders():
            if part.startswith(_PART):
                self._inside.remove_tree(part)
        for part in self._inside.files():
            if part.startswith((_PART, f".{STORE_NAME}.")):
                self._inside.unlink(part)
        handle = locked(self._inside, _READER_LOCK, wait=False)
        if handle is None:
            return
        try:
            # A signal may have interrupted this process after the catalogue was written: what it lists now stays.
            if not self.exists():
                return
            self.snapshot = self._read()
            marks = self._marks_of_shards()
            named = {f.path for run in self.snapshot.runs.values() for f in run.table_files}
            for folder in self._run_folders():
                for name in self._inside.files(folder):
                    path = f"{folder}/{name}"
                    if _RANKS.fullmatch(name) and name.split(".")[1] not in marks and path not in named:
                        self._inside.unlink(path)
                        self._inside.remove_if_empty(folder)
        finally:
            os.close(handle)

    def _replace(self, runs: dict[str, StoredRun], commits: Iterable[str] | None = None) -> None:
        snapshot = Catalogue(runs=runs, commits=list(self.snapshot.commits if commits is None else commits))
        self._inside.write(STORE_NAME, encode(snapshot))
        self.snapshot = snapshot

    def _read(self) -> Catalogue:
        try:
            if not self.exists():
                return Catalogue(runs={})
            data = self._inside.read(STORE_NAME)
        except FileNotFoundError:  # just removed
            return Catalogue(runs={})
        except OSError as e:
            raise InputError(f"{self.folder / STORE_NAME}: cannot be read: {e.strerror}") from e
        return decode(data, str(self.folder / STORE_NAME))


def remove(place: Folder, name: str) -> bool:
    """Remove a store in a folder; return False if it is in use. Raises InputError."""
    # Renamed first: waiting writers and new readers then find no store instead of half of one.
    gone = REMOVED + secrets.token_hex(8)
    try:
        with ExitStack() as held:
            for lock in (_WRITER_LOCK, _READER_LOCK):
                handle = locked(place, f"{name}/{lock}", wait=False)
                if handle is None:
                    return False
                held.callback(os.close, handle)
            if sys.platform == "win32":
                # Windows does not rename a folder with open files, ours included.
                held.close()
                try:
                    place.rename(name, gone)
                except PermissionError:
                    return False
            else:
                place.rename(name, gone)
            place.remove_tree(gone)
            return True
    except OSError as e:
        raise os_failure(e, f"{place.path / name}: cannot be removed: {e.strerror}") from e
