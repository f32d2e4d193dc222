"""The options of `collect run`: one frozen struct, shared by the command line, the plans of sweeps and the worker.

The workload's options are in schemas/workload.py, a profiler's in its module (collect/profilers/).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from schemas.option_declaration import Option
from schemas.workload import Workload

RECORDING, PROGRAM = "Recording", "A program of your own"
WATCHING = "Recording in a long job"


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
    gpu_steps: Annotated[
        int | None,
        Option(
            "Steps to record GPU-only (kernels, copies and fills) before the full recording by torch. This hardly "
            "slows the program down. Default: as many as --steps on a GPU. 0: none.",
            RECORDING,
            least=0,
        ),
    ] = None
    output: Annotated[str, Option("Folder in which to create the run folder.", RECORDING, short="-o")] = "runs"
    max_events: Annotated[
        int | None,
        Option(
            "Stop recording by torch after about this many events; the program goes on. Default: 100000 without "
            "steps, 1000000 in steps.",
            RECORDING,
            least=1,
        ),
    ] = None
    seconds: Annotated[
        int,
        Option(
            "Stop recording by torch or gpu after this many seconds; the program goes on. The count restarts at the "
            "first module call.",
            RECORDING,
            least=1,
        ),
    ] = 60
    gpu_samples: Annotated[
        int,
        Option(
            "Samples per second of GPU clocks, power, memory and activity, and of the host's CPUs and memory "
            "(profilers torch and none); after ten minutes, one per second. 0: no samples.",
            RECORDING,
            least=0,
            most=100,
        ),
    ] = 20
    job: Annotated[
        str | None,
        Option(
            "Name of a job on several nodes, the same on every node. Their recordings form one run. Default: Slurm's "
            "job and step if srun starts several tasks.",
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

    directory: Annotated[str | None, Option("Folder to run the program in. Default: the current one.", PROGRAM)] = None
    step_function: Annotated[
        str | None,
        Option(
            "The function of a program whose calls are its steps, as MODULE:FUNCTION or MODULE:CLASS.METHOD; "
            "torch.nn:Module.__call__ counts outermost calls of modules. Default: steps of the first optimizer.",
            PROGRAM,
        ),
    ] = None

    on_demand: Annotated[
        bool,
        Option(
            "Record --steps steps each time that `collect trigger RUN` is run, SIGUSR2 arrives, or RUN/trigger is "
            "touched.",
            WATCHING,
        ),
    ] = False
    when: Annotated[
        str | None,
        Option(
            "Record after slow steps: 'step > 1.5 x median' or 'step > 200 ms'; add 'for 3 steps' for 3 in a row.",
            WATCHING,
        ),
    ] = None
    slowest: Annotated[
        int | None,
        Option("Record after slow steps; retain the recordings of this many slowest steps.", WATCHING, least=1),
    ] = None
    every: Annotated[int | None, Option("Record once in this many steps.", WATCHING, least=1)] = None
    at_step: Annotated[str | None, Option("Record these steps: FIRST..LAST.", WATCHING)] = None
    keep: Annotated[int, Option("Recordings to retain; the oldest are deleted.", WATCHING, least=1)] = 20

    profiling: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options of the profilers, by name, as far as they were set; each profiler takes its own."""
    program: tuple[str, ...] = ()
    """The user's own command, run instead of a model."""

    @property
    def rules(self) -> dict[str, Any] | None:
        """When to record repeatedly, for collect/injected/step_rules.py; None: once."""
        rules = {"when": self.when, "slowest": self.slowest, "every": self.every, "at_step": self.at_steps}
        return rules if self.on_demand or any(rules.values()) else None

    @property
    def at_steps(self) -> tuple[int, int] | None:
        """The first and last step of --at-step. Raises ValueError."""
        if self.at_step is None:
            return None
        first, last = map(int, self.at_step.split(".."))
        return first, last

    @property
    def world_size(self) -> int:
        """Number of training processes."""
        return self.gpus if self.parallel == "ddp" else 1

    @property
    def undisturbed_steps(self) -> range:
        """Steps, counted from 0, that are timed before a recorder starts.

        They precede the last warm-up step, in which the recorder already runs. There are none unless a step before them
        warms the program up, and none if nothing is recorded.
        """
        before = self.warmup - 1
        if before < 1 or set(self.profiler) <= {"none"}:
            return range(0)
        return range(before, before + (self.steps if self.undisturbed is None else self.undisturbed))

    @property
    def gpu_only_steps(self) -> int:
        """Number of steps to record GPU only; 0 without a GPU, or without a step before them."""
        if self.device != "cuda" or not self.warmup:
            return 0
        return self.steps if self.gpu_steps is None else self.gpu_steps

    @property
    def gpu_block_steps(self) -> int:
        """Number of steps that each pass of several blocks records GPU only; 0 if they are a pass of their own."""
        return self.gpu_only_steps if "torch" in self.profiler and "gpu" not in self.profiler else 0

    @property
    def first_profiled(self) -> int:
        """The first step, counted from 0, that a profiler records in a pass; the other blocks precede it.

        It is the same for all profilers, so that they record the same steps.
        """
        gpu_block = self.gpu_block_steps
        return self.warmup + len(self.undisturbed_steps) + (gpu_block + 1 if gpu_block else 0)

    def profiled_steps(self, profiler: str) -> int:
        """Number of steps that a profiler records in its pass."""
        return self.gpu_only_steps if profiler == "gpu" else self.steps
