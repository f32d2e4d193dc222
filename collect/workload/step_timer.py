"""Marks and times the phases of a training step, without synchronising the GPU inside the step.

A phase is a `record_function` range and an NVTX range of the same name (schemas/phases.py). Times are:

- On the CPU, and always for `data`: the wall clock of this thread.
- On a GPU: a pair of CUDA events on the current stream, read after the last step. A phase's time is the stream's time
  between them, waits for launches included.
- For a step on a GPU: from the event before its `data` phase to the event after its `optimizer` phase. The first event
  completes when the GPU has finished the previous step. So step times are GPU times if the GPU is the bottleneck, host
  times if the host is, and over many steps they add up to the elapsed time. Phases need not add up to the step: the
  host waits for data while the GPU still works.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collect.injected.step_blocks import UNDISTURBED
from schemas.files import part_file
from schemas.phases import PHASES, STEP_RANGE
from schemas.recorded_tables import STEP_METRICS_CSV

_BOOLS = {True: "true", False: "false"}

PhaseHook = Callable[[str, bool], None]
"""Called with a phase's name, and True before it, False after it."""


class _Step:
    """What was measured of one step; times are ns, or pairs of CUDA events."""

    def __init__(self, index: int, block: str | None) -> None:
        self.index = index
        self.block = block
        self.wall_ns: dict[str, int] = {}
        self.events: dict[str, tuple[Any, Any]] = {}
        self.images = 0
        self.loss: Any = None
        self.memory: tuple[int, int] | None = None
        self.finished = False


class StepTimer:
    """Phases and times of the steps of one process.

    `gpus` are the indices of the GPUs that this process uses, empty on the CPU. `hook` is called around each phase.
    """

    def __init__(self, gpus: list[int], hook: PhaseHook) -> None:
        import torch

        self._torch = torch
        self._gpus = gpus
        self._hook = hook
        # Every CUDA build of torch has NVTX, which costs next to nothing unless a profiler records it.
        self._nvtx = torch.cuda.nvtx if torch.version.cuda else None
        self._steps: list[_Step] = []

    @contextmanager
    def step(self, index: int, block: str | None) -> Iterator[None]:
        """Time a step. `index` counts from 0 over all steps; `block` is the kind of its block, None in the warm-up."""
        step = _Step(index, block)
        self._steps.append(step)
        if self._nvtx:
            self._nvtx.range_push(STEP_RANGE)
        try:
            with self._timed(STEP_RANGE, on_gpu=bool(self._gpus)):
                yield
        finally:
            if self._nvtx:
                self._nvtx.range_pop()
        if self._gpus:
            # Counters of the allocator: reading them does not involve the GPU.
            cuda = self._torch.cuda
            step.memory = (
                sum(cuda.max_memory_allocated(g) for g in self._gpus),
                sum(cuda.max_memory_reserved(g) for g in self._gpus),
            )
        step.finished = True

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark and time a phase of the current step; `name` is one of schemas.phases.PHASES."""
        self._hook(name, True)
        if self._nvtx:
            self._nvtx.range_push(name)
        try:
            with (
                self._torch.profiler.record_function(name),
                self._timed(name, on_gpu=bool(self._gpus) and name != "data"),
            ):
                yield
        finally:
            if self._nvtx:
                self._nvtx.range_pop()
            self._hook(name, False)

    @contextmanager
    def _timed(self, name: str, on_gpu: bool) -> Iterator[None]:
        step = self._steps[-1]
        if on_gpu:
            start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            step.events[name] = (start, end)
        else:
            begin = time.perf_counter_ns()
            yield
            step.wall_ns[name] = time.perf_counter_ns() - begin

    def result(self, loss: Any, images: int) -> None:
        """Set the current step's loss (a tensor, left on its device until the end) and number of images."""
        self._steps[-1].loss = loss.detach()
        self._steps[-1].images = images

    def rows(self, rank: int, kind: str) -> list[dict[str, Any]]:
        """Return a row of the step_metrics table for each finished step but those of recorded blocks of another kind.

        All before the block of this kind is its warm-up. Waits for the GPU.
        """
        if self._gpus:
            self._torch.cuda.synchronize()
        kinds = (None, UNDISTURBED, kind)
        return [self._row(step, rank, kind) for step in self._steps if step.finished and step.block in kinds]

    def _row(self, step: _Step, rank: int, kind: str) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(STEP_METRICS_CSV, "")
        row.update(rank=rank, step=step.index, images=step.images)
        row.update(warmup=_BOOLS[step.block != kind], undisturbed=_BOOLS[step.block == UNDISTURBED])
        for name in (*PHASES, STEP_RANGE):
            if name in step.wall_ns:
                row[f"{name}_s"] = f"{step.wall_ns[name] / 1e9:.9f}"
            elif name in step.events:
                start, end = step.events[name]
                row[f"{name}_s"] = f"{start.elapsed_time(end) / 1e3:.9f}"
        if step.loss is not None:
            row["loss"] = repr(float(step.loss))
        if step.memory is not None:
            row["max_allocated_bytes"], row["max_reserved_bytes"] = step.memory
        return row


def median_step_ns(rows: list[dict[str, Any]], undisturbed: bool) -> int | None:
    """Median time of the undisturbed, or else of the profiled, steps among rows of step_metrics; None without any."""
    wanted = {"warmup": _BOOLS[undisturbed], "undisturbed": _BOOLS[undisturbed]}
    times = [float(row["step_s"]) for row in rows if wanted.items() <= row.items()]
    return round(statistics.median(times) * 1e9) if times else None


def write_step_metrics(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as CSV with the header STEP_METRICS_CSV; the file appears once it is complete."""
    with part_file(path) as part, part.open("w", newline="", encoding="utf-8") as f:
        out = csv.DictWriter(f, STEP_METRICS_CSV, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
