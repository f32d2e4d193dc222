"""The interface of a source module: `SOURCES` says which files it reads, `read` yields batches of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.sources.remote import RawPath
from analyze.stored_tables import TABLES
from schemas.table_declaration import row_schema

if TYPE_CHECKING:
    import pyarrow as pa

TableBatch = tuple[str, "int | None", "pa.RecordBatch"]
"""Table name; rank of the rows (None: that of the file); rows without run_id and rank.

A rank has one process, so (run_id, rank, correlation_id) identifies a launch.
"""

Row = dict[str, Any]
"""Values of a row by column; a missing one is NULL."""

BATCH_ROWS = 64 << 10
"""Rows from which a reader yields a batch."""

LOG_NAME = re.compile(
    r"(?!.*\.(json|gz|zip|tar|parquet|arrow|sqlite(-\w+)?|nsys-rep|ncu-rep|nvvp|py|so|pth?|png|jpe?g)$)", re.I
)
"""Names of files that may be logs: nearly any, such as out.757751, alexnet_k80.log, rank-0.ncu.csv."""

Mapper = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]
"""Ordered starmap, over worker processes for large files."""


class Source(NamedTuple):
    """A raw format.

    `kind`: its name in run.json (`RunFile.kind`). `module`: the module that reads it. `profiler`: the
    profiler of a run of bare files; None for files that occur in run folders only. `name`: pattern of bare file names
    without .gz. `begins`: pattern for the first 64 KiB of a bare file. `splits`: its `read` takes a .gz, and a Mapper
    for the chunks of a large file. `exported`: suffixes of exports that are read instead of the file. `folder`: the
    file stands for all files of its folder. `beside`: suffixes of other files that belong to it. `says_rank`: its
    module has `read_rank_hint(path) -> RankHint`, the rank and job that the file states.
    """

    kind: str
    module: str
    profiler: str | None
    name: re.Pattern[str] | None = None
    begins: re.Pattern[bytes] | None = None
    splits: bool = False
    exported: tuple[str, ...] = ()
    folder: bool = False
    beside: tuple[str, ...] = ()
    says_rank: bool = False


@dataclass
class FileReport:
    """What reading a file found besides rows."""

    warnings: list[str] = field(default_factory=list)
    """One sentence for each thing that was lost or odd."""
    lost: int = 0
    """Rows of the file that should be in the tables and are not; `warnings` say which."""
    info: dict[str, Any] = field(default_factory=dict)
    """Columns of `runs` that the file says (gpu_name, torch_version ...)."""
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    """Rows by table and rank."""
    zero_ns: int = 0
    """Time 0 of the file, on the clock of its rows."""
    position: int = 0
    """Bytes of the file on disk that were read so far; 0 if the reader does not count."""


@dataclass(frozen=True)
class SourceFile:
    """One raw file of a run: where it is, what it is (a kind of schemas.manifest) and its rank."""

    path: RawPath
    kind: str
    rank: int
    first_rank: int = 0
    """Added to the ranks of its reader: a report of one node numbers its processes from 0."""
    shift_ns: int = 0
    """Added to its times to align the clocks of all files of the run."""
    shift_ranks: int = 0
    """Added to the ranks of its process groups: servers of one deployment each count ranks from 0."""


@cache
def batch_schema(table: str) -> pa.Schema:
    """Return the schema of a table's batches: its columns without run_id and rank."""
    return row_schema(TABLES[table])


def row_batches(tables: Mapping[str, list[Row]], least: int = 0) -> Iterator[TableBatch]:
    """Yield the rows of tables with at least so many rows, and remove them from the lists."""
    import pyarrow as pa

    for table, rows in tables.items():
        if len(rows) >= least:
            yield table, None, pa.RecordBatch.from_pylist(rows, schema=batch_schema(table))
            rows.clear()


def inline_map(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Map in this process."""
    return (function(*a) for a in arguments)
