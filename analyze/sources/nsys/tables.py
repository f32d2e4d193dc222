"""The tables of an Nsight Systems export, wherever they lie: in one SQLite file, or in a folder with a file for each.

Tables and columns come and go with the version of Nsight Systems that exported, so both forms say what they have, and
a column that is not there reads as NULL. A .nsys-rep (or .qdrep) is exported to SQLite by the `nsys` that is at hand.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
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
from analyze.sources.lines import whole
from analyze.sources.nsys.arrow_rows import arrow_batches
from schemas.isolation import run_tool
from schemas.tools import NSYS

Columns = dict[str, pa.Array]
"""Columns of one batch by their name in the export: int64, double or string."""

PROCESS_BITS = -1 << 24
"""The bits of a global id (machine, VM, process, thread) that tell processes apart; the thread is in the others."""

_TEXT_COLUMNS = frozenset(("value", "name", "text", "label", "utcTime", "uuid"))
"""Columns that are read as text; the others that are read hold whole numbers, whatever type the file gives them."""
_UNSIGNED_COLUMNS = frozenset(("globalPid", "globalTid", "endGlobalTid", "address"))
"""Bits, not quantities: above 2^63 they are negative here, as in SQLite."""

_ROWS = 64 << 10
_SQLITE_HEADER = b"SQLite format 3\0"
_JOURNAL_HEADER = bytes.fromhex("d9d505f920a163d7")
_LONGEST_VALUE = 64 << 20
_LARGE = 8 << 20
"""Bytes of an SQLite file from which another driver is worth its import, of 0.2 s."""
_ROW_FAULT = re.compile(r" value in |constraint failed")
"""What SQLite's check says of a value of a sound file."""
_FOLDER_SUFFIXES = (".parquet", ".arrow")
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_ERRORS = (sqlite3.Error, pa.ArrowException, OverflowError, OSError, EOFError, UnicodeDecodeError)


class Tables(Protocol):
    """An opened export."""

    path: Path
    unreadable: dict[tuple[str, str], int]
    """Values that are not of the type of their column, by table and column; they read as NULL."""
    views: frozenset[str]
    """Names that are views, which no nsys writes: they are not read."""

    def names(self) -> set[str]:
        """Names of its tables."""

    def count(self, table: str) -> int:
        """Rows of a table. Raises InputError."""

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
    elif path.suffix.lower() not in _REPORT_SUFFIXES:
        with _without_log(path) as file, closing(_connect(file)) as connection:
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
    if any(name.startswith("rocpd_") for name in tables.names()):
        raise InputError(f"{path}: a database of ROCm's rocprofv3 (rocpd), which is not read")
    raise InputError(f"{path}: not an export of Nsight Systems: it has no table StringIds beside its META_DATA_EXPORT")


_NSYS_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")


def export_report(report: Path, to: Path) -> None:
    """Export a .nsys-rep or .qdrep to SQLite with nsys (`to`: absolute). Raises InputError where that fails."""
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


