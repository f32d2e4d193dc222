"""Jobs on several nodes: what a launcher says of them, and what all nodes must see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LAUNCHERS = {"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "jsrun", "aprun", "flux"}
"""Programs that start processes on other nodes."""


def slurm_job(environment: Mapping[str, str]) -> str | None:
    """The job that this process is one of several tasks of, by the variables that srun sets; None if of none.

    In a batch script, which runs once however many tasks were asked for, there is no step.
    """
    job, step, tasks = (environment.get(f"SLURM_{n}", "") for n in ("JOB_ID", "STEP_ID", "STEP_NUM_TASKS"))
    if not (job.isdecimal() and step.isdecimal() and tasks.isdecimal()) or int(tasks) < 2:
        return None
    # Of a job that Slurm starts again, the steps are numbered from 0 again.
    restart = environment.get("SLURM_RESTART_COUNT", "")
    return f"slurm-{job}-{step}" + (f"-restart{restart}" if restart.isdecimal() and int(restart) else "")


def reaches_nodes(program: tuple[str, ...]) -> bool:
    """Whether a command starts processes on other nodes, which see the run folder, but not this node's own disks."""
    return bool(program) and Path(program[0]).name in LAUNCHERS
