"""The `analyze` command: parse options, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from analyze.errors import InputError

if TYPE_CHECKING:
    from analyze.query.answer import Answer
    from analyze.query.blocks import Block, Definition
    from analyze.query.query_files import Query
    from analyze.store.store import Store
    from schemas.tables import Table

app = typer.Typer(
    name="analyze",
    help="Ask questions of raw profiler files: ingest into Parquet, query in SQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich would take as long to import as all the rest.
    rich_markup_mode=None,
)
plot = typer.Typer(help="Draw figures.", no_args_is_help=True)
app.add_typer(plot, name="plot")


def _finite(value: float) -> float:
    if not isfinite(value):
        raise InputError(f"{value} is no share in %: it must be a number")
    return value


Paths = Annotated[list[Path], typer.Argument(help="Stores, run folders, folders of them, or raw trace files.")]
Format = Annotated[str, typer.Option("--format", "-f", help="table, csv, json, parquet or markdown.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file instead of stdout.")]
Where = Annotated[str | None, typer.Option("--where", help="SQL over the columns of runs and rank: what to look at.")]
Profiler = Annotated[
    str | None,
    typer.Option(
        "--profiler",
        help="Which passes: torch, nsys, nvprof, ncu, none or all; by default one timing pass of each workload.",
    ),
]


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of them, or raw trace files.")],
    store: Annotated[Path, typer.Option("--store", "-s", help="The store: a folder, made if it is not there.")],
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default: one per CPU.")] = None,
    as_one_run: Annotated[
        bool, typer.Option("--as-one-run", help="The bare files are the ranks of one run; their names say which.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Read unchanged files, too.")] = False,
) -> None:
    """Read raw profiler files into a Parquet store."""
    from time import perf_counter

    from analyze.store.discover import discover
    from analyze.store.ingest import ingest as run_ingest
    from analyze.store.progress import progress_bar
    from analyze.store.store import Store

    began = perf_counter()
    target = Store(store)
    found = discover(paths, target.digests(), as_one_run)
    with progress_bar() as progress:
        result = run_ingest(found, target, jobs, progress, again)
    _warn(found.warnings + result.warnings)
    _say(f"read as: {result.read_as}")
    seconds = perf_counter() - began
    _say(
        f"{store}: {len(result.ingested)} run(s) ingested, {len(result.unchanged)} unchanged; "
        f"{result.rows:,} rows from {result.bytes / 1e6:,.1f} MB in {seconds:.1f} s"
    )


@app.command()
def query(
    name: Annotated[str | None, typer.Argument(help="The query; without it, all are listed.")] = None,
    paths: Annotated[list[Path] | None, typer.Argument(help="Stores, run folders or raw trace files.")] = None,
    by: Annotated[str, typer.Option("--by", help="Columns of runs (or rank) to group by: model,batch_size.")] = "",
    where: Where = None,
    profiler: Profiler = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter of the query: k=v.")] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Columns to sort by; -name is descending.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    select: Annotated[str, typer.Option("--select", help="Only these columns, in this order: name,calls.")] = "",
    format: Format = "table",
    output: Output = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the query's documentation and SQL.")] = False,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Answer a question; without a name, list the questions."""
    from analyze.query import query_files
    from analyze.render import to_stdout

    if name is None:
        catalog = query_files.catalog(queries or ())
        to_stdout(lambda: _list_queries(catalog), sys.stdout)
        return
    params = _parse_params(param or [])
    if explain:
        asked = query_files.find(name, queries or ())
        to_stdout(lambda: _explain(asked, params), sys.stdout)
        return
    _check_format(format)
    question = query_files.find(name, queries or ())
    question.bind(params)
    if not paths:
        raise InputError(f"query {name}: say what to look at: analyze query {name} PATH...")
    from analyze.query.engine import Engine

    engine = Engine(_open(paths), _split(by), where, profiler, question.prefer)
    answer = engine.query(question, params, sort, limit, _split(select))
    _print(answer, format, output)
    if answer.empty and question.needs:
        _say(f"note: no rows; query {name} needs {question.needs}")
    compares = question.group == "compare"
    if not by and not compares and len(engine.run_ids) > 1 and "run_id" not in {c.name for c in answer.columns}:
        _say(f"note: {len(engine.run_ids)} runs taken together; --by run_id (or model, ...) tells them apart")


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables (see `analyze tables`).")],
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    format: Format = "table",
    output: Output = None,
) -> None:
    """Run one SELECT of your own."""
    from analyze.query.engine import Engine

    _check_format(format)
    _print(Engine(_open(paths), where=where, profiler=profiler).sql(statement), format, output)


