"""The cells of a sweep as tasks of a cluster, started by submitit: each on as many GPUs as it trains on."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from collect.errors import UsageError
from collect.options import RunOptions
from collect.process import Signals
from collect.runfolder import left_running
from collect.sweep import Cell, Outcome, Work, cell_command, cell_options, only_cells, read_plan, run_cell, sweep_folder
from schemas.slurm import OUT_OF_TIME, TaskError, largest_array, sbatch_options, submitted

LAUNCHERS = ("slurm", "local")
_NOTICE_S = 180
"""Seconds before its end in which a task that is told to end is taken to be out of time; Slurm looks twice a minute."""


def launch(
    launcher: str,
    options: Mapping[str, str],
    work: Sequence[Work],
    folder: Path,
    begin: Callable[..., None],
    signals: Signals,
) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells as tasks; their outcomes as they come. A signal cancels what has not ended.

    By `slurm`, an array for each number of GPUs; by `local`, what it does on this machine, one cell after the other, so
    that none disturbs another's measurement. `options`: parameters of submitit. Raises UsageError.
    """
    if launcher not in LAUNCHERS:
        raise UsageError(f"--launcher {launcher}: must be {' or '.join(LAUNCHERS)}")
    arrays = _by_gpus(work)
    at_once = [arrays] if launcher == "slurm" else [[(gpus, [one])] for gpus, group in arrays for one in group]
    with _told(launcher), submitted(launcher, "collect-sweep", options) as tasks:
        for together in at_once:
            if signals.count:
                break
            cells: dict[str, Cell] = {}
            jobs = []
            for gpus, group in together:
                wanted = {"gpus_per_node": gpus} if gpus and "gpus_per_node" not in options else {}
                started = tasks.submit([(_task, (of, cell_command(cell))) for cell, of in group], **wanted)
                begin(*(cell for cell, _ in group))
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
def _told(launcher: str) -> Iterator[None]:
    """What a cluster refuses, as UsageError."""
    try:
        yield
    except TaskError as e:
        raise UsageError(f"--launcher {launcher}: {e}") from e
    except ImportError as e:
        raise UsageError(f"--launcher {launcher}: needs `pip install 'tracequarry[cluster]'` ({e})") from e


def _task(options: RunOptions, command: list[str]) -> Outcome:
    """A cell, wherever this runs."""
    with Signals({signal.SIGUSR2: _notice}) as signals:
        outcome = run_cell(options, command, signals)
    # Started again as it is, it would end there again.
    return outcome._replace(status="failed") if signals.count and signals.reason == OUT_OF_TIME else outcome


def _notice() -> str:
    """What SIGUSR2 says, which submitit has Slurm send 90 s before the end, or when another job takes the place."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return "preempted" if end.isdecimal() and int(end) - time.time() > _NOTICE_S else OUT_OF_TIME


def _lost(cell: Cell, folder: Path, reason: str) -> Outcome:
    """What becomes of a cell whose task is gone without a word; its run.json says so, too."""
    run = left_running(folder, cell_command(cell))
    if run is not None:
        run.abandon(reason)
    return Outcome("failed", run.path.name if run else None, reason)


def _by_gpus(work: Sequence[Work]) -> list[tuple[int, list[Work]]]:
    """Cells by the GPUs that they need, fewest first."""

    def gpus(one: Work) -> int:
        return 0 if one[1].device == "cpu" else one[1].gpus

    return [(number, list(group)) for number, group in groupby(sorted(work, key=gpus), key=gpus)]


def parse_options(given: Sequence[str], launcher: str | None, printed: bool) -> dict[str, str]:
    """Options of a launcher from texts as mem_gb=8. Raises UsageError, also where they have nothing to go with."""
    if printed and launcher != "slurm":
        raise UsageError("--print: goes with --launcher slurm")
    if given and launcher is None:
        raise UsageError("--launcher-option: goes with --launcher")
    if wrong := next((text for text in given if not text.partition("=")[2]), None):
        raise UsageError(f"--launcher-option {wrong}: must have the form name=value")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def script(plan_path: Path, output: Path | None, only: str | None, options: Mapping[str, str]) -> str:
    """A script that submits these cells to Slurm without submitit: an array for each number of GPUs, as a text.

    Each task sweeps one cell into a folder of its own, so that no two write one sweep.json.
    """
    plan, folder = read_plan(plan_path), sweep_folder(plan_path, output)
    cells = [Cell(values=values) for values in plan.cells]
    chosen = cells if only is None else only_cells(only, cells)
    work = [(cell, cell_options(plan_path, plan.options, cell.values, "")) for cell in chosen]
    lines = ["#!/bin/bash"]
    for gpus, group in _by_gpus(work):
        numbers = [str(number) for number, cell in enumerate(cells, 1) if any(cell is c for c, _ in group)]
        most = largest_array() or len(numbers)
        for part in (numbers[begin:][:most] for begin in range(0, len(numbers), most)):
            gpu_lines = [f"--gpus-per-node={gpus}"] if gpus else []
            asked = [f"--array=0-{len(part) - 1}", "--job-name=collect-sweep", *gpu_lines, *sbatch_options(options)]
            command = shlex.join(["collect", "sweep", str(plan_path)])
            lines += [
                "sbatch <<'END'",
                "#!/bin/bash",
                *(f"#SBATCH {line}" for line in asked),
                f"cells=({' '.join(part)})",
                "cell=${cells[$SLURM_ARRAY_TASK_ID]}",
                f"{command} -o {shlex.quote(str(folder / 'cell'))}-$cell --only cell=$cell",
                "END",
            ]
    return "\n".join(lines)
