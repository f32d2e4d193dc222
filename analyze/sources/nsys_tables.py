"""The tables of an Nsight Systems export, wherever they lie: in one SQLite file, or in a folder with a file for each.

Tables and columns come and go with the version of Nsight Systems that exported, so both forms say what they have, and
a column that is not there reads as NULL. A .nsys-rep (or .qdrep) is exported to SQLite by the `nsys` that is at hand.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError

NSYS_VARIABLE = "TRACEQUARRY_NSYS"
"""Environment variable that names the nsys to export with; else the one on PATH."""

Columns = dict[str, pa.Array]
"""Columns of one batch by their name in the export: int64, double or string."""

PROCESS_BITS = -1 << 24
"""The bits of a global id (machine, VM, process, thread) that tell processes apart; the thread is in the others."""

_ROWS = 64 << 10
_SQLITE_HEADER = b"SQLite format 3\0"
_FOLDER_SUFFIXES = (".parquet", ".arrow")
_ERRORS = (sqlite3.Error, pa.ArrowException, OverflowError, OSError, EOFError)


class Tables(Protocol):
    """An opened export."""

    path: Path

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Rows of a table in the order of the file; columns that it lacks are NULL. Raises InputError."""

    def processes(self, table: str, column: str) -> dict[int, int]:
        """Rows by process (see `PROCESS_BITS`), 0 where `column`, a global id, is missing. Raises InputError."""


@contextmanager
def open_tables(path: Path) -> Iterator[Tables]:
    """Open an SQLite export, a report, or a folder export (any file of it).

    Raises InputError if it cannot be read, is no export of Nsight Systems, or is a report and there is no nsys.
    """
    if path.suffix.lower() in _FOLDER_SUFFIXES:
        yield _checked(FolderTables(path.parent, path.suffix), path)
    elif path.suffix.lower() == ".sqlite":
        with closing(_connect(path)) as connection:
            yield _checked(SqliteTables(connection, path), path)
    else:
        with tempfile.TemporaryDirectory(prefix="tracequarry-") as folder:
            exported = Path(folder) / "report.sqlite"
            export_report(path, exported)
            with closing(_connect(exported)) as connection:
                yield _checked(SqliteTables(connection, path), path)


def _checked(tables: Tables, path: Path) -> Tables:
    if {"id", "value"} <= tables.columns("StringIds") and any(map(tables.columns, _NSYS_TABLES)):
        return tables
    raise InputError(f"{path}: not an export of Nsight Systems: it has no table StringIds beside its META_DATA_EXPORT")


_NSYS_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")


def find_nsys() -> str | None:
    """The nsys to run: $TRACEQUARRY_NSYS, else the one on PATH; None if there is none."""
    return os.environ.get(NSYS_VARIABLE) or shutil.which("nsys")


def export_report(report: Path, to: Path) -> None:
    """Export a .nsys-rep or .qdrep to SQLite with nsys. Raises InputError if there is none or it fails."""
    nsys = find_nsys()
    how = f"`nsys export --type sqlite {report.name}` where it was recorded makes a file that needs none"
    if nsys is None:
        raise InputError(
            f"{report}: reading a report needs nsys, which is not on PATH (nor in ${NSYS_VARIABLE}); {how}"
        )
    if not report.is_file() or report.stat().st_size == 0:
        raise InputError(f"{report}: not a report of Nsight Systems: the file is empty")
    command = [nsys, "export", "--type", "sqlite", "--quiet", "true", "--output", str(to), str(report.resolve())]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as e:
        raise InputError(f"{report}: {nsys} cannot be run: {e.strerror}; {how}") from e
    if done.returncode or not to.is_file():
        said = [line for line in (done.stdout + done.stderr).decode("utf-8", "replace").splitlines() if line.strip()]
        reason = said[-1].strip() if said else f"exit code {done.returncode}"
        raise InputError(f"{report}: nsys could not export it: {reason}")


def _connect(path: Path) -> sqlite3.Connection:
    try:
        with path.open("rb") as f:
            header = f.read(len(_SQLITE_HEADER))
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    if header != _SQLITE_HEADER:
        raise InputError(f"{path}: not an SQLite file" + ("" if header else ": the file is empty"))
    # An export does not change, and its folder may be read-only: no locks and no journal.
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


@contextmanager
def _readable(path: Path, table: str) -> Iterator[None]:
    try:
        yield
    except _ERRORS as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise InputError(f"{path}: damaged or truncated: {table} cannot be read: {reason}") from e


