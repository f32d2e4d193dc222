"""Fit a table to a terminal: choose columns and widths, or print records if a table does not fit.

The main columns of a query are shown, and others as far as there is room. Numbers are never shortened. Names are, but
rows that differ stay different. Sentences are wrapped. Columns that are empty or all zero are named below the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

from analyze.render.texts import CUT, SENTENCES, common_beginning, fitted, padded, width, wrapped
from analyze.render.units import Heading, format_columns, is_text

if TYPE_CHECKING:
    from analyze.query.query_declaration import ResultColumn

PIPED_WIDTH = 160
"""Width if the output is not a terminal and COLUMNS is not set."""

_NARROWEST = 20
_GAP = "  "
_LEAST_TEXT = 12
"""Least width of a text column."""
_ENOUGH_TEXT = 36
"""Width of a text column before further columns are added."""
_TREES = ("path", "tree")
_WHOLE = (*_TREES, "run_id", "sequence", "shapes")
"""Columns whose end matters as much as the start: they get their full width before further columns are added."""
_PLACES = ("run_id", "rank", "device")
"""Columns that are printed once above the table if all rows have the same value."""


def terminal_width(file: TextIO) -> int:
    """Return the width for output to a file: COLUMNS, the width of the terminal, or PIPED_WIDTH."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        # A pseudo-terminal without a size has width 0.
        return os.get_terminal_size(file.fileno()).columns or 80
    except (OSError, ValueError):
        return PIPED_WIDTH


@dataclass(frozen=True)
class _Column:
    """A column with its texts."""

    at: int
    name: str
    heading: Heading
    cells: Sequence[str]
    text: bool
    """Whether it is text: left-aligned, and may be shortened. Other columns are numbers."""
    label: bool
    """Whether it identifies the row; other columns measure it."""
    zero: bool
    """Whether it is a measure and all values are 0."""

    @property
    def sentence(self) -> bool:
        """Whether it is wrapped instead of shortened."""
        return self.text and self.name in SENTENCES

    @cached_property
    def content(self) -> int:
        """Width of the widest value."""
        return max(map(width, self.cells), default=0)

    def least(self, text: int) -> int:
        """Return the least width of its values, if texts may be shortened to `text`."""
        whole = not self.text or (self.name in _WHOLE and text == _ENOUGH_TEXT)
        return self.content if whole else min(self.content, text)

    def title(self, room: int) -> list[str]:
        """Return the lines of the heading, wrapped between words."""
        words = re.findall(r"[^_ ]+_*|_+", self.heading.label)
        unit = self.heading.unit
        words += [f"({unit})" if words else unit] if unit else []
        lines = [""]
        for word in words:
            glue = "" if not lines[-1] or (lines[-1].endswith("_") and not word.startswith("(")) else " "
            if lines[-1] and width(lines[-1] + glue + word) > room:
                lines.append(word)
            else:
                lines[-1] += glue + word
        return lines


def table_lines(
    columns: Sequence[ResultColumn],
    rows: Sequence[Sequence[Any]],
    main: Collection[str],
    room: int,
    wide: bool = False,
    bold: Callable[[str], str] = str,
) -> Iterator[str]:
    """Yield the lines of a table, at most `room` wide (at least 20).

    `main`: names of the columns to show first; empty for all. `wide`: show all columns, also empty ones. `bold`:
    formats the lines of the heading.
    """
    room = max(room, _NARROWEST)
    if not rows:
        yield "no rows"
        return
    above, left = _places(_columns(columns, rows))
    said = {"no data": [c for c in left if not any(c.cells)], "all zero": [c for c in left if c.zero]}
    idle = [c for found in said.values() for c in found]
    if wide or len(idle) == len(left):
        said, idle = {}, []
    left = [c for c in left if c not in idle]
    must = [c for c in left if wide or c.name in main] or left
    chosen, note, lines = _choose(must, [c for c in left if c not in must], room, bold)
    yield from _sentence(above + note, ", ", room)
    yield from lines
    said["no room"] = [c for c in left if c.at not in chosen]
    if hidden := [f"{what}: {', '.join(c.name for c in of)}" for what, of in said.items() if of]:
        yield from wrapped(f"hidden columns: {'; '.join(hidden)} (--wide shows them)", room)


