"""Open an Nsight Systems export: one SQLite file, a folder with a file for each table, or a report.

Tables and columns depend on the version of Nsight Systems that exported; a missing column reads as NULL. A .nsys-rep
(or .qdrep) is exported to SQLite with the `nsys` that is found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.nsys.folder_tables import FolderTables
from analyze.sources.nsys.sqlite_tables import SqliteTables, connect, with_log
from analyze.sources.nsys.values import Columns
from schemas.isolation import run_tool
from schemas.tools import NSYS

_FOLDER_SUFFIXES = (".parquet", ".arrow")
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_NSYS_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")


class Tables(Protocol):
    """An opened export."""

    path: Path
    unreadable: dict[tuple[str, str], int]
    """Number of values of another type than their column's, by table and column; they read as NULL."""
    views: frozenset[str]
    """Names of views. They are not read: nsys writes none."""

    def names(self) -> set[str]:
        """Return the names of its tables."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the column names of a table; none if there is no such table."""

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a table in the order of the file; missing columns are NULL. Raises InputError."""


@contextmanager
def open_tables(path: Path) -> Iterator[Tables]:
    """Open an SQLite export, a report, or a folder export (any file of it).

    Raises InputError if it cannot be read or is not of Nsight Systems, or if there is no nsys to export a report.
    """
    if path.suffix.lower() in _FOLDER_SUFFIXES:
        yield _checked(FolderTables(path.parent, path.suffix), path)
    elif path.suffix.lower() not in _REPORT_SUFFIXES:
        with with_log(path) as file, closing(connect(file)) as connection:
            yield _checked(SqliteTables(connection, path), path)
    else:
        with tempfile.TemporaryDirectory(prefix="tracequarry-") as folder:
            exported = Path(folder) / "report.sqlite"
            export_report(path, exported)
            with closing(connect(exported)) as connection:
                yield _checked(SqliteTables(connection, path), path)


def _checked(tables: Tables, path: Path) -> Tables:
    if {"id", "value"} <= tables.columns("StringIds") and any(map(tables.columns, _NSYS_TABLES)):
        return tables
    raise InputError(f"{path}: not an export of Nsight Systems: it has no table StringIds with META_DATA_EXPORT")


def export_report(report: Path, to: Path) -> None:
    """Export a .nsys-rep or .qdrep to SQLite with nsys (`to`: absolute). Raises InputError if that fails."""
    nsys = NSYS.find()
    how = f"`nsys export --type sqlite {report.name}` where it was recorded makes a file that needs none"
    if nsys is None:
        raise InputError(
            f"{report}: reading a report needs nsys, which is not on PATH (nor in ${NSYS.variable}); {how}"
        )
    if not report.is_file() or report.stat().st_size == 0:
        raise InputError(f"{report}: not a report of Nsight Systems: the file is empty")
    command = [nsys, "export", "--type", "sqlite", "--quiet", "true", "--output", str(to), str(report.resolve())]
    try:
        done = run_tool(command, capture_output=True)
    except OSError as e:
        raise InputError(f"{report}: {nsys} cannot be run: {e.strerror}; {how}") from e
    if done.returncode or not to.is_file():
        said = [line for line in (done.stdout + done.stderr).decode("utf-8", "replace").splitlines() if line.strip()]
        reason = said[-1].strip() if said else f"exit code {done.returncode}"
        raise InputError(f"{report}: nsys could not export it: {reason}")


def rows(tables: Tables, table: str, columns: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Yield the rows of a small table as dicts of Python values."""
    for batch in tables.batches(table, columns):
        yield from pa.RecordBatch.from_pydict(batch).to_pylist()
