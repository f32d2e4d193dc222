"""The command `analyze flame`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from analyze.cli import terminal
from analyze.cli.shared_options import Block, Paths, Profiler, Where, open_traces


def flame(
    paths: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="out.speedscope.json, or out.folded for flamegraph.pl.")
    ],
    tree: Annotated[
        str,
        typer.Option(
            "--tree", help="op, module or python: stacks of operators, modules, functions; memory: who holds the peak."
        ),
    ] = "op",
    time: Annotated[str, typer.Option("--time", help="gpu or cpu time.")] = "gpu",
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
) -> None:
    """Write the call trees as a flame graph. Open it in https://www.speedscope.app or flamegraph.pl."""
    from analyze.flame import MEMORY, writer_for
    from analyze.render import to_stdout, visible

    writer_for(output)
    drawn = open_traces(paths, where, profiler, block=block).flame(output, tree, time)
    amount = f"{drawn.total / 1e6:,.3f} ms of {time.upper()} time"
    if tree == MEMORY:
        amount = f"{drawn.total / 2**20:,.2f} MiB at the peak"
    what = f"{amount}, {drawn.profiles} profile(s)"
    to_stdout(lambda: typer.echo(visible(f"{output}: {what}")), sys.stdout)
    terminal.note([drawn.note])
