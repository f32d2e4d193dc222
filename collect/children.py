"""Processes that a recorded program starts by fork or by multiprocessing: they are as without a profiler.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any


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


def when_in_a_process_group(then: Callable[[], None]) -> None:
    """Call `then` whenever the program has made this process one of a process group."""
    distributed: Any = sys.modules.get("torch.distributed")
    begin = getattr(distributed, "init_process_group", None)
    if begin is None:
        return

    @functools.wraps(begin)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = begin(*args, **kwargs)
        then()
        return result

    for module in (distributed, distributed.distributed_c10d):
        module.init_process_group = init_process_group


def end_as_unprofiled(recording: bool, stacks: bool) -> None:
    """In a forked child, leave nothing of the profiler that ran in its parent; if `recording`, it runs here, too.

    The profiler is not stopped: that takes as long as there are events of the parent's. Operators are no longer told
    to it, which would keep them for the life of the child.

    Kineto's thread does not live on here, but the condition variable on which it waited counts it, and is taken apart
    when C++ takes apart its static objects: it would wait for that thread for ever. So the process ends before it comes
    to them; what Python has to do at its end is done by then, and what C has to write out is still done.
    """
    if recording:
        import torch

        with contextlib.suppress(AttributeError):
            torch._C._autograd._clear_callbacks()
        if stacks:
            sys.setprofile(None)
    with contextlib.suppress(OSError, AttributeError):  # without glibc's functions
        libc = ctypes.CDLL(None)
        # The last one is called first; both take any number of arguments.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)
