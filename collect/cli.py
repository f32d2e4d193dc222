"""The command line: options in, one function call, exit code out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from collect.checked_options import all_options, default_label, make_options

app = typer.Typer(
    name="collect",
    help="Run training workloads under torch.profiler, Nsight Systems and Nsight Compute, and keep what they wrote.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _fail(sentence: str, code: int) -> NoReturn:
    sys.stderr.write(f"collect: {sentence}\n")
    raise typer.Exit(code)


def _takes_all_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that are declared for a run (`all_options`) as its parameters."""
    argument = typer.Argument(metavar="-- COMMAND ARGS", help="A program of your own, run instead of --model.")
    takes = [
        Parameter("program", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, argument])
    ]
    for o in all_options().values():
        default = ",".join(o.default) if isinstance(o.default, tuple) else o.default
        kind = str if o.kind is tuple else o.kind
        # A switch that is off needs no --no-x.
        names = [default_label(o.name), o.option.short] if default is False or o.option.short else []
        shown = typer.Option(*filter(None, names), help=o.text(o.option.help), rich_help_panel=o.option.panel)
        hint: Any = kind | None if default is None else kind
        takes.append(Parameter(o.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, shown]))
    function.__signature__ = Signature(takes)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in takes}
    return function


def _print_version(asked: bool) -> None:
    if asked:
        from schemas.version import version

        typer.echo(f"collect {version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command(context_settings={"allow_interspersed_args": False})
@_takes_all_options
def run(**values: Any) -> None:
    """Train a model, or run a program of your own, under one or several profilers.

    Prints the run folder. Exit code 0 when all went well, 2 for bad input, 130 when interrupted, 1 otherwise.
    """
    from rich.console import Console

    from collect.errors import CollectError
    from collect.process import Signals
    from collect.run import run as run_once

    try:
        options = make_options({**values, "program": tuple(values["program"] or ())})
        with Signals() as signals:
            result = run_once(options, ["collect", *sys.argv[1:]], Console(stderr=True), signals)
    except CollectError as e:
        _fail(str(e), e.exit_code)
    if result.folder is not None:
        typer.echo(str(result.folder))
    if result.exit_code:
        _fail(str(result.reason), result.exit_code)
    for note in result.notes:
        sys.stderr.write(f"{note}\n")
    sys.stderr.write(f"next: analyze info {shlex.quote(str(result.whole))}\n")


@app.command()
def sweep(
    plan: Annotated[Path, typer.Argument(help="The plan, in TOML: tables options and grid, any number of exclude.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the sweep; by default runs/NAME-OF-PLAN.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Only cells with these values, the others another time: gpus=2.")
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option("--launcher", help="Run the cells as tasks: slurm, by submitit, or local, which tries it here."),
    ] = None,
    launcher_option: Annotated[
        list[str] | None,
        typer.Option(
            "--launcher-option",
            help="Of submitit: slurm_partition=long, timeout_min=60, cpus_per_task=16, folder=PATH.",
        ),
    ] = None,
    print_script: Annotated[
        bool, typer.Option("--print", help="Only print a script for bash that submits the cells to Slurm.")
    ] = False,
) -> None:
    """Run a grid of options, one run each; started again, it goes on where it stopped.

    Ends with a summary. Exit code 0 when every cell is done, 2 for a bad plan, 130 when interrupted, 1 otherwise.
    """
    from functools import partial

    from rich.console import Console

    from collect.errors import CollectError
    from collect.process import Signals
    from collect.sweep import sweep as run_sweep
    from collect.sweep_tasks import launch, parse_options, script

    try:
        options = parse_options(launcher_option or [], launcher, print_script)
        if print_script:
            typer.echo(script(plan, output, only, options))
            raise typer.Exit
        with Signals() as signals:
            engine = partial(launch, launcher, options) if launcher else None
            code = run_sweep(plan, output, retry_failed, Console(stderr=True), signals, only, engine)
    except CollectError as e:
        _fail(str(e), e.exit_code)
    raise typer.Exit(code)


@app.command()
def doctor(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that runs would be written to.")] = Path(
        "runs"
    ),
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Say what this node can do, and the fix for what it can't.

    Exit code 0 when training can run at all, 1 otherwise.
    """
    if format not in ("table", "json"):
        _fail(f"--format: {format!r} will not do; give table or json", 2)
    from collect.doctor import report

    raise typer.Exit(report(output, format))


def main() -> None:
    """Entry point of the console script: usage errors are one sentence, like all others."""
    try:
        code = app(standalone_mode=False)
    except OSError as e:  # of a file where nothing above expects one: the system says which, and why
        from collect.failure import os_sentence

        sys.stderr.write(f"collect: {os_sentence(e)}\n")
        code = 1
    except Exception as e:
        # click's own errors; which package they come from depends on the version of typer.
        message = getattr(e, "format_message", None)
        if message is None:
            raise
        if sentence := " ".join(message().split()):
            sys.stderr.write(f"collect: {sentence}\n")
        code = getattr(e, "exit_code", 2)
    sys.exit(code)
