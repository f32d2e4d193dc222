"""Record a program that does not know of it.

- A program that steps an optimizer, or calls the function that `step_function` names: blocks of steps after `warmup`
  (step_blocks.py): undisturbed ones, which are timed before any profiler runs, then GPU work only, then all.
- Any other program: all of it, from the import of torch on, or, with a GPU, from the first use of CUDA, a process group
  or a module. A running profiler has initialised CUDA, which then does not work in forked children. All threads are
  recorded, unless memory is: torch.profiler records memory of one thread only.
- A process started by multiprocessing: nothing before it uses CUDA, joins a process group or steps an optimizer. It may
  be a DataLoader worker, whose recording would never end.
- A process forked while its parent was recorded, or that ran no torch operator (torchrun's agent): nothing.

Which rank a process is, `collect` decides once all have ended (collect/ranks.py).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from . import flight_recorder
from .abrupt_end import finish_before_abrupt_end
from .child_processes import exit_before_static_destructors, ignore_fork_warning, started_by_multiprocessing
from .compile_log import has_log
from .cuda import has_cuda, keep_cupti, synchronize, uses_cuda
from .first_use import FirstUse
from .function_steps import FunctionSteps
from .graph_captures import GraphCaptures
from .marks import mark
from .memory_snapshots import MemorySnapshot
from .optimizer_steps import OptimizerSteps
from .program_profilers import ProgramProfilers
from .python_profilers import hide_from_cprofile
from .session import BlockSession, NotRecordable
from .step_blocks import FULL, GPU, UNDISTURBED, Block
from .step_clock import StepClock
from .step_recorder import PROGRAM_PROFILES, StepRecorder

ENDED_AT_START = "a signal ended the program while its recording started; on a GPU that takes seconds"


class AttachedRecorder(StepRecorder):
    """The recorder of one process."""

    captures: GraphCaptures

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        super().__init__(config)
        self.whole: BlockSession | None = None
        """The recording of everything, until the program steps: then it was warm-up."""
        self.memory: MemorySnapshot | None = None
        """None until this process uses CUDA."""
        self.yielded = False
        """Whether the program's own profiler took the place of ours before any step."""
        self.step_function: str | None = config["step_function"]
        self.step_name = f"calls of {self.step_function}" if self.step_function else "optimizer steps"

    def start(self) -> None:
        """Record now, or from the first use of torch on. Whether the program steps an optimizer is not known yet."""
        self.program_profilers = ProgramProfilers(self._yield_to_program)
        self.captures = GraphCaptures(
            self._dump_folder,
            self.program_profilers.ignore,
            lambda: self._session is not None or self.program_profilers.running,
            lambda: self._inactive,
        )
        first_use = FirstUse(self._on_first_use)
        self.steps = (
            FunctionSteps(self.step_function, self._on_step, lambda: self._inactive)
            if self.step_function
            else OptimizerSteps(self._on_step, lambda: self._inactive)
        )
        atexit.register(self._at_exit)
        finish_before_abrupt_end(self._at_exit, lambda: flight_recorder.dump(self._dump_folder))
        flight_recorder.dump_into(self._dump_folder)
        os.register_at_fork(after_in_child=self._in_forked_child)
        ignore_fork_warning()
        if started_by_multiprocessing():
            mark(self.config, "idle")  # it ends without exit handlers
            return
        if self.step_function:
            return
        if has_cuda():
            first_use.watch_modules()
        else:
            self._record_whole_program()

    @property
    def _dump_folder(self) -> Path:
        """Where dumps of the flight recorder appear."""
        return Path(self.folders[self.config["kind"]])

    def _in_forked_child(self) -> None:
        super()._in_forked_child()
        self.memory = None

    # --- Recording everything, until the program steps ----------------------------------------------------------------

    @hide_from_cprofile
    def _on_first_use(self) -> None:
        if not self._inactive:
            self.job.refresh()
            if self.memory is None and uses_cuda():
                path = Path(self.folders[self.config["kind"]]) / f"{self.stem}.memory_snapshot.pickle"
                self.memory = MemorySnapshot(path, self.config["oom_snapshot"], self.config["memory_history"])
            if not self.step_function:
                self._record_whole_program()

    @hide_from_cprofile
    def _record_whole_program(self) -> None:
        """Record everything from now on, unless a recording has started before, or this pass records steps only."""
        kind = self.config["kind"]
        if self.started or kind == UNDISTURBED or (kind == GPU and not has_cuda()):
            return
        if self.program_profilers.running:
            self.yielded = True
            return
        try:
            self.whole = self._open_session(kind, self.done_steps, whole=True)
            if not self.config["warmup"]:
                self.whole.open_step(self.done_steps)
        except Exception as e:
            self._fail(e)
        except BaseException:  # a signal handler of the program has run
            self.finished = True
            self._report(reason=ENDED_AT_START)
            exit_before_static_destructors()  # torch crashes when it destroys a running profiler
            raise

    @property
    def _session(self) -> BlockSession | None:
        return self.whole or super()._session

    def _open_session(self, kind: str, step: int, warms_up: bool = False, whole: bool = False) -> BlockSession:
        session = super()._open_session(kind, step, warms_up, whole)
        if kind == FULL:
            self.captures.mark_replays()
        return session

    def _stop_session(self) -> None:
        super()._stop_session()
        self.captures.unmark_replays()
        self.whole = None

    @hide_from_cprofile
    def _yield_to_program(self) -> None:
        """Stop before the program starts a profiler of its own; once steps were recorded, that ends the recording."""
        if self.whole is None or not self.config["warmup"]:
            super()._yield_to_program()
        elif not self._inactive:
            try:
                self._stop_session()
                self.yielded = True
            except Exception as e:
                self._fail(e)

    def _plan_blocks(self) -> None:
        whole = self.whole
        if whole is not None and not self.config["warmup"]:
            # The only recording is that from the start of the program.
            kind, steps = self.config["kind"], self.config["steps"] or self._gpu_steps
            block = Block(kind, 0, steps, whole, StepClock(late=True), warmed_up=False)
            block.unaligned_reason = self.unaligned_reason
            self.blocks.add(block)
            self.whole = None
            return
        self._stop_session()  # the recording so far is warm-up
        self.captures.keep(whole)
        super()._plan_blocks()

    # --- The end ------------------------------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        if self.memory and os.getpid() == self.pid:
            with contextlib.suppress(Exception):  # of torch, in a process that may have failed
                self.memory.end()
        if self.started and os.getpid() == self.pid:
            keep_cupti()
        if self._inactive:
            return
        mark(self.config, "idle with a GPU" if not self.started and has_cuda() else "idle")
        with contextlib.suppress(ValueError):
            # Ctrl-C may arrive twice, from srun and from `collect`: it must not interrupt writing.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.steps.end_of_program()
        self.end()

    def _end(self) -> None:
        if self.done_steps:
            super()._end()
        elif self.whole is not None:
            self.job.refresh()
            self.whole.close_step()
            synchronize()
            self.whole.stop()
            unfinished = None if self.config["warmup"] else 0
            if self._write(self.config["kind"], self.whole, [], unfinished):
                self.ended.append(Block(self.config["kind"], 0, 0, self.whole))
                self._report_outcome()
        elif self.yielded:
            self._report(reason=PROGRAM_PROFILES)
        elif self.step_function and self.config["kind"] != UNDISTURBED:
            mark(self.config, "never called")
            if self.job.in_group:
                self._report(reason=f"--step-function: a rank never called {self.step_function}")

    def _write(
        self, kind: str, session: BlockSession, steps: list[tuple[int, int, int]], unfinished: int | None
    ) -> bool:
        self.captures.unmark_replays()
        written = super()._write(kind, session, steps, unfinished)
        if written and kind == self.config["kind"]:
            self.captures.write(Path(self.folders[kind]), self.stem)
        return written

    @property
    def _has_files(self) -> bool:
        return super()._has_files or (self.memory is not None and self.memory.written) or has_log()

    @property
    def _stage(self) -> int:
        return super()._stage or int(self.whole is not None and self.whole.called_modules)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, NotRecordable):
            self.whole = None
        super()._fail(error)
