"""`collect run`: one workload under one or several profilers, in one run folder. Never imports torch."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from collect.checked_options import resolve
from collect.environment import describe_node
from collect.errors import CollectError, ToolError, UsageError
from collect.failure import diagnose, is_disk_full, os_sentence
from collect.new_files import UNFINISHED
from collect.nodes import reaches_nodes, slurm_job
from collect.options import RunOptions
from collect.process import Signals, run_logged
from collect.profilers import make_profiler
from collect.profilers.base import EVERY_PASS, Profiler, list_files
from collect.progress import PassProgress
from collect.ranks import settle
from collect.runfolder import RunFolder, hide_from_others, utc_now
from collect.spec import RankReport, WorkerSpec, read_exit_codes, read_reports
from schemas.isolation import python, python_variables
from schemas.manifest import Gpu, Manifest, Pass, RankRecording
from schemas.workload import OPTIONS, RecordedWorkload, recorded

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""
LOG_NAME = "log.txt"
SLOW = 1.1
"""From so many times the undisturbed time of a step on, the user is told what recording costs."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended: its folder (None when bad input kept it from starting), the exit code, and why."""

    folder: Path | None
    exit_code: int
    reason: str | None
    notes: tuple[str, ...] = ()
    """What the user should be told of the recordings."""
    whole: Path | None = None
    """What to look at: the run folder, or the folder of the job that it is a part of."""


def run(options: RunOptions, command: list[str], console: Console, signals: Signals) -> RunResult:
    """Run the workload once under each profiler and leave the run folder.

    `command` is the command line to note down; `console` writes to stderr; `signals` tells of Ctrl-C. Raises
    UsageError for input that is bad before anything is started; failures later are in the result.
    """
    chosen = options.device
    options = resolve(options)
    if options.program and shutil.which(options.program[0]) is None:
        raise UsageError(f"the program {options.program[0]!r} is not on PATH or is not executable")
    if chosen is None and options.device == "cpu" and not options.program:
        note = "note: there is no GPU that torch can use: training on the CPU (`collect doctor` says what is missing)"
        _tell(console, note)
    if options.program and options.job is None:
        options = msgspec.structs.replace(options, job=slurm_job(os.environ))
    folder = RunFolder.create(options, command)
    manifest = folder.manifest
    _describe_workload(manifest, options)
    describe_node(manifest)
    folder.save()
    usage = False
    for name in options.profiler:
        if signals.count:
            break
        usage = _run_pass(make_profiler(name, options), options, folder, console, signals)
        if usage:
            break
    return _finish(folder, options, signals, usage)


def _finish(folder: RunFolder, options: RunOptions, signals: Signals, usage: bool) -> RunResult:
    manifest = folder.manifest
    failed = [p for p in manifest.passes if p.status != "done"]
    several = len(options.profiler) > 1
    if signals.count:
        manifest.reason = signals.reason
    elif failed:
        manifest.reason = "; ".join(f"{p.profiler}: {p.reason}" if several else str(p.reason) for p in failed)
    manifest.status = "failed" if manifest.reason else "done"
    if usage and not signals.count:
        reason = failed[0].reason
        folder.discard()
        return RunResult(None, UsageError.exit_code, reason)
    folder.finish()
    code = INTERRUPTED if signals.count else 1 if failed else 0
    notes = tuple(filter(None, map(_told_slowdown, manifest.passes)))
    return RunResult(folder.path, code, manifest.reason, notes, folder.path.parent if manifest.job else folder.path)


def _tell(console: Console, text: str) -> None:
    """A line as it is, whatever brackets are in it."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _told_slowdown(done: Pass) -> str | None:
    """What recording cost, of the rank that it slowed down most; None where that is little or not known."""
    if {f.kind for f in done.files} <= set(EVERY_PASS.values()):
        return None
    slowest = max((r for r in done.ranks if r.slowdown), key=lambda r: r.slowdown or 0, default=None)
    if slowest is None or (slowest.slowdown or 0) <= SLOW:
        return None
    recorded_ms, undisturbed_ms = ((ns or 0) / 1e6 for ns in (slowest.recorded_step_ns, slowest.undisturbed_step_ns))
    lighter = any(done.options.get(what) for what in ("shapes", "memory", "stacks", "flops"))
    return (
        f"{done.profiler}: recording makes a step {slowest.slowdown:.2f} times as long: {recorded_ms:,.3f} ms instead "
        f"of {undisturbed_ms:,.3f} ms" + ("; --detail light records less, and disturbs less" if lighter else "")
    )


def _describe_workload(manifest: Manifest, options: RunOptions) -> None:
    """Fill in what is trained; for a program of the user's own only what is known of it."""
    if options.program:
        manifest.program = list(options.program)
        manifest.workload = RecordedWorkload(device=options.device)
        return
    manifest.workload = recorded(options)
    manifest.world_size = options.world_size


