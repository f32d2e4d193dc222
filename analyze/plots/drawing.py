"""Vega-Lite to what can be looked at: SVG and PNG files, and Vega for pages. Needs the extra `plot`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.plots.figure import DARK, LIGHT, WIDTH, Figure, config, params
from analyze.store.cache import cache_folder
from analyze.store.file_lock import locked
from analyze.store.folder import Folder
from analyze.whole_file import ending_of

FORMATS = ("svg", "png", "html")

_SCRIPT = "window.vegaEmbed = vegaEmbed;"
_NARROW = 150
VERSION = "v6.1"
"""Of Vega-Lite."""


def output_format(output: Path) -> str:
    """Form of a figure by its file's suffix; raises InputError for another one than FORMATS."""
    endings = [f".{form}" for form in FORMATS]
    return ending_of(output, endings, f"a figure is written as {', '.join(endings)}").removeprefix(".")


def library() -> Any:
    """The module that compiles and draws. Raises InputError where it is not installed."""
    try:
        import vl_convert
    except ImportError as e:
        raise InputError("figures need vl-convert-python and Jinja: pip install 'tracequarry[plot]'") from e
    return vl_convert


def vega_lite(figure: Figure, title: str = "", dark: bool = False) -> dict[str, Any]:
    """The whole Vega-Lite specification of a figure that stands alone, of a fixed size."""
    spec = dict(figure.spec)
    theme = DARK if dark else LIGHT
    spec["width"] = WIDTH
    made = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": figure.alt,
        "padding": 14,
        "config": config(),
        "params": [*params(theme), *spec.pop("params", [])],
    }
    if title:
        made["title"] = {"text": title, "subtitle": list(figure.notes)} if figure.notes else title
    if not figure.listed:
        return made | spec
    spec["layer"] = [*spec["layer"], *_list_beside(figure.listed, int(spec["height"]))]
    return made | spec


def vega(figure: Figure) -> dict[str, Any]:
    """A figure compiled to Vega, as wide as its place, whose theme is set where it is drawn."""
    compiled: dict[str, Any] = library().vegalite_to_vega(vega_lite_of_page(figure), vl_version=VERSION)
    return compiled


def vega_lite_of_page(figure: Figure) -> dict[str, Any]:
    """The Vega-Lite specification that `vega` compiles."""
    spec = dict(figure.spec)
    return spec | {
        "description": figure.alt,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        # The page has a sentence in the figure's place: that every mark has one would make it three times as large.
        "config": config() | {"aria": False},
        "params": [*params(LIGHT), *spec.pop("params", [])],
    }


def svg(figure: Figure, title: str) -> str:
    """The figure as SVG."""
    return str(library().vegalite_to_svg(vega_lite(figure, title), vl_version=VERSION))


def png(figure: Figure, title: str) -> bytes:
    """The figure as PNG."""
    return bytes(library().vegalite_to_png(vega_lite(figure, title), vl_version=VERSION, scale=2))


def runtime() -> str:
    """The JavaScript that draws Vega in a page: the library's own bundle, kept in the cache, since it takes seconds."""
    vl_convert = library()
    cache = Folder(cache_folder())
    name = f"vega-{vl_convert.__version__}-{VERSION}"
    if f"{name}.js" not in cache.files():
        cache.path.mkdir(parents=True, exist_ok=True)
        lock = locked(cache, f"{name}.lock")  # of several reports at once, one makes it
        try:
            if f"{name}.js" not in cache.files():
                cache.write(f"{name}.js", str(vl_convert.javascript_bundle(_SCRIPT, vl_version=VERSION)).encode())
        finally:
            if lock is not None:
                os.close(lock)
    return cache.read(f"{name}.js").decode()


def _list_beside(lines: tuple[str, ...], height: int) -> list[dict[str, Any]]:
    """Numbered lines as text on the right of the plane."""
    step = min(46, (height - 24) // len(lines))
    said = [{"number": str(i + 1), "said": line.split(": ", 1), "at": 26 + i * step} for i, line in enumerate(lines)]
    heading = {"number": "", "said": [f"The {len(lines)} that take the longest"], "at": 0}
    text = {"type": "text", "align": "left", "baseline": "top", "fontSize": 11, "dy": {"expr": "datum.at"}}
    here = {"x": {"value": WIDTH + 58}, "y": {"value": 0}}
    return [
        {"data": {"values": [heading, *said]}, "mark": text | {"lineHeight": 15},
         "encoding": here | {"text": {"field": "said"}}},
        {"data": {"values": said}, "mark": text | {"align": "right", "dx": -10, "fontWeight": "bold"},
         "encoding": here | {"text": {"field": "number"}}},
    ]  # fmt: skip
