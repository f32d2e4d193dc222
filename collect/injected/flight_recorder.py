"""Lets PyTorch's flight recorder, which keeps the last collectives of a process, dump them into the run folder.

torch dumps when a collective times out. This dumps when the program gets SIGINT or SIGTERM, too: a job that hangs is
ended so.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from .job import process_group
from .torch_internals import find
from .trace_files import private_folder

NAME = "nccl_trace_rank_"
"""Beginning of a dump's name; torchfrtrace expects the rank after it."""
_VARIABLES = {
    ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"): "2000",
    ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"): "1",
}
"""Settings of the recorder, each by its name in this and in earlier versions of torch: later ones have these values."""
_PREFIX = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_BEGAN_S = time.time()
_OLD = (2, 11)
"""Versions of torch before this one need the earlier names; this one warns of them."""


def dump_into(folder: Path) -> None:
    """Let this process's dumps appear in `folder`. What the user has set stays."""
    import torch

    is_old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLD
    settings = {_PREFIX: str(folder / NAME), **(_VARIABLES if is_old else {})}
    for names, value in settings.items():
        if not any(name in os.environ for name in names):
            os.environ[names[is_old]] = value


def dump(folder: Path) -> None:
    """Write a dump of this rank, unless torch has. Called in a thread: the program's may wait in C++ for ever."""
    with contextlib.suppress(Exception):  # of torch, in a process that may be ending
        group = process_group()
        path = folder / f"{NAME}{group.get_rank()}" if group else None
        if path is None or (path.exists() and path.stat().st_mtime > _BEGAN_S):
            return
        record = find("torch._C._distributed_c10d._dump_nccl_trace")
        content = record() if record else b""
        if b"collective_seq_id" in content:  # not so without NCCL
            with private_folder(folder) as temporary:
                part = Path(temporary) / path.name
                part.write_bytes(content)
                part.replace(path)
