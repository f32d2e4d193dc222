"""torch.profiler: a Chrome trace and key_averages() of the profiled steps for each rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.compile_logs import SUFFIX
from collect.injected import graph_captures
from collect.injected.compile_log import LOGS, WORKERS
from collect.profilers.base import Profiler
from collect.profilers.block_profiler import BlockProfiler
from collect.profilers.gpu import GpuProfiler
from schemas.option_declaration import Option

PANEL = "torch.profiler"
Detail = Literal["light", "shapes", "full"]


class TorchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to record besides events."""

    detail: Annotated[
        Detail, Option("{choices}: operators only, with input shapes, or with all that the options below add.", PANEL)
    ] = "shapes"
    shapes: Annotated[bool | None, Option("Record operator input shapes. Default: from --detail.", PANEL)] = None
    memory: Annotated[bool | None, Option("Record allocations. Default: from --detail.", PANEL)] = None
    stacks: Annotated[bool | None, Option("Record Python stacks. Default: from --detail.", PANEL)] = None
    flops: Annotated[bool | None, Option("Estimate FLOPs of operators. Default: from --detail.", PANEL)] = None
    memory_history: Annotated[
        bool,
        Option(
            "Write a memory snapshot at the program's end: the history of allocations with their stacks.",
            PANEL,
        ),
    ] = False
    oom_snapshot: Annotated[bool, Option("Write a memory snapshot when a GPU runs out of memory.", PANEL)] = True
    compile_log: Annotated[
        bool,
        Option("Write torch's log of what torch.compile does (TORCH_TRACE), unless the variable is set.", PANEL),
    ] = True
    memory_timeline: Annotated[
        bool, Option("Write a memory timeline; implies --shapes, --memory and --stacks.", PANEL)
    ] = False

    def recorded(self) -> dict[str, bool]:
        """Whether shapes, memory, stacks and flops are recorded: as their option says, else as `detail` does."""
        full = self.detail == "full"
        by_detail = {"shapes": self.detail != "light", "memory": full, "stacks": full, "flops": full}
        by_option = {name: getattr(self, name) for name in by_detail}
        timeline = dict.fromkeys(("shapes", "memory", "stacks"), True) if self.memory_timeline else {}
        return by_detail | {name: value for name, value in by_option.items() if value is not None} | timeline


class TorchProfiler(BlockProfiler[TorchOptions]):
    """Records operators, CUDA calls and GPU work, after a block of GPU work alone."""

    name = "torch"
    Options = TorchOptions
    kinds: ClassVar = {
        ".trace.json.gz": "chrome_trace",
        graph_captures.SUFFIX: "graph_captures",
        ".key_averages.csv": "key_averages",
        ".memory_timeline.json.gz": "memory_timeline",
        ".memory_snapshot.pickle": "memory_snapshot",
        SUFFIX: "torch_trace",
    }

    def steps(self) -> tuple[int, int, int]:
        """Return the lengths of the blocks: undisturbed, GPU only, full."""
        o = self.options
        return len(o.undisturbed_steps), o.gpu_block_steps, o.steps

    def settings(self) -> dict[str, Any]:
        """Return what torch.profiler records besides events."""
        own = ("memory_timeline", "memory_history", "oom_snapshot")
        return {
            **self.own.recorded(),
            **{name: getattr(self.own, name) for name in own},
            "compile_log": self._logs_compilations,
        }

    @property
    def _logs_compilations(self) -> bool:
        # A job of days would fill the disk.
        return self.own.compile_log and "TORCH_TRACE" not in os.environ and not self.options.rules

    def environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        """Let the workers of a built-in model log what torch.compile does; those of a program attach."""
        logs = {"TORCH_TRACE": str(scratch / LOGS / WORKERS)}
        return {
            **super().environment(folder, scratch),
            **(logs if self._logs_compilations and not self.options.program else {}),
        }

    def other_passes(self) -> list[Profiler[Any]]:
        """Return the GPU-only block."""
        return [GpuProfiler(self.options)] if self.options.gpu_block_steps else []

    def record(self) -> dict[str, Any]:
        """Return what was recorded besides events, and the options of the blocks."""
        return {**msgspec.structs.asdict(self.own), **self.own.recorded(), **super().record()}


PROFILER = TorchProfiler
