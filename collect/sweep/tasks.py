"""Runs the cells of a sweep as tasks of a cluster with submitit, each on as many GPUs as it trains on."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from collect.options import RunOptions
from collect.run_folder import left_running
from collect.signals import Signals
from collect.sweep.plan import read_plan, select_cells
from collect.sweep.sweep import OnStart, Outcome, Work, cell_command, run_cell
from schemas.errors import InputError
from schemas.extras import missing
from schemas.slurm import OUT_OF_TIME, TaskError, largest_array, sbatch_options, submitted
from schemas.sweep import Cell

LAUNCHERS = ("slurm", "local")
_TIME_LIMIT_NOTICE_S = 180
"""A task signalled this shortly before its time limit has run out of time; Slurm checks limits twice a minute."""


def launch(
    launcher: str,
    options: Mapping[str, str],
    work: Sequence[Work],
    folder: Path,
    on_start: OnStart,
    signals: Signals,
) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells as tasks; yield their outcomes as they end. A signal cancels the tasks that have not ended.

    `slurm` submits an array for each number of GPUs. `local` runs the same on this machine, one cell after the other so
    that none disturbs another's measurement. `options` are parameters of submitit. Raises InputError.
    """
    if launcher not in LAUNCHERS:
        raise InputError(f"--launcher {launcher}: must be {' or '.join(LAUNCHERS)}")
    arrays = _by_gpus(work)
    batches = [arrays] if launcher == "slurm" else [[(gpus, [one])] for gpus, group in arrays for one in group]
    with _cluster_errors(launcher), submitted(launcher, "collect-sweep", options) as tasks:
        for batch in batches:
            if signals.count:
                break
            cells: dict[str, Cell] = {}
            jobs = []
            for gpus, group in batch:
                parameters = {"gpus_per_node": gpus} if gpus and "gpus_per_node" not in options else {}
                calls = [(_task, (run_options, cell_command(cell))) for cell, run_options in group]
                started = tasks.submit(calls, **parameters)
                on_start([cell for cell, _ in group])
                cells |= {job.job_id: cell for job, (cell, _) in zip(started, group, strict=True)}
                jobs += started
            for job, outcome in tasks.outcomes(jobs, lambda: signals.count > 0):
                cell = cells.pop(job.job_id)
                if isinstance(outcome, TaskError):
                    tasks.keeps_logs = True
                    outcome = _lost(cell, folder, f"its task was lost: {outcome}")
                yield cell, outcome
            for cell in cells.values():
                yield cell, Outcome("interrupted", None, "interrupted")


@contextmanager
def _cluster_errors(launcher: str) -> Iterator[None]:
    """Translate the errors of submitit and the cluster."""
    try:
        yield
    except TaskError as e:
        raise InputError(f"--launcher {launcher}: {e}") from e
    except ImportError as e:
        raise missing(f"--launcher {launcher}", "cluster", e) from e


def _task(options: RunOptions, command: list[str]) -> Outcome:
    """Run a cell inside a task."""
    with Signals({signal.SIGUSR2: _reason_of_notice}) as signals:
        outcome = run_cell(options, command, signals)
    # Failed, not interrupted: with the same time limit it would end in the same way.
    return outcome._replace(status="failed") if signals.count and signals.reason == OUT_OF_TIME else outcome


def _reason_of_notice() -> str:
    """Why Slurm sent SIGUSR2, as submitit asks it to: 90 s before the time limit, or when the task is preempted."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return "preempted" if end.isdecimal() and int(end) - time.time() > _TIME_LIMIT_NOTICE_S else OUT_OF_TIME


def _lost(cell: Cell, folder: Path, reason: str) -> Outcome:
    """Mark the run of a cell as failed whose task ended without a result; run.json says so, too."""
    run = left_running(folder, cell_command(cell))
    if run is not None:
        run.abandon(reason)
    return Outcome("failed", run.path.name if run else None, reason)


def _by_gpus(work: Sequence[Work]) -> list[tuple[int, list[Work]]]:
    """Group cells by the number of GPUs that they need, fewest first."""

    def gpus(one: Work) -> int:
        return 0 if one[1].device == "cpu" else one[1].gpus

    return [(number, list(group)) for number, group in groupby(sorted(work, key=gpus), key=gpus)]


def parse_options(given: Sequence[str], launcher: str | None, print_script: bool) -> dict[str, str]:
    """Parse launcher options such as mem_gb=8. Raises InputError, also for options without a launcher."""
    if print_script and launcher != "slurm":
        raise InputError("--print: needs --launcher slurm")
    if given and launcher is None:
        raise InputError("--launcher-option: needs --launcher")
    if wrong := next((text for text in given if not text.partition("=")[2]), None):
        raise InputError(f"--launcher-option {wrong}: expected name=value")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def script(plan_path: Path, output: Path | None, only: str | None, options: Mapping[str, str]) -> str:
    """Return a script that submits the cells to Slurm without submitit: an array for each number of GPUs.

    Each task sweeps one cell into a folder of its own, so that no two tasks write the same sweep.json.
    """
    plan = read_plan(plan_path)
    folder = plan.folder(output)
    chosen = range(len(plan.cells)) if only is None else select_cells(only, plan.cells)
    work = [(Cell(values=plan.cells[i]), plan.run_options(plan.cells[i], Path())) for i in chosen]
    lines = ["#!/bin/bash"]
    for gpus, group in _by_gpus(work):
        numbers = [plan.cells.index(cell.values) + 1 for cell, _ in group]  # no two cells of a plan are equal
        most = largest_array() or len(numbers)
        for part in (numbers[begin:][:most] for begin in range(0, len(numbers), most)):
            gpu_lines = [f"--gpus-per-node={gpus}"] if gpus else []
            array = [f"--array=0-{len(part) - 1}", "--job-name=collect-sweep", *gpu_lines, *sbatch_options(options)]
            command = shlex.join(["collect", "sweep", str(plan_path)])
            lines += [
                "sbatch <<'END'",
                "#!/bin/bash",
                *(f"#SBATCH {line}" for line in array),
                f"cells=({' '.join(map(str, part))})",
                "cell=${cells[$SLURM_ARRAY_TASK_ID]}",
                f"{command} -o {shlex.quote(str(folder / 'cell'))}-$cell --only cell=$cell",
                "END",
            ]
    return "\n".join(lines)
