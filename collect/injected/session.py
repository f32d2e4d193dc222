"""One recording: start, step ranges, stop, write. By torch.profiler here; gpu_session.py has the one by CUPTI."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .bounds import Bounds, call_in_main_thread
from .cuda import detaching_cupti, has_cuda
from .module_calls import has_compiled
from .profiler_start import start_profiler
from .python_profilers import hide_from_cprofile
from .torch_internals import find
from .trace_files import write_recording

OTHER_THREAD = (
    "the program steps its optimizer outside its main thread: torch.profiler can record that only without --memory, up "
    "to the last recorded step, and in versions of torch that have profile_all_threads"
)
MAX_EVENTS = {True: 100_000, False: 1_000_000}
"""Default bounds: of a whole program, and of steps."""


class NotRecordable(Exception):
    """The program does something that cannot be recorded; the message says what."""


class BlockSession:
    """A running recorder of a block of steps, or of a whole program."""

    recorder: str
    """The package that records, and its version."""
    has_open_step = False
    """Whether a range of a step is open."""
    ignore: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Starts of torch profilers inside this block are not the program's."""
    _bounds: Bounds | None = None

    def end_warmup(self) -> None:
        """Keep events of this thread from now on."""

    def open_step(self, number: int) -> None:
        """Open the range of the first recorded step."""

    def next_step(self) -> None:
        """End the current step's range and open the next one's."""

    def close_step(self) -> None:
        """Close the current step's range, so that it does not include the wait for the GPU."""

    def stop(self) -> None:
        """Stop the recorder. Raises NotRecordable where that would crash the process."""

    def write(self, folder: Path, stem: str, steps: list[tuple[int, int, int]], unfinished: int | None) -> bool:
        """Write what was recorded as STEM.* into `folder`, once it is stopped; return False if that is nothing.

        `steps`: number, start and end of each step by time.time_ns(). `unfinished` is the number of a step that did not
        end. Raises OSError.
        """
        raise NotImplementedError

    @property
    def ended_after(self) -> str | None:
        """Which bound ended the recording; None while it goes on."""
        return self._bounds.reason if self._bounds else None

    @property
    def called_modules(self) -> bool:
        """Whether a module was called while everything was recorded."""
        return self._bounds is not None and self._bounds.called_modules


