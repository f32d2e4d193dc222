"""Build the report: the queries that `page.toml` declares, with their figures, tables and commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from analyze import health
from analyze.advise import UNSURE, Advice, advise, blocks_note
from analyze.errors import InputError, MachineError
from analyze.ingestion.progress import Counted
from analyze.plots import declared
from analyze.plots.figure import Rows, RunQuery, cut, quantity
from analyze.plots.per import Counts
from analyze.query.data_needs import lacks
from analyze.query.engine import Engine
from analyze.query.literals import of_run, of_runs
from analyze.query.query_declaration import Query
from analyze.query.query_files import find
from analyze.query.selection import Selection, check_by
from analyze.render import visible
from analyze.report.first_screen import Tile, quality, tiles
from analyze.report.html_table import table
from analyze.report.page import Links, Page, PageFinding, Part, Section, command_line
from analyze.report.timeline import COLORS, LINKED, Moment, PageTimeline, Timeline
from analyze.report.timelines import Timelines
from analyze.shell import command
from analyze.store.store import Store
from analyze.summary import measures
from analyze.verdict.sides import Sides, open_sides

_HERE = Path(__file__).parent
_LABELS = (
    "model", "batch_size", "gpus", "parallelism", "precision", "dataset", "image_size", "optimizer", "compiled",
    "channels_last", "profiler", "gpu_name",
)  # fmt: skip
"""Columns that may label runs, the most usual first."""

_FACTS = (
    ("model", "model"), ("batch size", "batch_size"), ("precision", "precision"), ("GPUs", "gpus"),
    ("parallelism", "parallelism"), ("data", "dataset"), ("GPU model", "gpu_name"), ("PyTorch", "torch_version"),
    ("CUDA", "cuda_version"), ("driver", "driver_version"), ("cuDNN", "cudnn_version"), ("NCCL", "nccl_version"),
    ("recorded by", "profiler"), ("host", "host"), ("started", "start_time"),
)  # fmt: skip
"""Facts of a run: label and column of runs."""

_BLOCKS = {"GPU only": "gpu", "full": "full"}
"""Values of --block, by label."""


class Report:
    """Builds the parts of a report from recordings."""

    def __init__(
        self,
        stores: Sequence[Store],
        paths: Sequence[str],
        selection: Selection,
        progress: Counted | None = None,
        links: Links | None = None,
    ):
        check_by(selection.by)  # The queries of a single run have no groups.
        self.stores, self.paths = stores, list(paths)
        self.selection = replace(selection, by=())
        self.progress: Counted = progress or (lambda done, total, name: None)
        self.links = links
        self.engine = Engine(stores, self.selection)
        """The engine without groups."""
        self._engines = {self.selection: self.engine}
        self._sides: WeakKeyDictionary[Report, Sides] = WeakKeyDictionary()
        self._answers: dict[tuple[Any, ...], Rows] = {}
        self._held: dict[tuple[str, ...], dict[str, bool]] = {}
        if not self.engine.run_ids:
            raise InputError("report: no run matched --where or --profiler")
        self.runs = self.run_query("runs").dicts()
        chosen = set(self.engine.run_ids)
        self.timed = [r for r in self.runs if r["run_id"] in chosen and r["profiler"] != "ncu"]
        self.several = len(self.timed or self.runs) > 1
        self.by = selection.by or self._label_columns()

    def engine_of(self, selection: Selection) -> Engine:
        """Return the engine of a selection, opened once."""
        if selection not in self._engines:
            self._engines[selection] = Engine(self.stores, selection)
        return self._engines[selection]

    def compared_with(self, other: Report) -> Sides:
        """Return both sides of a comparison, opened once."""
        if other not in self._sides:
            self._sides[other] = open_sides(self.engine, other.engine)
        return self._sides[other]

    def close(self) -> None:
        """Close the engines."""
        for engine in self._engines.values():
            engine.close()

    def run_query(
        self, name: str, params: Mapping[str, str] | None = None, by: tuple[str, ...] = (), **more: str
    ) -> Rows:
        """Return the answer to a query, computed once. A query whose data was not recorded is not run."""
        given = {**(params or {}), **more}
        key = (name, tuple(sorted(given.items())), by)
        if key not in self._answers:
            self._answers[key] = self._run(find(name), given, by)
        return self._answers[key]

    def _engine_for(self, query: Query, params: Mapping[str, str], by: tuple[str, ...]) -> Engine:
        selection = self.selection
        if by and self.engine.run_ids:
            # With groups by run, an engine has every pass of a workload: use only those of the engine without groups.
            selection = replace(selection.narrowed(of_runs(self.engine.run_ids)), by=by)
        if self.engine.note:  # otherwise no pass is excluded, whichever a query prefers
            selection = replace(selection, prefer=query.prefer)
        return self.engine_of(selection)

    def _run(self, query: Query, params: dict[str, str], by: tuple[str, ...]) -> Rows:
        engine = self._engine_for(query, params, by)
        if lacks(engine, query, params, self._held.setdefault(tuple(engine.run_ids), {})):
            return Rows(query.result_columns(query.bind(params)[2]), [])
        return Rows.of(engine.query(query, params))

    def _label_columns(self) -> tuple[str, ...]:
        """Return the columns that label runs: those that differ if they identify each run, else run_id."""
        columns = [c.name for c in find("runs").columns]
        differing = [c for c in _LABELS if c in columns and len({r[c] for r in self.timed}) > 1]
        keys = {tuple(r[c] for c in differing) for r in self.timed}
        return tuple(differing) if differing and len(keys) == len(self.timed) else ("run_id",)

    # --- parts ----------------------------------------------------------------------------------------------------

    def part(self, declaration: Mapping[str, Any]) -> Part | None:
        """Return a part of the page; None without rows."""
        query = find(declaration["query"])
        params, by = self._asked(declaration)
        rows = filter_rows(self.run_query(query.name, params, by), declaration.get("keep", {}))
        if not rows.rows:
            return None
        text = declaration.get("figure", query.plot)
        text = re.sub(r"\bBY\b", ",".join(by), text)
        own_block = query.prefer == "gpu" and self._engine_for(query, params, by).run_ids != self.engine.run_ids
        part = Part(
            heading(declaration) + (" (GPU-only block)" if own_block else ""),
            query.description,
            query.name,
            self.command(query.name, params, replace(self.selection, by=by)),
            query.filled(params),
            link=self.links.query(query.name, params, by) if self.links else "",
        )
        if text not in ("", "none"):
            try:
                counts = None if by else Counts.of(self._engine_for(query, params, by))
                draw(part, declared.of_query(query, params, text, by), rows, self.run_query, counts)
            except (InputError, MachineError) as e:
                part.note = str(e)
        if declaration.get("table", True):
            link = self.links.cells(query, rows, params, by) if self.links else None
            part.table = table(rows, declaration.get("columns", ()), declaration.get("rows", 100), link)
            part.open = part.figure is None
        return part if part.figure or part.table else None

    def _asked(self, declaration: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return parameters and groups of the query of a part."""
        return dict(declaration.get("params", {})), self.by if declaration.get("by") == "differing" else ()

    def command(self, name: str, params: Mapping[str, str], selection: Selection) -> str:
        """Return the command line of a query."""
        return command_line("query", name, self.paths, params, selection)

    def page_command(self, verb: Sequence[str] = ("report",)) -> str:
        """Return the command line that writes the page."""
        words = ["analyze", *verb, *self.paths, "-o", "report.html"]
        words += ["--where", self.selection.condition] if self.selection.condition else []
        return visible(command(words))

    # --- the top --------------------------------------------------------------------------------------------------

    def facts(self) -> list[tuple[str, str]]:
        """Return the facts about the runs: workload, GPU, software."""
        rows = self._run_rows()
        columns = {c for r in rows for c in r}
        counters = sum(r["profiler"] == "ncu" for r in rows)
        both = f"{len(rows) - counters:,} timed, {counters:,} with counters"
        facts = [("runs", both if 0 < counters < len(rows) else f"{len(rows):,}")] if self.several else []

        def said(name: str) -> str:
            """Return the values of a column as text."""
            if name not in columns:
                return ""
            unit = "time" if name == "start_time" else "index"
            known = sorted({r[name] for r in rows if r[name] not in (None, "")})
            if name == "start_time" and len(known) > 1:
                return f"{quantity(known[0], unit)} to {quantity(known[-1], unit)}"
            found = list(dict.fromkeys(quantity(v, unit) for v in known))
            return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")

        one = () if self.several else (("command", "command"), ("file", "source"), ("run", "run_id"))
        for title, name in (*_FACTS, *one):
            if text := said(name):
                facts.append((title, text))
        return facts

    def _run_rows(self) -> list[dict[str, Any]]:
        chosen = sorted({r["run_id"] for r in self.runs} & set(self.engine.run_ids))
        rows = self.engine.dicts("SELECT * FROM runs ORDER BY run_id")
        return [r for r in rows if r["run_id"] in chosen]

    def summary(self) -> dict[str, Any] | None:
        """Return the row of `summary` of the one run that was timed; None for several."""
        rows = {r["run_id"]: r for r in self.run_query("summary").dicts()}
        known = [rows[r["run_id"]] for r in self.timed or self.runs if r["run_id"] in rows]
        return known[0] if len(known) == 1 and not self.several else None

    def tiles(self) -> list[Tile]:
        """Return the main figures; none of several runs, which have a table of them."""
        row, links = self.summary(), self.links
        return tiles(measures(row), (lambda query: links.query(query, {})) if links else None) if row else []

    def checks(self) -> list[dict[str, str]]:
        """Return the data-quality checks; of several runs only notes and warnings, with the number of runs."""
        facts = health.of_rows(self.run_query("health").rows)
        several = self.several or len({f.run_id for f in facts}) > 1
        return [
            {
                "fact": f.fact,
                "verdict": f.verdict,
                "value": cut(f.shown),
                "impact": cut((f.impact or "").replace("\n", "; ")),
            }
            for f in (health.cautions(facts) if several else facts)
        ]

    def findings(self, found: Sequence[Advice], places: Mapping[str, Mapping[str, Any]]) -> list[PageFinding]:
        """Return the advice for the page, each finding once."""
        titles = {a.finding: a.title for a in found}
        same: dict[str, list[Advice]] = {}
        for a in found:
            same.setdefault(a.finding, []).append(a)
        for of in same.values():
            of.sort(key=lambda a: -a.saving_pct)
        # Of several runs, each finding is shown once, with the run in which it costs most.
        worst = sorted((of[0] for of in same.values()), key=lambda a: -a.saving_pct) if self.several else _ranked(found)
        shown = []
        for a in worst:
            of_its_run = replace(self.selection, where=(of_run(a.run_id),)) if self.several else self.selection
            declaration = places.get(a.finding, {})
            overlaps = "; ".join(titles.get(name, name) for name in (a.overlaps or "").split(", ") if name)
            params = declaration.get("params", {}) if declaration.get("query") == a.query else {}
            shown.append(
                PageFinding(
                    title=a.title + ("" if a.run_id in self.engine.run_ids else " (GPU-only block)"),
                    saving=_saving(a),
                    share=f"{a.saving_pct:.1f} %",
                    evidence=cut(a.evidence, 600),
                    attempt=a.attempt,
                    place="; ".join(filter(None, (cut(a.place, 400), self._place(declaration)))),
                    command=self.command(a.query, params, of_its_run),
                    overlaps=overlaps,
                    run_id=cut(a.run_id, 120),
                    runs=[(cut(o.run_id, 120), f"{_saving(o)} ({o.saving_pct:.1f} %)") for o in same[a.finding]],
                    query=a.query,
                    link=self.links.query(a.query, params, run_id=a.run_id) if self.links else "",
                    moment=self._moment(a),
                )
            )
        return shown

    def advice(self) -> tuple[list[PageFinding], str]:
        """Return the findings as they are shown, or the reason why there are none."""
        try:
            findings = self.findings(advise(self.engine), page_toml()["place"])
        except (InputError, MachineError) as e:
            return [], str(e).removeprefix("advise: ")
        return findings, "" if findings else "no finding could save 1 % of the time or more"

    def _moment(self, advice: Advice) -> Moment | None:
        """Return the longest stretch of a finding in the timeline."""
        if self.timelines is None:
            return None
        return self.timelines.moment(advice.run_id, advice.rank, advice.device, advice.start_ns, advice.end_ns)

    @cached_property
    def timelines(self) -> Timelines | None:
        """The timeline of the one run that was timed, below that of its GPU-only block."""
        if len(self.timed) != 1:
            return None
        full = Timeline(self.engine, self.timed[0]["run_id"])
        if (timing := self.engine.of_gpu_blocks) and len(others := set(timing.run_ids) - {full.run_id}) == 1:
            return Timelines([("GPU only", Timeline(timing, others.pop())), ("full", full)])
        return Timelines([("", full)]) or None

    def page_timeline(self, findings: Sequence[PageFinding] = (), source: str = "") -> PageTimeline | None:
        """Return the timeline of a page: with its events, or with the address that it requests them from.

        Of a long run, a page has the steps of the first finding.
        """
        if self.timelines is None:
            return None
        events = self.timelines.in_file(next((f.moment for f in findings if f.moment), None)) if not source else None
        sides = [(label, self, run_id) for label, run_id in self.timelines.runs]
        about = "The GPU-only block above the full one; their first steps start together." if len(sides) > 1 else ""
        return page_timeline(sides, about, source, events)

    def _place(self, declaration: Mapping[str, Any]) -> str:
        """Return the sentence about the location of a finding; empty if unknown."""
        if not declaration or self.several:
            return ""
        rows = filter_rows(
            self.run_query(declaration["query"], declaration.get("params", {})), declaration.get("keep", {})
        )
        found = rows.dicts()
        if most := declaration.get("most"):
            found.sort(key=lambda r: -(r[most] or 0))
        if not found:
            return ""
        units = {c.name: c.unit for c in rows.columns}
        said = {k: cut(quantity(v, units[k]), 120) for k, v in found[0].items()}
        return re.sub(r" \(\N{EN DASH}\)", "", str(declaration["text"]).format(**said))

    def sections(self) -> list[dict[str, Any]]:
        """Return the sections that `page.toml` declares for one run or for several."""
        when = ("any", "several" if self.several else "one")
        other = "cpu" if self.on_gpu else "gpu"
        chosen = [s for s in page_toml()["section"] if s["when"] in when]
        return [s | {"part": [p for p in s["part"] if p.get("on", s.get("on")) != other]} for s in chosen]

    def answerable(self, section: Mapping[str, Any]) -> bool:
        """Return whether the recordings have the data of one of the parts of a section."""
        held = self._held.setdefault(tuple(self.engine.run_ids), {})
        return any(not lacks(self.engine, find(p["query"]), p.get("params", {}), held) for p in section["part"])

    @cached_property
    def on_gpu(self) -> bool:
        """Whether there is GPU work, in time or as counters."""
        return bool(
            {"kernels", "memcpys", "memsets", "gpu_summary", "ncu_metrics", "metric_summary"} & self.engine.tables
        )

    # --- the page -------------------------------------------------------------------------------------------------

    def page(self, title: str | None) -> Page:
        """Return the page."""
        asked = self.sections()
        total = sum(len(s["part"]) for s in asked) + 2
        done = 0
        sections, lacking = [], []
        self.progress(done, total, "health")
        checks, facts = quality(self.checks()), self.facts()
        done += 1
        for s in asked:
            section = Section(s["id"], s["title"])
            for p in s["part"]:
                self.progress(done, total, p["query"])
                part = self.part(p)
                done += 1
                if part is not None:
                    section.parts.append(part)
                elif "lacks" in p:
                    lacking.append((heading(p), p["lacks"]))
            if section.parts:
                sections.append(section)
        self.progress(done, total, "advise")
        findings, advised = self.advice()
        self.progress(total, total, "")
        notes = [note] if (note := blocks_note(self.engine)) else []
        if self.several:
            notes.append("One run in detail: add --where \"run_id = '...'\" to the command at the end of this page")
        return Page(
            title or self.title(), facts, checks, findings, advised, sections, lacking, notes,
            self.page_command(), self.several, self.tiles(), timeline=self.page_timeline(findings),
        )  # fmt: skip

    def title(self) -> str:
        """Return the default title: workload and GPU."""
        if self.several:
            models = list(dict.fromkeys(r["model"] for r in self.timed if r["model"]))
            of = f": {', '.join(models[:3])}" if models else ""
            return cut(f"{len(self.timed or self.runs)} runs{of}", 120)
        run = (self.timed or self.runs)[0]
        what = [run["model"], f"batch {run['batch_size']}" if run["batch_size"] else None, run["precision"]]
        named = " ".join(str(w) for w in what if w) or str(run["run_id"])
        gpus = f"{run['gpus']} x " if (run["gpus"] or 1) > 1 else ""
        return cut(f"{named} on {gpus}{run['gpu_name']}" if run["gpu_name"] else named, 120)


