"""Atomic writes, checks for existence, and messages for errors of the file system.

A file is written next to its target, under a random name and with O_EXCL, so that no link placed by others is followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MAX_NAME_BYTES = 200  # file systems allow 255, and the temporary file has a longer name


def is_file(path: Path) -> bool:
    """Return whether a file exists. Raises OSError if that is unknown, as in a folder without permission.

    Path.is_file() raises OSError or RuntimeError, or returns False, depending on the version of Python.
    """
    return stat.S_ISREG(_mode(path))


def is_dir(path: Path) -> bool:
    """Return whether a folder exists. Raises OSError as `is_file`."""
    return stat.S_ISDIR(_mode(path))


def read_bounded(path: Path, most: int = 64 << 20) -> bytes:
    """Read a file of at most `most` bytes. Raises OSError, also for pipes and devices, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as f:
        data = f.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"longer than {most >> 20} MiB", str(path))
    return data


def os_error_sentence(error: OSError) -> str:
    """Describe an OSError: the file and the reason."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # Only getcwd() raises it without a file name.
    if isinstance(error, FileNotFoundError):
        return "the current directory was deleted"
    return error.strerror or str(error)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@contextmanager
def part_file(output: Path, mode: int = 0o666) -> Iterator[Path]:
    """Create an empty temporary file that replaces `output` on success and is removed on failure. Raises OSError.

    It is in the same folder and has a random name. `mode` holds its permissions, as for open().
    """
    name = os.fsdecode(os.fsencode(output.name)[:_MAX_NAME_BYTES])
    part = output.with_name(f".{name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))  # O_EXCL follows no link
    try:
        yield part
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_synced(output: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically, and to the disk (fsync) before it replaces `output`. Raises OSError."""
    with part_file(output, mode) as part, part.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
