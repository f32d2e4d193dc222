"""Commands that answer on the terminal, or to a file of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

import analyze
from analyze.commands import completion, listings, terminal
from analyze.commands.shared import (
    BY,
    Format,
    Limit,
    Output,
    Params,
    Paths,
    Profiler,
    QueryFolders,
    Sort,
    Where,
    Wide,
    app,
    find_query,
    finite,
    form_of,
    open_traces,
    parse_params,
    print_answer,
)
from analyze.errors import InputError

if TYPE_CHECKING:
    from analyze.query.answer import Answer


@app.command()
def info(paths: Paths) -> None:
    """Show what recordings contain and which queries they can answer."""
    from analyze import info as about
    from analyze.render import print_lines, terminal_width

    found = open_traces(paths).info()
    print_lines(about.lines(found, paths, terminal_width(sys.stdout)), sys.stdout)


@app.command()
def query(
    name: Annotated[
        str | None,
        typer.Argument(help="The query. Without a name, all queries are listed.", autocompletion=completion.queries),
    ] = None,
    paths: Annotated[list[Path] | None, typer.Argument(help="Stores, run folders or raw trace files.")] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=BY,
            autocompletion=completion.run_columns,
        ),
    ] = "",
    where: Where = None,
    profiler: Profiler = None,
    param: Params = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            help="Sort by these columns; -name sorts in descending order.",
            autocompletion=completion.result_columns,
        ),
    ] = None,
    limit: Limit = None,
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
            "--by": by, "--where": where, "--profiler": profiler, "--param": param, "--sort": sort,
            "--limit": limit is not None, "--select": select, "--explain": explain,
        }  # fmt: skip
        if given := [option for option, value in asked.items() if value]:
            raise InputError(f"query: {given[0]} needs the name of a query; `analyze query` lists them")
        known = analyze.catalog(queries or ())
        _list(lambda: terminal.list_queries(known), lambda: listings.queries(known), form, output, wide)
        return
    params = parse_params(param or [])
    question = find_query("query", name, queries)
    if explain:
        _list(lambda: terminal.explain(question, params), lambda: listings.query(question, params), form, output, wide)
        return
    question.bind(params)  # Report bad ones before anything is read.
    if not paths:
        raise InputError(f"query {name}: no recording given: analyze query {name} PATH...")
    traces = open_traces(paths, queries)
    print_answer(
        traces.answer(name, by, where, params, sort, limit, select, profiler),
        form,
        output,
        wide,
    )


def _list(say: Callable[[], None], rows: Callable[[], Answer], form: str, output: Path | None, wide: bool) -> None:
    """Have a listing said on the terminal, or write it as rows."""
    from analyze.render import to_stdout

    if form == "table" and output is None:
        to_stdout(say, sys.stdout)
    else:
        print_answer(rows(), form, output, wide)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables that `analyze tables` lists.")],
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Run your own SELECT over the tables."""
    form = form_of(format, output)
    print_answer(open_traces(paths).sql_answer(statement, where, profiler), form, output, wide)