class Session(BlockSession):
    """A running torch.profiler."""

    def __init__(
        self,
        config: dict[str, Any],
        step: int,
        warms_up: bool = False,
        whole: bool = False,
        gpu_only: str | None = None,
    ) -> None:
        """Start the profiler. `step` is the current step; if it `warms_up`, its events are discarded.

        `whole` records all threads if torch can and memory is not recorded, which works for one thread only.
        `gpu_only` records no operators, only GPU work and the CUDA calls, and says why this is not done by CUPTI alone.
        """
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        self.recorder = f"torch.profiler {torch.__version__}"
        if gpu_only:
            self.recorder += f", ProfilerActivity.CUDA alone: {gpu_only}"
        activities = [] if gpu_only else [ProfilerActivity.CPU]
        if gpu_only or has_cuda():
            activities.append(ProfilerActivity.CUDA)
        threads = _all_threads() if whole and not config["memory"] and not gpu_only else {}
        self._thread = None if threads else threading.get_ident()
        """The only thread that may stop the profiler; None if any may."""
        self._gpu_only = bool(gpu_only)
        self._memory_timeline = config["memory_timeline"]
        options = {
            "record_shapes": config["shapes"],
            "profile_memory": config["memory"],
            "with_stack": config["stacks"],
            "with_flops": config["flops"],
            **threads,
        }

        def start_profile() -> Any:
            started = profile(
                activities=activities,
                schedule=lambda n: ProfilerAction.WARMUP if warms_up and n <= step else ProfilerAction.RECORD,
                **({} if gpu_only else options),
            )
            started.step_num = step
            # The first ProfilerStep#N range is opened by open_step(), after the ranks have waited for each other.
            started.record_steps = False
            start_profiler(started)
            return started

        self._start_profile = start_profile
        self.profile = start_profile()
        self._stacks = config["stacks"] and not gpu_only
        self._limits = (config["max_events"] or MAX_EVENTS[whole], config["seconds"])
        self._whole = whole
        if not warms_up:
            self._start_bounds()

    def _start_bounds(self) -> None:
        max_events, seconds = self._limits
        if seconds:
            # In compiled code, events are not counted: that takes a hook.
            counted = None if has_compiled() else max_events
            resume = self._begin_again if self._whole else None
            self._bounds = Bounds(counted, seconds, self._stacks, self._on_bound, resume)

    def _on_bound(self) -> None:
        """Stop collecting, without freeing what running operators still write to. Called in a thread of its own."""
        if self._thread is None:
            self._pause()
        elif self._thread == threading.main_thread().ident:
            self._pending = call_in_main_thread(self._pause)  # the profiler belongs to one thread

    def _pause(self) -> None:
        from torch.profiler import ProfilerActivity

        if toggle := find("torch.autograd.profiler.profile.toggle_collection_dynamic"):
            # All kinds, whether recorded or not: torch warns of fewer.
            kinds = (getattr(ProfilerActivity, name, None) for name in ("CPU", "CUDA", "XPU"))
            toggle(self.profile.profiler, False, [kind for kind in kinds if kind is not None])
        elif clear := find("torch._C._autograd._clear_callbacks"):  # before torch 2.5
            clear()
        if self._stacks:
            sys.setprofile(None)

    @hide_from_cprofile
    def _begin_again(self) -> None:
        """Drop what was recorded before the bound, and record again. Called at the first call of a module."""
        if self._thread in (None, threading.get_ident()):
            self.profile.stop()
            with self.ignore():
                self.profile = self._start_profile()

    def next_step(self) -> None:
        """End the current step's range and open the next one's."""
        self.profile.step()

    def end_warmup(self) -> None:
        """Keep events of this thread from now on."""
        self._thread = threading.get_ident()
        self.profile.step()
        self._start_bounds()

    def open_step(self, number: int) -> None:
        """Open the ProfilerStep#N range of the first recorded step; the profiler opens the others itself."""
        from torch.autograd.profiler import record_function

        self.has_open_step = True
        self.profile.record_steps = True
        self.profile.step_rec_fn = record_function(f"ProfilerStep#{number}")
        self.profile.step_rec_fn.__enter__()

    def close_step(self) -> None:
        """Close the current step's range, so that it does not include the wait for the GPU."""
        if self.profile.record_steps and self.profile.step_rec_fn is not None:
            self.profile.step_rec_fn.__exit__(None, None, None)
            self.profile.step_rec_fn = None
        self.profile.record_steps = self.has_open_step = False

    def stop(self) -> None:
        """Stop the profiler. Raises NotRecordable where that would crash the process."""
        if self._thread not in (None, threading.get_ident()):
            raise NotRecordable(OTHER_THREAD)
        if self._bounds:
            self._bounds.stop()
        with detaching_cupti():
            self.profile.stop()

    def write(self, folder: Path, stem: str, steps: list[tuple[int, int, int]], unfinished: int | None) -> bool:
        """Write the trace, key_averages() and the memory timeline; with GPU work alone only the trace, with `steps`."""
        if self._gpu_only:
            return write_recording(self.profile, folder, stem, averages=False, steps=steps)
        name = None if unfinished is None else f"ProfilerStep#{unfinished}"
        return write_recording(self.profile, folder, stem, self._memory_timeline, name)


def _all_threads() -> dict[str, Any]:
    """Arguments that make torch.profiler record all threads, and let any of them stop it; none if it cannot."""
    config = find("torch._C._profiler._ExperimentalConfig")
    try:
        return {"experimental_config": config(profile_all_threads=True)} if config else {}
    except TypeError:  # before torch 2.4
        return {}
