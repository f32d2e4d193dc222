"""Record steps of the user's program, and write the recordings.

- A program that steps an optimizer, or calls the function that `step_function` names: blocks of steps after `warmup`
  (blocks.py): undisturbed ones, which are timed before any recorder runs, then GPU work only, then all.
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
import socket
import time
import traceback
from pathlib import Path
from typing import Any

from . import flight_recorder
from .abrupt_end import finish_before_abrupt_end
from .blocks import FULL, GPU, UNDISTURBED, Block, Blocks, plan
from .child_processes import (
    call_at_multiprocessing_exit,
    disable_in_forked_child,
    exit_before_static_destructors,
    ignore_fork_warning,
    started_by_multiprocessing,
)
from .compile_log import has_log
from .cuda import has_cuda, is_capturing, keep_cupti, synchronize, uses_cuda
from .first_use import FirstUse
from .function_steps import FunctionSteps
from .gpu_session import open_session
from .graph_captures import GraphCaptures
from .job import Job
from .marks import mark
from .memory_snapshots import MemorySnapshot
from .optimizer_steps import OptimizerSteps
from .program_profilers import ProgramProfilers
from .python_profilers import hide_from_cprofile
from .rendezvous import wait_for_ranks
from .reports import leave_report, process_facts
from .session import BlockSession, NotRecordable
from .step_clock import StepClock

PROGRAM_PROFILES = (
    "the program runs a torch.profiler of its own, and torch runs one at a time: remove that, or record with "
    "--profiler nsys"
)
ENDED_AT_START = "a signal ended the program while its recording started; on a GPU that takes seconds"


class AttachedRecorder:
    """The recorder of one process."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        self.config = config
        self.work = Path(config["work"])
        """Where to leave reports for `collect`."""
        self.folders: dict[str, str] = config["folders"]
        """Where to write the files of each kind of block."""
        self.pid = os.getpid()
        self.start_s = time.time()
        self.job = Job()
        self.whole: BlockSession | None = None
        """The recording of everything, until the program steps: then it was warm-up."""
        self.blocks = Blocks(self._open_block, self._write_block, self._wait_for_ranks, config["stacks"])
        self.ended: list[Block] = []
        """Blocks that have ended and were written."""
        self.memory: MemorySnapshot | None = None
        """None until this process uses CUDA."""
        self.captures: GraphCaptures | None = None
        """Captures of CUDA graphs; None unless the program is recorded from its start."""
        self.started = False
        """Whether a recorder has run in this process, or in the one it was forked from."""
        self.yielded = False
        """Whether the program's own profiler took the place of ours before any step."""
        self.finished = False
        self.done_steps = 0
        self.unaligned_reason = None if config["warmup"] else "there was no warm-up step to wait behind"
        """Why the ranks do not wait for each other."""

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
        self.step_function = self.config["step_function"]
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
    def _inactive(self) -> bool:
        """Whether nothing is recorded any more, or this process was forked without Python's knowledge."""
        return self.finished or os.getpid() != self.pid

    @property
    def _dump_folder(self) -> Path:
        """Where dumps of the flight recorder appear."""
        return Path(self.folders[self.config["kind"]])

    @property
    def stem(self) -> str:
        """Beginning of the names of this process's files, until its rank is known."""
        return f"process-{socket.gethostname()}-{self.pid}"

    def _in_forked_child(self) -> None:
        """Record nothing in the child of a recorded process; the child of one that has not used torch may record."""
        self.pid = os.getpid()
        self.memory = None
        if self.started:
            disable_in_forked_child(recording=not self.finished, stacks=self.config["stacks"])
            self.finished = True
            mark(self.config, "forked")

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

    def _open_session(self, kind: str, step: int, warms_up: bool = False, whole: bool = False) -> BlockSession:
        """Start a recorder; see Session. Raises NotRecordable."""
        if self.program_profilers.running:
            raise NotRecordable(PROGRAM_PROFILES)
        self.started = True
        call_at_multiprocessing_exit(self._at_exit)
        with self.program_profilers.ignore():
            session = open_session(kind, self.config, step, warms_up, whole)
        session.ignore = self.program_profilers.ignore
        if self.captures and kind == FULL:
            self.captures.mark_replays()
        return session

    @hide_from_cprofile
    def _yield_to_program(self) -> None:
        """Stop before the program starts a profiler of its own; once steps were recorded, that ends the recording."""
        if self._session is None or self._inactive:
            return
        before_steps = self.whole is not None and self.config["warmup"]
        try:
            self._stop_session()
        except Exception as e:
            self._fail(e)
            return
        if before_steps:
            self.yielded = True
        else:
            self._fail(NotRecordable(PROGRAM_PROFILES))

    @property
    def _session(self) -> BlockSession | None:
        """The recorder that is running."""
        return self.whole or self.blocks.session

    def _stop_session(self) -> None:
        """Stop the recorder and drop what it recorded. Raises NotRecordable."""
        session = self._session
        if session is not None:
            session.close_step()
            session.stop()
        if self.captures:
            self.captures.unmark_replays()
        self.whole = None
        self.blocks.waiting = []

    # --- Steps --------------------------------------------------------------------------------------------------------

    @hide_from_cprofile
    def _on_step(self) -> None:
        """Note that a training step has ended. One that is captured as a CUDA graph has not run."""
        if is_capturing():
            return
        self.job.refresh()
        self.done_steps += 1
        try:
            if self.done_steps == 1:
                self._plan_blocks()
            self.blocks.step_ended(self.done_steps)
            self.finished = self.finished or not self.blocks.waiting
        except Exception as e:
            self._fail(e)

    def _plan_blocks(self) -> None:
        """Plan the blocks once the first step has ended: the program steps, and it is known whether it uses a GPU."""
        config = self.config
        gpu_steps = config["gpu_steps"] if uses_cuda() else 0
        if self.whole is not None and not config["warmup"]:
            # The only recording is that from the start of the program.
            block = Block(config["kind"], 0, config["steps"] or gpu_steps, self.whole, StepClock(late=True), False)
            block.unaligned_reason = self.unaligned_reason
            self.blocks.add(block)
            self.whole = None
            return
        whole = self.whole
        self._stop_session()  # what was recorded so far is warm-up
        if self.captures:
            self.captures.keep(whole)
        # Without a warm-up, the first step has passed unrecorded.
        self.blocks.add(*plan(max(config["warmup"], 1), config["undisturbed"], gpu_steps, config["steps"]))

    def _open_block(self, block: Block, step: int) -> BlockSession:
        return self._open_session(block.kind, step, warms_up=step < block.first)

    def _write_block(self, block: Block) -> None:
        """Write what was recorded of a block, and report it at once: the program may be killed later."""
        if block.session and block.clock:
            steps = block.clock.ranges()[: block.counted_steps]
            if not self._write(block.kind, block.session, steps, block.unfinished):
                if block.kind == self.config["kind"]:
                    what = "GPU work" if block.kind == GPU else "operator"
                    self._report_outcome(f"no {what} was recorded in its steps")
                return
        self.ended.append(block)
        if block.kind in (GPU, FULL, self.config["kind"]):
            self._report_outcome()

    def _wait_for_ranks(self, barrier: str) -> str | None:
        if self.unaligned_reason is None and self.job.world_size not in (None, 1):
            self.unaligned_reason = wait_for_ranks(barrier)
        return self.unaligned_reason

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

    def end(self) -> None:
        """End the recording, unless it has ended."""
        if self._inactive:
            return
        try:
            self._end()
        except Exception as e:
            self._fail(e)
        self.finished = True

    def _end(self) -> None:
        """Write what is still recorded, or report why nothing was."""
        if self.done_steps:
            planned = list(self.blocks.waiting)
            # The step that runs has not ended with an optimizer's step, so it is no step.
            self.blocks.end_early(self.done_steps)
            if planned[-1] not in self.ended and planned[-1].kind != UNDISTURBED:
                self._report_outcome(self._too_few_steps(planned[-1].first + 1))
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

    @property
    def _step_name(self) -> str:
        return f"calls of {self.step_function}" if self.step_function else "optimizer steps"

    def _too_few_steps(self, needed: int) -> str:
        config = self.config
        options = f"--warmup is {config['warmup']}"
        if config["undisturbed"]:
            options += f", --undisturbed {config['undisturbed']}"
        if config["gpu_steps"] and uses_cuda():
            options += f", --gpu-steps {config['gpu_steps']}"
        took = f"it took {self.done_steps} {self._step_name}, and {options}: it needs {needed} or more"
        return f"the program ended before the profiled steps: {took}"

    def _write(
        self, kind: str, session: BlockSession, steps: list[tuple[int, int, int]], unfinished: int | None
    ) -> bool:
        """Write the events of a recorder; return whether there are any."""
        if not self.work.is_dir():
            return False  # `collect` has ended, and left this process behind
        if self.captures:
            self.captures.unmark_replays()
        if not session.write(Path(self.folders[kind]), self.stem, steps, unfinished):
            return False
        if self.captures and kind == self.config["kind"]:
            self.captures.write(Path(self.folders[kind]), self.stem)
        return True

    def _report_outcome(self, reason: str | None = None) -> None:
        """Report what was recorded so far, and with a `reason` what was not."""
        several_ranks = self.job.world_size not in (None, 1)
        blocks = [block.outcome(uses_cuda(), several_ranks) for block in self.ended]
        has_files = bool(blocks) or (self.memory is not None and self.memory.written) or has_log()
        self._report(
            ok=reason is None,
            reason=reason,
            stem=self.stem if has_files else "",
            began_s=self.start_s,
            did=2 if self.done_steps else int(self.whole is not None and self.whole.called_modules),
            blocks=blocks,
            **process_facts(self.job),
        )

    def _report(self, **fields: Any) -> None:
        leave_report(self.work, self.pid, self.job, **fields)

    def _fail(self, error: Exception) -> None:
        """Report why there is no trace; the program goes on as if it had not been recorded."""
        self.finished = True
        if isinstance(error, NotRecordable):
            self._report_outcome(str(error))
            if self._session is not None:
                exit_before_static_destructors()  # torch crashes when it destroys a running profiler
            return
        self.whole = None
        self.blocks.waiting = []
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self._report_outcome(f"the trace could not be written: {reason}")
