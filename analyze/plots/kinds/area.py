"""An area chart: amounts over time, with a line for each of several pools, and the phases above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, label, legend, places, quantity
from analyze.plots.theme import colours

OPTIONS = {
    "x": "column with the time",
    "y": "columns with the amounts; the first is filled",
    "by": "columns that identify a pool",
    "bands": "query with rows (rank, phase, start_ns, dur_ns) to show above",
    "top": "show at most this many pools, the largest",
}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw steps: an amount is constant until it changes."""
    x, ys = options["x"], options["y"].split(",")
    by = options.get("by", "").split(",") if "by" in options else []
    pool_of = places(rows, by)
    largest: dict[str, float] = {}
    for pool, value in zip(pool_of, rows.numbers(ys[0]), strict=True):
        largest[pool] = max(largest.get(pool, 0), value)
    # Leave out pools that would be a line on the axis.
    seen = [p for p in largest if largest[p] >= 0.005 * max(largest.values())]
    pools = sorted(seen, key=lambda p: -largest[p])[: int(options.get("top", "8"))]
    unit = rows.unit(ys[0])
    times = Scale.of(rows.numbers(x), rows.unit(x))
    shown = [m for m in (ys if len(pools) == 1 else ys[:1]) if any(rows.numbers(m))]
    if not shown:
        return None
    amounts = Scale.of((v for m in shown for v in rows.numbers(m)), unit)
    values: list[dict[str, Any]] = []
    for i, (pool, at) in enumerate(zip(pool_of, rows.numbers(x), strict=True)):
        for m in shown:
            value = rows.rows[i][rows.at(m)]
            if pool in pools and value is not None:
                series = label(m) if len(pools) == 1 else pool
                tip = f"{pool}\n{label(m)}: {quantity(value, unit)}\nat {quantity(at, rows.unit(x))}"
                values.append({"x": times(at), "y": amounts(value), "series": series, "tip": tip})
    names = list(dict.fromkeys(v["series"] for v in values))
    axis_x = {"title": times.title("time"), "grid": False, "tickCount": {"expr": "max(2, width / 110)"}}
    base = {
        "x": {"field": "x", "type": "quantitative", "axis": axis_x, "scale": {"nice": False}},
        "y": {"field": "y", "type": "quantitative", "stack": None,
              "axis": {"title": amounts.title("memory" if unit == "B" else _in_common(shown)), "tickCount": 5}},
    }  # fmt: skip
    key = legend(offset=28, symbolOpacity=1)
    series_color = {"color": {"field": "series", "type": "nominal", "scale": colours(names), "legend": key}}
    layers: list[dict[str, Any]] = [{"layer": [
        {"mark": {"type": "area", "interpolate": "step-after", "opacity": 0.16},
         "transform": [{"filter": {"field": "series", "equal": names[0]}}] if len(pools) == 1 else [],
         "encoding": base | series_color},
        {"mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.6},
         "encoding": base | series_color},
        {"mark": {"type": "rule", "strokeWidth": 9, "opacity": 0},
         "encoding": {"x": base["x"], "tooltip": {"field": "tip"}}},
    ]}]  # fmt: skip
    if "bands" in options and by and len({p for p in pool_of}) <= 4:
        layers = [*_bands(run_query(options["bands"]), times, max(rows.numbers(x))), *layers]
    top = pools[0]
    alt = f"{label(ys[0])} over time; the maximum is {quantity(largest[top], unit)} ({top})"
    notes = () if len(pools) == len(largest) else (f"Showing the {len(pools)} largest of {len(largest)} pools.",)
    return Figure({"data": {"values": values}, "height": 240, "layer": layers,
                   "resolve": {"scale": {"color": "independent"}}}, alt, notes)  # fmt: skip


def _in_common(measures: Sequence[str]) -> str:
    """Return the common ending of the names of measures: depth for max_depth and avg_depth."""
    words = [label(m).split() for m in measures]
    same = [ends[0] for ends in zip(*(reversed(w) for w in words), strict=False) if len(set(ends)) == 1]
    return " ".join(reversed(same)) or label(measures[0])


def _bands(rows: Rows, times: Scale, end: float) -> list[dict[str, Any]]:
    """Return the phases of the first rank as coloured bars."""
    if not rows.rows or len(rows.rows) > 400:
        return []
    first = rows.rows[0][rows.at("rank")]
    values = []
    for row in rows.rows:
        at, length = row[rows.at("start_ns")], row[rows.at("dur_ns")]
        if row[rows.at("rank")] == first and at < end and at + length > 0:
            phase = row[rows.at("phase")]
            tip = f"{phase}\n{quantity(length, 'ns')} on the CPU"
            values.append({"a": times(max(0, at)), "b": times(min(end, at + length)), "phase": phase, "tip": tip})
    names = list(dict.fromkeys(v["phase"] for v in values))
    return [{
        "data": {"values": values},
        "mark": {"type": "rect", "opacity": 0.85, "height": 8, "yOffset": -4},
        "encoding": {
            "x": {"field": "a", "type": "quantitative"}, "x2": {"field": "b"},
            "y": {"value": 0},
            "color": {"field": "phase", "type": "nominal", "scale": colours(names), "legend": legend(offset=28)},
            "tooltip": {"field": "tip"},
        },
    }]  # fmt: skip
