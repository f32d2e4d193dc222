"""A strip of consecutive items such as training steps: columns for one lane, a band for each of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, label, legend, names_axis, places, quantity
from analyze.plots.theme import colours

OPTIONS = {
    "x": "column with the position in the strip",
    "y": "columns of its parts, which add up",
    "whole": "column with their sum, used if the parts are unknown",
    "lane": "columns that identify a lane",
    "top": "show at most this many items; more are averaged in groups",
}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw stacked columns for one lane; for several, a band each, coloured by the sum."""
    x, parts = options["x"], options["y"].split(",")
    if "whole" in options and not any(any(rows.numbers(p)) for p in parts):
        parts = [options["whole"]]
    lanes = options.get("lane", "").split(",") if "lane" in options else []
    lanes_of = places(rows, lanes)
    at = rows.values(x)
    found = sorted({v for v in at if v is not None})
    if not found:
        return None
    most = int(options.get("top", "150"))
    each = max(1, -(-len(found) // most))
    cell = {v: found[i // each * each] for i, v in enumerate(found)}
    sums: dict[tuple[str, Any], list[float]] = {}
    counts: dict[tuple[str, Any], int] = {}
    for i, (lane, v) in enumerate(zip(lanes_of, at, strict=True)):
        if v is not None:
            key = (lane, cell[v])
            counts[key] = counts.get(key, 0) + 1
            so_far = sums.setdefault(key, [0.0] * len(parts))
            for n, part in enumerate(parts):
                so_far[n] += float(rows.rows[i][rows.at(part)] or 0)
    means = {k: [v / counts[k] for v in values] for k, values in sums.items()}
    unit = rows.unit(parts[0])
    scale = Scale.of((sum(v) for v in means.values()), unit)
    named = list(dict.fromkeys(lanes_of))
    spec = _columns(means, x, parts, unit, scale) if len(named) == 1 else _bands(means, x, named, unit, scale)
    slowest = max(means, key=lambda k: sum(means[k]))
    fastest = min(means, key=lambda k: sum(means[k]))
    alt = (
        f"{len(found)} {label(x)}s; the longest is {label(x)} {slowest[1]} {slowest[0]} with "
        f"{quantity(sum(means[slowest]), unit)}, the shortest {label(x)} {fastest[1]} with "
        f"{quantity(sum(means[fastest]), unit)}"
    )
    notes = (f"Each column is the mean of {each} consecutive {label(x)}s.",) if each > 1 else ()
    return Figure(spec, alt, notes)


def _axis(x: str) -> dict[str, Any]:
    return {"title": label(x), "labelAngle": 0, "ticks": False, "domain": False, "labelOverlap": "greedy"}


def _columns(
    means: Mapping[tuple[str, Any], list[float]], x: str, parts: list[str], unit: str, scale: Scale
) -> dict[str, Any]:
    names = [label(p) for p in parts]
    values = [
        {"x": at, "part": names[n], "turn": n, "y": scale(v), "tip": "\n".join([
            f"{label(x)} {at}", *(f"{names[k]}: {quantity(w, unit)}" for k, w in enumerate(found))])}
        for (_, at), found in means.items()
        for n, v in enumerate(found)
    ]  # fmt: skip
    return {
        "data": {"values": values},
        "height": 190,
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "x", "type": "ordinal", "axis": _axis(x), "scale": {"paddingInner": 0.12}},
            "y": {"field": "y", "type": "quantitative", "axis": {"title": scale.title("time"), "tickCount": 5}},
            "order": {"field": "turn"},
            "color": {"field": "part", "type": "nominal", "scale": colours(names), "legend": legend(offset=28)},
            "tooltip": {"field": "tip"},
        },
    }


def _bands(
    means: Mapping[tuple[str, Any], list[float]], x: str, lanes: list[str], unit: str, scale: Scale
) -> dict[str, Any]:
    values = [
        {"x": at, "lane": lane, "v": scale(sum(v)), "tip": f"{lane}, {label(x)} {at}\n{quantity(sum(v), unit)}"}
        for (lane, at), v in means.items()
    ]
    key = {"title": scale.title("time"), "orient": "top", "gradientLength": 180, "gradientThickness": 10}
    return {
        "data": {"values": values},
        "height": {"step": max(8, min(26, 640 // len(lanes)))},
        "mark": {"type": "rect"},
        "encoding": {
            "x": {"field": "x", "type": "ordinal", "axis": _axis(x)},
            "y": {"field": "lane", "type": "nominal", "sort": None, "axis": names_axis()},
            "color": {"field": "v", "type": "quantitative", "legend": key,
                      "scale": {"range": ["#cfe0f5", "#2f7fd1", "#123a66"], "zero": False, "nice": False}},
            "tooltip": {"field": "tip"},
        },
    }  # fmt: skip
