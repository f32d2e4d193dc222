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
    open_both,
    open_traces,
    print_answer,
)
from analyze.errors import InputError

CANNOT_TELL = 3
"""Exit code if the runs cannot decide a condition."""


def compare(
    a: Annotated[
        list[Path],
        typer.Argument(
            metavar="A...",
            help="A and B: stores, run folders or raw trace files. With --with, runs of A. Or a folder of collect ab.",
        ),
    ],
    b: Annotated[
        list[Path] | None, typer.Option("--with", help="The runs of B: all paths up to the next option.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="A is the baseline of this name; all paths are the runs of B.")
    ] = None,
    baselines: Annotated[
        Path | None,
        typer.Option("--baselines", help="Folder or URL of the baselines. Default: as in `analyze baseline`."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            help="What a row is: measure, run (a measure of a run), step (a part of the step), kernel, family, op, "
            "module or phase.",
        ),
    ] = "measure",
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
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            min=0,
            callback=finite,
            help="Equivalence margin (%): a change shown to be smaller has the verdict `same`.",
        ),
    ] = 1.0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            help="Exit with code 1 if the runs show that this holds, for example 'step_time > 2%'; with code 3 if they "
            "cannot tell.",
        ),
    ] = None,
    unsure: Annotated[
        str | None, typer.Option("--unsure", help="If --fail-if cannot tell: pass or fail. Default: exit code 3.")
    ] = None,
    naive: Annotated[
        bool, typer.Option("--naive", help="Let --fail-if compare means only, without a statistical test.")
    ] = False,
    despite: Annotated[
        str, typer.Option("--despite", help="Compare although these differ, for example gpu_name,batch_size.")
    ] = "",
    flame: Annotated[
        Path | None,
        typer.Option("--flame", help="Also write the operator stacks of both to this file, for flamegraph.pl."),
    ] = None,
    comment: Annotated[
        Path | None,
        typer.Option("--comment", help="Also write the verdict as Markdown to this file, for a pull request."),
    ] = None,
    sort: Sort = None,
    limit: Limit = None,
    format: Format = None,
    output: Output = None,
    wide: Wide = False,
) -> None:
    """Compare runs: slower, faster, the same, or cannot tell; which parts changed; --fail-if for CI."""
    form = form_of(format, output)
    from analyze.verdict.conditions import UNSURE

    if unsure is not None and unsure not in UNSURE:
        raise InputError(f"--unsure {unsure}: must be pass or fail")
    if flame is not None:
        from analyze.flame import check_difference

        check_difference(flame)
    if baseline is not None:
        if b:
            raise InputError("compare: either --baseline or --with")
        before, after = analyze.open_baseline(baseline, baselines), open_traces(a)
    else:
        before, after = open_both(*_sides(a, b))
    result = analyze.compare(
        before,
        after,
        level=level,
        time=time,
        where=where,
        where_a=where_a,
        where_b=where_b,
        per_step=per_step,
        tolerance=tolerance,
        margin=margin,
        fail_if=fail_if or (),
        naive=naive,
        despite=despite,
        sort=sort,
        limit=limit,
        profiler=profiler,
        block=block,
        flame=flame,
        comment=comment,
    )
    print_answer(result.answer, form, output, wide)  # In a log of stdout and stderr, the verdict comes last.
    terminal.note(result.notes)
    for failure in result.failures:
        terminal.say(f"failed: {failure}")
    for text in result.unsure:
        terminal.say(f"cannot tell: {text}")
    if result.failures or (result.unsure and unsure == "fail"):
        raise typer.Exit(1)
    if result.unsure and unsure is None:
        raise typer.Exit(CANNOT_TELL)


def _sides(a: list[Path], b: list[Path] | None) -> tuple[list[Path], list[Path]]:
    """Return the paths of both sides. Raises InputError."""
    if b:
        return a, b
    if len(a) == 1:
        from analyze.verdict.sides import recorded_sides

        return recorded_sides(a[0])
    if len(a) > 2:
        raise InputError("compare: more than two paths; the runs of B follow --with: A... --with B...")
    return a[:1], a[1:]
