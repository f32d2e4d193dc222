"""The command `analyze compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import analyze
from analyze.cli import terminal
from analyze.cli.shared_options import (
    Block,
    Format,
    Limit,
    Output,
    Profiler,
    Sort,
    Where,
    Wide,
    finite,
    form_of,
    open_traces,
    print_answer,
)


def compare(
    a: Annotated[Path, typer.Argument(help="Before: a store, run folder or raw trace file.")],
    b: Annotated[Path, typer.Argument(help="After: the same; one store may be both, with --where-a and --where-b.")],
    level: Annotated[str, typer.Option("--level", help="Compare by kernel, family, op or phase.")] = "kernel",
    time: Annotated[
        str, typer.Option("--time", help="Compare gpu time, or cpu time (with --level op or phase).")
    ] = "gpu",
    where: Where = None,
    where_a: Annotated[str | None, typer.Option("--where-a", help="Like --where, for A only.")] = None,
    where_b: Annotated[str | None, typer.Option("--where-b", help="Like --where, for B only.")] = None,
    profiler: Profiler = None,
    block: Block = None,
    per_step: Annotated[
        bool | None,
        typer.Option(
            "--per-step/--total",
            help="Times per training step, or of whole recordings. Default: per step if both have steps.",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            min=0,
            callback=finite,
            help="Times that differ by at most this percentage have the status `same`.",
        ),
    ] = 1.0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if", help="Exit with code 1 if B is worse than A by this much, for example 'kernel_time > 5%'."
        ),
    ] = None,
    flame: Annotated[
        Path | None,
        typer.Option("--flame", help="Also write the operator stacks of both to this file, for flamegraph.pl."),
    ] = None,
    sort: Sort = None,
    limit: Limit = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Compare two recordings: which kernels, operators or phases were added, removed or changed; --fail-if for CI."""
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
        block=block,
        flame=flame,
    )
    print_answer(result.answer, form, output, wide)  # Where both go into one log, the verdict comes last.
    terminal.note(result.notes)
    for failure in result.failures:
        terminal.say(f"failed: {failure}")
    if result.failures:
        raise typer.Exit(1)
