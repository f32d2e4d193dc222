"""The kinds of error (`schemas.errors`), and errors of reading files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemas.errors import InputError, InternalError, MachineError, ReportedError, os_failure

__all__ = [
    "InputError",
    "InternalError",
    "MachineError",
    "ReportedError",
    "StorageError",
    "os_failure",
    "reading",
    "unreadable",
]


class StorageError(InputError):
    """The storage behind a URL refused or failed. Nothing is known of the file, so it cannot be left out."""


def unreadable(path: object, error: OSError | ValueError) -> InputError:
    """Return the error for a path that cannot be read, with the reason of the system."""
    return InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Raise InputError that names the path if the system cannot read it."""
    try:
        yield
    except OSError as e:
        raise unreadable(path, e) from e
