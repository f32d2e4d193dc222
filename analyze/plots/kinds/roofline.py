"""The roofline: FLOP/s over FLOP/byte of kernels, under the roofs of their GPU (queries `roofline` and `roofs`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from analyze.errors import InputError
from analyze.plots.figure import Figure, Rows, RunQuery, cut, legend, quantity, si
from analyze.plots.roofs import LEVEL_NAMES, LEVELS, Point, Roof, Roofline
from analyze.plots.theme import WIDTH, colours
from schemas.kernel_rules import classify

OPTIONS: dict[str, str] = {}

_HEIGHT = 470
_SMALLEST, _LARGEST = 24.0, 1400.0
"""Areas of points, in square px."""
_SAME_PLACE = 13.0
"""Distance in px below which the numbers of two points would overlap."""
_NAME_LENGTH = 64
_SHAPES = {"dram": "circle", "l2": "square", "l1": "triangle-up"}


def draw(rows: Rows, options: Mapping[str, str], run_query: RunQuery) -> Figure | None:
    """Draw points whose area is their share of the time; the longest are numbered and listed."""
    data = read(rows, run_query)
    title = f"{data.title}. {len(data.points)} points under {len(data.compute) + len(data.memory)} roofs"
    alt = "; ".join([title, *(f"{roof.label} {_rate(roof, data)}" for roof in data.compute + data.memory)])
    return Figure(_spec(data), alt, (data.note,), tuple(_listed(data)))


def read(rows: Rows, run_query: RunQuery) -> Roofline:
    """Return the data of the figure. Raises InputError without kernels, or with several GPUs."""
    found = sorted(rows.dicts(), key=lambda r: (-r["dur_ns"], r["kernel"], r["run_id"], r["level"]))
    run_ids = {r["run_id"] for r in found}
    runs = [r for r in run_query("runs").dicts() if r["run_id"] in run_ids]
    gpus = sorted({str(r["gpu_name"]) for r in runs if r["gpu_name"]})
    if len(gpus) > 1:
        raise InputError(
            f"plot roofline: the runs are of several GPUs ({', '.join(gpus)}); choose one: --where \"gpu_name = '...'\""
        )
    placed = [r for r in found if (r["flops"] or 0) > 0 and (r["bytes"] or 0) > 0]
    if not placed:
        raise InputError("plot roofline: no kernel has both FLOPs and bytes")
    if len(run_ids) > 1 and len({(r["kernel"], r["level"]) for r in found}) < len(found):
        # Several runs: add the run to the name of each kernel.
        for r in found:
            r["kernel"] = f"{r['kernel']} ({r['run_id']})"
    points = [Point(**{name: r[name] for name in Point.__dataclass_fields__}) for r in placed]
    roofs = run_query("roofs")
    levels = sorted({p.level for p in points}, key=LEVELS.index)
    # A point of a level without a roof would look as if it were above the roof of another level.
    roofed = [m.name for m in _highest(roofs, "gb_per_s", 1e9, set(levels))]
    shown = [level for level in levels if level in roofed] or levels[:1]
    without_roof = [level for level in levels if level not in shown]
    points, levels = [p for p in points if p.level in shown], shown
    at_first = [r for r in found if r["level"] == levels[0]]
    unplaced = [r for r in at_first if r not in placed]
    return Roofline(
        title=_title(runs, gpus),
        points=points,
        compute=_highest(roofs, "flops_per_s", 1.0, {p.peak_roof for p in points} | {"fp32"}),
        memory=_highest(roofs, "gb_per_s", 1e9, set(levels)),
        total_ns=sum(r["dur_ns"] for r in at_first),
        without_roof=without_roof,
        unplaced=len(unplaced),
        unplaced_ns=sum(r["dur_ns"] for r in unplaced),
    )


def _highest(rows: Rows, column: str, factor: float, names: set[str]) -> list[Roof]:
    found: dict[str, Roof] = {}
    sources = rows.values("source")
    for name, rate, source in zip(rows.values("roof"), rows.values(column), sources, strict=True):
        if isinstance(rate, float) and name in names and (name not in found or rate * factor > found[name].rate):
            found[name] = Roof(name, rate * factor, str(source))
    return sorted(found.values(), key=lambda r: r.rate)


def _title(runs: list[dict[str, Any]], gpus: list[str]) -> str:
    settings = {(r["model"], r["batch_size"], r["precision"]) for r in runs}
    model, batch_size, precision = next(iter(settings)) if len(settings) == 1 else (None, None, None)
    what = [model, f"batch {batch_size}" if batch_size else None, precision]
    named = " ".join(str(w) for w in what if w) or (runs[0]["run_id"] if len(runs) == 1 else f"{len(runs)} runs")
    return cut(f"Roofline: {named}" + (f" on {gpus[0]}" if gpus else ""), 120)


def _rate(roof: Roof, data: Roofline) -> str:
    return si(roof.rate, "B/s" if roof in data.memory else "FLOP/s")


def _share(p: Point, data: Roofline) -> float:
    return 100 * p.dur_ns / data.total_ns if data.total_ns else 0.0


def _area(p: Point, data: Roofline) -> float:
    return max(_SMALLEST, _LARGEST * _share(p, data) / 100)


def _spec(data: Roofline) -> dict[str, Any]:
    x0, x1, y0, y1 = data.limits
    log = {"type": "log", "nice": False, "clamp": True}
    x = {"type": "quantitative", "scale": log | {"domain": [x0, x1]}, "axis": {
        "title": "arithmetic intensity (FLOP/byte)", "values": _decades(x0, x1), "labelOverlap": "greedy",
        "labelExpr": "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"}}  # fmt: skip
    y = {"type": "quantitative", "scale": log | {"domain": [y0, y1]}, "axis": {
        "title": "rate", "values": _decades(y0, y1), "labelOverlap": "greedy",
        "labelExpr": "replace(format(datum.value, '~s'), /([0-9]+)/, '$1 ') + 'FLOP/s'"}}  # fmt: skip
    # Angle of a line with y proportional to x, at the drawn size.
    across, up = math.log10(x1 / x0), math.log10(y1 / y0)
    angle = {"expr": f"-atan((height / {up:.6g}) / (width / {across:.6g})) * 180 / PI"}
    said = {"type": "text", "fontSize": 11, "color": {"expr": "ink"}, "tooltip": False}
    points = [_point(p, data) for p in data.points]
    levels = [m.name for m in data.memory] or list(dict.fromkeys(p.level for p in data.points))
    levels_key = legend(offset=28, symbolFillColor={"expr": "soft"})
    roofs, memory_labels, compute_labels = _roofs(data)
    return {
        "height": _HEIGHT,
        "encoding": {"x": x | {"field": "x"}, "y": y | {"field": "y"}},
        "resolve": {"scale": {"color": "shared"}},
        "layer": [
            {"data": {"values": roofs}, "mark": {"type": "line", "strokeWidth": 1.5, "color": {"expr": "soft"}},
             "encoding": {"detail": {"field": "roof"}}},
            {"data": {"values": points},
             "mark": {"type": "point", "filled": True, "fillOpacity": 0.78, "stroke": {"expr": "paper"},
                      "strokeWidth": 0.8, "opacity": 1},
             "encoding": {
                 "size": {"field": "area", "type": "quantitative", "scale": None, "legend": None},
                 "shape": {"field": "level", "type": "nominal", "title": None,
                           "scale": {"domain": [LEVEL_NAMES[n] for n in levels],
                                     "range": [_SHAPES[n] for n in levels]},
                           "legend": levels_key if len(levels) > 1 else None},
                 "color": {"field": "family", "type": "nominal", "scale": colours(data.families),
                           "legend": legend(offset=28)},
                 "order": {"field": "turn"},
                 "tooltip": {"field": "tip"}}},
            {"data": {"values": memory_labels},
             "mark": said | {"align": "left", "baseline": "bottom", "angle": angle, "dy": -4},
             "encoding": {"text": {"field": "said"}}},
            {"data": {"values": compute_labels},
             "mark": said | {"align": "right", "baseline": "bottom", "dx": -4, "dy": -3},
             "encoding": {"text": {"field": "said"}}},
            *_numbers(data, said),
        ],
    }  # fmt: skip


def _decades(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _roofs(data: Roofline) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the ends of the roof lines, and the labels of memory and compute roofs."""
    x0, x1, y0, _ = data.limits
    if not data.compute:
        return [], [], []
    top = data.compute[-1].rate
    lines, along, above = [], [], []
    for i, roof in enumerate(data.memory):
        start, end = max(x0, y0 / roof.rate), top / roof.rate
        lines += [{"x": v, "y": v * roof.rate, "roof": roof.name} for v in (start, end)]
        at = start * (end / start) ** (0.06 + 0.02 * i)
        along.append({"x": at, "y": at * roof.rate, "said": f"{roof.label} {si(roof.rate, 'B/s')}"})
    fastest = max((m.rate for m in data.memory), default=0.0)
    for roof in data.compute:
        start = max(x0, roof.rate / fastest) if fastest else x0
        lines += [{"x": v, "y": roof.rate, "roof": roof.name} for v in (start, x1)]
        same = [r.label for r in data.compute if r.rate == roof.rate]
        if roof.label == same[0]:
            above.append({"x": x1, "y": roof.rate, "said": f"{', '.join(same)} {si(roof.rate, 'FLOP/s')}"})
    return lines, along, above


