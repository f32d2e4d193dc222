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

from collect.compile_logs import keep_compile_logs
from collect.failure import diagnose, is_disk_full, os_sentence
from collect.multi_node import reaches_nodes, slurm_job
from collect.node_facts import describe_node
from collect.option_checks import resolve
from collect.options import RunOptions
from collect.pass_progress import PassProgress
from collect.profilers import make_profiler
from collect.profilers.base import EVERY_PASS, Profiler
from collect.profilers.gpu import GpuProfiler
from collect.program_processes import marked_processes
from collect.rank_reports import AttachedReport, read_exit_codes, read_reports
from collect.recorded_pass import RecordedPasses
from collect.run_command import run_logged
from collect.run_folder import RunFolder
from collect.sampler import SAMPLES_NAME, sampling
from collect.signals import Signals
from collect.workload.spec import WorkerSpec
from schemas.errors import InputError, ReportedError
from schemas.isolation import python, python_variables
from schemas.manifest import Manifest, Pass, RankRecording
from schemas.option_declaration import declared
from schemas.workload import RecordedWorkload, recorded

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""
LOG_NAME = "log.txt"
NO_STEPS = (
    "torch: --steps and --warmup did not apply, since no optimizer stepped: the program was recorded whole; "
    "--step-function MODULE:FUNCTION says what a step is"
)
HANGS = "flight recorder dumps were written: `analyze query hang` says which rank waits for which"
"""torch dumps when a collective times out, collect/injected when the program is interrupted."""
NOT_TIMED = (
    "none: no steps were timed: the program took too few, or no optimizer stepped; --step-function MODULE:FUNCTION "
    "says what a step is"
)
SLOWDOWN_NOTE = 1.1
"""The profiler's overhead is reported from this ratio of recorded to undisturbed step time on."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended: its folder (None if bad input prevented the start), the exit code, and why."""

    folder: Path | None
    exit_code: int
    reason: str | None
    notes: tuple[str, ...] = ()
    """What the user should know of the recordings."""
    to_analyze: Path | None = None
    """The run folder, or the folder of the job that it is a part of."""


def run(options: RunOptions, command: list[str], console: Console, signals: Signals) -> RunResult:
    """Run the workload once under each profiler and write the run folder.

    `command` is the command line for run.json; `console` writes to stderr; `signals` catches Ctrl-C. Raises InputError
    and MachineError before anything is started; later failures are in the result.
    """
    requested_device = options.device
    options = resolve(options)
    if options.program:
        check_executable(options)
    if requested_device is None and options.device == "cpu" and not options.program:
        say(console, "note: torch finds no usable GPU: training on the CPU (`collect doctor` says what is missing)")
    if options.gpu_steps and options.device == "cpu":
        say(console, "note: --gpu-steps: there is no GPU, so no steps are recorded GPU only")
    if options.program and options.job is None:
        options = msgspec.structs.replace(options, job=slurm_job(os.environ))
    folder = RunFolder.create(options, command)
    manifest = folder.manifest
    describe_workload(manifest, options)
    describe_node(manifest, options.directory)
    folder.save()
    bad_input = False
    for name in options.profiler:
        if signals.count or bad_input:
            break
        bad_input = _run_pass(make_profiler(name, options), options, folder, console, signals)
    return _finish(folder, options, signals, bad_input)


def check_executable(options: RunOptions) -> None:
    """Raise InputError if the program cannot be started."""
    name = options.program[0]
    # A path is relative to the folder that the program runs in.
    found = os.path.join(options.directory or "", name) if os.path.dirname(name) else name  # noqa: PTH118, PTH120
    if shutil.which(found) is None:
        raise InputError(f"the program {name!r} is not on PATH or is not executable")


def _finish(folder: RunFolder, options: RunOptions, signals: Signals, bad_input: bool) -> RunResult:
    manifest = folder.manifest
    failed = [p for p in manifest.passes if p.status != "done"]
    several = len(options.profiler) > 1
    # A server that ends well after Ctrl-C has done what it was asked to.
    interrupted = bool(signals.count) and (bool(failed) or len(manifest.passes) < len(options.profiler))
    manifest.reason = None
    if interrupted:
        manifest.reason = signals.reason
    elif failed:
        manifest.reason = "; ".join(f"{p.profiler}: {p.reason}" if several else str(p.reason) for p in failed)
    manifest.status = "failed" if manifest.reason else "done"
    if bad_input and not signals.count:
        reason = failed[0].reason
        folder.discard()
        return RunResult(None, InputError.exit_code, reason)
    folder.finish()
    code = INTERRUPTED if interrupted else 1 if failed else 0
    if options.program and not interrupted:
        code = next((shell_code(p.exit_code) for p in manifest.passes if p.exit_code), code)
    notes = [note for p in manifest.passes for note in (bound_note(p), unlike_note(p)) if note]
    notes += filter(None, [overhead_note(manifest.passes)])
    recorded = [r for p in manifest.passes for r in p.ranks]
    if options.program and recorded and not _has_default_steps(options) and not any(r.counted_steps for r in recorded):
        notes.append(NO_STEPS)
    if options.program and any(p.profiler == "none" and not p.ranks for p in manifest.passes):
        notes.append(NOT_TIMED)
    return RunResult(
        folder.path, code, manifest.reason, tuple(notes), folder.path.parent if manifest.job else folder.path
    )


