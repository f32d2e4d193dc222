"""Leaves the report of a process for `collect`, which reads it as rank_reports.AttachedReport."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from .job import Job
from .torch_facts import torch_facts, used_gpus
from .torch_internals import missing


def leave_report(work: Path, pid: int, job: Job, **fields: Any) -> None:
    """Write the report of a process, in place of its previous one."""
    report = {
        "job_rank": job.rank,
        "job": job.id,
        "in_group": job.in_group,
        "script": Path(sys.argv[0]).name if sys.argv else "",
        "when": time.time(),
        **fields,
    }
    with contextlib.suppress(OSError):
        (work / f"attach-{socket.gethostname()}-{pid}.json").write_text(json.dumps(report), encoding="utf-8")


def process_facts(job: Job) -> dict[str, Any]:
    """Return what a report says of a process that has recorded, whatever it recorded."""
    task = os.environ.get("SLURM_PROCID", "")
    return {
        "facts": torch_facts(),
        "gpus": used_gpus(),
        "world_size": job.world_size,
        "host": socket.gethostname(),
        "task": int(task) if task.isdecimal() else 0,
        "missing": missing(),
    }
