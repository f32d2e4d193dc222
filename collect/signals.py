"""Catch Ctrl-C, SIGTERM and a scheduler's signals, and pass them on to the processes of the program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

GRACE_S = 30.0
"""How long an interrupted command may take to write its recording, before SIGTERM and then SIGKILL."""
KILL_AFTER_S = 10.0


class Signals:
    """Catches and counts SIGINT, SIGTERM and, unless it is ignored, SIGHUP inside the `with` block.

    `notices` maps further signals to functions that return what each means. They may reach every process of a job
    (Slurm's do), so processes started inside the block ignore them. SIGUSR1 and SIGUSR2 that are no notices, and have
    no handler yet, are for the program (sbatch --signal=USR1@90): run_logged passes them on.
    """

    def __init__(self, notices: Mapping[int, Callable[[], str]] | None = None) -> None:
        self.count = 0
        self.reason = "interrupted"
        """Why to end, from the first signal."""
        self.for_program: list[int] = []
        """Signals to pass on to the program."""
        self._notices = notices or {}
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # nohup ignores SIGHUP, so that the recording goes on.
        hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
        for number in (signal.SIGINT, signal.SIGTERM, *hangup, *self._notices):
            self._previous[number] = signal.signal(number, self._on_signal)
        for number in {signal.SIGUSR1, signal.SIGUSR2} - self._notices.keys():
            if signal.getsignal(number) == signal.SIG_DFL:
                self._previous[number] = signal.signal(number, lambda number, frame: self.for_program.append(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.count and number in self._notices:
            self.reason = self._notices[number]()
        self.count += 1

    @contextmanager
    def ignored_by_children(self) -> Iterator[None]:
        """Make processes that are started in this block ignore the notices, unless they install a handler.

        Ignored and not blocked, since shells unblock signals. A notice that arrives inside this block is lost.
        """
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in self._notices}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def escalate(group: int, signals: Signals, sent_s: list[float]) -> None:
    """Send the next of SIGINT, SIGTERM and SIGKILL when it is due; `sent_s` holds when the previous ones were sent."""
    now = time.monotonic()
    if not signals.count:
        return
    if not sent_s:
        signal_group(group, signal.SIGINT)
    elif len(sent_s) == 1 and (signals.count > 1 or now - sent_s[0] > GRACE_S):
        signal_group(group, signal.SIGTERM)
    elif len(sent_s) == 2 and now - sent_s[1] > KILL_AFTER_S:
        signal_group(group, signal.SIGKILL)
    else:
        return
    sent_s.append(now)


def signal_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group; nothing happens if none is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
