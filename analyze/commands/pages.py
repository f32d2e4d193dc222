"""Commands that make something to look at: figures, pages, traces, flame graphs; and those that serve them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.commands import terminal
from analyze.commands.shared import (
    BY,
    Paths,
    Profiler,
    QueryFolders,
    Where,
    app,
    find_query,
    open_traces,
    parse_params,
)
from analyze.errors import InputError


@app.command()
def plot(
    name: Annotated[str, typer.Argument(help="The query, such as kernel-share or roofline.")],
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The figure: .svg, .png or .html.")],
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=BY,
        ),
    ] = "",
    where: Where = None,
    profiler: Profiler = None,
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="Set a parameter of the query: k=v.")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="Override the query's default figure: 'bars x=total_ns y=name'.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title. Default: the query's question.")] = None,
    queries: QueryFolders = None,
) -> None:
    """Draw the answer of a query as a figure."""
    from analyze.plots.drawing import output_format

    output_format(output)
    params = parse_params(param or [])
    find_query("plot", name, queries).bind(params)  # Report bad ones before anything is read.
    drawing = open_traces(paths, queries).plot(name, output, by, where, params, profiler, figure, title)
    terminal.note([drawing.note])


@app.command()
def report(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page: report.html.")],
    compare: Annotated[
        list[Path] | None, typer.Option("--compare", help="Compare PATHS (before) with these recordings (after).")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Label several runs by these columns of runs.")] = "",
    where: Where = None,
    profiler: Profiler = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
) -> None:
    """Write one self-contained HTML page. It has data-quality checks, advice, figures and tables."""
    from analyze.ingestion.progress import counted_bar
    from analyze.report.files import check_page

    check_page(output)
    traces = open_traces(paths)
    after = open_traces(compare) if compare else None
    with counted_bar("report") as progress:
        traces.report(output, after, by, where, profiler, title, progress)


@app.command()
def study(
    name: Annotated[
        str | None, typer.Argument(help="The study or its folder. Without a name, all studies are listed.")
    ] = None,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Runs of the study: stores, run folders or raw trace files.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The page: report.html.")] = None,
    where: Where = None,
) -> None:
    """Repeat a study and check its claims. The HTML page has its tables and figures next to the published ones."""
    from analyze.render import print_lines, to_stdout, visible

    if name is None:
        print_lines([visible(f"{known}: {title}") for known, title in analyze.studies().items()], sys.stdout)
        return
    from analyze.ingestion.progress import counted_bar
    from analyze.report import study_files
    from analyze.report.files import check_page
    from analyze.report.study import claimed

    study_files.load(study_files.find_file(name))  # Report a bad one before anything is read.
    if not paths or output is None:
        raise InputError(f"study {name}: runs and output are missing: analyze study {name} RUNS... -o report.html")
    check_page(output)
    traces = open_traces(paths)
    with counted_bar("study") as progress:
        claims = traces.study(name, output, where, progress)
    to_stdout(lambda: typer.echo(visible(f"{output}: {claimed(claims)}")), sys.stdout)


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
        bool, typer.Option("--print-url", help="Like --open, but print the address instead of starting a browser.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Where to open it: gap:3 (row 3 of `gaps`), a finding of `advise`, or a time in ms."),
    ] = None,
    where: Where = None,
    profiler: Profiler = None,
    from_ms: Annotated[
        float | None, typer.Option("--from-ms", help="Start of the window, in ms from the first event.")
    ] = None,
    to_ms: Annotated[
        float | None, typer.Option("--to-ms", help="End of the window, in ms from the first event.")
    ] = None,
    counters: Annotated[
        bool, typer.Option(help="Add counter tracks: queue depth, copy bandwidth, GPU busy, memory.")
    ] = True,
    critical_path: Annotated[bool, typer.Option("--critical-path", help="Add the critical path.")] = False,
) -> None:
    """Write a run as a Chrome trace for the Perfetto UI. Counter tracks are added. https://ui.perfetto.dev"""
    from tempfile import TemporaryDirectory

    from analyze.render import to_stdout, visible
    from analyze.trace.export import check_output
    from analyze.trace.opening import browse, open_in_ui

    shown = open_ or print_url
    if output is None and not shown:
        raise InputError("trace: needs -o out.json.gz, --open or --print-url")
    if at is not None and not shown:
        raise InputError("--at needs --open or --print-url")
    if output is not None:
        check_output(output)
    traces = open_traces(paths)
    moment = traces.moment(at, where, profiler) if at is not None else None
    with TemporaryDirectory(prefix="tracequarry-") as folder:
        target = output or Path(folder) / "trace.json.gz"
        done = traces.trace(target, where, from_ms, to_ms, counters, critical_path, profiler)
        counts = f"{done.events:,} events, {done.flows:,} arrows, {done.counters:,} counter values"
        to_stdout(lambda: typer.echo(visible(f"{output or 'trace'}: {done.run_id}: {counts}")), sys.stdout)
        terminal.note([done.note])
        if shown:
            open_in_ui(target, lambda url: browse(url, print_url), moment.within(done) if moment else None)


@app.command()
def flame(
    paths: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="out.speedscope.json, or out.folded for flamegraph.pl.")
    ],
    tree: Annotated[
        str, typer.Option("--tree", help="Stacks of operators, modules or Python functions: op, module or python.")
    ] = "op",
    time: Annotated[str, typer.Option("--time", help="gpu or cpu time.")] = "gpu",
    where: Where = None,
    profiler: Profiler = None,
) -> None:
    """Write the call trees as a flame graph. Open it in https://www.speedscope.app or flamegraph.pl."""
    from analyze.flame import writer_for
    from analyze.render import to_stdout, visible

    writer_for(output)
    drawn = open_traces(paths).flame(output, tree, time, where, profiler)
    what = f"{drawn.total_ns / 1e6:,.3f} ms of {time.upper()} time, {drawn.profiles} profile(s)"
    to_stdout(lambda: typer.echo(visible(f"{output}: {what}")), sys.stdout)
    terminal.note([drawn.note])


@app.command()
def mcp(
    paths: Paths,
    queries: QueryFolders = None,
) -> None:
    """Serve the queries to an agent (MCP). It speaks the Model Context Protocol over stdin and stdout."""
    from analyze.agents import server

    traces = analyze.open(*paths, queries=queries or ())
    terminal.warn(traces.warnings)
    server(traces).run("stdio")


@app.command()
def serve(
    paths: Paths,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Addresses other than loopback require a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Port; 0: any free port. Default: 8321, or a free port if it is taken."
        ),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Require a token on loopback, too: for machines with other users.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    time_limit: Annotated[float, typer.Option("--time-limit", help="Stop a query after this many seconds.")] = 60.0,
    where: Where = None,
    profiler: Profiler = None,
    queries: QueryFolders = None,
) -> None:
    """Serve recordings in a browser: the report, every query, and SQL. Ctrl-C stops it."""
    from analyze.serve.server import browse, check

    check()
    traces = open_traces(paths, queries)
    traces.serve(host, port, token, time_limit, where, profiler, lambda address: browse(address, open_))
