"""Builds the options of a run from plain values, of a command line or of a plan, and checks them before the start."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from collect.injected.step_rules import parse_when
from collect.node_facts import has_gpu
from collect.options import WATCHING, RunOptions
from collect.profilers import PROFILERS, make_profiler
from schemas.errors import InputError
from schemas.extras import missing
from schemas.files import is_dir
from schemas.manifest import is_run_id
from schemas.option_declaration import Declared, declared
from schemas.urls import url_of
from schemas.workload import PARALLEL, WORKLOAD

PATH_DATA = ("cifar100", "food101", "imagefolder")
"""Data sets given as NAME:PATH."""
FAKE_DATA = ("fake-cifar100", "fake-food101")
"""Generated data sets in the shape of others, given as NAME[:IMAGES]."""


def all_options() -> dict[str, Declared]:
    """All options by name: of the run, then of each profiler."""
    run = declared(RunOptions)
    profiler = run["profiler"]._replace(choices=tuple(PROFILERS))
    return {**run, "profiler": profiler, **{n: o for p in PROFILERS.values() for n, o in declared(p.Options).items()}}


def applies_to_programs(option: Declared) -> bool:
    """Whether an option says how a program is recorded once: not what the built-in workload is, nor when to record."""
    if option.name in ("steps", "warmup", "device"):
        return True
    return option.option.panel not in (WORKLOAD, PARALLEL, WATCHING) and option.name not in ("job", "echo")


def flag(key: str) -> str:
    """An option as the command line writes it: --batch-size."""
    return "--" + key.replace("_", "-")


def output_folder(output: str | Path, label: str = "--output") -> Path:
    """The folder to record into. Raises InputError for a URL, which would become a folder `s3:`."""
    if url := url_of(output):
        raise InputError(f"{label}: {url} is a URL; record into a folder and copy it: `analyze` reads URLs")
    return Path(output)


def make_options(values: Mapping[str, Any], label: Callable[[str], str] = flag) -> RunOptions:
    """Build the options from plain values and check them.

    `label` names an option in error messages (`--steps`, or `plan.toml: options.steps`). Raises InputError.
    """
    known = all_options()
    run_options = declared(RunOptions)
    plain = dict(values)
    program = plain.pop("program", ())
    if not isinstance(program, list | tuple) or not all(isinstance(p, str) for p in program):
        raise InputError(f"{label('program')}: invalid value {program!r}; expected a list of text")
    if isinstance(plain.get("profiler"), str):
        plain["profiler"] = [p.strip() for p in plain["profiler"].split(",") if p.strip()]
    for key, value in plain.items():
        if key not in known:
            close = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InputError(f"{label(key)}: unknown option{hint}")
        _check_value(known[key], value, label(key))
    run = {key: value for key, value in plain.items() if key in run_options}
    profiling = {key: value for key, value in plain.items() if key not in run_options}
    options = msgspec.convert({**run, "profiling": profiling, "program": program}, RunOptions)
    _check_combination(options, label)
    return options


def _check_value(option: Declared, value: Any, label: str) -> None:
    """Raise InputError for a value of another type or out of range."""
    try:
        converted = msgspec.convert(value, option.hint)
        valid = option.kind is not tuple or set(converted) <= set(option.choices)
    except msgspec.ValidationError:
        valid = False
    if not valid:
        words = {bool: "true or false", int: "a whole number", str: "text"}
        expected = f"one of {', '.join(option.choices)}" if option.choices else words[option.kind]
        shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        raise InputError(f"{label}: invalid value {shown!r}; expected {expected}")
    if option.kind is int and value is not None:
        least, most = option.option.least, option.option.most
        if least is not None and value < least:
            raise InputError(f"{label}: {value} is below the minimum of {least}")
        if value > most:
            raise InputError(f"{label}: {value} is above the maximum of {most}")


def _check_combination(o: RunOptions, label: Callable[[str], str]) -> None:
    """Raise InputError for combinations that cannot run."""

    def fail(key: str, why: str) -> NoReturn:
        raise InputError(f"{label(key)}: {why}")

    if not o.profiler:
        fail("profiler", f"expected at least one of {', '.join(PROFILERS)}")
    if len(set(o.profiler)) != len(o.profiler):
        fail("profiler", "a profiler is listed twice")
    output_folder(o.output, label("output"))
    if o.undisturbed and o.warmup < 2:
        fail("undisturbed", "needs --warmup 2 or more: one step before them, and one after with the profiler on")
    if o.gpu_steps and not o.warmup:
        fail("gpu_steps", "needs --warmup 1 or more: the recorder of the GPU starts in a warm-up step")
    if "gpu" in o.profiler and (o.gpu_steps == 0 or not o.warmup):
        fail("profiler", "gpu needs --gpu-steps and --warmup of 1 or more")
    if o.job is not None and not is_run_id(o.job):
        fail("job", f"{o.job!r} cannot name a folder")
    if o.job is not None and not o.program:
        fail("job", "needs a program of your own after --; the built-in workload runs on one node")
    if o.directory is not None and not o.program:
        fail("directory", "needs a program of your own after --")
    if o.directory is not None and not is_dir(Path(o.directory)):
        fail("directory", f"{o.directory} is not a folder")
    step = o.step_function
    if step is not None and not o.program:
        fail("step_function", "needs a program of your own after --")
    if step is not None and not re.fullmatch(r"[\w.]+:[\w.]+", step):
        fail("step_function", f"invalid value {step!r}; expected MODULE:FUNCTION, or MODULE:CLASS.METHOD")
    _check_watching(o, fail)
    if o.program:
        if o.model is not None:
            fail("model", "choose either a model or a program of your own after --, not both")
        return
    if o.model is None:
        fail("model", "choose a torchvision model, or a program of your own after --")
    if not re.fullmatch(r"[A-Za-z0-9_]+", o.model or ""):
        fail("model", f"{o.model!r} is not the name of a model")
    if o.gpus > 1 and o.parallel == "none":
        fail("gpus", f"{o.gpus} GPUs need --parallel dp or --parallel ddp")
    if o.compile and o.parallel == "dp":
        fail("compile", "torch.compile does not work with nn.DataParallel; use --parallel ddp")
    if o.parallel == "dp" and o.batch_size < o.gpus:
        fail("batch_size", f"{o.batch_size} images cannot be split over {o.gpus} GPUs")
    for name in o.profiler:
        if problem := make_profiler(name, o).unsupported():
            fail("profiler", problem)
    _check_data(o, fail)


def _check_watching(o: RunOptions, fail: Callable[[str, str], NoReturn]) -> None:
    if o.when is not None:
        try:
            parse_when(o.when)
        except ValueError as e:
            fail("when", f"invalid value {o.when!r}; {e}")
    if o.at_step is not None:
        found = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", o.at_step, re.ASCII)
        if found is None or int(found[1]) > int(found[2]):
            fail("at_step", f"invalid value {o.at_step!r}; expected FIRST..LAST, for example 5000..5009")
    if o.when is not None and o.slowest is not None:
        fail("slowest", "choose either --when or --slowest")
    if o.rules is None:
        return
    used = next(n for n in ("on_demand", "when", "slowest", "every", "at_step") if getattr(o, n))
    if not o.program:
        fail(used, "needs a program of your own after --")
    if o.profiler != ("torch",):
        fail(used, "records with --profiler torch only")
    if not o.steps:
        fail(used, "needs --steps of 1 or more")


def _check_data(o: RunOptions, fail: Callable[[str, str], NoReturn]) -> None:
    kind, colon, argument = o.data.partition(":")
    if kind in ("synthetic", "fake-jpeg") and not colon:
        return
    if kind in FAKE_DATA:
        if colon and not (argument.isascii() and argument.isdecimal() and 0 < int(argument) <= 1_000_000):
            fail("data", f"invalid value {o.data!r}; expected a number of images from 1 to 1000000: {kind}:5000")
        return
    if kind not in PATH_DATA:
        fake = [f"{k}[:IMAGES]" for k in FAKE_DATA]
        known = ", ".join(["synthetic", "fake-jpeg", *fake, *(f"{k}:PATH" for k in PATH_DATA)])
        fail("data", f"invalid value {o.data!r}; expected one of {known}")
    if not argument:
        fail("data", f"{kind} needs the path of its folder: {kind}:PATH")
    root = Path(argument).expanduser()
    subfolder = {"cifar100": "cifar-100-python", "food101": "food-101"}.get(kind)
    try:
        found = is_dir(root / subfolder) if subfolder else is_dir(root) and any(map(is_dir, root.iterdir()))
    except (OSError, ValueError) as e:
        fail("data", f"{root}: cannot be read: {getattr(e, 'strerror', None) or e}")
    if subfolder and not found:
        fail("data", f"{root} holds no {kind} data set (no folder {subfolder}); download it there first")
    if not found:
        fail("data", f"{root} is not a folder with one subfolder of images for each class")


def resolve(options: RunOptions) -> RunOptions:
    """Fill in what depends on the node (device) and check what depends on it. Raises InputError."""
    device = options.device or ("cuda" if has_gpu() else "cpu")
    resolved = msgspec.structs.replace(options, device=device)
    if options.directory is not None:
        # A profiler's output path is relative to the folder that it runs in.
        output = str(Path(options.output).expanduser().resolve())
        resolved = msgspec.structs.replace(resolved, output=output)
    if device == "cpu" and "gpu" in options.profiler:
        raise InputError("--profiler gpu: there is no GPU to record; `collect doctor` checks the driver")
    if options.program:
        return resolved
    for package in ("torch", "torchvision"):
        if find_spec(package) is None:
            raise missing("--model", "collect", f"{package} is not installed")
    if device == "cpu":
        if options.parallel == "dp" and options.gpus > 1:
            raise InputError("--parallel dp splits a batch over GPUs; with --device cpu use --gpus 1 or --parallel ddp")
        if options.precision == "tf32":
            raise InputError("--precision tf32 is a mode of NVIDIA GPUs; with --device cpu use fp32, bf16 or fp16")
    for name in options.profiler:
        if problem := make_profiler(name, resolved).unsupported():
            raise InputError(f"--profiler: {problem}")
    if device == "cpu" and options.parallel != "ddp":
        resolved = msgspec.structs.replace(resolved, gpus=0)
    return resolved
