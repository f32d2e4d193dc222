"""Samples the state of this host for `sampler`, from /proc of Linux: how busy its CPUs are, and its memory.

Shares and rates are those since the sample before. docs/profilers.md says what each counter is.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT, _LOAD, _MEMORY, _VM = (Path("/proc") / name for name in ("stat", "loadavg", "meminfo", "vmstat"))


class HostState:
    """The state of this host."""

    def __init__(self) -> None:
        """Begin to count. Raises OSError where there is no /proc."""
        self._before = self._counts()

    def sample(self) -> list[tuple[str, int, float]]:
        """Return name, time in ns since the epoch and value of each counter."""
        now, before = self._counts(), self._before
        self._before = now
        seconds, total, idle, stolen, swapped = (a - b for a, b in zip(now, before, strict=True))
        values = {
            # The fourth number is "running/all".
            "runnable_threads": float(_LOAD.read_text().split()[3].partition("/")[0]),
            "available_memory_bytes": _named(_MEMORY, "MemAvailable:") * 1024,
            "swap_bytes_per_s": swapped * os.sysconf("SC_PAGE_SIZE") / seconds,
        }
        if total:  # ticks of 10 ms have passed
            values["cpu_busy_pct"] = 100 * (total - idle - stolen) / total
            values["cpu_stolen_pct"] = 100 * stolen / total
        at = time.time_ns()
        return [(name, at, round(value, 3)) for name, value in values.items()]

    @staticmethod
    def _counts() -> tuple[float, ...]:
        """Return seconds, ticks of all CPUs (all, idle, stolen), and pages swapped, all since some time."""
        user, nice, system, idle, wait, irq, soft, steal = map(int, _STAT.read_text().split(maxsplit=9)[1:9])
        total = user + nice + system + idle + wait + irq + soft + steal
        return time.monotonic(), total, idle + wait, steal, _named(_VM, "pswpin") + _named(_VM, "pswpout")


def _named(path: Path, name: str) -> int:
    """The number behind a name at the start of a line; 0 if the kernel does not have it."""
    line = next((line for line in path.read_text().splitlines() if line.split()[0] == name), None)
    return int(line.split()[1]) if line else 0
