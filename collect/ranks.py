"""Assigns ranks to the recorded processes of the user's program, once all have ended.

Until then each process's files have a name of their own: the program may start a job twice (torchrun does after a
failure), or two jobs, and processes without a rank may run torch operators, too (the parent of the ranks, a helper).
"""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec

from collect.reports import AttachedReport, RankReport
from schemas.files import part_file

STEP_TIMES_COLUMNS = ("rank", "step", "warmup", "undisturbed", "step_s")
"""The columns of step_metrics that are known of the user's program."""


def assign_ranks(reports: list[RankReport], folder: Path) -> tuple[list[RankReport], str | None]:
    """Return the reports of ranks, and a note on discarded recordings for the user.

    Renames files in `folder` to rank-N.*, removes those of no rank, and writes step times. Of several jobs the one with
    most ranks counts, of those the last. If no process knows its rank, they are numbered in the order in which they
    started. Raises OSError.
    """
    recorded = [r for r in reports if isinstance(r, AttachedReport) and r.stem]
    in_jobs = [r for r in recorded if r.job_rank is not None]
    ranked = _ranks_of_largest_job(in_jobs) if in_jobs else _numbered(recorded)
    for report in ranked:
        for path in sorted(folder.glob(f"{report.stem}.*")):
            path.rename(path.with_name(path.name.replace(report.stem, f"rank-{report.rank}", 1)))
        _write_step_times(report, folder)
    stems = {r.stem for r in ranked}
    discarded = [r for r in recorded if r.stem not in stems]
    for report in discarded:
        for path in folder.glob(f"{report.stem}.*"):
            path.unlink()
    return [*(r for r in reports if r not in recorded), *ranked], _note(discarded)


def _ranks_of_largest_job(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """One report for each rank of one job, in the order of ranks."""
    ranks = {job: {r.job_rank for r in recorded if r.job == job} for job in {r.job for r in recorded}}
    last = {r.job: r.when for r in sorted(recorded, key=lambda r: r.when)}
    job = max(ranks, key=lambda j: (len(ranks[j]), last[j]))
    # A process that knows its rank from its process group takes precedence over one that inherited a variable.
    of_job = sorted((r for r in recorded if r.job == job), key=lambda r: (r.in_group, r.when))
    by_rank = {r.job_rank or 0: r for r in of_job}
    return [msgspec.structs.replace(by_rank[rank], rank=rank) for rank in sorted(by_rank)]


def _numbered(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """All reports, numbered in the order in which the processes started; a Slurm task at least by its number."""
    numbered: list[AttachedReport] = []
    for report in sorted(recorded, key=lambda r: (r.task, r.began_s)):
        next_rank = numbered[-1].rank + 1 if numbered else 0
        numbered.append(msgspec.structs.replace(report, rank=max(next_rank, report.task)))
    return numbered


def _write_step_times(report: AttachedReport, folder: Path) -> None:
    """Write rank-N.step_metrics.csv, if any step was timed."""
    blocks = (("true", report.undisturbed_steps), ("false", report.recorded_steps))
    if not any(steps for _, steps in blocks):
        return
    path = folder / f"rank-{report.rank}.step_metrics.csv"
    with part_file(path) as part, part.open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(STEP_TIMES_COLUMNS)
        for undisturbed, steps in blocks:
            out.writerows((report.rank, step, undisturbed, undisturbed, f"{ns / 1e9:.9f}") for step, ns in steps)


def _note(discarded: list[AttachedReport]) -> str | None:
    """Why recordings were discarded, in one sentence."""
    without_rank = sum(r.job_rank is None for r in discarded)
    other = len(discarded) - without_rank
    parts = [f"{without_rank} of a process that is no rank of the job"] if without_rank else []
    parts += [f"{other} of a rank of another job, or of an earlier attempt"] if other else []
    return f"discarded recordings: {' and '.join(parts)}" if parts else None
