"""An answer as a table of a page: one unit a column, names cut for display, the values themselves beside the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from analyze.plots.figure import Rows, Scale, cut, label, quantity
from analyze.query.query_files import ResultColumn
from analyze.render.units import SCALES, decimals, is_text

Link = Callable[[str, tuple[Any, ...]], str]
"""The address that the cell of a column leads to in a row; empty for none."""


class Head(NamedTuple):
    """A column of a table."""

    name: str
    title: str
    doc: str
    number: bool


class Cell(NamedTuple):
    """A cell: what is shown, and for numbers the value that it is sorted by and copied as."""

    text: str
    value: str
    link: str = ""
    """Where it leads to."""


class Table(NamedTuple):
    """A table of a page."""

    heads: list[Head]
    rows: list[list[Cell]]
    left_out: int
    """Rows that are not in it."""


def table(rows: Rows, names: Sequence[str] = (), most: int = 100, link: Link | None = None) -> Table:
    """The first `most` rows, and the columns of `names` or all, but for empty ones and the run where it is one."""
    chosen = [rows.at(n) for n in names if rows.has(n)] or list(range(len(rows.columns)))
    shown = rows.rows[:most]
    heads, columns = [], []
    for at in chosen:
        values = [row[at] for row in shown]
        same_run = rows.columns[at].name == "run_id" and len(set(values)) == 1
        if (same_run or not any(v not in (None, "") for v in values)) and len(chosen) > 1:
            continue
        head, cells = _column(rows.columns[at], values)
        if link is not None:
            cells = [cell._replace(link=link(head.name, row)) for cell, row in zip(cells, shown, strict=True)]
        heads.append(head)
        columns.append(cells)
    return Table(heads, [list(cells) for cells in zip(*columns, strict=True)], len(rows.rows) - len(shown))


def _column(column: ResultColumn, values: list[Any]) -> tuple[Head, list[Cell]]:
    number = not is_text(column) and not any(isinstance(v, str | bool) for v in values)
    title = cut(label(column.name), 60)
    if not number:
        # A tree is told by the blanks in front of its names.
        return Head(column.name, title, column.doc, False), [
            Cell(quantity(v, column.unit) if v is not None else "", "") for v in values
        ]
    if column.unit in SCALES:
        scale = Scale.of(values, column.unit)
        title = scale.title(title)
        digits = decimals(column.unit, scale.factor)
        texts = ["" if v is None else f"{v / scale.factor:,.{digits}f}" for v in values]
    else:
        unit = column.unit if column.unit not in ("index", "count", "number", "id") else ""
        title = f"{title} ({unit})" if unit else title
        # What a file writes as a fraction and counts in whole numbers has no digits behind the point.
        whole = column.unit == "number" and all(float(v).is_integer() for v in values if v is not None)
        shown = [int(v) if whole and v is not None else v for v in values]
        texts = ["" if v is None else _plain(v, column.unit) for v in shown]
    return Head(column.name, title, column.doc, True), [
        Cell(text, "" if v is None else repr(v)) for text, v in zip(texts, values, strict=True)
    ]


def _plain(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.2f}"
    if unit in ("index", "id"):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
