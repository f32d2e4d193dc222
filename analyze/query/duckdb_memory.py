"""DuckDB's memory limit ($TRACEQUARRY_MEMORY) and its folder for temporary files: one for each connection."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from typing import TYPE_CHECKING

from analyze.errors import InputError
from analyze.store.file_lock import locked
from analyze.store.safe_folder import Folder

if TYPE_CHECKING:
    import duckdb

MEMORY_VARIABLE = "TRACEQUARRY_MEMORY"

_SIZE = re.compile(r"([1-9]\d{0,5})([MG])B")
_MEGABYTES = {"M": 1, "G": 1000}
_SHARE = 0.7
"""DuckDB's share of the memory: it does not count all that it allocates, and Python needs some, too."""
_PREFIX = "tracequarry-spill-"
_LOCK = "owner.lock"
_NEW_S = 60
"""A folder younger than this may not have its lock yet."""

_held: dict[Path, int] = {}


def memory_bytes() -> int | None:
    """Bytes of $TRACEQUARRY_MEMORY, the memory that a query may take; None without it. Raises InputError."""
    text = os.environ.get(MEMORY_VARIABLE)
    if not text:
        return None
    size = _SIZE.fullmatch(text)
    if size is None:
        raise InputError(f"${MEMORY_VARIABLE}: {text!r} is not a size such as 8GB or 500MB")
    return int(size[1]) * _MEGABYTES[size[2]] * 1_000_000


def memory_limit() -> dict[str, str]:
    """DuckDB's setting for $TRACEQUARRY_MEMORY; none without it: DuckDB then takes four fifths of what the machine, or
    its control group, has. Raises InputError."""
    limit = memory_bytes()
    return {} if limit is None else {"memory_limit": f"{int(limit * _SHARE) // 1_000_000}MB"}


def settings(folder: Path) -> dict[str, str]:
    """DuckDB's settings for its memory and for what it spills to a folder: half of the free disk at most."""
    found = memory_limit() | {"temp_directory": str(folder)}
    with suppress(OSError, AttributeError):  # not every system says how much is free
        found["max_temp_directory_size"] = f"{shutil.disk_usage(folder).free // 2 // 1_000_000}MB"
    return found


def process_bytes(connection: duckdb.DuckDBPyConnection) -> float:
    """Bytes that a process with SQL of unknown origin may allocate: $TRACEQUARRY_MEMORY, else the memory of the machine
    or its control group. DuckDB's default limit is 80 % of that memory. Raises InputError."""
    return memory_bytes() or duckdb_limit(connection) / 0.8


def duckdb_limit(connection: duckdb.DuckDBPyConnection) -> float:
    """Bytes that a DuckDB may hold in memory."""
    [(text,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = text.split()
    return float(number) * 1024.0 ** " KMGT".index(unit[0].strip("b") or " ")


def spill_folder() -> Path:
    """Create a folder, which the caller removes. Remove the folders of processes that were killed.

    A process holds a lock in each of its folders for as long as it lives.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.glob(_PREFIX + "*"):
        if folder not in _held:
            _remove_if_dead(folder)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    handle = locked(Folder(folder), _LOCK)
    assert handle is not None, "nobody else knows of the folder"
    _held[folder] = handle
    return folder


def remove(folder: Path) -> None:
    """Remove a folder that `spill_folder` made."""
    handle = _held.pop(folder, None)
    if handle is not None:
        os.close(handle)
    rmtree(folder, ignore_errors=True)


def _remove_if_dead(folder: Path) -> None:
    try:
        stat = folder.lstat()
        if not S_ISDIR(stat.st_mode) or not _is_mine(stat) or time.time() - stat.st_mtime < _NEW_S:
            return
        handle = locked(Folder(folder), _LOCK, wait=False, create=False)
    except OSError:
        return
    if handle is not None:
        os.close(handle)
        rmtree(folder, ignore_errors=True)


def _is_mine(stat: os.stat_result) -> bool:
    # Windows keeps a folder for temporary files for each user.
    return sys.platform == "win32" or stat.st_uid == os.getuid()
