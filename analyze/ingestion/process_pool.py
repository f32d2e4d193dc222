"""The pool of worker processes of an ingest; `staging.workers` decides how many."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from schemas.isolation import isolated_children

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>


class _Process(SpawnProcess):
    """A spawned process that does not import the caller's main module, so scripts need no `__main__` guard."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            with isolated_children():
                super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    # "spawn": the caller may have threads (DuckDB, progress bars), with which fork is not safe.
    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Process] = []

    def Process(self, *args: Any, **options: Any) -> _Process:  # type: ignore[override]
        process = _Process(*args, **options)
        self.started.append(process)
        return process


def _keep_freed_memory() -> None:
    # glibc returns large freed blocks to the system, and clearing the pages again takes a fifth of the time. Other C
    # libraries have no mallopt.
    mallopt = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the maximum of older versions
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)


def _die_with_parent(parent: int) -> None:
    """End this process when its parent ends for any reason.

    A worker that waits for work would not notice, because its siblings hold the queue open, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)
        return
    starter = parent_process()

    def watch() -> None:
        if starter is not None:
            wait([starter.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def only_reads() -> None:
    """Tune a process that only reads; call it before the readers are imported."""
    # Events are freed by reference count; collecting cycles among millions of them takes a tenth of the time.
    gc.disable()
    _keep_freed_memory()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own pool returns freed memory, too
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start a thread for each CPU


def _set_up(parent: int) -> None:
    _die_with_parent(parent)
    only_reads()
    # Ctrl-C, and the end of a terminal, reach the whole process group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


class _InlineExecutor(Executor):
    """Runs work in this process: for work that is shorter than starting a process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as e:
            done.set_exception(e)
        return done


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor]:
    """Start worker processes and kill them on an error. With 0, this process does the work itself."""
    if not workers:
        yield _InlineExecutor()
        return
    if sys.platform == "win32":
        workers = min(workers, 61)  # Windows waits for at most 63 handles
    context = _Context()
    with isolated_children():  # starts multiprocessing's resource tracker, a Python process
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        for process in context.started:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
