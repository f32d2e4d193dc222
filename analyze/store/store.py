"""The Parquet store: a folder `TABLE/run_id=.../rank-N.parquet`, and `store.json`, which says what belongs to it.

`store.json` is replaced by rename after every file of a run is in place, and only files that it names are read. So a
reader sees a run's old rows or its new ones, and so does the world after a killed ingest. A run that is ingested again
gets files of the next generation (`rank-0.g2.parquet`); the old ones are removed once nobody reads the store: readers
hold `.readers` in common while they do.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote

import msgspec

from analyze.errors import InputError
from analyze.store.file_digest import FileState
from analyze.store.file_lock import locked, make_lock_file
from schemas.files import write_synced

STORE_NAME = "store.json"
STORE_VERSION = 1
"""Raised when older programs could not read the folder; newer ones read every older version."""

PARSER_VERSION = 7
"""Raised when a parser or a table changes. Caches are read again then; of what other stores hold, columns that were
not read are NULL until it is ingested again."""

_WRITER_LOCK = ".lock"
_READER_LOCK = ".readers"
_PART = ".part-"
REMOVED = ".removed-"
"""How a folder begins that is being removed."""

_LONGEST_NAME = 120


class StoredFile(msgspec.Struct, kw_only=True, frozen=True):
    """A raw file as it was when it was ingested."""

    path: str
    bytes: int
    mtime_ns: int
    digest: str | None = None
    """SHA-256, where it was needed to tell files apart."""

    @property
    def state(self) -> FileState:
        """What stays while the file does."""
        return self.path, self.bytes, self.mtime_ns


class StoredRun(msgspec.Struct, kw_only=True):
    """What the store holds of a run."""

    generation: int = 1
    encoded: bool = False
    """Whether `path_name` names its folders; older versions took the id as it is."""
    parser: int
    """PARSER_VERSION of the program that read it."""
    rules: str
    """Digest of the kernel rules that classified its kernel names."""
    files: list[StoredFile]
    tables: dict[str, list[int]]
    """Ranks that have rows, by table; [0] for the tables without a rank."""
    sizes: dict[str, list[int]] = {}
    """Bytes of the Parquet files, in the order of `tables`; empty in older stores."""
    world_size: int | None = None
    """Ranks of the job, where the files say so."""

    def paths(self, run_id: str, table: str) -> list[str]:
        """Parquet files of a table, relative to the store."""
        suffix = "" if self.generation == 1 else f".g{self.generation}"
        name = path_name(run_id) if self.encoded or "/" in run_id else run_id
        return [f"{table}/run_id={name}/rank-{rank}{suffix}.parquet" for rank in self.tables.get(table, [])]

    @property
    def ranks(self) -> set[int]:
        """Ranks that have rows."""
        return {r for table, ranks in self.tables.items() if table not in ("runs", "kernel_names") for r in ranks}


class Snapshot(msgspec.Struct, kw_only=True):
    """Content of store.json."""

    version: int
    runs: dict[str, StoredRun]


def path_name(run_id: str) -> str:
    """A run id as the name of a folder: %XX for what a path, a pattern or a shell could take for something else."""
    name = quote(run_id, safe="").replace("~", "%7E")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:80]}-{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}"


class Store:
    """A store folder. Opening reads `store.json` once; `snapshot` does not change unless this object changes it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._held: weakref.finalize[[int], Store] | None = None
        self.snapshot = _read_snapshot(folder / STORE_NAME)

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
        self.snapshot = _read_snapshot(self.folder / STORE_NAME)

    def release(self) -> None:
        """End what `hold` began."""
        if self._held:
            self._held()
            self._held = None

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
            self.snapshot = _read_snapshot(self.folder / STORE_NAME)
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

    def digests(self) -> Mapping[FileState, str]:
        """Digests of the raw files that were needed before."""
        return {f.state: f.digest for run in self.snapshot.runs.values() for f in run.files if f.digest}

    def damage(self, run_id: str) -> str | None:
        """What is wrong with the first Parquet file of a run that is not there, or not as large as it was."""
        run = self.snapshot.runs[run_id]
        for table in run.tables:
            paths = run.paths(run_id, table)
            for path, size in zip_longest(paths, run.sizes.get(table, [])):
                try:
                    there = (self.folder / path).stat().st_size
                except OSError as e:
                    return f"{self.folder / path}: cannot be read: {e.strerror}"
                if size not in (None, there):
                    return f"{self.folder / path}: damaged: it has {there} bytes and had {size}"
        return None

    def commit(self, run_id: str, run: StoredRun, staged: Mapping[tuple[str, int], Path]) -> None:
        """Move a run's files, by table and rank, into place, then name them. Call under `lock`."""
        old = self.snapshot.runs.get(run_id)
        run.generation = old.generation + 1 if old else 1
        run.encoded = True
        run.sizes = {t: [staged[t, rank].stat().st_size for rank in ranks] for t, ranks in run.tables.items()}
        for table, ranks in run.tables.items():
            for rank, target in zip(ranks, run.paths(run_id, table), strict=True):
                path = self.folder / target
                path.parent.mkdir(parents=True, exist_ok=True)
                staged[table, rank].replace(path)
        self._replace({**self.snapshot.runs, run_id: run})

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
            named = {p for run_id, run in self.snapshot.runs.items() for t in run.tables for p in run.paths(run_id, t)}
            for path in self.folder.glob("*/run_id=*/rank-*.parquet"):
                linked = path.parent.is_symlink() or path.parent.parent.is_symlink()
                if not linked and path.relative_to(self.folder).as_posix() not in named:
                    path.unlink(missing_ok=True)
                    if not any(path.parent.iterdir()):
                        path.parent.rmdir()
        finally:
            os.close(handle)

    def _replace(self, runs: dict[str, StoredRun]) -> None:
        snapshot = Snapshot(version=STORE_VERSION, runs=runs)
        write_synced(self.folder / STORE_NAME, msgspec.json.encode(snapshot))
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


def _read_snapshot(path: Path) -> Snapshot:
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return Snapshot(version=STORE_VERSION, runs={})
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"{path}: not the catalogue of a tracequarry store: {e}") from e
    if snapshot.version > STORE_VERSION:
        raise InputError(f"{path}: store version {snapshot.version} is newer than this tracequarry reads; upgrade it")
    return snapshot