def _sentence(parts: list[str], between: str, room: int) -> list[str]:
    return wrapped(between.join(parts), room) if parts else []


def _columns(columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]]) -> list[_Column]:
    headings, cells = format_columns(columns, rows)
    found = []
    for i, column in enumerate(columns):
        numbers = all(isinstance(row[i], int | float) for row in rows if row[i] is not None) and any(cells[i])
        label = is_text(column) or column.unit in ("index", "bool")
        text = not numbers and (is_text(column) or any(isinstance(row[i], str) for row in rows))
        zero = not label and any(cells[i]) and not any(row[i] for row in rows)
        found.append(_Column(i, column.name, headings[i], cells[i], text, label, zero))
    return found


def _places(columns: list[_Column]) -> tuple[list[str], list[_Column]]:
    """Return the line above the table with constant columns, and the other columns."""
    same = [c for c in columns if c.name in _PLACES and c.cells[0] and len(set(c.cells)) == 1]
    if len(same) == len(columns):
        return [], columns
    return [f"{c.name.removesuffix('_id')} {c.cells[0]}" for c in same], [c for c in columns if c not in same]


def _choose(
    must: list[_Column], may: list[_Column], room: int, bold: Callable[[str], str]
) -> tuple[set[int], list[str], list[str]]:
    """Return the chosen columns, notes above the table, and its lines."""
    chosen = every = sorted([*must, *may], key=lambda c: c.at)
    note: list[str] = []
    widths = _widths(chosen, room, _ENOUGH_TEXT)
    if widths is None:
        chosen = must
        if any(c.name == "run_id" for c in must) and _widths(must, room, _ENOUGH_TEXT) is None:
            chosen, note = _without_beginning(must)
        # First add columns that distinguish rows with the same labels, then any that fit.
        labels = [c for c in may if c.label]
        while column := _telling([c for c in chosen if c.label], [c.cells for c in chosen if c.label], labels):
            labels.remove(column)
            if _widths(more := _with(chosen, column), room, _LEAST_TEXT) is not None:
                chosen = more
        for column in (c for c in may if c not in chosen):
            if _widths(more := _with(chosen, column), room, _ENOUGH_TEXT) is not None:
                chosen = more
        widths = _widths(chosen, room, _LEAST_TEXT)
    while widths is not None:
        cells = [_cells(c, w) for c, w in zip(chosen, widths, strict=True)]
        shown = {c.at for c in chosen}
        telling = _telling(chosen, cells, [c for c in may if c.at not in shown])
        if telling is None:
            return shown, note, _lines(chosen, cells, widths, bold)
        chosen = _with(chosen, telling)
        widths = _widths(chosen, room, _LEAST_TEXT)
    at = {c.at for c in chosen}
    return at, [], _records([c for c in every if c.at in at], room, bold)


def _with(columns: list[_Column], column: _Column) -> list[_Column]:
    return sorted([*columns, column], key=lambda c: c.at)


def _without_beginning(columns: list[_Column]) -> tuple[list[_Column], list[str]]:
    """Return the columns with run ids without their common prefix, and a note about it."""
    shorter, note = [], []
    for column in columns:
        if column.name == "run_id" and (beginning := common_beginning([c for c in column.cells if c])):
            cells = [c and CUT + c.removeprefix(beginning) for c in column.cells]
            column = replace(column, cells=cells)
            note = [f"run ids begin with {beginning}"]
        shorter.append(column)
    return shorter, note


