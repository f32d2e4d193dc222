"""Lines: a measure over a number, with a line for each series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, label, legend, place, quantity
from analyze.plots.theme import colours

OPTIONS = {
    "x": "column of numbers along the axis",
    "y": "column with the measure",
    "color": "columns that identify a series",
    "ideal": "`x`: draw the line y = x",
    "top": "show at most this many series, the largest",
}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw a point for each row, connected in the order of x."""
    x, y = options["x"], options["y"]
    series = options["color"].split(",") if "color" in options else []
    unit = rows.unit(y)
    found: dict[str, list[tuple[float, float]]] = {}
    columns = [(c, rows.values(c)) for c in series]
    for name in (x, y):
        rows.numbers(name)  # Raises InputError for other values.
    for i, (at, value) in enumerate(zip(rows.values(x), rows.values(y), strict=True)):
        if at is not None and value is not None:
            parts = [place(name, c[i]) for name, c in columns if c[i] is not None]
            found.setdefault(", ".join(parts) or label(y), []).append((at, value))
    if not found:
        return None
    top = int(options.get("top", "12"))
    kept = sorted(found, key=lambda n: -max((v for _, v in found[n]), default=0))[:top]
    scale = Scale.of((v for n in kept for _, v in found[n]), unit)
    values = [
        {"x": at, "y": scale(v), "series": n, "tip": f"{n}\n{label(x)} {at}\n{label(y)}: {quantity(v, unit)}"}
        for n in kept
        for at, v in sorted(found[n])
    ]
    xs = sorted({at for n in kept for at, _ in found[n]})
    axis: dict[str, Any] = {"title": label(x), "grid": False, "tickMinStep": 1, "format": "~f"}
    axis |= {"values": xs} if len(xs) <= 10 else {}
    layers: list[dict[str, object]] = [
        {
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 60}},
            "encoding": {
                "x": {"field": "x", "type": "quantitative", "axis": axis, "scale": {"nice": False, "padding": 12}},
                "y": {"field": "y", "type": "quantitative", "axis": {"title": scale.title(label(y)), "tickCount": 6}},
                "color": {"field": "series", "type": "nominal", "scale": colours(kept),
                          "legend": legend(offset=28) if len(kept) > 1 else None},
                "tooltip": {"field": "tip"},
            },
        }
    ]  # fmt: skip
    if options.get("ideal") == "x" and xs:
        ends = [{"x": xs[0], "y": xs[0]}, {"x": xs[-1], "y": xs[-1]}]
        layers.insert(
            0,
            {
                "data": {"values": ends},
                "mark": {"type": "line", "strokeDash": [5, 4], "color": {"expr": "soft"}, "strokeWidth": 1},
                "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
            },
        )
    notes = () if len(kept) == len(found) else (f"Showing the {len(kept)} highest of {len(found)} series.",)
    highest = kept[0]
    at, best = max(found[highest], key=lambda p: p[1])
    alt = f"Lines of {label(y)} over {label(x)}, {len(kept)} series; the highest is {quantity(best, unit)} of {highest}"
    return Figure({"data": {"values": values}, "height": 280, "layer": layers}, f"{alt} at {at:g}", notes)
