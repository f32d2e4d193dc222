"""Answers that are made of rows in Python, in the form that query results have: sorted, cut, and printed alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from analyze.errors import InputError
from analyze.plain_sql import check_expression, sentence
from analyze.query_files import ResultColumn

if TYPE_CHECKING:
    from analyze.engine import Answer

_TYPES: tuple[tuple[type, str], ...] = ((bool, "BOOLEAN"), (int, "BIGINT"), (float, "DOUBLE"), (str, "VARCHAR"))
_EMPTY = {"text": "VARCHAR", "id": "VARCHAR", "time": "VARCHAR", "count": "BIGINT", "ns": "BIGINT", "bool": "BOOLEAN"}


def row_answer(
    columns: Sequence[ResultColumn],
    rows: Sequence[Sequence[Any]],
    what: str,
    sort: str | None = None,
    limit: int | None = None,
    filter: str | None = None,
) -> Answer:
    """The rows as an Answer. `sort`: columns, `-` in front for descending; without it the rows keep their order.

    `filter`: SQL over the columns. `what` names the command in errors. Raises InputError for a sort column that is not
    there or a filter that DuckDB rejects.
    """
    from analyze.engine import Answer

    names = [c.name for c in columns]
    order = [] if sort is None else [_term(t.strip(), names, what) for t in sort.split(",") if t.strip()]
    types = [_type(column, [r[i] for r in rows]) for i, column in enumerate(columns)]
    connection = duckdb.connect(
        config={
            "enable_external_access": "false", "lock_configuration": "true", "python_enable_replacements": "false"
        }
    )  # fmt: skip
    declared = ", ".join(f"{_quoted(n)} {t}" for n, t in zip(names, types, strict=True))
    connection.execute(f"CREATE TABLE answer (_at BIGINT, {declared})")
    if rows:
        lists = ", ".join(f"unnest(${i + 2}::{t}[])" for i, t in enumerate(types))
        values = [list(range(len(rows))), *([r[i] for r in rows] for i in range(len(columns)))]
        connection.execute(f"INSERT INTO answer SELECT unnest($1::BIGINT[]), {lists}", values)
    if filter:
        check_expression(connection, filter, f"{what}: --filter {filter!r}")
    sql = "SELECT * EXCLUDE (_at) FROM answer" + (f" WHERE (\n{filter}\n)" if filter else "")
    sql += f" ORDER BY {', '.join([*order, '_at'])}" + (f" LIMIT {int(limit)}" if limit is not None else "")
    try:
        result = connection.sql(sql)
    except duckdb.Error as e:
        raise InputError(f"{what}: --filter {filter!r}: {sentence(e)}") from e
    return Answer(tuple(columns), result, what, connection)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _term(term: str, names: list[str], what: str) -> str:
    name = term.lstrip("-+")
    if name not in names:
        raise InputError(f"{what}: --sort {term}: no such column; the result has {', '.join(names)}")
    return f"{_quoted(name)} {'DESC' if term.startswith('-') else 'ASC'} NULLS LAST"


def _type(column: ResultColumn, values: list[Any]) -> str:
    """SQL type of a column: that of its values, by its unit where it has none."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and any(abs(v) >= 2**63 for v in values if v is not None):
        return "DOUBLE"
    if kinds == {int, float}:
        return "DOUBLE"
    for kind, name in _TYPES:
        if kinds == {kind}:
            return name
    return "VARCHAR" if kinds else _EMPTY.get(column.unit, "DOUBLE")
