"""`collect.Recorder`: records steps of your own loop, where `collect run` cannot attach."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from collect.failure import os_sentence
from collect.injected.job import process_group
from collect.injected.loop_recorder import LoopRecorder
from collect.injected.rendezvous import value_of_rank_0
from collect.node_facts import describe_node
from collect.option_checks import make_options, resolve
from collect.options import RunOptions
from collect.profilers.torch_profiler import TorchProfiler
from collect.rank_reports import read_reports
from collect.recorded_pass import RecordedPasses
from collect.run_folder import RunFolder, make_private, run_id
from collect.sampler import SAMPLES_NAME, sampling
from schemas.errors import ReportedError
from schemas.workload import RecordedWorkload

VARIABLE = "TRACEQUARRY_RECORDER"
"""0 in this variable turns recorders off, unless `enabled` is given."""
_numbers = itertools.count()


class Recorder:
    """Records blocks of steps: undisturbed, GPU only, full; see docs/collect.md.

    ::

        with Recorder("runs/") as recorder:
            for batch in loader:
                train(batch)
                recorder.step()

    It is off with `enabled=False`, with TRACEQUARRY_RECORDER=0, and in a program that `collect run` records. Otherwise
    the first step creates a run folder (`folder`), and the last recorded one completes it; further steps cost nothing.
    Each rank of a process group records its part of one run.
    """

    def __init__(self, output: str | Path = "runs", enabled: bool | None = None, **options: Any) -> None:
        """Take the options of `collect run` by name: steps=5, detail="light". Raises InputError for bad ones."""
        self.folder: Path | None = None
        """The run folder, from the first step on."""
        self.reason: str | None = None
        """Why not all was recorded, in one sentence."""
        if enabled is None:
            enabled = os.environ.get(VARIABLE, "1") != "0" and "TRACEQUARRY_ATTACH" not in os.environ
        self._active = enabled
        self._recording: _Recording | None = None
        if enabled:
            program = [sys.executable, *sys.argv]
            values = {**options, "output": str(output), "program": program}
            self._options = resolve(make_options(values, label=lambda name: f"Recorder: {name}"))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def step(self) -> None:
        """Note that a step has ended."""
        if not self._active:
            return
        try:
            if self._recording is None:
                self._recording = _Recording(self._options)
                self.folder = self._recording.folder.path
            self._recording.loop.step()
            if self._recording.loop.finished:
                self.close()
        except (ReportedError, OSError) as e:
            self._fail(e)

    def close(self) -> None:
        """Complete the run folder, unless the last recorded step has."""
        self._active = False
        recording, self._recording = self._recording, None
        if recording is not None:
            try:
                self.reason = recording.finish()
            except (ReportedError, OSError) as e:
                self._fail(e)

    def _fail(self, error: ReportedError | OSError) -> None:
        """Record no more; the program goes on."""
        self._active = False
        self.reason = os_sentence(error) if isinstance(error, OSError) else str(error)
        warnings.warn(f"collect.Recorder records nothing: {self.reason}", stacklevel=3)


class _Recording:
    """A recording of this process, and its run folder."""

    def __init__(self, options: RunOptions) -> None:
        """Begin to record. Raises ReportedError and OSError."""
        group = process_group()
        if options.job is None and group is not None and group.get_world_size() > 1:
            job = value_of_rank_0(f"recorder {next(_numbers)}", run_id(options))
            options = msgspec.structs.replace(options, job=job)
        profiler = TorchProfiler(options)
        self.folder = RunFolder.create(options, [Path(sys.argv[0]).name, *sys.argv[1:]])
        self.folder.manifest.program = list(options.program)
        self.folder.manifest.workload = RecordedWorkload(device=options.device)
        self._passes = RecordedPasses(profiler, self.folder)
        for one in self._passes.by_kind.values():
            make_private(one.path)
        self._stack = ExitStack()
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=".tracequarry-")))
        self._sampler = self._stack.enter_context(ExitStack())
        self._sampler.enter_context(sampling(self._scratch / SAMPLES_NAME, options.gpu_samples, self._scratch))
        self.loop = LoopRecorder(profiler.config(self._passes.own.path, self._scratch))
        self.loop.start()

    def finish(self) -> str | None:
        """Write the remaining events, and complete the run folder; return why not all was recorded. Raises OSError."""
        with self._stack:
            self.loop.end()
            self._sampler.close()
            manifest, own = self.folder.manifest, self._passes.own.done
            reports = read_reports(self._scratch)
            self._passes.describe(self._passes.assign_ranks(reports).reports, self._scratch / SAMPLES_NAME)
            if not own.ranks:
                own.reason = next((r.reason for r in reports if r.reason), "no step was recorded")
            own.status = "failed" if own.reason else "done"
            self._passes.finish()
        describe_node(manifest)
        manifest.status, manifest.reason = manifest.passes[-1].status, manifest.passes[-1].reason
        self.folder.finish()
        return manifest.reason
