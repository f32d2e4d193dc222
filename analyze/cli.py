"""The `analyze` command: parse options, call the Python API, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import io
import os
import signal
import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

import analyze
from analyze import cli_text, completion
from analyze.errors import InputError
from analyze.shell import command

if TYPE_CHECKING:
    from analyze.query.answer import Answer

app = typer.Typer(
    name="analyze",
    help="Ask questions of raw profiler files: ingest into Parquet, query in SQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: rich would take as long to import as all the rest.
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        from schemas.version import version

        typer.echo(f"analyze {version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _finite(value: float) -> float:
    if not isfinite(value):
        raise InputError(f"{value} is no share in %: it must be a number")
    return value


Paths = Annotated[list[Path], typer.Argument(help="Stores, run folders, folders of them, or raw trace files.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="table, csv, json, markdown, parquet or xlsx; by default what -o says, else table."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to a file: .csv, .json, .md, .parquet, .xlsx, or .txt for a table."),
]
Wide = Annotated[bool, typer.Option("--wide", "-w", help="Tables with all columns, empty ones too.")]
Where = Annotated[str | None, typer.Option("--where", help="SQL over the columns of runs and rank: what to look at.")]
_BY = "Columns of runs (or rank, node) to group by: model,batch_size; for communication dimension, group or scope, too."
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
    store: Annotated[Path, typer.Option("--store", "-s", help="The store: a folder or URL, made if need be.")],
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default: one per CPU.")] = None,
    as_one_run: Annotated[
        bool, typer.Option("--as-one-run", help="The bare files are the ranks of one run; their names say which.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Read unchanged files, too.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", help="I/N: only this share of the raw files, I from 0 on; `analyze commit` shows them."
        ),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher",
            help="Do it in shards: slurm, local (the same here), dask or dask:ADDRESS.",
            autocompletion=completion.launchers,
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="How many shards; default: one a file, 256 at most.")
    ] = None,
    launcher_option: Annotated[
        list[str] | None,
        typer.Option("--launcher-option", help="Of submitit or dask: slurm_partition=long, timeout_min=60, mem_gb=8."),
    ] = None,
    print_script: Annotated[bool, typer.Option("--print", help="Only print a script for sbatch that does it.")] = False,
) -> None:
    """Read raw profiler files into a Parquet store."""
    from time import perf_counter

    from analyze.store.progress import progress_bar

    options = _parse_params(launcher_option or [], "--launcher-option")
    if print_script:
        if launcher != "slurm":
            raise InputError("ingest --print: goes with --launcher slurm")
        script = analyze.slurm_script(
            *paths, store=store, jobs=jobs, as_one_run=as_one_run, again=again, shards=shards, launcher_options=options
        )
        typer.echo(script)
        return
    began = perf_counter()
    with progress_bar() as progress:
        result = analyze.ingest(
            *paths, store=store, jobs=jobs, as_one_run=as_one_run, again=again, shard=shard, launcher=launcher,
            shards=shards, launcher_options=options, progress=progress,
        )  # fmt: skip
    cli_text.ingested(store, result, perf_counter() - began)


@app.command()
def commit(
    store: Annotated[Path, typer.Argument(help="The store that the shards were ingested into.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Without the files of shards that are not there.")
    ] = False,
) -> None:
    """Make what `analyze ingest --shard` wrote visible, all of it or nothing."""
    from time import perf_counter

    began = perf_counter()
    cli_text.ingested(store, analyze.commit(store, allow_missing), perf_counter() - began)


@app.command()
def compact(
    store: Annotated[Path, typer.Argument(help="The store.")],
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default: one per CPU.")] = None,
) -> None:
    """Put the small files of a store together, so that one of many ranks opens and answers fast."""
    cli_text.compacted(store, analyze.compact(store, jobs))


@app.command()
def info(paths: Paths) -> None:
    """Say what was found, how it was read, what it lacks, and what can be asked of it."""
    from analyze import info as about
    from analyze.render import print_lines, terminal_width

    found = _open(paths).info()
    print_lines(about.lines(found, paths, terminal_width(sys.stdout)), sys.stdout)


@app.command()
def query(
    name: Annotated[
        str | None, typer.Argument(help="The query; without it, all are listed.", autocompletion=completion.queries)
    ] = None,
    paths: Annotated[list[Path] | None, typer.Argument(help="Stores, run folders or raw trace files.")] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=_BY,
            autocompletion=completion.run_columns,
        ),
    ] = "",
    where: Where = None,
    profiler: Profiler = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", help="A parameter of the query: k=v.", autocompletion=completion.params),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", help="Columns to sort by; -name is descending.", autocompletion=completion.result_columns
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    select: Annotated[
        str,
        typer.Option(
            "--select", help="Only these columns, in this order: name,calls.", autocompletion=completion.result_columns
        ),
    ] = "",
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the query's documentation and SQL.")] = False,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Answer a question; without a name, list the questions."""
    from analyze.query.query_files import find
    from analyze.render import to_stdout

    if name is None:
        known = analyze.catalog(queries or ())
        to_stdout(lambda: cli_text.list_queries(known), sys.stdout)
        return
    params = _parse_params(param or [])
    question = find(name, queries or ())
    if explain:
        to_stdout(lambda: cli_text.explain(question, params), sys.stdout)
        return
    form = _form(format, output)
    question.bind(params)  # Bad ones are told before anything is read.
    if not paths:
        raise InputError(f"query {name}: say what to look at: analyze query {name} PATH...")
    traces = _open(paths, queries)
    _print(traces.answer(name, _split(by), where, params, sort, limit, _split(select), profiler), form, output, wide)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables (see `analyze tables`).")],
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Run one SELECT of your own."""
    form = _form(format, output)
    _print(_open(paths).sql_answer(statement, where, profiler), form, output, wide)


@app.command()
def tables(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One table, or a block or what one defines; without it, all tables.", autocompletion=completion.tables
        ),
    ] = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="List the building blocks of queries and what each defines.")
    ] = False,
) -> None:
    """Document the tables and their columns, and the blocks that queries are built on."""
    from analyze.render import to_stdout

    shown = analyze.tables(name, blocks)
    to_stdout(lambda: cli_text.list_blocks(shown) if blocks else cli_text.describe(shown), sys.stdout)


@app.command()
def plot(
    name: Annotated[str, typer.Argument(help="The query, such as kernel-share or roofline.")],
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .svg, .png or .html.")],
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=_BY,
        ),
    ] = "",
    where: Where = None,
    profiler: Profiler = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="A parameter of the query: k=v.")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="Another one than the query's own: 'bars x=total_ns y=name'.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="What stands above it; the question by default.")] = None,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Draw the answer to a question as the figure that the query declares."""
    from analyze.plots.drawing import output_format
    from analyze.query.query_files import find

    output_format(output)
    params = _parse_params(param or [])
    find(name, queries or ()).bind(params)  # Bad ones are told before anything is read.
    drawing = _open(paths, queries).plot(name, output, _split(by), where, params, profiler, figure, title)
    cli_text.note([drawing.note])


