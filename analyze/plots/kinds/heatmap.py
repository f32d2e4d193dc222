"""A heat map: shares over time, a row for each lane, a block of rows for each measure."""

from __future__ import annotations

from collections.abc import Mapping

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, label, legend, names_axis, places
from analyze.plots.theme import colours

OPTIONS = {
    "x": "column with the start of a cell",
    "y": "columns that identify a lane",
    "value": "columns with shares in %, one block of lanes each",
    "width": "column with the length of a cell",
    "top": "show at most this many lanes",
}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw cells: the colour is the measure, its opacity the share. Measures that are always 0 are left out."""
    lanes, measures = options["y"].split(","), options["value"].split(",")
    measures = [m for m in measures if any(rows.numbers(m))] or measures[:1]
    starts, lengths = rows.numbers(options["x"]), rows.numbers(options["width"])
    scale = Scale.of((s + n for s, n in zip(starts, lengths, strict=True)), rows.unit(options["x"]))
    lane_of = places(rows, lanes)
    named = list(dict.fromkeys(lane_of))
    most = int(options.get("top", "128"))
    shown = named[:most]
    mean: dict[tuple[str, str], float] = {}
    values = []
    for measure in measures:
        of_lane: dict[str, list[tuple[float, float]]] = {}
        for i, share in enumerate(rows.numbers(measure)):
            of_lane.setdefault(lane_of[i], []).append((share, lengths[i]))
            if share and lane_of[i] in shown:
                values.append({
                    "a": scale(starts[i]), "b": scale(starts[i] + lengths[i]), "lane": f"{measure} {lane_of[i]}",
                    "what": label(measure), "v": round(share, 1),
                    "tip": f"{lane_of[i]}\n{label(measure)}: {share:.1f} %\nfrom {scale(starts[i]):g} {scale.unit}",
                })  # fmt: skip
        for lane, cells in of_lane.items():
            mean[measure, lane] = sum(v * n for v, n in cells) / (sum(n for _, n in cells) or 1)
    order = [f"{m} {lane}" for m in measures for lane in shown]
    step = max(4, min(22, 900 // len(order)))
    names = [label(m) for m in measures]
    axis = names_axis() | {"labelExpr": "slice(datum.value, indexof(datum.value, ' ') + 1)"}
    spec = {
        "data": {"values": values},
        "height": {"step": step},
        "mark": {"type": "rect"},
        "encoding": {
            "x": {"field": "a", "type": "quantitative", "scale": {"nice": False, "zero": False},
                  "axis": {"title": scale.title("time"), "grid": False, "tickCount": {"expr": "max(2, width / 110)"}}},
            "x2": {"field": "b"},
            "y": {"field": "lane", "type": "nominal", "scale": {"domain": order, "padding": 0.08}, "axis": axis},
            "color": {"field": "what", "type": "nominal", "scale": colours(names), "legend": legend()},
            "opacity": {"field": "v", "type": "quantitative", "scale": {"domain": [0, 100], "range": [0.06, 1]},
                        "legend": None},
            "tooltip": {"field": "tip"},
        },
    }  # fmt: skip
    alt = "Share of time per lane. " + "; ".join(
        f"{label(m)}: " + ", ".join(f"{lane} {mean[m, lane]:.1f} %" for lane in shown[:8]) for m in measures
    )
    notes = () if len(named) == len(shown) else (f"Showing the first {len(shown)} of {len(named)} lanes.",)
    return Figure(spec, alt, notes)
