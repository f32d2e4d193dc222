"""Profilers of torch that a program runs itself. torch runs one at a time: to start a second one ends the first, and
to stop the first one then crashes the process.

Uses the standard library and torch alone; see collect.attach for why.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any


class OtherProfilers:
    """Those that are not started within `ours()`; `begins` is called before one is."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """Watch from now on."""
        from torch.autograd.profiler import profile

        self._ours = False
        self._running: weakref.WeakSet[Any] = weakref.WeakSet()
        if not hasattr(profile, "_prepare_trace"):  # before torch 1.8.1
            return
        prepare, leave = profile._prepare_trace, profile.__exit__

        @functools.wraps(prepare)
        def _prepare_trace(own: Any) -> Any:
            if not self._ours:
                begins()
                self._running.add(own)
            return prepare(own)

        @functools.wraps(leave)
        def __exit__(own: Any, *raised: Any) -> Any:
            try:
                return leave(own, *raised)
            finally:
                self._running.discard(own)

        profile._prepare_trace, profile.__exit__ = _prepare_trace, __exit__

    @property
    def running(self) -> bool:
        """Whether the program runs one."""
        return bool(self._running)

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """What is started in here is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False
