"""The profiler inside a program of the user's own: what it records, and when it writes. It records

- a program that steps an optimizer: `steps` optimizer steps after the first `warmup` of them, and after `undisturbed`
  that are timed with the profiler off, to say what recording costs. The last warm-up step already runs with the
  profiler on, so that what is slow at its start (CUPTI, buffers) is over; then all ranks of the job begin together;
- any other program: everything to its end, from the import of torch on. Where there is a GPU, from its first use on: of
  CUDA, of a process group, of a module. A profiler that runs has begun CUDA, which then does not work in a child that
  is forked. All threads are recorded, unless memory is, too: the profiler has that of one thread alone;
- a process that multiprocessing started: nothing before it uses CUDA, joins a process group or steps an optimizer,
  since it may be a DataLoader's worker, for which recording has no end;
- a process that was forked while its parent was recorded, or ran no torch operator (torchrun's agent): nothing is left.

Which rank of the job a process is, `collect` decides when all have ended (collect.ranks).

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any

from .children import at_end_of_multiprocessing, end_as_unprofiled, end_before_static_objects, is_of_multiprocessing
from .cuda import has_cuda, synchronize
from .first_use import FirstUse
from .module_calls import at_next_module, in_backward
from .other_profilers import OtherProfilers
from .rendezvous import job, meet
from .step_clock import StepClock
from .torch_facts import torch_facts
from .trace_files import write_recording

OWN_PROFILER = (
    "the program runs a torch.profiler of its own, and torch runs one at a time: leave that out, or record with "
    "--profiler nsys"
)
OTHER_THREAD = (
    "the program steps its optimizer in another thread than its main one: torch's profiler can follow that only "
    "without --memory, up to the last recorded step, and where it has profile_all_threads"
)


class NotRecordable(Exception):
    """What a program does cannot be recorded; says why."""


class AttachedRecorder:
    """The profiler of one process: what it records, and when it writes."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        self.config = config
        self.pid = os.getpid()
        self.profile: Any = None
        self.others: Any = None
        """The profilers that the program runs itself, from start() on."""
        self.begun = False
        """Whether a profiler has run in this process, or in the one that it was forked from."""
        self.counted: Any = None
        """A weak reference to the optimizer whose steps count: it and its model are not to outlive their use."""
        self.done_steps = 0
        self.depth = 0
        self.in_step = False
        """Whether the counted optimizer has stepped in a step that goes on."""
        self.finished = False
        self.thread: int | None = None
        """The one thread that is recorded, and in which alone the profiler may be stopped; None if it records all."""
        self.yielded = False
        """Whether the profiler gave way to one of the program's own before any step."""
        self.began_s = time.time()
        self.rank: int | None = None
        self.in_group = False
        """Whether rank and size of the job are what its process group says."""
        self.job: str | None = None
        """What tells the job from another one that the program starts, or starts again."""
        self.world_size: int | None = None
        self.warmed_up = False
        self.clock = StepClock()
        self.undisturbed = range(config["warmup"] - 1, config["warmup"] - 1 + config["undisturbed"])
        """The steps that are timed before the profiler starts; without any, an empty range."""
        self.first = config["warmup"] + config["undisturbed"]
        """The first recorded step."""
        self.apart = None if config["warmup"] else "there was no warm-up step to wait behind"
        """Why the ranks did not begin together."""

    def start(self) -> None:
        """Record, at once or from the first use of torch on: whether the program ever steps an optimizer is not known
        yet."""
        self.others = OtherProfilers(self._give_way)
        first_use = FirstUse(self._at_first_use)
        self._watch_steps()
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_forked_child)
        if is_of_multiprocessing():
            return
        if has_cuda():
            first_use.wait_for_a_module()
        else:
            self._begin_whole()

    @property
    def _is_over(self) -> bool:
        """Whether nothing is recorded any more, or this is a process that something else than Python has forked."""
        return self.finished or os.getpid() != self.pid

    def _at_first_use(self) -> None:
        if not self._is_over:
            self._ask_job()
            self._begin_whole()

    def _begin_whole(self) -> None:
        """Record what comes, unless recording has begun already."""
        if self.begun:
            return
        if self.others.running:
            self.yielded = True
            return
        try:
            self._begin(whole=True)
            if not self.config["warmup"]:
                self._open_step()
        except Exception as e:
            self._fail(e)

    def _give_way(self) -> None:
        """A profiler of the program's own begins."""
        if self.profile is None or self._is_over:
            return
        on_trial = self.config["warmup"] and not self.done_steps
        try:
            self._close_step()
            self._stop()
        except Exception as e:
            self._fail(e)
            return
        self.profile = None
        if on_trial:
            self.yielded = True
        else:
            self._fail(NotRecordable(OWN_PROFILER))

    def _in_forked_child(self) -> None:
        """A child of a recorded process is not recorded; one of a process that has not begun to use torch may be."""
        self.pid = os.getpid()
        if self.begun:
            end_as_unprofiled(recording=not self.finished, stacks=self.config["stacks"])
            self.finished = True

    def _watch_steps(self) -> None:
        """Be told when an optimizer's step has returned.

        torch's own post hook is called inside the step's record_function range. A profiler that stops there frees what
        the end of the range still writes to, which corrupts the heap.
        """
        from torch.optim import Optimizer

        hook_step = Optimizer.profile_hook_step

        def profile_hook_step(step: Any) -> Any:
            hooked = hook_step(step)

            @functools.wraps(hooked)
            def watched(*args: Any, **kwargs: Any) -> Any:
                # An optimizer may step others inside its own step.
                self.depth += 1
                try:
                    result = hooked(*args, **kwargs)
                finally:
                    self.depth -= 1
                if self.depth == 0:
                    self._after_optimizer_step(args[0])
                return result

            return watched

        Optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _begin(self, warmup: bool = False, whole: bool = False) -> None:
        """Start a profiler that records, of `whole` programs all threads, or, with `warmup`, throws away what it sees
        until the last warm-up step. Raises NotRecordable."""
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        if self.others.running:
            raise NotRecordable(OWN_PROFILER)
        self.begun = True
        at_end_of_multiprocessing(self._at_exit)
        activities = [ProfilerActivity.CPU]
        if has_cuda():
            activities.append(ProfilerActivity.CUDA)
        threads = {} if self.config["memory"] or not whole else _of_all_threads()
        self.thread = None if threads else threading.get_ident()
        discarded = self.first if warmup else 0
        self.profile = profile(
            activities=activities,
            schedule=lambda step: ProfilerAction.WARMUP if step < discarded else ProfilerAction.RECORD,
            record_shapes=self.config["shapes"],
            profile_memory=self.config["memory"],
            with_stack=self.config["stacks"],
            with_flops=self.config["flops"],
            **threads,
        )
        self.profile.step_num = self.done_steps
        # No ProfilerStep#N range before the first recorded step, see _open_step().
        self.profile.record_steps = False
        with self.others.ours():
            self.profile.start()

    def _stop(self) -> None:
        """Stop the profiler. Raises NotRecordable where that would crash the process."""
        if self.thread not in (None, threading.get_ident()):
            raise NotRecordable(OTHER_THREAD)
        self.profile.stop()

    def _open_step(self) -> None:
        """Begin the ProfilerStep#N range of the first recorded step; the profiler makes those of the others."""
        from torch.autograd.profiler import record_function

        self.profile.record_steps = True
        self.profile.step_rec_fn = record_function(f"ProfilerStep#{self.done_steps}")
        self.profile.step_rec_fn.__enter__()

    def _close_step(self) -> None:
        """End the range of the step that is under way, so that it does not hold the wait for the GPU."""
        if self.profile.record_steps and self.profile.step_rec_fn is not None:
            self.profile.step_rec_fn.__exit__(None, None, None)
            self.profile.step_rec_fn = None
        self.profile.record_steps = False

    def _start_together(self) -> None:
        """Begin the recorded steps, with idle GPUs and at the same moment on all ranks.

        Each rank's profiler takes another time to start, so they wait for each other before and after it. Python stacks
        would hold the second wait, so with them both are before.
        """
        synchronize()
        self._meet("warmed-up")
        if self.config["stacks"]:
            self._meet("started")
        if self.profile is None:
            self._begin()
        else:
            self.warmed_up = True
            self.thread = threading.get_ident()
            self.profile.step()
        if not self.config["stacks"]:
            self._meet("started")
        self._open_step()

    def _meet(self, place: str) -> None:
        if self.apart is None and self.world_size not in (None, 1):
            self.apart = meet(place)

    def _after_optimizer_step(self, optimizer: Any) -> None:
        if self._is_over:
            return
        # A step is a step of the first optimizer: a GAN's second one would count every iteration twice.
        if self.counted is None:
            self.counted = weakref.ref(optimizer)
            # Too late for the first step, where nothing said before that the process trains.
            self.first = max(self.first, 0 if self.begun else 1)
        elif self.counted() is None:
            self.counted = weakref.ref(optimizer)  # another fold, or the next training
        elif optimizer is not self.counted():
            return
        if not in_backward():
            self._step_has_ended()
        elif not self.in_step:
            # Optimizers that step as gradients come: the step goes on to the end of the backward pass.
            self.in_step = True
            at_next_module(self._step_has_ended)

    def _step_has_ended(self) -> None:
        if self._is_over:
            return
        self.in_step = False
        self._ask_job()
        self.done_steps += 1
        try:
            self._advance()
        except Exception as e:
            self._fail(e)

    def _advance(self) -> None:
        """Go on from one step to the next."""
        done, end = self.done_steps, self.first + self.config["steps"]
        last_of_block = done in (self.undisturbed.stop, end)
        if done == end:
            self._close_step()
        if last_of_block:
            synchronize()
        self.clock.step(done - 1, last_of_block)
        if done == 1 and self.profile is not None and self.config["warmup"]:
            # The program trains, so what was recorded up to here is warm-up.
            self._stop()
            self.profile = None
        if done in self.undisturbed[:1]:
            synchronize()
            self._meet("undisturbed")
            self.clock.start(undisturbed=True)
        elif done == self.first - 1:
            self._begin(warmup=True)
        elif done == self.first:
            self._start_together()
            self.clock.start(undisturbed=False)
        elif done == end:
            self._finish()
        elif done > self.first:
            self.profile.step()

    def _ask_job(self) -> None:
        """Remember rank and size of the job while the process group exists; at exit it may be gone."""
        rank, world_size, in_group = job()
        if rank is None or (self.in_group and not in_group):
            return
        self.rank, self.world_size, self.in_group = rank, world_size, in_group
        names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
        self.job = " ".join([*(os.environ.get(name, "") for name in names), str(world_size)])

    def _at_exit(self) -> None:
        if self._is_over:
            return
        with contextlib.suppress(ValueError):
            # A Ctrl-C may come twice, from srun and from `collect`: it must not cut short what is written now.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.in_step:
            self._step_has_ended()
            if self.finished:
                return
        if 0 < self.done_steps <= self.first:
            if self.profile is not None:
                with contextlib.suppress(NotRecordable):
                    self._stop()
            few = f"it took {self.done_steps} optimizer steps, and --warmup is {self.config['warmup']}"
            if self.config["undisturbed"]:
                few += f", --undisturbed {self.config['undisturbed']}"
            self._report({"reason": f"the program ended before the profiled steps: {few}"})
            return
        if self.profile is None:
            if self.yielded:
                self._report({"reason": OWN_PROFILER})
            return
        self._ask_job()
        try:
            # The step that is under way is none: it did not end with an optimizer's step.
            self._finish(f"ProfilerStep#{self.done_steps}" if self.profile.record_steps else None)
        except Exception as e:
            self._fail(e)

    def _finish(self, unfinished: str | None = None) -> None:
        self.finished = True
        self._close_step()
        synchronize()
        self._stop()
        averages = self.profile.key_averages()
        # "::" marks operators (aten::add, c10d::allreduce_); a process without any did no work of its own.
        if not any("::" in row.key or not str(row.device_type).endswith("CPU") for row in averages):
            return
        stem = f"process-{socket.gethostname()}-{self.pid}"
        write_recording(self.profile, Path(self.config["folder"]), stem, self.config["memory_timeline"], unfinished)
        self._report({"ok": True, "stem": stem, "facts": torch_facts(), **self._how()})
        self.profile = None

    def _how(self) -> dict[str, Any]:
        """Where it ran, what was counted, and how the recording began: fields of collect.spec.RankReport."""
        how: dict[str, Any] = {"world_size": self.world_size, "host": socket.gethostname()}
        how["began_s"], how["in_group"], how["job"] = self.began_s, self.in_group, self.job
        task = os.environ.get("SLURM_PROCID", "")
        how["task"] = int(task) if task.isdecimal() else 0
        if self.done_steps:
            how["undisturbed_steps"] = self.clock.blocks.get(True, [])
            how["recorded_steps"] = self.clock.blocks.get(False, [])
            how["counted_steps"] = self.done_steps - self.first
            how["undisturbed_step_ns"] = self.clock.mean_ns(True)
            how["recorded_step_ns"] = self.clock.mean_ns(False)
            how["warmed_up"] = self.warmed_up
            if self.world_size not in (None, 1):
                how["aligned"] = self.apart is None
                how["note"] = self.apart
        return how

    def _report(self, report: dict[str, Any]) -> None:
        """Tell `collect` how it went."""
        name = f"attach-{socket.gethostname()}-{self.pid}.json"
        report = {"job_rank": self.rank, "when": time.time(), **report}
        with contextlib.suppress(OSError):
            (Path(self.config["work"]) / name).write_text(json.dumps(report), encoding="utf-8")

    def _fail(self, error: Exception) -> None:
        """Say why there is no trace; the program itself goes on as if nothing had been recorded."""
        self.finished = True
        if isinstance(error, NotRecordable):
            self._report({"reason": str(error)})
            if self.profile is not None:
                end_before_static_objects()  # torch crashes as it takes apart a profiler that still runs
            return
        self.profile = None
        if isinstance(error, OSError) and error.strerror:
            said = error.strerror
        else:
            said = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self._report({"reason": f"the trace could not be written: {said}"})


def _of_all_threads() -> dict[str, Any]:
    """Arguments of a profiler that records all threads, and may be stopped in any; none where torch has no such."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return {"experimental_config": _ExperimentalConfig(profile_all_threads=True)}
    except (ImportError, TypeError):
        return {}
