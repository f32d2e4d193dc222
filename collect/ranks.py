"""Decides which recorded processes of the user's program are ranks, once all have ended.

Until then each process's files have a name of their own: the program may start a job twice (torchrun does after a
failure), or two jobs, and other processes run torch operators, too: the parent of the ranks, a helper, a launcher that
imports torchvision.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collect.injected.step_blocks import UNDISTURBED
from collect.rank_reports import AttachedReport, RankReport
from schemas.files import part_file

STEP_TIMES_COLUMNS = ("rank", "step", "warmup", "undisturbed", "step_s")
"""The columns of step_metrics that are known of the user's program."""


@dataclass
class Assigned:
    """What the processes of a program turned out to be."""

    reports: list[RankReport]
    """Of the ranks, and of processes of the same job that failed."""
    separate: list[AttachedReport] = field(default_factory=list)
    """Recordings of independent processes, but the first: each is a separate run."""
    note: str | None = None
    """What was discarded or not recorded, in one sentence."""


def assign_ranks(reports: list[RankReport], folders: Mapping[str, Path]) -> Assigned:
    """Find the ranks, rename their files to rank-N.*, remove files without a rank, and write step times.

    `folders` has the files of each kind of block.

    1. Only processes that did most count: stepped, else called modules. Members of their job count with them.
    2. Of several jobs the one with most ranks counts, of those the last.
    3. Processes without a job are separate recordings, unless Slurm numbers them.

    Raises OSError.
    """
    attached = [r for r in reports if isinstance(r, AttachedReport)]
    recorded = [r for r in attached if r.stem]
    most = max((r.did for r in recorded), default=0)
    jobs = {r.job for r in recorded if r.did == most and r.in_group}
    candidates = [r for r in recorded if r.did == most or (r.in_group and r.job in jobs)]
    in_jobs = [r for r in candidates if r.job_rank is not None]
    separate: list[AttachedReport] = []
    if in_jobs:
        ranked = _ranks_of_largest_job(in_jobs)
    elif any(r.task for r in candidates):
        ranked = _numbered_by_slurm(candidates)
    else:
        ranked, separate = _one_by_one(candidates)
    for report in ranked:
        for kind, folder in folders.items():
            move_files(report, kind, folder, folder)
    kept = {r.stem for r in (*ranked, *separate)}
    discarded = [r for r in recorded if r.stem not in kept]
    for report in discarded:
        for folder in folders.values():
            for path in folder.glob(f"{report.stem}.*"):
                path.unlink()
    job = ranked[0].job if ranked else None
    # What failed elsewhere, in an earlier attempt or a smoke test, is no failure of what was recorded.
    unrecorded = [r for r in attached if not r.stem]
    failed = [r for r in unrecorded if not ranked or (job is not None and r.job == job)]
    elsewhere = [str(r.reason) for r in unrecorded if r not in failed]
    others = [r for r in reports if not isinstance(r, AttachedReport)]
    return Assigned([*others, *failed, *ranked], separate, _note(discarded, job, elsewhere))


def move_files(report: AttachedReport, kind: str, source: Path, target: Path) -> None:
    """Rename the files of a process's block to rank-N.*, and write its step times. Raises OSError."""
    for path in sorted(source.glob(f"{report.stem}.*")):
        path.rename(target / path.name.replace(report.stem, f"rank-{report.rank}", 1))
    _write_step_times(report, kind, target)


def _ranks_of_largest_job(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """One report for each rank of one job, in the order of ranks."""
    ranks = {job: {r.job_rank for r in recorded if r.job == job} for job in {r.job for r in recorded}}
    last = {r.job: r.when for r in sorted(recorded, key=lambda r: r.when)}
    job = max(ranks, key=lambda j: (len(ranks[j]), last[j]))
    # A process that knows its rank from its process group takes precedence over one that inherited a variable.
    of_job = sorted((r for r in recorded if r.job == job), key=lambda r: (r.in_group, r.when))
    by_rank = {r.job_rank or 0: r for r in of_job}
    return [msgspec.structs.replace(by_rank[rank], rank=rank) for rank in sorted(by_rank)]


def _numbered_by_slurm(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """All reports, numbered in the order in which the processes started; each at least by its Slurm task."""
    numbered: list[AttachedReport] = []
    for report in sorted(recorded, key=lambda r: (r.task, r.began_s)):
        next_rank = numbered[-1].rank + 1 if numbered else 0
        numbered.append(msgspec.structs.replace(report, rank=max(next_rank, report.task)))
    return numbered


def _one_by_one(recorded: list[AttachedReport]) -> tuple[list[AttachedReport], list[AttachedReport]]:
    """The process that started first, and the others; each is rank 0 of its own recording."""
    ordered = [msgspec.structs.replace(r, rank=0) for r in sorted(recorded, key=lambda r: r.began_s)]
    return ordered[:1], ordered[1:]


def _write_step_times(report: AttachedReport, kind: str, folder: Path) -> None:
    """Write rank-N.step_metrics.csv of a recorded block, with the undisturbed steps, if any step was timed."""
    blocks = {UNDISTURBED: report.block(UNDISTURBED), kind: report.block(kind)}
    if not blocks[kind] or not any(block.steps for block in blocks.values() if block):
        return
    path = folder / f"rank-{report.rank}.step_metrics.csv"
    with part_file(path) as part, part.open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(STEP_TIMES_COLUMNS)
        for name, block in blocks.items():
            flag = "true" if name == UNDISTURBED else "false"
            steps = block.steps if block else []
            out.writerows((report.rank, step, flag, flag, f"{ns / 1e9:.9f}") for step, ns in steps)


def _note(discarded: list[AttachedReport], job: str | None, elsewhere: list[str]) -> str | None:
    """Why recordings were discarded, and processes not recorded, in one sentence."""
    of_other_job = sum(r.job_rank is not None and job is not None for r in discarded)
    without = len(discarded) - of_other_job
    no_rank = "that is no rank of the job" if job is not None else "that did not train, or called no module"
    parts = [f"{without} of a process {no_rank}"] if without else []
    parts += [f"{of_other_job} of a rank of another job, or of an earlier attempt"] if of_other_job else []
    sentences = [f"discarded recordings: {' and '.join(parts)}"] if parts else []
    others = f"{len(elsewhere)} other process{'es' if elsewhere[1:] else ''}"
    sentences += [f"not recorded: {others}: {elsewhere[0]}"] if elsewhere else []
    return "; ".join(sentences) or None
