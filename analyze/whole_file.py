"""Output files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from analyze.errors import InputError


def write_whole(output: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and rename it: whole or not at all. Raises InputError if it cannot be written."""
    part = output.with_name(output.name + ".part")
    try:
        write(part)
        part.replace(output)
    except OSError as e:
        raise InputError(f"{output}: cannot be written: {e.strerror}") from e
