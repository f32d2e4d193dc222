"""Read the captures of the CUDA graphs of a rank, which lie in files beside its trace.

`collect` writes rank-0.graphs.json.gz beside rank-0.trace.json.gz. Others keep the Chrome traces of captures in a
folder capture_traces next to the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analyze import sources
from analyze.errors import InputError
from analyze.ingestion.ranks_in_names import name_rank
from analyze.ingestion.run_folders import TRACE
from analyze.sources.interface import FileReport, Mapper, SourceFile, TableBatch
from analyze.sources.remote import RawPath
from schemas.recorded_tables import CAPTURED

FOLDER = "capture_traces"
"""Folder of the captures of traces that lie beside it."""
CAPTURES = ".graphs.json.gz"
"""End of the name of the file with the captures of a process, as `collect` writes it."""


def captured_rows(file: SourceFile, folder: Path, report: FileReport, mapper: Mapper) -> Iterator[TableBatch]:
    """Yield what the CPU did while the CUDA graphs of a trace were captured. Copies of remote files go to `folder`."""
    if file.kind != "chrome_trace":
        return
    for path in captures_of(file):
        own = FileReport()
        try:
            with sources.on_disk(file.kind, path, folder) as here:
                for table, _, batch in sources.read(file.kind, here, own, mapper):
                    if table in CAPTURED or table == "graph_nodes":
                        yield CAPTURED.get(table, table), None, batch
        except InputError as e:
            own.warnings = [f"{e}; the CUDA graphs of {file.path.name} have no operators"]
        report.warnings += own.warnings


def captures_of(file: SourceFile) -> list[RawPath]:
    """Return the files with captures that lie beside a trace."""
    name = file.path.name
    own = file.path.with_name(name.removesuffix(TRACE) + CAPTURES)
    if name.endswith(TRACE) and own.is_file():
        return [own]
    folder = file.path.parent / FOLDER
    if not folder.is_dir():
        return []
    inside: list[RawPath] = list(folder.iterdir())
    found = [p for p in sorted(inside, key=str) if p.name.endswith(".json.gz") and p.is_file()]
    return [p for p in found if name_rank(p.name) in (None, file.rank)]
