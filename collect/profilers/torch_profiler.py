"""torch.profiler: a Chrome trace and key_averages() of the profiled steps for each rank."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from collect.injected.marks import cause
from collect.injected.trace_files import write_recording
from collect.options import RunOptions
from collect.profilers.base import Profiler, Recorder
from schemas.errors import MachineError
from schemas.option_declaration import Option

PANEL = "torch.profiler"
Detail = Literal["light", "shapes", "full"]
SITE_FOLDER = Path(__file__).resolve().parent.parent / "injected" / "site"


class TorchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to record besides events."""

    detail: Annotated[
        Detail, Option("{choices}: operators only, with input shapes, or with all that the options below add.", PANEL)
    ] = "shapes"
    shapes: Annotated[bool | None, Option("Record operator input shapes. Default: from --detail.", PANEL)] = None
    memory: Annotated[bool | None, Option("Record allocations. Default: from --detail.", PANEL)] = None
    stacks: Annotated[bool | None, Option("Record Python stacks. Default: from --detail.", PANEL)] = None
    flops: Annotated[bool | None, Option("Estimate FLOPs of operators. Default: from --detail.", PANEL)] = None
    memory_timeline: Annotated[
        bool, Option("Write a memory timeline; implies --shapes, --memory and --stacks.", PANEL)
    ] = False

    step_function: Annotated[
        str | None,
        Option(
            "The function of a program whose calls are its steps, as MODULE:FUNCTION or MODULE:CLASS.METHOD; "
            "torch.nn:Module.__call__ counts outermost calls of modules. Default: steps of the first optimizer.",
            PANEL,
        ),
    ] = None
    max_events: Annotated[
        int | None,
        Option(
            "End the recording of a program after about this many events; the program goes on. Default: 100000 without "
            "steps, 1000000 in steps.",
            PANEL,
            least=1,
        ),
    ] = None
    seconds: Annotated[
        int,
        Option(
            "End the recording of a program after this time; the program goes on. Begins anew at the first call of a "
            "module.",
            PANEL,
            least=1,
        ),
    ] = 60

    def recorded(self) -> dict[str, bool]:
        """Whether shapes, memory, stacks and flops are recorded: as their option says, else as `detail` does."""
        full = self.detail == "full"
        by_detail = {"shapes": self.detail != "light", "memory": full, "stacks": full, "flops": full}
        by_option = {name: getattr(self, name) for name in by_detail}
        timeline = dict.fromkeys(("shapes", "memory", "stacks"), True) if self.memory_timeline else {}
        return by_detail | {name: value for name, value in by_option.items() if value is not None} | timeline


class TorchRecorder(Recorder):
    """Records the profiled steps. The profiler starts in the last warm-up step, so its slow start is not recorded."""

    def __init__(self, options: RunOptions, own: TorchOptions, folder: Path, rank: int) -> None:
        """Write the files of `rank` into `folder`."""
        self._options = options
        self._own = own
        self._folder = folder
        self._rank = rank
        self._profile: Any = None
        self._recorded: Any = None

    def before_step(self, index: int) -> None:
        """Start before step 0, so that ProfilerStep#N is step N of the step metrics; advance before other steps."""
        if self._profile is None:
            self._profile = self._create()
            self._profile.start()
        else:
            self._profile.step()

    def _create(self) -> Any:
        from torch.profiler import ProfilerActivity, profile, schedule

        o, own = self._options, self._own.recorded()
        activities = [ProfilerActivity.CPU]
        if o.device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        warmup = min(o.warmup, 1)
        return profile(
            activities=activities,
            schedule=schedule(wait=o.first_profiled - warmup, warmup=warmup, active=o.steps, repeat=1),
            record_shapes=own["shapes"],
            profile_memory=own["memory"],
            with_stack=own["stacks"],
            with_flops=own["flops"],
        )

    def after_steps(self) -> None:
        """Close the last ProfilerStep range, so that it does not include the wait for the GPU."""
        last = self._profile.step_rec_fn
        if last is not None:
            last.__exit__(None, None, None)
            self._profile.step_rec_fn = None

    def stop(self) -> None:
        """Stop the profiler. After a failure before the profiled steps there is nothing to write."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        recording = profile.current_action.name in ("RECORD", "RECORD_AND_SAVE")
        profile.stop()
        self._recorded = profile if recording else None

    def write(self) -> None:
        """Write the trace and key_averages() of the recorded steps."""
        if self._recorded is not None:
            write_recording(self._recorded, self._folder, f"rank-{self._rank}", self._own.memory_timeline)


class TorchProfiler(Profiler[TorchOptions]):
    """Profiles inside the worker, or attaches to the user's Python program."""

    name = "torch"
    follows_steps = True
    samples_gpus = True
    _work: Path | None = None
    """Where processes of the user's program leave their marks."""
    Options = TorchOptions
    kinds: ClassVar = {
        ".trace.json.gz": "chrome_trace",
        ".key_averages.csv": "key_averages",
        ".memory_timeline.json.gz": "memory_timeline",
    }

    def environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        """For the user's program: make Python import collect/injected at start-up."""
        if not self.options.program:
            return {}
        o, own = self.options, self.own
        settings = {
            "folder": str(folder.resolve()),
            "work": str(scratch),
            "steps": o.steps,
            "warmup": o.warmup,
            "undisturbed": len(o.undisturbed_steps),
            **own.recorded(),
            "memory_timeline": own.memory_timeline,
            "step_function": own.step_function,
            "max_events": own.max_events,
            "seconds": own.seconds,
        }
        self._work = scratch
        path = os.pathsep.join(filter(None, (str(SITE_FOLDER), os.environ.get("PYTHONPATH"))))
        return {
            "PYTHONPATH": path,
            "TRACEQUARRY_ATTACH": json.dumps(settings),
            # Kineto writes 5 to 7 lines of its own to the program's stderr; this level is above all of them.
            "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),
        }

    def recorder(self, folder: Path, rank: int) -> Recorder:
        """Return a recorder for this process."""
        return TorchRecorder(self.options, self.own, folder, rank)

    def finish(self, folder: Path, log: str) -> None:
        """Check that there is a trace."""
        if not any(folder.glob("rank-*.trace.json.gz")):
            why = f": {cause(self._work)}" if self._work else ""
            raise MachineError(f"no trace was recorded{why}")

    def record(self) -> dict[str, Any]:
        """Return what was recorded besides events."""
        o = self.options
        return {
            **msgspec.structs.asdict(self.own),
            **self.own.recorded(),
            # The requested steps of the user's program; those that were counted are in Pass.counted_steps.
            **({"steps": o.steps, "warmup": o.warmup} if o.program else {}),
            "undisturbed": len(o.undisturbed_steps),
        }


PROFILER = TorchProfiler
