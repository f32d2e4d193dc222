"""Output files that are there whole or not at all.

They are written beside their place under a name that nobody can foresee, in a file that is made new: a link planted
there is not followed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from analyze.errors import InputError

_MOST_NAME_BYTES = 200  # file systems take 255, and the part has a longer name than its file


def write_whole(output: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file that is then put into its place; InputError as in `whole_file`."""
    with whole_file(output) as part:
        write(part)


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """Where to write a file: it is in its place at the end, whole, or not at all.

    A link is followed. What is no file (a pipe, /dev/stdout) is written as it stands. Raises InputError if it cannot
    be written.
    """
    if not output.name:
        raise InputError(f"{str(output)!r}: not the name of a file")
    try:
        if output.is_dir():
            raise InputError(f"{output}: cannot be written: it is a folder")
        if output.exists() and not output.is_file():
            yield output
        else:
            with _part(Path(os.path.realpath(output))) as part:
                yield part
    except OSError as e:
        raise InputError(f"{output}: cannot be written: {e.strerror or e}") from e


def write_synced(output: Path, data: bytes) -> None:
    """Write bytes as `whole_file` does, on the disk before they are in place. Raises OSError."""
    with _part(output) as part, part.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


@contextmanager
def _part(output: Path) -> Iterator[Path]:
    """A new, empty file beside a place, which takes the place if all goes well, and else is removed.

    Its name is one that nobody knows beforehand: a link that was put there is not followed.
    """
    name = os.fsdecode(os.fsencode(output.name)[:_MOST_NAME_BYTES])
    part = output.with_name(f".{name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield part
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