def shell_code(code: int) -> int:
    """An exit code as a shell gives it: 128 and the number of the signal that killed a process."""
    return code if code >= 0 else 128 - code


def say(console: Console, text: str) -> None:
    """Print a line without interpreting brackets in it."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def overhead_note(passes: list[Pass]) -> str | None:
    """How much longer a step takes in each recording, on the rank that it slowed down most; None where that is little.

    One line for all passes whose steps were timed undisturbed in the same process.
    """
    found: list[tuple[Pass, RankRecording]] = []
    for done in passes:
        slowest = max((r for r in done.ranks if r.slowdown), key=lambda r: r.slowdown or 0, default=None)
        if slowest is not None and not {f.kind for f in done.files} <= set(EVERY_PASS.values()):
            found.append((done, slowest))
    if all((rank.slowdown or 0) <= SLOWDOWN_NOTE for _, rank in found):
        return None
    parts = []
    for done, rank in found:
        recorded_ms, undisturbed_ms = ((ns or 0) / 1e6 for ns in (rank.recorded_step_ns, rank.undisturbed_step_ns))
        name = "GPU only" if done.profiler == GpuProfiler.name else done.profiler
        parts.append(f"{name} {rank.slowdown:.2f} ({recorded_ms:,.3f} instead of {undisturbed_ms:,.3f} ms)")
    can_record_less = any(p.options.get(what) for p, _ in found for what in ("shapes", "memory", "stacks", "flops"))
    return f"profiler overhead per step: {', '.join(parts)}" + (
        "; --detail light has less overhead" if can_record_less else ""
    )


def bound_note(done: Pass) -> str | None:
    """Which bound ended the recordings of the pass; None if none did."""
    ended = [r for r in done.ranks if r.ended_after]
    if not ended:
        return None
    which = "" if len(done.ranks) == 1 else f" of {len(ended)} of {len(done.ranks)} ranks"
    return f"{done.profiler}: the recording{which} ended after {ended[0].ended_after}; the program went on"


def unlike_note(done: Pass) -> str | None:
    """Which steps were unlike the others, of the first rank that had any; None if none was."""
    rank = next((r for r in done.ranks if r.unlike_step), None)
    return f"{done.profiler}: rank {rank.rank}: {rank.unlike_step}; --warmup moves the blocks" if rank else None


def describe_workload(manifest: Manifest, options: RunOptions) -> None:
    """Fill in the workload; of the user's program, only the device is known."""
    if options.program:
        manifest.program = list(options.program)
        manifest.workload = RecordedWorkload(device=options.device)
        return
    manifest.workload = recorded(options)
    manifest.world_size = options.world_size


def _run_pass(
    profiler: Profiler[Any], options: RunOptions, folder: RunFolder, console: Console, signals: Signals
) -> bool:
    """Run one pass and write into the manifest how it went. Return whether bad input prevented its start."""
    passes = RecordedPasses(profiler, folder)
    done = passes.own.done
    folder.manifest.passes.append(done)
    bad_input = False
    shared = folder.path.resolve() if reaches_nodes(options.program) else None
    with tempfile.TemporaryDirectory(prefix=".tracequarry-", dir=shared, ignore_cleanup_errors=True) as scratch:
        try:
            for one in passes.by_kind.values():
                one.path.mkdir(mode=0o700)
            folder.save()
            for note in [*_steps_note(profiler, options), *profiler.prepare()]:
                say(console, note)
            bad_input = _execute(passes, options, Path(scratch), console, signals)
        except ReportedError as e:
            done.reason = str(e)
        except OSError as e:
            done.reason = os_sentence(e)
    if signals.count and (done.reason or not options.program):
        done.reason = signals.reason
    done.status = "failed" if done.reason else "done"
    passes.finish()
    if any(f.kind == "flight_recorder" for f in done.files):
        say(console, f"note: {profiler.name}: {HANGS}")
    folder.save()
    return bad_input


def _steps_note(profiler: Profiler[Any], options: RunOptions) -> list[str]:
    """Say at once that --steps and --warmup are not followed; nothing where they have their defaults."""
    if not options.program or profiler.follows_steps or _has_default_steps(options):
        return []
    return [f"note: {profiler.name}: --steps and --warmup do not apply; it records the whole program"]


