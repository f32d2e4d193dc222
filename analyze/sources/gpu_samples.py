"""Read the collector's samples of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyze.sources.collector_csv import read_table
from analyze.sources.interface import FileReport, Mapper, Source, TableBatch, inline_map

SOURCES = (Source("gpu_samples", __name__, None),)


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the samples of one rank's GPUs, as `collector_csv.read_table` does."""
    return read_table("gpu_samples", "start_ns", path, report)
