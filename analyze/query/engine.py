"""A DuckDB over the selected runs of stores, which answers queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from analyze.errors import InputError
from analyze.query import sql_process
from analyze.query.bound_query import AnswerOptions, BoundQuery, check_gpu_columns, whole_limit
from analyze.query.damaged_files import naming_files
from analyze.query.databases import Database, ReadOnlyDatabase
from analyze.query.filtered_rows import FilteredRows
from analyze.query.guessed_units import guess_unit
from analyze.query.modules import ModulePart, check_declared, defining, modules, parts, words
from analyze.query.profiler_share import full_block_note, profiler_note
from analyze.query.query_declaration import Query, ResultColumn
from analyze.query.query_files import BUILT_IN
from analyze.query.result import Result, Statement
from analyze.query.selected_runs import SelectedRuns
from analyze.query.selection import DEFAULT, Selection
from analyze.query.sql_checks import check_select, module_statements, names_in, names_in_module, sentence
from analyze.query.sql_process import ProcessRows
from analyze.query.table_scans import TableScans
from analyze.query.table_views import OF_FULL_BLOCK, create_views
from analyze.store.store import Store
from analyze.stored_tables import TABLES

_STORED = TABLES.keys() - {"runs"} | OF_FULL_BLOCK.keys()
"""Stored tables. An engine creates a view of one when SQL first reads it."""
_LISTS_TABLES = re.compile(r"information_schema|\b(show|describe|summarize)\b", re.IGNORECASE)

T = TypeVar("T")


class Engine:
    """The tables of the selected runs and ranks, in a DuckDB of its own (`analyze.query.databases`).

    Stored tables and the views, tables and macros of modules are created when SQL first reads them. One thread uses an
    engine; another thread opens another one. SQL that users write runs in a process of its own
    (`analyze.query.sql_process`), in an engine that is `read_only`.
    """

    def __init__(self, stores: Sequence[Store], selection: Selection = DEFAULT, read_only: bool = False):
        self.stores = list(stores)
        self.selection = selection
        self.created: set[str] = set()
        """Names of the stored tables and parts of modules that exist in the DuckDB."""
        self._read_only = read_only
        self._of_gpus = False
        """Whether the engine answered a query that allows columns of GPU work in `selection`."""
        files = None
        if read_only or any(store.filesystem for store in self.stores):
            from analyze.query.stored_files import StoredFiles  # imports fsspec

            files = StoredFiles()
        self._scans = TableScans(stores, files)
        try:
            self._database = (
                ReadOnlyDatabase(files) if files and read_only else Database(self._scans.readable_files(), files)
            )
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{self._scans}: {sentence(e)}") from e
        self.connection = self._scans.connection = self._database.connection
        with self.reading():
            self._selected = SelectedRuns(self._scans, selection)

    def close(self) -> None:
        """Close the DuckDB. Rows of answers that were not read are lost."""
        if timing := self.__dict__.get("of_gpu_blocks"):
            timing.close()
        self._database.close()

    @cached_property
    def of_gpu_blocks(self) -> Engine | None:
        """The engine for figures of time, which reads GPU-only blocks; None if there are none."""
        if not self.note:
            return None
        timing = Engine(self.stores, replace(self.selection, prefer="gpu"))
        return timing if timing.run_ids != self.run_ids else None

    def reading(self) -> AbstractContextManager[None]:
        """Raise InputError that names the file, if a stored file cannot be read within."""
        return naming_files(lambda: (self.connection, self._scans.files_read()))

    @property
    def run_ids(self) -> list[str]:
        """The selected runs."""
        return [r for _, r in self._scans.runs]

    def runs_with(self, tables: Collection[str]) -> list[str]:
        """Return the selected runs that have one of these stored tables."""
        return [run_id for store, run_id in self._scans.runs if set(tables) & set(store.snapshot.runs[run_id].tables)]

    @property
    def tables(self) -> set[str]:
        """The stored tables that these runs have."""
        return {table for store, run_id in self._scans.runs for table in store.snapshot.runs[run_id].tables}

    @property
    def note(self) -> str:
        """Which passes were excluded, in a sentence."""
        return self._selected.note

    def _create(self, sql: str, uses: Iterable[str], folders: Iterable[Path] = ()) -> None:
        """Create what SQL reads and does not exist: stored tables, and parts of the modules that it uses."""
        read = parts(modules(uses, folders), sql)
        tables = sorted(_STORED & words(sql).union(*(part.words for part in read)) - self.created)
        for table in create_views(self._selected, tables):
            self.created.add(table)
        for part in read:
            if part.name not in self.created:
                self._create_part(part)
                self.created.add(part.name)

    def _create_part(self, part: ModulePart) -> None:
        module = part.module
        what = f"module {module.name}"
        statements: Sequence[str | duckdb.Statement] = [part.sql]
        if not module.built_in:
            check_declared(names_in_module(self.connection, module.sql, what), module.uses, what)
            statements = self._checked(module.sql, partial(module_statements, self.connection, module.sql, what))
        try:
            if module.create is not None:
                module.create(self.connection, module.name)
            else:
                for statement in statements:
                    self.connection.execute(statement)
        except duckdb.Error as e:
            raise InputError(f"{self._scans if module.create else what}: {sentence(e)}") from e

    def query(
        self,
        query: Query,
        params: dict[str, str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
        only: Mapping[str, str] | None = None,
        filter: str | None = None,
    ) -> Result:
        """Answer a query. `select`: only these columns, in this order. `only`: rows with these values.

        `filter`: rows for which this SQL expression over the columns holds.

        Raises InputError for bad parameters, an unknown column or SQL that DuckDB rejects.
        """
        bound = BoundQuery(query, params or {}, self.selection.by, self._selected.gpu_columns)
        options = AnswerOptions(sort, whole_limit(limit), tuple(select), only or {}, filter)
        bound.check(options)
        self._of_gpus = True
        with self.reading():
            result = self._filtered(bound, options, f"query {query.name}")
        columns = bound.columns(options)
        full = full_block_note(self._selected.excluded, query.full)
        notes = (self.note, full, profiler_note(self.rows, self.tables, query.disturbed))
        note = "; ".join(n for n in notes if n)
        answer = Result(columns, result, f"query {query.name}", self._database, note, self.reading)
        answer.main = bound.main(options)
        return answer

    def _filtered(
        self, bound: BoundQuery, options: AnswerOptions, what: str
    ) -> duckdb.DuckDBPyRelation | Statement | ProcessRows | FilteredRows:
        """Return what computes the rows of a query for which the filter holds."""
        if not options.filter:
            return self._result(bound, options, what)
        every = options._replace(filter=None, select=(), limit=None)
        columns = bound.columns(every)
        names = options.names([c.name for c in columns])
        return FilteredRows(self._result(bound, every, what), columns, options.filter, names, options.limit)

    def _result(
        self, bound: BoundQuery, options: AnswerOptions, what: str
    ) -> duckdb.DuckDBPyRelation | Statement | ProcessRows:
        """Return what computes the rows of a query. `what` names it in errors."""
        path, (sql, values) = bound.query.path, bound.statement(options)
        if path.is_relative_to(BUILT_IN.parent):
            self._create(sql, bound.uses)
            return Statement(self.connection, sql, _bound(values))
        if not self._read_only:
            return self._in_process(what, query=path, params=bound.params, options=options._asdict())
        check_declared(names_in(self.connection, bound.sql, what), bound.uses, what)
        self._create(sql, bound.uses, [path.parent.parent])
        return self._run(self._checked(sql, partial(check_select, self.connection, sql, what)), values, what)

    def sql(self, sql: str) -> Result:
        """Answer one SELECT over the tables and modules, which need not be declared.

        Raises InputError for anything else and for errors in it.
        """
        check_gpu_columns("SQL", self._selected.gpu_columns)
        with self.reading():
            if not self._read_only:
                rows = self._in_process("SQL", sql=sql)
                return Result(tuple(rows.columns), rows, "SQL", self._database, self.note, self.reading)
            names = names_in(self.connection, sql, "SQL")
            self._create(" ".join(names), defining(names))
            statement = self._checked(sql, partial(check_select, self.connection, sql, "SQL"))
            result = self._run(statement, {}, "SQL")
            types = zip(result.columns, result.types, strict=True)
            columns = tuple(ResultColumn(name, guess_unit(name, str(kind)), "") for name, kind in types)
            return Result(columns, result, "SQL", self._database, self.note, self.reading)

    def _in_process(self, what: str, **request: Any) -> ProcessRows:
        """Run SQL that a user wrote in a process of its own, over the same runs and ranks."""
        return ProcessRows(sql_process.request(self.stores, self.selection, **request), what)

    def execute(self, sql: str, uses: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """Run SQL of this package, which reads the modules `uses`. Read its rows before the next call.

        Raises duckdb.Error, and InputError if `selection` names columns of GPU work.
        """
        if not self._of_gpus:
            check_gpu_columns("the answer", self._selected.gpu_columns)
        with self.reading():
            self._create(sql, uses)
            return self.connection.execute(sql)

    def rows(self, sql: str, uses: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of what `execute` runs. Raises duckdb.Error."""
        with self.reading():
            return self.execute(sql, uses).fetchall()

    def dicts(self, sql: str, uses: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Return rows as `rows` does, each by the names of the columns. Raises duckdb.Error."""
        with self.reading():
            found = self.execute(sql, uses)
            names = [name for name, *_ in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _checked(self, sql: str, check: Callable[[Collection[str]], T]) -> T:
        """Check SQL that a user wrote. If it lists tables or names an unknown one, create all stored tables: the error
        suggests some."""
        if not _LISTS_TABLES.search(sql):
            with suppress(InputError):
                return check({"runs", *(_STORED & self.created)})
        self._create(" ".join(_STORED), ())
        return check(TABLES)

    def _run(self, statement: duckdb.Statement, values: dict[str, Any], what: str) -> duckdb.DuckDBPyRelation:
        try:
            return self.connection.sql(statement, params=_bound(values))
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{what}: {sentence(e)}") from e


def _bound(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return parameters of a statement, whole numbers as BIGINT: as INTEGER, a multiple could overflow."""
    return {n: duckdb.Value(v, duckdb.sqltypes.BIGINT) if isinstance(v, int) else v for n, v in values.items()} or None
