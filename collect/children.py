"""Processes that a recorded program starts by fork or by multiprocessing: they are as without a profiler.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable


def is_of_multiprocessing() -> bool:
    """Whether multiprocessing started this process: a DataLoader's worker, a rank, or the server that forks such ones.

    While a process's main module is imported anew, it does not know its parent yet.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    importing = getattr(process.current_process(), "_inheriting", False)
    serving = any(a.startswith("from multiprocessing.forkserver ") for a in getattr(sys, "orig_argv", ()))
    return importing or serving or process.parent_process() is not None


def at_end_of_multiprocessing(do: Callable[[], None]) -> None:
    """Call `do` before a process ends that multiprocessing has forked: what atexit has to do is not done there."""
    if is_of_multiprocessing():
        import multiprocessing.util

        # Its own order: before its queues and pools are taken apart.
        multiprocessing.util.Finalize(None, do, exitpriority=1000)


def end_as_unprofiled(recording: bool, stacks: bool) -> None:
    """In a forked child, leave nothing of the profiler that ran in its parent; if `recording`, it runs here, too.

    The profiler is not stopped: that takes as long as there are events of the parent's. Operators are no longer told
    to it, which would keep them for the life of the child.

    Kineto's thread does not live on here, but the condition variable on which it waited counts it, and is taken apart
    when C++ takes apart its static objects: it would wait for that thread for ever.
    """
    if recording:
        import torch

        with contextlib.suppress(AttributeError):
            torch._C._autograd._clear_callbacks()
        if stacks:
            sys.setprofile(None)
    end_before_static_objects()


def end_before_static_objects() -> None:
    """Have the process end before C++ takes apart its static objects. What Python has to do at its end is done by then,
    and what C has to write out is still done."""
    with contextlib.suppress(OSError, AttributeError):  # without glibc's functions
        libc = ctypes.CDLL(None)
        # The last one is called first; both take any number of arguments.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)
