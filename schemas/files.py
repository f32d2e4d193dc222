"""Files that are there whole or not at all, whether they are there, and what the system says of them.

They are written beside their place under a name that nobody can foresee, in a file that is made new: a link planted
there is not followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_NAME_BYTES = 200  # file systems take 255, and the part has a longer name than its file


def is_file(path: Path) -> bool:
    """Whether a file is there. Raises OSError where that cannot be seen, as in a folder that one may not enter.

    Path.is_file() raises too, or RuntimeError, or says that nothing is there: it depends on the version of Python.
    """
    return stat.S_ISREG(_mode(path))


def is_dir(path: Path) -> bool:
    """Whether a folder is there. Raises OSError as `is_file`."""
    return stat.S_ISDIR(_mode(path))


def read_bounded(path: Path, most: int = 64 << 20) -> bytes:
    """The bytes of a file. Raises OSError, too, for a pipe or a device, which may never end, and for a longer file."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as f:
        data = f.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"longer than {most >> 20} MiB", str(path))
    return data


def os_error_sentence(error: OSError) -> str:
    """What to say of an error that the system gave: of which file, and why."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # All others of this kind name a file: it is the one of getcwd().
    if isinstance(error, FileNotFoundError):
        return "the folder that it was started in is not there any more"
    return error.strerror or str(error)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@contextmanager
def part_file(output: Path, mode: int = 0o666) -> Iterator[Path]:
    """A new, empty file beside a place, which takes the place if all goes well, and else is removed. Raises OSError.

    Its name is one that nobody knows beforehand: a link that was put there is not followed. `mode` is that of open().
    """
    name = os.fsdecode(os.fsencode(output.name)[:_MOST_NAME_BYTES])
    part = output.with_name(f".{name}.{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))  # O_EXCL follows no link, either
    try:
        yield part
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_synced(output: Path, data: bytes, mode: int = 0o666) -> None:
    """Write bytes that are on the disk before they are in place. Raises OSError."""
    with part_file(output, mode) as part, part.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
