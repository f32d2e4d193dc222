"""The Parquet store: a folder `TABLE/run_id=.../rank-N.parquet`, and its catalogue, `store.json`, which names them.

`store.json` is replaced by rename after every file of a run is in place, and only files that it names are read. So a
reader sees a run's old rows or its new ones, and so does the world after a killed ingest. A run that is ingested again
gets files of the next generation (`rank-0.g2.parquet`); the old ones are removed once nobody reads the store: readers
hold `.readers` in common while they do.

Shards of an ingest (module `shards`) need no lock: what they write has a mark of its own in its name, and lies in the
store unnamed until `commit` names it. `.shards` says which marks wait for that, or are still being written.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analyze.errors import InputError
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
from analyze.store.file_digest import FileState
from analyze.store.file_lock import locked, make_lock_file
from schemas.files import write_synced

STORE_NAME = "store.json"

_WRITER_LOCK = ".lock"
_READER_LOCK = ".readers"
_PART = ".part-"
SHARDS = ".shards"
_AT_WORK = ".work"
DEAD_S = 86_400
"""Age of what nobody has locked or named, from which it is taken for left by the dead: locks may not reach other
hosts."""
REMOVED = ".removed-"
"""How a folder begins that is being removed."""


@dataclass(frozen=True)
class StagedFile:
    """A Parquet file with rows of these ranks of a table, in a folder of `Store.staging`."""

    table: str
    ranks: list[int]
    path: Path


class Store:
    """A store folder. Opening reads `store.json` once; `snapshot` does not change unless this object changes it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._held: weakref.finalize[[int], Store] | None = None
        self.snapshot = _read(folder / STORE_NAME)

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def filesystem(self) -> Any:
        """The fsspec file system that DuckDB needs to read it, if it needs one."""
        return None

    def for_readers(self, files: Iterable[TableFile]) -> list[str]:
        """What DuckDB opens some files by."""
        return [f"{self._resolved}{os.sep}{f.path.replace('/', os.sep)}" for f in files]

    @cached_property
    def _resolved(self) -> Path:
        return self.folder.resolve()

    @staticmethod
    def is_store(folder: Path) -> bool:
        """Whether a folder is a store."""
        return (folder / STORE_NAME).is_file()

    def hold(self) -> None:
        """Keep every file of the snapshot, which is read anew, until this object is gone: for readers.

        Without a lock file that can be opened (a store on a read-only disk) nobody removes files either, and where
        the file system has no locks, nobody writes.
        """
        self.release()
        try:
            handle = locked(self.folder / _READER_LOCK, shared=True, create=False)
        except OSError:
            handle = None
        if handle is not None:
            self._held = weakref.finalize(self, os.close, handle)
        self.snapshot = _read(self.folder / STORE_NAME)

    def release(self) -> None:
        """End what `hold` began."""
        if self._held:
            self._held()
            self._held = None

    def exists(self) -> bool:
        """Whether the store was made."""
        return self.is_store(self.folder)

    def make(self) -> None:
        """Make the store if it is not there. Raises InputError as `lock`."""
        if not self.exists():
            with self.lock():
                pass

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the store for writing; waits for another writer. Creates the folder. Re-reads the snapshot.

        Raises InputError if it cannot be written, or holds runs that nothing names any more: they would be removed.
        """
        handle = None
        try:
            while handle is None:  # the folder can be removed by another process meanwhile, if it is a cache
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = locked(self.folder / _WRITER_LOCK)
            make_lock_file(self.folder / _READER_LOCK)
        except OSError as e:
            raise InputError(f"{self.folder}: cannot be written: {e.strerror}") from e
        try:
            if not self.is_store(self.folder):
                if any(self.folder.glob("*/run_id=*")):
                    raise InputError(f"{self.folder}: holds runs, but {STORE_NAME}, which names them, is gone")
                self._replace({})
            self.snapshot = _read(self.folder / STORE_NAME)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder inside the store for files that are not whole yet; gone at the end."""
        folder = Path(tempfile.mkdtemp(prefix=_PART, dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def raw_files(self) -> Mapping[FileState, StoredFile]:
        """The raw files of all runs, with what was found of them before. What an older parser found says nothing."""
        runs = self.snapshot.runs.values()
        return {f.state: f for run in runs if run.parser == PARSER_VERSION for f in run.files}

    def damage(self, run_id: str) -> str | None:
        """What is wrong with the first Parquet file of a run that is not there, or not as large as it was."""
        for file in self.snapshot.runs[run_id].table_files:
            path = self.folder / file.path
            try:
                there = path.stat().st_size
            except OSError as e:
                return f"{path}: cannot be read: {e.strerror}"
            if file.bytes not in (None, there):
                return f"{path}: damaged: it has {there} bytes and had {file.bytes}"
        return None

    def commit(self, run_id: str, run: StoredRun, staged: Iterable[StagedFile]) -> None:
        """`commit_all` of one run."""
        self.commit_all([(run_id, run, staged)])

    def commit_all(
        self, runs: Iterable[tuple[str, StoredRun, Iterable[StagedFile]]], commits: Iterable[str] | None = None
    ) -> None:
        """Move files of runs into place, then name them in the catalogue beside those that each run names already.

        In one step: all appear or none. `commits` take the place of those in the catalogue. Call under `lock`.
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
        """Move a file to where it will be, under a name that tells it from those of other writings of its run."""
        target = table_path(file.table, run_id, file.ranks, mark)
        named = TableFile(path=target, bytes=file.path.stat().st_size, ranks=file.ranks)
        path = self.folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        file.path.replace(path)
        return named

    def fetch(self, file: TableFile, folder: Path) -> Path:
        """A file of the store as one that can be opened by its path; `folder` is there for what must be copied."""
        return self.folder / file.path

    @contextmanager
    def shard_at_work(self, name: str) -> Iterator[Path]:
        """A folder for the files of a shard, `name` in `.shards`, which nobody else removes; gone at the end."""
        folder = self.folder / SHARDS / f"{name}{_AT_WORK}"
        folder.mkdir(parents=True)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            handle = locked(folder / _WRITER_LOCK)
            if handle is not None:
                stack.callback(os.close, handle)
            yield folder

    def write_shard(self, name: str, data: bytes) -> None:
        """Keep what is known of shards under a name in `.shards`, whole or not at all."""
        path = self.folder / SHARDS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(path, data)

    def read_shards(self) -> dict[str, bytes]:
        """What `write_shard` keeps, by name."""
        found = sorted((self.folder / SHARDS).glob("*/*.json"))
        return {path.relative_to(self.folder / SHARDS).as_posix(): path.read_bytes() for path in found}

    def forget_shards(self, folder: str) -> None:
        """Remove what is known of the shards of a plan; `sweep` removes those of their files that nothing names."""
        # Not halfway: what is left of a plan would read as shards that are missing.
        gone = self.folder / f"{_PART}{secrets.token_hex(8)}"
        (self.folder / SHARDS / folder).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _marks_of_shards(self) -> set[str]:
        """The marks in the names of files that shards wrote or write; the folders of dead ones are removed."""
        for work in (self.folder / SHARDS).glob(f"*/*{_AT_WORK}"):
            try:
                handle = locked(work / _WRITER_LOCK, wait=False, create=False)
                if handle is not None:
                    os.close(handle)
                if (handle is not None or not (work / _WRITER_LOCK).exists()) and _age_s(work) > DEAD_S:
                    shutil.rmtree(work, ignore_errors=True)
            except OSError:
                continue  # no locks here, or it has just gone
        return {path.name.split(".")[1] for path in (self.folder / SHARDS).glob("*/*.*.*")}

    def forget(self, run_id: str) -> None:
        """Take a run out of the store. Call under `lock`."""
        runs = dict(self.snapshot.runs)
        del runs[run_id]
        self._replace(runs)

    def sweep(self) -> None:
        """Remove what nothing names: old generations, and what the dead left. Call under `lock`, outside `staging`.

        Nothing is removed while somebody reads the store; the next sweep does it then.
        """
        for part in (*self.folder.glob(_PART + "*"), *self.folder.glob(f".{STORE_NAME}.*.part")):
            if part.is_symlink() or not part.is_dir():
                part.unlink(missing_ok=True)
            else:
                shutil.rmtree(part, ignore_errors=True)
        handle = locked(self.folder / _READER_LOCK, wait=False)
        if handle is None:
            return
        try:
            # A signal may have come between writing the catalogue and noting it here: what it names now stays.
            if not self.exists():
                return
            self.snapshot = _read(self.folder / STORE_NAME)
            marks = self._marks_of_shards()
            named = {f.path for run in self.snapshot.runs.values() for f in run.table_files}
            for path in self.folder.glob("*/run_id=*/rank*-*.parquet"):
                linked = path.parent.is_symlink() or path.parent.parent.is_symlink()
                waits = path.name.split(".")[1] in marks
                if not linked and not waits and path.relative_to(self.folder).as_posix() not in named:
                    path.unlink(missing_ok=True)
                    if not any(path.parent.iterdir()):
                        path.parent.rmdir()
        finally:
            os.close(handle)

    def _replace(self, runs: dict[str, StoredRun], commits: Iterable[str] | None = None) -> None:
        snapshot = Catalogue(runs=runs, commits=list(self.snapshot.commits if commits is None else commits))
        write_synced(self.folder / STORE_NAME, encode(snapshot))
        self.snapshot = snapshot


def remove(folder: Path) -> bool:
    """Remove a store; False if somebody writes or reads it. Raises InputError."""
    # Renamed first: who waits for the lock, or opens the store, finds none, not a half.
    gone = folder.with_name(REMOVED + secrets.token_hex(8))
    try:
        with ExitStack() as held:
            for name in (_WRITER_LOCK, _READER_LOCK):
                handle = locked(folder / name, wait=False)
                if handle is None:
                    return False
                held.callback(os.close, handle)
            if sys.platform == "win32":
                # A folder with open files in it cannot be renamed there: not by us, nor while somebody else holds it.
                held.close()
                try:
                    folder.rename(gone)
                except PermissionError:
                    return False
            else:
                folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
    except OSError as e:
        raise InputError(f"{folder}: cannot be removed: {e.strerror}") from e


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _read(path: Path) -> Catalogue:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Catalogue(runs={})
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    return decode(data, str(path))
