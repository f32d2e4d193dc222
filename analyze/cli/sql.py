"""The command `analyze sql`."""

from __future__ import annotations

from typing import Annotated

import typer

from analyze.cli.shared_options import (
    Block,
    Format,
    Output,
    Paths,
    Profiler,
    Where,
    Wide,
    form_of,
    open_traces,
    print_answer,
)


def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT over the tables that `analyze tables` lists.")],
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Run your own SELECT over the tables."""
    form = form_of(format, output)
    print_answer(open_traces(paths, where, profiler, block=block).sql(statement), form, output, wide)
