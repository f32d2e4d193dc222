"""What engines beside each other have made of stored tables and blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Made:
    """The names of what is there."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.whole = True
        self.own = False
        """Whether a block of a user's own is among them."""
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def made_once(self, name: str) -> Iterator[bool]:
        """Whether it is to be made now; no other thread makes the same meanwhile."""
        with self._locks.setdefault(name, threading.Lock()):
            yield name not in self.made
            self.made.add(name)
