"""Read the collector's step_metrics CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, batch_schema, inline_map
from analyze.sources.lines import INCOMPLETE, LostRows, csv_cells, number, numbered_lines, whole
from schemas.tables import STEP_METRICS_CSV, TABLES

_BAD_VALUE = "a value in it cannot be read"


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of one rank. A row that cannot be read is dropped, with a warning.

    Raises InputError for a file with another header.
    """
    kinds = {c.name: c.type for c in TABLES["step_metrics"].columns}
    rows: list[dict[str, object]] = []
    lost = LostRows(path, report)
    header: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as f:
            for at, line in numbered_lines(f):
                cells = csv_cells(line)
                if not header:
                    header = _header(path, line, cells)
                elif cells is None or (cells and (len(cells) != len(header) or not line.endswith(("\n", "\r")))):
                    lost.add(at, INCOMPLETE)
                elif cells:
                    try:
                        rows.append({n: _value(n, v, kinds[n]) for n, v in zip(header, cells, strict=True)})
                    except ValueError:
                        lost.add(at, _BAD_VALUE)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    if not header:
        _header(path, "", [])
    lost.tell()
    yield "step_metrics", None, pa.RecordBatch.from_pylist(rows, schema=batch_schema("step_metrics"))


def _header(path: Path, line: str, cells: list[str] | None) -> list[str]:
    if not cells or "step" not in cells or not set(cells) <= set(STEP_METRICS_CSV) or len(set(cells)) < len(cells):
        raise InputError(f"{path}: not a step_metrics CSV: its first line is {line.rstrip()[:60]!r}")
    return cells


_BOOLS = {"true": True, "false": False}


def _value(column: str, text: str, kind: str) -> object:
    """Parse a value of a column; None for no text. Raises ValueError."""
    if text == "" and column != "step":
        return None
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
