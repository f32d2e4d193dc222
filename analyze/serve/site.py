"""What the pages show. A page appears at once, with placeholders that are filled when they are scrolled into view.

Methods that run queries are called in a process of `analyze.serve.query_pool`. All return HTML or raise InputError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analyze.errors import InputError, MachineError
from analyze.plots import declared
from analyze.plots.figure import Rows, cut, label
from analyze.plots.per import Counts
from analyze.query.data_needs import combined_runs, why_empty
from analyze.query.engine import Engine
from analyze.query.query_declaration import Query
from analyze.query.query_files import catalog, find
from analyze.query.selection import DEFAULT, PROFILERS, Selection
from analyze.render import visible
from analyze.render.units import finite
from analyze.report import first_screen, parts
from analyze.report.changes import change, declared_changes, facts_of_both, figures_of_both, title_of_both
from analyze.report.findings import advice
from analyze.report.html_table import table
from analyze.report.page import Part, command_line
from analyze.report.page_timeline import timeline_of_both, timeline_of_run, timelines_of_both
from analyze.report.report import Report
from analyze.report.timelines import Timelines
from analyze.serve.addresses import ONLY, Addresses, PageSelection, address, names_in, side_of, whole_number
from analyze.serve.query_request import FORMS, MOST_SHOWN_ROWS, QueryRequest, saved
from analyze.serve.report_cache import ReportCache
from analyze.serve.templates import Chapter, PageView, Placeholder, Templates
from analyze.shell import in_shell
from analyze.store.object_storage import store_to_json
from analyze.store.store import Store
from analyze.stored_tables import TABLES
from analyze.verdict.sides import recorded_sides

MOST_SQL_ROWS = 1_000
"""Rows shown of a SELECT."""
MOST_DRAWN_ROWS = 100_000
"""Limit of rows for a figure."""


class Site:
    """The pages over some stores."""

    def __init__(
        self,
        stores: Sequence[Store],
        paths: Sequence[str],
        folders: Sequence[Path] = (),
        selection: Selection = DEFAULT,
        folder: Path | None = None,
    ):
        """`folder`: for answers as files; by default a temporary one."""
        self._stores, self._paths, self._folders = list(stores), list(paths), list(folders)
        self._selection = selection
        self._reports = ReportCache(self._report, 2)
        self.templates = Templates()
        self._own_folder = None if folder else TemporaryDirectory(prefix="tracequarry-")
        self.folder = folder or Path(self._own_folder.name if self._own_folder else "")
        self.queries = catalog(folders)

    # --- the request ----------------------------------------------------------------------------------------------

    def _report(self, page: PageSelection) -> Report:
        links = Addresses(page, self._folders)
        return Report(self._stores, self._paths, page.narrow(self._selection), links=links)

    def _engine(self, selection: Selection) -> AbstractContextManager[Engine]:
        """Open an engine for one answer."""
        return closing(Engine(self._stores, selection))

    def _selected(self, asked: QueryRequest) -> Selection:
        """What a query reads."""
        return replace(asked.selection.narrow(self._selection).grouped(asked.by), prefer=asked.query.prefer)

    def served(self) -> dict[str, Any]:
        """Return what a worker process needs to build the same site, for JSON."""
        return {
            "stores": list(map(store_to_json, self._stores)), "paths": self._paths,
            "folders": [str(folder.absolute()) for folder in self._folders],
            "selection": asdict(self._selection), "folder": str(self.folder),
        }  # fmt: skip

    @cached_property
    def runs(self) -> list[str]:
        """Return the ids of all runs."""
        with self._engine(replace(self._selection, prefer="all")) as engine:
            return sorted(engine.run_ids)

    # --- the report -----------------------------------------------------------------------------------------------

    def report(self, given: Mapping[str, str]) -> str:
        """Return the report of one run or several."""
        selection = PageSelection.of(given)
        with self._reports.lend(selection) as report:
            notes = [report.engine.note] if report.engine.note else []
            view = PageView(first_screen.title(report), "report", facts=first_screen.facts(report), notes=notes)

            def place(part: str, title: str) -> Placeholder:
                return Placeholder.at("/run", selection.pairs(), part, title)

            chapters = []
            # First those with something to show.
            for s in sorted(parts.sections(report), key=lambda s: not parts.answerable(report, s)):
                places = [place(f"{s['id']}.{number}", parts.heading(p)) for number, p in enumerate(s["part"])]
                chapters.append(Chapter(s["id"], s["title"], places))
            view.sections = [
                *(chapters.pop(0) for _ in range(report.several)),  # the list of the runs
                *([] if report.several else [Chapter("figures", "", [place("figures", "The main figures")])]),
                Chapter("checks", "", [place("checks", "Data quality")]),
                Chapter("advice", "Advice", [place("advice", "What costs time, and what to try")]),
                *([Chapter("timeline", "Timeline", [place("timeline", "Timeline")])] if report.timelines else []),
                *chapters,
            ]
            if selection.run and len(self.runs) > 1:
                view.crumbs = [
                    ("Runs", "/"),
                    (cut(selection.run, 100), ""),
                    ("compare", address("/compare", [("a", selection.run)])),
                ]
            view.command = report.page_command()
        return self._page(view, given)

    def report_part(self, given: Mapping[str, str]) -> str:
        """A part of that page."""
        name = given["part"]
        with self._reports.lend(PageSelection.of(given)) as report:
            if name == "figures":
                return self.templates.part("figures", tiles=first_screen.main_figures(report), changes=[], notes=[])
            if name == "checks":
                return self.templates.part("checks", quality=first_screen.quality(first_screen.checks(report)))
            if name == "advice":
                findings, advised = advice(report)
                return self.templates.part("advice", findings=findings, advised=advised, several=report.several)
            if name == "timeline":
                source = address("/timeline", PageSelection.of(given).pairs())
                return self.templates.part("timeline", t=timeline_of_run(report, source=source))
            declarations = {f"{s['id']}.{n}": p for s in parts.sections(report) for n, p in enumerate(s["part"])}
            if name not in declarations:
                raise InputError(f"the page has no part {cut(name, 60)!r}")
            part = parts.part(report, declarations[name])
            if part is None:
                return self.templates.part(
                    "lacking", title=parts.heading(declarations[name]), lacks=declarations[name].get("lacks")
                )
            return self.templates.article(part, name.replace(".", "-"))

    def timeline(self, given: Mapping[str, str]) -> str:
        """Events of the timeline of a run as JSON: of a window, or an event that a text finds."""
        with ExitStack() as lent:
            if given.get("a") and given.get("b"):
                sides = (lent.enter_context(self._reports.lend(side_of(names))) for names in names_in(given))
                timelines: Timelines | None = timelines_of_both(*sides)
            else:
                timelines = lent.enter_context(self._reports.lend(PageSelection.of(given))).timelines
            if not timelines:
                raise InputError("only one run with timed events has a timeline")
            if text := given.get("find"):
                answer = timelines.find(text, whole_number(given, "place") or 1)
            else:
                window = whole_number(given, "from_ns"), whole_number(given, "to_ns")
                answer = timelines.window(*window, whole_number(given, "width") or 1_000)
            return json.dumps(answer, separators=(",", ":"))

    # --- a query --------------------------------------------------------------------------------------------------

    def questions(self) -> str:
        """Return the list of queries."""
        groups: dict[str, list[Query]] = {}
        for query in sorted(self.queries.values(), key=lambda q: (q.group, q.name)):
            groups.setdefault(query.group, []).append(query)
        return self._page(PageView("Queries", "questions"), {}, "questions", groups=groups)

    def question(self, name: str, given: Mapping[str, str]) -> str:
        """Return the page of a query: a form, and a placeholder for the answer."""
        query = find(name, self._folders)
        asked = QueryRequest.of(query, given)
        view = PageView(query.question, "questions")
        view.crumbs = [("Queries", "/queries"), (label(query.group), ""), (query.name, "")]
        view.sections = [
            Chapter("answer", "", [Placeholder.at(f"/query/{query.name}", given.items(), "answer", query.question)])
        ]
        kept = {k: v for k, v in given.items() if k != "part"}
        chips = []
        for column, value in asked.only.items():
            others = [pair for pair in kept.items() if pair[0] != ONLY + column]
            chips.append((column, cut(value, 80), address(f"/query/{query.name}", others)))
        files = [(form, address(f"/query/{query.name}.{form}", kept.items())) for form in FORMS]
        return self._page(
            view, given, "question", query=query, asked=asked, chips=chips, files=files, runs=self.runs,
            profilers=(*PROFILERS, "all"), most=MOST_SHOWN_ROWS,
        )  # fmt: skip

    def answer(self, name: str, given: Mapping[str, str]) -> str:
        """Return the answer to a query: figure and table."""
        query = find(name, self._folders)
        asked = QueryRequest.of(query, given)
        selection, params, by = asked.selection, asked.params, asked.by
        with self._engine(self._selected(asked)) as engine:
            answer = engine.query(
                query, params, asked.sort or None, MOST_DRAWN_ROWS + 1, only=asked.only, filter=asked.filter
            )
            rows = Rows.of(answer)
            notes = [answer.note] if answer.note else []
            if len(rows.rows) > MOST_DRAWN_ROWS:
                rows = Rows(rows.columns, rows.rows[:MOST_DRAWN_ROWS])
                notes.append(f"Showing the first {MOST_DRAWN_ROWS:,} rows; there are more.")
            if not rows.rows:
                nothing = ", ".join(f"{k} = {cut(v, 80)}" for k, v in asked.only.items())
                why = f"none with {nothing}." if asked.only else why_empty(engine, query, params, asked.filter)
                notes.append(f"No rows: {why}")
            elif runs := combined_runs(engine, query, params, by, [c.name for c in rows.columns]):
                notes.append(f"{runs} runs combined; group by run_id or model to separate them.")
            sql = query.filled(params)
            part = Part(query.question, query.description, query.name, self._command(asked), sql, open=True)
            links = Addresses(selection, self._folders)
            if query.plot and rows.rows:
                try:
                    declaration = declared.of_query(query, params, None, by)
                    counts = None if by else Counts.of(engine)
                    part.figure = declared.draw(
                        declaration, rows, lambda other, **more: Rows.of(engine.query(find(other), more)), counts
                    )
                except (InputError, MachineError) as e:
                    notes.append(str(e))
        if rows.rows:
            part.table = table(rows, (), asked.rows, links.cells(query, rows, params, by))
        box = address("/sql", [*selection.pairs(), ("statement", sql)])
        return self.templates.article(part, "answer-1", notes, box, headed=False)

    def save(self, name: str, form: str, given: Mapping[str, str]) -> Path:
        """Write the answer to a query to a file, which the caller removes."""
        query = find(name, self._folders)
        asked = QueryRequest.of(query, given)
        with self._engine(self._selected(asked)) as engine:
            answer = engine.query(query, asked.params, asked.sort or None, only=asked.only, filter=asked.filter)
            return saved(answer, form, str(self.folder), f"write it with {self._command(asked)} -o {query.name}.{form}")

    def _command(self, asked: QueryRequest) -> str:
        """The command line that answers the same."""
        text = command_line("query", asked.query.name, self._paths, asked.params, self._selected(asked))
        options = (("--filter", asked.filter), ("--sort", asked.sort))
        return text + "".join(f" {option} {in_shell(value)}" for option, value in options if value)

    # --- SQL ------------------------------------------------------------------------------------------------------

    def box(self, given: Mapping[str, str], result: str = "") -> str:
        """The page to write SQL on; it runs nothing by itself."""
        return self._page(
            PageView("SQL", "sql"), given, "sql", statement=given.get("statement", ""), tables=TABLES, runs=self.runs,
            selection=PageSelection.of(given), rows=MOST_SQL_ROWS, result=result,
        )  # fmt: skip

    def sql(self, given: Mapping[str, str]) -> str:
        """The answer to a SELECT."""
        selection, statement = PageSelection.of(given).narrow(self._selection), given.get("statement", "")
        with self._engine(selection) as engine:
            answer = engine.sql(statement)
            taken = answer.rows(MOST_SQL_ROWS + 1)
        notes = [answer.note] if answer.note else []
        notes += ["No rows."] if not taken else []
        if len(taken) > MOST_SQL_ROWS:
            notes.append(f"The first {MOST_SQL_ROWS:,} rows; there are more.")
        rows = Rows(answer.columns, [tuple(map(finite, row)) for row in taken[:MOST_SQL_ROWS]])
        part = Part("the answer", "", "", command_line("sql", statement, self._paths, {}, selection), "", open=True)
        part.table = table(rows, (), MOST_SQL_ROWS) if taken else None
        return self.templates.article(part, "sql-1", notes, headed=False)

    def save_sql(self, form: str, given: Mapping[str, str]) -> Path:
        """Write the answer to a SELECT to a file, which the caller removes."""
        selection = PageSelection.of(given).narrow(self._selection)
        with self._engine(selection) as engine:
            answer = engine.sql(given.get("statement", ""))
            return saved(answer, form, str(self.folder), f"write it with analyze sql ... -o rows.{form}")

    # --- the runs of two sides -------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> list[str]:
        """The names of all runs; passes of one workload share one."""
        with self._engine(replace(self._selection, prefer="all")) as engine:
            rows = engine.rows("SELECT DISTINCT coalesce(workload_id, run_id::VARCHAR) FROM runs")
        return sorted(name for (name,) in rows)

    def _recorded_sides(self) -> tuple[list[str], list[str]]:
        """The names of the runs of A and of B, if a folder of `collect ab` is served; else of the first two runs."""
        try:
            (folder,) = self._paths
            a, b = ([run.name for run in side] for side in recorded_sides(Path(folder)))
        except (ValueError, InputError):
            return self._names[:1], self._names[1:2]
        return a, b

    def compared(self, given: Mapping[str, str]) -> str:
        """Return the comparison of the runs `a` with the runs `b`, a name each line; without them, the form."""
        a, b = names_in(given)
        view = PageView("Compare runs", "compare")
        if a and b:
            with self._reports.lend(side_of(a)) as one, self._reports.lend(side_of(b)) as other:
                view.title, view.facts = title_of_both(one, other), facts_of_both(one, other)
                timed = len(timelines_of_both(one, other).runs) == 2
            pairs = [("a", "\n".join(a)), ("b", "\n".join(b))]
            places = [
                Placeholder.at("/compare", pairs, str(n), c["title"])
                for n, c in enumerate(declared_changes())
                if not c.get("repeated") or min(len(a), len(b)) > 1
            ]
            both, timeline = (
                Placeholder.at("/compare", pairs, part, title)
                for part, title in (("figures", "The main figures"), ("timeline", "Timeline"))
            )
            view.sections = [
                Chapter("figures", "", [both]),
                *([Chapter("timeline", "Timeline", [timeline])] if timed else []),
                Chapter("changes", "What changed", places),
            ]
        else:
            a, b = self._recorded_sides()
        names = list(dict.fromkeys([*self._names, *a, *b]))
        return self._page(view, given, "compare", names=names, chosen={"a": a, "b": b})

    def compared_part(self, given: Mapping[str, str]) -> str:
        """A part of that page."""
        a, b = map(side_of, names_in(given))
        with self._reports.lend(a) as one, self._reports.lend(b) as other:
            if given["part"] == "figures":
                changes, notes = figures_of_both(one, other)
                return self.templates.part("figures", tiles=[], changes=changes, notes=notes)
            if given["part"] == "timeline":
                source = address("/timeline", [(side, given[side]) for side in ("a", "b")])
                return self.templates.part("timeline", t=timeline_of_both(one, other, source))
            declarations = dict(enumerate(declared_changes()))
            number = int(given["part"]) if given["part"].isdecimal() else -1
            if number not in declarations:
                raise InputError(f"the page has no part {cut(given['part'], 60)!r}")
            try:
                part, notes = change(one, other, declarations[number])
            except (InputError, MachineError) as e:
                part, notes = None, [str(e)]
            if part is None:
                return self.templates.part(
                    "lacking", title=declarations[number]["title"], lacks=None, said="; ".join(notes)
                )
            return self.templates.article(part, f"changes-{number}", notes)

    # --- HTML -----------------------------------------------------------------------------------------------------

    def error(self, sentence: str, whole: bool) -> str:
        """Return an error sentence, as a fragment or as a page."""
        text = self.templates.part("error", sentence=visible(sentence))
        return self.alone(text, "Error") if whole else text

    def alone(self, fragment: str, title: str) -> str:
        """Return a part of a page as a page, for browsers without scripts."""
        return self._page(PageView(title), {}, "alone", fragment=fragment)

    def _page(self, view: PageView, given: Mapping[str, str], kind: str = "report", **more: Any) -> str:
        return self.templates.page(kind, view, given=given, several=len(self.runs) > 1, **more)
