"""Read the collector's samples of a host as counters of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyze.sources.collector_csv import read_table
from analyze.sources.interface import FileReport, Mapper, Source, TableBatch, inline_map

SOURCES = (Source("host_samples", __name__, None),)


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the samples, as `collector_csv.read_table` does."""
    return read_table("counters", "start_ns", path, report)
