"""Reports of how each process of a pass ended: small JSON files in a scratch folder, written by the processes.

The scratch folder is outside the run folder, so that a full disk there does not prevent the report of a failure, unless
processes on other nodes have to see it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from schemas.files import part_file


class BlockReport(msgspec.Struct, kw_only=True):
    """How one block of steps was recorded, or the whole of a program: see schemas.manifest.RankRecording."""

    kind: str
    """collect.injected.step_blocks: undisturbed, gpu or full."""
    counted_steps: int | None = None
    warmed_up: bool | None = None
    aligned: bool | None = None
    note: str | None = None
    ended_after: str | None = None
    recorder: str | None = None
    """The package that recorded it."""
    steps: list[tuple[int, int]] = []
    """(step number, ns) of each timed step."""
    step_ns: int | None = None
    unlike_step: str | None = None


class RankReport(msgspec.Struct, kw_only=True):
    """How one process ended. A killed process leaves no report."""

    rank: int = 0
    host: str | None = None
    """Name of the host it ran on."""
    ok: bool = False
    reason: str | None = None
    bad_input: bool = False
    """The input was bad: nothing ran."""
    when: float = 0.0
    """Seconds since the epoch; tells the first failure from those it caused."""
    world_size: int | None = None
    """Processes of its job, as an attached process knows it."""
    blocks: list[BlockReport] = []
    """What was recorded, in order."""
    gpus: dict[str, int] = {}
    """Name (`torch_facts.used_gpus`) and CUDA's index of the GPUs that it used."""
    facts: dict[str, Any] = {}
    """torch_facts() and the model's image size, from one rank."""

    def block(self, kind: str) -> BlockReport | None:
        """The first block of this kind, or None."""
        return next((b for b in self.blocks if b.kind == kind), None)


class AttachedReport(RankReport, kw_only=True):
    """How a process of the user's program ended. Its `rank` is assigned once all have ended (collect/ranks.py)."""

    job_rank: int | None = None
    """Rank in its job; None if unknown."""
    in_group: bool = False
    """Whether the process group says so, or only variables, which child processes inherit."""
    job: str | None = None
    """Identifies the job, and the attempt, that the rank belongs to."""
    did: int = 0
    """What the process did with torch: 2 if it stepped, 1 if it called modules, else 0."""
    missing: list[str] = []
    """What this version of torch lacks, in a sentence each (collect.injected.torch_internals)."""
    script: str = ""
    """Name of the script or module that it ran."""
    task: int = 0
    """Number of its Slurm task; 0 without Slurm."""
    began_s: float = 0.0
    """Seconds since the epoch when it imported torch."""
    stem: str = ""
    """Beginning of its files' names until its rank is assigned; empty if it recorded nothing."""


def write_report(scratch: Path, report: RankReport) -> None:
    """Write the report of a rank. A process that fails to do so is judged by its exit code."""
    report.when = time.time()
    with part_file(scratch / f"rank-{report.rank}.json") as part:
        part.write_bytes(msgspec.json.encode(report))


def read_reports(scratch: Path) -> list[RankReport]:
    """Read the reports of all ranks, also of attached processes, in the order of ranks. Skip unreadable ones."""
    reports: list[RankReport] = []
    for pattern, kind in (("rank-*.json", RankReport), ("attach-*.json", AttachedReport)):
        for path in scratch.glob(pattern):
            with suppress(OSError, msgspec.DecodeError):
                reports.append(msgspec.json.decode(path.read_bytes(), type=kind))
    return sorted(reports, key=lambda r: r.rank)


def read_exit_codes(scratch: Path) -> dict[int, int]:
    """Read the exit code of each failed rank, as the elastic launcher saw it; negative is minus a signal number."""
    try:
        return msgspec.json.decode((scratch / "exit-codes.json").read_bytes(), type=dict[int, int])
    except (OSError, msgspec.DecodeError):
        return {}
