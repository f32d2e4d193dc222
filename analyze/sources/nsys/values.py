"""Values of an Nsight Systems export as Arrow arrays of text or int64, whatever type the file gives them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.text_lines import whole

Columns = dict[str, pa.Array]
"""Columns of a batch by their name in the export: int64, double or string."""

PROCESS_BITS = -1 << 24
"""Bits of a global id (machine, VM, process, thread) that identify the process; the others are the thread."""

BINARY_COLUMN = "binaryData"
"""A column of bytes, which is read as hexadecimal text."""

TEXT_COLUMNS = frozenset(("value", "name", "text", "label", "utcTime", "uuid", "metricName", "unit", BINARY_COLUMN))
"""Columns that are read as text. All others are read as integers, whatever type the file gives them."""

UNSIGNED_COLUMNS = frozenset(("globalPid", "globalTid", "endGlobalTid", "globalId", "address"))
"""Bit patterns: above 2^63 they are negative here, as in SQLite."""

_ERRORS = (sqlite3.Error, pa.ArrowException, OverflowError, OSError, EOFError, UnicodeDecodeError)


@contextmanager
def readable(path: Path, table: str) -> Iterator[None]:
    """Raise InputError for errors of reading a table."""
    try:
        yield
    except _ERRORS as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise InputError(f"{path}: damaged or truncated: {table} cannot be read: {reason}") from e


def note_unreadable(unreadable: dict[tuple[str, str], int], table: str, found: Counter[str]) -> None:
    """Add counts of unreadable values by column. A table may be read several times."""
    for column, values in (+found).items():
        unreadable[table, column] = max(values, unreadable.get((table, column), 0))


def typed(column: str, values: Sequence[Any], unreadable: Counter[str]) -> pa.Array:
    """Return a column as text or int64. In SQLite, any column may have values of any type."""
    if column in TEXT_COLUMNS:
        if not set(map(type, values)) <= {str, type(None)}:
            values = [_printed(v) for v in values]
        return pa.array(values, pa.string())
    try:
        # With the type int64, Arrow would truncate doubles.
        found = pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError):
        found = None
    if found is None or not (pa.types.is_int64(found.type) or pa.types.is_null(found.type)):
        whole_values = [_whole(v) for v in values]
        unreadable[column] += sum(v is None for v in whole_values) - sum(v is None for v in values)
        found = pa.array(whole_values, pa.int64())
    return found.cast(pa.int64())


def _printed(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)


def _whole(value: Any) -> int | None:
    """Return a value, also as text or a double, as an integer; None if it is not one."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else None
    if isinstance(value, str):
        try:
            return whole(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def filtered(batch: Columns, mask: pa.Array) -> Columns:
    """Return the rows of a batch for which a mask is true."""
    return {name: array.filter(mask) for name, array in batch.items()}
