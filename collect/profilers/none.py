"""No profiler: the undisturbed baseline. Only the step metrics are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collect.injected.step_blocks import FULL, UNDISTURBED
from collect.profilers.base import NoOptions, WorkerRecorder
from collect.profilers.block_profiler import BlockProfiler


class NoProfiler(BlockProfiler[NoOptions]):
    """Runs the command without a profiler, and times its steps."""

    name = "none"
    Options = NoOptions

    @property
    def kind(self) -> str:  # type: ignore[override]
        """A program's steps are undisturbed steps; a built-in model's are the profiled steps."""
        return UNDISTURBED if self.options.program else FULL

    def steps(self) -> tuple[int, int, int]:
        """Return the lengths of the blocks: undisturbed, GPU only, full."""
        o = self.options
        return (o.steps if o.undisturbed is None else o.undisturbed) if o.warmup > 1 else 0, 0, 0

    def recorder(self, folder: Path, rank: int, wait: Callable[[], object]) -> WorkerRecorder:
        """Return a recorder that records nothing."""
        return WorkerRecorder()

    def finish(self, folder: Path, log: str) -> None:
        """Do nothing: there is no recording."""

    def record(self) -> dict[str, Any]:
        """Return the options of the blocks, of a program."""
        return super().record() if self.options.program else {}


PROFILER = NoProfiler
