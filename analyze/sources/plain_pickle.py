"""Read pickles of plain values: dicts, lists, tuples, text and numbers. Pickles can run code; these cannot."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from analyze.errors import InputError

_LONGEST_REASON = 200
"""Characters of an error of the unpickler, which may repeat what is in the file."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}: such a pickle could run code")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of the file")


def read_plain_pickle(path: Path, what: str) -> dict[str, Any]:
    """Return the dict that a pickle holds. Raises InputError, which calls the file no `what`, for anything else."""
    try:
        with path.open("rb") as f:
            found = _PlainUnpickler(f).load()
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except MemoryError as e:
        raise InputError(f"{path}: a {what} of {path.stat().st_size:,} bytes does not fit into memory") from e
    # Damaged pickles raise nearly anything.
    except Exception as e:
        said = "".join(c if c.isprintable() else "?" for c in str(e)[:_LONGEST_REASON]).rstrip(".")
        raise InputError(f"{path}: not a {what}: {said or type(e).__name__}") from e
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a {what}: it holds no dict")
    return found
