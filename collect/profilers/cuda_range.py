"""Marks what Nsight records by cudaProfilerStart and cudaProfilerStop: the profiled steps, or one phase of each."""

from __future__ import annotations

from collect.options import RunOptions
from collect.profilers.base import Recorder


class CudaRangeRecorder(Recorder):
    """Opens the capture range around the profiled steps, or around one phase of them."""

    shared = True

    def __init__(self, options: RunOptions, phase: str | None = None, distorts_time: bool = False) -> None:
        """With `phase`, the range is open in that phase alone."""
        self.distorts_time = distorts_time
        self._first = options.first_profiled
        self._phase = phase
        self._profiled = False
        self._open = False

    def before_step(self, index: int) -> None:
        """Open the range before the first profiled step."""
        if index == self._first:
            self._profiled = True
            if self._phase is None:
                self._set(True)

    def phase(self, name: str, begins: bool) -> None:
        """Open and close the range around the phase, where one was asked for."""
        if self._profiled and name == self._phase:
            self._set(begins)

    def stop(self) -> None:
        """Close the range."""
        self._set(False)

    def _set(self, wanted: bool) -> None:
        import torch

        if wanted == self._open:
            return
        self._open = wanted
        if wanted:
            torch.cuda.profiler.start()
        else:
            torch.cuda.profiler.stop()
