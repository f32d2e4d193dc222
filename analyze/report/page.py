"""A page: what stands in it, and how it becomes HTML that needs nothing else and lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from analyze.errors import InputError
from analyze.plots import drawing
from analyze.plots.figure import DARK, LIGHT, Figure, Rows
from analyze.query.query_files import Query
from analyze.query.selection import Selection
from analyze.render import visible
from analyze.report.tables import Link, Table
from analyze.shell import command

_HERE = Path(__file__).parent


class Links(Protocol):
    """The addresses that a page leads to where it is served; one that stands alone has none."""

    def query(self, name: str, params: Mapping[str, str], by: Sequence[str] = (), run_id: str = "") -> str:
        """The page of a query."""

    def cells(self, query: Query, rows: Rows, params: Mapping[str, str], by: Sequence[str] = ()) -> Link:
        """What the cells of an answer lead to."""


@dataclass
class Part:
    """A question of the page, with what answers it."""

    title: str
    doc: str
    query: str
    command: str
    sql: str
    figure: Figure | None = None
    table: Table | None = None
    open: bool = False
    """Whether the table is to be seen at once."""
    note: str = ""
    """Why there is no figure, if there should be one."""
    link: str = ""
    """Address of the question's own page, where there is one."""
    id: str = ""
    """Its anchor, where it has one of its own."""
    text: str = ""
    """How it is to be read."""
    source: str = ""
    """Where a study printed it, of what a study printed."""
    printed: Part | None = None
    """What a study printed about the same."""
    different: str = ""
    """What is different from that, and why."""

    @property
    def spec(self) -> dict[str, Any]:
        """The figure in Vega, without its configuration; empty without a figure."""
        return {k: v for k, v in self._vega.items() if k != "config"}

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of its figure, which all figures of a page have in common."""
        return dict(self._vega.get("config", {}))

    @property
    def _vega(self) -> dict[str, Any]:
        return drawing.vega(self.figure) if self.figure else {}

    @property
    def shown(self) -> list[Part]:
        """This, and what is printed beside it."""
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
    """What a study says, and what the recordings say about it."""

    text: str
    source: str
    verdict: str
    mark: str
    """ok, warning or partly: how the verdict is shown."""
    evidence: Table
    note: str
    sql: str


@dataclass
class Finding:
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
    """All runs that it is true of, with what each could save."""
    query: str = ""
    link: str = ""
    """Address of the page of the query that shows more, where there is one."""


@dataclass
class Page:
    """All that the template shows."""

    title: str
    facts: list[tuple[str, str]]
    trust: list[dict[str, str]]
    findings: list[Finding]
    advised: str
    """Why there are no findings, if there are none."""
    sections: list[Section]
    lacking: list[tuple[str, str]]
    """What the recordings cannot show, and what to record for it."""
    notes: list[str]
    command: str
    several: bool
    about: str = ""
    study: list[tuple[str, str]] = field(default_factory=list)
    """Facts about the study that the recordings repeat."""
    claims: list[Claim] = field(default_factory=list)
    claimed: str = ""
    """How many of the claims hold."""

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that its figures have in common."""
        drawn = (p for s in self.sections for part in s.parts for p in part.shown if p.figure)
        return next((p.config for p in drawn), {})


def filled_sql(query: Query, params: Mapping[str, str]) -> str:
    """The SQL of a query with its parameters in place."""
    sql, values, _ = query.bind(dict(params))
    for name, value in values.items():
        sql = sql.replace(f"${name}", str(value) if isinstance(value, int | float) else repr(value))
    return sql


def command_line(
    verb: str,
    name: str,
    paths: Sequence[str],
    params: Mapping[str, str],
    selection: Selection,
    sort: str = "",
) -> str:
    """A command that can be pasted into a shell; what cannot be seen in a name is spelled out."""
    words = ["analyze", verb, name, *paths]
    for key, value in params.items():
        words += ["-p", f"{key}={value}"]
    words += ["--by", ",".join(selection.by)] if selection.by else []
    words += ["--where", selection.condition] if selection.condition else []
    words += ["--profiler", selection.profiler] if selection.profiler else []
    words += [f"--sort={sort}"] if sort else []
    return visible(command(words))


def single(figure: Figure, part: Part, title: str) -> str:
    """A page of one figure, as `analyze plot` writes it."""
    part.figure, part.open = figure, True
    sections = [Section("figure", "", [part])]
    page = Page(title, [], [], [], "", sections, [], [], part.command, False)
    return render(page)


@cache
def environment(*folders: Path) -> Any:
    """The templates of folders and of this one, which escape what they show; read once.

    Raises InputError without Jinja.
    """
    try:
        import jinja2
    except ImportError as e:
        raise InputError("a page needs vl-convert-python and Jinja: pip install 'tracequarry[plot]'") from e
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _HERE]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    # JSON that can stand in a page: without any `<`.
    made.filters["embedded"] = lambda value: jinja2.utils.markupsafe.Markup(_json(value))
    return made


def style() -> str:
    """The style sheet of pages."""
    return _themes() + (_HERE / "report.css").read_text(encoding="utf-8")


def script() -> str:
    """The script of pages."""
    return (_HERE / "report.js").read_text(encoding="utf-8")


def render(page: Page) -> str:
    """The page as HTML, with all that it needs in it. Raises InputError where Jinja is not installed."""
    sheet, runtime, own = style(), drawing.runtime(), script()
    # A page may hold a script's end or a comment's start as text only in these forms.
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
    """The colours of the themes as custom properties: the system's, unless the page was told; paper is light."""

    def block(selector: str, theme: Mapping[str, str]) -> str:
        return f"{selector}{{{''.join(f'--{k}:{v};' for k, v in theme.items())}}}"

    dark = f"@media screen and (prefers-color-scheme:dark){{{block(':root:not([data-theme=light])', DARK)}}}"
    chosen = f"@media screen{{{block(':root[data-theme=dark]', DARK)}}}"
    return "\n".join([block(":root", LIGHT), dark, chosen, ""])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
