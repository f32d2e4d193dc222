"""Worker processes for the ingest."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from multiprocessing.context import SpawnContext, SpawnProcess

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>


class _Process(SpawnProcess):
    """A spawned process that does not import the caller's main module: a script needs no `__main__` guard."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    # "spawn": the caller may have threads (DuckDB, progress bars), which fork would copy in mid-step.
    Process = _Process


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ImportError("pandas is not used in the ingest's processes")


def _keep_freed_memory() -> None:
    # glibc gives freed blocks of MBs back to the system, which clears every page anew for the next chunk: a fifth of
    # the time. A C library without mallopt is left as it is.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that older versions take
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)


def _set_up() -> None:
    # pyarrow.array() imports pandas, if it can, to ask whether its argument is a Series: 0.5 s for nothing.
    sys.meta_path.insert(0, _NoPandas())
    # Events are freed by reference count; looking for cycles among millions of them costs a tenth of the time.
    gc.disable()
    _keep_freed_memory()
    # Ctrl-C reaches the whole process group; the parent ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """So many worker processes; on an error, what has not begun is dropped."""
    pool = ProcessPoolExecutor(workers, mp_context=_Context(), initializer=_set_up)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
