"""A histogram of classes with given bounds."""

from __future__ import annotations

from collections.abc import Mapping

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, cut, label, legend, quantity
from analyze.plots.theme import colours

OPTIONS = {
    "x": "column with the lower bound of a class",
    "x2": "column with its upper bound",
    "y": "column with the height",
    "color": "column for the colour; its values are stacked",
}
SUMS = "y"
"""Option with the columns that `per` divides."""


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw a column for each class."""
    lows, highs, heights = (rows.numbers(options[k]) for k in ("x", "x2", "y"))
    groups = [cut(str(v or "(none)"), 40) for v in rows.values(options["color"])] if "color" in options else None
    unit, height_unit = rows.unit(options["x"]), rows.unit(options["y"])
    sums: dict[float, float] = {}
    for low, height in zip(lows, heights, strict=True):
        sums[low] = sums.get(low, 0) + height
    if not any(sums.values()):
        return None
    tall = Scale.of(sums.values(), height_unit)
    classes = {low: f"{quantity(low, unit)} to {quantity(high, unit)}" for low, high in zip(lows, highs, strict=True)}
    order = sorted(classes)
    ticks = {low: quantity(low, unit) for low in order}
    upper = dict(zip(lows, highs, strict=True))
    domain: list[str] = []
    for turn, low in enumerate(order):
        # One unnamed place for empty classes.
        if turn and upper[order[turn - 1]] < low:
            domain.append("\N{HORIZONTAL ELLIPSIS}" + " " * turn)
        domain.append(ticks[low])
    values = [
        {"x": ticks[low], "y": tall(height), "turn": i, "group": groups[i] if groups else label(options["y"]),
         "tip": "\n".join([*([groups[i]] if groups else []), classes[low],
                           f"{label(options['y'])}: {quantity(height, height_unit)}"])}
        for i, (low, height) in enumerate(zip(lows, heights, strict=True))
        if height
    ]  # fmt: skip
    totals: dict[str, float] = {}
    for v in values:
        totals[str(v["group"])] = totals.get(str(v["group"]), 0) + float(v["y"] or 0)
    names = sorted(totals, key=lambda n: -totals[n])
    measure = label(options["x"]).removeprefix("min ")
    spec = {
        "data": {"values": values},
        "height": 220,
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "x", "type": "ordinal", "sort": None, "scale": {"domain": domain, "paddingInner": 0.06},
                  "axis": {"title": f"{measure}, from", "labelAngle": 0, "labelOverlap": "greedy"}},
            "y": {"field": "y", "type": "quantitative",
                  "axis": {"title": tall.title(label(options["y"]) + rows.per), "tickCount": 5}},
            "color": {"field": "group", "type": "nominal", "scale": colours(names),
                      "legend": legend(offset=28) if groups else None},
            "tooltip": {"field": "tip"},
        },
    }  # fmt: skip
    peak = max(sums, key=lambda k: sums[k])
    alt = f"Histogram of {measure}; most {label(options['y'])} is in {classes[peak]}"
    return Figure(spec, alt)