def _point(p: Point, data: Roofline) -> dict[str, Any]:
    tip = [
        cut(p.kernel),
        f"{p.family}, {p.launches:,} launches, {quantity(p.dur_ns, 'ns')} ({_share(p, data):.1f} % of the time)",
        f"{si(p.flops_per_s, 'FLOP/s')} at {p.flops_per_byte:.3g} FLOP/byte of {LEVEL_NAMES[p.level]}",
        f"{si(p.flops, 'FLOP')}, {si(p.bytes, 'B')}",
    ]
    if p.roof_pct is not None:
        tip.append(f"{p.roof_pct:.3g} % of its roof ({p.bound}, {p.peak_roof.replace('_', ' ')})")
    return {
        "x": p.flops_per_byte, "y": p.flops_per_s, "area": round(_area(p, data), 1), "family": p.family,
        "level": LEVEL_NAMES[p.level], "turn": -p.dur_ns, "tip": "\n".join(tip),
    }  # fmt: skip


def _numbers(data: Roofline, said: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of the points: inside large ones, else next to them."""
    inside: list[dict[str, Any]] = []
    outside: list[dict[str, Any]] = []
    for numbers, p in _together(data):
        radius = math.sqrt(_area(p, data) / math.pi)
        label = {"x": p.flops_per_byte, "y": p.flops_per_s, "said": _ranges(numbers), "dx": round(radius + 3, 1)}
        (inside if radius > 9 and len(numbers) == 1 else outside).append(label)
    text = {"text": {"field": "said"}}
    return [
        {"data": {"values": inside}, "mark": said | {"color": "#ffffff", "fontWeight": "bold"}, "encoding": text},
        {"data": {"values": outside},
         "mark": said | {"align": "left", "fontWeight": "bold", "dx": {"expr": "datum.dx"}}, "encoding": text},
    ]  # fmt: skip


def _together(data: Roofline) -> list[tuple[list[int], Point]]:
    """Return the numbers of points; points that overlap share a label."""
    x0, x1, y0, y1 = data.limits
    found: list[tuple[list[int], Point, tuple[float, float]]] = []
    for number, p in enumerate(data.numbered, 1):
        at = (
            WIDTH * math.log(p.flops_per_byte / x0) / math.log(x1 / x0),
            _HEIGHT * math.log(p.flops_per_s / y0) / math.log(y1 / y0),
        )
        near = next((n for n, _, other in found if math.dist(at, other) < _SAME_PLACE), None)
        if near is None:
            found.append(([number], p, at))
        else:
            near.append(number)
    return [(numbers, p) for numbers, p, _ in found]


def _ranges(numbers: list[int]) -> str:
    """Return numbers as ranges: 1, 3-5."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{r[0]}\N{EN DASH}{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


def _listed(data: Roofline) -> list[str]:
    """Return a line for each numbered point."""
    lines = []
    for p in data.numbered:
        name = classify(p.kernel).short_name if "(" in p.kernel else p.kernel
        # Cut the end: library kernels differ in the middle, not at the end.
        name = cut(name, 4096)
        name = name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
        roof = "" if p.roof_pct is None else f", {p.roof_pct:.3g} % of roof ({p.bound})"
        launches = f"{p.launches:,} launches" if p.launches > 1 else "1 launch"
        lines.append(
            f"{name}: {quantity(p.dur_ns, 'ns')} ({_share(p, data):.1f} %) in {launches}, "
            f"{si(p.flops_per_s, 'FLOP/s')}{roof}"
        )
    return lines
