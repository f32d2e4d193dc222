"""The roofline as SVG or PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.plots import COLOURS, duration, si
from analyze.plots.data import LEVEL_NAMES, Point, Roofline

_MARKERS = {"dram": "o", "l2": "s", "l1": "^"}
_SMALLEST, _LARGEST = 18.0, 1400.0
"""Areas of points, in square points of typography."""
_SAME_PLACE = 12.0
"""Pixels under which the numbers of two points would cover each other."""
_NAME_LENGTH = 72


def draw(data: Roofline, path: Path, form: str) -> None:
    """Draw to a file. Raises InputError where matplotlib is not installed."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise InputError(
            f"a .{form} figure needs matplotlib: pip install 'tracequarry[plot]' (a .html does not)"
        ) from e
    # Text stays text, and the same data gives the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "roofline", "font.size": 9}):
        figure = Figure(figsize=(14, 7.2), dpi=120)
        axes = figure.add_axes((0.058, 0.13, 0.575, 0.81))
        _axes(axes, data)
        _roofs(axes, data)
        _points(axes, data)
        _legends(figure, axes, data)
        figure.text(0.012, 0.02, data.note, fontsize=7.5, color="#555")
        metadata: dict[str, Any] = {"Date": None} if form == "svg" else {}
        figure.savefig(path, format=form, metadata=metadata)


def _axes(axes: Any, data: Roofline) -> None:
    x0, x1, y0, y1 = data.limits
    axes.set(xscale="log", yscale="log", xlim=(x0, x1), ylim=(y0, y1))
    axes.set_xlabel("arithmetic intensity (FLOP/byte)")
    axes.set_ylabel("FLOP/s")
    axes.set_title(data.title, loc="left", fontsize=11)
    axes.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _roofs(axes: Any, data: Roofline) -> None:
    x0, x1, y0, _ = data.limits
    if not data.compute:
        return
    top = data.compute[-1].rate
    for i, roof in enumerate(data.memory):
        x_start, x_end = max(x0, y0 / roof.rate), top / roof.rate
        axes.plot([x_start, x_end], [x_start * roof.rate, top], color="#333", linewidth=1.4, zorder=2)
        # Near the lower left end, along the line and above it.
        at = x_start * (x_end / x_start) ** (0.06 + 0.02 * i)
        (xa, ya), (xb, yb) = axes.transData.transform([(x_start, x_start * roof.rate), (x_end, top)])
        axes.annotate(
            f"{roof.label} {si(roof.rate, 'B/s')}", (at, at * roof.rate),
            rotation=math.degrees(math.atan2(yb - ya, xb - xa)), rotation_mode="anchor",
            xytext=(-4, 4), textcoords="offset points", fontsize=8.5, color="#222", zorder=6,
        )  # fmt: skip
    fastest = max((m.rate for m in data.memory), default=0.0)
    for roof in data.compute:
        start = roof.rate / fastest if fastest else x0
        axes.plot([start, x1], [roof.rate, roof.rate], color="#333", linewidth=1.4, zorder=2)
        axes.annotate(
            f"{roof.label} {si(roof.rate, 'FLOP/s')}", (x1, roof.rate), ha="right", xytext=(-4, 3),
            textcoords="offset points", fontsize=8.5, color="#222", zorder=6,
        )  # fmt: skip


def _points(axes: Any, data: Roofline) -> None:
    from matplotlib.patheffects import withStroke

    # Large ones first, so that small ones lie on top.
    for p in data.points:
        axes.scatter(
            p.flops_per_byte, p.flops_per_s, s=_area(p.dur_ns, data.total_ns), marker=_MARKERS[p.level],
            color=COLOURS[p.family], alpha=0.75, edgecolors="white", linewidths=0.7, zorder=4,
        )  # fmt: skip
    for numbers, p in _together(axes, data.numbered):
        radius = math.sqrt(_area(p.dur_ns, data.total_ns)) / 2
        inside = radius > 9 and len(numbers) == 1
        axes.annotate(
            _ranges(numbers), (p.flops_per_byte, p.flops_per_s), ha="center" if inside else "left", va="center",
            xytext=(0 if inside else radius + 1.5, 0), textcoords="offset points", fontsize=8, fontweight="bold",
            color="white" if inside else "#111", zorder=7,
            path_effects=[] if inside else [withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip


def _together(axes: Any, points: list[Point]) -> list[tuple[list[int], Point]]:
    """Numbers of points, those that lie on one another in one label."""
    found: list[tuple[list[int], Point, Any]] = []
    for number, p in enumerate(points, 1):
        place = axes.transData.transform((p.flops_per_byte, p.flops_per_s))
        near = next((n for n, _, at in found if math.dist(place, at) < _SAME_PLACE), None)
        if near is None:
            found.append(([number], p, place))
        else:
            near.append(number)
    return [(numbers, p) for numbers, p, _ in found]


def _ranges(numbers: list[int]) -> str:
    """1, 3-5."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{r[0]}\N{EN DASH}{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


def _area(dur_ns: int, total_ns: int) -> float:
    return max(_SMALLEST, _LARGEST * dur_ns / total_ns) if total_ns else _SMALLEST


def _legends(figure: Any, axes: Any, data: Roofline) -> None:
    from matplotlib.lines import Line2D

    def marker(shape: str, colour: str, label: str) -> Any:
        return Line2D([], [], marker=shape, linestyle="", markersize=7, color=colour, label=label)

    handles = [marker("o", COLOURS[f], f) for f in data.families]
    if len(data.memory) > 1:
        handles += [marker(_MARKERS[m.name], "#555", f"at {LEVEL_NAMES[m.name]}") for m in data.memory]
    axes.legend(handles=handles, loc="lower right", fontsize=8, frameon=True, framealpha=0.9, edgecolor="#ddd")
    lines = []
    for number, p in enumerate(data.numbered, 1):
        share = 100 * p.dur_ns / data.total_ns if data.total_ns else 0
        roof = "" if p.pct_of_roof is None else f", {p.pct_of_roof:.3g} % of roof ({p.bound})"
        launches = f"{p.launches} launches" if p.launches > 1 else "1 launch"
        rate = f"{duration(p.dur_ns)} ({share:.1f} %) in {launches}, {si(p.flops_per_s, 'FLOP/s')}{roof}"
        lines.append(f"{number:>2}  {shorten(p.kernel)}\n    {rate}")
    figure.text(0.65, 0.94, f"The {len(lines)} that take the longest", fontsize=9.5, va="top", fontweight="bold")
    figure.text(0.65, 0.91, "\n".join(lines), fontsize=6.6, va="top", linespacing=1.55, family="monospace")


def shorten(kernel: str) -> str:
    """A kernel name in one line of the list: what is in front of its arguments, cut at the end."""
    from schemas.kernel_rules import classify

    name = classify(kernel).short_name if "(" in kernel else kernel
    # What tells kernels of a library apart stands in the middle; their ends are alike.
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"
