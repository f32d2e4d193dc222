"""Times the steps of a block: with the host's clock, or with events in the work of a GPU."""

from __future__ import annotations

import time
from typing import Any

from .cuda import mark, ns_between

LEAST_COMPARED = 4
"""Steps of a block from which on one of them can be unlike the others."""


class StepClock:
    """Times one block of steps. It begins and ends with idle GPUs, and nothing waits for a GPU inside it.

    By the host's clock, a single step's time is how long the program took to issue it, and the mean over a block is how
    long a step ran. By events, both are how long it ran.
    """

    def __init__(self, late: bool = False, on_gpu: bool = False) -> None:
        """Start the clock. `late`: the block began before, so the time of a step stays unknown. `on_gpu`: by events,
        which a recording would contain.
        """
        self.steps: list[tuple[int, int]] = []
        """Number and duration in ns of each step that has ended."""
        self.complete = False
        """Whether all steps of the block have ended, and were timed."""
        self._late = late
        self._start_unix_ns = time.time_ns()
        self._last_ns = time.perf_counter_ns()
        self._marks: list[Any] = [mark()] if on_gpu else []

    def age_ns(self) -> int:
        """How long the block has run."""
        return time.time_ns() - self._start_unix_ns

    def step(self, number: int) -> None:
        """Note the end of a step."""
        now = time.perf_counter_ns()
        self.steps.append((number, now - self._last_ns))
        self._last_ns = now
        if self._marks:
            self._marks.append(mark())

    def end(self) -> None:
        """Note that the last step was the whole block."""
        self.complete = not self._late
        lengths = ns_between(self._marks) if self._marks else None
        self._marks = []
        if lengths:
            self.steps = [(number, ns) for (number, _), ns in zip(self.steps, lengths, strict=True)]

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return number, start and end of each step, by time.time_ns()."""
        found, start = [], self._start_unix_ns
        for number, ns in self.steps:
            found.append((number, start, start + ns))
            start += ns
        return found

    def step_ns(self, on_gpu: bool) -> int | None:
        """Time of a step, or None unless the block is complete.

        That is the median on the CPU. With a GPU it is the mean, since only the block ends with idle GPUs; it means
        nothing if a step is unlike the others.
        """
        times = self._times()
        if not times or (on_gpu and self.unlike(on_gpu, "")):
            return None
        return round(sum(times) / len(times) if on_gpu else _median(times))

    def unlike(self, on_gpu: bool, block: str) -> str | None:
        """Name a step that took longer than all others together, or None. `block` says which block this is.

        With a GPU not the last step, which waits for the work of all.
        """
        times = self._times()
        candidates = times[:-1] if on_gpu else times
        if len(times) < LEAST_COMPARED or 2 * max(candidates) <= sum(times):
            return None
        index = times.index(max(candidates))
        typical_ms, its_ms = _median(times) / 1e6, times[index] / 1e6
        took = f"{its_ms:,.1f} ms and others {typical_ms:,.1f} ms"
        return f"step {self.steps[index][0]} ({block}) took {took}, perhaps the end of an epoch"

    def _times(self) -> list[int]:
        return [ns for _, ns in self.steps] if self.complete else []


def _median(values: list[int]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
