"""Output files that the user names: there whole or not at all, or a sentence why not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from analyze.errors import InputError, os_failure
from schemas.files import part_file
from schemas.urls import url_of

_read: set[str] = set()
"""Real paths of the files, and of the folders of stores, that this process was asked to read."""


def protect(path: Path) -> None:
    """Let this process write nothing over a file that it reads, nor into a store."""
    _read.add(os.path.realpath(path))


def ending_of(output: Path, endings: Sequence[str], says: str, of_pipe: str | None = None) -> str:
    """Which of some endings the name of an output has. Raises InputError for another: `says` which there are.

    `of_pipe`: that of what is no file, whose name cannot say it.
    """
    if found := next((e for e in endings if output.name.lower().endswith(e)), None):
        return found
    with suppress(OSError):
        mode = output.stat().st_mode
        if of_pipe is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return of_pipe
    raise InputError(f"{output}: {says}")


def write_whole(output: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file that is then put into its place; InputError as in `whole_file`."""
    with whole_file(output) as part:
        write(part)


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """Where to write a file: it is in its place at the end, whole, or not at all.

    A link is followed. What is no file (a pipe, /dev/stdout) is written as it stands. Raises MachineError or
    InputError if it cannot be written.
    """
    if url := url_of(output):
        raise InputError(f"{url}: cannot be written: an output is a file here; copy it there")
    if not output.name:
        raise InputError(f"{str(output)!r}: not the name of a file")
    real = Path(os.path.realpath(output))
    if inside := next((p for p in (real, *real.parents) if str(p) in _read), None):
        raise InputError(
            f"{output}: cannot be written: it is {'read' if inside == real else 'in a store that is read'}"
        )
    try:
        if output.is_dir():
            raise InputError(f"{output}: cannot be written: it is a folder")
        if output.exists() and not output.is_file():
            yield output
        else:
            with part_file(real) as part:
                yield part
    except OSError as e:
        raise os_failure(e, f"{output}: cannot be written: {e.strerror or e}") from e
