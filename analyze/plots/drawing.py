"""Convert Vega-Lite to SVG and PNG files, and to Vega for pages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import vl_convert

from analyze.atomic_output import ending_of
from analyze.errors import InputError
from analyze.plots.figure import Figure
from analyze.plots.theme import DARK, LIGHT, WIDTH, config, params
from analyze.store.cache_location import cache_folder
from analyze.store.file_lock import locked
from analyze.store.safe_folder import Folder

FORMATS = ("svg", "png", "html")

_OF_EVERY_OBJECT = {
    "constructor", "toString", "toLocaleString", "valueOf", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
    "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
}  # fmt: skip
"""Properties of every JavaScript object. Vega groups values in objects and would find these names there."""
_BEYOND_UTF16_UNIT = re.compile(r"[\U00010000-\U0010ffff]")

_SCRIPT = "window.vegaEmbed = vegaEmbed;"
VERSION = "v6.1"
"""Version of Vega-Lite."""


def output_format(output: Path) -> str:
    """Return the format of a figure by the ending of its file. Raises InputError for unknown ones."""
    endings = [f".{form}" for form in FORMATS]
    return ending_of(output, endings, f"the name of a figure must end in {', '.join(endings)}").removeprefix(".")


def vega_lite(figure: Figure, title: str = "", dark: bool = False) -> dict[str, Any]:
    """Return the Vega-Lite specification of a figure for a file, with a fixed size."""
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
    if figure.listed:
        spec["layer"] = [*spec["layer"], *_list_next_to(figure.listed, int(spec["height"]))]
    whole: dict[str, Any] = _with_texts(made | spec, lambda text: _BEYOND_UTF16_UNIT.sub(_spelled_out, _own(text)))
    return whole


def _spelled_out(character: re.Match[str]) -> str:
    """Escape a character of two UTF-16 units: Vega may cut a label in its middle, which the converter rejects."""
    return f"\\U{ord(character[0]):08x}"


def _own(text: str) -> str:
    """Return the text, changed if it is a property of every JavaScript object."""
    return f"{text} " if text in _OF_EVERY_OBJECT else text


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to all texts of a specification, except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _with_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(inner, change) for inner in value]
    return value


def vega(figure: Figure) -> dict[str, Any]:
    """Return the figure as Vega for a page: as wide as its container, with the theme of the page."""
    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(vega_lite_of_page(figure), vl_version=VERSION)
    return compiled


def vega_lite_of_page(figure: Figure) -> dict[str, Any]:
    """Return the Vega-Lite specification that `vega` compiles."""
    spec = dict(figure.spec)
    made = spec | {
        "description": figure.alt,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        # The page has a sentence for screen readers. One for every mark would triple the size.
        "config": config() | {"aria": False},
        "params": [*params(LIGHT), *spec.pop("params", [])],
    }
    whole: dict[str, Any] = _with_texts(made, _own)
    return whole


def svg(figure: Figure, title: str) -> str:
    """Return the figure as SVG."""
    return str(_drawn(vl_convert.vegalite_to_svg, figure, title))


def png(figure: Figure, title: str) -> bytes:
    """Return the figure as PNG."""
    return bytes(_drawn(vl_convert.vegalite_to_png, figure, title, scale=2))


def _drawn(convert: Callable[..., Any], figure: Figure, title: str, **more: Any) -> Any:
    try:
        return convert(vega_lite(figure, title), vl_version=VERSION, **more)
    except ValueError as e:
        raise InputError(f"the figure cannot be drawn: {str(e).partition(chr(10))[0]}") from e


def runtime() -> str:
    """Return the JavaScript that draws Vega in a page. It is cached, because the library needs seconds to bundle it."""
    cache = Folder(cache_folder())
    name = f"vega-{version()}-{VERSION}"
    if f"{name}.js" not in cache.files():
        cache.path.mkdir(parents=True, exist_ok=True)
        lock = locked(cache, f"{name}.lock")  # several processes may write reports
        try:
            if f"{name}.js" not in cache.files():
                cache.write(f"{name}.js", str(vl_convert.javascript_bundle(_SCRIPT, vl_version=VERSION)).encode())
        finally:
            if lock is not None:
                os.close(lock)
    return cache.read(f"{name}.js").decode()


def version() -> str:
    """Return the version of the library that the JavaScript comes from."""
    return metadata.version("vl-convert-python")


def _list_next_to(lines: tuple[str, ...], height: int) -> list[dict[str, Any]]:
    """Return the numbered lines as text at the right of the figure."""
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