@contextmanager
def _without_log(path: Path) -> Iterator[Path]:
    """A file that holds all of an export: itself, or a copy with what is still in the write-ahead log beside it.

    Raises InputError where a rollback journal beside it says that it was being written.
    """
    journal, log = (path.with_name(path.name + suffix) for suffix in ("-journal", "-wal"))
    try:
        if journal.is_file():
            with journal.open("rb") as f:
                if f.read(len(_JOURNAL_HEADER)) == _JOURNAL_HEADER:
                    raise InputError(f"{path}: {journal.name} beside it says that its writing was cut off; export anew")
        logged = log.is_file() and log.stat().st_size > 0
    except OSError as e:
        raise InputError(f"{path}: what lies beside it cannot be read: {e}") from e
    if not logged:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tracequarry-") as folder:
        copy = Path(folder) / path.name
        with _readable(path, log.name):
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(log.name))
            with closing(sqlite3.connect(copy)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        yield copy


def _uri(path: Path) -> str:
    """What SQLite is told: an export does not change, and its folder may be read-only, so no locks and no journal."""
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def _connect(path: Path) -> sqlite3.Connection:
    try:
        with path.open("rb") as f:
            header = f.read(len(_SQLITE_HEADER))
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    if header != _SQLITE_HEADER:
        raise InputError(f"{path}: not an SQLite file" + ("" if header else ": the file is empty"))
    connection = sqlite3.connect(_uri(path), uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
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
        self.unreadable: dict[tuple[str, str], int] = {}
        self._connection = connection
        self._columns: dict[str, frozenset[str]] = {}
        with _readable(path, "the list of tables"):
            # A truncated file opens, and reads, up to the page that is missing: the header knows how many there were.
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            listed = connection.execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
        self._names = {name for name, type_, page in listed if type_ == "table" and page}
        self.views = frozenset(name for name, type_, page in listed if type_ in ("table", "view") and not page)
        # The connection may be to an export of `path`.
        self._file = Path(connection.execute("PRAGMA database_list").fetchone()[2])
        self._bytes = self._file.stat().st_size
        if self._bytes < pages * page_bytes:
            raise InputError(f"{path}: truncated: {self._bytes} of {pages * page_bytes} bytes are there")
        with _readable(path, "the file"):
            # A damaged page may read as fewer rows, or as more.
            connection.execute("PRAGMA ignore_check_constraints = ON")
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok" and not _ROW_FAULT.search(said):
            raise InputError(f"{path}: damaged: SQLite's check says: {said.splitlines()[-1]}")

    def names(self) -> set[str]:
        """Names of its tables."""
        return set(self._names)

    def count(self, table: str) -> int:
        """Rows of a table. Raises InputError."""
        with _readable(self.path, table):
            (rows,) = self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        return int(rows)

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none if there is no such table."""
        if table not in self._columns:
            self._columns[table] = frozenset()
            if table in self._names:
                with _readable(self.path, table):
                    declared = self._connection.execute(f'PRAGMA table_info("{table}")').fetchall()
                self._columns[table] = frozenset(name for _, name, *_ in declared)
        return self._columns[table]

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Rows of a table in the order of the file; columns that it lacks are NULL. Raises InputError."""
        there = self.columns(table)
        if not there:
            return
        selected = {c: f'"{c}"' if c in there else "NULL" for c in columns}
        unreadable: Counter[str] = Counter()
        done: int | None = 0
        if self._bytes >= _LARGE:
            done = yield from arrow_batches(_uri(self._file), table, selected, _TEXT_COLUMNS & selected.keys(), _ROWS)
        if done is None:
            return
        with _readable(self.path, table):
            sql = f'SELECT {", ".join(selected.values())} FROM "{table}" LIMIT -1 OFFSET {done}'
            cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(_ROWS):
                yield {
                    name: _typed(name, values, unreadable)
                    for name, values in zip(columns, zip(*rows, strict=True), strict=True)
                }
        _note(self.unreadable, table, unreadable)

    def processes(self, table: str, column: str) -> dict[int, int]:
        """Rows by process, 0 where the column is missing. Raises InputError."""
        there = self.columns(table)
        process = f'coalesce("{column}" & {PROCESS_BITS}, 0)' if column in there else "0"
        with _readable(self.path, table):
            sql = f'SELECT {process}, count(*) FROM "{table}" GROUP BY 1'
            return dict(self._connection.execute(sql).fetchall() if there else ())


def _note(unreadable: dict[tuple[str, str], int], table: str, found: Counter[str]) -> None:
    # A table may be read several times.
    for column, values in (+found).items():
        unreadable[table, column] = max(values, unreadable.get((table, column), 0))


def _typed(column: str, values: Sequence[Any], unreadable: Counter[str]) -> pa.Array:
    """A column as text or int64, whatever the values are: any value may stand in any column of SQLite."""
    if column in _TEXT_COLUMNS:
        if not set(map(type, values)) <= {str, type(None)}:
            values = [_printed(v) for v in values]
        return pa.array(values, pa.string())
    try:
        # Told to make int64 of them, Arrow would cut doubles off.
        found = pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError):
        found = None
    if found is None or not (pa.types.is_int64(found.type) or pa.types.is_null(found.type)):
        whole_values = [_whole(v) for v in values]
        unreadable[column] += sum(v is None for v in whole_values) - sum(v is None for v in values)
        found = pa.array(whole_values, pa.int64())
    return found.cast(pa.int64())


def _printed(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)


def _whole(value: Any) -> int | None:
    """The whole number that a value is, perhaps as text or as a double; else None."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else None
    if isinstance(value, str):
        try:
            return whole(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


class FolderTables:
    """The tables of a parquetdir or arrowdir export."""

    views: frozenset[str] = frozenset()

    def __init__(self, path: Path, suffix: str):
        self.path = path
        self.unreadable: dict[tuple[str, str], int] = {}
        self._suffix = suffix

    def names(self) -> set[str]:
        """Names of its tables."""
        with _readable(self.path, "the folder"):
            return {file.stem for file in self.path.iterdir() if file.suffix == self._suffix and file.is_file()}

    def count(self, table: str) -> int:
        """Rows of a table. Raises InputError."""
        import pyarrow.parquet as pq

        with _readable(self.path, table):
            if self._suffix == ".parquet":
                return int(pq.read_metadata(self._file(table)).num_rows)
            return sum(batch.num_rows for batch in self._record_batches(table, []))

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
        unreadable: Counter[str] = Counter()
        with _readable(self.path, table):
            for batch in self._record_batches(table, there) if there else ():
                missing = pa.nulls(batch.num_rows, pa.int64())
                yield {c: _plain(c, batch.column(c), unreadable) if c in there else missing for c in columns}
        _note(self.unreadable, table, unreadable)

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


def _plain(column: str, array: pa.Array, unreadable: Counter[str]) -> pa.Array:
    """As SQLite has it: text or int64. Raises ArrowException for an array whose parts do not fit together."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _typed(column, _strings(array), unreadable) if column not in _TEXT_COLUMNS else _text(array)
    array.validate(full=True)
    if pa.types.is_dictionary(array.type):
        return _plain(column, array.dictionary_decode(), unreadable)
    if pa.types.is_integer(array.type) and column not in _TEXT_COLUMNS:
        if column in _UNSIGNED_COLUMNS or array.type != pa.uint64():
            return array.cast(pa.int64(), safe=False)
        fits = pc.less(array, pa.scalar(1 << 63, pa.uint64()))
        unreadable[column] += pc.sum(pc.invert(fits)).as_py() or 0
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(pa.int64())
    return _typed(column, array.to_pylist(), unreadable)


def _text(array: pa.Array) -> pa.Array:
    try:
        array.validate(full=True)
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(_strings(array), pa.string())


def _strings(array: pa.Array) -> list[str | None]:
    """Values of an array of strings that may not be UTF-8."""
    data = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
    data.validate(full=True)
    return [None if v is None else v.decode("utf-8", "replace") for v in data.to_pylist()]


def rows(tables: Tables, table: str, columns: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Rows of a small table one by one, as Python values."""
    for batch in tables.batches(table, columns):
        yield from pa.RecordBatch.from_pydict(batch).to_pylist()


def filtered(batch: Columns, mask: pa.Array) -> Columns:
    """The rows of a batch for which a mask is true."""
    return {name: array.filter(mask) for name, array in batch.items()}
