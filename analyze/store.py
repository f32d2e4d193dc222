"""The Parquet store: a folder `TABLE/run_id=.../rank-N.parquet`, and `store.json`, which says what belongs to it.

`store.json` is replaced by rename after every file of a run is in place, and only files that it names are read. So a
reader sees a run's old rows or its new ones, and so does the world after a killed ingest. A run that is ingested again
gets files of the next generation (`rank-0.g2.parquet`); the old ones are removed once nothing names them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from analyze.errors import InputError

STORE_NAME = "store.json"
STORE_VERSION = 1

PARSER_VERSION = 3
"""Raised when a parser or a table changes; what was read before then is read again."""


class StoredFile(msgspec.Struct, kw_only=True, frozen=True):
    """A raw file as it was when it was ingested."""

    path: str
    bytes: int
    mtime_ns: int


class StoredRun(msgspec.Struct, kw_only=True):
    """What the store holds of a run."""

    generation: int = 1
    parser: int
    """PARSER_VERSION of the program that read it."""
    rules: str
    """Digest of the kernel rules that classified its kernel names."""
    files: list[StoredFile]
    tables: dict[str, list[int]]
    """Ranks that have rows, by table; [0] for the tables without a rank."""

    def paths(self, run_id: str, table: str) -> list[str]:
        """Parquet files of a table, relative to the store."""
        suffix = "" if self.generation == 1 else f".g{self.generation}"
        return [f"{table}/run_id={run_id}/rank-{rank}{suffix}.parquet" for rank in self.tables.get(table, [])]


class Snapshot(msgspec.Struct, kw_only=True):
    """Content of store.json."""

    version: int = STORE_VERSION
    runs: dict[str, StoredRun] = {}


class Store:
    """A store folder. Opening reads `store.json` once; `snapshot` does not change unless this object changes it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.snapshot = _read_snapshot(folder / STORE_NAME)

    @staticmethod
    def is_store(folder: Path) -> bool:
        """Whether a folder is a store."""
        return (folder / STORE_NAME).is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the store for writing; waits for another writer. Creates the folder. Re-reads the snapshot."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as e:
            raise InputError(f"{self.folder}: cannot be written: {e.strerror}") from e
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self.snapshot = _read_snapshot(self.folder / STORE_NAME)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder inside the store for files that are not whole yet; gone at the end, and so are those of the dead."""
        for dead in self.folder.glob(".part-*"):
            shutil.rmtree(dead, ignore_errors=True)
        folder = self.folder / f".part-{os.getpid()}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def commit(self, run_id: str, run: StoredRun, staged: Path) -> None:
        """Move a run's files from STAGED/TABLE/rank-N.parquet into place, then name them. Call under `lock`."""
        old = self.snapshot.runs.get(run_id)
        run.generation = old.generation + 1 if old else 1
        for table, ranks in run.tables.items():
            for rank, target in zip(ranks, run.paths(run_id, table), strict=True):
                path = self.folder / target
                path.parent.mkdir(parents=True, exist_ok=True)
                (staged / table / f"rank-{rank}.parquet").replace(path)
        self._replace({**self.snapshot.runs, run_id: run})
        if old:
            self._remove_files(run_id, old)

    def forget(self, run_id: str) -> None:
        """Take a run out of the store. Call under `lock`."""
        runs = dict(self.snapshot.runs)
        old = runs.pop(run_id)
        self._replace(runs)
        self._remove_files(run_id, old)

    def _replace(self, runs: dict[str, StoredRun]) -> None:
        snapshot = Snapshot(runs=runs)
        part = self.folder / (STORE_NAME + ".part")
        with part.open("wb") as f:
            f.write(msgspec.json.encode(snapshot))
            f.flush()
            os.fsync(f.fileno())
        part.replace(self.folder / STORE_NAME)
        self.snapshot = snapshot

    def _remove_files(self, run_id: str, run: StoredRun) -> None:
        for table in run.tables:
            for path in run.paths(run_id, table):
                (self.folder / path).unlink(missing_ok=True)


def _read_snapshot(path: Path) -> Snapshot:
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return Snapshot()
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except msgspec.DecodeError as e:
        raise InputError(f"{path}: not a tracequarry store: {e}") from e
    if snapshot.version > STORE_VERSION:
        raise InputError(f"{path}: store version {snapshot.version} is newer than this tracequarry reads; upgrade it")
    return snapshot
