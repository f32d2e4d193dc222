"""Texts side by side: names and what they are. Unlike the cells of an answer, they are wrapped and never cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analyze.render.texts import padded, width, wrapped

_GAP = "  "


def listing_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], room: int, bold: Callable[[str], str] = str
) -> Iterator[str]:
    """The lines of a table of texts, none wider than `room` cells; a row without texts is an empty line.

    Columns in which nothing stands are left out. What has no room side by side stands below the first text of its row.
    `bold`: what is made of the heading.
    """
    filled = [i for i in range(len(headings)) if any(row and row[i] for row in rows)]
    titles = [headings[i] for i in filled]
    cells = [[row[i] for i in filled] if row else [] for row in rows]
    widths = _widths([titles, *filter(None, cells)], room)
    if widths is None:
        yield from _below(cells, room, bold)
        return
    yield bold(_GAP.join(padded(t, w, right=False) for t, w in zip(titles, widths, strict=True)).rstrip())
    yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    for row in cells:
        texts = [_lines(text, w) for text, w in zip(row, widths, strict=False)]
        for at in range(max(map(len, texts), default=1)):
            line = (padded(t[at] if at < len(t) else "", w, right=False) for t, w in zip(texts, widths, strict=False))
            yield _GAP.join(line).rstrip()


def _lines(text: str, cells: int) -> list[str]:
    return [line for part in text.split("\n") for line in wrapped(part, cells)]


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of the columns: each its longest word at least, and what is left to those that need it; None: no room."""
    columns = list(zip(*rows, strict=True))
    least = [max(width(w) for text in c for w in text.split() or [""]) for c in columns]
    wanted = [max(width(line) for text in c for line in text.split("\n")) for c in columns]
    spare = room - sum(least) - len(_GAP) * (len(columns) - 1)
    widths = _shared(least, wanted, max(spare, 0))
    # A text of a word a line is not read.
    narrow = any(w < min(x, room // 3) for w, x in zip(widths, wanted, strict=True))
    return None if spare < 0 or narrow else widths


def _shared(least: Sequence[int], wanted: Sequence[int], spare: int) -> list[int]:
    """The widths with the spare room: who lacks least first, the others share what is left."""
    widths = list(least)
    lacking = sorted((w - x, i) for i, (x, w) in enumerate(zip(least, wanted, strict=True)))
    for left, (lack, i) in enumerate(lacking):
        more = min(lack, spare // (len(lacking) - left))
        widths[i] += more
        spare -= more
    return widths


def _below(rows: Sequence[Sequence[str]], room: int, bold: Callable[[str], str]) -> Iterator[str]:
    """Each row as its first text and what there is of it below, short texts side by side."""
    for row in rows:
        first, *others = row or [""]
        yield from (bold(line) for line in _lines(first, room))
        beside = ""
        for text in filter(None, others):
            if width(longer := f"{beside}{_GAP}{text}") <= room and "\n" not in text:
                beside = longer
                continue
            yield from filter(None, [beside])
            *whole, last = _lines(text, room - len(_GAP))
            yield from (_GAP + line for line in whole)
            beside = _GAP + last
        yield from filter(None, [beside])
