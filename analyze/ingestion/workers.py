"""Worker processes for the ingest, and a thread beside its own."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from analyze import no_pandas
from schemas.isolation import isolated_children

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>


class _Process(SpawnProcess):
    """A spawned process that does not import the caller's main module: a script needs no `__main__` guard."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            with isolated_children():
                super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    # "spawn": the caller may have threads (DuckDB, progress bars), which fork would copy in mid-step.
    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Process] = []

    def Process(self, *args: Any, **options: Any) -> _Process:  # type: ignore[override]
        process = _Process(*args, **options)
        self.started.append(process)
        return process


def _keep_freed_memory() -> None:
    # glibc gives freed blocks of MBs back to the system, which clears every page anew for the next chunk: a fifth of
    # the time. A C library without mallopt is left as it is.
    mallopt = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that older versions take
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)


def _die_with_parent(parent: int) -> None:
    """End this process when the one that started it ends, however it does.

    Waiting for work, a worker would not notice: its siblings hold the other end of the queue, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was faster
            os._exit(1)
        return
    starter = parent_process()

    def watch() -> None:
        if starter is not None:
            wait([starter.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def only_reads() -> None:
    """Make reading cheaper in a process that does nothing else, before it has imported what reads."""
    no_pandas.forbid()
    # Events are freed by reference count; looking for cycles among millions of them costs a tenth of the time.
    gc.disable()
    _keep_freed_memory()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own gives freed memory back, too
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts a thread for each CPU, for nothing


def _set_up(parent: int) -> None:
    _die_with_parent(parent)
    only_reads()
    # Ctrl-C, and the end of a terminal, reach the whole process group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


class _Here(Executor):
    """Works in this process, at once: for less work than it takes to start another."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as e:
            done.set_exception(e)
        return done


class OneBeside(_Here):
    """Works in a thread beside this one, on one thing at a time; while it does, this thread works itself: so little
    waits in memory. For what leaves Python's lock to others."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[Any] | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As Executor.submit."""
        if self._last is not None and not self._last.done():
            return super().submit(fn, *args, **kwargs)
        self._last = self._thread.submit(fn, *args, **kwargs)
        return self._last

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As Executor.shutdown."""
        self._thread.shutdown(wait, cancel_futures=cancel_futures)


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor]:
    """So many worker processes; on an error, they end at once. With 0, this process does the work itself."""
    if not workers:
        yield _Here()
        return
    if sys.platform == "win32":
        workers = min(workers, 61)  # more handles cannot be waited for at once there
    context = _Context()
    with isolated_children():  # its queues start multiprocessing's resource tracker, another Python
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        for process in context.started:
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
