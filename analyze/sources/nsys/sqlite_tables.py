"""Read an Nsight Systems export to SQLite."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from analyze.errors import InputError, reading
from analyze.sources.interface import BATCH_ROWS
from analyze.sources.nsys.arrow_rows import arrow_batches
from analyze.sources.nsys.values import (
    BINARY_COLUMN,
    TEXT_COLUMNS,
    Columns,
    note_unreadable,
    readable,
    typed,
)

_SQLITE_HEADER = b"SQLite format 3\0"
_JOURNAL_HEADER = bytes.fromhex("d9d505f920a163d7")
_LONGEST_VALUE = 64 << 20
_LARGE = 8 << 20
"""Bytes of a file from which the ADBC driver is used: importing it takes 0.2 s."""

_ROW_FAULT = re.compile(r" value in |constraint failed")
"""Messages of SQLite's check about single values; the file itself is sound."""


@contextmanager
def with_log(path: Path) -> Iterator[Path]:
    """Yield the export itself, or a copy that includes its write-ahead log.

    Raises InputError if a rollback journal shows that writing the export was interrupted.
    """
    journal, log = (path.with_name(path.name + suffix) for suffix in ("-journal", "-wal"))
    if journal.is_file():
        with reading(journal), journal.open("rb") as f:
            if f.read(len(_JOURNAL_HEADER)) == _JOURNAL_HEADER:
                raise InputError(f"{path}: writing it was interrupted ({journal.name} is next to it); export again")
    if not log.is_file() or not log.stat().st_size:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tracequarry-") as folder:
        copy = Path(folder) / path.name
        with readable(path, log.name):
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(log.name))
            with closing(sqlite3.connect(copy)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        yield copy


def _uri(path: Path) -> str:
    """Return the URI of an export. It is immutable and its folder may be read-only, so no locks and no journal."""
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def connect(path: Path) -> sqlite3.Connection:
    """Open an SQLite file. Raises InputError if it is not one."""
    with path.open("rb") as f:
        header = f.read(len(_SQLITE_HEADER))
    if header != _SQLITE_HEADER:
        raise InputError(f"{path}: not an SQLite file" + ("" if header else ": the file is empty"))
    connection = sqlite3.connect(_uri(path), uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    return connection


class SqliteTables:
    """The tables of an SQLite export."""

    def __init__(self, connection: sqlite3.Connection, path: Path):
        self.path = path
        self.unreadable: dict[tuple[str, str], int] = {}
        self._connection = connection
        self._columns: dict[str, frozenset[str]] = {}
        with readable(path, "the list of tables"):
            # A truncated file can be opened and read up to the missing page; the header has the number of pages.
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
        with readable(path, "the file"):
            # A damaged page may read as fewer or more rows.
            connection.execute("PRAGMA ignore_check_constraints = ON")
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok" and not _ROW_FAULT.search(said):
            raise InputError(f"{path}: damaged: SQLite's check says: {said.splitlines()[-1]}")

    def names(self) -> set[str]:
        """Return the names of its tables."""
        return set(self._names)

    def columns(self, table: str) -> frozenset[str]:
        """Return the column names of a table; none if there is no such table."""
        if table not in self._columns:
            self._columns[table] = frozenset()
            if table in self._names:
                with readable(self.path, table):
                    declared = self._connection.execute(f'PRAGMA table_info("{table}")').fetchall()
                self._columns[table] = frozenset(name for _, name, *_ in declared)
        return self._columns[table]

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a table in the order of the file; missing columns are NULL. Raises InputError."""
        there = self.columns(table)
        if not there:
            return
        selected = {c: f'"{c}"' if c in there else "NULL" for c in columns}
        if BINARY_COLUMN in there & selected.keys():
            selected[BINARY_COLUMN] = f'hex("{BINARY_COLUMN}")'
        unreadable: Counter[str] = Counter()
        done: int | None = 0
        if self._bytes >= _LARGE:
            done = yield from arrow_batches(
                _uri(self._file), table, selected, TEXT_COLUMNS & selected.keys(), BATCH_ROWS
            )
        if done is None:
            return
        with readable(self.path, table):
            sql = f'SELECT {", ".join(selected.values())} FROM "{table}" LIMIT -1 OFFSET {done}'
            cursor = self._connection.execute(sql)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield {
                    name: typed(name, values, unreadable)
                    for name, values in zip(columns, zip(*rows, strict=True), strict=True)
                }
        note_unreadable(self.unreadable, table, unreadable)
