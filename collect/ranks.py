"""Which recorded process of a user's own program is which rank of its job.

That is known when all have ended: until then a process's files have a name of its own. A program may start a job twice
(torchrun does, after a failure), or two jobs, and processes that are of none, but run torch operators: the parent of
the ranks, a helper.
"""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec

from collect.new_files import new_file
from collect.spec import AttachedReport, RankReport

STEP_TIMES_COLUMNS = ("rank", "step", "warmup", "undisturbed", "step_s")
"""Those of the table step_metrics that can be told of a program of the user's own."""


def settle(reports: list[RankReport], folder: Path) -> tuple[list[RankReport], str | None]:
    """The reports with ranks, without those of none; and what the user should be told of these.

    Files in `folder` are renamed to rank-N.*, those of no rank removed, and the times of steps written. Of several jobs
    the one with most ranks is kept, of those the last. Where no process knows a rank, they are numbered in the order in
    which they began. Raises OSError.
    """
    recorded = [r for r in reports if isinstance(r, AttachedReport) and r.stem]
    of_a_job = [r for r in recorded if r.job_rank is not None]
    kept = _ranks(of_a_job) if of_a_job else _numbered(recorded)
    for report in kept:
        for path in sorted(folder.glob(f"{report.stem}.*")):
            path.rename(path.with_name(path.name.replace(report.stem, f"rank-{report.rank}", 1)))
        _write_step_times(report, folder)
    stems = {r.stem for r in kept}
    left = [r for r in recorded if r.stem not in stems]
    for report in left:
        for path in folder.glob(f"{report.stem}.*"):
            path.unlink()
    return [*(r for r in reports if r not in recorded), *kept], _told(left)


def _ranks(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """One report for each rank of one job, in their order."""
    ranks = {job: {r.job_rank for r in recorded if r.job == job} for job in {r.job for r in recorded}}
    last = {r.job: r.when for r in sorted(recorded, key=lambda r: r.when)}
    job = max(ranks, key=lambda j: (len(ranks[j]), last[j]))
    # A process that knows its rank from its process group comes before one that has inherited a variable.
    of_job = sorted((r for r in recorded if r.job == job), key=lambda r: (r.in_group, r.when))
    by_rank = {r.job_rank or 0: r for r in of_job}
    return [msgspec.structs.replace(by_rank[rank], rank=rank) for rank in sorted(by_rank)]


def _numbered(recorded: list[AttachedReport]) -> list[AttachedReport]:
    """All, numbered as they began; of a Slurm task not below its number."""
    numbered: list[AttachedReport] = []
    for report in sorted(recorded, key=lambda r: (r.task, r.began_s)):
        free = numbered[-1].rank + 1 if numbered else 0
        numbered.append(msgspec.structs.replace(report, rank=max(free, report.task)))
    return numbered


def _write_step_times(report: AttachedReport, folder: Path) -> None:
    """Write rank-N.step_metrics.csv; nothing where no step was timed."""
    blocks = (("true", report.undisturbed_steps), ("false", report.recorded_steps))
    if not any(steps for _, steps in blocks):
        return
    with new_file(folder / f"rank-{report.rank}.step_metrics.csv", "t", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(STEP_TIMES_COLUMNS)
        for before, steps in blocks:
            out.writerows((report.rank, step, before, before, f"{ns / 1e9:.9f}") for step, ns in steps)


def _told(left: list[AttachedReport]) -> str | None:
    """Why recordings are not kept, in one sentence."""
    none = sum(r.job_rank is None for r in left)
    again = len(left) - none
    why = [f"{none} of a process that is no rank of the job"] if none else []
    why += [f"{again} of a rank of another job, or of an earlier attempt"] if again else []
    return f"recordings that are not kept: {' and '.join(why)}" if why else None
