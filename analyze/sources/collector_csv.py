"""Read the CSV files that `collect` writes: times of steps, samples of GPUs and of the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyze.errors import InputError
from analyze.sources.interface import FileReport, Row, Source, TableBatch, row_batches
from analyze.sources.text_lines import INCOMPLETE, LostRows, csv_cells, number, numbered_lines, whole
from analyze.stored_tables import TABLES

SOURCES = tuple(Source(kind, __name__, None) for kind in ("step_metrics", "gpu_samples", "host_samples"))
_BAD_VALUE = "a value in it cannot be read"
_BOOLS = {"true": True, "false": False}


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the rows of one rank. A row that cannot be read is dropped, with a warning.

    The header has columns of one table and no others. Raises InputError for another one.
    """
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as f:
        lines = numbered_lines(f)
        _, first_line = next(lines, (1, ""))
        header = csv_cells(first_line) or []
        table = "step_metrics" if "step" in header else "counters" if "value" in header else "gpu_samples"
        needs = "step" if table == "step_metrics" else "start_ns"
        kinds = {c.name: c.type for c in TABLES[table].columns if c.name != "run_id"}
        if needs not in header or not set(header) <= kinds.keys() or len(set(header)) < len(header):
            raise InputError(f"{path}: not a CSV of collect: its first line is {first_line.rstrip()[:60]!r}")
        rows: list[Row] = []
        lost = LostRows(path, report)
        for at, line in lines:
            cells = csv_cells(line)
            if cells is None or (cells and (len(cells) != len(header) or not line.endswith(("\n", "\r")))):
                lost.add(at, INCOMPLETE)
            elif cells:
                try:
                    rows.append({n: _value(n, v, kinds[n], n == needs) for n, v in zip(header, cells, strict=True)})
                except ValueError:
                    lost.add(at, _BAD_VALUE)
    lost.warn()
    yield from row_batches({table: rows})


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
