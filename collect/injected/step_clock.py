"""Times the program's steps with the host's clock."""

from __future__ import annotations

import time

LEAST_COMPARED = 4
"""Steps of a block from which on one of them can be unlike the others."""


class StepClock:
    """Times blocks of steps. A block begins and ends with idle GPUs, and nothing waits for a GPU inside it.

    So a single step's time is how long the program took to issue it, and the mean over a block is how long a step ran.
    """

    def __init__(self) -> None:
        """No block is running."""
        self.blocks: dict[bool, list[tuple[int, int]]] = {}
        """Completed blocks as (step number, ns); the key says whether the block is the undisturbed one."""
        self._steps: list[tuple[int, int]] | None = None
        self._undisturbed = False
        self._last_ns = 0

    def start(self, undisturbed: bool) -> None:
        """Start a block."""
        self._steps, self._undisturbed = [], undisturbed
        self._last_ns = time.perf_counter_ns()

    def step(self, number: int, last: bool) -> None:
        """Note the end of a step, and of the block if it is the `last` one. Does nothing outside a block."""
        if self._steps is None:
            return
        now = time.perf_counter_ns()
        self._steps.append((number, now - self._last_ns))
        self._last_ns = now
        if last:
            self.blocks[self._undisturbed], self._steps = self._steps, None

    def step_ns(self, undisturbed: bool, on_gpu: bool) -> int | None:
        """Time of a step in a completed block, or None.

        That is the median on the CPU. With a GPU it is the mean, since only the block ends with idle GPUs; it means
        nothing if a step is unlike the others.
        """
        times = self._times(undisturbed)
        if not times or (on_gpu and self.unlike(undisturbed, on_gpu)):
            return None
        return round(sum(times) / len(times) if on_gpu else _median(times))

    def unlike(self, undisturbed: bool, on_gpu: bool) -> str | None:
        """Name a step of the block that took longer than all others together, or None.

        With a GPU not the last step, which waits for the work of all.
        """
        times = self._times(undisturbed)
        candidates = times[:-1] if on_gpu else times
        if len(times) < LEAST_COMPARED or 2 * max(candidates) <= sum(times):
            return None
        index = times.index(max(candidates))
        block = "undisturbed" if undisturbed else "recorded"
        number = self.blocks[undisturbed][index][0]
        typical_ms, its_ms = _median(times) / 1e6, times[index] / 1e6
        took = f"{its_ms:,.1f} ms and others {typical_ms:,.1f} ms"
        return f"step {number} ({block}) took {took}, perhaps the end of an epoch"

    def _times(self, undisturbed: bool) -> list[int]:
        return [ns for _, ns in self.blocks.get(undisturbed, [])]


def _median(values: list[int]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
