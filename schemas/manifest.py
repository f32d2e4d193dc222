"""run.json: the description of a run folder.

`collect` writes it first with status `running` and last with `done` or `failed`, each time atomically. `analyze` reads
it: a new field has a default, and no field is renamed within a version.

A run folder has a subfolder for each profiler pass::

    RUN_ID/run.json
    RUN_ID/PROFILER/rank-N.<kind's suffix>     e.g. torch/rank-0.trace.json.gz, nsys/node-0.sqlite
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from schemas.files import read_bounded, write_synced
from schemas.option_declaration import LARGEST_INT32
from schemas.workload import COLUMNS, OPTIONS, RecordedWorkload, limits_problem

MANIFEST_NAME = "run.json"
MANIFEST_VERSION = 2

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Status = Literal["running", "done", "failed"]

RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def is_run_id(text: str) -> bool:
    """Return whether a text can be a run id: the name of a folder, not a path."""
    return RUN_ID.fullmatch(text) is not None


class ManifestError(Exception):
    """An unusable run.json; the message names the file and the place."""


class RunFile(msgspec.Struct, kw_only=True):
    """A file of a pass; its path is relative to the run folder."""

    path: str
    kind: str
    """What it is: a kind of a profiler of `collect` (`Profiler.kinds`), which `SOURCES` of `analyze` may read."""
    rank: int | None = None


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU of the node, as the driver names it."""

    index: int
    name: str
    compute_capability: str = ""
    memory_bytes: int | None = None
    sm_count: int | None = None


class RankRecording(msgspec.Struct, kw_only=True):
    """How one rank was recorded. Fields that apply to the user's program under torch.profiler are None elsewhere."""

    rank: int
    host: str | None = None
    """Name of the host its process ran on; None if unknown."""
    counted_steps: int | None = None
    """Steps of the rank's first optimizer in the recording; None if it stepped none and everything was recorded."""
    warmed_up: bool | None = None
    """Whether the profiler was on, discarding events, for a whole step before the recorded ones."""
    aligned: bool | None = None
    """Whether all ranks started the first recorded step together; None for a job of one process."""
    note: str | None = None
    """Why they did not, in one sentence."""
    ended_after: str | None = None
    """The bound that ended the recording before the program, or its last step, ended: "60 s (--seconds)"."""
    undisturbed_step_ns: int | None = None
    """Median step time before the profiler started, of a program on a GPU the mean; None if no step was timed."""
    recorded_step_ns: int | None = None
    """The same of the profiled steps. Both blocks of steps begin and end with idle GPUs."""
    unlike_step: str | None = None
    """Which step took longer than all others of its block together: the blocks differ in kind."""

    @property
    def slowdown(self) -> float | None:
        """Ratio of recorded to undisturbed step time; None unless both are known."""
        if not self.undisturbed_step_ns or self.recorded_step_ns is None:
            return None
        return self.recorded_step_ns / self.undisturbed_step_ns


class Pass(msgspec.Struct, kw_only=True):
    """One run of the workload under one profiler."""

    profiler: str
    status: Status = "running"
    reason: str | None = None
    """Why it failed, in one sentence."""
    command: list[str] = []
    exit_code: int | None = None
    note: str | None = None
    """The discarded recordings and unrecorded processes, in one sentence."""
    start: str | None = None
    end: str | None = None
    files: list[RunFile] = []
    options: dict[str, Any] = {}
    """The profiler's options (shapes, memory, stacks, ncu metric set ...)."""
    counted_steps: int | None = None
    """Steps in every rank's recording; None if none were counted, or ranks differ."""
    ranks: list[RankRecording] = []
    """One for each recorded process; for the user's program only under torch.profiler."""


