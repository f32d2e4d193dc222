"""How pages and their parts become HTML: templates, and the style sheet, script and icon that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from analyze.errors import InputError
from analyze.plots import drawing
from analyze.plots.figure import cut, label
from analyze.report import templates
from analyze.report.page import Part
from analyze.serve.addresses import address

_HERE = Path(__file__).parent
_MOST_FRAGMENT = 16_000_000
"""Limit of an answer, in characters."""


class Placeholder(NamedTuple):
    """A placeholder: a part of a page that is loaded when it is scrolled into view."""

    source: str
    title: str

    @classmethod
    def at(cls, path: str, pairs: Iterable[tuple[str, str]], part: str, title: str) -> Placeholder:
        """Return a part of a page. Raises InputError if its address is too long."""
        source = address(path, [*pairs, ("part", part)])
        if not source:
            raise InputError("the address is too long: shorten the parameters, or use the command line")
        return cls(source, title)


@dataclass
class Chapter:
    """A section of a page."""

    id: str
    title: str
    places: list[Placeholder]


@dataclass
class PageView:
    """A page."""

    title: str
    here: str = ""
    """Its name in the navigation bar."""
    crumbs: list[tuple[str, str]] = field(default_factory=list)
    """Breadcrumbs: names and addresses."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sections: list[Chapter] = field(default_factory=list)
    command: str = ""


class Templates:
    """The templates of pages and parts."""

    def __init__(self) -> None:
        self._environment = templates.environment(_HERE)
        self._environment.globals |= {"asset": self._address_of_asset, "cut": cut, "label": label}

    def page(self, kind: str, view: PageView, **more: Any) -> str:
        """Return a page."""
        return str(self._environment.get_template(f"{kind}.html.j2").render(view=view, **more))

    def part(self, kind: str, **more: Any) -> str:
        """Return a part of a page."""
        return str(self._environment.get_template("parts_served.html.j2").render(kind=kind, **more))

    def article(self, part: Part, number: str, notes: Sequence[str] = (), box: str = "", headed: bool = True) -> str:
        """Return figure and table of a part. Raises InputError if they are too large."""

        def filled(*more: str) -> str:
            all_notes = [*notes, *more]
            return self.part("article", part=part, id=number, notes=all_notes, box=box, headed=headed)

        text = filled()
        if len(text) > _MOST_FRAGMENT and part.figure is not None:
            part.figure = None
            text = filled("The figure is too large for a page.")
        if len(text) > _MOST_FRAGMENT:
            raise InputError("the answer is too large for a page: request fewer rows, or save it as a file")
        return text

    def asset(self, name: str) -> tuple[str, str]:
        """Return type and text of a style sheet, script or image. Raises KeyError."""
        # The library takes seconds to build the first time; the first page does not wait for it.
        return ("text/javascript", drawing.runtime()) if name == "vega.js" else self._assets[name]

    @cached_property
    def _assets(self) -> dict[str, tuple[str, str]]:
        own, sheet, icon = (
            (_HERE / name).read_text(encoding="utf-8") for name in ("serve.js", "serve.css", "icon.svg")
        )
        return {
            "page.css": ("text/css", templates.style() + sheet),
            "page.js": ("text/javascript", f"{templates.script()}\n{own}"),
            "icon.svg": ("image/svg+xml", icon),
        }

    def _address_of_asset(self, name: str) -> str:
        """Return its address, which changes with the content, because browsers cache it."""
        of = drawing.version() if name == "vega.js" else self._assets[name][1]
        return f"/static/{name}?v={hashlib.sha256(of.encode()).hexdigest()[:12]}"
