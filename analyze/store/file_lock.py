"""Locks on files, shared or exclusive: the system gives them up when the process that holds them ends, however it does.

Not `filelock`: its locks are exclusive, and its lock for readers is a database that they must be allowed to write.
"""

from __future__ import annotations

import errno
import os

import portalocker
from portalocker import LockFlags

from analyze.store.folder import Folder


def locked(folder: Folder, name: str, *, shared: bool = False, wait: bool = True, create: bool = True) -> int | None:
    """A handle on a lock file that holds the lock until it is closed.

    None if it is taken (without `wait`), or not there to be opened. Raises OSError if a file that is to be created
    cannot be, or its file system has no locks, and InputError if it is a link.
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
            # Whoever removed the folder held this lock until then: the file that is there now is another.
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
    """Make a lock file for those who may not. Raises OSError, and InputError if it is a link."""
    os.close(_opened(folder, name, create=True))


def _opened(folder: Folder, name: str, create: bool) -> int:
    return folder.open(name, os.O_RDONLY | (os.O_CREAT if create else 0))