def page_timeline(
    sides: Sequence[tuple[str, Report, str]], about: str, source: str, events: Mapping[str, Any] | None
) -> PageTimeline:
    """Return the timeline of a page. `sides`: labels of its runs, each with its report and, if not alone, its id."""
    commands: dict[str, dict[str, str]] = {}
    links, tables = {}, []
    for label, report, run_id in sides:
        selection = replace(report.selection, block=_BLOCKS.get(label, report.selection.block))
        commands[label] = {name: report.command(name, {}, selection) for name in (*LINKED, "timeline")}
        link = report.links.query("timeline", {}, run_id=run_id if label else "") if report.links else ""
        links[label] = link.partition("?")[2]
        tables.append((commands[label].pop("timeline"), link))
    given = {"source": source, "links": links} if source else {"events": events, "commands": commands}
    return PageTimeline({"colors": COLORS, **given}, tables, about)


def _saving(advice: Advice) -> str:
    """Return the saving, what it is with the profiler if that is more, and how sure it is."""
    saving = quantity(advice.saving_ns, "ns")
    if advice.recorded_saving_ns > advice.saving_ns:
        saving += f", {quantity(advice.recorded_saving_ns, 'ns')} with the profiler"
    return saving + UNSURE.get(advice.confidence, "")


def _ranked(found: Sequence[Advice]) -> list[Advice]:
    """Return the findings of both blocks of a run in the order of `advise`."""
    return sorted(found, key=lambda a: (a.overlaps is not None, -a.saving_pct, a.finding))


def heading(part: Mapping[str, Any]) -> str:
    """Return the heading of a declared part."""
    return str(part.get("title") or find(part["query"]).question)


def page_toml() -> dict[str, Any]:
    """Return the content of `page.toml`."""
    return tomllib.loads((_HERE / "page.toml").read_text(encoding="utf-8"))


def draw(
    part: Part, declaration: declared.Declaration, rows: Rows, run_query: RunQuery, counts: Counts | None = None
) -> None:
    """Set the figure of a part; None without data. `counts`: what its sums are over."""
    part.figure = declared.draw(declaration, rows, run_query, counts)


def filter_rows(rows: Rows, keep: Mapping[str, Any]) -> Rows:
    """Return the rows with one of the values in a column; `positive`: above 0, `known`: not NULL."""
    for name, values in keep.items():
        at = rows.at(name)
        if values == "known":
            left = [r for r in rows.rows if r[at] is not None]
        elif values == "positive":
            left = [r for r in rows.rows if isinstance(r[at], int | float) and r[at] > 0]
        else:
            left = [r for r in rows.rows if r[at] in values]
        rows = Rows(rows.columns, left)
    return rows
