"""Jobs on several nodes: the Slurm job of this process, and commands that start processes on other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LAUNCHERS = {"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "jsrun", "aprun", "flux"}
"""Programs that start processes on other nodes."""


def slurm_job(environment: Mapping[str, str]) -> str | None:
    """Name of the Slurm job step, from srun's variables, if it has several tasks; else None.

    A batch script runs once, whatever the number of tasks, and has no step.
    """
    job, step, tasks = (environment.get(f"SLURM_{n}", "") for n in ("JOB_ID", "STEP_ID", "STEP_NUM_TASKS"))
    if not (job.isdecimal() and step.isdecimal() and tasks.isdecimal()) or int(tasks) < 2:
        return None
    # When Slurm requeues a job, its steps are numbered from 0 again.
    restart = environment.get("SLURM_RESTART_COUNT", "")
    return f"slurm-{job}-{step}" + (f"-restart{restart}" if restart.isdecimal() and int(restart) else "")


def reaches_nodes(program: tuple[str, ...]) -> bool:
    """Whether a command starts processes on other nodes, which share the run folder but not this node's disks."""
    return bool(program) and Path(program[0]).name in LAUNCHERS
