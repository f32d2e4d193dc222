"""Output files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from analyze.errors import InputError


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A new file beside `output` to write to; renamed to it at the end, gone if anything fails.

    A link is followed. What is no file (a pipe, /dev/stdout) is written as it stands. Raises InputError if it cannot
    be written.
    """
    part: Path | None = None
    try:
        if output.is_dir():
            raise InputError(f"{output}: cannot be written: it is a folder")
        if output.exists() and not output.is_file():
            yield output
            return
        target = Path(os.path.realpath(output))
        # A name that nobody knows, and never a file that is there: a link that was put there is not followed.
        path = target.with_name(f".{secrets.token_hex(8)}.part")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        part = path
        yield part
        part.replace(target)
    except OSError as e:
        raise InputError(f"{output}: cannot be written: {e.strerror or e}") from e
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_whole(output: Path, write: Callable[[Path], object]) -> None:
    """Let a function write `whole_file(output)`. Raises InputError if it cannot be written."""
    with whole_file(output) as part:
        write(part)