def _has_default_steps(options: RunOptions) -> bool:
    return all(getattr(options, name) == declared(RunOptions)[name].default for name in ("steps", "warmup"))


def _execute(passes: RecordedPasses, options: RunOptions, scratch: Path, console: Console, signals: Signals) -> bool:
    """Run the command of a pass, complete its files and find out whether it failed. Raises ReportedError and OSError.

    Returns whether the input was bad.
    """
    profiler, done, path = passes.own.profiler, passes.own.done, passes.own.path
    log = path / LOG_NAME
    is_program = bool(options.program)
    done.command = profiler.wrap(_command(profiler, options, path, scratch), path)
    echo = is_program if options.echo is None else options.echo
    steps = None if is_program else options.first_profiled + options.profiled_steps(profiler.name)
    title = " ".join(options.program[:2]) if is_program else f"{options.model}, batch {options.batch_size}"
    environment = {**os.environ, **environment_of(options), **profiler.environment(path, scratch)}
    with PassProgress(console, f"{profiler.name}: {title}", steps, scratch) as progress:

        def on_tick() -> None:
            progress.update()
            if signals.count and done.status == "running":
                passes.folder.save_failure(signals.reason)

        # The first of several passes would consume the stdin of the others.
        reads_stdin = is_program and len(options.profiler) == 1
        # The stdout of `collect` belongs to the program; a built-in model has none there.
        shown = ((1, 2) if is_program else (2, 2)) if echo else None
        hz = options.gpu_samples if profiler.samples_node else 0
        with sampling(scratch / SAMPLES_NAME, hz, scratch):
            done.exit_code = run_logged(
                done.command, log, environment, signals, on_tick, shown, reads_stdin, options.directory
            )
    reports = read_reports(scratch)
    keep_compile_logs(scratch, path)
    if is_program and (left := marked_processes(str(scratch))):
        names = ", ".join(f"{number} ({name})" for number, name in sorted(left.items()))
        say(console, f"note: {profiler.name}: processes that the program left behind run on, unrecorded: {names}")
    if is_program:
        for sentence in sorted({s for r in reports if isinstance(r, AttachedReport) for s in r.missing}):
            say(console, f"note: {profiler.name}: {sentence}")
        assigned = passes.assign_ranks(reports)
        reports = assigned.reports
        if done.note:
            say(console, f"note: {profiler.name}: {done.note}")
        for number, report in enumerate(assigned.separate, start=2):
            other = passes.write_separate(report, number, scratch / SAMPLES_NAME)
            say(console, f"note: {profiler.name}: {report.script} was recorded as a run of its own: {other.path}")
    passes.describe(reports, scratch / SAMPLES_NAME)
    ranks = 1 if is_program else options.world_size
    done.status, done.reason = "running", None  # a signal may have set them
    done.reason = diagnose(done.exit_code, reports, read_exit_codes(scratch), path, ranks, is_program)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if done.reason and (explanation := profiler.explain(text)):
        done.reason = explanation
    try:
        profiler.finish(path, text)
    except (ReportedError, OSError) as e:
        # The first failure is the reason; that a report is missing follows from it.
        if not done.reason:
            done.reason = profiler.explain(text) or (os_sentence(e) if isinstance(e, OSError) else str(e))
        elif isinstance(e, OSError) and is_disk_full(e):
            done.reason = os_sentence(e)
    bad_input = [r.reason for r in reports if r.bad_input]
    if bad_input:
        done.reason = bad_input[0]
    return bool(bad_input)


def _command(profiler: Profiler[Any], options: RunOptions, path: Path, scratch: Path) -> list[str]:
    """The command of a pass: the user's program, a worker, or the launcher of several workers."""
    if options.program:
        return list(options.program)
    spec = WorkerSpec(options=options, profiler=profiler.name, folder=str(path.resolve()), scratch=str(scratch))
    spec_path = scratch / "spec.json"
    spec_path.write_bytes(msgspec.json.encode(spec))
    module = "collect.workload.elastic" if options.parallel == "ddp" else "collect.workload.worker"
    return python("-m", module, str(spec_path))


def environment_of(options: RunOptions) -> dict[str, str]:
    """Variables to add to the command's environment."""
    if options.program:
        # Makes srun pass on Ctrl-C at once, instead of printing the status of its tasks first.
        return {"SLURM_DISABLE_STATUS": "1"} if reaches_nodes(options.program) else {}
    extra = {**python_variables(), "PYTHONUNBUFFERED": "1"}
    if options.parallel == "ddp":
        # All ranks are on this node; gloo would look up the address of the host's name.
        extra["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        # torchrun's own default; set here, it prints no warning.
        extra["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    return extra
