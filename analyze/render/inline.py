"""Tables as HTML for notebooks.

Elements are built as a tree, so text of a recording stays text. There are no scripts, style sheets or colours: the
notebook has its own theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, tostring

from analyze.render.texts import SENTENCES, fitted, middle, visible
from analyze.render.units import format_columns, is_text

if TYPE_CHECKING:
    from analyze.query.query_declaration import ResultColumn

FIRST, LAST = 15, 5
"""Rows shown of a long table, at its start and end."""
MOST_COLUMNS = 30

_LONGEST_NAME = 72
_LONGEST_LINE = 2000
_TABLE = "font-variant-numeric:tabular-nums"
# On each cell, to override style sheets of notebooks. Leading spaces of names show a tree.
_RIGHT = "text-align:right"
_LEFT = "text-align:left;white-space:pre"
_PROSE = "text-align:left"
_SENTENCE = f"{_PROSE};min-width:14em"


def element(tag: str, text: str = "", *children: Element, **attributes: str) -> Element:
    """Return an element with trusted text and children."""
    made = Element(tag, attributes)
    made.text = text
    made.extend(children)
    return made


def named(tag: str, text: str, **attributes: str) -> Element:
    """Return an element with text of a recording, isolated so that it cannot change the text direction around it."""
    text = middle(visible(text), _LONGEST_LINE)
    return element(tag, text, **attributes) if text.isascii() else element(tag, "", element("bdi", text), **attributes)


def lines_of(texts: Iterable[str]) -> list[Element]:
    """Return a line for each text."""
    return [named("div", text) for text in texts]


def pairs(said: Iterable[tuple[str, str]]) -> Element:
    """Return a table of names and descriptions."""
    rows = [
        element("tr", "", named("th", name, scope="row", style=_PROSE), named("td", text, style=_PROSE))
        for name, text in said
    ]
    return element("table", "", element("tbody", "", *rows), style=_TABLE)


def fragment(*children: Element) -> str:
    """Return the elements as HTML."""
    return tostring(element("div", "", *children), encoding="unicode", method="html")


def shown(rows: int) -> list[int]:
    """Return the indices of the rows to show: all, or the first and the last."""
    return list(range(rows)) if rows <= FIRST + LAST else [*range(FIRST), *range(rows - LAST, rows)]


def counted(rows: int) -> str:
    """Return the number of rows, and the rows that are shown."""
    if rows <= FIRST + LAST:
        return f"{rows:,} row{'' if rows == 1 else 's'}"
    return f"the first {FIRST} and the last {LAST} of {rows:,} rows"


def table(columns: Sequence[ResultColumn], values: Sequence[Sequence[Any]], rows: int) -> Element:
    """Return a table of the rows that `shown` selects. `values`: one sequence per column."""
    headings, cells = format_columns(columns, list(zip(*values, strict=True)))
    styles = [_SENTENCE if c.name in SENTENCES else _LEFT if is_text(c) else _RIGHT for c in columns]
    titles = [f"{c.name}: {c.doc}" if c.doc else c.name for c in columns]
    head = [
        element("th", str(heading), scope="col", title=visible(title), style=style)
        for heading, title, style in zip(headings, titles, styles, strict=True)
    ]
    texts = [_short(column, style) for column, style in zip(cells, styles, strict=True)]
    body = [
        element("tr", "", *(named("td", text, style=style) for text, style in zip(row, styles, strict=True)))
        for row in zip(*texts, strict=True)
    ]
    if rows > FIRST + LAST:
        body.insert(FIRST, element("tr", "", *(element("td", "⋮", style=style) for style in styles)))
    rows_of_head = element("thead", "", element("tr", "", *head))
    return element("table", "", rows_of_head, element("tbody", "", *body), style=_TABLE)


def _short(cells: Sequence[str], style: str) -> Sequence[str]:
    """Return the shortened cells of a column; different ones stay different."""
    if style != _LEFT:
        return cells
    short = fitted(cells, _LONGEST_NAME)
    return [short[text] for text in cells]
