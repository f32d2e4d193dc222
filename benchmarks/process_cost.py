"""Time and memory of a command.

A small process starts the command: Linux counts the peak memory of the process that starts a program as that program's,
and a benchmark that has built a store holds gigabytes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import NamedTuple


class Cost(NamedTuple):
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_gb: float
    code: int
    """Its exit code, or -N if signal N ended it."""
    error: str
    """The last line that it wrote to stderr."""


def analyze_cost(arguments: list[str], cache: str, cpu_limit_s: int | None = None, **environment: str) -> Cost:
    """Run `analyze ARGUMENTS` with an empty cache folder, without its output, and measure it."""
    measured = [sys.executable, __file__, str(cpu_limit_s or 0), sys.executable, "-m", "analyze", *arguments]
    variables = {**os.environ, "TRACEQUARRY_CACHE": cache, **environment}
    done = subprocess.run(measured, capture_output=True, text=True, check=True, env=variables)
    errors = done.stderr.strip().splitlines() or [""]
    return Cost(*json.loads(done.stdout), errors[-1])


def main() -> None:
    """Run the command of the arguments; print its wall time, CPU time, peak memory in GB and exit code as JSON."""
    cpu_limit_s, command = int(sys.argv[1]), sys.argv[2:]
    if cpu_limit_s:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s))
    began = time.perf_counter()
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    wall_s = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, code]))


if __name__ == "__main__":
    main()