@app.command()
def report(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page: report.html.")],
    compare: Annotated[list[Path] | None, typer.Option("--compare", help="After: what to compare PATHS with.")] = None,
    by: Annotated[str, typer.Option("--by", help="Columns of runs that tell several runs apart.")] = "",
    where: Where = None,
    profiler: Profiler = None,
    title: Annotated[str | None, typer.Option("--title", help="What stands above it.")] = None,
) -> None:
    """Write one HTML page about recordings: what was run, advice, figures, tables; it needs no network."""
    from analyze.report.files import check_page, progress_bar

    check_page(output)
    traces = _open(paths)
    after = _open(compare) if compare else None
    with progress_bar() as progress:
        traces.report(output, after, _split(by), where, profiler, title, progress)


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study, or its folder; without it, all are listed.")] = None,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Its runs: stores, run folders or raw trace files.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The page: report.html.")] = None,
    where: Where = None,
) -> None:
    """Write a study's tables and figures beside what it printed, and which of its claims hold, as one HTML page."""
    from analyze.render import print_lines, to_stdout, visible

    if name is None:
        print_lines([visible(f"{known}: {title}") for known, title in analyze.studies().items()], sys.stdout)
        return
    from analyze.report import study_files
    from analyze.report.files import check_page, progress_bar
    from analyze.report.study import claimed

    study_files.load(study_files.find_file(name))  # A bad one is told before anything is read.
    if not paths or output is None:
        raise InputError(f"study {name}: say of which runs and where to: analyze study {name} RUNS... -o report.html")
    check_page(output)
    traces = _open(paths)
    with progress_bar() as progress:
        claims = traces.study(name, output, where, progress)
    to_stdout(lambda: typer.echo(visible(f"{output}: {claimed(claims)}")), sys.stdout)


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
    flame: Annotated[
        Path | None, typer.Option("--flame", help="Also write both sides' stacks for flamegraph.pl: out.folded.")
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Columns to sort by; -name is descending.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Compare two recordings: what was added, removed and changed, and whether that is too much."""
    form = _form(format, output)
    result = analyze.compare(
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
        flame=flame,
    )
    _print(result.answer, form, output, wide)  # Where both go into one log, the verdict comes last.
    cli_text.note(result.notes)
    for failure in result.failures:
        cli_text.say(f"failed: {failure}")
    if result.failures:
        raise typer.Exit(1)


@app.command()
def pivot(
    name: Annotated[str, typer.Argument(help="The query.", autocompletion=completion.queries)],
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
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", help="A parameter of the query: k=v.", autocompletion=completion.params),
    ] = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Lay out one measure of a query as a table of runs: models down, batch sizes across."""
    from analyze.query.query_files import find

    form = _form(format, output)
    params = _parse_params(param or [])
    find(name, queries or ()).bind(params)  # Bad ones are told before anything is read.
    laid_out = _open(paths, queries).pivot_answer(
        name, _split(rows), value, _split(columns), agg, filter, where, params, profiler
    )
    _print(laid_out, form, output, wide)


@app.command()
def trace(
    paths: Paths,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The trace: out.json.gz, or .json for plain text.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open it in the Perfetto UI, served from this machine.")
    ] = False,
    print_url: Annotated[
        bool, typer.Option("--print-url", help="As --open, with the address printed in place of a browser.")
    ] = False,
    at: Annotated[
        str | None, typer.Option("--at", help="What to open at: gap:3 (of `gaps`), a finding of `advise`, or ms.")
    ] = None,
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
    from tempfile import TemporaryDirectory

    from analyze.render import to_stdout, visible
    from analyze.trace.opening import browse, open_in_ui

    shown = open_ or print_url
    if output is None and not shown:
        raise InputError("trace: say where to write it, -o out.json.gz, or --open it")
    if at is not None and not shown:
        raise InputError("--at says what to --open the trace at")
    traces = _open(paths)
    moment = traces.moment(at, where, profiler) if at is not None else None
    with TemporaryDirectory(prefix="tracequarry-") as folder:
        target = output or Path(folder) / "trace.json.gz"
        done = traces.trace(target, where, from_ms, to_ms, counters, critical_path, profiler)
        counts = f"{done.events:,} events, {done.flows:,} arrows, {done.counters:,} counter values"
        to_stdout(lambda: typer.echo(visible(f"{output or 'trace'}: {done.run_id}: {counts}")), sys.stdout)
        cli_text.note([done.note])
        if shown:
            open_in_ui(target, lambda url: browse(url, print_url), moment.within(done) if moment else None)


@app.command()
def flame(
    paths: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="out.speedscope.json, or out.folded for flamegraph.pl.")
    ],
    tree: Annotated[str, typer.Option("--tree", help="Stacks of what: op, module or python.")] = "op",
    time: Annotated[str, typer.Option("--time", help="gpu or cpu.")] = "gpu",
    where: Where = None,
    profiler: Profiler = None,
) -> None:
    """Write the call trees as a flame graph, for https://www.speedscope.app or flamegraph.pl."""
    from analyze.render import to_stdout, visible

    drawn = _open(paths).flame(output, tree, time, where, profiler)
    what = f"{drawn.total_ns / 1e6:,.3f} ms of {time.upper()} time, {drawn.profiles} profile(s)"
    to_stdout(lambda: typer.echo(visible(f"{output}: {what}")), sys.stdout)
    cli_text.note([drawn.note])


