"""Write reports and single figures to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from analyze.atomic_output import ending_of, write_atomically
from analyze.errors import InputError
from analyze.ingestion.progress import Counted
from analyze.plots import declared, drawing
from analyze.plots.figure import Figure, Rows
from analyze.plots.per import Counts
from analyze.query.engine import Engine
from analyze.query.query_declaration import Query
from analyze.query.query_files import find
from analyze.query.result import Result
from analyze.query.selection import Selection
from analyze.query.text_checks import check_text
from analyze.report.changes import page_of_changes
from analyze.report.html_table import table
from analyze.report.page import Page, Part, Section, command_line
from analyze.report.recordings import page_of_recordings
from analyze.report.report import Report
from analyze.report.templates import render
from analyze.store.store import Store


def check_page(output: Path) -> None:
    """Raise InputError unless the file ends in .html."""
    ending_of(output, (".html", ".htm"), "the name of a report must end in .html")


def write_report(
    stores: Sequence[Store],
    paths: Sequence[str],
    output: Path,
    *,
    after: tuple[Sequence[Store], Sequence[str], Selection] | None = None,
    selection: Selection,
    title: str | None = None,
    progress: Counted | None = None,
) -> None:
    """Write the page about the recordings; with `after` (stores, paths, selection), about what changed to those.

    `paths` are what the user gave, for the commands in the page. Raises InputError.
    """
    check_page(output)
    check_text(title or "", "--title")
    report = Report(stores, paths, selection, progress)
    page = page_of_recordings(report, title) if after is None else page_of_changes(report, Report(*after), title)
    text = render(page)
    write_atomically(output, lambda part: part.write_text(text, encoding="utf-8"))


@dataclass(frozen=True)
class Drawing:
    """The figure of an answer. A notebook shows it; `save` writes it."""

    figure: Figure
    note: str
    """Which passes were excluded, in a sentence; empty if none."""
    _part: Part

    def svg(self) -> str:
        """Return the figure as SVG, with title and background."""
        return drawing.svg(self.figure, self._part.title)

    _repr_svg_ = svg

    def __repr__(self) -> str:
        return f"{self._part.title} {self.figure.alt}"

    def save(self, file: str | PathLike[str]) -> None:
        """Write the figure to a .svg, .png or .html file. Raises InputError."""
        output = Path(file)
        form = drawing.output_format(output)
        if form == "html":
            sections = [Section("figure", "", [self._part])]
            text = render(Page(self._part.title, [], ("", []), [], "", sections, [], [], self._part.command, False))
            write_atomically(output, lambda part: part.write_text(text, encoding="utf-8"))
        elif form == "svg":
            write_atomically(output, lambda part: part.write_text(self.svg(), encoding="utf-8"))
        else:
            write_atomically(output, lambda part: part.write_bytes(drawing.png(self.figure, self._part.title)))


def draw(
    answer: Result,
    engine: Engine,
    paths: Sequence[str],
    query: Query,
    params: Mapping[str, str],
    *,
    figure: str | None = None,
    title: str | None = None,
) -> Drawing:
    """Draw the answer of an engine to a query: all of its rows, or those that were chosen.

    Raises InputError for a query without a figure, an answer without the columns that it needs or without anything to
    draw.
    """
    check_text(title or "", "--title")
    declaration = declared.of_query(query, params, figure, engine.selection.by)
    rows = Rows.of(answer)

    def run_query(name: str, **more: str) -> Rows:
        return Rows.of(engine.query(find(name), more))

    try:
        drawn = declared.draw(declaration, rows, run_query, None if engine.selection.by else Counts.of(engine))
    except KeyError as e:
        if e.args[0] in {c.name for c in rows.columns}:
            raise
        raise InputError(f"plot {query.name}: the figure needs the column {e.args[0]}, which was not selected") from e
    if drawn is None:
        needs = f"; it needs {query.needs}" if query.needs else ""
        raise InputError(f"plot {query.name}: no data for a figure{needs}")
    command = command_line("query", query.name, paths, params, engine.selection)
    heading = title or query.question
    sql = query.filled(params)
    part = Part(heading, query.description, query.name, command, sql, drawn, table(rows), open=True)
    return Drawing(drawn, answer.note, part)
