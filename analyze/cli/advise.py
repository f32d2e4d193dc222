"""The command `analyze advise`."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TextIO

import typer

from analyze.cli import terminal
from analyze.cli.shared_options import (
    Block,
    Format,
    Output,
    Paths,
    Profiler,
    Where,
    finite,
    form_of,
    open_traces,
    print_answer,
)


def advise(
    paths: Paths,
    where: Where = None,
    profiler: Profiler = None,
    block: Block = None,
    min_pct: Annotated[
        float,
        typer.Option("--min-pct", min=0, callback=finite, help="Hide findings below this share of the run time (%)."),
    ] = 1.0,
    format: Format = None,
    output: Output = None,
) -> None:
    """List what costs time, the most costly first. Findings have an upper bound of the savings, evidence and advice."""
    form = form_of(format, output)
    found = open_traces(paths, where, profiler, block=block).advise(min_pct)
    if form != "table":
        print_answer(found, form, output)
        return
    from io import StringIO

    from analyze.advise import Advice, write_text
    from analyze.render import visible, write_with
    from analyze.shell import command
    from schemas.urls import as_given

    rows: list[tuple[Any, ...]] = [tuple(visible(v) if isinstance(v, str) else v for v in r) for r in found.rows()]
    shown = [Advice(*row) for row in rows]

    def write(file: TextIO) -> None:
        text = StringIO()
        cautions = [visible(c) for c in found.cautions]
        chosen = where is not None or profiler is not None
        write_text(shown, text, command(map(as_given, paths)), chosen=chosen, cautions=cautions)
        for line in text.getvalue().rstrip("\n").split("\n"):
            # Commands are not wrapped, so that they can be copied.
            is_command = line.lstrip().startswith(("more: ", "look: "))
            file.write(f"{line}\n" if is_command else terminal.to_width(line, file))

    write_with(write, output, sys.stdout)
    terminal.note([n for n in found.notes if n not in found.cautions])
