"""The options of `collect run`: one frozen struct, shared by the command line, the plans of sweeps and the worker.

The workload's options are in schemas/workload.py, a profiler's in its module (collect/profilers/).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from schemas.option_declaration import Option
from schemas.workload import Workload

RECORDING = "Recording"


class RunOptions(Workload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run, and under which profilers. Field names are the option names with `_` for `-`."""

    profiler: Annotated[
        tuple[str, ...], Option("{choices}; several, separated by commas, run one after the other.", RECORDING)
    ] = ("torch",)
    undisturbed: Annotated[
        int | None,
        Option(
            "Steps to time before the profiler starts, to measure its overhead. Default: as many as --steps.",
            RECORDING,
            least=0,
        ),
    ] = None
    output: Annotated[str, Option("Folder in which to create the run folder.", RECORDING, short="-o")] = "runs"
    gpu_samples: Annotated[
        int,
        Option(
            "Samples per second of the GPUs' clocks, power, memory and activity under torch and none, for ten minutes, "
            "then one per second. 0: no samples.",
            RECORDING,
            least=0,
            most=100,
        ),
    ] = 20
    job: Annotated[
        str | None,
        Option(
            "Name of a job on several nodes, the same on each: their recordings form one run. Default: Slurm's job and "
            "step if srun starts several tasks.",
            RECORDING,
        ),
    ] = None
    echo: Annotated[
        bool | None, Option("Show the workload's output. Default: only for a program of your own.", RECORDING)
    ] = None
    keep_report: Annotated[
        bool,
        Option("Keep the .nsys-rep and .ncu-rep next to their exports; they contain the whole environment.", RECORDING),
    ] = False

    profiling: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of the profilers, by name, as far as they were set; each profiler takes its own."""
    program: tuple[str, ...] = ()
    """The user's own command, run instead of a model."""

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self.gpus if self.parallel == "ddp" else 1

    @property
    def undisturbed_steps(self) -> range:
        """Steps, counted from 0, that are timed before the profiler starts.

        They precede the last warm-up step, in which the profiler already runs. There are none unless a step before them
        warms the program up, and none if nothing is recorded.
        """
        before = self.warmup - 1
        if before < 1 or set(self.profiler) <= {"none"}:
            return range(0)
        return range(before, before + (self.steps if self.undisturbed is None else self.undisturbed))

    @property
    def first_profiled(self) -> int:
        """The first profiled step, counted from 0; warm-up and undisturbed steps precede it."""
        return self.warmup + len(self.undisturbed_steps)

    @property
    def all_steps(self) -> int:
        """Steps of a pass: warm-up, undisturbed and profiled ones."""
        return self.first_profiled + self.steps
