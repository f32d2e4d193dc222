"""Identifies the job that a process belongs to: its rank, the number of processes, and the attempt."""

from __future__ import annotations

import os
import sys
from typing import Any

from .torch_internals import find

_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
"""Together with the world size they distinguish a job from other jobs and attempts of the same program."""


def process_group() -> Any:
    """Return torch.distributed if the program has initialised a process group, else None."""
    module = sys.modules.get("torch.distributed")
    if module is not None and module.is_available() and module.is_initialized():
        return module
    return None


def store_of_ranks() -> Any:
    """Return the store of the program's process group, or None."""
    get_store = find("torch.distributed.distributed_c10d._get_default_store") if process_group() else None
    return get_store() if get_store else None


class Job:
    """Rank and size of this process's job; None while unknown."""

    def __init__(self) -> None:
        """Nothing is known yet; see refresh()."""
        self.rank: int | None = None
        self.world_size: int | None = None
        self.in_group = False
        """Whether the process group says so, or only variables, which child processes inherit."""
        self.id: str | None = None

    def refresh(self) -> None:
        """Read rank and size while the process group exists: it may be destroyed before the process exits."""
        group = process_group()
        if group is not None:
            rank, world_size = group.get_rank(), group.get_world_size()
        else:
            rank, world_size = (_number(os.environ.get(name, "")) for name in ("RANK", "WORLD_SIZE"))
        if rank is None or (self.in_group and group is None):
            return
        self.rank, self.world_size, self.in_group = rank, world_size, group is not None
        self.id = " ".join([*(os.environ.get(name, "") for name in _JOB_VARIABLES), str(world_size)])


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
