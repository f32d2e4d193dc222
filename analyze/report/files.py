"""Reports and single figures as files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from analyze.errors import InputError
from analyze.plots import declared, drawing
from analyze.plots.figure import Rows
from analyze.query.engine import Engine
from analyze.query.query_files import Query, find
from analyze.report.build import Progress, Report
from analyze.report.page import Part, command_line, filled_sql, render, single
from analyze.report.tables import table
from analyze.store.store import Store
from analyze.whole_file import write_whole


def check_page(output: Path) -> None:
    """Raise InputError unless the file is to be a page and the libraries for it are there."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: a report is written as .html")
    drawing.library()


def write_report(
    stores: Sequence[Store],
    paths: Sequence[str],
    output: Path,
    *,
    after: tuple[Sequence[Store], Sequence[str]] | None = None,
    by: Sequence[str] = (),
    where: str | None = None,
    profiler: str | None = None,
    title: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the page about the recordings; with `after` (stores and paths), about what changed from them to those.

    `paths` are what the user gave, for the commands in the page. Raises InputError.
    """
    check_page(output)
    report = Report(stores, paths, where, by, profiler, progress)
    page = report.page(title) if after is None else report.compared(Report(*after, where, by, profiler), title)
    text = render(page, report.config)
    write_whole(output, lambda part: part.write_text(text, encoding="utf-8"))


def write_figure(
    engine: Engine,
    paths: Sequence[str],
    query: Query,
    params: Mapping[str, str],
    output: Path,
    *,
    by: Sequence[str] = (),
    where: str | None = None,
    profiler: str | None = None,
    figure: str | None = None,
    title: str | None = None,
) -> str:
    """Draw the answer of an engine to a query to a file, whose suffix says the form.

    Returns what of the recordings is left out. `by`, `where` and `profiler` are the engine's, for the command shown.

    Raises InputError for a query without a figure, or an answer without anything to draw.
    """
    form = drawing.output_format(output)
    drawing.library()
    declaration = declared.of_query(query, params, figure, by)
    answer = engine.query(query, dict(params))
    rows = Rows.of(answer)

    def ask(name: str, **more: str) -> Rows:
        return Rows.of(engine.query(find(name), more))

    drawn = declared.draw(declaration, rows, ask)
    if drawn is None:
        needs = f"; it needs {query.needs}" if query.needs else ""
        raise InputError(f"plot {query.name}: there is nothing to draw{needs}")
    heading = title or query.question
    if form == "html":
        command = command_line("query", query.name, paths, params, by, where, profiler)
        part = Part(heading, query.description, query.name, command, filled_sql(query, params), table=table(rows))
        text = single(drawn, part, heading)
        write_whole(output, lambda file: file.write_text(text, encoding="utf-8"))
    else:
        write_whole(output, lambda file: drawing.write(drawn, heading, form, file))
    return answer.note


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr, if that is a terminal, which is gone at the end."""
    if not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("report"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[name]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, name="")
        yield lambda done, total, name: bar.update(task, completed=done, total=total, name=name)
