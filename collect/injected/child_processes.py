"""Keeps processes that a recorded program starts by fork or multiprocessing free of the profiler's effects."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import warnings
from collections.abc import Callable

from .torch_internals import find


def started_by_multiprocessing() -> bool:
    """Whether multiprocessing started this process: a DataLoader worker, a rank, or the fork server.

    A spawned process does not know its parent yet while it imports the main module again.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    is_importing = getattr(process.current_process(), "_inheriting", False)
    is_fork_server = any(a.startswith("from multiprocessing.forkserver ") for a in getattr(sys, "orig_argv", ()))
    return is_importing or is_fork_server or process.parent_process() is not None


def call_at_multiprocessing_exit(callback: Callable[[], None]) -> None:
    """Call `callback` before a process forked by multiprocessing exits: such a process skips atexit callbacks."""
    if started_by_multiprocessing():
        import multiprocessing.util

        # The priority runs it before multiprocessing closes its queues and pools.
        multiprocessing.util.Finalize(None, callback, exitpriority=1000)


def disable_in_forked_child(recording: bool, stacks: bool) -> None:
    """Remove the parent's profiler from a forked child; `recording` says whether it was running.

    The profiler is not stopped: that would process all of the parent's events. Its operator callbacks are removed,
    since otherwise they would collect events as long as the child lives.

    Kineto's thread does not exist in the child, but the condition variable it waited on still counts it as a waiter, so
    its destructor, one of the C++ static destructors, would wait forever.
    """
    if recording:
        if clear := find("torch._C._autograd._clear_callbacks"):
            clear()
        if stacks:
            sys.setprofile(None)
    exit_before_static_destructors()


def ignore_fork_warning() -> None:
    """Let Python 3.12 and later not warn of forks in a process with several threads: Kineto's makes it one."""
    message = r"This process \(pid=\d+\) is multi-threaded, use of fork\(\)"
    warnings.filterwarnings("ignore", message, DeprecationWarning)


def exit_before_static_destructors() -> None:
    """Make the process exit before C++ static destructors run, after Python's own cleanup and C's fflush."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        # Exit handlers run in reverse order. Both functions ignore the extra arguments.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)
