"""Bars: the length is a measure, or several that add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.plots.figure import (
    Figure,
    Rows,
    RunQuery,
    Scale,
    cut,
    distinct,
    family,
    label,
    legend,
    names_axis,
    places,
    quantity,
    short,
)
from analyze.plots.theme import FAMILIES, colours

OPTIONS = {
    "y": "columns that name a bar",
    "x": "columns with its length; several are stacked",
    "parts": "column that names the parts of a bar; each part is a row",
    "whole": "`yes`: draw parts as shares of their bar",
    "color": "column for the colour; `family`: the family of the kernel",
    "label": "column that is written at its end, after the length",
    "top": "show at most this many bars, the longest",
}
SUMS = "x"
"""Option with the columns that `per` divides."""


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw horizontal bars in the order of the rows; if there are too many, only the longest."""
    names, measures = options["y"].split(","), options["x"].split(",")
    labels = _labels(rows, names)
    if "parts" not in options:
        labels = distinct(labels)
    unit = rows.unit(measures[0])
    totals: dict[str, float] = {}
    for i, name in enumerate(labels):
        totals[name] = totals.get(name, 0) + sum(abs(rows.numbers(m)[i]) for m in measures)
    if not any(totals.values()):
        return None
    top = int(options.get("top", "20"))
    kept = dict.fromkeys(sorted(totals, key=lambda n: -totals[n])[:top])
    shown = rows._replace(rows=[row for row, name in zip(rows.rows, labels, strict=True) if name in kept])
    bars = [name for name in labels if name in kept]
    scale = Scale.of((totals[n] for n in kept), unit)
    if "parts" in options:
        parts = [cut("(none)" if v is None else str(v), 40) for v in shown.values(options["parts"])]
        values = shown.numbers(measures[0])
        spec = _stacked(
            list(zip(bars, map(_words, parts), values, strict=True)), unit, scale, "whole" in options, rows.per
        )
    elif len(measures) > 1:
        # Leave out measures that are always 0.
        some = [m for m in measures if any(shown.numbers(m))]
        found = [(bar, label(m), v) for m in some for bar, v in zip(bars, shown.numbers(m), strict=True)]
        spec = _stacked(found, unit, scale, "whole" in options, rows.per)
    else:
        spec = _single(shown, bars, names, measures[0], scale, options)
    first = max(kept, key=lambda n: totals[n])
    what = " and ".join(label(m) for m in measures) + rows.per
    alt = f"Bars of {what}, {len(kept)} of them; the longest is {first} with {quantity(totals[first], unit)}"
    notes = () if len(kept) == len(totals) else (f"Showing the {len(kept)} longest of {len(totals):,}.",)
    return Figure(spec, alt, notes)


def _words(text: str) -> str:
    return text.replace("_", " ") if text not in FAMILIES else text


def _labels(rows: Rows, names: list[str]) -> list[str]:
    if len(names) > 1:
        return places(rows, names)
    return [short("(none)" if v is None else str(v)) for v in rows.values(names[0])]


def _y(bars: list[str]) -> dict[str, Any]:
    domain = list(dict.fromkeys(bars))
    return {"field": "name", "type": "nominal", "scale": {"domain": domain}, "axis": names_axis()}


