"""What the profilers that record blocks of steps have in common: torch, gpu and none.

In the user's program they attach to each Python process (collect/injected); in the worker of a built-in model they are
called around the steps.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collect.injected.gpu_session import open_session
from collect.injected.marks import cause
from collect.injected.session import BlockSession
from collect.injected.step_blocks import UNDISTURBED, Block, Blocks, plan
from collect.profilers.base import Own, Profiler, WorkerRecorder
from schemas.errors import MachineError

SITE_FOLDER = Path(__file__).resolve().parent.parent / "injected" / "site"
NOTHING = dict.fromkeys(
    ("shapes", "memory", "stacks", "flops", "memory_timeline", "memory_history", "oom_snapshot", "compile_log"), False
)
"""What torch.profiler records besides events, by option; here nothing."""


class BlockRecorder(WorkerRecorder):
    """Records blocks in the worker. `ProfilerStep#N` is step N of the step metrics."""

    def __init__(
        self,
        blocks: list[Block],
        settings: dict[str, Any],
        folders: dict[str, Path],
        rank: int,
        wait: Callable[[], object],
    ) -> None:
        """Record `blocks` into their `folders`, by kind. `wait` waits for all ranks."""
        self._settings = settings
        self._folders = folders
        self._stem = f"rank-{rank}"
        self._done = 0
        self._wait = wait
        # The barrier is an operator.
        self._blocks = Blocks(self._open, self._block_ended, self._wait_for_ranks, waits_are_recorded=True)
        self._blocks.add(*blocks)
        self._recorded: list[Block] = []
        self._last: Block | None = None
        """The last block, to be written after the step metrics."""

    def before_step(self, index: int) -> None:
        """End the previous step, and the block that it was the last of."""
        self._done = index
        self._blocks.step_ended(index)

    def after_steps(self) -> None:
        """End the last step."""
        self._done += 1
        self._blocks.step_ended(self._done)

    def stop(self) -> None:
        """After a failure, write what was recorded up to then."""
        self._blocks.end_early(self._done)

    @property
    def recorded(self) -> dict[str, Block]:
        """The blocks that were recorded, by kind."""
        return {block.kind: block for block in self._recorded}

    def _open(self, block: Block, step: int) -> BlockSession:
        return open_session(block.kind, self._settings, step, step < block.first)

    def _wait_for_ranks(self, barrier: str) -> None:
        self._wait()

    def _block_ended(self, block: Block) -> None:
        if not self._blocks.waiting:
            self._last = block
        elif not self._write_block(block):
            return
        self._recorded.append(block)

    def _write_block(self, block: Block) -> bool:
        if not block.session or not block.clock:
            return False
        steps = block.clock.ranges()[: block.counted_steps]
        return block.session.write(self._folders[block.kind], self._stem, steps, block.unfinished)

    def write(self) -> None:
        """Write the last block."""
        if self._last:
            self._write_block(self._last)


class BlockProfiler(Profiler[Own], ABC):
    """Attaches to the user's Python program, or records inside the worker."""

    follows_steps = True
    samples_node = True
    _work: Path | None = None
    """Where processes of the user's program leave their marks."""

    @abstractmethod
    def steps(self) -> tuple[int, int, int]:
        """Return the lengths of the blocks: undisturbed, GPU only, full."""

    def settings(self) -> dict[str, Any]:
        """Return what torch.profiler records besides events."""
        return NOTHING

    def config(self, folder: Path, scratch: Path) -> dict[str, Any]:
        """Return what collect/injected has to know."""
        o = self.options
        undisturbed, gpu_steps, steps = self.steps()
        return {
            "kind": self.kind,
            "folders": {kind: str(path.resolve()) for kind, path in self.folders(folder).items()},
            "work": str(scratch),
            "warmup": o.warmup,
            "undisturbed": undisturbed,
            "gpu_steps": gpu_steps,
            "steps": steps,
            **self.settings(),
            "step_function": o.step_function,
            "max_events": o.max_events,
            "seconds": o.seconds,
            "rules": o.rules,
        }

    def environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        """For the user's program: make Python import collect/injected at start-up."""
        if not self.options.program:
            return {}
        self._work = scratch
        path = os.pathsep.join(filter(None, (str(SITE_FOLDER), os.environ.get("PYTHONPATH"))))
        return {
            "PYTHONPATH": path,
            "TRACEQUARRY_ATTACH": json.dumps(self.config(folder, scratch)),
            # Kineto writes 5 to 7 lines of its own to the program's stderr; this level is above all of them.
            "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),
        }

    def recorder(self, folder: Path, rank: int, wait: Callable[[], object]) -> WorkerRecorder:
        """Return a recorder for this process."""
        undisturbed, gpu_steps, steps = self.steps()
        blocks = [b for b in plan(self.options.warmup, undisturbed, gpu_steps, steps) if b.kind != UNDISTURBED]
        settings = {**self.settings(), "max_events": self.options.max_events, "seconds": self.options.seconds}
        return BlockRecorder(blocks, settings, self.folders(folder), rank, wait)

    def finish(self, folder: Path, log: str) -> None:
        """Check that there is a trace."""
        if not any(folder.glob("rank-*.trace.json.gz")):
            why = f": {cause(self._work)}" if self._work else ""
            raise MachineError(f"no trace was recorded{why}")

    def record(self) -> dict[str, Any]:
        """Return the options of the blocks."""
        o = self.options
        own = {
            "step_function": o.step_function,
            # The requested steps of the user's program; those that were counted are in Pass.counted_steps.
            "steps": o.profiled_steps(self.name),
            "warmup": o.warmup,
        }
        bounds = {"max_events": o.max_events, "seconds": o.seconds}
        return {**(own if o.program else {}), **bounds, "undisturbed": self.steps()[0]}
