"""The interface of a profiler.

A profiler's module holds all that is special to it: its options, the files it writes, the tool it needs, and what it
does not support. Its `Profiler` runs in the `collect` process, which never imports torch: it wraps the command and
completes the files. Its `WorkerRecorder` runs in the worker, around the training steps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from collect.injected import flight_recorder
from collect.injected.step_blocks import FULL, Block
from collect.options import RunOptions
from schemas import isolation
from schemas.errors import MachineError
from schemas.manifest import RunFile
from schemas.option_declaration import declared
from schemas.tools import Tool

EVERY_PASS = {
    ".step_metrics.csv": "step_metrics",
    ".gpu_samples.csv": "gpu_samples",
    ".host_samples.csv": "host_samples",
    "log.txt": "log",
    flight_recorder.NAME: "flight_recorder",
}
"""Files of every pass: name ending, before a rank -> `RunFile.kind` of run.json."""

Own = TypeVar("Own", bound=msgspec.Struct)


class NoOptions(msgspec.Struct, frozen=True):
    """For a profiler without options."""


class WorkerRecorder:
    """The worker's side of a profiler. This base class records nothing."""

    shared = False
    """All ranks share one recording, so none may stop it before the others have finished."""
    distorts_time = False
    """Steps take so much longer that their times are meaningless and not written."""

    def before_step(self, index: int) -> None:
        """Called before each step; `index` counts from 0 over all steps."""

    def phase(self, name: str, begins: bool) -> None:
        """Called before and after each phase of a step."""

    def after_steps(self) -> None:
        """Called right after the last step, before anything waits for the GPU."""

    def stop(self) -> None:
        """Called when the GPU has finished the last step, after a failure, or both."""

    def write(self) -> None:
        """Write the recording. Called once, after stop()."""

    @property
    def recorded(self) -> dict[str, Block]:
        """The blocks of steps that were recorded, by kind; none if this does not record blocks."""
        return {}


class Profiler(Generic[Own]):
    """The `collect` side of a profiler. This base class does not change the command."""

    name: str
    Options: type[Own]
    """The profiler's options, each declared by an `Option` of schemas. Their names are unique over all profilers."""
    tool: Tool | None = None
    """The program that it runs."""
    follows_steps = False
    """Records --steps steps of the user's program, and not the whole."""
    samples_node = False
    """Whether the state of GPUs and host is sampled during the pass."""
    kind = FULL
    """The block of steps that it records (collect/injected/step_blocks.py)."""
    kinds: ClassVar[Mapping[str, str]] = {}
    """Files that it writes: name ending -> `RunFile.kind` of run.json."""

    def __init__(self, options: RunOptions) -> None:
        """Take the options; prepare() looks up the tool."""
        self.options = options
        values = {n: v for n, v in options.profiling.items() if n in declared(self.Options)}
        self.own = msgspec.convert(values, self.Options)

    def unsupported(self) -> str | None:
        """Say why the built-in workload cannot run under it with these options; None if it can."""
        return None

    def prepare(self) -> list[str]:
        """Look up the tool, and return notes for the user. Raises MachineError."""
        return []

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """Return the command that runs `argv` under the profiler and writes into `folder`."""
        return argv

    def environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        """Return variables to add to the command's environment."""
        return {}

    def recorder(self, folder: Path, rank: int, wait: Callable[[], object]) -> WorkerRecorder:
        """Return the worker's side, which writes into `folder`; `wait` waits for all ranks."""
        return WorkerRecorder()

    def explain(self, log: str) -> str | None:
        """Describe the failure that the profiler itself printed, if any."""
        return None

    def finish(self, folder: Path, log: str) -> None:
        """Complete the files after the command has ended (exports). Raises MachineError if there is no recording."""

    def record(self) -> dict[str, Any]:
        """Return the profiler's options for the manifest."""
        return {}

    def other_passes(self) -> list[Profiler[Any]]:
        """Return the profilers whose passes are recorded by the same processes, each in a block of its own."""
        return []

    def folders(self, folder: Path) -> dict[str, Path]:
        """Return the folder of each kind of block; `folder` is the pass's."""
        others = {other.kind: folder.parent / other.name for other in self.other_passes()}
        return {**others, self.kind: folder}


def list_files(run_folder: Path, pass_folder: Path, kinds: Mapping[str, str]) -> list[RunFile]:
    """List the files of a pass with their kinds and ranks, without temporary ones."""
    endings = {**kinds, **EVERY_PASS}
    files = []
    for path in sorted(pass_folder.iterdir()):
        name = re.sub(r"(?<=_rank_)\d+$", "", path.name)
        kind = next((k for s, k in endings.items() if name.endswith(s) and not name.startswith(".")), None)
        if kind is None or not path.is_file():
            continue
        rank = re.match(r"rank-(\d+)\.", path.name) or re.search(r"_rank_(\d+)$", path.name)
        files.append(RunFile(path=str(path.relative_to(run_folder)), kind=kind, rank=int(rank[1]) if rank else None))
    return files


def find_tool(tool: Tool) -> str:
    """Return the path of a profiler's program. Raises MachineError if it is missing."""
    found = tool.find()
    if found is None:
        raise MachineError(
            f"{tool.name} is not installed or not on PATH; install {tool.product} ({tool.url}) or set {tool.variable} "
            "to its path"
        )
    return found


def tool_output(argv: list[str], timeout_s: float = 120.0) -> str:
    """Return stdout and stderr of a tool, for example of --help. Raises MachineError if it cannot run."""
    try:
        done = isolation.run_tool(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise MachineError(f"{argv[0]} does not run: {e}") from e
    return done.stdout + done.stderr


def run_tool(argv: list[str], purpose: str, timeout_s: float = 3600.0) -> str:
    """Run a tool to its end and return its stdout; paths must be absolute.

    Raises MachineError with the last line that the tool printed.
    """
    try:
        done = isolation.run_tool(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise MachineError(f"{purpose} failed: {e}") from e
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
        raise MachineError(f"{purpose} failed with exit code {done.returncode}: {lines[-1].strip()}")
    return done.stdout
