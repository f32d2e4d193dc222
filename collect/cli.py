"""The command line: options in, one function call, exit code out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    name="collect",
    help="Run training workloads under torch.profiler, Nsight Systems and Nsight Compute, and keep what they wrote.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

WORKLOAD, PARALLEL, RECORDING = "Workload", "Where it runs", "Recording"
TORCH, NSYS, NCU = "torch.profiler", "Nsight Systems", "Nsight Compute"


def _fail(sentence: str, code: int) -> NoReturn:
    sys.stderr.write(f"collect: {sentence}\n")
    raise typer.Exit(code)


def _option(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND ARGS", help="A program of your own, run instead of --model."),
    ] = None,
    model: Annotated[str | None, _option(WORKLOAD, "A torchvision classification model: resnet18, vgg16 ...")] = None,
    batch_size: Annotated[int, _option(WORKLOAD, "Images per step; per process under ddp.")] = 32,
    steps: Annotated[int, _option(WORKLOAD, "Profiled steps.")] = 5,
    warmup: Annotated[int, _option(WORKLOAD, "Steps before them.")] = 3,
    image_size: Annotated[
        int | None, _option(WORKLOAD, "Side of the input in pixels; by default the model's own.")
    ] = None,
    precision: Annotated[str, _option(WORKLOAD, "fp32, tf32, bf16 or fp16 (the last two by autocast).")] = "fp32",
    channels_last: Annotated[bool, _option(WORKLOAD, "NHWC memory format.", "--channels-last")] = False,
    compile: Annotated[bool, _option(WORKLOAD, "torch.compile the model.", "--compile")] = False,
    optimizer: Annotated[str, _option(WORKLOAD, "sgd, adam, adamw, rmsprop or adagrad.")] = "sgd",
    freeze_features: Annotated[
        bool, _option(WORKLOAD, "Transfer learning: only the classifier trains.", "--freeze-features")
    ] = False,
    data: Annotated[
        str, _option(WORKLOAD, "synthetic, fake-jpeg, cifar100:PATH, food101:PATH or imagefolder:PATH.")
    ] = "synthetic",
    workers: Annotated[int, _option(WORKLOAD, "Data loader processes; synthetic data needs none.")] = 4,
    seed: Annotated[int, _option(WORKLOAD, "Seed of everything random.")] = 0,
    device: Annotated[str | None, _option(PARALLEL, "cuda or cpu; by default cuda where there is a GPU.")] = None,
    gpus: Annotated[int, _option(PARALLEL, "GPUs to train on; processes under ddp on the CPU.")] = 1,
    parallel: Annotated[
        str, _option(PARALLEL, "none, dp (nn.DataParallel, one process) or ddp (one process per GPU).")
    ] = "none",
    profiler: Annotated[
        str, _option(RECORDING, "torch, nsys, ncu, none, or several with commas: one pass each.")
    ] = "torch",
    output: Annotated[Path, _option(RECORDING, "Folder that the run folder is made in.", "--output", "-o")] = Path(
        "runs"
    ),
    echo: Annotated[
        bool | None, _option(RECORDING, "Show what the workload prints; by default for a program of your own.")
    ] = None,
    keep_report: Annotated[
        bool,
        _option(
            RECORDING,
            "Keep the .nsys-rep and .ncu-rep beside their exports; they hold the whole environment.",
            "--keep-report",
        ),
    ] = False,
    shapes: Annotated[bool, _option(TORCH, "Record operator input shapes.")] = True,
    memory: Annotated[bool, _option(TORCH, "Record allocations.", "--memory")] = False,
    stacks: Annotated[bool, _option(TORCH, "Record Python stacks.", "--stacks")] = False,
    flops: Annotated[bool, _option(TORCH, "Estimate FLOPs of operators.", "--flops")] = False,
    memory_timeline: Annotated[
        bool, _option(TORCH, "Write a memory timeline; turns on shapes, memory and stacks.", "--memory-timeline")
    ] = False,
    nsys_trace: Annotated[
        str | None,
        _option(NSYS, "APIs to trace, with commas; by default cuda,nvtx,cudnn,cublas, and nccl where known."),
    ] = None,
    nsys_capture_range: Annotated[
        str | None,
        _option(NSYS, "none or cudaProfilerApi; by default the profiled steps, or all of a program of your own."),
    ] = None,
    ncu_metrics: Annotated[
        str, _option(NCU, "flops, roofline (plus L1, L2, peaks and clocks) or full (slow).")
    ] = "flops",
    ncu_phase: Annotated[
        str | None, _option(NCU, "Only one phase of each step: forward, loss, backward or optimizer.")
    ] = None,
    ncu_kernel: Annotated[str | None, _option(NCU, "Only kernels whose name matches this regular expression.")] = None,
    ncu_launches: Annotated[int | None, _option(NCU, "At most so many kernel launches.")] = None,
) -> None:
    """Train a model, or run a program of your own, under one or several profilers.

    Prints the run folder. Exit code 0 when all went well, 2 for bad input, 130 when interrupted, 1 otherwise.
    """
    values = {k: v for k, v in locals().items() if k != "program"}
    values["output"] = str(output)
    from rich.console import Console

    from collect.errors import CollectError
    from collect.options import make_options
    from collect.process import Signals
    from collect.run import run as run_once

    try:
        options = make_options({**values, "program": tuple(program or ())})
        with Signals() as signals:
            result = run_once(options, ["collect", *sys.argv[1:]], Console(stderr=True), signals)
    except CollectError as e:
        _fail(str(e), e.exit_code)
    if result.folder is not None:
        typer.echo(str(result.folder))
    if result.exit_code:
        _fail(str(result.reason), result.exit_code)


@app.command()
def sweep(
    plan: Annotated[Path, typer.Argument(help="The plan: [options], [grid] and [[exclude]] tables in TOML.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the sweep; by default runs/NAME-OF-PLAN.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
) -> None:
    """Run a grid of options, one run each; started again, it goes on where it stopped.

    Ends with a summary. Exit code 0 when every cell is done, 2 for a bad plan, 130 when interrupted, 1 otherwise.
    """
    from rich.console import Console

    from collect.errors import CollectError
    from collect.process import Signals
    from collect.sweep import sweep as run_sweep

    try:
        with Signals() as signals:
            code = run_sweep(plan, output, retry_failed, Console(stderr=True), signals)
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
    except Exception as e:
        # click's own errors; which package they come from depends on the version of typer.
        message = getattr(e, "format_message", None)
        if message is None:
            raise
        if sentence := " ".join(message().split()):
            sys.stderr.write(f"collect: {sentence}\n")
        code = getattr(e, "exit_code", 2)
    sys.exit(code)