def _single(
    rows: Rows, bars: list[str], names: list[str], measure: str, scale: Scale, options: Mapping[str, str]
) -> dict[str, Any]:
    color = options.get("color")
    groups = _groups(rows, names, color) if color else [label(measure)] * len(bars)
    unit = rows.unit(measure)
    values: list[dict[str, Any]] = []
    for name, group, row in zip(bars, groups, rows.rows, strict=True):
        value = row[rows.at(measure)]
        said = quantity(value, unit)
        if more := options.get("label"):
            said += f"  \N{MIDDLE DOT}  {quantity(row[rows.at(more)], rows.unit(more))}"
        full = cut(str(row[rows.at(names[0])])) if len(names) == 1 else name
        tip = "\n".join([full, *([group] if color else []), f"{label(measure)}: {said}"])
        values.append({"name": name, "value": scale(value) or 0, "group": group, "said": said, "tip": tip})
    axis = {"title": scale.title(label(measure) + rows.per), "tickCount": {"expr": "max(2, width / 110)"}}
    # Room for the labels at the ends of the bars.
    room = 30 + 6 * max(len(v["said"]) for v in values)
    low, high = (f(v["value"] for v in values) for f in (min, max))
    ends = f"{min(low, 0):g} * (width - 2) / w, {max(high, 0) or 1:g} * width / w"
    if low < 0:
        ends = f"{low:g} - {room} * {high - low:g} / w, {max(high, 0):g} + {room} * {high - low:g} / w"
    domain = {"expr": f"[{ends}]".replace("/ w", f"/ max(60, width - {room})")}
    color_of = {"field": "group", "type": "nominal", "scale": colours(groups), "legend": legend() if color else None}
    text = {"type": "text", "color": {"expr": "soft"}, "fontSize": 11, "tooltip": False}
    return {
        "data": {"values": values},
        "height": {"step": 24},
        "encoding": {"y": _y(bars), "x": {"field": "value", "type": "quantitative", "axis": axis,
                     "scale": {"domain": domain, "nice": False}}},
        "layer": [
            {"mark": {"type": "bar", "cornerRadiusEnd": 2, "height": {"band": 0.72}},
             "encoding": {"color": color_of, "tooltip": {"field": "tip"}}},
            {"transform": [{"filter": "datum.value >= 0"}], "mark": text | {"align": "left", "dx": 5},
             "encoding": {"text": {"field": "said"}}},
            {"transform": [{"filter": "datum.value < 0"}], "mark": text | {"align": "right", "dx": -5},
             "encoding": {"text": {"field": "said"}}},
        ],
    }  # fmt: skip


def _groups(rows: Rows, names: list[str], color: str) -> list[str]:
    if rows.has(color):
        return [cut(str("(none)" if v is None else v), 60) for v in rows.values(color)]
    return [family(str(v)) for v in rows.values(names[0])]


def _stacked(found: list[tuple[str, str, float]], unit: str, scale: Scale, whole: bool, per: str) -> dict[str, Any]:
    """Return stacked bars. `found`: bar, part and length."""
    of_part: dict[str, float] = {}
    for _, part, value in found:
        of_part[part] = of_part.get(part, 0) + value
    parts = list(of_part)
    sums: dict[str, float] = {}
    for bar, _, value in found:
        sums[bar] = sums.get(bar, 0) + value
    values = [
        {"name": bar, "part": part, "turn": parts.index(part), "value": scale(value),
         "tip": f"{bar}\n{part}: {quantity(value, unit)}"
                + (f" ({100 * value / sums[bar]:.1f} %)" if unit != "%" else "")}
        for bar, part, value in found if value
    ]  # fmt: skip
    title = {"%": "share", "ns": "time", "B": "memory"}.get(unit, "")
    axis = {"title": "share (%)" if whole else scale.title(title + per), "tickCount": {"expr": "max(2, width / 110)"}}
    x: dict[str, Any] = {"field": "value", "type": "quantitative", "axis": axis, "stack": "zero"}
    if whole:
        x |= {"stack": "normalize"}
        axis["labelExpr"] = "format(100 * datum.value, '~g')"
    elif unit == "%":
        x["scale"] = {"domain": [0, 100], "nice": False}
    return {
        "data": {"values": values},
        "height": {"step": 26},
        "mark": {"type": "bar", "height": {"band": 0.76}},
        "encoding": {
            "y": _y([bar for bar, _, _ in found]), "x": x, "order": {"field": "turn"}, "tooltip": {"field": "tip"},
            "color": {"field": "part", "type": "nominal", "scale": colours(parts), "legend": legend()},
        },
    }  # fmt: skip
