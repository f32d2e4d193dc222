"""Lets the ranks of the user's program wait for each other without a collective.

A collective would be a kernel in the recording, and would hang if a rank never arrives: ranks need not step their
optimizers equally often, or at all. Instead, ranks count themselves in the process group's store, with a time limit.
"""

from __future__ import annotations

import os
import time

from .job import process_group, store_of_ranks

TIMEOUT_S = 10.0
"""How long a rank waits for the others before it goes on alone."""
POLL_S = 1e-4
"""Shortest time between two queries to the store, for each 8 ranks. It grows to a thousandth of the time waited so far:
constant polling takes a third of a core, the store included. Ranks start about that far apart."""


def wait_for_ranks(barrier: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """Wait until all ranks of the job reach `barrier`, a name used once. Return why they did not, or None."""
    group = process_group()
    if group is None:
        return "there was no process group in which the ranks could wait for each other"
    world_size = group.get_world_size()
    key = _key(barrier)
    try:
        store = store_of_ranks()
        if store.add(key, 1) == world_size:
            store.set(key + "/all", "1")
            return None
        start = time.monotonic()
        # Not store.wait(): it blocks the connection that NCCL's watchdog uses, too.
        while (waited := time.monotonic() - start) < timeout_s:
            if store.check([key + "/all"]):
                return None
            time.sleep(max(POLL_S * max(1.0, world_size / 8), waited / 1000))
        return f"{store.add(key, 0)} of {world_size} ranks arrived within {timeout_s:g} s"
    except Exception as e:
        message = next(iter(str(e).splitlines()), "")[:200]
        return f"the ranks could not wait for each other: {type(e).__name__}: {message}"


def value_of_rank_0(name: str, value: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """Return what rank 0 passed as `value` under `name`, which is used once; None if it does not within the time."""
    group = process_group()
    if group is None:
        return None
    try:
        store = store_of_ranks()
        if group.get_rank() == 0:
            store.set(_key(name), value)
            return value
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if store.check([_key(name)]):
                found: str = store.get(_key(name)).decode()
                return found
            time.sleep(0.01)
    except Exception:
        pass
    return None


def _key(name: str) -> str:
    return f"tracequarry/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{name}"
