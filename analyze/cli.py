"""The `analyze` command: parse options, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analyze.errors import InputError

if TYPE_CHECKING:
    from analyze.engine import Answer
    from analyze.query_files import Query
    from analyze.store import Store

app = typer.Typer(
    name="analyze",
    help="Ask questions of raw profiler files: ingest into Parquet, query in SQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Paths = Annotated[list[Path], typer.Argument(help="Stores, run folders, folders of them, or raw trace files.")]
Format = Annotated[str, typer.Option("--format", "-f", help="table, csv, json, parquet or markdown.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead of stdout.")]
Where = Annotated[str | None, typer.Option("--where", help="SQL over the columns of runs and rank: what to look at.")]


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of them, or raw trace files.")],
    store: Annotated[Path, typer.Option("--store", "-s", help="The store: a folder, made if it is not there.")],
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; default: one per CPU.")] = None,
) -> None:
    """Read raw profiler files into a Parquet store."""
    from time import perf_counter

    from analyze.discover import discover
    from analyze.ingest import ingest as run_ingest
    from analyze.progress import progress_bar
    from analyze.store import Store

    began = perf_counter()
    with progress_bar() as progress:
        result = run_ingest(discover(paths), Store(store), jobs, progress)
    _warn(result.warnings)
    seconds = perf_counter() - began
    typer.echo(
        f"{store}: {len(result.ingested)} run(s) ingested, {len(result.unchanged)} unchanged; "
        f"{result.rows:,} rows from {result.bytes / 1e6:,.1f} MB in {seconds:.1f} s",
        err=True,
    )


@app.command()
def query(
    name: Annotated[str | None, typer.Argument(help="The query; without it, all are listed.")] = None,
    paths: Annotated[list[Path] | None, typer.Argument(help="Stores, run folders or raw trace files.")] = None,
    by: Annotated[str, typer.Option("--by", help="Columns of runs (or rank) to group by: model,batch_size.")] = "",
    where: Where = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter of the query: k=v.")] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Columns to sort by; -name is descending.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format: Format = "table",
    output: Output = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the query's documentation and SQL.")] = False,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Answer a question; without a name, list the questions."""
    from analyze import query_files

    if name is None:
        _list_queries(query_files.catalog(queries or ()))
        return
    params = _parse_params(param or [])
    if explain:
        _explain(query_files.find(name, queries or ()), params)
        return
    _check_format(format)
    question = query_files.find(name, queries or ())
    question.bind(params)
    if not paths:
        raise InputError(f"query {name}: say what to look at: analyze query {name} PATH...")
    from analyze.engine import Engine

    engine = Engine(_open(paths), _split(by), where)
    answer = engine.query(question, params, sort, limit)
    _print(answer, format, output)
    if not by and len(engine.run_ids) > 1 and "run_id" not in {c.name for c in answer.columns}:
        typer.echo(
            f"note: {len(engine.run_ids)} runs taken together; --by run_id (or model, ...) tells them apart", err=True
        )


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables (see `analyze tables`).")],
    paths: Paths,
    where: Where = None,
    format: Format = "table",
    output: Output = None,
) -> None:
    """Run one SELECT of your own."""
    from analyze.engine import Engine

    _check_format(format)
    _print(Engine(_open(paths), where=where).sql(statement), format, output)


@app.command()
def tables(
    name: Annotated[str | None, typer.Argument(help="One table; without it, all.")] = None,
) -> None:
    """Document the tables and their columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from schemas.tables import TABLES

    if name is not None and name not in TABLES:
        raise InputError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    for table in TABLES.values() if name is None else [TABLES[name]]:
        console.print(f"[bold]{table.name}[/bold]: a row is {table.row}")
        grid = Table("column", "type", "unit", "what it holds", box=box.SIMPLE_HEAD, pad_edge=False)
        for c in table.columns:
            grid.add_row(c.name, c.type, c.unit, c.doc)
        console.print(grid)


def _open(paths: list[Path]) -> list[Store]:
    from analyze.cache import open_stores
    from analyze.progress import progress_bar

    with progress_bar() as progress:
        stores, warnings = open_stores(paths, progress)
    _warn(warnings)
    return stores


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _print(answer: Answer, format: str, output: Path | None) -> None:
    from analyze.render import write

    write(answer, format, output, sys.stdout)


def _check_format(format: str) -> None:
    from analyze.render import FORMATS

    if format not in FORMATS:
        raise InputError(f"--format {format}: must be one of {', '.join(FORMATS)}")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_params(texts: list[str]) -> dict[str, str]:
    params = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--param {text}: must have the form name=value")
        params[key.strip()] = value
    return params


def _list_queries(catalog: dict[str, Query]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("query", "question", "parameters", box=box.SIMPLE_HEAD, pad_edge=False)
    group = None
    for query in sorted(catalog.values(), key=lambda q: (q.group, q.name)):
        if group not in (None, query.group):
            table.add_section()
        group = query.group
        table.add_row(query.name, query.question, ", ".join(f"{p.name}={p.default}" for p in query.params))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    console.print(table)


def _explain(query: Query, params: dict[str, str]) -> None:
    sql, values, choices = query.bind(params)
    typer.echo(f"{query.name} ({query.group}): {query.question}")
    if query.description:
        typer.echo(f"\n{query.description}")
    if query.params:
        typer.echo("\nParameters:")
        for p in query.params:
            typer.echo(f"  {p.name} = {p.default}  ({'|'.join(p.choices) or p.type})  {p.doc}")
    typer.echo("\nColumns:")
    for c in query.result_columns(choices):
        typer.echo(f"  {c.name:<24} {c.unit:<9} {c.doc}")
    for name, value in values.items():
        sql = sql.replace(f"${name}", repr(value))
    typer.echo(f"\nSQL ({query.path.name}):\n{sql}")
    if query.order:
        typer.echo(f"ORDER BY run_group, {query.fill(query.order, choices)}")


def main() -> None:
    """Entry point of the console script: errors the user can mend are one sentence and exit code 2."""
    try:
        app()
    except InputError as e:
        typer.echo(f"analyze: {e}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # `analyze query ... | head`: nobody reads on. Keep Python from writing to the pipe again at exit.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
