"""run.json: what a run folder says about itself.

The collector writes it first with status `running` and last with `done` or `failed`, each time by rename; it is the
contract between the two sides, so a field is added with a default and never renamed within a version.

Layout of a run folder, one sub-folder for each profiler pass::

    RUN_ID/run.json
    RUN_ID/PROFILER/rank-N.<kind's suffix>     e.g. torch/rank-0.trace.json.gz, nsys/node-0.sqlite
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from schemas.files import read_bounded, write_synced
from schemas.options import LARGEST_INT32
from schemas.workload import COLUMNS, OPTIONS, RecordedWorkload, limits_problem

MANIFEST_NAME = "run.json"
MANIFEST_VERSION = 2

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Status = Literal["running", "done", "failed"]

FILE_KINDS = {
    "chrome_trace": "Chrome trace of torch.profiler (.trace.json.gz)",
    "key_averages": "CSV of torch.profiler's key_averages(); times in us",
    "memory_timeline": "memory timeline of torch.profiler",
    "step_metrics": "CSV of the step_metrics table",
    "nsys_report": "Nsight Systems report (.nsys-rep)",
    "nsys_sqlite": "Nsight Systems report exported to SQLite",
    "nsys_tables": "Nsight Systems report exported to a folder of Parquet or Arrow files; its META_DATA_EXPORT file",
    "ncu_report": "Nsight Compute report (.ncu-rep)",
    "ncu_csv": "Nsight Compute CSV, page raw",
    "log": "what the workload and the profiler printed",
}
"""Every value of `RunFile.kind`, and what such a file is."""


RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def is_run_id(text: str) -> bool:
    """Whether a text can be the id of a run: it names a folder, and leads to no other."""
    return RUN_ID.fullmatch(text) is not None


class ManifestError(Exception):
    """A run.json that cannot be used; the message names the file and the place."""


class RunFile(msgspec.Struct, kw_only=True):
    """One file that a pass left, relative to the run folder."""

    path: str
    kind: str
    rank: int | None = None


class Gpu(msgspec.Struct, kw_only=True):
    """One GPU of the node, as the driver names it."""

    index: int
    name: str
    compute_capability: str = ""
    memory_bytes: int | None = None
    sm_count: int | None = None


class RankRecording(msgspec.Struct, kw_only=True):
    """How one rank was recorded. What torch.profiler does in a program of the user's own is None elsewhere."""

    rank: int
    host: str | None = None
    """Name of the host that its process ran on; None if it did not say."""
    counted_steps: int | None = None
    """Steps of the rank's first optimizer in the recording; None if it stepped none, and was recorded whole."""
    warmed_up: bool | None = None
    """Whether the profiler was on, and threw away what it saw, for a whole step before the recorded ones."""
    aligned: bool | None = None
    """Whether all ranks began the first recorded step together; None for a job of one process."""
    note: str | None = None
    """Why they did not, in one sentence."""
    undisturbed_step_ns: int | None = None
    """Mean time of a step before the profiler started; None if none was timed."""
    recorded_step_ns: int | None = None
    """Mean time of a profiled step. Both are over blocks of steps that begin and end with idle GPUs."""

    @property
    def slowdown(self) -> float | None:
        """How many times as long a recorded step took as an undisturbed one; None where not both were timed."""
        if not self.undisturbed_step_ns or self.recorded_step_ns is None:
            return None
        return self.recorded_step_ns / self.undisturbed_step_ns


class Pass(msgspec.Struct, kw_only=True):
    """The workload run once under one profiler."""

    profiler: str
    status: Status = "running"
    reason: str | None = None
    """Why it failed, in one sentence."""
    command: list[str] = []
    exit_code: int | None = None
    note: str | None = None
    """What of its recordings was not kept, in one sentence."""
    start: str | None = None
    end: str | None = None
    files: list[RunFile] = []
    options: dict[str, Any] = {}
    """The profiler's own options (shapes, memory, stacks, ncu metric set ...)."""
    counted_steps: int | None = None
    """Steps that every rank's recording holds; None where none were counted, or not the same number on all ranks."""
    ranks: list[RankRecording] = []
    """One for each process that was recorded; of a program of the user's own only under torch.profiler."""


class Manifest(msgspec.Struct, kw_only=True):
    """A run: one workload with one set of options, under one or several profilers.

    Times are ISO 8601 in UTC. Fields that make no sense for a run (the model of a program of the user's own) are None.
    """

    version: int = MANIFEST_VERSION
    run_id: str
    job: str | None = None
    """Name of a job on several nodes, of which this folder has what one node's `collect` recorded."""
    status: Status = "running"
    reason: str | None = None
    """Why it failed, in one sentence; None unless `status` is failed."""
    start: str
    end: str | None = None
    command: list[str]
    """The command line of `collect`, argument by argument; here and in all other texts a secret is `***`."""
    passes: list[Pass] = []

    workload: RecordedWorkload = msgspec.field(default_factory=RecordedWorkload)
    """What was trained; of a program of the user's own only the device."""
    world_size: int | None = None
    """Processes of the job, as they know it themselves: their process group, or else WORLD_SIZE."""
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
    environment: dict[str, str] = {}
    """Variables that bear on a measurement (collect.redact.VARIABLES), and no others."""
    git_commit: str | None = None
    git_dirty: bool | None = None


def read_manifest(folder: Path) -> Manifest:
    """Read FOLDER/run.json.

    Raises ManifestError for a missing, malformed or newer manifest, for numbers that no column holds, and for files
    that are not below the folder.
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
    """What stood in version 1, in the form of version 2; anything else as it is.

    Then the options of the workload stood among the other fields, under the names of their columns where they had one.
    """
    if not isinstance(raw, dict) or raw.get("version", 1) != 1:
        return raw
    columns = {c.option: c.name for c in COLUMNS}
    workload = {name: raw.get(columns.get(name, name), raw.get(name)) for name in OPTIONS}
    return raw | {"version": MANIFEST_VERSION, "workload": workload}


def _problem(manifest: Manifest) -> str | None:
    """What of a manifest cannot be true, or would lead out of its folder."""
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
            return f"{name} is {value}, which is not within 0 and {LARGEST_INT32}"
    for file in (f.path for p in manifest.passes for f in p.files):
        inside = PurePosixPath(file)
        if not inside.parts or "\0" in file or inside.is_absolute() or ".." in inside.parts:
            return f"{file!r} is not a file below the run folder"
    return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write FOLDER/run.json whole or not at all, for its owner alone; follows no link. Raises OSError."""
    write_synced(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n", 0o600)
