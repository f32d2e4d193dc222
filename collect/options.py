"""The options of `collect run`: one frozen struct, shared by the command line, the sweep plan and the worker."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from collect.errors import UsageError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
ProfilerName = Literal["none", "torch", "nsys", "ncu"]
NcuMetrics = Literal["flops", "roofline", "full"]
CaptureRange = Literal["none", "cudaProfilerApi"]
Optimizer = Literal["sgd", "adam", "adamw", "rmsprop", "adagrad"]
PATH_DATA = ("cifar100", "food101", "imagefolder")
"""Data sets that are given as NAME:PATH."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to train, how, and under which profilers. Field names are the option names with `_` for `-`."""

    model: str | None = None
    batch_size: int = 32
    """Images per step over all GPUs under dp, per process under ddp."""
    steps: int = 5
    warmup: int = 3
    image_size: int | None = None
    """Side of the square input in pixels; None is the size the model's published weights were trained for."""
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: bool = False
    optimizer: Optimizer = "sgd"
    freeze_features: bool = False
    data: str = "synthetic"
    workers: int = 4
    seed: int = 0
    device: Literal["cuda", "cpu"] | None = None
    """None is cuda where there is a GPU."""
    gpus: int = 1
    parallel: Literal["none", "dp", "ddp"] = "none"
    profiler: tuple[ProfilerName, ...] = ("torch",)
    output: str = "runs"
    echo: bool | None = None
    """Show what the workload prints; None is yes for a program of the user's own."""

    keep_report: bool = False
    """Keep the .nsys-rep and .ncu-rep beside their exports."""

    shapes: bool = True
    memory: bool = False
    stacks: bool = False
    flops: bool = False
    memory_timeline: bool = False

    nsys_trace: str | None = None
    nsys_capture_range: CaptureRange | None = None
    """None is the profiled steps (cudaProfilerApi) for a model, everything for a program of the user's own."""

    ncu_metrics: NcuMetrics = "flops"
    ncu_phase: Literal["forward", "loss", "backward", "optimizer"] | None = None
    ncu_kernel: str | None = None
    ncu_launches: int | None = None

    program: tuple[str, ...] = ()
    """The user's own command, run instead of a model."""

    @property
    def world_size(self) -> int:
        """Training processes."""
        return self.gpus if self.parallel == "ddp" else 1

    @property
    def data_kind(self) -> str:
        """Data source without its path."""
        return self.data.partition(":")[0]


def _choices(hint: Any) -> list[str] | None:
    """The values of a Literal (or optional Literal, or tuple of Literals); None for other types."""
    if get_origin(hint) is Literal:
        return [str(v) for v in get_args(hint)]
    if get_origin(hint) in (Union, types.UnionType, tuple):
        for arg in get_args(hint):
            if (found := _choices(arg)) is not None:
                return found
    return None


def _kind(hint: Any) -> str:
    """What a value of the type is, in words."""
    for kind, words in ((bool, "true or false"), (int, "a whole number"), (str, "text")):
        if hint is kind or kind in get_args(hint):
            return words
    return "a list of text"


def default_label(key: str) -> str:
    """Name of an option as the command line writes it."""
    return "--" + key.replace("_", "-")


