"""What the parent tells a worker, and what a worker tells the parent: small JSON files in a scratch folder.

The scratch folder is not in the run folder, so that a full disk there does not swallow the reason of a failure, unless
processes on other nodes have to see it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from collect.new_files import new_file
from collect.options import RunOptions


class WorkerSpec(msgspec.Struct, kw_only=True):
    """One pass, as a worker needs to know it."""

    options: RunOptions
    profiler: str
    folder: str
    """Folder of the pass, where raw files go."""
    scratch: str


class RankReport(msgspec.Struct, kw_only=True):
    """How one process ended, in its own words. A process that was killed leaves none."""

    rank: int = 0
    host: str | None = None
    """Name of the host that it runs on."""
    ok: bool = False
    reason: str | None = None
    usage: bool = False
    """The input was bad: nothing ran."""
    when: float = 0.0
    """Seconds since the epoch, to tell the first failure from those it caused."""
    counted_steps: int | None = None
    """Profiled steps that the process finished."""
    world_size: int | None = None
    """Processes of its job, as an attached process knows it."""
    warmed_up: bool | None = None
    aligned: bool | None = None
    note: str | None = None
    """How the recording of an attached process began: schemas.manifest.RankRecording."""
    undisturbed_step_ns: int | None = None
    recorded_step_ns: int | None = None
    """Mean times of a step, as in RankRecording."""
    facts: dict[str, Any] = {}
    """collect.torch_facts.torch_facts() and the model's image size, from one rank."""


class AttachedReport(RankReport, kw_only=True):
    """How an attached process ended. Its `rank` is settled when all have ended: collect.ranks."""

    job_rank: int | None = None
    """Rank of its job; None if it does not know one."""
    in_group: bool = False
    """Whether the process group said so, or variables, which a process that it started has, too."""
    job: str | None = None
    """What tells the job that the rank is of from others."""
    task: int = 0
    """Number of its Slurm task; 0 without Slurm."""
    began_s: float = 0.0
    """Seconds since the epoch when it imported torch."""
    stem: str = ""
    """What the names of its files begin with until its rank is settled; empty if it recorded nothing."""
    undisturbed_steps: list[tuple[int, int]] = []
    recorded_steps: list[tuple[int, int]] = []
    """Number of a step and its ns; collect.step_clock."""


def write_report(scratch: Path, report: RankReport) -> None:
    """Leave the report of a rank; a process that cannot even do that is judged by its exit code."""
    report.when = time.time()
    with new_file(scratch / f"rank-{report.rank}.json") as f:
        f.write(msgspec.json.encode(report))


def read_reports(scratch: Path) -> list[RankReport]:
    """All reports, by rank; those of attached processes included. Unreadable ones are left out."""
    reports: list[RankReport] = []
    for pattern, kind in (("rank-*.json", RankReport), ("attach-*.json", AttachedReport)):
        for path in scratch.glob(pattern):
            with suppress(OSError, msgspec.DecodeError):
                reports.append(msgspec.json.decode(path.read_bytes(), type=kind))
    return sorted(reports, key=lambda r: r.rank)


def read_exit_codes(scratch: Path) -> dict[int, int]:
    """Exit code of each failed rank as the elastic launcher saw it; negative is minus a signal number."""
    try:
        return msgspec.json.decode((scratch / "exit-codes.json").read_bytes(), type=dict[int, int])
    except (OSError, msgspec.DecodeError):
        return {}
