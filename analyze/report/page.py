"""A page: what stands in it, and how it becomes HTML that needs nothing else and lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.plots import drawing
from analyze.plots.figure import DARK, LIGHT, Figure
from analyze.query.query_files import Query
from analyze.render import visible
from analyze.report.tables import Table
from analyze.shell import command

_HERE = Path(__file__).parent


@dataclass
class Part:
    """A question of the page, with what answers it."""

    title: str
    doc: str
    query: str
    command: str
    sql: str
    figure: Figure | None = None
    number: int = -1
    """Of its figure, within the page."""
    table: Table | None = None
    open: bool = False
    """Whether the table is to be seen at once."""
    note: str = ""
    """Why there is no figure, if there should be one."""
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
    by: Sequence[str] = (),
    where: str | None = None,
    profiler: str | None = None,
    sort: str = "",
) -> str:
    """A command that can be pasted into a shell; what cannot be seen in a name is spelled out."""
    words = ["analyze", verb, name, *paths]
    for key, value in params.items():
        words += ["-p", f"{key}={value}"]
    words += ["--by", ",".join(by)] if by else []
    words += ["--where", where] if where else []
    words += ["--profiler", profiler] if profiler else []
    words += [f"--sort={sort}"] if sort else []
    return visible(command(words))


def single(figure: Figure, part: Part, title: str) -> str:
    """A page of one figure, as `analyze plot` writes it."""
    compiled = drawing.vega(figure)
    config = compiled.pop("config", {})
    part.figure, part.number, part.open = figure, 0, True
    sections = [Section("figure", "", [part])]
    page = Page(title, [], [], [], "", sections, [], [], part.command, False)
    return render(page, [compiled], config)


def render(page: Page, figures: list[dict[str, Any]], config: dict[str, Any]) -> str:
    """The page as HTML. Raises InputError where Jinja is not installed."""
    try:
        import jinja2
    except ImportError as e:
        raise InputError("a page needs vl-convert-python and Jinja: pip install 'tracequarry[plot]'") from e
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    style = _themes() + (_HERE / "report.css").read_text(encoding="utf-8")
    runtime, script = drawing.runtime(), (_HERE / "report.js").read_text(encoding="utf-8")
    # A page may hold a script's end or a comment's start as text only in these forms.
    runtime, script = (text.replace("</script", "<\\/script").replace("<!--", "\\x3c!--") for text in (runtime, script))
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(runtime)} {_hash(script)}; style-src {_hash(style)}"
    )
    return environment.get_template("template.html.j2").render(
        page=page,
        policy=policy,
        style=style,
        runtime=runtime,
        script=script,
        figures=[_json(f) for f in figures],
        config=_json(config),
    )


def _themes() -> str:
    """The colours of the themes as custom properties: as the system has it, unless the page was told."""

    def block(selector: str, theme: Mapping[str, str]) -> str:
        return f"{selector}{{{''.join(f'--{k}:{v};' for k, v in theme.items())}}}"

    dark = f"@media (prefers-color-scheme:dark){{{block(':root:not([data-theme=light])', DARK)}}}"
    return "\n".join([block(":root", LIGHT), dark, block(":root[data-theme=dark]", DARK), ""])


def _json(value: Any) -> str:
    """JSON that can stand in a page: without any `<`."""
    return json.dumps(value, separators=(",", ":"), default=str).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
