"""The command `analyze query`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import completion, listings, terminal
from analyze.cli.shared_options import (
    Block,
    By,
    Filter,
    Format,
    Group,
    Limit,
    Output,
    Params,
    Profiler,
    QueryFolders,
    Sort,
    Where,
    Wide,
    find_query,
    form_of,
    open_traces,
    parse_params,
    print_answer,
)
from analyze.errors import InputError


def query(
    name: Annotated[
        str | None,
        typer.Argument(help="The query. Without a name, all queries are listed.", autocompletion=completion.queries),
    ] = None,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Stores, run folders, folders of these, or raw trace files.")
    ] = None,
    by: By = "",
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    group: Group = None,
    param: Params = None,
    sort: Sort = None,
    limit: Limit = None,
    filter: Filter = None,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            help="Show only these columns, in this order: name,calls.",
            autocompletion=completion.result_columns,
        ),
    ] = "",
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the query's documentation and SQL.")] = False,
    queries: QueryFolders = None,
) -> None:
    """Answer a query. Without a name, list the queries."""
    form = form_of(format, output)
    if name is None:
        asked = {
            "--by": by, "--where": where, "--profiler": profiler, "--block": block, "--group": group,
            "--param": param, "--sort": sort, "--limit": limit is not None, "--filter": filter,
            "--select": select, "--explain": explain,
        }  # fmt: skip
        if given := [option for option, value in asked.items() if value]:
            raise InputError(f"query: {given[0]} needs the name of a query; `analyze query` lists them")
        known = analyze.catalog(queries or ())
        listings.show(lambda: terminal.list_queries(known), lambda: listings.queries(known), form, output, wide)
        return
    params = parse_params(param or [], group=group)
    question = find_query("query", name, queries)
    if explain:
        listings.show(
            lambda: terminal.explain(question, params), lambda: listings.query(question, params), form, output, wide
        )
        return
    question.bind(params)  # Report bad ones before anything is read.
    if not paths:
        raise InputError(f"query {name}: no recording given: analyze query {name} PATH...")
    traces = open_traces(paths, where, profiler, queries, block)
    print_answer(traces.query(name, by, params, sort, limit, select, filter), form, output, wide)
