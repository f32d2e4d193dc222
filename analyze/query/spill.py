"""Folders for what DuckDB cannot hold in memory: one for each connection, and none is left behind for long."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR

from analyze.store.file_lock import locked

_PREFIX = "tracequarry-spill-"
_LOCK = "owner.lock"
_NEW_S = 60
"""A folder younger than this may not have its lock yet."""

_held: dict[Path, int] = {}


def spill_folder() -> Path:
    """A new folder. Its maker removes it; those of processes that were killed are removed here.

    A process holds a lock in each of its folders for as long as it lives.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.glob(_PREFIX + "*"):
        _remove_if_dead(folder)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    handle = locked(folder / _LOCK)
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
        handle = locked(folder / _LOCK, wait=False, create=False)
    except OSError:
        return
    if handle is not None:
        os.close(handle)
        rmtree(folder, ignore_errors=True)


def _is_mine(stat: os.stat_result) -> bool:
    # Windows keeps a folder for temporary files for each user.
    return sys.platform == "win32" or stat.st_uid == os.getuid()
