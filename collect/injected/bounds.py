"""Bounds a recording by events, seconds and memory, so that it never harms the program.

torch.profiler does not say how many events it holds. The number of module calls estimates it, at about 6 operators a
call, and so does the growth of the process, since a program may run many more operators between the calls. Only the
growth is used before the first call, and if only GPU work is recorded, since counting calls would slow the host down.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import queue
import time
from collections.abc import Callable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

from .module_calls import ModuleCounter, call_before_next_module

EVENTS_PER_CALL = {False: 6, True: 25}
"""Events for each call of a module, without and with Python stacks: estimates. 6 was counted for small MLPs, for which
100,000 estimated events were 73,000."""
MOST_TIMES_ESTIMATE = 5
"""Most events per estimated event. A reinforcement-learning policy that is called for one observation at a time, and
samples from its output, had 5.2. A process may also grow for other reasons."""
EVENT_BYTES = 600
"""Growth of the process per event: 466 and 775 bytes were measured."""
POLL_S = 0.05
PROFILER_BYTES_PER_S = 120e6
"""Highest growth of the profiler's buffers: 260,000 events a second of 466 bytes."""
GROWTH_BYTES = 512e6
"""Bound of the growth before the first module call: about a million events."""
STOP_FACTOR = 8
"""Memory that the end of a recording takes, in multiples of what the recording took."""
OWN, LEFT, LIMIT, USED = MEMORY_FILES = (
    "/proc/self/statm",
    "/proc/meminfo",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.current",
)
"""Memory that this process has, and that this machine, or the process's cgroup, has left."""


class Bounds:
    """Calls `pause` from a thread of its own when a bound is reached, and `resume` at the first call of a module.

    So the program may load a model for longer than a recording may last. `reason` says which bound was reached.
    """

    def __init__(
        self,
        max_events: int | None,
        seconds: int,
        stacks: bool,
        pause: Callable[[], None],
        resume: Callable[[], None] | None,
    ) -> None:
        """Start to watch. No `max_events`: do not count. No `resume`: nothing restarts at the first module call."""
        self.reason: str | None = None
        self._max_events, self._seconds = max_events, seconds
        self._events_per_call = EVENTS_PER_CALL[stacks]
        self._pause, self._resume = pause, resume
        self._pid = os.getpid()
        self.over = False
        """Whether there is nothing more to watch."""
        self._stopped = False
        self.called_modules = False
        """Whether a module was called."""
        self._calls: ModuleCounter | None = None
        if max_events is not None:
            self._calls = ModuleCounter(self._on_first_call)
        elif resume is not None:
            call_before_next_module(self._on_first_call)
        self._restart()
        _watch(self)

    def stop(self) -> None:
        """Watch no longer."""
        self.over = self._stopped = True
        if self._calls:
            self._calls.stop()

    def _restart(self) -> None:
        self._start_s = time.monotonic()
        self._start_bytes = _own_bytes({OWN: _read(OWN)})

    def _on_first_call(self) -> None:
        if self._stopped or os.getpid() != self._pid:
            return
        self.called_modules = True
        self._restart()
        if self.reason is not None and self._resume is not None:
            self.reason = None
            self._resume()

    def check(self, memory: Mapping[str, bytes]) -> None:
        """Pause if a bound is reached. `memory` has the contents of MEMORY_FILES."""
        if self._stopped:
            return
        if self.reason is None:
            self.reason = self._exceeded(memory)
            if self.reason is not None:
                self._pause()
        self.over = self.reason is not None and (self.called_modules or self._resume is None)

    def _exceeded(self, memory: Mapping[str, bytes]) -> str | None:
        seconds = time.monotonic() - self._start_s
        growth = min(_own_bytes(memory) - self._start_bytes, seconds * PROFILER_BYTES_PER_S)
        if self._calls and self._max_events:
            estimate = self._calls.count * self._events_per_call
            by_growth = min(estimate * MOST_TIMES_ESTIMATE, growth / EVENT_BYTES)
            if max(estimate, by_growth) >= self._max_events:
                return f"about {self._max_events:,} events (--max-events)"
        if seconds >= self._seconds:
            return f"{self._seconds} s (--seconds)"
        if growth > GROWTH_BYTES and not (self._calls and self.called_modules):
            return f"{seconds:.0f} s, in which the process grew by {growth / 1e6:,.0f} MB"
        if growth * STOP_FACTOR > _available_bytes(memory):
            return f"{seconds:.0f} s: ending the recording could take all memory that is left"
        return None


_watched: dict[int, queue.SimpleQueue[Bounds]] = {}
"""Bounds that the thread watches, by process id: a forked child does not have the thread."""


def _watch(bounds: Bounds) -> None:
    """Let the thread of this process watch these bounds after the previous ones."""
    pid = os.getpid()
    if pid not in _watched:
        _watched.clear()
        _watched[pid] = queue.SimpleQueue()
        started = _thread.allocate_lock()
        started.acquire()
        _thread.start_new_thread(_watch_each, (_watched[pid], started))
        started.acquire()
    _watched[pid].put(bounds)


def _watch_each(queued: queue.SimpleQueue[Bounds], started: _thread.LockType) -> None:
    """Check bounds until they are over, then the next ones.

    From Python 3.12 on, cProfile sees the calls of all threads as one stack, and counts the program's wrongly if it is
    enabled or disabled within a call here. So this never returns, and map() makes its calls: cProfile does not see
    those.
    """
    files = [path for path in MEMORY_FILES if Path(path).exists()]
    started.release()
    while True:
        [bounds] = map(queue.SimpleQueue.get, [queued])
        while not bounds.over:
            list(map(time.sleep, [POLL_S]))
            opened: list[int] = []
            texts: list[bytes] = []
            try:
                # While the program runs Python code, each system call waits 5 ms for the GIL.
                opened += map(os.open, files, repeat(os.O_RDONLY))
                texts += map(os.read, opened, repeat(4096))
            except OSError:  # too many open files
                pass
            finally:
                list(map(os.close, opened))
            bounds.check(dict(zip(files, texts, strict=False)))


def call_in_main_thread(callback: Callable[[], None]) -> Any:
    """Call `callback` in the main thread as soon as that runs Python code, if the object that is returned is kept."""

    def call(_: Any) -> int:
        callback()
        return 0

    pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    ctypes.pythonapi.Py_AddPendingCall(pending, None)
    return pending


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _own_bytes(memory: Mapping[str, bytes]) -> int:
    """Memory of this process that no file backs."""
    with contextlib.suppress(KeyError, ValueError):
        _, resident, shared = memory[OWN].split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _available_bytes(memory: Mapping[str, bytes]) -> float:
    """Memory that this machine, or this process's cgroup, has left."""
    available = float("inf")
    with contextlib.suppress(KeyError, ValueError, IndexError):
        available = int(memory[LEFT].partition(b"MemAvailable:")[2].split()[0]) * 1024
    with contextlib.suppress(KeyError, ValueError):
        available = min(available, int(memory[LIMIT]) - int(memory[USED]))
    return available
