"""What every source module gives to the ingest: batches of the tables, and a report on the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from analyze.sources.remote import RawPath
from schemas.tables import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

TableBatch = tuple[str, "int | None", "pa.RecordBatch"]
"""Table name; rank of the rows (None: that of the file); rows without run_id and rank.

Work of a process is of one rank, and a rank has one process: (run_id, rank, correlation_id) tells launches apart.
"""

Mapper = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]
"""Ordered starmap, over worker processes where the file is worth it."""


@dataclass
class FileReport:
    """What reading one file found, besides rows."""

    warnings: list[str] = field(default_factory=list)
    """One sentence for each thing that was lost or odd."""
    lost: int = 0
    """Rows of the file that are in none of the tables although they should be; `warnings` say which."""
    info: dict[str, Any] = field(default_factory=dict)
    """Columns of `runs` that the file itself knows (gpu_name, torch_version ...)."""
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    """Rows by table and rank."""
    zero_ns: int = 0
    """Time 0 of the file, on the clock of its rows."""
    position: int = 0
    """Bytes of the file, as it lies on the disk, that were read so far; 0 where the reader does not tell."""


@dataclass(frozen=True)
class SourceFile:
    """One raw file of a run: where it is, what it is (a kind of schemas.manifest) and its rank."""

    path: RawPath
    kind: str
    rank: int
    first_rank: int = 0
    """Added to the ranks that its reader yields: a report of one node numbers its processes from 0."""
    shift_ns: int = 0
    """Added to its times, so that all files of the run count from one moment."""


@cache
def batch_schema(table: str) -> pa.Schema:
    """What a batch of a table holds: its columns but for run_id and rank."""
    import pyarrow as pa

    return pa.schema([f for f in arrow_schema(table) if f.name not in ("run_id", "rank")])


def inline_map(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Mapper that runs in this process."""
    return (function(*a) for a in arguments)