@app.command()
def advise(
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    min_pct: Annotated[
        float,
        typer.Option("--min-pct", min=0, callback=_finite, help="Leave out what could save less of the run's time."),
    ] = 1.0,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say what costs a run time, ranked by what mending it could save, with the numbers and what to try."""
    form = _form(format, output)
    found = _open(paths).advise_answer(where, min_pct, profiler)
    if form != "table":
        _print(found, form, output)
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
        file.write(cli_text.to_width(text.getvalue().rstrip("\n"), file))

    write_with(write, output, sys.stdout)
    cli_text.note([n for n in found.notes if n not in found.cautions])


@app.command()
def mcp(
    paths: Paths,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Serve the questions to an agent: the Model Context Protocol over stdin and stdout."""
    from analyze.agents import server

    traces = analyze.open(*paths, queries=queries or ())
    cli_text.warn(traces.warnings)
    server(traces).run("stdio")


@app.command()
def serve(
    paths: Paths,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at; another than a loopback one asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0: a free one. Default: 8321, else a free one.")
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token in any case: where others use this machine, too.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds after which a question is ended.")] = 60.0,
    where: Where = None,
    profiler: Profiler = None,
    queries: Annotated[list[Path] | None, typer.Option("--queries", help="A further folder of query files.")] = None,
) -> None:
    """Serve recordings as pages on this machine: the report, every question, a box for SQL. Ctrl-C ends it."""
    from analyze.serve.server import browse, check

    check()
    traces = _open(paths, queries)
    traces.serve(host, port, token, time_limit, where, profiler, lambda address: browse(address, open_))


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that is not in use.")] = False,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Remove what was not used for longest, down to: 500MB, 5GB.")
    ] = None,
) -> None:
    """List or remove what was made of raw files that queries were given directly."""
    there = analyze.cache(clear, max_size)
    if clear or max_size is not None:
        typer.echo(f"{there.folder}: {len(there.removed)} removed, {sum(e.bytes for e in there.removed) / 1e6:,.1f} MB")
    else:
        cli_text.list_cache(there)


