"""Points on a line for each name, with intervals: changes, or the values of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, cut, label, legend, names_axis, places, quantity, short
from analyze.plots.theme import colours

OPTIONS = {
    "y": "columns that name a line; several rows may have one name",
    "x": "column with the place of the point",
    "low": "column with the lower end of its interval",
    "high": "column with the upper end",
    "color": "column for the colour",
    "top": "show at most this many names, the first",
}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw the rows in their order. With `low` and `high`, rows without an interval are left out."""
    ends = [options[k] for k in ("low", "high") if k in options]
    needed = [rows.at(name) for name in (options["x"], *ends)]
    known = rows._replace(rows=[row for row in rows.rows if all(row[i] is not None for i in needed)])
    columns = options["y"].split(",")
    names = places(known, columns) if len(columns) > 1 else [cut(str(v)) for v in known.values(options["y"])]
    shown = list(dict.fromkeys(names))[: int(options.get("top", "30"))]
    if not shown:
        return None
    unit = rows.unit(options["x"])
    points = known.numbers(options["x"])
    lows, highs = (known.numbers(name) for name in ends) if ends else (points, points)
    groups = [cut(str(v), 40) for v in known.values(options["color"])] if "color" in options else [""] * len(names)
    scale = Scale.of([*lows, *highs], unit)
    values: list[dict[str, Any]] = []
    for name, x, low, high, group in zip(names, points, lows, highs, groups, strict=True):
        if name in shown:
            words = [name, *([group] if group else []), f"{label(options['x'])}: {quantity(x, unit)}"]
            words += [f"interval: {quantity(low, unit)} to {quantity(high, unit)}"] if ends else []
            at = {"x": scale(x), "low": scale(low), "high": scale(high)}
            values.append({"name": short(name), **at, "group": group, "tip": "\n".join(words)})
    axis = {"title": scale.title(label(options["x"])), "tickCount": 6}
    common = {
        "y": {"field": "name", "type": "nominal", "sort": None, "axis": names_axis()},
        "color": {"field": "group", "type": "nominal", "scale": colours(sorted(set(groups))),
                  "legend": legend() if "color" in options else None},
        "tooltip": {"field": "tip"},
    }  # fmt: skip
    bar = {"x": {"field": "low", "type": "quantitative", "axis": axis}, "x2": {"field": "high"}}
    point = {"x": {"field": "x", "type": "quantitative", "axis": axis}}
    spec = {
        "data": {"values": values},
        "height": {"step": 24},
        "layer": [
            *([{"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {**common, **bar}}] if ends else []),
            {"mark": {"type": "point", "filled": True, "size": 60}, "encoding": {**common, **point}},
        ],
    }
    what = f"{label(options['x'])} of {len(shown)} rows" + (", with intervals" if ends else "")
    return Figure(spec, what[0].upper() + what[1:])
