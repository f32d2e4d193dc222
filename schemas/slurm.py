"""Options of tasks on a cluster, which both sides take as submitit has them: timeout_min, mem_gb, slurm_partition."""

from __future__ import annotations

from collections.abc import Mapping

_SBATCH = {"timeout_min": "time", "cpus_per_task": "cpus-per-task", "mem_gb": "mem"}


def typed(options: Mapping[str, str]) -> dict[str, str | int]:
    """Options from texts: whole numbers as such."""
    return {name: int(value) if value.isdecimal() else value for name, value in options.items()}


def sbatch_options(options: Mapping[str, str]) -> list[str]:
    """The same as options of sbatch: --mem=8G."""
    return [
        f"--{_SBATCH.get(name, name.removeprefix('slurm_').replace('_', '-'))}={value}{'G' if name == 'mem_gb' else ''}"
        for name, value in options.items()
    ]