def make_options(values: Mapping[str, Any], label: Callable[[str], str] = default_label) -> RunOptions:
    """Build the options from plain values and check each on its own.

    `label` names an option in error messages (`--steps`, or `plan.toml: options.steps`). Raises UsageError.
    """
    hints = get_type_hints(RunOptions)
    plain = dict(values)
    if isinstance(plain.get("profiler"), str):
        plain["profiler"] = [p.strip() for p in plain["profiler"].split(",") if p.strip()]
    for key, value in plain.items():
        if key not in hints:
            close = difflib.get_close_matches(key.replace("-", "_"), hints, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{label(key)}: there is no such option{hint}")
        try:
            msgspec.convert(value, hints[key])
        except msgspec.ValidationError as e:
            choices = _choices(hints[key])
            expected = f"one of {', '.join(choices)}" if choices else _kind(hints[key])
            shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            raise UsageError(f"{label(key)}: {shown!r} will not do; give {expected}") from e
    options = msgspec.convert(plain, RunOptions)
    _check(options, label)
    return options


def _check(o: RunOptions, label: Callable[[str], str]) -> None:
    """Reject combinations that cannot run, before anything is started."""

    def fail(key: str, why: str) -> None:
        raise UsageError(f"{label(key)}: {why}")

    for key, least in (("batch_size", 1), ("steps", 1), ("warmup", 0), ("gpus", 1), ("workers", 0), ("seed", 0)):
        if (value := getattr(o, key)) < least:
            fail(key, f"{value} is too small; the least is {least}")
    for key in ("image_size", "ncu_launches"):
        value = getattr(o, key)
        if value is not None and value < 1:
            fail(key, f"{value} is too small; the least is 1")
    if not o.profiler:
        fail("profiler", "name at least one of torch, nsys, ncu, none")
    if len(set(o.profiler)) != len(o.profiler):
        fail("profiler", "each profiler may be named once")
    if o.program:
        if o.model is not None:
            fail("model", "give either a model or a program of your own after --, not both")
        return
    if o.model is None:
        fail("model", "name a torchvision model, or give a program of your own after --")
    if not re.fullmatch(r"[A-Za-z0-9_]+", o.model or ""):
        fail("model", f"{o.model!r} is not the name of a model")
    if o.gpus > 1 and o.parallel == "none":
        fail("gpus", f"{o.gpus} GPUs need --parallel dp or --parallel ddp")
    if o.compile and o.parallel == "dp":
        fail("compile", "torch.compile does not work with nn.DataParallel; use --parallel ddp")
    if o.parallel == "dp" and o.batch_size < o.gpus:
        fail("batch_size", f"{o.batch_size} images cannot be split over {o.gpus} GPUs")
    if "ncu" in o.profiler and o.gpus > 1:
        fail(
            "profiler",
            "ncu replays kernels one at a time, which deadlocks collectives between GPUs; use it with --gpus 1",
        )
    _check_data(o, fail)


def _check_data(o: RunOptions, fail: Callable[[str, str], None]) -> None:
    kind, colon, where = o.data.partition(":")
    if kind in ("synthetic", "fake-jpeg") and not colon:
        return
    if kind not in PATH_DATA:
        known = ", ".join(["synthetic", "fake-jpeg", *(f"{k}:PATH" for k in PATH_DATA)])
        fail("data", f"{o.data!r} is not a data source; give one of {known}")
    if not where:
        fail("data", f"{kind} needs the folder it lies in: {kind}:PATH")
    root = Path(where).expanduser()
    inside = {"cifar100": "cifar-100-python", "food101": "food-101"}.get(kind)
    if inside and not (root / inside).is_dir():
        fail("data", f"there is no {kind} data set in {root} (no folder {inside}); download it there first")
    if not inside and not (root.is_dir() and any(p.is_dir() for p in root.iterdir())):
        fail("data", f"{root} is not a folder with one sub-folder of images for each class")


def has_gpu() -> bool:
    """Whether the node shows an NVIDIA GPU, without importing torch."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def resolve(options: RunOptions) -> RunOptions:
    """Fill in what depends on the node (device) and check what depends on it. Raises UsageError."""
    device = options.device or ("cuda" if has_gpu() else "cpu")
    resolved = msgspec.structs.replace(options, device=device)
    if options.program:
        return resolved
    if device == "cpu":
        if options.parallel == "dp" and options.gpus > 1:
            raise UsageError("--parallel dp splits a batch over GPUs; with --device cpu use --gpus 1 or --parallel ddp")
        if options.precision == "tf32":
            raise UsageError("--precision tf32 is a mode of NVIDIA GPUs; with --device cpu use fp32, bf16 or fp16")
        if "ncu" in options.profiler:
            raise UsageError("--profiler ncu counts GPU kernels and needs --device cuda")
    return resolved
