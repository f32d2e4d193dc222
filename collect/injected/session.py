"""One recording by torch.profiler: start, step ranges, stop."""

from __future__ import annotations

import threading
from typing import Any

from .cuda import has_cuda

OTHER_THREAD = (
    "the program steps its optimizer outside its main thread: torch.profiler can record that only without --memory, up "
    "to the last recorded step, and in versions of torch that have profile_all_threads"
)


class NotRecordable(Exception):
    """The program does something that cannot be recorded; the message says what."""


class Session:
    """A running torch.profiler."""

    def __init__(self, config: dict[str, Any], step: int, discard_before: int, all_threads: bool) -> None:
        """Start the profiler. `step` is the current step; events before step `discard_before` are discarded.

        `all_threads` records all threads if torch can and memory is not recorded, which works for one thread only.
        """
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if has_cuda():
            activities.append(ProfilerActivity.CUDA)
        threads = _all_threads() if all_threads and not config["memory"] else {}
        self._thread = None if threads else threading.get_ident()
        """The only thread that may stop the profiler; None if any may."""
        self.profile = profile(
            activities=activities,
            schedule=lambda step: ProfilerAction.WARMUP if step < discard_before else ProfilerAction.RECORD,
            record_shapes=config["shapes"],
            profile_memory=config["memory"],
            with_stack=config["stacks"],
            with_flops=config["flops"],
            **threads,
        )
        self.profile.step_num = step
        # The first ProfilerStep#N range is opened by open_step(), after the ranks have waited for each other.
        self.profile.record_steps = False
        self.profile.start()

    @property
    def has_open_step(self) -> bool:
        """Whether a ProfilerStep#N range is open."""
        return bool(self.profile.record_steps)

    def next_step(self) -> None:
        """End the current step's range and open the next one's."""
        self.profile.step()

    def end_warmup(self) -> None:
        """Keep events from now on, those of this thread only."""
        self._thread = threading.get_ident()
        self.profile.step()

    def open_step(self, number: int) -> None:
        """Open the ProfilerStep#N range of the first recorded step; the profiler opens the others itself."""
        from torch.autograd.profiler import record_function

        self.profile.record_steps = True
        self.profile.step_rec_fn = record_function(f"ProfilerStep#{number}")
        self.profile.step_rec_fn.__enter__()

    def close_step(self) -> None:
        """Close the current step's range, so that it does not include the wait for the GPU."""
        if self.profile.record_steps and self.profile.step_rec_fn is not None:
            self.profile.step_rec_fn.__exit__(None, None, None)
            self.profile.step_rec_fn = None
        self.profile.record_steps = False

    def stop(self) -> None:
        """Stop the profiler. Raises NotRecordable where that would crash the process."""
        if self._thread not in (None, threading.get_ident()):
            raise NotRecordable(OTHER_THREAD)
        self.profile.stop()

    def has_work(self) -> bool:
        """Whether the stopped profiler has recorded operators (aten::add, c10d::allreduce_) or GPU work."""
        return any("::" in e.key or not str(e.device_type).endswith("CPU") for e in self.profile.events())


def _all_threads() -> dict[str, Any]:
    """Arguments that make torch.profiler record all threads, and let any of them stop it; none if it cannot."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return {"experimental_config": _ExperimentalConfig(profile_all_threads=True)}
    except (ImportError, TypeError):
        return {}