@app.command()
def tables(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A table, a building block, or a view or macro of one. Without a name, all tables.",
            autocompletion=completion.tables,
        ),
    ] = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="List the building blocks of queries and what each defines.")
    ] = False,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Document the tables and the building blocks of queries."""
    form = form_of(format, output)
    shown = analyze.tables(name, blocks)
    if blocks:
        _list(lambda: terminal.list_blocks(shown), lambda: listings.blocks(shown), form, output, wide)
    else:
        _list(lambda: terminal.describe(shown), lambda: listings.tables(shown), form, output, wide)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Before: a store, run folder or raw trace file.")],
    b: Annotated[Path, typer.Argument(help="After: a store, run folder or raw trace file; may be the same store.")],
    level: Annotated[str, typer.Option("--level", help="Compare by kernel, family, op or phase.")] = "kernel",
    time: Annotated[str, typer.Option("--time", help="Compare gpu time, or cpu time (op and phase only).")] = "gpu",
    where: Where = None,
    where_a: Annotated[str | None, typer.Option("--where-a", help="Like --where, for A only.")] = None,
    where_b: Annotated[str | None, typer.Option("--where-b", help="Like --where, for B only.")] = None,
    profiler: Profiler = None,
    per_step: Annotated[
        bool | None,
        typer.Option("--per-step/--total", help="Divide by training steps. Default: if both recordings have steps."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, callback=finite, help="Changes up to this percentage are `same`.")
    ] = 1.0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help="Exit with code 1 if this condition holds: 'kernel_time > 5%'."),
    ] = None,
    flame: Annotated[
        Path | None, typer.Option("--flame", help="Also write the stacks of both for flamegraph.pl: out.folded.")
    ] = None,
    sort: Sort = None,
    limit: Limit = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Compare two recordings: what was added, removed or changed. --fail-if checks a limit, for CI."""
    form = form_of(format, output)
    if flame is not None:
        from analyze.flame import check_difference

        check_difference(flame)
    result = analyze.compare(
        open_traces([a]),
        open_traces([b]),
        level=level,
        time=time,
        where=where,
        where_a=where_a,
        where_b=where_b,
        per_step=per_step,
        tolerance=tolerance,
        fail_if=fail_if or (),
        sort=sort,
        limit=limit,
        profiler=profiler,
        flame=flame,
    )
    print_answer(result.answer, form, output, wide)  # Where both go into one log, the verdict comes last.
    terminal.note(result.notes)
    for failure in result.failures:
        terminal.say(f"failed: {failure}")
    if result.failures:
        raise typer.Exit(1)


@app.command()
def pivot(
    name: Annotated[str, typer.Argument(help="The query.", autocompletion=completion.queries)],
    paths: Paths,
    rows: Annotated[str, typer.Option("--rows", help="Columns of runs or of the query for the rows.")],
    value: Annotated[str, typer.Option("--value", help="Column of the query for the cells.")],
    columns: Annotated[str, typer.Option("--columns", help="Columns of runs or of the query for the columns.")] = "",
    agg: Annotated[
        str | None, typer.Option("--agg", help="Combine several values of a cell: sum, avg, min or max.")
    ] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="Filter rows of the query's result (SQL).")] = None,
    where: Where = None,
    profiler: Profiler = None,
    param: Params = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
    queries: QueryFolders = None,
) -> None:
    """Show one column of a query as a pivot table. For example: models by batch sizes."""
    form = form_of(format, output)
    params = parse_params(param or [])
    find_query("pivot", name, queries).bind(params)  # Report bad ones before anything is read.
    laid_out = open_traces(paths, queries).pivot_answer(
        name, rows, value, columns, agg, filter, where, params, profiler
    )
    print_answer(laid_out, form, output, wide)


@app.command()
def advise(
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    min_pct: Annotated[
        float,
        typer.Option("--min-pct", min=0, callback=finite, help="Hide findings below this share of the run time (%)."),
    ] = 1.0,
    format: Format = None,
    output: Output = None,
) -> None:
    """Rank what costs a run time. Each finding has an upper bound of the time saved, evidence and what to try."""
    form = form_of(format, output)
    found = open_traces(paths).advise_answer(where, min_pct, profiler)
    if form != "table":
        print_answer(found, form, output)
        return
    from io import StringIO

    from analyze.advise import Advice, write_text
    from analyze.render import visible, write_with

    rows: list[tuple[Any, ...]] = [tuple(visible(v) if isinstance(v, str) else v for v in r) for r in found.rows()]
    shown = [Advice(*row) for row in rows]

    def write(file: TextIO) -> None:
        text = StringIO()
        cautions = [visible(c) for c in found.cautions]
        write_text(shown, text, chosen=where is not None or profiler is not None, cautions=cautions)
        file.write(terminal.to_width(text.getvalue().rstrip("\n"), file))

    write_with(write, output, sys.stdout)
    terminal.note([n for n in found.notes if n not in found.cautions])
