"""Shared by readers of printed tables: lines of bounded length, strict numbers, and the count of lost rows.

Every row of a table is either read or counted as lost, by reason, with the line of the first.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO

from analyze.sources.interface import FileReport

LINE_LIMIT = 16 << 20
"""Limit of characters in a line or in a record of several lines; the longest real ones have 1 MB."""

INCOMPLETE = "incomplete"
NO_HEADER = "it has no header, or a damaged one"
NO_UNITS = "its table has no line of units, or a damaged one"

_REASONS = 20
"""Most distinct reasons."""

# Stricter than int() and float(), which accept '²', '1_000', 'nan' and numbers of any length.
_WHOLE = re.compile(r"[-+]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?")


class LostRows:
    """Rows of a file that could not be read."""

    def __init__(self, path: Path | str, report: FileReport):
        self._name = Path(path).name
        self._report = report
        self._why: dict[str, tuple[int, int]] = {}

    def add(self, line: int, why: str) -> None:
        """Count a row that begins in a line."""
        self._report.lost += 1
        if why not in self._why and len(self._why) == _REASONS:
            why = "other reasons"
        lines, first = self._why.get(why, (0, line))
        self._why[why] = (lines + 1, first)

    def first(self) -> str | None:
        """Return the line of the first lost row and the reason; None if there is none."""
        first = min(((line, why) for why, (_, line) in self._why.items()), default=None)
        return first and f"line {first[0]}: {first[1]}"

    def warn(self) -> None:
        """Add a sentence for each reason to the warnings."""
        for why, (lines, first) in self._why.items():
            which = f"line {first} is" if lines == 1 else f"{lines} lines, the first of them {first}, are"
            self._report.warnings.append(f"{self._name}: {which} left out: {why}")


def numbered_lines(file: IO[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a file opened with newline=''.

    Lines end at LF, CR or CR LF, which are included. Numbers count LFs, as editors do. Text beyond `LINE_LIMIT` is
    dropped together with the line end.
    """
    at = 1
    while line := file.readline(LINE_LIMIT):
        yield at, line
        while not line.endswith(("\n", "\r")) and (more := file.readline(LINE_LIMIT)):
            line = more
        at += line.endswith("\n")


def csv_cells(record: str, delimiter: str = ",") -> list[str] | None:
    """Return the fields of a record; None if quotes do not match or a field exceeds the limit of `csv` (128 KiB)."""
    try:
        return next(csv.reader([record.rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def whole(text: str, bits: int = 64) -> int:
    """Parse an integer that fits into a signed column of this width. Raises ValueError."""
    if not _WHOLE.fullmatch(text) or not -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1):
        raise ValueError(f"{text[:40]!r} is not an integer of {bits} bits")
    return int(text)


def count(text: str) -> int:
    """Parse a count. Raises ValueError."""
    value = whole(text)
    if value < 0:
        raise ValueError(f"{text} is negative")
    return value


def optional_whole(text: str | None, bits: int = 64) -> int | None:
    """Parse an integer; return None for no text. Raises ValueError."""
    return whole(text, bits) if text else None


def number(text: str) -> float:
    """Parse a number that fits into a double. Raises ValueError."""
    value = float(text) if _DECIMAL.fullmatch(text) else float("inf")
    if abs(value) == float("inf"):
        raise ValueError(f"{text[:40]!r} is not a number")
    return value


def scaled(text: str, factor: Decimal) -> int:
    """Parse a non-negative number, convert it to a smaller unit and round to an integer. Raises ValueError."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    value = round(Decimal(text) * factor)
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{text[:40]} is out of range")
    return value
