"""The result of a query: documented columns and their rows, from DuckDB or from rows made in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from analyze.errors import InputError
from analyze.query.bound_query import whole_limit
from analyze.query.databases import empty_database
from analyze.query.filtered_rows import FilteredRows
from analyze.query.literals import identifier
from analyze.query.portable_types import distinct, plain
from analyze.query.query_declaration import ResultColumn
from analyze.query.sql_checks import failure
from analyze.query.sql_process import FirstRows, ProcessRows

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: tuple[tuple[type, str], ...] = ((bool, "BOOLEAN"), (int, "BIGINT"), (float, "DOUBLE"), (str, "VARCHAR"))
_EMPTY = {"text": "VARCHAR", "id": "VARCHAR", "time": "VARCHAR", "count": "BIGINT", "ns": "BIGINT", "bool": "BOOLEAN"}


class Statement:
    """A SELECT of this package, which DuckDB binds when its rows are read.

    DuckDB binds a relation when it is created and again when its rows are read: that takes a third longer for a small
    recording.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: str, parameters: object = None):
        self._connection, self._sql, self._parameters = connection, sql, parameters

    def limit(self, most: int) -> Statement:
        """Return a statement of the first rows."""
        return Statement(self._connection, f"SELECT * FROM (\n{self._sql}\n) LIMIT {most}", self._parameters)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows as Python values. Raises duckdb.Error."""
        return self._connection.execute(self._sql, self._parameters).fetchall()

    def to_arrow_table(self) -> pa.Table:
        """Return all rows as an Arrow table. Raises duckdb.Error."""
        relation = self._connection.sql(self._sql, params=self._parameters)
        try:
            # Unlike to_arrow_table, the reader lets Python handle Ctrl-C.
            return relation.to_arrow_reader().read_all()
        except OSError as e:  # of DuckDB, after the first rows
            raise duckdb.Error(str(e)) from e


class Result:
    """Result of a query: its columns, and its rows in several forms. Rows can be taken once."""

    def __init__(
        self,
        columns: tuple[ResultColumn, ...],
        result: duckdb.DuckDBPyRelation | Statement | ProcessRows | FirstRows | FilteredRows,
        what: str,
        owner: object,
        note: str = "",
        taking: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ):
        names = distinct([c.name for c in columns])
        self.columns = tuple(c if c.name == n else replace(c, name=n) for c, n in zip(columns, names, strict=True))
        """Their names are distinct: JSON, Parquet and data frames would lose one of two columns with one name."""
        self.note = note
        """What was excluded from the recordings, in a sentence; empty for nothing."""
        self.cautions: tuple[str, ...] = ()
        """Data-quality checks of the recordings that are not ok, in sentences."""
        self.why: Callable[[], str] | None = None
        """Says why there are no rows, in a phrase."""
        self.hint = ""
        """What to query next, in a sentence."""
        self.main: tuple[str, ...] = ()
        """Names of the columns that a table shows first if not all fit; empty for all."""
        self._taking = taking  # is entered while rows are taken
        self._result = plain(result) if isinstance(result, duckdb.DuckDBPyRelation) else result
        self._what = what
        self.count: int | None = None
        """How many rows were taken; None before."""
        self._owner = owner  # of the connection: before DuckDB 2, a relation does not keep it open

    def rows(self, most: int | None = None) -> list[tuple[Any, ...]]:
        """All rows, or the first `most`, as Python values.

        Raises InputError for an error that shows only while rows are computed.
        """
        return self._take((self._result if most is None else self._result.limit(most)).fetchall)

    def cut(self, most: int) -> None:
        """Leave no more than the first `most` rows."""
        self._result = self._result.limit(most)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table. Raises InputError as `rows` does."""
        table = self._take(self._result.to_arrow_table)
        names = [c.name for c in self.columns]
        return table if table.column_names == names else table.rename_columns(names)

    def dicts(self) -> list[dict[str, Any]]:
        """All rows as Python values by the names of the columns. Raises InputError as `rows` does."""
        return self.arrow().to_pylist()

    @property
    def relation(self) -> duckdb.DuckDBPyRelation:
        """What computes the rows, within `taken`; only where they are computed by SQL of unknown origin."""
        assert isinstance(self._result, duckdb.DuckDBPyRelation)
        return self._result

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While rows are computed: turn an error of DuckDB into an InputError or a MachineError."""
        try:
            with self._taking():
                yield
        except (duckdb.Error, UnicodeError) as e:
            raise failure(e, self._what) from e

    @property
    def notes(self) -> list[str]:
        """All that is to be said about the rows, in sentences; once they are taken, also why there are none."""
        nothing = f"no rows: {self.why()}" if self.count == 0 and self.why else ""
        return [text for text in (*self.cautions, self.note, nothing, self.hint) if text]

    def _take(self, fetch: Callable[[], Any]) -> Any:
        with self.taken():
            taken = fetch()
        self.count = len(taken)
        return taken


def row_result(
    columns: Sequence[ResultColumn],
    rows: Sequence[Sequence[Any]],
    what: str,
    sort: str | None = None,
    limit: int | None = None,
) -> Result:
    """The rows as a Result. `sort`: columns, `-` in front for descending; without it the rows keep their order.

    `what` names the command in errors. Raises InputError for a sort column that is not there.
    """
    most = whole_limit(limit)
    # Names are whatever a recording has, as in `name=...`.
    shown = [c.name for c in columns]
    inside = [f"c{i}" for i in range(len(shown))]
    held = [replace(c, name=name) for c, name in zip(columns, inside, strict=True)]
    names = dict(zip(shown, inside, strict=True))
    order = [] if sort is None else [_term(t.strip(), names, what) for t in sort.split(",") if t.strip()]
    connection = empty_database()
    at = ResultColumn("_at", "count", "")
    create_table(connection, "answer", [at, *held], [(i, *r) for i, r in enumerate(rows)])
    sql = f"SELECT * EXCLUDE (_at) FROM answer ORDER BY {', '.join([*order, '_at'])}"
    sql += "" if most is None else f" LIMIT {most}"
    return Result(tuple(columns), connection.sql(sql), what, connection)


def create_table(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]]
) -> None:
    """Create a table of rows, with the types of the values. A column without values has the type of its unit.

    Raises duckdb.Error for columns whose names differ in case alone: to SQL these are one.
    """
    types = [_type(column, [r[i] for r in rows]) for i, column in enumerate(columns)]
    declared = ", ".join(f"{identifier(c.name)} {t}" for c, t in zip(columns, types, strict=True))
    connection.execute(f"CREATE TEMP TABLE {identifier(name)} ({declared})")
    if rows:
        lists = ", ".join(f"unnest(${i}::{t}[])" for i, t in enumerate(types, 1))
        values = [[r[i] for r in rows] for i in range(len(columns))]
        connection.execute(f"INSERT INTO {identifier(name)} SELECT {lists}", values)


def _term(term: str, names: Mapping[str, str], what: str) -> str:
    name = term.lstrip("-+")
    if name not in names:
        raise InputError(f"{what}: --sort {term}: no such column; the result has {', '.join(names)}")
    return f"{identifier(names[name])} {'DESC' if term.startswith('-') else 'ASC'} NULLS LAST"


def _type(column: ResultColumn, values: list[Any]) -> str:
    """Return the SQL type of a column: by its values, else by its unit."""
    kinds = {type(v) for v in values if v is not None}
    if Decimal in kinds and kinds <= {int, float, Decimal}:
        return "DOUBLE"
    if kinds <= {int, float} and any(abs(v) >= 2**63 for v in values if v is not None):
        return "DOUBLE"
    if kinds == {int, float}:
        return "DOUBLE"
    for kind, name in _TYPES:
        if kinds == {kind}:
            return name
    return "VARCHAR" if kinds else _EMPTY.get(column.unit, "DOUBLE")
