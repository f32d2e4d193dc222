"""Raw files at URLs: paths for discovery, and temporary copies for reading.

A `RemotePath` has the methods of `Path` that discovery needs. Names, sizes and times come from one listing; the
beginning and end of a file are fetched alone. Readers use a temporary copy (`fetched`), one per process at a time. A
file that had to be fetched whole to detect its format is cached until it is read, up to a limit.
"""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

from analyze.errors import InputError, StorageError
from analyze.sources.storage import FileFacts, Tree, storage_errors
from schemas.urls import local_path, url_of

_BLOCK = 256 << 10
"""Bytes per request for parts of a file; a file up to this size is fetched whole."""
_MOST_KEPT = 2 << 30
"""Limit of bytes of cached copies; a single larger file is cached, too."""
_LONGEST_NAME = 255


class RemotePath:
    """A file or folder at a URL. Paths derived from one another share one listing.

    Methods are those of `Path`. They raise InputError for a missing file and StorageError for errors of the storage. A
    pickled path includes the facts of its file.
    """

    def __init__(self, url: str, tree: Tree, copies: Copies):
        self._url = url
        self._tree = tree
        self.copies = copies

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __reduce__(self) -> Any:
        return _unpickled, (self._url, self._tree.known(self._url), self.copies.find(self))

    def _at(self, url: str) -> RemotePath:
        return RemotePath(url, self._tree, self.copies)

    def __truediv__(self, name: str) -> RemotePath:
        return self._at(f"{self._url}/{PurePosixPath(name)}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """As of a path."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that contains it."""
        return self._at(self._url.rpartition("/")[0])

    def with_name(self, name: str) -> RemotePath:
        """Another file of the folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> RemotePath:
        """As of a path."""
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

    def absolute(self) -> RemotePath:
        """Itself."""
        return self

    def resolve(self) -> RemotePath:
        """Itself: storage has no links."""
        return self

    def is_symlink(self) -> bool:
        """No."""
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return self._tree.file(self._url) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there are files below it."""
        return not self.is_file() and bool(self._tree.folder(self._url))

    def exists(self) -> bool:
        """Return whether it exists."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the contents of a folder."""
        return map(self.__truediv__, self._tree.folder(self._url))

    def files(self) -> list[RemotePath]:
        """Return the file itself, or all files below a folder, sorted."""
        return [self] if self.is_file() else list(map(self._at, self._tree.below(self._url)))

    def facts(self) -> FileFacts:
        """Return the facts of the file, from the storage or from earlier."""
        if (found := self._tree.file(self._url)) is None:
            raise InputError(f"{self}: cannot be read: no such file")
        return found

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Open the file for random access; each read fetches its bytes, a small file is fetched whole."""
        if copy := self.copies.find(self):
            return copy.open("rb")
        size = self.facts().bytes
        if size > _BLOCK:
            return io.BufferedReader(_Ranges(self, size), _BLOCK)
        with fetched(self) as copy:
            return io.BytesIO(copy.read_bytes())

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes of a range."""
        if start >= end:
            return b""
        with self._errors():
            data: bytes = self._tree.system.cat_file(self._tree.name(self._url), start=start, end=end)
        self._check(len(data), end - start)
        return data

    def fetch(self, folder: Path, on_copied: Callable[[int], object] | None = None) -> Path:
        """Copy the file into a folder; `on_copied` receives the number of bytes copied."""
        from fsspec.callbacks import Callback

        if Path(self.name).name != self.name or len(self.name.encode()) > _LONGEST_NAME:
            raise InputError(f"{self}: cannot be read: no file of this machine can have its name")
        copy, size = folder / self.name, self.facts().bytes
        hooks = {"progress": lambda size, value, **_: on_copied(value)} if on_copied else {}
        with self._errors():
            self._tree.system.get_file(self._tree.name(self._url), str(copy), callback=Callback(hooks=hooks))
        self._check(copy.stat().st_size, size)
        return copy

    def _check(self, came: int, size: int) -> None:
        if came != size:
            raise InputError(f"{self}: changed while it was read: {came} of {size} bytes arrived")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with storage_errors(self._url):
            try:
                yield
            except FileNotFoundError as e:
                raise InputError(f"{self}: cannot be read: no such file") from e


RawPath = Path | RemotePath
"""Path of a raw file or of a folder of them."""


def raw_paths(paths: Iterable[str | os.PathLike[str] | RemotePath]) -> list[RawPath]:
    """Return each path as a `Path` and each URL as a `RemotePath`."""
    copies = Copies()

    def one(path: str | os.PathLike[str] | RemotePath) -> RawPath:
        if isinstance(path, RemotePath):
            return path
        url = url_of(path)
        if url is None:
            return Path(path)
        here = local_path(url)
        return RemotePath(url, Tree(url), copies) if here is None else Path(here)

    return list(map(one, paths))


def raw_path(path: str) -> RawPath:
    """Parse a path or URL."""
    return raw_paths([path])[0]


def common_folder(folders: Sequence[RawPath]) -> RawPath:
    """Return the common parent of folders; the first folder if there is none."""
    local = [str(f.absolute()) for f in folders if isinstance(f, Path)]
    urls = [str(f).split("://", 1) for f in folders if isinstance(f, RemotePath)]
    with suppress(ValueError):  # of other drives
        if not urls:
            return Path(os.path.commonpath(local))
        common = posixpath.commonpath([rest for _, rest in urls])
        if not local and common and len({scheme for scheme, _ in urls}) == 1:
            return raw_path(f"{urls[0][0]}://{common}")
    return folders[0].absolute()


@contextmanager
def fetched(
    path: RemotePath,
    beside: Iterable[RemotePath] = (),
    folder: Path | None = None,
    on_copied: Callable[[int], object] | None = None,
) -> Iterator[Path]:
    """Yield a temporary copy of a file and its companions; `on_copied` as in `RemotePath.fetch`.

    With `folder` the copy is created there unless there is a cached one. Without, it may be cached for the next reader.
    Raises InputError that names the URL, and StorageError, also if the local disk is full.
    """
    keep = folder is None
    copy = path.copies.find(path)
    with storage_errors(str(path)):
        place = copy.parent if copy else Path(tempfile.mkdtemp(prefix="tracequarry-", dir=folder))
    stays = keep and copy is not None
    try:
        copy = copy or path.fetch(place, on_copied)
        for other in beside:
            if not (place / other.name).exists():
                other.fetch(place)
        yield copy
        stays = keep and path.copies.keep(path, copy)
    except StorageError:
        raise
    except InputError as e:
        raise InputError(str(e).replace(str(place), str(path.parent))) from e
    finally:
        if not stays:
            shutil.rmtree(place, ignore_errors=True)


class Copies:
    """Cached copies of files; those of this process are removed with this object."""

    def __init__(self) -> None:
        self._found: dict[str, Path] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._folders: list[Path] = []
        weakref.finalize(self, _remove, self._folders)

    def find(self, path: RemotePath) -> Path | None:
        """Return the copy of a file if there is one."""
        copy = self._found.get(str(path))
        return copy if copy and copy.exists() else None

    def name(self, path: RemotePath, copy: Path) -> None:
        """Add a copy of another process."""
        self._found[str(path)] = copy

    def keep(self, path: RemotePath, copy: Path) -> bool:
        """Cache a copy and its folder if there is no other and there is space; return whether it is cached."""
        size = copy.stat().st_size
        with self._lock:
            if other := self.find(path):
                return other == copy
            if self._bytes and self._bytes + size > _MOST_KEPT:
                return False
            self._bytes += size
            self._folders.append(copy.parent)
            self._found[str(path)] = copy
            return True

    def drop_others(self, files: Iterable[RawPath]) -> None:
        """Remove all but the copies of these files."""
        named = set(map(str, files))
        _remove(copy.parent for url, copy in self._found.items() if url not in named)


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _unpickled(url: str, facts: FileFacts | None, copy: Path | None) -> RemotePath:
    path = RemotePath(url, Tree(url, {url: facts} if facts else {}), Copies())
    if copy:
        path.copies.name(path, copy)
    return path


class _Ranges(io.RawIOBase):
    """A file at a URL; each read fetches its bytes."""

    def __init__(self, path: RemotePath, size: int):
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._path.read_range(self._at, min(self._at + len(buffer), self._size))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = self._path.read_range(self._at, self._size)
        self._at += len(data)
        return data
