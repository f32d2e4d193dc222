"""Text in UTF-16 (PowerShell's `>` writes it) or with a byte order mark, read as UTF-8."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyze.sources.compressed import decompressed, head, stand_in
from analyze.sources.remote import RawPath

_PIECE = 1 << 20
# Every text format begins with ASCII characters, so that its UTF-16 has a zero in every other byte.
_UTF16 = (
    ("utf-16-le", re.compile(rb"\xff\xfe(?!\0\0)|[^\0]\0[^\0]\0", re.DOTALL)),
    ("utf-16-be", re.compile(rb"\xfe\xff|\0[^\0]\0[^\0]", re.DOTALL)),
)


def _utf16(begin: bytes) -> str | None:
    return next((name for name, pattern in _UTF16 if pattern.match(begin)), None)


def utf8_head(path: RawPath, size: int) -> bytes:
    """Return the first bytes of a file, uncompressed, as UTF-8 without byte order mark. Raises InputError."""
    begin = head(path, size)
    if encoding := _utf16(begin):
        begin = begin.decode(encoding, "ignore").encode("utf-8", "ignore")
    return begin.replace(codecs.BOM_UTF8, b"")


def is_utf16(path: RawPath) -> bool:
    """Return whether a file, uncompressed, is text in UTF-16. Raises InputError."""
    return _utf16(head(path, 4)) is not None


@contextmanager
def as_utf8(path: Path, problems: list[str]) -> Iterator[Path]:
    """Yield the file itself, or a temporary uncompressed copy in UTF-8 of a file in UTF-16.

    Damage is added to `problems`. Raises InputError that names the original file.
    """
    if not (encoding := _utf16(head(path, 4))):
        yield path
        return

    def decode(copy: Path) -> None:
        with (
            plain.open(encoding=encoding, errors="replace", newline="") as text,
            copy.open("w", encoding="utf-8", errors="replace", newline="") as out,
        ):
            while piece := text.read(_PIECE):
                out.write(piece)

    with decompressed(path, problems) as plain, stand_in(path, decode, "cannot be read as UTF-16") as copy:
        yield copy
