"""Times the program's steps with the host's clock."""

from __future__ import annotations

import time


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

    def mean_ns(self, undisturbed: bool) -> int | None:
        """Mean step time of a completed block, or None."""
        times = [ns for _, ns in self.blocks.get(undisturbed, [])]
        return round(sum(times) / len(times)) if times else None
