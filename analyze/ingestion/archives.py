"""Unpack archives of traces and run folders that the user names, into temporary folders."""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from analyze.errors import InputError, os_failure
from analyze.sources.remote import RawPath, RemotePath, fetched
from analyze.store.file_digest import file_state, printable_text

_NAME = re.compile(r"(?P<stem>.*?)\.(?P<kind>zip|tar|tar\.gz|tgz|tar\.zst|tzst|zst)", re.IGNORECASE | re.DOTALL)
_DRIVE = re.compile("[A-Za-z]:.*", re.DOTALL)
_MOST_ENTRIES = 20_000
_MOST_DEPTH = 100
_ALWAYS_BYTES = 256 << 20
_MOST_RATIO = 100
"""An archive may become `_ALWAYS_BYTES`, or so many times its size: text of a trace shrinks to a 60th at most."""
_PIECE = 1 << 20
_NAMED = 3

_DAMAGES = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    RuntimeError,  # zipfile, for a password or an unknown method
)

Unpack = Callable[[IO[bytes], "_Target"], None]


def is_archive(path: RawPath) -> bool:
    """Return whether a file is an archive that can be unpacked, by its name."""
    return _NAME.fullmatch(path.name) is not None


def first_named(names: Sequence[str]) -> str:
    """Return the first names of a list, for a warning."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


class Unpacked:
    """Temporary folders of unpacked archives; they are removed with this object."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._archives: dict[str, str] = {}
        """Each archive by the folder that stands for it."""
        self._temporary: list[str] = []
        weakref.finalize(self, _remove, self._temporary)

    def __bool__(self) -> bool:
        return bool(self._archives)

    def folder(self, archive: RawPath) -> Path:
        """Return the folder with the contents of an archive. Raises InputError if it is damaged, or too large."""
        if not isinstance(archive, RemotePath):
            return self._unpack(archive, archive, file_state(archive).mtime_ns)
        with fetched(archive) as copy:
            return self._unpack(archive, copy, archive.facts().mtime_ns or copy.stat().st_mtime_ns)

    def named(self, text: str) -> str:
        """Return a text with the names of archives instead of their temporary folders."""
        for folder, archive in self._archives.items():
            text = text.replace(folder, archive)
        return text

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name archives in the errors of the block."""
        try:
            yield
        except InputError as e:
            raise type(e)(self.named(str(e))) from e

    def _unpack(self, archive: RawPath, copy: Path, mtime_ns: int) -> Path:
        if not (match := _NAME.fullmatch(archive.name)):
            raise InputError(f"{archive}: not an archive")
        temporary = tempfile.mkdtemp(prefix="tracequarry-")
        self._temporary.append(temporary)
        # A run of several files has the name of their folder.
        folder = Path(temporary).resolve() / (match["stem"].strip(" .") or "archive")
        self._archives[str(folder)] = str(archive)
        try:
            folder.mkdir()
            target = _Target(archive, folder, _most_bytes(copy, folder), mtime_ns)
            with copy.open("rb") as packed:
                _UNPACK[match["kind"].lower()](packed, target)
        except _DAMAGES as e:
            raise InputError(f"{archive}: cannot be unpacked: {e}") from e
        except OSError as e:
            raise os_failure(e, f"{archive}: cannot be unpacked: {e.strerror or e}") from e
        if target.links:
            left_out = f"{len(target.links)} links and special files are left out"
            self.warnings.append(f"{archive}: {left_out}: {first_named(target.links)}")
        return folder


class _Target:
    """The folder that an archive is unpacked into, and what it may still take."""

    def __init__(self, archive: RawPath, folder: Path, most_bytes: int, mtime_ns: int):
        self.links: list[str] = []
        self._archive = archive
        self.folder = folder
        self._mtime_ns = mtime_ns
        self.most_bytes = self._left = most_bytes
        self._entries = 0
        self._folders: set[tuple[str, ...]] = set()

    def count(self, entries: int = 1) -> None:
        """Count files, folders and links. Raises InputError beyond the limit."""
        self._entries += entries
        if self._entries > _MOST_ENTRIES:
            most = f"it has more than {_MOST_ENTRIES:,} files and folders"
            raise InputError(f"{self._archive}: refused: {most}; unpack it yourself and give the folder")

    def write(self, name: str, content: IO[bytes]) -> None:
        """Write a file. Raises InputError for a name outside the folder, and beyond the limits."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or ".." in parts or parts[0].startswith("/") or _DRIVE.fullmatch(parts[0]):
            raise InputError(f"{self._archive}: refused: {name!r} is a path outside the archive")
        if len(parts) > _MOST_DEPTH:
            raise InputError(f"{self._archive}: refused: it has more than {_MOST_DEPTH} folders in each other")
        folders = {parts[:depth] for depth in range(1, len(parts))} - self._folders
        self._folders |= folders
        self.count(len(folders))
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while piece := content.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise self.too_large()
                file.write(piece)
        # The files of an unchanged archive are unchanged.
        os.utime(path, ns=(self._mtime_ns, self._mtime_ns))

    def too_large(self) -> InputError:
        """Return the error for an archive beyond the limit of bytes."""
        most = f"more than {self.most_bytes / 1e6:,.0f} MB unpacked"
        return InputError(f"{self._archive}: refused: {most}; unpack it yourself and give the folder")


def _most_bytes(copy: Path, folder: Path) -> int:
    most = max(_ALWAYS_BYTES, _MOST_RATIO * copy.stat().st_size)
    return min(most, shutil.disk_usage(folder).free // 2)


def _zip(packed: IO[bytes], target: _Target) -> None:
    with zipfile.ZipFile(packed) as archive:
        for member in archive.infolist():
            target.count()
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                target.links.append(printable_text(member.filename))
            elif not member.is_dir():
                with archive.open(member) as content:
                    target.write(member.filename, content)


def _tar(packed: IO[bytes] | _Bounded, target: _Target) -> None:
    with tarfile.open(fileobj=cast(IO[bytes], packed), mode="r|") as archive:
        for member in archive:
            target.count()
            if member.isreg() and (content := archive.extractfile(member)):
                target.write(member.name, content)
            elif not member.isdir():
                target.links.append(printable_text(member.name))


def _compressed_tar(packed: IO[bytes], target: _Target, compression: str) -> None:
    with _decompressed(packed, compression) as plain:
        _tar(_Bounded(plain, target), target)


def _zst(packed: IO[bytes], target: _Target) -> None:
    with _decompressed(packed, "zstd") as plain:
        target.write(target.folder.name, plain)


def _decompressed(packed: IO[bytes], compression: str) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(packed, "r"), compression)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error beyond a limit: headers and gaps of a tar file may be as long as its files."""

    def __init__(self, stream: Any, target: _Target):
        self._stream = stream
        self._target = target
        self._left = 2 * target.most_bytes

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._target.too_large()
        return data


_TAR_GZ = partial(_compressed_tar, compression="gzip")
_TAR_ZST = partial(_compressed_tar, compression="zstd")
_UNPACK: dict[str, Unpack] = {
    "zip": _zip, "tar": _tar, "tar.gz": _TAR_GZ, "tgz": _TAR_GZ, "tar.zst": _TAR_ZST, "tzst": _TAR_ZST, "zst": _zst,
}  # fmt: skip


def _remove(folders: Iterable[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
