"""The SQL of a query with its parameters, and with the `--sort`, `--limit` and `--select` of its answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, NamedTuple

from analyze.errors import InputError
from analyze.query.query_declaration import Query, ResultColumn
from analyze.query.query_files import catalog
from analyze.query.selection import GPU_COLUMNS, RANK_COLUMNS, RUN_COLUMNS

_MOST_ROWS = 2**63 - 1
"""That DuckDB and Arrow can count."""


class AnswerOptions(NamedTuple):
    """Which rows and columns of an answer are returned: by default, all. Ties keep the order of the whole answer."""

    sort: str | None = None
    """Columns, `-` in front for descending."""
    limit: int | None = None
    select: tuple[str, ...] = ()
    """Columns, in this order."""
    only: Mapping[str, str] = {}
    """Texts of columns, which rows have."""
    filter: str | None = None
    """A user's SQL expression over the columns, which holds for rows."""

    def names(self, names: Sequence[str]) -> list[str]:
        """Return the selected columns, in order."""
        return list(dict.fromkeys(self.select or names))

    def conditions(self, sources: Mapping[str, str]) -> list[str]:
        """What must hold of a row, in SQL with the parameters `_only_0`, `_only_1` ..."""
        return [f"coalesce({sources[name]}::VARCHAR, '') = $_only_{at}" for at, name in enumerate(self.only)]

    @property
    def values(self) -> dict[str, str]:
        """The parameters of `conditions`."""
        return {f"_only_{at}": text for at, text in enumerate(self.only.values())}

    def order(self, sources: Mapping[str, str]) -> list[str]:
        """The terms of ORDER BY. Raises InputError for an unknown column."""
        terms = []
        for term in self.sort.split(",") if self.sort else ():
            name = term.strip().lstrip("-+")
            if name not in sources:
                raise InputError(f"--sort {term.strip()}: no such column; the result has {', '.join(sources)}")
            terms.append(f"{sources[name]} {'DESC' if term.strip().startswith('-') else 'ASC'} NULLS LAST")
        return terms

    @property
    def end(self) -> str:
        """LIMIT, if there is one."""
        return f"\nLIMIT {self.limit}" if self.limit is not None else ""


def whole_limit(limit: Any) -> int | None:
    """Return the largest number of rows; None for all. Raises InputError for another value."""
    try:
        most = None if limit is None else index(limit)
    except TypeError:
        most = -1
    if most is not None and most < 0:
        raise InputError(f"--limit {limit}: must be a whole number, 0 or more")
    return most if most is None else min(most, _MOST_ROWS)


def check_gpu_columns(what: str, named: Collection[str], known: Collection[str] = ()) -> None:
    """Raise InputError for a column of GPU work that is named and not known. `what` cannot use it."""
    for name in sorted({*named} - {*known}):
        able = ", ".join(sorted(q.name for q in catalog().values() if name in q.gpu_columns))
        raise InputError(f"{what}: --by and --where cannot use {name} here; they can in the queries {able}")


_TREE = """_numbered AS MATERIALIZED (
    SELECT
        {shown}, _answer.depth AS _depth, row_number() OVER (ORDER BY {whole}) AS _number,
        row_number() OVER (ORDER BY {order}) AS _turn
    {source}
),
_parents AS MATERIALIZED (
    SELECT c._number, c._turn, p._number AS _parent
    FROM _numbered c
    ASOF LEFT JOIN (SELECT _number, _depth + 1 AS _depth FROM _numbered) p
        ON p._depth = c._depth AND p._number < c._number
)
SELECT n.* EXCLUDE (_depth, _number, _turn)
FROM _numbered n
JOIN (
    WITH RECURSIVE _placed AS (
        SELECT _number, [_turn] AS _place FROM _parents WHERE _parent IS NULL
        UNION ALL
        SELECT c._number, list_append(p._place, c._turn) FROM _parents c JOIN _placed p ON p._number = c._parent
    )
    FROM _placed
) USING (_number)
ORDER BY _place"""
"""Sorts a tree, whose rows are in pre-order without it: the children of a row are sorted and stay below it."""


