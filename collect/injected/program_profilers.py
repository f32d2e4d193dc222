"""Detects torch profilers that the program starts itself.

torch runs one profiler at a time: starting a second one ends the first, and stopping the first then crashes the
process.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .torch_internals import find


class ProgramProfilers:
    """Calls `on_start` before the program starts a profiler, and knows whether one is running."""

    def __init__(self, on_start: Callable[[], None]) -> None:
        """Patch torch's profiler."""
        from torch.autograd.profiler import profile

        self._ignoring = False
        self._running: weakref.WeakSet[Any] = weakref.WeakSet()
        original_prepare, original_exit = find("torch.autograd.profiler.profile._prepare_trace"), profile.__exit__
        if original_prepare is None:
            return

        @functools.wraps(original_prepare)
        def _prepare_trace(profiler: Any) -> Any:
            if not self._ignoring:
                on_start()
                self._running.add(profiler)
            return original_prepare(profiler)

        @functools.wraps(original_exit)
        def __exit__(profiler: Any, *raised: Any) -> Any:
            try:
                return original_exit(profiler, *raised)
            finally:
                self._running.discard(profiler)

        profile._prepare_trace, profile.__exit__ = _prepare_trace, __exit__

    @property
    def running(self) -> bool:
        """Whether the program is running a profiler."""
        return bool(self._running)

    @contextlib.contextmanager
    def ignore(self) -> Iterator[None]:
        """Inside this block, profilers that start are the recorder's own."""
        self._ignoring = True
        try:
            yield
        finally:
            self._ignoring = False
