"""GPU only: kernels, copies and fills, by CUPTI's activity records, or by torch.profiler without cupti-python."""

from __future__ import annotations

from typing import ClassVar

from collect.injected import graph_captures
from collect.injected.step_blocks import GPU
from collect.profilers.base import NoOptions
from collect.profilers.block_profiler import BlockProfiler


class GpuProfiler(BlockProfiler[NoOptions]):
    """Records GPU work only; this hardly slows a program down."""

    name = "gpu"
    kind = GPU
    Options = NoOptions
    kinds: ClassVar = {".trace.json.gz": "chrome_trace", graph_captures.SUFFIX: "graph_captures"}

    def steps(self) -> tuple[int, int, int]:
        """Return the lengths of the blocks: undisturbed, GPU only, full."""
        return len(self.options.undisturbed_steps), self.options.gpu_only_steps, 0


PROFILER = GpuProfiler
