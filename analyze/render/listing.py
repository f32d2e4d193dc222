"""Tables of texts, such as names with descriptions. Texts are wrapped, never shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analyze.render.texts import padded, width, wrapped

_GAP = "  "


def listing_lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], room: int, bold: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield the lines of a table of texts, at most `room` wide; an empty row is an empty line.

    Empty columns are left out. If the columns do not fit, the other texts of a row follow below the first one. `bold`:
    formats the heading.
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
    """Return widths of at least the longest word of each column, with spare room shared; None if they do not fit."""
    columns = list(zip(*rows, strict=True))
    least = [max(width(w) for text in c for w in text.split() or [""]) for c in columns]
    wanted = [max(width(line) for text in c for line in text.split("\n")) for c in columns]
    spare = room - sum(least) - len(_GAP) * (len(columns) - 1)
    widths = _shared(least, wanted, max(spare, 0))
    # One word per line is not readable.
    narrow = any(w < min(x, room // 3) for w, x in zip(widths, wanted, strict=True))
    return None if spare < 0 or narrow else widths


def _shared(least: Sequence[int], wanted: Sequence[int], spare: int) -> list[int]:
    """Return the widths with spare room added: those that need least first, the others share the rest."""
    widths = list(least)
    lacking = sorted((w - x, i) for i, (x, w) in enumerate(zip(least, wanted, strict=True)))
    for left, (lack, i) in enumerate(lacking):
        more = min(lack, spare // (len(lacking) - left))
        widths[i] += more
        spare -= more
    return widths


def _below(rows: Sequence[Sequence[str]], room: int, bold: Callable[[str], str]) -> Iterator[str]:
    """Yield each row as its first text, with the others below; short ones share a line."""
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
