"""Access to the contents of a folder without following links: for stores and the cache, which are not trusted.

Names are relative to the folder, with / between their parts. On Linux and macOS every part is opened relative to the
handle of the folder above it (O_NOFOLLOW), so a link that appears meanwhile is not followed either. Windows has no such
handles: there every part is checked before the path is used. The path of the folder itself may contain links, because
the user chose it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analyze.errors import InputError

_HANDLES = os.open in os.supports_dir_fd
"""Whether the system opens files relative to the handle of a folder."""
_NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NONBLOCKING: int = getattr(os, "O_NONBLOCK", 0)
"""Opening a FIFO does not wait for a writer."""
_FOLDER: int = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_NAME_SURROGATE = 0x20000000
"""The bit of a Windows reparse tag for symbolic links and junctions."""
_MOST_BYTES = 1 << 30
"""Files above this size are not read into memory."""


class Folder:
    """A folder whose contents are read, created, renamed and removed without following links.

    Methods raise InputError for a link and OSError for other failures.
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self, name: str) -> bytes:
        """Read a regular file. Raises InputError for other kinds of files and for one that is too large."""
        handle = self.open(name, os.O_RDONLY)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{self.path / name}: not a regular file")
            if found.st_size > _MOST_BYTES:
                raise InputError(f"{self.path / name}: too large: {found.st_size:,} bytes of at most {_MOST_BYTES:,}")
            with os.fdopen(handle, "rb", closefd=False) as f:
                return f.read(found.st_size)
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically; its bytes are on disk before it is renamed into place."""
        self.make(_parent(name))
        with self._at(name) as (last, above):
            part = _beside(last, f".{_last(name)[:150]}.{secrets.token_hex(8)}.part")
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666, dir_fd=above)
            try:
                with os.fdopen(handle, "wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(handle)
                os.replace(part, last, src_dir_fd=above, dst_dir_fd=above)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part, dir_fd=above)
                raise

    def open(self, name: str, flags: int) -> int:
        """Open a file; the caller closes the handle."""
        with self._at(name) as (last, above):
            return self._open(name, last, flags | _NONBLOCKING, above)

    def stat(self, name: str) -> os.stat_result:
        """Return the stat of a file or folder without following links."""
        with self._at(name) as (last, above):
            return os.stat(last, dir_fd=above, follow_symlinks=False)

    def touch(self, name: str) -> None:
        """Set the modification time of a file to now."""
        handle = self.open(name, os.O_WRONLY)
        try:
            os.utime(handle if os.utime in os.supports_fd else self.path / name)
        finally:
            os.close(handle)

    def folders(self, name: str = "") -> list[str]:
        """Return the names of the folders in a folder without links; empty if it does not exist."""
        return self._names(name, folders=True)

    def files(self, name: str = "") -> list[str]:
        """Return the names of the regular files in a folder without links; empty if it does not exist."""
        return self._names(name, folders=False)

    def sizes(self, names: Iterable[str]) -> Iterator[int]:
        """Return the sizes of files that will be opened by path, as DuckDB does.

        Raises InputError for a link in the path, and for other than regular files.
        """
        checked: set[str] = set()
        for name in names:
            end = name.find("/")
            while end >= 0:
                if (above := name[:end]) not in checked:
                    self.refuse_link(above)
                    checked.add(above)
                end = name.find("/", end + 1)
            found = os.lstat(self._path(name))
            if _is_link(found):
                raise self._link(name)
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{self.path / name}: not a regular file")
            yield found.st_size

    def refuse_link(self, name: str) -> None:
        """Raise InputError if a file or folder is a link."""
        if _is_link(os.lstat(self._path(name))):
            raise self._link(name)

    def make(self, name: str) -> None:
        """Create a folder and its parents if they do not exist."""
        with self._at(f"{name}/x" if name else "x", create=True):
            pass

    def take(self, source: Path, name: str) -> None:
        """Move a file that this process wrote into the folder."""
        self.make(_parent(name))
        with self._at(name) as (last, above):
            os.replace(source, last, dst_dir_fd=above)

    def rename(self, name: str, new: str) -> None:
        """Rename a file or folder."""
        with self._at(name) as (old_last, old_above), self._at(new) as (last, above):
            os.rename(old_last, last, src_dir_fd=old_above, dst_dir_fd=above)

    def unlink(self, name: str) -> None:
        """Remove a file or link if it exists."""
        with suppress(FileNotFoundError), self._at(name) as (last, above):
            os.unlink(last, dir_fd=above)

    def remove_if_empty(self, name: str) -> None:
        """Remove a folder if it is empty."""
        with suppress(OSError), self._at(name) as (last, above):
            os.rmdir(last, dir_fd=above)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with its contents as far as permissions allow, without following links."""
        with suppress(OSError), self._at(name) as (last, above):
            shutil.rmtree(last, ignore_errors=True, dir_fd=above)

    @contextmanager
    def _at(self, name: str, create: bool = False) -> Iterator[tuple[str, int | None]]:
        """Return the last part of a name and the handle of its folder; the path on systems without handles."""
        parts = _parts(name)
        if not _HANDLES:
            for end in range(1, len(parts)):
                above = "/".join(parts[:end])
                if create:
                    with suppress(FileExistsError):
                        (self.path / above).mkdir()
                self.refuse_link(above)
            yield str(self.path / name), None
            return
        handle = os.open(self.path, _FOLDER)
        try:
            for end, part in enumerate(parts[:-1], 1):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=handle)
                below = self._open("/".join(parts[:end]), part, _FOLDER, handle)
                os.close(handle)
                handle = below
            yield parts[-1], handle
        finally:
            os.close(handle)

    def _open(self, name: str, last: str, flags: int, above: int | None) -> int:
        if above is None:
            with suppress(FileNotFoundError):
                self.refuse_link(name)
        try:
            return os.open(last, flags | _NO_FOLLOW, 0o666, dir_fd=above)
        except OSError:
            with suppress(OSError):
                if _is_link(os.stat(last, dir_fd=above, follow_symlinks=False)):
                    raise self._link(name) from None
            raise

    def _names(self, name: str, folders: bool) -> list[str]:
        def chosen(entry: os.DirEntry[str]) -> bool:
            found = entry.stat(follow_symlinks=False)
            return not _is_link(found) and (stat.S_ISDIR if folders else stat.S_ISREG)(found.st_mode)

        def is_chosen(entry: os.DirEntry[str]) -> bool:
            try:
                return chosen(entry)
            except FileNotFoundError:
                return False  # just removed

        try:
            with self._at(f"{name}/." if name else ".") as (last, above):
                handle = None if above is None else os.open(".", os.O_RDONLY, dir_fd=above)
                try:
                    with os.scandir(last if handle is None else handle) as entries:
                        return sorted(entry.name for entry in entries if is_chosen(entry))
                finally:
                    if handle is not None:
                        os.close(handle)
        except FileNotFoundError:
            return []

    def _path(self, name: str) -> str:
        return f"{self.path}{os.sep}{name}"  # three times as fast as Path

    def _link(self, name: str) -> InputError:
        return InputError(f"{self.path / name}: is a link; links inside {self.path} are not followed")


def _is_link(found: os.stat_result) -> bool:
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_reparse_tag", 0) & _NAME_SURROGATE)


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", "..") or "\0" in part for part in parts) or (os.sep != "/" and set(name) & set("\\:")):
        raise OSError(errno.EINVAL, f"not the name of a file in the folder: {name!r}")
    return parts


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _beside(last: str, name: str) -> str:
    """Return the name of a file beside another one; a path on systems without handles."""
    return name if _HANDLES else str(Path(last).with_name(name))
