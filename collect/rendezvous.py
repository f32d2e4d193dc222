"""Where the ranks of a program of the user's own wait for each other, without a collective.

A collective would be a kernel in the recording, and would hang with a rank that never comes: ranks need not step their
optimizers equally often, or at all. The store that the process group was made with counts who has come, and nobody
waits longer than a time limit. Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

LIMIT_S = 10.0
"""How long a rank waits for the others; then it goes on alone."""
PAUSE_S = 1e-4
"""Between two questions to the store, for each 8 ranks that ask; but a thousandth of the time that was waited: to ask
as often all the time takes a third of a core, the store's part included. Ranks start about so far apart."""


def _distributed() -> Any:
    """torch.distributed with an initialised process group, if the program has one."""
    module = sys.modules.get("torch.distributed")
    if module is not None and module.is_available() and module.is_initialized():
        return module
    return None


def job() -> tuple[int | None, int | None, bool]:
    """This process's rank, the number of processes of its job, None for what is not known, and whether its process
    group tells: without one, the launcher's variables do."""
    distributed = _distributed()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size(), True
    rank, world = (os.environ.get(v, "") for v in ("RANK", "WORLD_SIZE"))
    return int(rank) if rank.isdecimal() else None, int(world) if world.isdecimal() else None, False


def meet(place: str, limit_s: float = LIMIT_S) -> str | None:
    """Wait until all ranks of the job have come to `place`, a name that is used once; why they did not, if so."""
    distributed = _distributed()
    if distributed is None:
        return "there was no process group to wait in"
    world = distributed.get_world_size()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"tracequarry/{attempt}/{place}"
    try:
        store = distributed.distributed_c10d._get_default_store()
        if store.add(key, 1) == world:
            store.set(key + "/all", "1")
            return None
        began = time.monotonic()
        # Not store.wait(): it holds the connection that NCCL's watchdog asks through, too.
        while (waited := time.monotonic() - began) < limit_s:
            if store.check([key + "/all"]):
                return None
            time.sleep(max(PAUSE_S * max(1.0, world / 8), waited / 1000))
        return f"{store.add(key, 0)} of {world} ranks came within {limit_s:g} s"
    except Exception as e:
        first = next(iter(str(e).splitlines()), "")[:200]
        return f"the ranks could not wait for each other: {type(e).__name__}: {first}"
