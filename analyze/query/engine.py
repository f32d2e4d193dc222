"""DuckDB over stores: the blocks, and the answer to a query."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from analyze.errors import InputError, ReportedError
from analyze.query import interrupts, sql_process
from analyze.query.answer import Answer, Statement
from analyze.query.blocks import Part, blocks, check_declared, defining, parts, words
from analyze.query.chosen import Asked, Chosen, whole_limit
from analyze.query.databases import Database, ReadOnlyDatabase
from analyze.query.literals import literal_path
from analyze.query.parsed import parsed
from analyze.query.plain_sql import block_statements, check_select, names_in, names_in_block, sentence
from analyze.query.query_files import BUILT_IN, Query, ResultColumn
from analyze.query.recordings import Recordings
from analyze.query.selection import DEFAULT, Selection
from analyze.query.sql_process import ProcessRows
from analyze.query.units import guess_unit
from analyze.query.unreadable import naming_files
from analyze.store.store import Store
from schemas.tables import TABLES

_STORED = TABLES.keys() - {"runs"}
"""Tables of which an engine makes a view when something reads them."""
_LISTS_TABLES = re.compile(r"information_schema|\b(show|describe|summarize)\b", re.IGNORECASE)

P = ParamSpec("P")
T = TypeVar("T")


def _one_at_a_time(ask: Callable[Concatenate[Engine, P], T]) -> Callable[Concatenate[Engine, P], T]:
    """Let one thread ask an engine; what fails for another reason than its SQL may leave a block half-made."""

    @wraps(ask)
    def alone(self: Engine, *args: P.args, **options: P.kwargs) -> T:
        with self.asking():
            try:
                return ask(self, *args, **options)
            except BaseException as e:
                cause = e.__cause__ if isinstance(e, ReportedError) else e
                if not isinstance(cause, duckdb.ProgrammingError | duckdb.DataError | None):
                    self.whole = False
                raise

    return alone


class Engine:
    """The tables of one or several stores, in a DuckDB (`analyze.query.databases`).

    SQL of unknown origin runs in a process of its own (`analyze.query.sql_process`), in an engine that is `read_only`.

    Only the runs and ranks of `selection` exist, and every answer has its groups.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        selection: Selection = DEFAULT,
        read_only: bool = False,
    ):
        self.stores = list(stores)
        self.selection = selection
        self.lock = threading.RLock()
        """Held while the connection works: it refuses a second thread."""
        self._read_only = read_only
        files = None
        if read_only:
            from analyze.query.stored_files import StoredFiles

            files = StoredFiles()
        self._recordings = Recordings(stores, selection, files)
        systems = {str(s.filesystem.protocol): s.filesystem for s in self.stores if s.filesystem}
        try:
            self._database = ReadOnlyDatabase(files) if files else Database(self._files(), systems.values())
            self.connection = self._database.connection
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{self._recordings}: {sentence(e)}") from e
        self._made: set[str] = set()
        """Names of the views and macros that exist."""
        self.whole = True
        """False once a block may be incomplete: further questions need another engine."""
        interrupts.note(self)
        self._recordings.select(self.connection)

    def _files(self) -> set[str]:
        """The Parquet files of the stores, `store.json` not among them."""
        files = {file for table in TABLES for found in self._recordings.files(table).values() for file in found}
        # A file whose name reads as a pattern is opened under its name, too.
        return files | {literal_path(f) for f in files}

    def close(self) -> None:
        """Close the connection; rows of answers that were not taken cannot be taken any more."""
        with self.lock:
            self._database.close()

    def interrupt(self) -> None:
        """End what it works on, from another thread: that raises InputError."""
        with suppress(duckdb.ConnectionException):  # closed meanwhile
            self.connection.interrupt()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While it is asked, or rows are taken. Raises InputError for a stored file that cannot be read."""
        with self.lock, naming_files(lambda: (self.connection, self._recordings.read())):
            interrupts.end_if_told()
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For `execute`, the rows of which are in the way of any other question until the last is taken."""
        with self.asking():
            try:
                yield
            finally:
                self.connection.abort()

    @property
    def held_bytes(self) -> int:
        """Memory of the tables that were made here; 0 while they are worked with."""
        if not self.lock.acquire(blocking=False):
            return 0
        try:
            held = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
            return sum(size for (size,) in self._recordings.execute(held).fetchall())
        finally:
            self.lock.release()

    @property
    def run_ids(self) -> list[str]:
        """The runs that exist here."""
        return self._recordings.run_ids

    @property
    def tables(self) -> set[str]:
        """The stored tables that these runs have."""
        return self._recordings.tables

    @property
    def note(self) -> str:
        """Which passes were excluded, in a sentence."""
        return self._recordings.note

    def _make_read(self, sql: str, uses: Iterable[str], folders: Iterable[Path] = ()) -> None:
        """Make what SQL reads, unless it is there: stored tables, and of the blocks that it uses, with their own."""
        read = parts(blocks(uses, folders), sql)
        for table in sorted(_STORED & words(sql).union(*(part.words for part in read))):
            if table not in self._made:
                self._recordings.create_view(table)
                self._made.add(table)
        for part in read:
            if part.name not in self._made:
                self._make(part)
                self._made.add(part.name)

    def _make(self, part: Part) -> None:
        block = part.block
        if not block.built_in:
            what = f"block {block.name}"
            check_declared(names_in_block(self.connection, block.sql, what), block.uses, what)
            statements = self._checked(block.sql, partial(block_statements, self.connection, block.sql, what))
        try:
            if block.create is not None:
                block.create(self.connection, block.name)
            else:
                for statement in [parsed(self.connection, part.sql)] if block.built_in else statements:
                    self.connection.execute(statement)
        except duckdb.Error as e:
            raise InputError(f"{self._recordings if block.create else f'block {block.name}'}: {sentence(e)}") from e

    @_one_at_a_time
    def query(
        self,
        query: Query,
        params: dict[str, str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
        only: Mapping[str, str] | None = None,
    ) -> Answer:
        """Answer a query; with `select`, only these columns, in this order; with `only`, only such rows.

        Raises InputError for bad parameters, an unknown column or SQL that DuckDB rejects.
        """
        asked = Asked(query, params or {}, self.selection.by)
        chosen = Chosen(sort, whole_limit(limit), tuple(select), only or {})
        asked.check(chosen)
        sql, values = asked.statement(chosen)
        built_in, what = query.path.is_relative_to(BUILT_IN.parent), f"query {query.name}"
        if not built_in and not self._read_only:
            rows = self._in_process(what, query=query.path, params=params or {}, chosen=chosen._asdict())
            return self._answer(asked, chosen, rows, what)
        if not built_in:
            check_declared(names_in(self.connection, asked.sql, what), asked.uses, what)
        self._make_read(sql, asked.uses, [query.path.parent.parent])
        if built_in:
            return self._answer(asked, chosen, Statement(self.connection, sql, _bound(values)), what)
        statement = self._checked(sql, partial(check_select, self.connection, sql, what))
        return self._answer(asked, chosen, self._run(statement, values, what), what)

    def _answer(
        self, asked: Asked, chosen: Chosen, result: duckdb.DuckDBPyRelation | Statement | ProcessRows, what: str
    ) -> Answer:
        answer = Answer(asked.columns(chosen), result, what, self._database, self.note, self.asking)
        answer.main = asked.main(chosen)
        return answer

    def _in_process(self, what: str, **asked: Any) -> ProcessRows:
        """Ask a process of its own about the runs and ranks that exist here."""
        return ProcessRows(sql_process.request(self.stores, self.selection, **asked), what)

    @_one_at_a_time
    def execute(self, sql: str, uses: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
        """Run SQL of this package's own, which reads the blocks `uses`; within `alone`. Raises duckdb.Error."""
        self._make_read(sql, uses)
        return self.connection.execute(sql)

    @_one_at_a_time
    def rows(self, sql: str, uses: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """All rows of what `execute` runs. Raises duckdb.Error."""
        return self.execute(sql, uses).fetchall()

    @_one_at_a_time
    def dicts(self, sql: str, uses: Iterable[str] = ()) -> list[dict[str, Any]]:
        """As `rows`, each by the names of the columns. Raises duckdb.Error."""
        found = self.execute(sql, uses)
        names = [name for name, *_ in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    @_one_at_a_time
    def sql(self, sql: str) -> Answer:
        """Answer one SELECT over the tables and what the blocks define, which need not be declared.

        Raises InputError for anything else and for errors in it.
        """
        if not self._read_only:
            rows = self._in_process("SQL", sql=sql)
            return Answer(tuple(rows.columns), rows, "SQL", self._database, self.note, self.asking)
        names = names_in(self.connection, sql, "SQL")
        self._make_read(" ".join(names), defining(names))
        statement = self._checked(sql, partial(check_select, self.connection, sql, "SQL"))
        result = self._run(statement, {}, "SQL")
        types = zip(result.columns, result.types, strict=True)
        columns = tuple(ResultColumn(name, guess_unit(name, str(kind)), "") for name, kind in types)
        return Answer(columns, result, "SQL", self._database, self.note, self.asking)

    def _checked(self, sql: str, check: Callable[[Collection[str]], T]) -> T:
        """Check SQL of unknown origin. All stored tables exist for it where it lists tables or names an unknown one, so
        that the error can say which there are."""
        if not _LISTS_TABLES.search(sql):
            with suppress(InputError):
                return check({"runs", *(_STORED & self._made)})
        self._make_read(" ".join(_STORED), ())
        return check(TABLES)

    def _run(self, statement: duckdb.Statement, values: dict[str, Any], what: str) -> duckdb.DuckDBPyRelation:
        try:
            return self.connection.sql(statement, params=_bound(values))
        except (duckdb.Error, UnicodeError) as e:
            raise InputError(f"{what}: {sentence(e)}") from e


def _bound(values: dict[str, Any]) -> dict[str, Any] | None:
    """Parameters of a statement, numbers as BIGINT: a small one would be INTEGER, and a thousand times it overflow."""
    return {n: duckdb.Value(v, duckdb.sqltypes.BIGINT) if isinstance(v, int) else v for n, v in values.items()} or None
