"""An icicle: a flame graph that grows downwards from the roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyze.plots.figure import Figure, Rows, RunQuery, Scale, cut, family, label, legend, quantity, short
from analyze.plots.theme import FAMILIES, colours

OPTIONS = {
    "name": "column with the name of a node; rows are in the order of the tree",
    "depth": "column with its level in the tree",
    "path": "instead of both: column with the path from the root, separated by ` > `",
    "value": "column with the width: with `depth` including children, with `path` without them",
    "before": "column to compare with: red is more, green is less",
    "kind": "column with the kind of a node, for the colour",
    "least": "leave out nodes below this share of the whole (%)",
}
SUMS = "value"
"""Option with the columns that `per` divides."""
_SEPARATOR = " > "
_ROW = 19
_DEEPEST = 26


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw the nodes. In a page, a click on a node zooms in."""
    measure = options["value"]
    unit = rows.unit(measure)
    nodes = _tree(rows, options) if "depth" in options else _from_paths(rows, options)
    whole = sum(n["wide"] for n in nodes if n["depth"] == 0)
    if not whole:
        return None
    least = float(options.get("least", "0.15")) / 100 * whole
    kept = [n for n in nodes if n["wide"] >= least and n["wide"] > 0 and n["depth"] <= _DEEPEST]
    scale = Scale.of([whole], unit)
    differs = "before" in options
    values = [_node(n, whole, scale, unit, measure, differs) for n in kept]
    deepest = max((n["depth"] for n in kept), default=0)
    if differs:
        limit = max((abs(v["change"]) for v in values), default=1.0) or 1.0
        color: dict[str, Any] = {
            "field": "change", "type": "quantitative",
            "scale": {"domain": [-limit, 0, limit], "range": ["#2f9e58", "#8d949e", "#d6493f"], "interpolate": "rgb"},
            "legend": {"title": f"change of {label(measure)} ({scale.unit})", "orient": "top", "gradientLength": 180,
                       "gradientThickness": 10},
        }  # fmt: skip
    else:
        groups = list(dict.fromkeys(v["group"] for v in values))
        groups.sort(key=lambda g: (g in FAMILIES, g))
        color = {"field": "group", "type": "nominal", "scale": colours(groups), "legend": legend()}
    axis: dict[str, Any] | None = {
        "title": scale.title(label(measure) + rows.per), "grid": False, "tickCount": {"expr": "max(2, width / 110)"},
    }  # fmt: skip
    if differs:
        axis = None  # The widths add up to more than the time of either side.
    x = {"type": "quantitative", "scale": {"domain": {"expr": "[zoom_from, zoom_to]"}, "nice": False, "clamp": True}}
    y = {"type": "quantitative", "scale": {"domain": [0, deepest + 1], "reverse": True, "nice": False}}
    room = "(scale('x', datum.b) - scale('x', datum.a))"
    spec = {
        "params": [{"name": "zoom_from", "value": 0}, {"name": "zoom_to", "value": scale(whole)}],
        "usermeta": {"zoom": {"from": "zoom_from", "to": "zoom_to", "whole": [0, scale(whole)]}},
        "data": {"values": values},
        "height": (deepest + 1) * _ROW,
        "layer": [
            {
                "mark": {"type": "rect", "stroke": {"expr": "paper"}, "strokeWidth": 0.7, "cornerRadius": 1,
                         "cursor": "pointer", "clip": True},
                "encoding": {
                    "x": x | {"field": "a", "axis": axis},
                    "x2": {"field": "b"},
                    "y": y | {"field": "top", "axis": None}, "y2": {"field": "bottom"},
                    "color": color, "tooltip": {"field": "tip"},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 4, "fontSize": 11, "clip": True,
                         "color": "#ffffff", "limit": {"expr": f"max(0, {room} - 7)"},
                         "opacity": {"expr": f"{room} > 34 ? 1 : 0"}, "cursor": "pointer"},
                "encoding": {
                    "x": x | {"field": "a"}, "y": y | {"field": "middle"}, "text": {"field": "name"},
                    "tooltip": {"field": "tip"},
                },
            },
        ],
    }  # fmt: skip
    notes = [] if len(kept) == len(nodes) else [f"Showing the {len(kept):,} widest of {len(nodes):,} nodes."]
    total = f"{quantity(whole, unit)} in total"
    if differs:
        before, now = (sum(n[side] for n in nodes if n["depth"] == 0) for side in ("before", "now"))
        total = f"{quantity(before, unit)} before and {quantity(now, unit)} now in total"
        notes.append(f"A node is as wide as the larger of its two times; {total}.")
    roots = sorted((n for n in nodes if n["depth"] == 0), key=lambda n: -n["wide"])[:4]
    said = ", ".join(f"{cut(n['name'], 60)} {quantity(n['wide'], unit)}" for n in roots)
    alt = f"Call tree by {label(measure)}{rows.per}, {total}, {deepest + 1} levels; roots: {said}"
    return Figure(spec, alt, tuple(notes))


