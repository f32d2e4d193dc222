"""Record blocks of steps (step_blocks.py), write the recordings, and report their outcome to `collect`."""

from __future__ import annotations

import os
import socket
import time
import traceback
from pathlib import Path
from typing import Any

from .child_processes import call_at_multiprocessing_exit, disable_in_forked_child, exit_before_static_destructors
from .cuda import is_capturing, uses_cuda
from .gpu_session import open_session
from .job import Job
from .marks import mark
from .program_profilers import ProgramProfilers
from .python_profilers import hide_from_cprofile
from .rendezvous import wait_for_ranks
from .reports import leave_report, process_facts
from .session import BlockSession, NotRecordable
from .step_blocks import FULL, GPU, UNDISTURBED, Block, Blocks, plan

PROGRAM_PROFILES = (
    "the program runs a torch.profiler of its own, and torch runs one at a time: remove that, or record with "
    "--profiler nsys"
)


class StepRecorder:
    """Records one process. A subclass says when a step ends (_on_step), and when the program does (end)."""

    step_name: str
    """Name of the steps in messages, in the plural."""
    program_profilers: ProgramProfilers

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings: collect.profilers.blocks.BlockProfiler.config."""
        self.config = config
        self.work = Path(config["work"])
        """Where to leave reports for `collect`."""
        self.folders: dict[str, str] = config["folders"]
        """Where to write the files of each kind of block."""
        self.pid = os.getpid()
        self.start_s = time.time()
        self.job = Job()
        self.blocks = Blocks(self._open_block, self._write_block, self._wait_for_ranks, config["stacks"])
        self.ended: list[Block] = []
        """Blocks that have ended and were written."""
        self.started = False
        """Whether a recorder has run in this process, or in the one it was forked from."""
        self.finished = False
        self.done_steps = 0
        self.unaligned_reason = None if config["warmup"] else "there was no warm-up step to wait behind"
        """Why the ranks do not wait for each other."""

    def end(self) -> None:
        """End the recording, unless it has ended."""
        if self._inactive:
            return
        try:
            self._end()
        except Exception as e:
            self._fail(e)
        self.finished = True

    @property
    def _inactive(self) -> bool:
        """Whether nothing is recorded any more, or this process was forked without Python's knowledge."""
        return self.finished or os.getpid() != self.pid

    @property
    def stem(self) -> str:
        """Beginning of the names of this process's files, until its rank is known."""
        return f"process-{socket.gethostname()}-{self.pid}"

    def _in_forked_child(self) -> None:
        """Record nothing in the child of a recorded process; the child of one that has not used torch may record."""
        self.pid = os.getpid()
        if self.started:
            disable_in_forked_child(recording=not self.finished, stacks=self.config["stacks"])
            self.finished = True
            mark(self.config, "forked")

    # --- Profilers ----------------------------------------------------------------------------------------------------

    @property
    def _session(self) -> BlockSession | None:
        """The profiler that is running."""
        return self.blocks.session

    def _open_session(self, kind: str, step: int, warms_up: bool = False, whole: bool = False) -> BlockSession:
        """Start a profiler; see Session. Raises NotRecordable."""
        if self.program_profilers.running:
            raise NotRecordable(PROGRAM_PROFILES)
        self.started = True
        call_at_multiprocessing_exit(self._at_exit)
        with self.program_profilers.ignore():
            session = open_session(kind, self.config, step, warms_up, whole)
        session.ignore = self.program_profilers.ignore
        return session

    def _stop_session(self) -> None:
        """Stop the profiler and drop what it recorded. Raises NotRecordable."""
        session = self._session
        if session is not None:
            session.close_step()
            session.stop()
        self.blocks.waiting = []

    @hide_from_cprofile
    def _yield_to_program(self) -> None:
        """Stop before the program starts a profiler of its own."""
        if self._session is None or self._inactive:
            return
        try:
            self._stop_session()
        except Exception as e:
            self._fail(e)
        else:
            self._fail(NotRecordable(PROGRAM_PROFILES))

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

    @property
    def _gpu_steps(self) -> int:
        """Steps of the GPU-only block."""
        return self.config["gpu_steps"] if uses_cuda() else 0

    def _plan_blocks(self) -> None:
        """Plan the blocks once the first step has ended: it is known now whether the program uses a GPU."""
        config = self.config
        # Without a warm-up, the first step has passed unrecorded.
        self.blocks.add(*plan(max(config["warmup"], 1), config["undisturbed"], self._gpu_steps, config["steps"]))

    def _open_block(self, block: Block, step: int) -> BlockSession:
        return self._open_session(block.kind, step, warms_up=step < block.first)

    def _write_block(self, block: Block) -> None:
        """Write the recording of a block, and report it at once: the program may be killed later."""
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
        self.end()

    def _end(self) -> None:
        """Write the rest of the recording, or report why there is none."""
        if not self.done_steps:
            return
        planned = list(self.blocks.waiting)
        # The step that runs has not ended, so it is no step.
        self.blocks.end_early(self.done_steps)
        if planned[-1] not in self.ended and planned[-1].kind != UNDISTURBED:
            self._report_outcome(self._too_few_steps(planned[-1].first + 1))

    def _too_few_steps(self, needed: int) -> str:
        options = f"--warmup is {self.config['warmup']}"
        if self.config["undisturbed"]:
            options += f", --undisturbed {self.config['undisturbed']}"
        if self._gpu_steps:
            options += f", --gpu-steps {self._gpu_steps}"
        took = f"it took {self.done_steps} {self.step_name}, and {options}: it needs {needed} or more"
        return f"the program ended before the profiled steps: {took}"

    def _write(
        self, kind: str, session: BlockSession, steps: list[tuple[int, int, int]], unfinished: int | None
    ) -> bool:
        """Write the events of a profiler; return whether there are any."""
        if not self.work.is_dir():
            return False  # `collect` has ended, and left this process behind
        return session.write(Path(self.folders[kind]), self.stem, steps, unfinished)

    @property
    def _has_files(self) -> bool:
        return bool(self.ended)

    @property
    def _stage(self) -> int:
        """How far the program went: 0: not to a call of a module; 1: to one; 2: to the end of a step."""
        return 2 if self.done_steps else 0

    def _report_outcome(self, reason: str | None = None) -> None:
        """Report the blocks that were written so far; `reason`: why the others were not."""
        several_ranks = self.job.world_size not in (None, 1)
        self._report(
            ok=reason is None,
            reason=reason,
            stem=self.stem if self._has_files else "",
            began_s=self.start_s,
            did=self._stage,
            blocks=[block.outcome(uses_cuda(), several_ranks) for block in self.ended],
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
        self.blocks.waiting = []
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self._report_outcome(f"the trace could not be written: {reason}")