class SqliteTables:
    """The tables of an SQLite export."""

    def __init__(self, connection: sqlite3.Connection, path: Path):
        self.path = path
        self._connection = connection
        self._types: dict[str, dict[str, pa.DataType]] = {}
        with _readable(path, "the list of tables"):
            # A truncated file opens, and reads, up to the page that is missing: the header knows how many there were.
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            self._names = {n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        # The connection may be to an export of `path`.
        file = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        if file.stat().st_size < pages * page_bytes:
            raise InputError(f"{path}: truncated: {file.stat().st_size} of {pages * page_bytes} bytes are there")

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""
        return frozenset(self._column_types(table))

    def _column_types(self, table: str) -> dict[str, pa.DataType]:
        if table not in self._types:
            self._types[table] = {}
            if table in self._names:
                with _readable(self.path, table):
                    declared = self._connection.execute(f'PRAGMA table_info("{table}")').fetchall()
                self._types[table] = {name: _arrow_type(kind) for _, name, kind, *_ in declared}
        return self._types[table]

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Rows of a table in the order of the file; columns that it lacks are NULL. Raises InputError."""
        types = self._column_types(table)
        if not types:
            return
        selected = ", ".join(f'"{c}"' if c in types else "NULL" for c in columns)
        with _readable(self.path, table):
            cursor = self._connection.execute(f'SELECT {selected} FROM "{table}"')
            while rows := cursor.fetchmany(_ROWS):
                yield {
                    name: pa.array(values, types.get(name, pa.int64()))
                    for name, values in zip(columns, zip(*rows, strict=True), strict=True)
                }

    def processes(self, table: str, column: str) -> dict[int, int]:
        """Rows by process, 0 where the column is missing. Raises InputError."""
        types = self._column_types(table)
        process = f'coalesce("{column}" & {PROCESS_BITS}, 0)' if column in types else "0"
        with _readable(self.path, table):
            sql = f'SELECT {process}, count(*) FROM "{table}" GROUP BY 1'
            return dict(self._connection.execute(sql).fetchall() if types else ())


def _arrow_type(declared: str) -> pa.DataType:
    if "CHAR" in declared.upper() or "TEXT" in declared.upper():
        return pa.string()
    return pa.float64() if "REAL" in declared.upper() else pa.int64()


class FolderTables:
    """The tables of a parquetdir or arrowdir export."""

    def __init__(self, path: Path, suffix: str):
        self.path = path
        self._suffix = suffix

    def _file(self, table: str) -> Path:
        return self.path / (table + self._suffix)

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""
        import pyarrow.parquet as pq

        file = self._file(table)
        if not file.is_file():
            return frozenset()
        with _readable(self.path, table):
            if self._suffix == ".parquet":
                return frozenset(pq.read_schema(file).names)
            with pa.memory_map(str(file)) as f, pa.ipc.open_stream(f) as reader:
                return frozenset(reader.schema.names)

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Rows of a table in the order of the file; columns that it lacks are NULL. Raises InputError."""
        there = [c for c in columns if c in self.columns(table)]
        with _readable(self.path, table):
            for batch in self._record_batches(table, there) if there else ():
                missing = pa.nulls(batch.num_rows, pa.int64())
                yield {c: _plain(batch.column(c)) if c in there else missing for c in columns}

    def _record_batches(self, table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        if self._suffix == ".parquet":
            with pq.ParquetFile(self._file(table)) as file:
                yield from file.iter_batches(batch_size=_ROWS, columns=columns)
        else:
            with pa.memory_map(str(self._file(table))) as f, pa.ipc.open_stream(f) as reader:
                yield from reader

    def processes(self, table: str, column: str) -> dict[int, int]:
        """Rows by process, 0 where the column is missing. Raises InputError."""
        counts: Counter[int] = Counter()
        for batch in self.batches(table, [column, "start"]):
            process = pc.bit_wise_and(batch[column], PROCESS_BITS).fill_null(0)
            counts.update({c["values"].as_py(): c["counts"].as_py() for c in process.value_counts()})
        return dict(counts)


def _plain(array: pa.Array) -> pa.Array:
    """As SQLite has it: int64 (ids without sign keep their bits), double or string."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type) or pa.types.is_null(array.type):
        return array.cast(pa.int64(), safe=False)
    return array.cast(pa.float64()) if pa.types.is_floating(array.type) else array.cast(pa.string())


def rows(tables: Tables, table: str, columns: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Rows of a small table one by one, as Python values."""
    for batch in tables.batches(table, columns):
        yield from pa.RecordBatch.from_pydict(batch).to_pylist()
