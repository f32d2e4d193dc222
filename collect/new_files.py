"""Files that appear under their name only when they are whole, and through no link that somebody else has laid.

A twin of schemas.files on purpose: it uses the standard library alone, and no other module of this project, because it
also runs inside programs of the user's own; see collect.attach.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNFINISHED = ("*.part", ".part-*")
"""Patterns of what a killed process leaves behind."""


@contextlib.contextmanager
def new_file(final: Path, mode: str = "b", **options: Any) -> Iterator[Any]:
    """A file open for writing that is renamed to `final` at the end, and removed after a failure.

    `mode` is `b` or `t`; `options` go to open(). A link of the unfinished file's name is removed, not followed.
    """
    part = final.with_name(final.name + ".part")
    part.unlink(missing_ok=True)
    try:
        # `x` is O_EXCL: what stands there in spite of that, a link too, is an error.
        with part.open("x" + mode, **options) as f:
            yield f
        part.replace(final)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def private_folder(folder: Path) -> Iterator[Path]:
    """A folder in `folder` that nobody else can write to, for tools that open files by name; gone at the end."""
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as path:
        yield Path(path)
