"""The profiler inside a program of the user's own: what it records, and when it writes. It records

- a program that steps an optimizer: `steps` optimizer steps after the first `warmup` of them, and after `undisturbed`
  that are timed with the profiler off, to say what recording costs. The last warm-up step already runs with the
  profiler on, so that what is slow at its start (CUPTI, buffers) is over; then all ranks of the job begin together;
- any other program: everything from the import of torch to the end;
- a process that multiprocessing started: nothing before it joins a process group or steps an optimizer, since it may be
  a DataLoader's worker, for which recording has no end;
- a process that was forked while its parent was recorded, or ran no torch operator (torchrun's agent): nothing is left.

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
import traceback
import weakref
from pathlib import Path
from typing import Any

from .children import end_as_unprofiled, is_of_multiprocessing, when_in_a_process_group
from .rendezvous import job, meet
from .step_clock import StepClock
from .torch_facts import torch_facts
from .trace_files import write_recording, write_step_times


class AttachedRecorder:
    """The profiler of one process: what it records, and when it writes."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take the settings; start() begins."""
        self.config = config
        self.pid = os.getpid()
        self.profile: Any = None
        self.begun = False
        """Whether a profiler has run in this process, or in the one that it was forked from."""
        self.counted: Any = None
        """A weak reference to the optimizer whose steps count: it and its model are not to outlive their use."""
        self.done_steps = 0
        self.depth = 0
        self.finished = False
        self.rank: int | None = None
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
        """Record from here on: whether the program ever steps an optimizer is not known yet."""
        if is_of_multiprocessing():
            when_in_a_process_group(self._begin_whole)
        else:
            self._begin_whole()
        self._watch_steps()
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_forked_child)

    def _begin_whole(self) -> None:
        """Record what comes, unless recording has begun already."""
        if self.begun or os.getpid() != self.pid:
            return
        try:
            self._begin()
            if not self.config["warmup"]:
                self._open_step()
        except Exception as e:
            self._fail(e)

    def _in_forked_child(self) -> None:
        """A child of a recorded process is not recorded; one of a process that waits for its work (a forkserver) is."""
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

    def _begin(self, warmup: bool = False) -> None:
        """Start a profiler that records or, with `warmup`, throws away what it sees until the last warm-up step."""
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        self.begun = True
        activities = [ProfilerActivity.CPU]
        if _has_cuda(torch):
            activities.append(ProfilerActivity.CUDA)
        discarded = self.first if warmup else 0
        self.profile = profile(
            activities=activities,
            schedule=lambda step: ProfilerAction.WARMUP if step < discarded else ProfilerAction.RECORD,
            record_shapes=self.config["shapes"],
            profile_memory=self.config["memory"],
            with_stack=self.config["stacks"],
            with_flops=self.config["flops"],
        )
        self.profile.step_num = self.done_steps
        # No ProfilerStep#N range before the first recorded step, see _open_step().
        self.profile.record_steps = False
        self.profile.start()

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
        _synchronize()
        self._meet("warmed-up")
        if self.config["stacks"]:
            self._meet("started")
        if self.profile is None:
            self._begin()
        else:
            self.warmed_up = True
            self.profile.step()
        if not self.config["stacks"]:
            self._meet("started")
        self._open_step()

    def _meet(self, place: str) -> None:
        if self.apart is None and self.world_size not in (None, 1):
            self.apart = meet(place)

    def _after_optimizer_step(self, optimizer: Any) -> None:
        if self.finished or os.getpid() != self.pid:
            return
        # A step is a step of the first optimizer: a GAN's second one would count every iteration twice.
        if self.counted is None:
            self.counted = weakref.ref(optimizer)
            # Too late for the first step, where nothing said before that the process trains.
            self.first = max(self.first, 0 if self.begun else 1)
        elif optimizer is not self.counted():
            return
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
            _synchronize()
        self.clock.step(done - 1, last_of_block)
        if done == 1 and self.profile is not None and self.config["warmup"]:
            # The program trains, so what was recorded up to here is warm-up.
            self.profile.stop()
            self.profile = None
        if done in self.undisturbed[:1]:
            _synchronize()
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
        rank, world_size = job()
        if rank is not None:
            self.rank = rank
        if world_size is not None:
            self.world_size = world_size

    def _at_exit(self) -> None:
        if self.finished or os.getpid() != self.pid:
            return
        with contextlib.suppress(ValueError):
            # A Ctrl-C may come twice, from srun and from `collect`: it must not cut short what is written now.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if 0 < self.done_steps <= self.first:
            if self.profile is not None:
                self.profile.stop()
            few = f"it took {self.done_steps} optimizer steps, and --warmup is {self.config['warmup']}"
            if self.config["undisturbed"]:
                few += f", --undisturbed {self.config['undisturbed']}"
            self._report({"rank": self.rank or 0, "reason": f"the program ended before the profiled steps: {few}"})
            return
        if self.profile is None:
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
        _synchronize()
        self.profile.stop()
        averages = self.profile.key_averages()
        # "::" marks operators (aten::add, c10d::allreduce_); a process without any did no work of its own.
        if not any("::" in row.key or not str(row.device_type).endswith("CPU") for row in averages):
            return
        rank = self._claim_rank()
        write_step_times(self.clock.blocks, Path(self.config["folder"]), rank)
        write_recording(self.profile, Path(self.config["folder"]), rank, self.config["memory_timeline"], unfinished)
        self._report({"rank": rank, "ok": True, "facts": torch_facts(), **self._how()}, rank)
        self.profile = None

    def _how(self) -> dict[str, Any]:
        """Where it ran, what was counted, and how the recording began: fields of collect.spec.RankReport."""
        how: dict[str, Any] = {"world_size": self.world_size, "host": socket.gethostname()}
        if self.done_steps:
            how["counted_steps"] = self.done_steps - self.first
            how["undisturbed_step_ns"] = self.clock.mean_ns(True)
            how["recorded_step_ns"] = self.clock.mean_ns(False)
            how["warmed_up"] = self.warmed_up
            if self.world_size not in (None, 1):
                how["aligned"] = self.apart is None
                how["note"] = self.apart
        return how

    def _claim_rank(self) -> int:
        """Rank of the job where it is known, else the first number that no process of this run has taken."""
        known = os.environ.get("SLURM_PROCID", "")
        first = self.rank if self.rank is not None else int(known) if known.isdecimal() else 0
        for rank in range(first, first + 100_000):
            claim = Path(self.config["work"]) / f"claim-{rank}"
            with contextlib.suppress(FileExistsError):
                os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return rank
        raise RuntimeError("no free rank number")

    def _report(self, report: dict[str, Any], rank: int | None = None) -> None:
        name = f"rank-{rank}.json" if rank is not None else f"attach-{self.pid}.json"
        with contextlib.suppress(OSError):
            (Path(self.config["work"]) / name).write_text(json.dumps(report), encoding="utf-8")

    def _fail(self, error: Exception) -> None:
        """Say why there is no trace; the program itself goes on as if nothing had been recorded."""
        self.finished = True
        self.profile = None
        if isinstance(error, OSError) and error.strerror:
            said = error.strerror
        else:
            said = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        self._report({"rank": self.rank or 0, "ok": False, "reason": f"the trace could not be written: {said}"})


def _has_cuda(torch: Any) -> bool:
    """Whether torch can use a GPU, without initialising CUDA: the program may want to fork first."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _synchronize() -> None:
    """Wait for all GPUs that this process uses, so that a recording holds whole steps."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            # Synchronising another rank's GPU would put a context of this process on it.
            if torch._C._cuda_hasPrimaryContext(index):
                with contextlib.suppress(RuntimeError):
                    torch.cuda.synchronize(index)
