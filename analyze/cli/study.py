"""The command `analyze study`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli.shared_options import Where, open_traces
from analyze.errors import InputError


def study(
    name: Annotated[
        str | None, typer.Argument(help="The study or its folder. Without a name, all studies are listed.")
    ] = None,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Runs of the study: stores, run folders or raw trace files.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, for example report.html.")
    ] = None,
    where: Where = None,
) -> None:
    """Recompute a study from recordings and check its claims. The HTML page shows the published tables, too."""
    from analyze.render import print_lines, to_stdout, visible

    if name is None:
        print_lines([visible(f"{known}: {title}") for known, title in analyze.studies().items()], sys.stdout)
        return
    from analyze.ingestion.progress import counted_bar
    from analyze.report import study_files
    from analyze.report.output_files import check_page
    from analyze.report.study import claimed

    study_files.load(study_files.find_file(name))  # Report a bad one before anything is read.
    if not paths or output is None:
        raise InputError(f"study {name}: runs and output are missing: analyze study {name} RUNS... -o report.html")
    check_page(output)
    traces = open_traces(paths, where)
    with counted_bar("study") as progress:
        claims = traces.study(name, output, progress)
    to_stdout(lambda: typer.echo(visible(f"{output}: {claimed(claims)}")), sys.stdout)