class BoundQuery:
    """A query with its parameters and the groups of its answer: SQL and columns."""

    def __init__(self, query: Query, params: Mapping[str, str], by: Sequence[str], of_gpus: Collection[str] = ()):
        """`by`: columns of `runs`, or `rank`, `node`, `device`, `stream`. `of_gpus`: those of GPU work that `by` and
        the selection name. Raises InputError for bad parameters, and for a query without rows of GPU work.
        """
        self.query, self.params, self.by, self._of_gpus = query, params, by, of_gpus
        check_gpu_columns(f"query {query.name}", of_gpus, query.gpu_columns)
        self.sql, self._values, self._choices = query.bind(dict(params))
        self.uses = query.used(self._choices)
        """The SQL modules that it reads."""
        self._documented = query.result_columns(self._choices)
        own = {c.name: c for c in self._documented}
        self._group_names = {b: _group_name(b, own) for b in by}
        self._columns = {
            name: (replace(_group_column(b), name=name), f'_group."_{b}"') for b, name in self._group_names.items()
        }
        for c in self._documented:
            source = f'_answer."{c.name}"' + ("::VARCHAR" if c.name == "run_id" else "")
            # A query that does not say for each row what tells the groups apart.
            self._columns[c.name] = (c, _or_of_group(c, source) if c.name in self._columns else source)

    def check(self, options: AnswerOptions) -> None:
        """Raise InputError for an unknown column."""
        for name in options.select:
            if name not in self._columns:
                raise InputError(f"--select {name}: no such column; the result has {', '.join(self._columns)}")
        for name in options.only:
            if name not in self._columns:
                had = ", ".join(self._columns)
                raise InputError(f"query {self.query.name}: {name}: no such column; the result has {had}")
        options.order(self._sources)

    def columns(self, options: AnswerOptions) -> tuple[ResultColumn, ...]:
        """The columns that the answer has."""
        return tuple(self._columns[name][0] for name in options.names(list(self._columns)))

    def main(self, options: AnswerOptions) -> tuple[str, ...]:
        """Names of the columns that a table shows first; empty for all."""
        if not self.query.main or options.select:
            return ()
        sorted_by = (term.strip().lstrip("-+") for term in (options.sort or "").split(","))
        return (
            *self._group_names.values(),
            *(self.query.fill(name, self._choices) for name in self.query.main),
            *filter(None, sorted_by),
        )

    def statement(self, options: AnswerOptions) -> tuple[str, dict[str, Any]]:
        """SQL of the answer, and its parameters."""
        shown = ", ".join(f'{self._columns[name][1]} AS "{name}"' for name in options.names(list(self._columns)))
        join = ""
        if self.by or self._of_gpus:
            columns = ["run_group", *(f'"{b}"{"::VARCHAR" if b == "run_id" else ""} AS "_{b}"' for b in self.by)]
            groups = "gpu_groups" if self._of_gpus else "run_groups"
            join = f"JOIN (SELECT DISTINCT {', '.join(columns)} FROM {groups}) _group USING (run_group)"
        # The columns last, so that rows which tie come in the same order every time.
        own_order = [
            "run_group", self.query.fill(self.query.order, self._choices),
            *(f'_answer."{c.name}"' for c in self._documented),
        ]  # fmt: skip
        whole = ", ".join(filter(None, own_order))
        terms = options.order(self._sources)
        order = ", ".join([*terms, whole])
        held = options.conditions(self._sources)
        source = f"FROM _answer {join}" + (f"\nWHERE {' AND '.join(held)}" if held else "")
        sql = f"_answer AS (\n{self.sql}\n)"
        if terms and {"tree", "depth"} <= {c.name for c in self._documented}:
            sql = f"WITH {sql}, {_TREE.format(shown=shown, source=source, whole=whole, order=order)}"
        else:
            sql = f"WITH {sql}\nSELECT {shown} {source}\nORDER BY {order}"
        return sql + options.end, self._values | options.values

    @property
    def _sources(self) -> dict[str, str]:
        return {name: source for name, (_, source) in self._columns.items()}


def _kind(column: ResultColumn) -> str:
    return "text" if column.unit in ("text", "id", "time") else "bool" if column.unit == "bool" else "number"


def _group_name(name: str, own: Mapping[str, ResultColumn]) -> str:
    """What the column of groups is called that tells them apart by `name`: so, unless the query has a column of that
    name which is something else, as a `source` that is a rank. A text may say the same as a number: a `{group}`."""
    if name not in own or _kind(own[name]) in ("text", _kind(_group_column(name))):
        return name
    while name in own:
        name = f"run_{name}"
    return name


def _or_of_group(column: ResultColumn, source: str) -> str:
    """Return SQL of a column's value; if NULL, of the group's."""
    cast = "::VARCHAR" if _kind(column) == "text" else ""
    return f'coalesce({source}{cast}, _group."_{column.name}"{cast})'


def _group_column(name: str) -> ResultColumn:
    column = RUN_COLUMNS.get(name)
    if column is None:
        return ResultColumn(name, *(RANK_COLUMNS | GPU_COLUMNS)[name])
    return ResultColumn(name, {"string": "text", "bool": "bool"}.get(column.type, "index"), column.doc)
