"""A matrix: transfers between pairs; darker cells are larger."""

from __future__ import annotations

from collections.abc import Mapping

from analyze.plots.figure import Figure, Rows, RunQuery, label, names_axis, quantity

OPTIONS = {
    "x": "column with the destination",
    "y": "column with the source",
    "value": "column with the amount",
}
_MOST = 64


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw a cell for each pair, with the sum of its rows. Large matrices show the first rows and columns."""
    unit = rows.unit(options["value"])
    sums: dict[tuple[str, str], float] = {}
    names = (map(str, rows.values(options[side])) for side in ("y", "x"))
    for source, target, value in zip(*names, rows.values(options["value"]), strict=True):
        if value is not None:
            sums[source, target] = sums.get((source, target), 0) + float(value)
    if not any(sums.values()):
        return None
    sources, targets = ([*dict.fromkeys(pair[i] for pair in sums)] for i in (0, 1))
    values = [
        {"from": s, "to": t, "v": v, "shown": quantity(v, unit),
         "tip": f"{label(options['y'])} {s}, {label(options['x'])} {t}: {quantity(v, unit)}"}
        for (s, t), v in sums.items() if s in sources[:_MOST] and t in targets[:_MOST]
    ]  # fmt: skip
    title = f"{label(options['y'])} (rows) to {label(options['x'])} (columns)"
    axes = {
        "x": {"field": "to", "type": "nominal", "scale": {"domain": targets[:_MOST]},
              "axis": names_axis(title, labelAngle=0, orient="top")},
        "y": {"field": "from", "type": "nominal", "scale": {"domain": sources[:_MOST]},
              "axis": names_axis()},
        "tooltip": {"field": "tip"},
    }  # fmt: skip
    cells = {
        "mark": {"type": "rect"},
        "encoding": {"opacity": {"field": "v", "type": "quantitative", "scale": {"domainMin": 0, "range": [0.05, 0.6]},
                                 "legend": None}},
    }  # fmt: skip
    said = {"mark": {"type": "text", "color": {"expr": "ink"}}, "encoding": {"text": {"field": "shown"}}}
    spec = {
        "data": {"values": values},
        "height": {"step": max(10, min(44, 700 // len(sources[:_MOST])))},
        "encoding": axes,
        "layer": [cells, *([said] if len(targets) <= 8 else [])],
    }  # fmt: skip
    most = max(sums, key=lambda pair: sums[pair])
    alt = (
        f"{label(options['value'])} from {len(sources)} to {len(targets)}; most from {most[0]} to {most[1]}:"
        f" {quantity(sums[most], unit)}"
    )
    cut = max(len(sources), len(targets)) > _MOST
    return Figure(spec, alt, (f"Showing the first {_MOST} rows and columns.",) if cut else ())
