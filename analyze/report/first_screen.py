"""The first screen of a page: the main figures of a recording, and its data quality in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from analyze.plots.figure import label, quantity
from analyze.plots.theme import MEANINGS
from analyze.summary import Measure, percent


class Share(NamedTuple):
    """A part of the bar of a figure, in % of it."""

    name: str
    text: str
    start: str
    width: str
    colour: str


class Tile(NamedTuple):
    """A figure on the strip."""

    name: str
    number: str
    unit: str
    detail: str
    link: str
    shares: list[Share]


class ComparedFigure(NamedTuple):
    """A figure of two recordings: a row of `compare` at level measure."""

    name: str
    a: str
    b: str
    change: str
    interval: str
    verdict: str
    mark: str
    """worse, better, or empty for neither."""


def compared(rows: Iterable[Mapping[str, Any]]) -> list[ComparedFigure]:
    """Return the figures of two recordings from the rows of `compare`."""
    return [
        ComparedFigure(
            label(r["measure"]),
            quantity(r["a"], r["unit"]),
            quantity(r["b"], r["unit"]),
            "" if r["change_pct"] is None else f"{r['change_pct']:+.1f} %",
            "" if r["low_pct"] is None else f"{r['low_pct']:+.1f} to {r['high_pct']:+.1f} %",
            r["verdict"],
            {"slower": "worse", "faster": "better"}.get(r["verdict"], ""),
        )
        for r in rows
    ]


def tiles(measures: Iterable[Measure], link: Callable[[str], str] | None) -> list[Tile]:
    """Return the strip. `link` returns the address of a query; None: there are no other pages."""
    return [
        Tile(m.name, *m.text.partition(" ")[::2], m.detail, link(m.query) if link else "", _shares(m)) for m in measures
    ]


def _shares(measure: Measure) -> list[Share]:
    shares, start = [], 0.0
    for name, pct in measure.parts:
        shares.append(Share(name, percent(pct), f"{start:.2f}", f"{pct:.2f}", MEANINGS[name]))
        start += pct
    return shares


def quality(checks: Sequence[Mapping[str, str]]) -> tuple[str, list[Mapping[str, str]]]:
    """Return the data quality in a sentence, and the checks to list: those that are not ok, else all."""
    if not checks:
        return "", []
    found = {v: [c for c in checks if c["verdict"] == v] for v in ("warning", "note")}
    if not any(found.values()):
        unknown = sum(c["verdict"] == "unknown" for c in checks)
        return f"no warnings in {len(checks)} checks" + (f" ({unknown} unknown)" if unknown else ""), list(checks)
    counts = [f"{len(of)} {verdict}{'s' if len(of) > 1 else ''}" for verdict, of in found.items() if of]
    listed = [c for of in found.values() for c in of]
    return f"{', '.join(counts)}: {', '.join(dict.fromkeys(c['fact'] for c in listed))}", listed
