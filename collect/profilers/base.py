"""The interface that every profiler implements: one module each, named in _MODULES.

Its options, the files that it leaves, the program that it needs and what it cannot do stand in its module, too.

A `Profiler` lives in the parent, which never imports torch: it wraps the command and finishes the files. Its
`Recorder` lives in the worker, around the training steps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from collect.errors import ToolError
from collect.options import RunOptions
from schemas import isolation
from schemas.manifest import RunFile
from schemas.options import declared
from schemas.tools import Tool

EVERY_PASS = {".step_metrics.csv": "step_metrics", "log.txt": "log"}
"""Files that a pass leaves under any profiler: ending -> kind in schemas.manifest.FILE_KINDS."""

Own = TypeVar("Own", bound=msgspec.Struct)


class NoOptions(msgspec.Struct, frozen=True):
    """Of a profiler without options of its own."""


class Recorder:
    """The worker's side of a profiler; this one records nothing."""

    shared = False
    """One recording holds all ranks, so that none may stop it before the others have finished."""
    distorts_time = False
    """Steps take so much longer that their times mean nothing, and are not kept."""

    def before_step(self, index: int) -> None:
        """Called before each step; `index` counts from 0 over warm-up and profiled steps."""

    def phase(self, name: str, begins: bool) -> None:
        """Called before and after each phase of a step."""

    def after_steps(self) -> None:
        """Called right after the last step, before anything waits for the GPU."""

    def stop(self) -> None:
        """Called when the GPU has finished the last step, or after a failure, or both."""

    def write(self) -> None:
        """Write what was recorded; called once, after stop()."""


class Profiler(Generic[Own]):
    """The parent's side of a profiler; this one leaves the command as it is."""

    name: str
    Options: type[Own]
    """The profiler's own options, each declared by a schemas.options.Option; their names are unlike all others'."""
    tool: Tool | None = None
    """The program that it needs."""
    kinds: ClassVar[Mapping[str, str]] = {}
    """Files that it leaves: ending -> kind in schemas.manifest.FILE_KINDS."""

    def __init__(self, options: RunOptions) -> None:
        """Take the options; nothing is started or looked up yet."""
        self.options = options
        mine = {n: v for n, v in options.profiling.items() if n in declared(self.Options)}
        self.own = msgspec.convert(mine, self.Options)

    def refuses(self) -> str | None:
        """Why a model cannot be trained under it with these options, in a sentence; None if it can."""
        return None

    def prepare(self) -> list[str]:
        """Look up the tool, and return what the user should be told before the pass. Raises ToolError."""
        return []

    def wrap(self, argv: list[str], folder: Path) -> list[str]:
        """The command that runs `argv` under the profiler and writes into `folder`."""
        return argv

    def environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        """Variables to add to the command's environment."""
        return {}

    def recorder(self, folder: Path, rank: int) -> Recorder:
        """The worker's side, writing into `folder`."""
        return Recorder()

    def explain(self, log: str) -> str | None:
        """The sentence for a failure that the profiler itself printed, if it did."""
        return None

    def finish(self, folder: Path, log: str) -> None:
        """Complete the files after the command has ended (exports). Raises ToolError when there is no recording."""

    def record(self) -> dict[str, Any]:
        """The profiler's own options, for the manifest."""
        return {}


def list_files(run_folder: Path, pass_folder: Path, kinds: Mapping[str, str]) -> list[RunFile]:
    """The files of a pass with their kinds and ranks; half-written ones are not listed."""
    endings = {**kinds, **EVERY_PASS}
    files = []
    for path in sorted(pass_folder.iterdir()):
        kind = next((k for s, k in endings.items() if path.name.endswith(s) and not path.name.startswith(".")), None)
        if kind is None or not path.is_file():
            continue
        rank = re.match(r"rank-(\d+)\.", path.name)
        files.append(RunFile(path=str(path.relative_to(run_folder)), kind=kind, rank=int(rank[1]) if rank else None))
    return files


def need_tool(tool: Tool) -> str:
    """Path of a profiler's program. Raises ToolError, with what to do, when there is none."""
    found = tool.find()
    if found is None:
        raise ToolError(
            f"{tool.name} is not installed or not on PATH; install {tool.product} ({tool.url}) or set {tool.variable} "
            "to its path"
        )
    return found


def ask_tool(argv: list[str], timeout_s: float = 120.0) -> str:
    """What a tool prints (stdout and stderr) for a question such as --help. Raises ToolError when it cannot run."""
    try:
        done = isolation.run_tool(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ToolError(f"{argv[0]} does not run: {e}") from e
    return done.stdout + done.stderr


def run_tool(argv: list[str], purpose: str, timeout_s: float = 3600.0) -> str:
    """Run a tool to its end and return its stdout; paths must be absolute.

    Raises ToolError, with the tool's last line, when it fails.
    """
    try:
        done = isolation.run_tool(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ToolError(f"{purpose} failed: {e}") from e
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["it said nothing"]
        raise ToolError(f"{purpose} failed with exit code {done.returncode}: {lines[-1].strip()}")
    return done.stdout
