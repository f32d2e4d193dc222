"""SELECTs over the Parquet files of the selected runs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from analyze.query.literals import literal_path, text_literal
from analyze.query.sql_checks import failure
from analyze.store.catalogue import PARSER_VERSION, RUN_TABLES, TableFile
from analyze.store.parquet_checksums import verify
from analyze.store.store import Store
from analyze.stored_tables import TABLES
from schemas.table_declaration import Column

if TYPE_CHECKING:
    from analyze.query.stored_files import StoredFiles

Run = tuple[Store, str]
"""A run: its store and its run_id."""

_IN_FILE_ORDER = {"memory_events"}
"""Tables with one more column, `file_row`: the number of the row in its file. Files keep the order of the trace. Events
with equal times (traces in whole us) have no other order."""

_SQL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN"}


class TableScans:
    """The stored tables of runs, as SELECTs over their Parquet files."""

    def __init__(self, stores: Sequence[Store], file_system: StoredFiles | None = None):
        """`file_system`: DuckDB reads the files through it; None for the system's own."""
        self.stores = list(stores)
        self.connection: duckdb.DuckDBPyConnection
        """The DuckDB that runs them; set before the first scan."""
        self.runs: list[Run] = []
        self.ranks: dict[str, set[int]] = {}
        """The selected ranks of each run, if some are left out: files of other ranks are not opened."""
        self._file_system = file_system
        self._systems: dict[str, Any] = {}
        """The fsspec file system of each file that is not local."""
        self._scanned: set[str] = set()
        """Tables whose files are read."""
        for store in stores:
            seen = {r for _, r in self.runs}
            self.runs += [(store, r) for r in store.snapshot.runs if r not in seen]

    def __str__(self) -> str:
        return ", ".join(map(str, self.stores))

    def execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        """Run SQL of this package. Raises an error that names the stores: files are damaged, or the disk is full."""
        try:
            return self.connection.execute(sql, parameters)
        except (duckdb.Error, UnicodeError) as e:
            raise failure(e, str(self)) from e

    def files_read(self) -> dict[str, str]:
        """Return the stored files that scans read, by the names under which DuckDB opens them."""
        return {self.name(f): f for t in sorted(self._scanned) for found in self.files(t).values() for f in found}

    def select(self, ranks: dict[str, set[int]]) -> None:
        """Read only these ranks of these runs from now on."""
        self.runs = [(s, r) for s, r in self.runs if r in ranks]
        if any(len(ranks[r]) < len(ranks_of(s, r)) for s, r in self.runs):
            self.ranks = ranks

    def scan(self, table: str, runs: Sequence[tuple[Store, str]] | None = None) -> str:
        """Return a SELECT over the Parquet files of a table of these runs, by default all; without files, an empty one.

        Columns that an older version did not write are NULL.
        """
        self._scanned.add(table)
        selects = []
        ranks = {r for found in self.ranks.values() for r in found} if table not in RUN_TABLES else set()
        # The least and greatest rank of a row group say whether it is read at all.
        only = f" WHERE rank BETWEEN {min(ranks)} AND {max(ranks)}" if ranks else ""
        runs = self.runs if runs is None else runs
        of_one = runs[0][1] if len(runs) == 1 else None
        by_store: dict[Store, list[TableFile]] = {}
        for store, _, found in self._stored(table, runs):
            by_store.setdefault(store, []).extend(found)
        for store, found in by_store.items():
            verify(store, found)
        for parser, files in self.files(table, runs).items():
            listed = ", ".join(text_literal(self.name(f)) for f in files)
            source = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = false)"
            there = None if parser == PARSER_VERSION else set(self.connection.sql(f"SELECT * FROM {source}").columns)
            selects.append(f"SELECT {_columns(table, there, of_one, 'file_row_number')} FROM {source}{only}")
        return " UNION ALL ".join(selects) or no_rows(table)

    def files(self, table: str, runs: Sequence[tuple[Store, str]] | None = None) -> dict[int, list[str]]:
        """Parquet files of a table of these runs, by default all, by the version of the parser that wrote them."""
        files: dict[int, list[str]] = {}
        for store, run_id, found in self._stored(table, self.runs if runs is None else runs):
            paths = store.for_readers(found)
            if store.filesystem:
                self._systems |= dict.fromkeys(paths, store.filesystem)
            files.setdefault(store.snapshot.runs[run_id].parser, []).extend(paths)
        return files

    def _stored(self, table: str, runs: Sequence[tuple[Store, str]]) -> Iterator[tuple[Store, str, list[TableFile]]]:
        """Yield the files of a table with rows of the selected ranks, run by run."""
        for store, run_id in runs:
            found = store.snapshot.runs[run_id].tables.get(table, [])
            if run_id in self.ranks and table not in RUN_TABLES:
                found = [f for f in found if not self.ranks[run_id].isdisjoint(f.ranks)]
            if found:
                yield store, run_id, found

    def readable_files(self) -> set[str]:
        """Return the Parquet files of all tables, which DuckDB may open."""
        files = {file for table in TABLES for found in self.files(table).values() for file in found}
        # DuckDB opens a file whose name reads as a pattern under its name, too.
        return files | {literal_path(f) for f in files}

    def name(self, file: str) -> str:
        """Return what DuckDB opens a file by."""
        return literal_path(file) if self._file_system is None else self._file_system.add(file, self._systems.get(file))


def column_names(table: str) -> list[str]:
    """Return the columns of a stored table."""
    return [c.name for c in TABLES[table].columns]


def no_rows(table: str) -> str:
    """Return a SELECT of no rows of a stored table."""
    return f"SELECT {_columns(table, ())} WHERE false"


def _columns(
    table: str, there: Container[str] | None, run_id: str | None = None, file_row: str = "NULL::BIGINT"
) -> str:
    """All columns of a scan, each as `_selected` has it; `file_row` where the table has that."""
    names = [_selected(c, there, run_id) for c in TABLES[table].columns]
    return ", ".join([*names, f"{file_row} AS file_row"] if table in _IN_FILE_ORDER else names)


def _selected(column: Column, there: Container[str] | None, run_id: str | None = None) -> str:
    """A column of a scan, NULL if it is not there; None: all are, in their types.

    `run_id`: of all rows. As a constant it is not read, and joins and groups are faster.
    """
    kind = "run_key" if column.name == "run_id" else _SQL_TYPES[column.type]
    if run_id is not None and column.name == "run_id":
        return f"{text_literal(run_id)}::run_key AS run_id"
    if there is not None and column.name not in there:
        return f'NULL::{kind} AS "{column.name}"'
    return f'"{column.name}"::{kind} AS "{column.name}"' if there or column.name == "run_id" else f'"{column.name}"'


def ranks_of(store: Store, run_id: str) -> list[int]:
    """Return the ranks of a run; 0 for one that does not number them."""
    return sorted(store.snapshot.runs[run_id].ranks or {0})
