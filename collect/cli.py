"""The command line: options in, one function call, exit code out."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from collect.option_checks import all_options, applies_to_programs, flag, make_options
from schemas.checks import Format

app = typer.Typer(
    name="collect",
    help="Record training workloads with torch.profiler, Nsight Systems and Nsight Compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _fail(sentence: str, code: int) -> NoReturn:
    sys.stderr.write(f"collect: {sentence}\n")
    raise typer.Exit(code)


def _with_run_options(function: Callable[..., None], of_programs: bool = False) -> Callable[..., None]:
    """Add the declared options of a run (`all_options`) to a command's own parameters.

    With `of_programs` only those that apply to a program of one's own, recorded once.
    """
    text = "The program to record." if of_programs else "A program of your own to record instead of --model."
    argument = typer.Argument(metavar="-- COMMAND ARGS", help=text)
    own = [p for p in signature(function, eval_str=True).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    parameters = [
        Parameter("program", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, argument]),
        *own,
    ]
    for o in all_options().values():
        if of_programs and not applies_to_programs(o):
            continue
        default = ",".join(o.default) if isinstance(o.default, tuple) else o.default
        kind = str if o.kind is tuple else o.kind
        # A switch that is off by default needs no --no-x.
        names = [flag(o.name), o.option.short] if default is False or o.option.short else []
        declaration = typer.Option(*filter(None, names), help=o.text(o.option.help), rich_help_panel=o.option.panel)
        hint: Any = kind | None if default is None else kind
        annotation = Annotated[hint, declaration]
        parameters.append(Parameter(o.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def _print_version(requested: bool) -> None:
    if requested:
        from schemas.extras import installed_version

        typer.echo(f"collect {installed_version('tracequarry') or '(not installed)'}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command(context_settings={"allow_interspersed_args": False})
@_with_run_options
def run(
    *,
    repeat: Annotated[
        int, typer.Option("--repeat", help="How often to record, each time in a run folder of its own.", min=1)
    ] = 1,
    **values: Any,
) -> None:
    """Record a model's training, or a program of your own, with one or several profilers.

    Prints the run folder; on stderr if stdout belongs to your program. Exit code: that of the program if it is not 0,
    else 0 success, 1 failure, 2 bad input, 130 interrupted.
    """
    from rich.console import Console

    from collect.run import run as run_once
    from collect.signals import Signals
    from collect.watch import watch
    from schemas.errors import ReportedError

    try:
        options = make_options({**values, "program": tuple(values["program"] or ())})
        record = watch if options.rules else run_once
        if repeat > 1 and (options.rules or options.job):
            _fail("--repeat: cannot be combined with --job, --on-demand, --when, --slowest, --every or --at-step", 2)
        with Signals() as signals:
            for _ in range(repeat):
                result = record(options, ["collect", *sys.argv[1:]], Console(stderr=True), signals)
                if result.folder is not None:
                    # Where the output of a program is shown, stdout has that alone.
                    typer.echo(str(result.folder), err=bool(options.program) and options.echo is not False)
                if result.exit_code:
                    _fail(str(result.reason), result.exit_code)
                for note in result.notes:
                    sys.stderr.write(f"{note}\n")
    except ReportedError as e:
        _fail(str(e), e.exit_code)
    sys.stderr.write(f"next: analyze info {shlex.quote(str(result.to_analyze))}\n")


@app.command(context_settings={"allow_interspersed_args": False})
@partial(_with_run_options, of_programs=True)
def ab(
    *,
    n: Annotated[int, typer.Option("--repetitions", "-n", help="Recordings of each side.", min=1, max=1000)] = 5,
    a: Annotated[str | None, typer.Option("--a", help="Command of side a, in quotes.")] = None,
    b: Annotated[str | None, typer.Option("--b", help="Command of side b, in quotes.")] = None,
    a_dir: Annotated[str | None, typer.Option("--a-dir", help="Folder to run side a in, such as a checkout.")] = None,
    b_dir: Annotated[str | None, typer.Option("--b-dir", help="Folder to run side b in.")] = None,
    a_env: Annotated[list[str] | None, typer.Option("--a-env", help="Variable of side a: NAME=VALUE.")] = None,
    b_env: Annotated[list[str] | None, typer.Option("--b-env", help="Variable of side b: NAME=VALUE.")] = None,
    order_seed: Annotated[int, typer.Option("--order-seed", help="Seed of the order of the recordings.")] = 0,
    **values: Any,
) -> None:
    """Record two programs, or two variants of one, several times in turn (a b b a ...), to compare them.

    Started again, it resumes where it stopped; a failed recording is repeated. Prints the folder. Exit code: 0
    all recorded, 1 failure, 2 bad input, 130 interrupted.
    """
    from rich.console import Console

    from collect.signals import Signals
    from collect.sweep.sides import Side, plan_sides, record_sides
    from schemas.errors import ReportedError

    sides = [Side("a", a, a_dir, tuple(a_env or ())), Side("b", b, b_dir, tuple(b_env or ()))]
    try:
        plan = plan_sides(values, sides, n, order_seed)
        output = plan.folder(Path(values["output"]))
        with Signals() as signals:
            code = record_sides(plan, output, Console(stderr=True), signals)
    except ReportedError as e:
        _fail(str(e), e.exit_code)
    typer.echo(str(output))
    if code:
        raise typer.Exit(code)
    sys.stderr.write(f"next: analyze compare {shlex.quote(str(output))}\n")


@app.command()
def trigger(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The job's folder that `collect run` printed.")],
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Record this many steps. Default: --steps of `collect run`.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.001, max=86400, help="Record for this many seconds, in whole steps."),
    ] = None,
) -> None:
    """Record the next steps or seconds of a job that `collect run --on-demand` started.

    Exit code: 0 triggered, 2 no such job runs.
    """
    from collect.watch import trigger as trigger_recording
    from schemas.errors import ReportedError

    try:
        trigger_recording(folder, steps, seconds)
    except ReportedError as e:
        _fail(str(e), e.exit_code)


@app.command()
def sweep(
    plan: Annotated[Path, typer.Argument(help="The plan, in TOML: tables options, grid and exclude.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the sweep. Default: runs/NAME-OF-PLAN.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Run only the cells with these values: gpus=2,seed=0.")
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option("--launcher", help="Run the cells as tasks with submitit: slurm, or local for this machine."),
    ] = None,
    launcher_option: Annotated[
        list[str] | None,
        typer.Option(
            "--launcher-option",
            help="Parameter of submitit: slurm_partition=long, timeout_min=60, cpus_per_task=16, folder=PATH.",
        ),
    ] = None,
    print_script: Annotated[
        bool, typer.Option("--print", help="Print a bash script that submits the cells to Slurm; run nothing.")
    ] = False,
) -> None:
    """Record a grid of runs. Started again, it resumes where it stopped.

    Ends with a summary. Exit code: 0 all cells done, 1 failure, 2 bad plan, 130 interrupted.
    """
    from rich.console import Console

    from collect.signals import Signals
    from collect.sweep.plan import read_plan
    from collect.sweep.sweep import sweep as run_sweep
    from collect.sweep.tasks import launch, parse_options, script
    from schemas.errors import ReportedError

    try:
        options = parse_options(launcher_option or [], launcher, print_script)
        if print_script:
            typer.echo(script(plan, output, only, options))
            raise typer.Exit
        with Signals() as signals:
            run_cells = partial(launch, launcher, options) if launcher else None
            code = run_sweep(read_plan(plan), output, retry_failed, Console(stderr=True), signals, only, run_cells)
    except ReportedError as e:
        _fail(str(e), e.exit_code)
    raise typer.Exit(code)


@app.command()
def doctor(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to check for free space.")] = Path("runs"),
    format: Annotated[Format, typer.Option(help="table or json.")] = "table",
) -> None:
    """Check what this node can record, and how to fix what it cannot.

    Exit code: 0 if training can run, 1 if not.
    """
    from collect.doctor import run_checks
    from schemas.checks import print_checks

    raise typer.Exit(print_checks(run_checks(output), format))


def main() -> None:
    """Entry point of the console script. Every error is one sentence; faults of tracequarry show a traceback, too."""
    try:
        code = app(standalone_mode=False)
    except OSError as e:
        from collect.failure import os_sentence

        sys.stderr.write(f"collect: {os_sentence(e)}\n")
        code = 1
    except Exception as e:
        # click's own errors; which package they come from depends on the version of typer.
        message = getattr(e, "format_message", None)
        if message is None:
            sys.stderr.write(f"{traceback.format_exc()}collect: internal error; please report it with these lines\n")
            sys.exit(1)
        if sentence := " ".join(message().split()):
            sys.stderr.write(f"collect: {sentence}\n")
        code = getattr(e, "exit_code", 2)
    sys.exit(code)
