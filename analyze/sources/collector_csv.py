"""Read the CSV files that `collect` writes as rows of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from analyze.errors import InputError
from analyze.sources.interface import FileReport, TableBatch, batch_schema
from analyze.sources.text_lines import INCOMPLETE, LostRows, csv_cells, number, numbered_lines, whole
from analyze.stored_tables import TABLES

_BAD_VALUE = "a value in it cannot be read"


def read_table(table: str, needs: str, path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the rows of one rank. A row that cannot be read is dropped, with a warning.

    The header has the column `needs`, any others of the table, and no more. Raises InputError for another one.
    """
    import pyarrow as pa

    kinds = {c.name: c.type for c in TABLES[table].columns if c.name != "run_id"}
    rows: list[dict[str, object]] = []
    lost = LostRows(path, report)
    header: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as f:
            for at, line in numbered_lines(f):
                cells = csv_cells(line)
                if not header:
                    header = _header(path, table, needs, kinds, line, cells)
                elif cells is None or (cells and (len(cells) != len(header) or not line.endswith(("\n", "\r")))):
                    lost.add(at, INCOMPLETE)
                elif cells:
                    try:
                        rows.append({n: _value(n, v, kinds[n], n == needs) for n, v in zip(header, cells, strict=True)})
                    except ValueError:
                        lost.add(at, _BAD_VALUE)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    if not header:
        _header(path, table, needs, kinds, "", [])
    lost.warn()
    yield table, None, pa.RecordBatch.from_pylist(rows, schema=batch_schema(table))


def _header(
    path: Path, table: str, needs: str, kinds: Collection[str], line: str, cells: list[str] | None
) -> list[str]:
    if not cells or needs not in cells or not set(cells) <= set(kinds) or len(set(cells)) < len(cells):
        raise InputError(f"{path}: not a {table} CSV: its first line is {line.rstrip()[:60]!r}")
    return cells


_BOOLS = {"true": True, "false": False}


def _value(column: str, text: str, kind: str, needed: bool) -> object:
    """Parse a value of a column; None for no text. Raises ValueError."""
    if text == "" and not needed:
        return None
    if kind == "string":
        return text
    if kind == "bool":
        if text.lower() not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text.lower()]
    if column == "loss" and text.lower() in ("nan", "inf", "-inf"):
        return float(text)  # the loss may have diverged to NaN or infinity
    value = number(text) if kind == "double" else whole(text, int(kind.removeprefix("int")))
    if value < 0 and column != "loss":
        raise ValueError(f"{column} is below 0")
    return value