@app.command()
def tables(
    name: Annotated[
        str | None, typer.Argument(help="One table, or a block or what one defines; without it, all tables.")
    ] = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="List the building blocks of queries and what each defines.")
    ] = False,
) -> None:
    """Document the tables and their columns, and the blocks that queries are built on."""
    from analyze.query.blocks import built_in, home
    from analyze.render import to_stdout
    from schemas.tables import TABLES

    if blocks and name is not None:
        raise InputError("tables: either a name or --blocks")
    if blocks:
        to_stdout(lambda: _list_blocks(built_in().values()), sys.stdout)
    elif name is None or name in TABLES:
        to_stdout(lambda: _describe(TABLES.values() if name is None else [TABLES[name]]), sys.stdout)
    elif name in built_in() or name.lower() in home():
        block, definition = (built_in()[name], None) if name in built_in() else home()[name.lower()]
        shown = block.definitions if definition is None else [definition]
        to_stdout(lambda: _describe_block(block, shown), sys.stdout)
    else:
        from difflib import get_close_matches

        near = get_close_matches(name, [*TABLES, *built_in(), *home()], 3)
        instead = f"did you mean {', '.join(dict.fromkeys(near))}?" if near else f"there are {', '.join(TABLES)}"
        raise InputError(f"there is no table {name!r}, nor a block or anything that one defines; {instead}")


