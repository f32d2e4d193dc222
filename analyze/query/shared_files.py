"""Files of fsspec that DuckDB's threads may share.

DuckDB opens a file once and reads it in several threads. Each calls seek() and then read(), and another thread may
seek in between: with one position for all, it would read the wrong bytes.
"""

from __future__ import annotations

import datetime
import threading
from typing import IO, Any

from fsspec import AbstractFileSystem


class SharedFile:
    """An open file with a position for each thread."""

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


class SharedFiles(AbstractFileSystem):
    """A file system whose open files are shared. DuckDB uses no other methods."""

    cachable = False

    def __init__(self, files: AbstractFileSystem) -> None:
        super().__init__()
        self._files = files
        self.protocol = files.protocol

    def open(self, path: str, mode: str = "rb", **options: Any) -> SharedFile:
        """Open a file. Raises what the file system raises."""
        return SharedFile(self._files.open(path, mode))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Describe a file as fsspec does: name, size in bytes, type."""
        found: dict[str, Any] = self._files.info(path)
        return found

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was written."""
        written: datetime.datetime = self._files.modified(path)
        return written

    def glob(self, path: str, **options: Any) -> list[str]:
        """Return the files that a pattern matches."""
        found: list[str] = self._files.glob(path)
        return found

    def exists(self, path: str, **options: Any) -> bool:
        """Return whether there is such a file."""
        return bool(self._files.exists(path))
