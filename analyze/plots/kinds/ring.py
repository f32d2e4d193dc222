"""A ring chart: parts of a whole, with shares in the legend."""

from __future__ import annotations

from collections.abc import Mapping

from analyze.plots.figure import Figure, Rows, RunQuery, cut, label, legend, quantity
from analyze.plots.theme import colours

OPTIONS = {
    "value": "column with the size of a part",
    "color": "column that names a part",
    "top": "show at most this many parts",
}
SUMS = "value"
"""Option with the columns that `per` divides."""


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw the largest parts first, clockwise from the top; the rest is one part."""
    measure, color, top = options["value"], options["color"], int(options.get("top", "10"))
    unit = rows.unit(measure)
    named = zip(rows.values(color), rows.numbers(measure), strict=True)
    parts = sorted(((cut(str(n or "(none)"), 40), v) for n, v in named if v > 0), key=lambda p: -p[1])
    if not parts:
        return None
    rest = parts[top:]
    if len(rest) > 1:
        parts = [*parts[:top], (f"{len(rest)} more", sum(v for _, v in rest))]
    total = sum(v for _, v in parts)
    shares = [f"{n}  {100 * v / total:.1f} %" for n, v in parts]
    scale = colours(n for n, _ in parts)
    values = [
        {
            "part": s,
            "turn": i,
            "value": v,
            "tip": f"{n}\n{label(measure)}: {quantity(v, unit)}\n{100 * v / total:.1f} %",
        }
        for i, ((n, v), s) in enumerate(zip(parts, shares, strict=True))
    ]
    spec = {
        "data": {"values": values},
        "height": 250,
        "layer": [
            {
                "mark": {"type": "arc", "innerRadius": {"expr": "0.62 * min(118, width / 2 - 4)"},
                         "outerRadius": {"expr": "min(118, width / 2 - 4)"}, "padAngle": 0.008},
                "encoding": {
                    "theta": {"field": "value", "type": "quantitative", "stack": True},
                    "order": {"field": "turn"},
                    "color": {"field": "part", "type": "nominal", "sort": None,
                              "scale": {"domain": shares, "range": scale["range"]},
                              "legend": legend(orient="right", columns=1)},
                    "tooltip": {"field": "tip"},
                },
            },
            {"data": {"values": [{"said": quantity(total, unit)}]},
             "mark": {"type": "text", "fontSize": 20, "fontWeight": 600, "dy": -4},
             "encoding": {"text": {"field": "said"}}},
            {"data": {"values": [{"said": [label(measure), rows.per.strip()]}]},
             "mark": {"type": "text", "color": {"expr": "soft"}, "dy": 16},
             "encoding": {"text": {"field": "said"}}},
        ],
    }  # fmt: skip
    alt = f"Ring of {label(measure)}{rows.per}, {quantity(total, unit)} in {len(parts)} parts: " + ", ".join(shares[:6])
    return Figure(spec, alt)