@plot.command("roofline")
def plot_roofline(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .svg, .png or .html.")],
    group: Annotated[
        str, typer.Option("--group", help="A point is a kernel, short_name, family or launch.")
    ] = "kernel",
    level: Annotated[str, typer.Option("--level", help="Bytes of which memory: dram, l2, l1 or all.")] = "dram",
    where: Where = None,
    profiler: Profiler = None,
) -> None:
    """Draw FLOP/s over FLOP/byte of the kernels that Nsight Compute profiled, under the roofs of their GPU."""
    from analyze.plots import output_format, roofline
    from analyze.query.engine import Engine

    output_format(output)
    engine = Engine(_open(paths), where=where, profiler=profiler)
    roofline.write(roofline.load(engine, group, level), output)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Before: a store, run folder or raw trace file.")],
    b: Annotated[Path, typer.Argument(help="After: the same kind of thing; may be the same store.")],
    level: Annotated[str, typer.Option("--level", help="kernel, family, op or phase.")] = "kernel",
    time: Annotated[str, typer.Option("--time", help="gpu, or cpu (op and phase).")] = "gpu",
    where: Where = None,
    where_a: Annotated[str | None, typer.Option("--where-a", help="As --where, for A alone.")] = None,
    where_b: Annotated[str | None, typer.Option("--where-b", help="As --where, for B alone.")] = None,
    profiler: Profiler = None,
    per_step: Annotated[
        bool | None, typer.Option("--per-step/--total", help="Per training step; default if both say how many.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, callback=_finite, help="Changes up to so many % are `same`.")
    ] = 1.0,
    fail_if: Annotated[
        list[str] | None, typer.Option("--fail-if", help="Exit with 1 if this holds: 'kernel_time > 5%'.")
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Columns to sort by; -name is descending.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format: Format = "table",
    output: Output = None,
) -> None:
    """Compare two recordings: what was added, removed and changed, and whether that is too much."""
    from analyze.comparison import compare as run_compare

    _check_format(format)
    result = run_compare(
        _open([a]),
        _open([b]),
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
    )
    _print(result.answer, format, output)  # Where both go into one log, the verdict comes last.
    for note in result.notes:
        _say(f"note: {note}")
    for failure in result.failures:
        _say(f"failed: {failure}")
    if result.failures:
        raise typer.Exit(1)


@app.command()
def pivot(
    name: Annotated[str, typer.Argument(help="The query.")],
    paths: Paths,
    rows: Annotated[str, typer.Option("--rows", help="Columns of runs or of the query that make the rows.")],
    value: Annotated[str, typer.Option("--value", help="The query's column in the cells.")],
    columns: Annotated[str, typer.Option("--columns", help="Columns of runs or of the query that go across.")] = "",
    agg: Annotated[
        str | None, typer.Option("--agg", help="sum, avg, min or max, where a cell has several values.")
    ] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="SQL over the query's result: which rows.")] = None,
    where: Where = None,
    profiler: Profiler = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter of the query: k=v.")] = None,
    format: Format = "table",
    output: Output = None,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Lay out one measure of a query as a table of runs: models down, batch sizes across."""
    from analyze.pivot import pivot as run_pivot
    from analyze.query.query_files import find

    _check_format(format)
    params = _parse_params(param or [])
    question = find(name, queries or ())
    question.bind(params)
    answer = run_pivot(
        _open(paths),
        question,
        _split(rows),
        _split(columns),
        value,
        params,
        agg=agg,
        filter=filter,
        where=where,
        profiler=profiler,
    )
    _print(answer, format, output)


@app.command()
def trace(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace: out.json.gz, or .json for plain text.")],
    where: Where = None,
    profiler: Profiler = None,
    from_ms: Annotated[
        float | None, typer.Option("--from-ms", help="Start of the window, from the first event.")
    ] = None,
    to_ms: Annotated[float | None, typer.Option("--to-ms", help="End of the window.")] = None,
    counters: Annotated[bool, typer.Option(help="Add tracks: queue depth, copy bandwidth, GPU busy, memory.")] = True,
    critical_path: Annotated[bool, typer.Option("--critical-path", help="Draw the critical path over it.")] = False,
) -> None:
    """Write a run as a Chrome trace, with counters added, for the Perfetto UI (https://ui.perfetto.dev)."""
    from analyze.render import to_stdout, visible
    from analyze.trace.export import export

    done = export(
        _open(paths),
        output,
        where=where,
        from_ms=from_ms,
        to_ms=to_ms,
        counters=counters,
        critical_path=critical_path,
        profiler=profiler,
    )
    counts = f"{done.events:,} events, {done.flows:,} arrows, {done.counters:,} counter values"
    to_stdout(lambda: typer.echo(visible(f"{output}: {done.run_id}: {counts}")), sys.stdout)
    _note(done.note)


@app.command()
def advise(
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    min_pct: Annotated[
        float,
        typer.Option("--min-pct", min=0, callback=_finite, help="Leave out what could save less of the run's time."),
    ] = 1.0,
    format: Format = "table",
    output: Output = None,
) -> None:
    """Say what costs a run time, ranked by what mending it could save, with the numbers and what to try."""
    from analyze import advise as advice
    from analyze.render import visible, write_with

    _check_format(format)
    notes: list[str] = []
    found = advice.advise(_open(paths), where, min_pct, profiler, notes)
    if format == "table":
        shown = [a._replace(run_id=visible(a.run_id), evidence=visible(a.evidence)) for a in found]
        write_with(lambda file: advice.write_text(shown, file), output, sys.stdout)
    else:
        _print(advice.answer(found), format, output)
    _note(*notes)


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that is not in use.")] = False,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Remove what was not used for longest, down to: 500MB, 5GB.")
    ] = None,
) -> None:
    """List or remove what was made of raw files that queries were given directly."""
    from datetime import datetime

    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    from analyze.render import visible
    from analyze.store.cache import cache_folder, entries, evict, limit, parse_size

    if clear or max_size is not None:
        removed = evict(0 if clear or max_size is None else parse_size(max_size, "--max-size"))
        typer.echo(f"{cache_folder()}: {len(removed)} removed, {sum(e.bytes for e in removed) / 1e6:,.1f} MB")
        return
    grid = Grid("folder", "size (MB)", "last used", "made from", box=box.SIMPLE_HEAD, pad_edge=False)
    there = entries()
    for entry in there:
        used = datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") if entry.used else ""
        grid.add_row(entry.folder.name, f"{entry.bytes / 1e6:,.1f}", used, Text(visible(entry.source)))
    typer.echo(f"{cache_folder()}: {sum(e.bytes for e in there) / 1e6:,.1f} of at most {limit() / 1e6:,.1f} MB")
    if there:
        _print_rich(grid)


def _open(paths: list[Path]) -> list[Store]:
    from analyze.store.cache import open_stores
    from analyze.store.progress import progress_bar

    told: list[str] = []
    with progress_bar() as progress:
        stores, warnings = open_stores(paths, progress, told.append)
    _warn(warnings)
    for text in told:
        typer.echo(f"read as: {text}", err=True)
    return stores


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        _say(f"warning: {warning}")


def _note(*notes: str) -> None:
    for note in filter(None, notes):
        _say(f"note: {note}")