def _run_pass(
    profiler: Profiler[Any], options: RunOptions, folder: RunFolder, console: Console, signals: Signals
) -> bool:
    """Run one pass and note how it went in the manifest. Returns whether bad input kept it from starting."""
    path = folder.path / profiler.name
    done = Pass(profiler=profiler.name, start=utc_now())
    folder.manifest.passes.append(done)
    usage = False
    seen_by_all = folder.path.resolve() if reaches_nodes(options.program) else None
    with tempfile.TemporaryDirectory(prefix=".tracequarry-", dir=seen_by_all, ignore_cleanup_errors=True) as scratch:
        try:
            path.mkdir(mode=0o700)
            folder.save()
            for note in profiler.prepare():
                _tell(console, note)
            usage = _execute(profiler, options, folder, done, Path(scratch), console, signals)
        except CollectError as e:
            done.reason = str(e)
        except OSError as e:
            done.reason = os_sentence(e)
    if signals.count:
        done.reason = signals.reason
    done.options = profiler.record()
    done.end = utc_now()
    done.status = "failed" if done.reason else "done"
    if path.is_dir():
        _remove_unfinished(path)
        hide_from_others(path)
        done.files = list_files(folder.path, path, profiler.kinds)
    folder.save()
    return usage


def _execute(
    profiler: Profiler[Any],
    options: RunOptions,
    folder: RunFolder,
    done: Pass,
    scratch: Path,
    console: Console,
    signals: Signals,
) -> bool:
    """Start the command of a pass, wait for it, complete its files and judge it. Raises ToolError and OSError."""
    path = folder.path / profiler.name
    log = path / LOG_NAME
    done.command = profiler.wrap(_command(profiler, options, path, scratch), path)
    # What is read once is not there for a second pass.
    reads_stdin = bool(options.program) and len(options.profiler) == 1
    echo = bool(options.program) if options.echo is None else options.echo
    steps = None if options.program else options.all_steps
    what = " ".join(options.program[:2]) if options.program else f"{options.model}, batch {options.batch_size}"
    environment = {**os.environ, **_environment(options), **profiler.environment(path, scratch)}
    with PassProgress(console, f"{profiler.name}: {what}", steps, scratch, log, echo) as progress:

        def tick() -> None:
            progress.tick()
            if signals.count and done.status == "running":
                folder.note_failure(signals.reason)

        done.exit_code = run_logged(done.command, log, environment, signals, tick, reads_stdin)
    reports = read_reports(scratch)
    for report in reports:
        _merge_facts(folder.manifest, report.facts)
    if options.program:
        reports, done.note = settle(reports, path)
        if done.note:
            _tell(console, f"note: {profiler.name}: {done.note}")
    _note_counts(folder.manifest, done, reports)
    ranks = 1 if options.program else options.world_size
    done.reason = diagnose(done.exit_code, reports, read_exit_codes(scratch), path, ranks, bool(options.program))
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if done.reason and (said := profiler.explain(text)):
        done.reason = said
    try:
        profiler.finish(path, text)
    except (ToolError, OSError) as e:
        # What failed first is the reason; a report that is missing because of it is not.
        if not done.reason:
            done.reason = profiler.explain(text) or (str(e) if isinstance(e, ToolError) else os_sentence(e))
        elif is_disk_full(e):
            done.reason = os_sentence(e)  # type: ignore[arg-type]
    bad_input = [r.reason for r in reports if r.usage]
    if bad_input:
        done.reason = bad_input[0]
    return bool(bad_input)


def _remove_unfinished(path: Path) -> None:
    """Remove what a killed process was still writing."""
    for left in (p for pattern in UNFINISHED for p in path.glob(pattern)):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _command(profiler: Profiler[Any], options: RunOptions, path: Path, scratch: Path) -> list[str]:
    """What to run: the user's program, a worker, or the launcher of several workers."""
    if options.program:
        return list(options.program)
    spec = WorkerSpec(options=options, profiler=profiler.name, folder=str(path.resolve()), scratch=str(scratch))
    spec_path = scratch / "spec.json"
    spec_path.write_bytes(msgspec.json.encode(spec))
    module = "collect.elastic" if options.parallel == "ddp" else "collect.worker"
    return python("-m", module, str(spec_path))


def _environment(options: RunOptions) -> dict[str, str]:
    """Variables for the worker: it must import this package, whatever is in the current directory."""
    if options.program:
        # srun hands on a Ctrl-C at once then, instead of printing what its tasks do.
        return {"SLURM_DISABLE_STATUS": "1"} if reaches_nodes(options.program) else {}
    extra = {**python_variables(), "PYTHONUNBUFFERED": "1"}
    if options.parallel == "ddp":
        # Everything is on this node; gloo would otherwise look for the address of the host's name.
        extra["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        # torchrun's own default, said here so that it says nothing about it.
        extra["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    return extra


def _note_counts(manifest: Manifest, done: Pass, reports: list[RankReport]) -> None:
    """Note what the processes counted; nothing where they did not count, or do not agree."""
    done.counted_steps = _agreed([r.counted_steps for r in reports])
    recorded = [r for r in reports if r.ok]
    done.ranks = [
        RankRecording(**{name: getattr(report, name) for name in RankRecording.__struct_fields__})
        for report in recorded
    ]
    if not manifest.program:
        return
    if (world_size := _agreed([r.world_size for r in recorded])) is not None:
        manifest.world_size = world_size


def _agreed(values: list[int | None]) -> int | None:
    """The value that all have; None if there is no such."""
    return values[0] if values and all(v == values[0] for v in values) else None


def _merge_facts(manifest: Manifest, facts: dict[str, object]) -> None:
    """Put what a worker knows into the manifest; the GPUs come as plain objects."""
    for key, value in facts.items():
        if value is None:
            continue
        if key in OPTIONS:  # what the options left open
            setattr(manifest.workload, key, value)
        elif key in Manifest.__struct_fields__:
            setattr(manifest, key, msgspec.convert(value, list[Gpu]) if key == "gpu_devices" else value)