def _widths(columns: list[_Column], room: int, text: int) -> list[int] | None:
    """Return the widths of the columns if they fit when texts are shortened to `text`; else None.

    Spare room goes to shortened texts, then to headings with several lines, then to texts again.
    """
    widths = [max(c.least(text), *map(width, c.title(1))) for c in columns]
    spare = room - sum(widths) - len(_GAP) * (len(columns) - 1)
    if spare < 0:
        return None
    for of in (False, True):  # shortened texts before wrapped ones
        wanted = [
            (c.content if c.name in (*_TREES, "run_id") else min(c.content, _ENOUGH_TEXT))
            if c.text and c.sentence == of
            else 0
            for c in columns
        ]
        spare -= _grow(widths, wanted, spare)
    lacks = {i: width(str(c.heading)) - widths[i] for i, c in enumerate(columns)}
    for i in sorted(lacks, key=lambda i: lacks[i]):
        if 0 < lacks[i] <= spare:
            widths[i] += lacks[i]
            spare -= lacks[i]
    _grow(widths, [c.content if c.text else 0 for c in columns], spare)
    return widths


def _grow(widths: list[int], wanted: Sequence[int], spare: int) -> int:
    """Widen columns towards the wanted widths; return the room used."""
    growing = sorted((w - widths[i], i) for i, w in enumerate(wanted) if w > widths[i])
    taken = 0
    # Those that need least first; the others share the rest.
    for left, (lack, i) in enumerate(growing):
        more = min(lack, (spare - taken) // (len(growing) - left))
        widths[i] += more
        taken += more
    return taken


def _cells(column: _Column, cells: int) -> Sequence[str]:
    if not column.text or column.sentence or column.content <= cells:
        return column.cells
    shown = fitted(column.cells, cells)
    return [shown[c] for c in column.cells]


def _telling(chosen: Sequence[_Column], cells: Sequence[Sequence[str]], hidden: Sequence[_Column]) -> _Column | None:
    """Return the first hidden column that distinguishes rows with equal cells; None if none does."""
    if any(c.name == "tree" for c in chosen):
        return None  # the position of a row shows its parent
    alike: dict[tuple[str, ...], list[int]] = {}
    for at, row in enumerate(zip(*cells, strict=True)):
        alike.setdefault(row, []).append(at)
    groups = [group for group in alike.values() if len(group) > 1]
    return next((c for c in hidden if any(len({c.cells[i] for i in g}) > 1 for g in groups)), None)


def _lines(
    columns: list[_Column], cells: list[Sequence[str]], widths: list[int], bold: Callable[[str], str]
) -> list[str]:
    titles = [c.title(w) for c, w in zip(columns, widths, strict=True)]
    height = max(map(len, titles))
    titles = [[""] * (height - len(t)) + t for t in titles]

    def line(texts: Sequence[str]) -> str:
        shown = (padded(t, w, not c.text) for t, w, c in zip(texts, widths, columns, strict=True))
        return _GAP.join(shown).rstrip()

    rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    lines = [*(bold(line(t)) for t in zip(*titles, strict=True)), rule]
    for row in zip(*cells, strict=True):
        texts = [wrapped(t, w) if c.sentence else [t] for t, w, c in zip(row, widths, columns, strict=True)]
        lines += map(line, zip_longest(*texts, fillvalue=""))
    return lines


def _records(columns: list[_Column], room: int, bold: Callable[[str], str]) -> list[str]:
    """Return each row as a record with one value per line, nothing shortened; empty values have no line."""
    labels = [str(c.heading) for c in columns]
    side = max(map(width, labels)) + len(_GAP)
    if side > room // 2:
        side = len(_GAP)
    lines = []
    for number, row in enumerate(zip(*(c.cells for c in columns), strict=True), 1):
        lines.append(bold(f"── {number} ──"))
        for label, cell in zip(labels, row, strict=True):
            if not cell:
                continue
            first, *more = wrapped(cell, room - side)
            if width(label) + len(_GAP) <= side:
                lines.append((padded(label, side, right=False) + first).rstrip())
            else:
                lines += [*wrapped(label, room), " " * side + first]
            lines += [" " * side + text for text in more]
    return lines
