"""Folders for what DuckDB cannot hold in memory: one for each connection, and none is left behind for long."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from shutil import rmtree

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
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    _held[folder] = handle
    return folder


def remove(folder: Path) -> None:
    """Remove a folder that `spill_folder` made."""
    rmtree(folder, ignore_errors=True)
    handle = _held.pop(folder, None)
    if handle is not None:
        os.close(handle)


def _remove_if_dead(folder: Path) -> None:
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < _NEW_S:
            return
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(handle)