def _say(text: str) -> None:
    """A line on stderr: names in it are whatever a recording says."""
    from analyze.render import visible

    typer.echo(visible(text), err=True)


def _print(answer: Answer, format: str, output: Path | None) -> None:
    from analyze.render import write

    write(answer, format, output, sys.stdout)
    _note(answer.note)


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
    from rich.table import Table

    table = Table("query", "question", "parameters", box=box.SIMPLE_HEAD, pad_edge=False)
    group = None
    for query in sorted(catalog.values(), key=lambda q: (q.group, q.name)):
        if group not in (None, query.group):
            table.add_section()
        group = query.group
        table.add_row(query.name, query.question, ", ".join(f"{p.name}={p.default}" for p in query.params))
    _print_rich(table)


def _explain(query: Query, params: dict[str, str]) -> None:
    sql, values, choices = query.bind(params)
    typer.echo(f"{query.name} ({query.group}): {query.question}")
    if query.description:
        typer.echo(f"\n{query.description}")
    if query.needs:
        typer.echo(f"\nNeeds: {query.needs}")
    if query.params:
        typer.echo("\nParameters:")
        for p in query.params:
            typer.echo(f"  {p.name} = {p.default}  ({p.takes})  {p.doc}")
    typer.echo("\nColumns:")
    for c in query.result_columns(choices):
        typer.echo(f"  {c.name:<24} {c.unit:<9} {c.doc}")
    for name, value in values.items():
        sql = sql.replace(f"${name}", f"{value}::BIGINT" if isinstance(value, int) else repr(value))
    typer.echo(f"\nSQL ({query.path.name}):\n{sql}")
    if query.order:
        typer.echo(f"ORDER BY run_group, {query.fill(query.order, choices)}")


def _describe(tables: Iterable[Table]) -> None:
    shown: list[Any] = []
    for table in tables:
        grid = _grid("column", "type", "unit", "what it holds")
        for c in table.columns:
            grid.add_row(c.name, c.type, c.unit, c.doc)
        shown += [f"[bold]{table.name}[/bold]: a row is {table.row}", grid]
    _print_rich(*shown)


def _list_blocks(blocks: Iterable[Block]) -> None:
    """The blocks, with what each defines."""
    from rich.markup import escape

    grid = _grid("block", "defines", "what it is")
    for block in blocks:
        defined = "\n".join(d.shown for d in block.definitions)
        grid.add_row(block.name, escape(defined), escape(block.description.partition("\n\n")[0].replace("\n", " ")))
    _print_rich(grid)


def _describe_block(block: Block, definitions: Iterable[Definition]) -> None:
    """What a block says of itself and of some of its views and macros."""
    from rich.markup import escape

    from analyze.query.blocks import columns_of

    uses = f"\nIt uses {', '.join(block.uses)}." if block.uses else ""
    shown: list[Any] = [f"[bold]Block {block.name}[/bold]: {escape(block.description)}{uses}"]
    for d in definitions:
        shown.append(f"\n[bold]{d.shown}[/bold]: {'a row is ' if d.params is None else ''}{escape(d.doc)}")
        if d.columns:
            grid = _grid("column", "unit", "what it holds")
            for c in columns_of(d):
                grid.add_row(*((c.name, c.unit, escape(c.doc)) if c.unit else ("*", "", f"all columns of `{c.doc}`")))
            shown.append(grid)
    _print_rich(*shown)


def _grid(*headings: str) -> Any:
    from rich import box
    from rich.table import Table as Grid

    return Grid(*headings, box=box.SIMPLE_HEAD, pad_edge=False)


def _print_rich(*parts: Any) -> None:
    """Print to stdout; captured, since rich ends the program where nobody reads on."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    sys.stdout.write(capture.get())


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)  # so that what is half-written is removed on the way out


def main() -> None:
    """Entry point of the console script: errors the user can mend are one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _terminated)
    if sys.platform == "win32":  # a pipe or a file has the code page of the region there, which lacks ─ and Σ
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
    try:
        app()
    except InputError as e:
        _fail(str(e))
    except MemoryError:
        _fail("out of memory")
    except UnicodeError as e:
        _fail(f"an argument or a name is not valid UTF-8: {e}")
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as e:
        duckdb = sys.modules.get("duckdb")
        if duckdb is None or not isinstance(e, duckdb.Error):
            raise
        from analyze.query.plain_sql import sentence

        _fail(sentence(e))


def _fail(message: str) -> NoReturn:
    _say(f"analyze: {message}")
    sys.exit(2)
