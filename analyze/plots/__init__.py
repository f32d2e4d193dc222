"""Figures: one module reads what a figure shows, one draws it in each form."""

from __future__ import annotations

import colorsys
import zlib
from pathlib import Path

from analyze.errors import InputError


class _Colours(dict[str, str]):
    """A family that has no colour here gets one of its own, by its name: always the same."""

    def __missing__(self, family: str) -> str:
        hue = zlib.crc32(family.encode()) % 360 / 360
        return "#" + "".join(f"{round(255 * c):02x}" for c in colorsys.hls_to_rgb(hue, 0.45, 0.55))


COLOURS = _Colours(
    {
        "convolution": "#1f77b4",
        "gemm": "#d62728",
        "attention": "#9467bd",
        "normalization": "#2ca02c",
        "pooling": "#ff7f0e",
        "activation": "#e377c2",
        "elementwise": "#8c564b",
        "reduction": "#17becf",
        "softmax_loss": "#bcbd22",
        "optimizer": "#393b79",
        "embedding": "#637939",
        "copy_layout": "#7f7f7f",
        "random": "#ad494a",
        "communication": "#e7ba52",
        "other": "#c7c7c7",
    }
)
"""Colour of each kernel family, the same in every figure."""

FORMATS = ("svg", "png", "html")


def output_format(output: Path) -> str:
    """Form of a figure by its file's suffix; raises InputError for another one than FORMATS."""
    suffix = output.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(f"{output}: a figure is written as .{', .'.join(FORMATS)}")
    return suffix


def si(value: float, unit: str) -> str:
    """A rate with three digits and a decimal prefix: 66.3 TFLOP/s."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return (
                f"{value / factor:.3g} {prefix}{unit}"
                if value < 1000 * factor
                else f"{value / factor:.0f} {prefix}{unit}"
            )
    return f"{value:.3g} {unit}"


def duration(ns: float) -> str:
    """A time with three digits: 137 µs."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.0f} ns"