class Manifest(msgspec.Struct, kw_only=True):
    """A run: one workload with one set of options, under one or several profilers.

    Times are ISO 8601 in UTC. Fields that do not apply (the model of the user's program) are None.
    """

    version: int = MANIFEST_VERSION
    run_id: str
    job: str | None = None
    """Name of a job on several nodes; this folder contains what `collect` recorded on one of them."""
    status: Status = "running"
    reason: str | None = None
    """Why it failed, in one sentence; None unless `status` is failed."""
    start: str
    end: str | None = None
    trigger: str | None = None
    """Why it was recorded, if a job is recorded repeatedly (`collect run --when`, --on-demand ...)."""
    command: list[str]
    """The arguments of `collect`. Here and in all other texts, secrets are replaced by `***`."""
    passes: list[Pass] = []

    workload: RecordedWorkload = msgspec.field(default_factory=RecordedWorkload)
    """What was trained; for the user's program only the device."""
    world_size: int | None = None
    """Number of processes of the job, from their process group, else from WORLD_SIZE."""
    program: list[str] | None = None
    """The user's own command, for `collect run -- COMMAND`."""

    host: str | None = None
    gpu_devices: list[Gpu] = []
    driver_version: str | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    nccl_version: str | None = None
    torch_version: str | None = None
    torchvision_version: str | None = None
    python_version: str | None = None
    packages: dict[str, str] = {}
    """Version of each package that is installed for the program's Python, by name; without torch for `collect`'s."""
    environment: dict[str, str] = {}
    """Only variables that can affect a measurement (collect.redact.VARIABLES)."""
    git_commit: str | None = None
    """Commit of the folder of the program's script, else of the current directory."""
    git_dirty: bool | None = None
    """Whether tracked files differ from it."""


def read_manifest(folder: Path) -> Manifest:
    """Read FOLDER/run.json.

    Raises ManifestError for a missing, malformed or newer manifest, for numbers out of range, and for files outside the
    folder.
    """
    path = folder / MANIFEST_NAME
    try:
        manifest = msgspec.convert(_upgraded(msgspec.json.decode(read_bounded(path))), Manifest)
    except OSError as e:
        raise ManifestError(f"{path}: cannot be read: {e.strerror}") from e
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ManifestError(f"{path}: not a run manifest: {e}") from e
    if manifest.version > MANIFEST_VERSION:
        raise ManifestError(
            f"{path}: version {manifest.version} is newer than this tracequarry reads ({MANIFEST_VERSION}); upgrade it"
        )
    problem = _problem(manifest)
    if problem:
        raise ManifestError(f"{path}: {problem}")
    return manifest


def _upgraded(raw: Any) -> Any:
    """Convert a manifest of version 1 to version 2; return anything else unchanged.

    In version 1 the options of the workload were top-level fields, named like their columns in `runs` if they had one.
    """
    if not isinstance(raw, dict) or raw.get("version", 1) != 1:
        return raw
    columns = {c.option: c.name for c in COLUMNS}
    workload = {name: raw.get(columns.get(name, name), raw.get(name)) for name in OPTIONS}
    return raw | {"version": MANIFEST_VERSION, "workload": workload}


def _problem(manifest: Manifest) -> str | None:
    """Describe a value that is impossible or leads outside the folder; None if there is none."""
    if not manifest.run_id.strip() or _CONTROL.search(manifest.run_id):
        return f"run_id {manifest.run_id!r} is empty or has control characters"
    if manifest.job is not None and not is_run_id(manifest.job):
        return f"job {manifest.job!r} is not the name of a job"
    if problem := limits_problem(manifest.workload):
        return problem
    numbers = {"world_size": manifest.world_size} if manifest.world_size is not None else {}
    for one in manifest.passes:
        if not is_run_id(one.profiler):
            return f"{one.profiler!r} is not the name of a profiler"
        numbers |= {f"rank of {f.path!r}": f.rank for f in one.files if f.rank is not None}
        numbers |= {"counted_steps": one.counted_steps} if one.counted_steps is not None else {}
    for name, value in numbers.items():
        if not 0 <= value <= LARGEST_INT32:
            return f"{name} is {value}, which is not between 0 and {LARGEST_INT32}"
    for file in (f.path for p in manifest.passes for f in p.files):
        inside = PurePosixPath(file)
        if not inside.parts or "\0" in file or inside.is_absolute() or ".." in inside.parts:
            return f"{file!r} is not a file below the run folder"
    return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write FOLDER/run.json atomically, readable by its owner only; follows no link. Raises OSError."""
    write_synced(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n", 0o600)
