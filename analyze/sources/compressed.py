"""Raw files compressed with gzip: every format is also read as NAME.gz."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from analyze.errors import InputError, reading
from analyze.sources.gunzip import MAGIC, Gunzip
from analyze.sources.remote import RawPath

_PIECE = 1 << 20


def is_gzip(path: RawPath) -> bool:
    """Return whether a file is named NAME.gz."""
    return path.suffix.lower() == ".gz"


def plain_name(path: RawPath) -> str:
    """Return the name of a file without .gz."""
    return path.name[:-3] if is_gzip(path) else path.name


def head(path: RawPath, size: int) -> bytes:
    """Return the first bytes of a file, uncompressed. Raises InputError."""
    with reading(path), path.open("rb") as f:
        if is_gzip(path) and f.read(len(MAGIC)) == MAGIC:
            f.seek(0)
            return Gunzip(f).read(size)
        f.seek(0)
        return f.read(size)


@contextmanager
def decompressed(path: Path, problems: list[str]) -> Iterator[Path]:
    """Yield the file itself, or an uncompressed copy in a temporary folder.

    Damage of the gzip stream is added to `problems`. Raises InputError that names the original file if it cannot be
    read or there is no space for the copy.
    """
    if not is_gzip(path):
        yield path
        return

    def decompress(plain: Path) -> None:
        with path.open("rb") as compressed, plain.open("wb") as out:
            stream = Gunzip(compressed)
            while piece := stream.read(_PIECE):
                out.write(piece)
        problems.extend(f"{path.name}: {p}" for p in stream.problems)

    with stand_in(path, decompress, "cannot be decompressed") as plain:
        yield plain


@contextmanager
def stand_in(path: Path, write: Callable[[Path], None], cannot: str) -> Iterator[Path]:
    """Yield a file with the plain name, filled by `write`, in a temporary folder.

    Raises InputError that names the original file; with `cannot` if the system refuses.
    """
    with tempfile.TemporaryDirectory(prefix="tracequarry-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder, plain_name(path))
        try:
            write(copy)
        except OSError as e:
            raise InputError(f"{path}: {cannot}: {e.strerror}") from e
        try:
            yield copy
        except InputError as e:
            raise InputError(str(e).replace(str(copy), str(path))) from e
