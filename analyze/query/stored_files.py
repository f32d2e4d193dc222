"""The Parquet files of stores as a file system that DuckDB can read from and cannot write to.

DuckDB reads files of object storage through it. A DuckDB that runs SQL of unknown origin sees this file system and no
other. Files are named by number, so neither SQL nor an error shows where a store lies.
"""

from __future__ import annotations

import datetime
import os
import re
import threading
from collections.abc import Callable
from typing import IO, Any

from fsspec import AbstractFileSystem

PROTOCOL = "stored"

_NAME = re.compile(rf"(?:{PROTOCOL}://)?(\d+)\.parquet")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class StoredFiles(AbstractFileSystem):
    """Files that were added, for reading; everything else does not exist. DuckDB uses no other methods."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self._files: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}

    def add(self, path: str, filesystem: Any = None) -> str:
        """Add a file and return its name here. `filesystem`: the fsspec file system of a path that is not local."""
        if path not in self._names:
            self._names[path] = f"{PROTOCOL}://{len(self._files)}.parquet"
            self._files.append((path, filesystem))
        return self._names[path]

    def open(self, path: str, mode: str = "rb", **options: Any) -> SharedFile:
        """Open a file. Raises PermissionError for any mode but reading, FileNotFoundError for what was not added."""
        if mode not in ("r", "rb"):
            raise PermissionError(f"{path}: stored files are read-only")
        real, filesystem = self._find(path)
        if filesystem is not None:
            return SharedFile(filesystem.open(real, "rb"))
        opener: Callable[[str, int], int] = lambda name, flags: os.open(name, os.O_RDONLY | _NO_LINKS)  # noqa: E731
        return SharedFile(open(real, "rb", opener=opener))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Describe a file as fsspec does: name, size in bytes, type."""
        real, filesystem = self._find(path)
        size = os.stat(real).st_size if filesystem is None else filesystem.info(real)["size"]  # noqa: PTH116
        return {"name": path, "size": size, "type": "file"}

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was written."""
        real, filesystem = self._find(path)
        if filesystem is not None:
            written: datetime.datetime = filesystem.modified(real)
            return written
        return datetime.datetime.fromtimestamp(os.stat(real).st_mtime, datetime.UTC)  # noqa: PTH116

    def glob(self, path: str, **options: Any) -> list[str]:
        """Return the file itself: no name here is a pattern."""
        return [path] if self.exists(path) else []

    def exists(self, path: str, **options: Any) -> bool:
        """Return whether a file was added and is still there."""
        try:
            real, filesystem = self._find(path)
        except FileNotFoundError:
            return False
        return os.path.exists(real) if filesystem is None else bool(filesystem.exists(real))  # noqa: PTH110

    def _find(self, path: str) -> tuple[str, Any]:
        found = _NAME.fullmatch(path)
        if found is None or int(found[1]) >= len(self._files):
            raise FileNotFoundError(f"{path}: no such stored file")
        return self._files[int(found[1])]


class SharedFile:
    """An open file with a position for each thread.

    DuckDB opens a file once and reads it in several threads. Each calls seek() and then read(), and another thread may
    seek in between: with one position for all, it would read the wrong bytes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._positions: dict[int, int] = {}

    def seek(self, position: int) -> int:
        """Set this thread's position, in bytes from the start."""
        self._positions[threading.get_ident()] = position
        return position

    def tell(self) -> int:
        """Return this thread's position."""
        return self._positions.get(threading.get_ident(), 0)

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or all, at this thread's position, and move it."""
        position = self.tell()
        with self._lock:
            self._file.seek(position)
            found = self._file.read(size)
        self.seek(position + len(found))
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()
