"""Decides what torch.profiler records of the user's program, and writes it.

- A program that steps an optimizer, or calls the function that `step_function` names: `steps` steps after `warmup`
  warm-up steps and `undisturbed` steps, which are timed with the profiler off to measure its overhead. The profiler
  already runs in the last warm-up step, so that its slow start (CUPTI, buffers) is over; then all ranks of the job
  begin to record together.
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
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .abrupt_end import finish_before_abrupt_end
from .child_processes import (
    call_at_multiprocessing_exit,
    disable_in_forked_child,
    exit_before_static_destructors,
    started_by_multiprocessing,
)
from .cuda import has_cuda, synchronize, uses_cuda
from .first_use import FirstUse
from .function_steps import FunctionSteps
from .job import Job
from .marks import mark
from .optimizer_steps import OptimizerSteps
from .program_profilers import ProgramProfilers
from .rendezvous import wait_for_ranks
from .session import NotRecordable, Session
from .step_clock import StepClock
from .torch_facts import torch_facts, used_gpus
from .torch_internals import missing
from .trace_files import write_recording

PROGRAM_PROFILES = (
    "the program runs a torch.profiler of its own, and torch runs one at a time: remove that, or record with "
    "--profiler nsys"
)


class AttachedRecorder:
    """The recorder of one process."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        self.config = config
        self.pid = os.getpid()
        self.start_s = time.time()
        self.job = Job()
        self.session: Session | None = None
        self.started = False
        """Whether a profiler has run in this process, or in the one it was forked from."""
        self.yielded = False
        """Whether the program's own profiler took the place of ours before any step."""
        self.finished = False
        self.done_steps = 0
        self.clock = StepClock()
        self.undisturbed = range(config["warmup"] - 1, config["warmup"] - 1 + config["undisturbed"])
        """The steps that are timed before the profiler starts; may be empty."""
        self.first = config["warmup"] + config["undisturbed"]
        """The first recorded step."""
        self.warmed_up = False
        self.unaligned_reason = None if config["warmup"] else "there was no warm-up step to wait behind"
        """Why the ranks did not begin to record together."""

    def start(self) -> None:
        """Record now, or from the first use of torch on. Whether the program steps an optimizer is not known yet."""
        self.program_profilers = ProgramProfilers(self._yield_to_program)
        first_use = FirstUse(self._on_first_use)
        self.step_function = self.config["step_function"]
        self.steps = (
            FunctionSteps(self.step_function, self._on_step, lambda: self._inactive)
            if self.step_function
            else OptimizerSteps(self._on_step, lambda: self._inactive)
        )
        atexit.register(self._at_exit)
        finish_before_abrupt_end(self._at_exit)
        os.register_at_fork(after_in_child=self._in_forked_child)
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

    def _in_forked_child(self) -> None:
        """Record nothing in the child of a recorded process; the child of one that has not used torch may record."""
        self.pid = os.getpid()
        if self.started:
            disable_in_forked_child(recording=not self.finished, stacks=self.config["stacks"])
            self.finished = True
            mark(self.config, "forked")

    # --- Starting and stopping the profiler ---------------------------------------------------------------------------

    def _on_first_use(self) -> None:
        if not self._inactive:
            self.job.refresh()
            if not self.step_function:
                self._record_whole_program()

    def _record_whole_program(self) -> None:
        """Record everything from now on, unless a recording has started before."""
        if self.started:
            return
        if self.program_profilers.running:
            self.yielded = True
            return
        try:
            session = self._start_session(all_threads=True)
            if not self.config["warmup"]:
                session.open_step(self.done_steps)
        except Exception as e:
            self._fail(e)

    def _start_session(self, discard_before: int = 0, all_threads: bool = False) -> Session:
        """Start a profiler; see Session. Raises NotRecordable."""
        if self.program_profilers.running:
            raise NotRecordable(PROGRAM_PROFILES)
        self.started = True
        call_at_multiprocessing_exit(self._at_exit)
        with self.program_profilers.ignore():
            self.session = Session(self.config, self.done_steps, discard_before, all_threads)
        return self.session

    def _stop_session(self) -> None:
        """Stop the profiler and drop what it recorded. Raises NotRecordable."""
        if self.session is not None:
            self.session.close_step()
            self.session.stop()
            self.session = None

    def _yield_to_program(self) -> None:
        """Stop before the program starts a profiler of its own; once steps were recorded, that ends the recording."""
        if self.session is None or self._inactive:
            return
        before_steps = self.config["warmup"] and not self.done_steps
        try:
            self._stop_session()
        except Exception as e:
            self._fail(e)
            return
        if before_steps:
            self.yielded = True
        else:
            self._fail(NotRecordable(PROGRAM_PROFILES))

    # --- Steps --------------------------------------------------------------------------------------------------------

    def _on_step(self) -> None:
        """Note that a training step has ended."""
        self.job.refresh()
        if not self.done_steps and not self.started:
            self.first = max(self.first, 1)  # the first step has passed unrecorded
        self.done_steps += 1
        try:
            self._advance()
        except Exception as e:
            self._fail(e)

    def _advance(self) -> None:
        """Go from warm-up to undisturbed to recorded steps, and to the end."""
        done, end = self.done_steps, self.first + self.config["steps"]
        ends_block = done in (self.undisturbed.stop, end)
        if done == end and self.session is not None:
            self.session.close_step()
        if ends_block:
            synchronize()
        self.clock.step(done - 1, ends_block)
        if done == 1 and self.config["warmup"]:
            self._stop_session()  # the program trains: what was recorded so far is warm-up
        if done in self.undisturbed[:1]:
            synchronize()
            self._wait_for_ranks("undisturbed")
            self.clock.start(undisturbed=True)
        elif done == self.first - 1:
            self._start_session(discard_before=self.first)
        elif done == self.first:
            self._start_aligned()
            self.clock.start(undisturbed=False)
        elif done > self.first and self.session is not None and self.session.ended_after:
            self.done_steps -= 1  # the bound was reached within the last step
            self._finish(f"ProfilerStep#{self.done_steps}")
        elif done == end:
            self._finish()
        elif done > self.first and self.session is not None:
            self.session.next_step()

    def _start_aligned(self) -> None:
        """Begin the recorded steps with idle GPUs, and at the same time on all ranks.

        Ranks wait for each other before and after they start to record, because starting takes each a different time.
        With Python stacks they wait twice before, since the stacks would contain the second wait.
        """
        synchronize()
        self._wait_for_ranks("warmed-up")
        if self.config["stacks"]:
            self._wait_for_ranks("started")
        if self.session is None:
            session = self._start_session()
        else:
            session = self.session
            self.warmed_up = True
            session.end_warmup()
        if not self.config["stacks"]:
            self._wait_for_ranks("started")
        session.open_step(self.done_steps)

    def _wait_for_ranks(self, barrier: str) -> None:
        if self.unaligned_reason is None and self.job.world_size not in (None, 1):
            self.unaligned_reason = wait_for_ranks(barrier)

    # --- The end ------------------------------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        if self._inactive:
            return
        mark(self.config, "idle with a GPU" if not self.started and has_cuda() else "idle")
        with contextlib.suppress(ValueError):
            # Ctrl-C may arrive twice, from srun and from `collect`: it must not interrupt writing.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.steps.end_of_program()
        if self.finished:
            return
        if 0 < self.done_steps <= self.first:
            with contextlib.suppress(NotRecordable):
                self._stop_session()
            options = f"--warmup is {self.config['warmup']}"
            if self.config["undisturbed"]:
                options += f", --undisturbed {self.config['undisturbed']}"
            options += f": it needs {self.first + 1} or more"
            kind = f"calls of {self.step_function}" if self.step_function else "optimizer steps"
            took = f"it took {self.done_steps} {kind}, and {options}"
            self._report({"reason": f"the program ended before the profiled steps: {took}"})
        elif self.session is not None:
            self.job.refresh()
            try:
                # The last step has not ended with an optimizer's step, so it is no step.
                self._finish(f"ProfilerStep#{self.done_steps}" if self.session.has_open_step else None)
            except Exception as e:
                self._fail(e)
        elif self.yielded:
            self._report({"reason": PROGRAM_PROFILES})
        elif self.step_function:
            self._report({"reason": f"--step-function: the program never called {self.step_function}"})

    def _finish(self, unfinished: str | None = None) -> None:
        """Stop and write the recording; `unfinished` names the range of a step that did not end."""
        self.finished = True
        session = self.session
        if session is None:
            return
        session.close_step()
        synchronize()
        session.stop()
        if not Path(self.config["work"]).is_dir():
            return  # `collect` has ended, and left this process behind
        stem = f"process-{socket.gethostname()}-{self.pid}"
        folder = Path(self.config["folder"])
        if not write_recording(session.profile, folder, stem, self.config["memory_timeline"], unfinished):
            return
        self._report({"ok": True, "stem": stem, "facts": torch_facts(), "gpus": used_gpus(), **self._outcome()})
        self.session = None

    def _outcome(self) -> dict[str, Any]:
        """Where the process ran, what it counted, and how the recording began: fields of reports.AttachedReport."""
        task = os.environ.get("SLURM_PROCID", "")
        outcome: dict[str, Any] = {
            "world_size": self.job.world_size,
            "host": socket.gethostname(),
            "began_s": self.start_s,
            "did": 2 if self.done_steps else int(self.session is not None and self.session.called_modules),
            "task": int(task) if task.isdecimal() else 0,
            "missing": missing(),
            "ended_after": self.session.ended_after if self.session else None,
        }
        if self.done_steps:
            outcome["undisturbed_steps"] = self.clock.blocks.get(True, [])
            outcome["recorded_steps"] = self.clock.blocks.get(False, [])
            outcome["counted_steps"] = self.done_steps - self.first
            on_gpu = uses_cuda()
            outcome["undisturbed_step_ns"] = self.clock.step_ns(True, on_gpu)
            outcome["recorded_step_ns"] = self.clock.step_ns(False, on_gpu)
            unlike = [self.clock.unlike(undisturbed, on_gpu) for undisturbed in (True, False)]
            outcome["unlike_step"] = "; ".join(filter(None, unlike)) or None
            outcome["warmed_up"] = self.warmed_up
            if self.job.world_size not in (None, 1):
                outcome["aligned"] = self.unaligned_reason is None
                outcome["note"] = self.unaligned_reason
        return outcome

    def _report(self, report: dict[str, Any]) -> None:
        """Leave a report for `collect`."""
        name = f"attach-{socket.gethostname()}-{self.pid}.json"
        report = {
            "job_rank": self.job.rank,
            "job": self.job.id,
            "in_group": self.job.in_group,
            "script": Path(sys.argv[0]).name if sys.argv else "",
            "when": time.time(),
            **report,
        }
        with contextlib.suppress(OSError):
            (Path(self.config["work"]) / name).write_text(json.dumps(report), encoding="utf-8")

    def _fail(self, error: Exception) -> None:
        """Report why there is no trace; the program goes on as if it had not been recorded."""
        self.finished = True
        if isinstance(error, NotRecordable):
            self._report({"reason": str(error)})
            if self.session is not None:
                exit_before_static_destructors()  # torch crashes when it destroys a running profiler
            return
        self.session = None
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self._report({"reason": f"the trace could not be written: {reason}"})
