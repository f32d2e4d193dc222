"""The command `analyze pivot`."""

from __future__ import annotations

from typing import Annotated

import typer

from analyze.cli import completion
from analyze.cli.shared_options import (
    Block,
    Filter,
    Format,
    Group,
    Output,
    Params,
    Paths,
    Profiler,
    QueryFolders,
    Where,
    Wide,
    find_query,
    form_of,
    open_traces,
    parse_params,
    print_answer,
)


def pivot(
    name: Annotated[str, typer.Argument(help="The query.", autocompletion=completion.queries)],
    paths: Paths,
    rows: Annotated[
        str, typer.Option("--rows", help="Columns that label the rows: columns of the query, or those that --by takes.")
    ],
    value: Annotated[str, typer.Option("--value", help="Column of the query that fills the cells.")],
    columns: Annotated[str, typer.Option("--columns", help="Columns that label the columns, as --rows.")] = "",
    agg: Annotated[
        str | None, typer.Option("--agg", help="Combine several values of a cell: sum, avg, min or max.")
    ] = None,
    filter: Filter = None,
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    group: Group = None,
    param: Params = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
    queries: QueryFolders = None,
) -> None:
    """Show one column of a query as a pivot table, for example by model and batch size."""
    form = form_of(format, output)
    params = parse_params(param or [], group=group)
    find_query("pivot", name, queries).bind(params)  # Report bad ones before anything is read.
    laid_out = open_traces(paths, where, profiler, queries, block).pivot(
        name, rows, value, columns, agg, filter, params
    )
    print_answer(laid_out, form, output, wide)
