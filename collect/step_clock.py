"""Times of a program's steps, by the host's clock.

Uses the standard library alone; see collect.attach for why.
"""

from __future__ import annotations

import time


class StepClock:
    """Times blocks of steps by the host's clock. A block begins and ends with idle GPUs, and nothing waits inside it.

    So a step's own time is that in which the program issued it, and the mean over a block is that in which it ran.
    """

    def __init__(self) -> None:
        """No block is under way."""
        self.blocks: dict[bool, list[tuple[int, int]]] = {}
        """Whole blocks: (number of the step, ns), by whether they are the undisturbed ones."""
        self._steps: list[tuple[int, int]] | None = None
        self._undisturbed = False
        self._last_ns = 0

    def start(self, undisturbed: bool) -> None:
        """A block begins."""
        self._steps, self._undisturbed = [], undisturbed
        self._last_ns = time.perf_counter_ns()

    def step(self, number: int, last: bool) -> None:
        """A step has ended; with `last`, so has the block. Nothing if none is under way."""
        if self._steps is None:
            return
        now = time.perf_counter_ns()
        self._steps.append((number, now - self._last_ns))
        self._last_ns = now
        if last:
            self.blocks[self._undisturbed], self._steps = self._steps, None

    def mean_ns(self, undisturbed: bool) -> int | None:
        """Mean time of a step of a block; None if it is not whole."""
        times = [ns for _, ns in self.blocks.get(undisturbed, [])]
        return round(sum(times) / len(times)) if times else None
