"""The rows of a result for which a user's SQL expression holds (`--filter`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

from analyze.errors import InputError
from analyze.query.databases import empty_database, registered_tables
from analyze.query.literals import identifier
from analyze.query.portable_types import distinct
from analyze.query.query_declaration import ResultColumn
from analyze.query.sql_checks import check_expression, one_select, sentence

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = {"us": 1e3, "ms": 1e6, "s": 1e9}
"""Units that tables show a column of ns in, in ns."""


class Rows(Protocol):
    """What computes the rows of a result."""

    def to_arrow_table(self) -> pa.Table:
        """Return all rows as an Arrow table."""


class FilteredRows:
    """The rows of a result for which an expression over its columns holds, in their order.

    The expression is checked as `--where` is, and runs in a DuckDB that can open nothing.
    """

    def __init__(
        self, rows: Rows, columns: Sequence[ResultColumn], filter: str, select: Sequence[str], limit: int | None
    ):
        """`columns`: of the result; `select`: names of those to return. Raises InputError for no expression."""
        self._rows, self._columns, self._filter = rows, columns, filter
        self._select, self._limit = select, limit
        check_expression(empty_database(), filter, self._what)

    @property
    def _what(self) -> str:
        return f"--filter {self._filter!r}"

    def limit(self, most: int) -> FilteredRows:
        """Return the first rows only."""
        least = most if self._limit is None else min(most, self._limit)
        return FilteredRows(self._rows, self._columns, self._filter, self._select, least)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as Python values. Raises InputError."""
        rows: list[tuple[Any, ...]] = self._run("fetchall")
        return rows

    def to_arrow_table(self) -> pa.Table:
        """Return the rows as an Arrow table. Raises InputError."""
        return self._run("to_arrow_table")

    def _run(self, take: str) -> Any:
        import pyarrow as pa

        table = self._rows.to_arrow_table()
        names = [c.name for c in self._columns]
        # SQL takes names that differ in case alone for one name.
        *inside, at = distinct([*names, "_at"], str.lower)
        # DuckDB gives HUGEINT, which sums of integers are, to Arrow as a decimal.
        whole = [pa.types.is_decimal(f.type) and f.type.scale == 0 for f in table.schema]
        shown = {
            name: identifier(own) + "::HUGEINT" * is_whole
            for name, own, is_whole in zip(names, inside, whole, strict=True)
        }
        table = table.rename_columns(inside).append_column(at, pa.array(range(table.num_rows), pa.int64()))
        sql = f"SELECT {', '.join(f'{shown[name]} AS {identifier(name)}' for name in self._select)}"
        sql += f" FROM (SELECT *{''.join(self._times(inside))} FROM found) WHERE (\n{self._filter}\n) IS TRUE"
        sql += f" ORDER BY {identifier(at)}" + ("" if self._limit is None else f" LIMIT {self._limit}")
        connection = empty_database()
        try:
            with registered_tables(connection, found=table):
                return getattr(connection.sql(one_select(sql, self._what)), take)()
        except duckdb.BinderException as e:
            raise InputError(f"{self._what}: {sentence(e)}; the result has {', '.join(names)}") from e
        except duckdb.Error as e:
            raise InputError(f"{self._what}: {sentence(e)}") from e

    def _times(self, inside: Sequence[str]) -> list[str]:
        """Return columns of ns in the units that tables show them in: `total_ms` of `total_ns`."""
        known = set(map(str.lower, inside))
        return [
            f", {identifier(name)} / {factor} AS {identifier(shown)}"
            for name in inside
            if name.endswith("_ns")
            for unit, factor in _TIMES.items()
            if (shown := f"{name.removesuffix('_ns')}_{unit}").lower() not in known
        ]
