"""The command `analyze report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyze.cli.shared_options import Block, Paths, Profiler, Where, open_both, open_traces


def report(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, for example report.html.")],
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare", help="Recordings after the change: all paths up to the next option. PATHS are those before it."
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option("--by", help="Label runs by these columns of the table `runs`. Default: the columns that differ."),
    ] = "",
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
) -> None:
    """Write one self-contained HTML page. It has data-quality checks, advice, figures and tables."""
    from analyze.ingestion.progress import counted_bar
    from analyze.report.output_files import check_page

    check_page(output)
    if compare:
        traces, after = open_both(paths, compare, where, profiler, block)
    else:
        traces, after = open_traces(paths, where, profiler, block=block), None
    with counted_bar("report") as progress:
        traces.report(output, after, by, title, progress)
