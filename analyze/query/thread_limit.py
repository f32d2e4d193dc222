"""How many threads DuckDB uses, and the limit of open files (RLIMIT_NOFILE) that they need."""

from __future__ import annotations

import os
import sys

from analyze.cpus import cpus
from analyze.errors import InputError

THREADS_VARIABLE = "TRACEQUARRY_THREADS"

_WANTED = 64 << 10
_OTHERS = 128
_MOST_THREADS = 1024
_FILES_PER_THREAD = 100
"""Measured over 2,000 files: `breakdown` has 266 open with 1 thread, 753 with 8, 981 with 32 and 1,322 with 64."""


def threads() -> int:
    """Threads that a query over any number of files may use; raises the limit of open files as far as it may.

    At most $TRACEQUARRY_THREADS, else as many as there are CPUs. Raises InputError.
    """
    most = cpus()
    if text := os.environ.get(THREADS_VARIABLE):
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_THREADS):
            raise InputError(f"${THREADS_VARIABLE}: {text!r} is not a number of threads from 1 to {_MOST_THREADS}")
        most = min(most, int(text))
    if sys.platform == "win32":  # has no such limit
        return most
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass  # not allowed here: what there is must do
    return most if soft == resource.RLIM_INFINITY else most_threads(soft, most)


def most_threads(limit: int, cpus: int) -> int:
    """Return the number of threads for these CPUs under the limit of open files."""
    return max(1, min(cpus, (limit - _OTHERS) // _FILES_PER_THREAD))