def _node(n: dict[str, Any], whole: float, scale: Scale, unit: str, measure: str, differs: bool) -> dict[str, Any]:
    tip = [cut(n["name"]), f"{label(measure)}: {quantity(n['wide'], unit)} ({100 * n['wide'] / whole:.1f} %)"]
    if differs:
        tip.append(f"before: {quantity(n['before'], unit)}")
    if n["calls"] is not None:
        tip.append(f"{n['calls']:,} calls")
    made = {
        "a": scale(n["start"]), "b": scale(n["start"] + n["wide"]), "top": n["depth"], "bottom": n["depth"] + 1,
        "middle": n["depth"] + 0.5, "name": short(n["name"], 80), "tip": "\n".join(tip),
    }  # fmt: skip
    if differs:
        return made | {"change": scale(n["now"] - n["before"])}
    return made | {"group": family(n["name"]) if n["kind"] == "kernel" else n["kind"]}


def _tree(rows: Rows, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return nodes of rows in the order of the tree; a node starts after its previous sibling."""
    names = [str(v).lstrip(" ") for v in rows.values(options["name"])]
    kinds = rows.values(options["kind"]) if "kind" in options else ["call"] * len(names)
    calls = rows.values("calls") if rows.has("calls") else [None] * len(names)
    free = [0.0]
    nodes = []
    for name, depth, wide, kind, n in zip(
        names, rows.values(options["depth"]), rows.numbers(options["value"]), kinds, calls, strict=True
    ):
        start = free[depth]
        free[depth:] = [start + wide, start]
        nodes.append({"name": name, "depth": depth, "start": start, "wide": wide, "kind": kind, "calls": n})
    return nodes


def _from_paths(rows: Rows, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return nodes of paths with self values; a node is as wide as the larger of both sides with its children."""
    own: dict[tuple[str, ...], list[float]] = {}
    befores = rows.numbers(options["before"]) if "before" in options else [0.0] * len(rows.rows)
    for path, now, before in zip(rows.values(options["path"]), rows.numbers(options["value"]), befores, strict=True):
        parts = tuple(str(path).split(_SEPARATOR))
        for depth in range(1, len(parts) + 1):
            found = own.setdefault(parts[:depth], [0.0, 0.0])
            found[0] += now
            found[1] += before
    below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for key in own:
        below.setdefault(key[:-1], []).append(key)
    width: dict[tuple[str, ...], float] = {}
    for key in sorted(own, key=len, reverse=True):
        width[key] = max(*own[key], sum(width[k] for k in below.get(key, ())))
    nodes: list[dict[str, Any]] = []
    left: list[tuple[tuple[str, ...], float]] = []

    def push(parent: tuple[str, ...], start: float) -> None:
        ordered = sorted(below.get(parent, ()), key=lambda k: (-width[k], k))
        for key in ordered:
            left.append((key, start))
            start += width[key]

    push((), 0.0)
    while left:
        key, start = left.pop()
        now, before = own[key]
        nodes.append({"name": key[-1], "depth": len(key) - 1, "start": start, "wide": width[key], "kind": "call",
                      "calls": None, "now": now, "before": before})  # fmt: skip
        push(key, start)
    return nodes
