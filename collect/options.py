"""The options of `collect run`: one frozen struct, shared by the command line, the sweep plan and the worker.

Those of the workload are in schemas/workload.py, those of one profiler in its module (collect.profilers).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from schemas.options import Option
from schemas.workload import Workload

RECORDING = "Recording"


class RunOptions(Workload, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to train, how, and under which profilers. Field names are the option names with `_` for `-`."""

    profiler: Annotated[
        tuple[str, ...], Option("One of {choices}, or several with commas: one pass each.", RECORDING)
    ] = ("torch",)
    undisturbed: Annotated[
        int | None,
        Option(
            "Steps timed before the profiler starts, to say what recording costs; by default as many as --steps.",
            RECORDING,
            least=0,
        ),
    ] = None
    output: Annotated[str, Option("Folder that the run folder is made in.", RECORDING, short="-o")] = "runs"
    job: Annotated[
        str | None,
        Option(
            "Name of a job on several nodes, the same on each: what each node's collect records is one run. By default "
            "Slurm's job and step where srun starts several.",
            RECORDING,
        ),
    ] = None
    echo: Annotated[
        bool | None, Option("Show what the workload prints; by default for a program of your own.", RECORDING)
    ] = None
    keep_report: Annotated[
        bool,
        Option("Keep the .nsys-rep and .ncu-rep beside their exports; they hold the whole environment.", RECORDING),
    ] = False

    profiling: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of single profilers, by name, as far as they were given; a profiler picks its own."""
    program: tuple[str, ...] = ()
    """The user's own command, run instead of a model."""

    @property
    def world_size(self) -> int:
        """Training processes."""
        return self.gpus if self.parallel == "ddp" else 1

    @property
    def undisturbed_steps(self) -> range:
        """Steps, counted from 0, that are timed before the profiler starts.

        They stand before the last warm-up step, which already runs with the profiler on; there are none without a step
        before them that warms the program up, nor in a run that nothing records.
        """
        before = self.warmup - 1
        if before < 1 or set(self.profiler) <= {"none"}:
            return range(0)
        return range(before, before + (self.steps if self.undisturbed is None else self.undisturbed))

    @property
    def first_profiled(self) -> int:
        """The first profiled step, counted from 0; before it are the warm-up and the undisturbed steps."""
        return self.warmup + len(self.undisturbed_steps)

    @property
    def all_steps(self) -> int:
        """Steps of a pass: warm-up, undisturbed and profiled ones."""
        return self.first_profiled + self.steps
