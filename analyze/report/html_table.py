"""An answer as an HTML table of a page: one unit per column, long names shortened, exact values next to the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from analyze.plots.figure import Rows, Scale, cut, label, quantity
from analyze.query.query_declaration import ResultColumn
from analyze.render.units import SCALES, decimals, is_text

Link = Callable[[str, tuple[Any, ...]], str]
"""Return the link of a cell, from column name and row; empty for none."""


class HtmlHead(NamedTuple):
    """A column of a table."""

    name: str
    title: str
    doc: str
    number: bool


class HtmlCell(NamedTuple):
    """A cell: its text, and for numbers the exact value for sorting and copying."""

    text: str
    value: str
    link: str = ""


class HtmlTable(NamedTuple):
    """A table of a page."""

    heads: list[HtmlHead]
    rows: list[list[HtmlCell]]
    left_out: int
    """Number of rows that are not shown."""


def table(rows: Rows, names: Sequence[str] = (), most: int = 100, link: Link | None = None) -> HtmlTable:
    """Return the first `most` rows with the columns `names` (all by default), without empty ones."""
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
    return HtmlTable(heads, [list(cells) for cells in zip(*columns, strict=True)], len(rows.rows) - len(shown))


def _column(column: ResultColumn, values: list[Any]) -> tuple[HtmlHead, list[HtmlCell]]:
    number = not is_text(column) and not any(isinstance(v, str | bool) for v in values)
    title = cut(label(column.name), 60)
    if not number:
        # Leading spaces of names show the tree.
        return HtmlHead(column.name, title, column.doc, False), [
            HtmlCell(quantity(v, column.unit) if v is not None else "", "") for v in values
        ]
    if column.unit in SCALES:
        scale = Scale.of(values, column.unit)
        title = scale.title(title)
        digits = decimals(column.unit, scale.factor)
        texts = ["" if v is None else f"{v / scale.factor:,.{digits}f}" for v in values]
    else:
        unit = column.unit if column.unit not in ("index", "count", "number", "id") else ""
        title = f"{title} ({unit})" if unit else title
        # A column of integral numbers has no decimals.
        whole = column.unit == "number" and all(float(v).is_integer() for v in values if v is not None)
        shown = [int(v) if whole and v is not None else v for v in values]
        texts = ["" if v is None else _plain(v, column.unit) for v in shown]
    return HtmlHead(column.name, title, column.doc, True), [
        HtmlCell(text, "" if v is None else repr(v)) for text, v in zip(texts, values, strict=True)
    ]


def _plain(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.2f}"
    if unit in ("index", "id"):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
