"""Starts a torch.profiler without its messages on the program's stderr, and without its imports."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from .torch_internals import find

THREAD_ERROR = b"ERROR: External init callback must run in same thread as registerClient"
"""Kineto prints this if the first profiler starts in another thread than the one that imported torch. It works then."""


def start_profiler(profile: Any) -> None:
    """Start a torch.profiler.profile that records one cycle.

    torch warns that it drops the events of earlier cycles, unless it accumulates them. Catching the warning would make
    Python repeat warnings that the program has already printed.
    """
    profile.acc_events = True
    with _without_thread_error(), _without_inductor():
        profile.start()
    # Accumulating, stop() would take 70 us for each event.
    profile.acc_events = profile.profiler.acc_events = False


@contextlib.contextmanager
def _without_inductor() -> Iterator[None]:
    """Let the profiler not import torch._inductor, where the program has not.

    It reads there whether CUDA graphs are on by default. The import takes 1.5 s and 150 MB, and adds warning filters:
    then Python repeats warnings that the program has already printed.
    """
    lazy = find("torch._lazy_modules")
    if lazy is None or "torch._inductor" in sys.modules or "TORCHINDUCTOR_CUDAGRAPHS" in os.environ:
        yield
        return
    import torch

    module: Any = torch
    module._lazy_modules = _OfOtherThreads(lazy)
    try:
        yield
    finally:
        module._lazy_modules = lazy


class _OfOtherThreads(set[str]):
    """Modules that torch imports when they are first used; in this thread not torch._inductor."""

    def __init__(self, modules: Iterable[str]) -> None:
        super().__init__(modules)
        self._thread = threading.get_ident()

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) and (name != "_inductor" or threading.get_ident() != self._thread)


@contextlib.contextmanager
def _without_thread_error() -> Iterator[None]:
    """Drop THREAD_ERROR, which Kineto prints at any KINETO_LOG_LEVEL.

    Inside this block, C's `stderr` is a file in memory. Its other lines are printed at the end. Python's stderr is the
    file descriptor, which stays.
    """
    if threading.current_thread() is threading.main_thread() or sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stderr = ctypes.c_void_p.in_dll(libc, "stderr")
    # It is never closed: another thread may print just then.
    file = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    original, stderr.value = stderr.value, file.value
    try:
        yield
    finally:
        stderr.value = original
        libc.fflush(file)
        lines = ctypes.string_at(text, size.value).splitlines(keepends=True)
        if rest := b"".join(line for line in lines if not line.startswith(THREAD_ERROR)):
            os.write(2, rest)
