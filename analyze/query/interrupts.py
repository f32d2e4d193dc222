"""What works on questions, for who has to end it: a signal, which Python hears of when DuckDB is done."""

from __future__ import annotations

from threading import Event
from typing import Protocol
from weakref import WeakSet


class Interruptible(Protocol):
    """An engine."""

    def interrupt(self) -> None:
        """End what it works on, from another thread."""


_open: WeakSet[Interruptible] = WeakSet()
_ended = Event()


def note(engine: Interruptible) -> None:
    """`interrupt_all` is for this one, too, for as long as it is there."""
    _open.add(engine)


def interrupt_all() -> None:
    """End what all of them work on, from another thread, and what they would be asked next."""
    _ended.set()
    for engine in list(_open):
        engine.interrupt()


def end_if_told() -> None:
    """Raise KeyboardInterrupt in any thread that asks on when all was to end."""
    if _ended.is_set():
        raise KeyboardInterrupt
