"""Atomic writes of the output files that the user names."""

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
"""Real paths of the files, and of the folders of stores, that this process reads."""


def protect(path: Path) -> None:
    """Forbid this process to overwrite a file that it reads, or to write into a store."""
    _read.add(os.path.realpath(path))


def ending_of(output: Path, endings: Sequence[str], says: str, of_pipe: str | None = None) -> str:
    """Return the ending of an output's name. Raises InputError with `says` if it is none of `endings`.

    `of_pipe`: the ending for pipes and devices, whose names have none.
    """
    if found := next((e for e in endings if output.name.lower().endswith(e)), None):
        return found
    with suppress(OSError):
        mode = output.stat().st_mode
        if of_pipe is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return of_pipe
    raise InputError(f"{output}: {says}")


def write_atomically(output: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically through a function. Raises as `atomic_output`."""
    with atomic_output(output) as part:
        write(part)


@contextmanager
def atomic_output(output: Path) -> Iterator[Path]:
    """Yield a path to write to; the file replaces `output` on success, and nothing changes on failure.

    Links are followed. A pipe or device is written directly. Raises MachineError or
    InputError if it cannot be written.
    """
    if url := url_of(output):
        raise InputError(f"{url}: cannot be written: -o takes a local file; copy it to the URL afterwards")
    if not output.name:
        raise InputError(f"{str(output)!r}: not the name of a file")
    real = Path(os.path.realpath(output))
    if inside := next((p for p in (real, *real.parents) if str(p) in _read), None):
        what = "the command reads it" if inside == real else "it is in a store that the command reads"
        raise InputError(f"{output}: cannot be written: {what}")
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
