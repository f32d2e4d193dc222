"""Tells outermost calls from those inside them, in each thread."""

from __future__ import annotations

import threading


class Nesting(threading.local):
    """The number of calls that are running in this thread."""

    depth = 0

    def enter(self) -> None:
        """Note that a call begins."""
        self.depth += 1

    def leave(self) -> bool:
        """Note that a call ends; return whether it was an outermost one."""
        self.depth -= 1
        return self.depth == 0
