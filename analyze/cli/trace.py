"""The command `analyze trace`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from analyze.cli import terminal
from analyze.cli.shared_options import Block, Paths, Profiler, Where, open_traces
from analyze.errors import InputError


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
    block: Block = None,
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
    """Write a run as a Chrome trace for the Perfetto UI, with counter tracks. https://ui.perfetto.dev"""
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
    traces = open_traces(paths, where, profiler, block=block)
    moment = traces.moment(at) if at is not None else None
    with TemporaryDirectory(prefix="tracequarry-") as folder:
        target = output or Path(folder) / "trace.json.gz"
        done = traces.trace(target, from_ms, to_ms, counters, critical_path)
        counts = f"{done.events:,} events, {done.flows:,} arrows, {done.counters:,} counter values"
        to_stdout(lambda: typer.echo(visible(f"{output or 'trace'}: {done.run_id}: {counts}")), sys.stdout)
        terminal.note([done.note])
        if shown:
            open_in_ui(target, lambda url: browse(url, print_url), moment.within(done) if moment else None)
