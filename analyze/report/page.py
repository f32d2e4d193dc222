"""The content of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from analyze.plots import drawing
from analyze.plots.figure import Figure, Rows
from analyze.query.query_declaration import Query
from analyze.query.selection import Selection
from analyze.render import visible
from analyze.report.html_table import HtmlTable, Link
from analyze.report.timeline import Moment
from analyze.shell import command


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


class Share(NamedTuple):
    """A part of the bar of a figure, in % of it."""

    name: str
    text: str
    start: str
    width: str
    colour: str


class Tile(NamedTuple):
    """A figure on the strip."""

    name: str
    number: str
    unit: str
    detail: str
    link: str
    shares: list[Share]


class ComparedFigure(NamedTuple):
    """A figure of two recordings: a row of `compare` at level measure."""

    name: str
    a: str
    b: str
    change: str
    interval: str
    verdict: str
    mark: str
    """worse, better, or empty for neither."""


@dataclass(frozen=True)
class PageTimeline:
    """The timeline of a page."""

    given: Mapping[str, Any]
    """What its script reads: the events, or `source`, which sends them."""
    tables: Sequence[tuple[str, str]]
    """The same as tables: commands, each with its link on a server."""
    about: str = ""
    """Which runs it shows, if not one."""

    @property
    def alt(self) -> str:
        """Return what it shows, in a sentence."""
        runs = "two runs" if self.about else "the run"
        return f"timeline of the ranks, GPUs, streams and CPU threads of {runs} on one clock"

    @property
    def part(self) -> str:
        """Return which part of the run it shows, if not all."""
        events = self.given.get("events")
        if events is None or (events["from"], events["to"]) == tuple(events["span"]):
            return ""
        start, end, whole = (f"{ns / 1e6:,.3f}" for ns in (events["from"], events["to"], events["span"][1]))
        merged = ", short events merged" if events["cell"] else ""
        return f"{start} to {end} ms of {whole} ms{merged}. analyze serve shows the whole run."


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
