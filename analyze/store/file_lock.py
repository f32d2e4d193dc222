"""Shared and exclusive locks on files; the system releases them when the process ends for any reason.

Not `filelock`: its locks are exclusive, and its read-write lock is a database that readers must be able to write.
"""

from __future__ import annotations

import errno
import os

import portalocker
from portalocker import LockFlags

from analyze.store.safe_folder import Folder


def locked(folder: Folder, name: str, *, shared: bool = False, wait: bool = True, create: bool = True) -> int | None:
    """Lock a file; return a handle that holds the lock until it is closed.

    Returns None if the lock is taken (without `wait`) or the file cannot be opened. Raises OSError if the file cannot
    be created or the file system has no locks, and InputError for a link.
    """
    flags = LockFlags.SHARED if shared else LockFlags.EXCLUSIVE
    if not wait:
        flags |= LockFlags.NON_BLOCKING
    while True:
        try:
            handle = _opened(folder, name, create)
        except OSError:
            if create and (folder.path / name).parent.is_dir():
                raise
            return None
        try:
            portalocker.lock(handle, flags)
            # The folder was removed by a process that held this lock, so the file there now is another one.
            here = folder.stat(name)
            mine = os.fstat(handle)
            if (here.st_dev, here.st_ino) == (mine.st_dev, mine.st_ino):
                return handle
        except FileNotFoundError:
            pass
        except portalocker.AlreadyLocked:
            if not wait:
                os.close(handle)
                return None
            # Windows gives up after 10 s.
        except portalocker.LockException as e:
            os.close(handle)
            raise OSError(errno.ENOLCK, f"cannot be locked: {e.strerror}") from e
        os.close(handle)


def make_lock_file(folder: Folder, name: str) -> None:
    """Create a lock file for users who cannot. Raises OSError, and InputError for a link."""
    os.close(_opened(folder, name, create=True))


def _opened(folder: Folder, name: str, create: bool) -> int:
    return folder.open(name, os.O_RDONLY | (os.O_CREAT if create else 0))
