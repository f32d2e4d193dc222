"""The collector's step_metrics CSV -> the step_metrics table."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from schemas.tables import STEP_METRICS_CSV, TABLES, arrow_schema


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of one rank. A line that a killed run left half-written is dropped, with a warning.

    Raises InputError for a file with another header.
    """
    schema = arrow_schema("step_metrics")
    fields = [f for f in schema if f.name not in ("run_id", "rank")]
    kinds = {c.name: c.type for c in TABLES["step_metrics"].columns}
    rows: list[dict[str, object]] = []
    try:
        with path.open(newline="", encoding="utf-8") as f:
            reader = csv.reader(f)
            header = next(reader, [])
            if not set(header) <= set(STEP_METRICS_CSV) or "step" not in header:
                raise InputError(f"{path}: not a step_metrics CSV: its first line is {','.join(header)[:60]!r}")
            for line in reader:
                try:
                    rows.append({n: _value(v, kinds[n]) for n, v in zip(header, line, strict=True)})
                except ValueError:
                    report.warnings.append(f"{path.name}: line {reader.line_num} is not whole and is left out")
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise InputError(f"{path}: cannot be read: {e}") from e
    columns = [pa.array([r.get(f.name) for r in rows], type=f.type) for f in fields]
    yield "step_metrics", None, pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_BOOLS = {"true": True, "false": False}


def _value(text: str, kind: str) -> object:
    if text == "":
        return None
    if kind == "bool":
        if text.lower() not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text.lower()]
    return float(text) if kind == "double" else int(text)
