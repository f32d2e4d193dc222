"""The report of a study: its queries, what the study printed, and which of its claims hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from analyze.atomic_output import write_atomically
from analyze.errors import InputError, MachineError
from analyze.ingestion.progress import Counted
from analyze.plots import declared
from analyze.plots.figure import Rows
from analyze.query.databases import empty_database
from analyze.query.guessed_units import guess_unit
from analyze.query.query_declaration import Query, ResultColumn
from analyze.query.query_files import find
from analyze.query.result import create_table
from analyze.query.selection import Selection
from analyze.query.sql_checks import check_select, sentence
from analyze.render.units import finite
from analyze.report import study_files
from analyze.report.first_screen import checks, facts, quality, tiles
from analyze.report.html_table import table
from analyze.report.output_files import check_page
from analyze.report.page import Claim, Page, Part, Section, command_line
from analyze.report.parts import filter_rows
from analyze.report.report import Report
from analyze.report.templates import render
from analyze.store.store import Store
from analyze.summary import Measure

HOLDS, FAILS, PARTLY, UNKNOWN = "holds", "does not hold", "holds in part", "cannot be checked here"
VERDICTS = {HOLDS: "ok", FAILS: "warning", PARTLY: "partly", UNKNOWN: "partly"}
"""Verdicts, with the CSS class of each."""
_MANY = {HOLDS: "hold", FAILS: "do not hold", PARTLY: "hold in part", UNKNOWN: UNKNOWN}
_CASES = {True: "yes", False: "no", None: "not decided"}


def verdict(cases: Sequence[bool | None]) -> str:
    """Return the verdict for the cases of a claim; None is a case that is not decided."""
    checked = [c for c in cases if c is not None]
    if not checked:
        return UNKNOWN
    return HOLDS if all(checked) else PARTLY if any(checked) else FAILS


class StudyReport(Report):
    """Builds the report of a study from its recordings."""

    def __init__(
        self,
        file: Path,
        name: str,
        stores: Sequence[Store],
        paths: Sequence[str],
        selection: Selection,
        progress: Counted | None = None,
    ):
        self.file, self.name = file, name
        self.study = study_files.load(file)
        super().__init__(stores, paths, replace(selection, profiler="all"), progress)
        self.tables = empty_database()
        """The answers of the parts with an id, as tables of that name: claims are SQL over them."""

    def study_page(self) -> Page:
        """Return the page. Raises InputError that names the file and the key of a bad part."""
        sections = {s.id: Section(s.id, s.title, text=s.text) for s in self.study.section}
        lacking = []
        for done, (at, section, declaration) in enumerate(self.study.parts):
            self.progress(done, len(self.study.parts), declaration.query or "sql")
            part = self._part(at, declaration)
            if part.figure is None and part.table is None and declaration.lacks:
                lacking.append((part.title, declaration.lacks))
            if part.figure or part.table or part.printed:
                sections[section.id].parts.append(part)
        claims = [self._claim(f"claim[{i}]", claim) for i, claim in enumerate(self.study.claim)]
        self.progress(len(self.study.parts), len(self.study.parts), "")
        measures = [self._measure(f"measure[{i}]", measure) for i, measure in enumerate(self.study.measure)]
        strip = tiles([*filter(None, measures), *_counts(claims)], lambda part: f"#{part}")
        return Page(
            self.study.title, facts(self), quality(checks(self)), [], "", [s for s in sections.values() if s.parts],
            lacking, [], self.page_command(("study", self.name)), self.several, strip, about=self.study.about,
            study=list(self.study.study.items()), claims=claims, claimed=claimed(claims),
        )  # fmt: skip

    def _part(self, at: str, declaration: study_files.StudyPart) -> Part:
        """Return a part of the page, and create the table of its rows for the claims."""
        query = find(declaration.query) if declaration.query else None
        part = Part(
            declaration.title or (query.question if query else ""),
            query.description if query else "",
            declaration.query,
            self._command(declaration),
            query.filled(declaration.texts) if query else declaration.sql.strip(),
            id=declaration.id or "",
            text=declaration.text,
            different=declaration.different,
        )
        if query or declaration.sql:
            try:
                self._answer(part, declaration, query)
            except InputError as e:
                raise InputError(f"{self.file}: {at}: {e}") from e
        if declaration.printed is not None:
            part.printed = self._printed(declaration, declaration.printed)
        return part

    def _answer(self, part: Part, declaration: study_files.StudyPart, query: Query | None) -> None:
        """Fill in figure and table of a part."""
        engine = self.engine_of(replace(self._selected(declaration), prefer=query.prefer if query else None))
        rows = Rows.of(
            engine.query(query, declaration.texts, declaration.sort or None) if query else engine.sql(declaration.sql)
        )
        text = declaration.figure if declaration.figure is not None else query.plot if query else ""
        text = "" if text == "none" else re.sub(r"\bBY\b", ",".join(declaration.by), text)
        figure = None
        if text:
            figure = (
                declared.of_query(query, declaration.texts, text, declaration.by)
                if query
                else declared.parse(text, "figure")
            )
        for key, names in (
            ("keep", declaration.keep), ("columns", declaration.columns), ("figure", figure.columns if figure else ())
        ):  # fmt: skip
            for name in names:
                if not rows.has(name):
                    raise InputError(f"{key}: the answer has no column {name!r}")
        rows = filter_rows(rows, declaration.keep)
        if declaration.id:
            try:
                create_table(self.tables, declaration.id, rows.columns, rows.rows)
            except duckdb.Error as e:
                raise InputError(f"id: claims cannot read the answer: {sentence(e)}") from e
        if not rows.rows:
            part.note = f"Not recorded; needs {declaration.lacks}" if declaration.lacks else "Not recorded."
            return
        if figure is not None:
            figure = figure._replace(per=())  # as the study has them
            try:
                part.figure = declared.draw(figure, rows, lambda name, **more: Rows.of(engine.query(find(name), more)))
            except (InputError, MachineError) as e:
                part.note = str(e)
        if declaration.table:
            part.table = table(rows, declaration.columns, declaration.rows)
            part.open = part.figure is None

    def _selected(self, declaration: study_files.StudyPart) -> Selection:
        selection = self.selection.narrowed(declaration.where)
        return replace(selection, profiler=declaration.profiler, by=tuple(declaration.by))

    def _command(self, declaration: study_files.StudyPart) -> str:
        """Return the command line of a part; empty if it has only printed numbers."""
        if not declaration.query and not declaration.sql:
            return ""
        verb, name = ("query", declaration.query) if declaration.query else ("sql", " ".join(declaration.sql.split()))
        return command_line(verb, name, self.paths, declaration.texts, self._selected(declaration), declaration.sort)

    def _printed(self, declaration: study_files.StudyPart, printed: study_files.Printed) -> Part:
        """Return what the study printed about a part."""
        shown = Part(printed.source, "", "", "", "", text=printed.text, source=printed.source)
        rows = printed.answer
        if declaration.id and rows.columns:
            create_table(self.tables, f"{declaration.id}_printed", rows.columns, rows.rows)
        if rows.rows:
            if printed.figure:
                figure = declared.parse(printed.figure, "printed.figure")
                shown.figure = declared.draw(figure, rows, self.run_query)
            shown.table = table(rows, (), len(rows.rows))
            shown.open = shown.figure is None
        return shown

    def _sql(self, sql: str, what: str) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
        """Return names, types and rows of SQL over the parts."""
        statement = check_select(self.tables, sql, what)
        try:
            result = self.tables.sql(statement)
            types = [str(t) for t in result.types]
            return list(result.columns), types, [tuple(map(finite, row)) for row in result.fetchall()]
        except duckdb.Error as e:
            raise InputError(f"{what}: {sentence(e)}") from e

    def _measure(self, at: str, declared: study_files.StudyMeasure) -> Measure | None:
        """Return a main figure; None if it was not recorded."""
        what = f"{self.file}: {at}.sql"
        names, types, rows = self._sql(declared.sql, what)
        if len(rows) > 1 or names[1:] not in ([], ["detail"]):
            raise InputError(f"{what}: expected one row with a value and, optionally, a column `detail`")
        value, detail = (*rows[0], "")[:2] if rows else (None, "")
        if value is None:
            return None
        if isinstance(value, bool | str) or not isinstance(value, int | float):
            raise InputError(f"{what}: {names[0]}: {value!r} is not a number")
        return Measure(declared.name, value, guess_unit(names[0], types[0]), str(detail or ""), declared.part)

    def _claim(self, at: str, claim: study_files.StudyClaim) -> Claim:
        """Return a claim with its verdict."""
        what = f"{self.file}: {at}.sql"
        names, types, rows = self._sql(claim.sql, what)
        at_holds = names.index("holds") if "holds" in names else 0
        cases: list[bool | None] = [row[at_holds] for row in rows]
        if "holds" not in names or not all(isinstance(c, bool | None) for c in cases):
            raise InputError(
                f"{what}: a column `holds` must say for each row whether the claim holds: true, false or NULL"
            )
        # With a single case the verdict is enough.
        shown = [i for i in range(len(names)) if i != at_holds or len(rows) > 1]
        evidence = Rows(
            tuple(
                ResultColumn(names[i], "text" if i == at_holds else guess_unit(names[i], types[i]), "") for i in shown
            ),
            [tuple(_CASES[row[i]] if i == at_holds else row[i] for i in shown) for row in rows],
        )
        found = verdict(cases)
        return Claim(
            " ".join(claim.text.split()), claim.source, found, VERDICTS[found], table(evidence), claim.note,
            claim.sql.strip(),
        )  # fmt: skip


def claimed(claims: Sequence[Claim]) -> str:
    """Return a sentence with the number of claims per verdict; empty without claims."""
    return f"Of {len(claims)} claims of the study, {_by_verdict(claims)}." if claims else ""


def _by_verdict(claims: Sequence[Claim]) -> str:
    counts = {v: sum(c.verdict == v for c in claims) for v in VERDICTS}
    return ", ".join(f"{n} {v if n == 1 else _MANY[v]}" for v, n in counts.items() if n)


def _counts(claims: Sequence[Claim]) -> list[Measure]:
    """Return the figure that says how many claims hold; none without claims."""
    if not claims:
        return []
    shares = ((v, 100 * sum(c.verdict == v for c in claims) / len(claims)) for v in VERDICTS)
    known = tuple((v, share) for v, share in shares if share)
    return [Measure("claims of the study", len(claims), "count", _by_verdict(claims), "claims", known)]


def write_study(
    name: str,
    stores: Sequence[Store],
    paths: Sequence[str],
    output: Path,
    *,
    selection: Selection,
    progress: Counted | None = None,
) -> list[Claim]:
    """Write the report of a study; return its claims with their verdicts. Raises InputError.

    `name`: name of the study or path of its folder. `paths`: as the user gave them, for the commands in the page.
    """
    check_page(output)
    report = StudyReport(study_files.find_file(name), name, stores, paths, selection, progress)
    page = report.study_page()
    text = render(page)
    write_atomically(output, lambda part: part.write_text(text, encoding="utf-8"))
    return page.claims
