"""The content of a page, and how it becomes self-contained HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from analyze.plots import drawing
from analyze.plots.figure import Figure, Rows
from analyze.plots.theme import DARK, LIGHT
from analyze.query.query_declaration import Query
from analyze.query.selection import Selection
from analyze.render import visible
from analyze.report.first_screen import ComparedFigure, Tile
from analyze.report.html_table import HtmlTable, Link
from analyze.report.timeline import Moment, PageTimeline
from analyze.shell import command

_HERE = Path(__file__).parent


class Links(Protocol):
    """Links of a served page to other pages. A file has none."""

    def query(self, name: str, params: Mapping[str, str], by: Sequence[str] = (), run_id: str = "") -> str:
        """Return the link to the page of a query."""

    def cells(self, query: Query, rows: Rows, params: Mapping[str, str], by: Sequence[str] = ()) -> Link:
        """Return the function that links the cells of an answer."""


@dataclass
class Part:
    """A query in the page, with its figure and table."""

    title: str
    doc: str
    query: str
    command: str
    sql: str
    figure: Figure | None = None
    table: HtmlTable | None = None
    open: bool = False
    """Whether the table is expanded."""
    note: str = ""
    """Why a figure is missing."""
    link: str = ""
    """Link to the page of the query."""
    id: str = ""
    """Its anchor; empty: numbered in its section."""
    text: str = ""
    """How to read it."""
    source: str = ""
    """Source in the study, of a printed part."""
    printed: Part | None = None
    """What a study printed about the same."""
    different: str = ""
    """Differences to the study, and why."""

    @property
    def spec(self) -> dict[str, Any]:
        """Return the figure in Vega without its configuration; empty without a figure."""
        return {k: v for k, v in self._vega.items() if k != "config"}

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration of its figure; all figures of a page share it."""
        return dict(self._vega.get("config", {}))

    @property
    def _vega(self) -> dict[str, Any]:
        return drawing.vega(self.figure) if self.figure else {}

    @property
    def shown(self) -> list[Part]:
        """Return this part and the printed one."""
        return [self] if self.printed is None else [self, self.printed]


@dataclass
class Section:
    """Parts under a heading."""

    id: str
    title: str
    parts: list[Part] = field(default_factory=list)
    text: str = ""


@dataclass
class Claim:
    """A claim of a study with its verdict and evidence."""

    text: str
    source: str
    verdict: str
    mark: str
    """CSS class of the verdict: ok, warning or partly."""
    evidence: HtmlTable
    note: str
    sql: str


@dataclass
class PageFinding:
    """A piece of advice."""

    title: str
    saving: str
    share: str
    evidence: str
    attempt: str
    place: str
    command: str
    overlaps: str
    run_id: str
    runs: list[tuple[str, str]]
    """All runs with this finding, and what each could save."""
    query: str = ""
    link: str = ""
    """Link to the page of its query."""
    moment: Moment | None = None
    """Where it is in the timeline of the page."""


@dataclass
class Page:
    """Content of the template."""

    title: str
    facts: list[tuple[str, str]]
    quality: tuple[str, list[Mapping[str, str]]]
    """The data quality in a sentence, and the checks to list."""
    findings: list[PageFinding]
    advised: str
    """Why there are no findings."""
    sections: list[Section]
    lacking: list[tuple[str, str]]
    """Parts without data, and how to record it."""
    notes: list[str]
    command: str
    several: bool
    tiles: list[Tile] = field(default_factory=list)
    """The main figures of one recording."""
    changes: list[ComparedFigure] = field(default_factory=list)
    """The main figures of two recordings."""
    about: str = ""
    study: list[tuple[str, str]] = field(default_factory=list)
    """Facts about the original study."""
    claims: list[Claim] = field(default_factory=list)
    claimed: str = ""
    """Number of claims per verdict, in a sentence."""
    timeline: PageTimeline | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration of all figures."""
        drawn = (p for s in self.sections for part in s.parts for p in part.shown if p.figure)
        return next((p.config for p in drawn), {})

    @property
    def anchors(self) -> dict[str, str]:
        """Return the anchor of the first part of each query."""
        found: dict[str, str] = {}
        for s in self.sections:
            for number, part in enumerate(s.parts, 1):
                found.setdefault(part.query, part.id or f"{s.id}-{number}")
        return found


def command_line(
    verb: str,
    name: str,
    paths: Sequence[str],
    params: Mapping[str, str],
    selection: Selection,
    sort: str = "",
) -> str:
    """Return a command line for a shell, with control characters escaped."""
    words = ["analyze", verb, name, *paths]
    for key, value in params.items():
        words += ["-p", f"{key}={value}"]
    words += ["--by", ",".join(selection.by)] if selection.by else []
    words += ["--where", selection.condition] if selection.condition else []
    words += ["--profiler", selection.profiler] if selection.profiler else []
    words += ["--block", selection.block] if selection.block else []
    words += [f"--sort={sort}"] if sort else []
    return visible(command(words))


def single(figure: Figure, part: Part, title: str) -> str:
    """Return the page of a single figure, as `analyze plot` writes it."""
    part.figure, part.open = figure, True
    sections = [Section("figure", "", [part])]
    page = Page(title, [], ("", []), [], "", sections, [], [], part.command, False)
    return render(page)


@cache
def environment(*folders: Path) -> Any:
    """Return the templates of folders and of this one, with escaping."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _HERE]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    # JSON without `<`, to be embedded in a page.
    made.filters["embedded"] = lambda value: jinja2.utils.markupsafe.Markup(_json(value))
    return made


def style() -> str:
    """Return the style sheet of pages."""
    return _themes() + _texts("report.css", "timeline.css")


def script() -> str:
    """Return the script of pages."""
    return _texts("timeline_events.js", "timeline_canvas.js", "timeline_details.js", "timeline.js", "report.js")


def _texts(*names: str) -> str:
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def render(page: Page) -> str:
    """Return the page as self-contained HTML."""
    sheet, runtime, own = style(), drawing.runtime(), script()
    # Escape the end of a script and the start of a comment.
    runtime, own = (text.replace("</script", "<\\/script").replace("<!--", "\\x3c!--") for text in (runtime, own))
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(runtime)} {_hash(own)}; style-src {_hash(sheet)}"
    )
    return str(
        environment()
        .get_template("template.html.j2")
        .render(page=page, policy=policy, style=sheet, runtime=runtime, script=own)
    )


def _themes() -> str:
    """Return the theme colours as CSS properties: those of the system unless chosen; print is light."""

    def block(selector: str, theme: Mapping[str, str]) -> str:
        return f"{selector}{{{''.join(f'--{k}:{v};' for k, v in theme.items())}}}"

    dark = f"@media screen and (prefers-color-scheme:dark){{{block(':root:not([data-theme=light])', DARK)}}}"
    chosen = f"@media screen{{{block(':root[data-theme=dark]', DARK)}}}"
    return "\n".join([block(":root", LIGHT), dark, chosen, ""])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
