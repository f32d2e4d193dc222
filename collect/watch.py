"""`collect run --on-demand, --when, --slowest, --every, --at-step`: record a long job repeatedly.

The folder of the job has a run folder for each recording, named after what triggered it.
collect/injected/watching_recorder.py records it; it is described here once all of its processes have reported. Never
imports torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from collect.failure import diagnose, os_failure, os_sentence
from collect.injected.step_blocks import FULL
from collect.injected.watching_recorder import TRIGGER
from collect.multi_node import reaches_nodes, slurm_job
from collect.node_facts import describe_node
from collect.option_checks import resolve
from collect.options import RunOptions
from collect.profilers import make_profiler
from collect.profilers.base import Profiler
from collect.rank_reports import RankReport, read_reports
from collect.recorded_pass import RecordedPasses
from collect.run import (
    INTERRUPTED,
    LOG_NAME,
    RunResult,
    check_executable,
    describe_workload,
    environment_of,
    say,
    shell_code,
)
from collect.run_command import run_logged
from collect.run_folder import RunFolder, make_private, run_id, utc_now
from collect.sampler import SAMPLES_NAME, sampling
from collect.signals import Signals
from schemas.errors import InputError, ReportedError
from schemas.files import part_file
from schemas.manifest import Manifest

LOOK_S = 0.5
"""How often to look for recordings."""
BEFORE_S = 10.0
"""How long before a recording, and before the slow step that triggered it, its samples of the node begin."""
LAST_S = 300.0
"""How long samples of the node are kept until something triggers a recording."""
LATE_S = 30.0
"""How long to wait for the other ranks of a recording once one has reported it."""
SETTLE_S = 2.0
"""How long to wait for ranks that have not begun it here: they begin together."""


class Began(msgspec.Struct):
    """The note that a process writes when it begins a recording."""

    reason: str
    step_ns: int
    when: float


@dataclass
class _Recording:
    """A recording that processes have begun."""

    work: Path
    reason: str
    step_ns: int
    began_s: float

    @property
    def since_ns(self) -> int:
        """When its samples of the node begin."""
        return int((self.began_s - BEFORE_S) * 1e9) - self.step_ns

    @property
    def name(self) -> str:
        return self.work.name.removeprefix("recording-")


def trigger(folder: Path, steps: int | None = None, seconds: float | None = None) -> None:
    """Trigger a recording of a running job, of `steps` steps or `seconds`. Raises InputError and MachineError."""
    path = folder / TRIGGER
    if steps is not None and seconds is not None:
        raise InputError("choose either --steps or --seconds")
    if not path.is_file():
        raise InputError(f"{folder}: no job of `collect run --on-demand` is running here")
    length = {name: value for name, value in (("steps", steps), ("seconds", seconds)) if value is not None}
    try:
        with part_file(path, 0o600) as part:
            part.write_bytes(msgspec.json.encode(length))
    except OSError as e:
        raise os_failure(e) from e


def watch(options: RunOptions, command: list[str], console: Console, signals: Signals) -> RunResult:
    """Run the program, and record it as its rules say. Raises InputError and MachineError before it is started."""
    options = resolve(options)
    check_executable(options)
    if options.job is None:
        options = msgspec.structs.replace(options, job=slurm_job(os.environ))
    output = Path(options.output).expanduser()
    path = (output / options.job if options.job else output) / run_id(options)
    try:
        make_private(path)
        if options.on_demand:
            (path / TRIGGER).touch(mode=0o600)
    except OSError as e:
        raise os_failure(e, "--output: cannot write to ") from e
    template = Manifest(run_id=path.name, start=utc_now(), command=command)
    describe_workload(template, options)
    describe_node(template, options.directory)
    profiler = make_profiler("torch", options)
    shared = path.resolve() if reaches_nodes(options.program) else None
    with tempfile.TemporaryDirectory(prefix=".tracequarry-", dir=shared, ignore_cleanup_errors=True) as scratch:
        recordings = _Recordings(path, Path(scratch), options, profiler, template, console)
        own = profiler.environment(path / profiler.name, Path(scratch))
        environment = {**os.environ, **environment_of(options), **own}

        def on_tick() -> None:
            if options.on_demand and signal.SIGUSR2 in signals.for_program:
                signals.for_program[:] = [n for n in signals.for_program if n != signal.SIGUSR2]
                trigger(path)
            recordings.update()

        say(console, f"recording when triggered: {path}")
        shown = None if options.echo is False else (1, 2)
        with sampling(Path(scratch) / SAMPLES_NAME, options.gpu_samples, Path(scratch), LAST_S):
            code = run_logged(
                list(options.program), path / LOG_NAME, environment, signals, on_tick, shown, True, options.directory
            )
        recordings.end()
    with suppress(OSError):
        (path / TRIGGER).unlink()
    reason = diagnose(code, [], {}, path, 1, program=True)
    count = len(recordings.kept)
    notes = (f"{count} recording{'' if count == 1 else 's'}" + ("" if count else ": nothing triggered one"),)
    exit_code = INTERRUPTED if signals.count and code else shell_code(code)
    return RunResult(path, exit_code, signals.reason if exit_code == INTERRUPTED else reason, notes, path)


class _Recordings:
    """Describes recordings as they end, and removes the oldest."""

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        options: RunOptions,
        profiler: Profiler[Any],
        template: Manifest,
        console: Console,
    ) -> None:
        self.kept: list[tuple[_Recording, Path]] = []
        """Recordings and their folders, in order."""
        self._folder, self._scratch, self._options = folder, scratch, options
        self._profiler, self._template, self._console = profiler, template, console
        self._running: dict[Path, _Recording] = {}
        self._looked_s = 0.0

    def update(self) -> None:
        """Describe the recordings that have ended."""
        if time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        self._find_new()
        for recording in list(self._running.values()):
            if self._is_complete(recording):
                self._describe(recording)

    def end(self) -> None:
        """Describe what is left: the program has ended."""
        self._find_new()
        for recording in list(self._running.values()):
            self._describe(recording)

    def _find_new(self) -> None:
        for work in self._scratch.glob("recording-*"):
            began = _began(work) if work not in self._running else []
            if began:
                first = min(began, key=lambda b: b.when)
                self._running[work] = _Recording(work, first.reason, first.step_ns, first.when)

    def _is_complete(self, recording: _Recording) -> bool:
        """Whether all processes that began it have reported it, and all ranks of their job have begun it."""
        ended = [r for r in read_reports(recording.work) if r.block(FULL) or not r.ok]
        if not ended:
            return False
        waited_s = time.time() - max(r.when for r in ended)
        here = len(_began(recording.work))
        # Of a job on several nodes, some ranks never report here.
        expected = max([here, *(r.world_size or 1 for r in ended)]) if waited_s < SETTLE_S else here
        return len(ended) >= expected or waited_s > LATE_S

    def _describe(self, recording: _Recording) -> None:
        """Write run.json of a recording. A failure is said, and the job goes on."""
        del self._running[recording.work]
        try:
            path, reason = self._write(recording, read_reports(recording.work))
            if reason:
                shutil.rmtree(path, ignore_errors=True)
                say(self._console, f"not recorded: {recording.name}: {reason}")
            else:
                say(self._console, f"recorded: {path} ({recording.reason})")
                self.kept.append((recording, path))
                self._remove_oldest()
        except ReportedError as e:
            say(self._console, f"note: {recording.name}: {e}")
        except OSError as e:
            say(self._console, f"note: {recording.name}: {os_sentence(e)}")
        shutil.rmtree(recording.work, ignore_errors=True)

    def _write(self, recording: _Recording, reports: list[RankReport]) -> tuple[Path, str | None]:
        """Write run.json. Return the recording's folder, and why it has no ranks."""
        path = self._folder / f"{self._folder.name}-{recording.name}"
        job = f"{self._options.job}-{recording.name}" if self._options.job else None
        manifest = msgspec.structs.replace(
            self._template, run_id=path.name, job=job, start=utc_now(), trigger=recording.reason, passes=[]
        )
        folder = RunFolder(path, manifest, [])
        passes = RecordedPasses(self._profiler, folder)
        assigned = passes.assign_ranks(reports)
        for number, report in enumerate(assigned.separate, start=2):
            passes.write_separate(report, number, self._scratch / SAMPLES_NAME)
        passes.describe(assigned.reports, self._scratch / SAMPLES_NAME, recording.since_ns)
        passes.own.done.status = "done"
        passes.finish()
        manifest.status = "done"
        folder.finish()
        failed = next((r.reason for r in assigned.reports if not r.ok), None)
        return path, None if passes.own.done.ranks else failed or "no process reported it"

    def _remove_oldest(self) -> None:
        """Remove excess recordings; never the one of a usual step."""
        slow = [one for one in self.kept if one[0].step_ns]
        if self._options.slowest and len(slow) > self._options.slowest:
            self._remove(min(slow, key=lambda one: one[0].step_ns))
        triggered = [one for one in self.kept if not one[0].name.startswith("usual-")]
        for one in triggered[: -self._options.keep]:
            self._remove(one)

    def _remove(self, one: tuple[_Recording, Path]) -> None:
        self.kept.remove(one)
        for path in one[1].parent.glob(f"{one[1].name}*"):  # separate recordings, too
            if path.name == one[1].name or path.name.removeprefix(f"{one[1].name}-").isdigit():
                shutil.rmtree(path, ignore_errors=True)


def _began(work: Path) -> list[Began]:
    """What the processes of a recording noted as they began it."""
    found = []
    for path in work.glob("began-*"):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Began))
    return found
