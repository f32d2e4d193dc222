"""Runs blocks of steps one after the other: undisturbed, GPU only, full.

Each begins on all ranks together, with idle GPUs, and ends with idle GPUs. A recording starts one step before its
block, so that its slow start (CUPTI, buffers) is over, and is written when its block ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cuda import synchronize, uses_cuda
from .session import BlockSession
from .step_clock import StepClock

UNDISTURBED, GPU, FULL = "undisturbed", "gpu", "full"
NAMES = {UNDISTURBED: "undisturbed", GPU: "GPU only", FULL: "recorded"}
"""Names of blocks in messages."""


@dataclass(eq=False)
class Block:
    """Steps that are recorded in one way, and how their recording went."""

    kind: str
    """UNDISTURBED, GPU or FULL."""
    first: int
    """Number of its first step."""
    steps: int
    session: BlockSession | None = None
    """Its recorder from the warm-up step on; None of undisturbed steps."""
    clock: StepClock | None = None
    """Runs from the start of its first step."""
    warmed_up: bool | None = None
    """Whether its recorder ran, discarding events, for a whole step before the first one."""
    unaligned_reason: str | None = None
    """Why the ranks did not begin it together."""
    counted_steps: int | None = None
    """Steps that were recorded to their end; None of a whole program."""
    unfinished: int | None = None
    """Number of a step that began in the recording and did not end."""

    @property
    def end(self) -> int:
        """The step after its last one."""
        return self.first + self.steps

    def outcome(self, on_gpu: bool, several_ranks: bool) -> dict[str, Any]:
        """Fields of rank_reports.BlockReport."""
        clock = self.clock
        return {
            "kind": self.kind,
            "counted_steps": self.counted_steps,
            "warmed_up": self.warmed_up,
            "aligned": self.unaligned_reason is None if several_ranks and self.clock else None,
            "note": self.unaligned_reason,
            "ended_after": self.session.ended_after if self.session else None,
            "recorder": self.session.recorder if self.session else None,
            "steps": clock.steps if clock and clock.complete else [],
            "step_ns": clock.step_ns(on_gpu) if clock else None,
            "unlike_step": clock.unlike(on_gpu, NAMES[self.kind]) if clock else None,
        }


def plan(warmup: int, undisturbed: int, gpu_steps: int, steps: int) -> list[Block]:
    """Place the blocks. Each recorded one follows a step for its recorder to warm up in; the first of these steps is
    the last of `warmup`. No steps: no block.
    """
    blocks, start = [], warmup - 1
    for kind, length in ((UNDISTURBED, undisturbed), (GPU, gpu_steps), (FULL, steps)):
        if length:
            first = start if kind == UNDISTURBED else start + 1
            blocks.append(Block(kind, first, length))
            start = first + length
    return blocks


class Blocks:
    """Runs blocks in the order of their first steps. More may be added at any time.

    `open_session(block, step)` starts the recorder of a block in `step`: the one before its first, to warm up, or its
    first. `on_end(block)` writes what was recorded. `wait_for_ranks(name)` waits at a barrier that is used once, and
    returns why the ranks did not arrive.
    """

    def __init__(
        self,
        open_session: Callable[[Block, int], BlockSession],
        on_end: Callable[[Block], None],
        wait_for_ranks: Callable[[str], str | None],
        waits_are_recorded: bool = False,
    ) -> None:
        """Start without blocks. `waits_are_recorded`: ranks do not wait while a recording runs."""
        self.waiting: list[Block] = []
        """Blocks that have not ended; the first one may be running."""
        self._open_session = open_session
        self._on_end = on_end
        self._wait_for_ranks = wait_for_ranks
        self._waits_are_recorded = waits_are_recorded

    def add(self, *blocks: Block) -> None:
        """Add blocks whose first steps have not begun, and do not overlap with others."""
        self.waiting = sorted([*self.waiting, *blocks], key=lambda block: block.first)

    @property
    def session(self) -> BlockSession | None:
        """The recorder that is running, or warming up."""
        return self.waiting[0].session if self.waiting else None

    @property
    def running(self) -> Block | None:
        """The block of the current step."""
        return self.waiting[0] if self.waiting and self.waiting[0].clock else None

    def step_ended(self, done: int) -> None:
        """Continue, end, prepare or begin a block after `done` steps."""
        if self.running:
            self._end_step(self.running, done)
        block = self.waiting[0] if self.waiting else None
        if block and not block.clock:
            if done == block.first - 1 and block.kind != UNDISTURBED:
                block.session = self._open_session(block, done)
            elif done == block.first:
                self._begin(block)

    def shorten(self, done: int) -> None:
        """End the running block with step `done`, which ends now; later blocks begin earlier by as many steps."""
        block, *others = self.waiting
        steps = block.end - done
        block.steps -= steps
        for other in others:
            other.first -= steps

    def end_early(self, done: int) -> None:
        """End the running block within step `done`; drop one that has not begun, or has no whole step."""
        if not self.waiting:
            return
        block = self.waiting[0]
        if block.clock and done > block.first:
            block.unfinished = done if block.session and block.session.has_open_step else None
            self._end(block, done - block.first)
        else:
            _stop(block)
            self.waiting.remove(block)

    def _end_step(self, block: Block, done: int) -> None:
        session, is_last = block.session, done == block.end
        if is_last:
            if session:
                session.close_step()
            synchronize()
        if block.clock:
            block.clock.step(done - 1)
        if session and session.ended_after:
            block.unfinished = done - 1  # the bound was reached within it
            self._end(block, done - 1 - block.first)
        elif is_last:
            if block.clock:
                block.clock.end()
            self._end(block, block.steps)
        elif session:
            session.next_step()

    def _begin(self, block: Block) -> None:
        """Begin a block with idle GPUs, and at the same time on all ranks.

        Ranks wait for each other before and after they start to record, because starting takes each a different time.
        Where a recording would contain the second wait (Python stacks), they wait twice before.
        """
        synchronize()
        barrier = f"{block.kind} {block.first}"
        block.unaligned_reason = self._wait_for_ranks(barrier)
        if block.kind != UNDISTURBED:
            if self._waits_are_recorded:
                block.unaligned_reason = self._wait_for_ranks(f"{barrier} started")
            block.warmed_up = block.session is not None
            if block.session:
                block.session.end_warmup()
            else:
                block.session = self._open_session(block, block.first)
            if not self._waits_are_recorded:
                block.unaligned_reason = self._wait_for_ranks(f"{barrier} started")
            block.session.open_step(block.first)
        block.clock = StepClock(on_gpu=block.kind == UNDISTURBED and uses_cuda())

    def _end(self, block: Block, counted_steps: int) -> None:
        block.counted_steps = counted_steps
        _stop(block)
        self.waiting.remove(block)
        self._on_end(block)


def _stop(block: Block) -> None:
    if block.session:
        block.session.close_step()
        synchronize()
        block.session.stop()