def _open(paths: list[Path], queries: list[Path] | None = None) -> analyze.Traces:
    from analyze.store.progress import progress_bar

    with progress_bar() as progress:
        traces = analyze.open(*paths, queries=queries or (), progress=progress)
    cli_text.warn(traces.warnings)
    for text in traces.read_as:
        typer.echo(f"read as: {text}", err=True)
    return traces


def _print(answer: Answer, form: str, output: Path | None, wide: bool = False) -> None:
    from analyze.render import write

    write(answer, form, output, sys.stdout, wide)
    cli_text.note(answer.notes)


def _form(format: str | None, output: Path | None) -> str:
    from analyze.render import output_format

    return output_format(format, output)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_params(texts: list[str], option: str = "--param") -> dict[str, str]:
    params = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{option} {text}: must have the form name=value")
        params[key.strip()] = value
    return params


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)  # so that what is half-written is removed on the way out


def _meant(arguments: list[str]) -> list[str]:
    """The arguments; what is no command but a path is asked to be told of, and of a query's name is said what to type.

    Raises InputError.
    """
    first = arguments[0] if arguments else "-"
    commands = {c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands}
    if first.startswith("-") or first in {*commands, *(g.name for g in app.registered_groups)}:
        return arguments
    from analyze.query.query_files import catalog

    if first in catalog():
        raise InputError(f"{first} is a query; ask it with: analyze query {command(arguments)}")
    return ["info", *arguments] if os.path.lexists(first) else arguments


def main() -> None:
    """Entry point of the console script: errors the user can mend are one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, _terminated)
    if sys.platform == "win32":  # a pipe or a file has the code page of the region there, which lacks ─ and Σ
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
    try:
        app(_meant(sys.argv[1:]))
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
    cli_text.say(f"analyze: {message}")
    sys.exit(2)
