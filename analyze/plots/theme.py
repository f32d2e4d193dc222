"""The theme of figures: colours, font and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

FAMILIES = {
    "convolution": "#2f7fd1",
    "gemm": "#d6493f",
    "attention": "#9462d3",
    "normalization": "#2f9e58",
    "pooling": "#c9761a",
    "activation": "#d858a8",
    "elementwise": "#a0705a",
    "reduction": "#1798a8",
    "softmax_loss": "#8f9a1f",
    "optimizer": "#6470d8",
    "embedding": "#6b9440",
    "copy_layout": "#6f7b8c",
    "random": "#c26d6d",
    "communication": "#b8860b",
    "other": "#8d949e",
}
"""Colour of each kernel family in every figure; visible on light and dark."""

MEANINGS = {
    "compute": "#2f7fd1", "busy": "#2f7fd1", "train": "#2f7fd1", "self GPU time": "#2f7fd1", "GPU time": "#2f7fd1",
    "communication": "#b8860b", "exposed communication": "#b8860b", "transfer": "#b8860b",
    "copies": "#a8447f", "exposed copies": "#a8447f", "self CPU time": "#9462d3", "CPU time": "#9462d3",
    "waiting": "#d6493f", "data": "#c9761a", "profiler": "#d858a8", "host wait": "#d6493f", "kernel wait": "#c9761a",
    "idle": "#a9b0ba", "no collective": "#8d949e",
    "forward": "#2f7fd1", "backward": "#9462d3", "h2d": "#a8447f", "loss": "#8f9a1f", "(outside)": "#8d949e",
    "(before the trace)": "#6f7b8c", "module": "#5a6aa0", "range": "#4f7f86", "op": "#56708f", "python": "#7a7f87",
    "kernel": "#c9761a", "memcpy": "#a8447f", "memset": "#a8447f",
    "added": "#d6493f", "removed": "#2f9e58", "slower": "#d6493f", "faster": "#2f9e58", "same": "#8d949e",
    "mean call": "#9462d3", "mean queue delay": "#c9761a",
    "peak allocated": "#2f7fd1", "peak reserved": "#8d949e",
    "holds": "#2f9e58", "does not hold": "#d6493f", "holds in part": "#c9761a", "cannot be checked here": "#8d949e",
}  # fmt: skip
"""Colour of other series that several figures have."""

PALETTE = tuple(FAMILIES.values())[:13]
"""Colours of other series."""

LIGHT = {"ink": "#1c2128", "soft": "#57606a", "rule": "#dfe3e8", "paper": "#ffffff"}
DARK = {"ink": "#e6e9ee", "soft": "#9aa4b2", "rule": "#323a45", "paper": "#14181d"}
"""Colours of a theme: text, secondary text, lines, background. Each is a Vega signal of this name."""

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
WIDTH = 860
"""Width of the plot area of a saved figure in px; in a page it is as wide as its container."""


def colours(names: Iterable[str]) -> dict[str, Any]:
    """Return a colour scale for these names: their own colours, else the palette's."""
    domain = list(dict.fromkeys(names))
    own = [FAMILIES.get(n) or MEANINGS.get(n) for n in domain]
    free = [c for c in PALETTE if c not in own] or list(PALETTE)
    used = iter(range(len(domain)))
    return {"domain": domain, "range": [c or free[next(used) % len(free)] for c in own]}


def params(theme: Mapping[str, str], name_width: int = 330) -> list[dict[str, Any]]:
    """Return the signals of every figure: theme colours, and sizes that depend on its width."""
    values: dict[str, Any] = {**theme, "name_width": name_width, "legend_columns": 5}
    return [{"name": k, "value": v} for k, v in values.items()]


def config() -> dict[str, Any]:
    """Return the configuration of the theme, which refers to the signals."""
    ink, soft, rule = ({"expr": n} for n in ("ink", "soft", "rule"))
    return {
        "font": FONT,
        "background": {"expr": "paper"},
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft, "titleColor": soft, "gridColor": rule, "domainColor": rule, "tickColor": rule,
            "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelOverlap": True,
            "labelSeparation": 6,
        },
        "axisY": {"titleAnchor": "end", "titleAngle": 0, "titleAlign": "left", "titleY": -10, "titleX": 0},
        # Legends below each other: a narrow page has no room for two side by side.
        "legend": {"layout": {"top": {"direction": "vertical"}},
                   "labelColor": soft, "titleColor": soft, "labelFontSize": 12, "titleFontSize": 12,
                   "titleFontWeight": "normal", "symbolSize": 90, "symbolType": "square", "symbolStrokeWidth": 0},
        "title": {"color": ink, "anchor": "start", "fontSize": 15, "fontWeight": 600, "subtitleColor": soft},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": soft},
    }  # fmt: skip
