"""Calls cudaProfilerStart and cudaProfilerStop around what Nsight records: the profiled steps, or a phase of each."""

from __future__ import annotations

from collections.abc import Callable

from collect.options import RunOptions
from collect.profilers.base import WorkerRecorder


def set_cuda_profiler(on: bool) -> None:
    """Call cudaProfilerStart or cudaProfilerStop."""
    import torch

    if on:
        torch.cuda.profiler.start()
    else:
        torch.cuda.profiler.stop()


class CudaRangeRecorder(WorkerRecorder):
    """Opens the capture range around the profiled steps, or around one phase of each."""

    shared = True

    def __init__(
        self,
        options: RunOptions,
        phase: str | None = None,
        distorts_time: bool = False,
        switch: Callable[[bool], None] = set_cuda_profiler,
    ) -> None:
        """With `phase`, open the range in that phase only. `switch` opens and closes it."""
        self.distorts_time = distorts_time
        self._first = options.first_profiled
        self._phase = phase
        self._profiled = False
        self._open = False
        self._switch = switch

    def before_step(self, index: int) -> None:
        """Open the range before the first profiled step."""
        if index == self._first:
            self._profiled = True
            if self._phase is None:
                self._set(True)

    def phase(self, name: str, begins: bool) -> None:
        """Open and close the range around the selected phase."""
        if self._profiled and name == self._phase:
            self._set(begins)

    def stop(self) -> None:
        """Close the range."""
        self._set(False)

    def _set(self, open_range: bool) -> None:
        if open_range != self._open:
            self._open = open_range
            self._switch(open_range)
