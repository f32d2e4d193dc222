"""From plain values, of a command line or of a plan, to the options of a run, each checked before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from collect.errors import UsageError
from collect.options import RunOptions
from collect.profilers import PROFILERS, make_profiler
from schemas.files import is_dir
from schemas.manifest import is_run_id
from schemas.options import Declared, declared
from schemas.urls import url_of

PATH_DATA = ("cifar100", "food101", "imagefolder")
"""Data sets that are given as NAME:PATH."""

MADE_DATA = ("fake-cifar100", "fake-food101")
"""Data sets that are made in the shape of others, of as many images as NAME:IMAGES says."""


def all_options() -> dict[str, Declared]:
    """Every option by name: those of the run, then those of each profiler."""
    run = declared(RunOptions)
    profiler = run["profiler"]._replace(choices=tuple(PROFILERS))
    return {**run, "profiler": profiler, **{n: o for p in PROFILERS.values() for n, o in declared(p.Options).items()}}


def default_label(key: str) -> str:
    """Name of an option as the command line writes it."""
    return "--" + key.replace("_", "-")


def output_folder(output: str | Path, label: str = "--output") -> Path:
    """The folder to record into. Raises UsageError for a URL, which would be a folder `s3:` here."""
    if url := url_of(output):
        raise UsageError(f"{label}: {url} is a URL; record into a folder, and copy that: `analyze` reads it there")
    return Path(output)


def make_options(values: Mapping[str, Any], label: Callable[[str], str] = default_label) -> RunOptions:
    """Build the options from plain values and check each on its own.

    `label` names an option in error messages (`--steps`, or `plan.toml: options.steps`). Raises UsageError.
    """
    known = all_options()
    own = declared(RunOptions)
    plain = dict(values)
    program = plain.pop("program", ())
    if not isinstance(program, list | tuple) or not all(isinstance(p, str) for p in program):
        raise UsageError(f"{label('program')}: {program!r} will not do; give a list of text")
    if isinstance(plain.get("profiler"), str):
        plain["profiler"] = [p.strip() for p in plain["profiler"].split(",") if p.strip()]
    for key, value in plain.items():
        if key not in known:
            close = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{label(key)}: there is no such option{hint}")
        _check_value(known[key], value, label(key))
    run = {key: value for key, value in plain.items() if key in own}
    profiling = {key: value for key, value in plain.items() if key not in own}
    options = msgspec.convert({**run, "profiling": profiling, "program": program}, RunOptions)
    _check(options, label)
    return options


def _check_value(option: Declared, value: Any, label: str) -> None:
    """Raise UsageError for a value that is not of the option's type, or out of its range."""
    try:
        converted = msgspec.convert(value, option.hint)
        fits = option.kind is not tuple or set(converted) <= set(option.choices)
    except msgspec.ValidationError:
        fits = False
    if not fits:
        words = {bool: "true or false", int: "a whole number", str: "text"}
        expected = f"one of {', '.join(option.choices)}" if option.choices else words[option.kind]
        shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        raise UsageError(f"{label}: {shown!r} will not do; give {expected}")
    if option.kind is int and value is not None:
        least, most = option.option.least, option.option.most
        if least is not None and value < least:
            raise UsageError(f"{label}: {value} is too small; the least is {least}")
        if value > most:
            raise UsageError(f"{label}: {value} is too large; the most is {most}")


def _check(o: RunOptions, label: Callable[[str], str]) -> None:
    """Reject combinations that cannot run, before anything is started."""

    def fail(key: str, why: str) -> NoReturn:
        raise UsageError(f"{label(key)}: {why}")

    if not o.profiler:
        fail("profiler", f"name at least one of {', '.join(PROFILERS)}")
    if len(set(o.profiler)) != len(o.profiler):
        fail("profiler", "each profiler may be named once")
    output_folder(o.output, label("output"))
    if o.undisturbed and o.warmup < 2:
        fail("undisturbed", "needs --warmup 2 or more: a step before them, and one with the profiler on behind them")
    if o.job is not None and not is_run_id(o.job):
        fail("job", f"{o.job!r} cannot name a folder")
    if o.job is not None and not o.program:
        fail("job", "needs a program of your own after --; a model is trained on one node")
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
    for name in o.profiler:
        if problem := make_profiler(name, o).refuses():
            fail("profiler", problem)
    _check_data(o, fail)


def _check_data(o: RunOptions, fail: Callable[[str, str], NoReturn]) -> None:
    kind, colon, where = o.data.partition(":")
    if kind in ("synthetic", "fake-jpeg") and not colon:
        return
    if kind in MADE_DATA:
        if colon and not (where.isascii() and where.isdecimal() and 0 < int(where) <= 1_000_000):
            fail("data", f"{o.data!r}: give the number of images, from 1 to 1000000: {kind}:5000")
        return
    if kind not in PATH_DATA:
        made = [f"{k}[:IMAGES]" for k in MADE_DATA]
        known = ", ".join(["synthetic", "fake-jpeg", *made, *(f"{k}:PATH" for k in PATH_DATA)])
        fail("data", f"{o.data!r} is not a data source; give one of {known}")
    if not where:
        fail("data", f"{kind} needs the folder it lies in: {kind}:PATH")
    root = Path(where).expanduser()
    inside = {"cifar100": "cifar-100-python", "food101": "food-101"}.get(kind)
    try:
        there = is_dir(root / inside) if inside else is_dir(root) and any(map(is_dir, root.iterdir()))
    except (OSError, ValueError) as e:
        fail("data", f"{root}: cannot be read: {getattr(e, 'strerror', None) or e}")
    if inside and not there:
        fail("data", f"there is no {kind} data set in {root} (no folder {inside}); download it there first")
    if not there:
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
    for name in options.profiler:
        if problem := make_profiler(name, resolved).refuses():
            raise UsageError(f"--profiler: {problem}")
    if device == "cpu" and options.parallel != "ddp":
        resolved = msgspec.structs.replace(resolved, gpus=0)
    return resolved
