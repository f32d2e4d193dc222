"""The command `analyze plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from analyze.cli import terminal
from analyze.cli.shared_options import (
    Block,
    By,
    Group,
    Params,
    Paths,
    Profiler,
    QueryFolders,
    Where,
    find_query,
    open_traces,
    parse_params,
)


def plot(
    name: Annotated[str, typer.Argument(help="The query, such as kernel-share or roofline.")],
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .svg, .png or .html.")],
    by: By = "",
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    group: Group = None,
    param: Params = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="Override the query's default figure: 'bars x=total_ns y=name'.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title. Default: the query's question.")] = None,
    queries: QueryFolders = None,
) -> None:
    """Draw the answer of a query as a figure."""
    from analyze.plots.drawing import output_format

    output_format(output)
    params = parse_params(param or [], group=group)
    find_query("plot", name, queries).bind(params)  # Report bad ones before anything is read.
    drawing = open_traces(paths, where, profiler, queries, block).plot(name, output, by, params, figure, title)
    terminal.note([drawing.note])
