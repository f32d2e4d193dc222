"""Check values that a file may give in any type: numbers and texts, else None."""

from __future__ import annotations

from pathlib import Path

from analyze.sources.interface import FileReport
from schemas.option_declaration import LARGEST_INT64


def whole(value: object, largest: int = LARGEST_INT64) -> int | None:
    """Return a number of the file; None for another value, and for one out of range."""
    return value if type(value) is int and 0 <= value <= largest else None


def text(value: object) -> str | None:
    """Return a text of the file; None for another value."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def nanoseconds(value: object, factor: int) -> int | None:
    """Return a time of the file, in units of `factor` ns, in ns; None for another value, and for one out of range."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LARGEST_INT64 // factor:
        return None
    return round(value * factor) if isinstance(value, float) else value * factor


def warn_of_losses(path: Path, report: FileReport, lost: int, what: str) -> None:
    """Report how many things of a file were dropped, if any: `12 records`."""
    if lost:
        report.lost += lost
        report.warnings.append(f"{path}: {lost:,} {what} were dropped: a value in them is missing or cannot be")
