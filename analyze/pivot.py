"""Any measure of a query as rows x columns of runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyze.errors import InputError
from analyze.query.query_declaration import Query, ResultColumn
from analyze.query.selection import RUN_COLUMNS, Selection

if TYPE_CHECKING:
    from analyze.query.result import Result
    from analyze.store.store import Store

AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}
"""Ways to combine several values of one cell."""


def pivot(
    stores: Sequence[Store],
    query: Query,
    rows: Sequence[str],
    columns: Sequence[str],
    value: str,
    params: Mapping[str, str] | None = None,
    *,
    agg: str | None = None,
    filter: str | None = None,
    selection: Selection,
) -> Result:
    """Ask a query of each combination of `rows` and `columns` and lay its `value` out.

    `rows`, `columns`: columns for `--by` of the query (of runs, rank, device ...), or of its result. A cell
    holds one value; where the query returns several, `filter` (SQL over its result) chooses or `agg` (sum, avg, min,
    max) combines them. A cell without any is NULL. Raises InputError.
    """
    from analyze.query.engine import Engine
    from analyze.query.result import row_result

    what = f"pivot {query.name}"
    rows, columns = list(dict.fromkeys(rows)), list(dict.fromkeys(columns))
    if agg is not None and agg not in AGGREGATES:
        raise InputError(f"--agg {agg}: must be one of {', '.join(AGGREGATES)}")
    if not rows:
        raise InputError("--rows: name one column at least")
    parameters = dict(params or {})
    _, _, choices = query.bind(parameters)
    own = [c.name for c in query.result_columns(choices)]
    for option, names in (("--rows", rows), ("--columns", columns)):
        for name in names:
            if name not in own and name not in RUN_COLUMNS and name not in query.gpu_columns:
                raise InputError(f"{option} {name}: {_instead(query, choices, name)}")
    axes = dict.fromkeys([*rows, *columns])
    by = tuple(a for a in axes if a not in own)
    if selection.block == "both" and not {"run_id", "profiler"} & set(axes):
        raise InputError("--block both: the two blocks need profiler among --rows or --columns")
    answer = Engine(stores, replace(selection, by=by, prefer=query.prefer)).query(query, parameters, filter=filter)
    known = {c.name: c for c in answer.columns}
    if value not in known:
        raise InputError(f"--value {value}: query {query.name} has no such column; it has {', '.join(known)}")
    if value in rows and not columns:
        raise InputError(f"--value {value}: already one of --rows; name another column, or give --columns")
    cells = _cells(answer, rows, columns, value)
    if agg is None:
        _require_single(cells, rows, columns, value)
    across = sorted({c for _, c in cells}, key=_sortable)
    down = sorted({r for r, _ in cells}, key=_sortable)
    unit = known[value].unit
    shown = [
        *(known[r] for r in rows),
        *(ResultColumn(_label(columns, c) or value, unit, known[value].doc) for c in across),
    ]
    table = [(*r, *(_combined(cells.get((r, c), []), agg, value) for c in across)) for r in down]
    laid_out = row_result(shown, table, what)
    laid_out.note = answer.note
    return laid_out


def _instead(query: Query, choices: Mapping[str, str], name: str) -> str:
    """That neither the query nor runs has a column, and the parameter that would make one, or what there is."""
    for p in query.params:
        for choice in p.choices:
            if name in [c.name for c in query.result_columns({**choices, p.name: choice})]:
                return f"query {query.name} has such a column with --param {p.name}={choice}"
    has = ", ".join(c.name for c in query.result_columns(dict(choices)))
    return f"no such column; query {query.name} has {has}, and runs has {', '.join(sorted(RUN_COLUMNS))}"


Key = tuple[Any, ...]


def _cells(answer: Result, rows: Sequence[str], columns: Sequence[str], value: str) -> dict[tuple[Key, Key], list[Any]]:
    """Values by row and column."""
    at = {c.name: i for i, c in enumerate(answer.columns)}
    cells: dict[tuple[Key, Key], list[Any]] = {}
    for row in answer.rows():
        key = (tuple(_key(row[at[r]]) for r in rows), tuple(_key(row[at[c]]) for c in columns))
        cells.setdefault(key, []).append(row[at[value]])
    return cells


def _key(value: Any) -> Any:
    """Return a value as a key. Lists and structs (a user's query may have some) are not hashable: their text is."""
    return value if isinstance(value, Hashable) else str(value)


def _require_single(
    cells: dict[tuple[Key, Key], list[Any]], rows: Sequence[str], columns: Sequence[str], value: str
) -> None:
    for (row, column), values in cells.items():
        if len(values) > 1:
            place = ", ".join(filter(None, [_label(rows, row), _label(columns, column)]))
            raise InputError(
                f"{value} has {len(values)} values at {place}: choose with --filter or combine them with --agg"
            )


def _combined(values: list[Any], agg: str | None, value: str) -> Any:
    """Combine the values of a cell; NULL without any."""
    there = [v for v in values if v is not None]
    try:
        return AGGREGATES[agg](there) if agg and there else next(iter(there), None)
    except TypeError as e:
        raise InputError(f"--agg {agg}: not possible for {value}, which has values such as {there[0]!r}") from e


def _label(names: Sequence[str], values: Key) -> str:
    return ", ".join(f"{n}={'' if v is None else v}" for n, v in zip(names, values, strict=True))


def _sortable(key: Key) -> list[tuple[int, float, str]]:
    """Sort numbers first, then texts, then missing values."""
    return [(2, 0, "") if v is None else (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in key]
