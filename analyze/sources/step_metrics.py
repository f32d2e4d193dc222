"""Read the collector's step_metrics CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyze.sources.collector_csv import read_table
from analyze.sources.interface import FileReport, Mapper, Source, TableBatch, inline_map

SOURCES = (Source("step_metrics", __name__, None),)


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the steps of one rank, as `collector_csv.read_table` does."""
    return read_table("step_metrics", "step", path, report)
