"""Runs a command with its output in a log file, and hands on Ctrl-C and SIGTERM to everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

POLL_S = 0.1
GRACE_S = 30.0
"""How long an interrupted command may take to write what it recorded, before SIGTERM and then SIGKILL."""
KILL_AFTER_S = 10.0


class Signals:
    """Catches SIGINT, SIGTERM and, unless it is ignored, SIGHUP for as long as the `with` block lasts, and counts them.

    `notices`: other signals that are caught, and what each says when it comes. They may reach every process of a job
    (Slurm's do), and so those that are started meanwhile ignore them. SIGUSR1 and SIGUSR2 that are no notices, and that
    nobody else has asked for, are for the program (sbatch --signal=USR1@90): run_logged hands them on.
    """

    def __init__(self, notices: Mapping[int, Callable[[], str]] | None = None) -> None:
        self.count = 0
        self.reason = "interrupted"
        """Why to end, by the first of them."""
        self.for_program: list[int] = []
        """Signals that came and are still to be handed on."""
        self._notices = notices or {}
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Under nohup, SIGHUP is ignored: who asked for that wants the recording to go on.
        hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
        for number in (signal.SIGINT, signal.SIGTERM, *hangup, *self._notices):
            self._before[number] = signal.signal(number, self._on_signal)
        for number in {signal.SIGUSR1, signal.SIGUSR2} - self._notices.keys():
            if signal.getsignal(number) == signal.SIG_DFL:
                self._before[number] = signal.signal(number, lambda number, frame: self.for_program.append(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.count and number in self._notices:
            self.reason = self._notices[number]()
        self.count += 1

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While a process is started: it ignores the notices, unless it asks for them itself.

        Ignored and not blocked, since a shell takes away what is blocked. One that comes meanwhile is lost.
        """
        before = {number: signal.signal(number, signal.SIG_IGN) for number in self._notices}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_logged(
    argv: list[str],
    log: Path,
    environment: dict[str, str],
    signals: Signals,
    tick: Callable[[], None],
    reads_stdin: bool = False,
) -> int:
    """Run a command to its end and return its exit code, negative for minus the signal that ended it.

    stdout and stderr go to `log`. With `reads_stdin` it reads what this process was given as stdin, but a terminal,
    which is another session's; else nothing. `tick` is called several times a second. The first signal caught by
    `signals` is handed on as SIGINT, so that the command can write what it has; a second one, or the end of patience,
    as SIGTERM and then SIGKILL. Those for the program are handed on as such. Raises OSError when the command cannot be
    started.
    """
    signals.for_program.clear()
    inherited = reads_stdin and sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    with open(log, "xb", opener=_appending) as output, signals.starting():
        # A session of its own: a terminal's Ctrl-C reaches `collect` alone, which then tells the whole group once.
        child = subprocess.Popen(
            argv,
            stdin=None if inherited else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    told: list[float] = []
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(POLL_S)
            tick()
            while signals.for_program:
                _tell(child.pid, signals.for_program.pop(0))
            _hand_on(child.pid, signals, told)
    finally:
        # What the command left behind (data loaders of a killed process) would keep a GPU busy.
        _tell(child.pid, signal.SIGKILL)


def _appending(path: str, flags: int) -> int:
    """Open a log as `>>` does: a program that opens its stderr anew (`> /dev/stderr`) cuts the file to nothing, and
    what is written through the older one must not begin behind a hole."""
    return os.open(path, flags | os.O_APPEND, 0o600)


def _hand_on(group: int, signals: Signals, told: list[float]) -> None:
    """Send the next signal of the row SIGINT, SIGTERM, SIGKILL when it is due; `told` holds when each was sent."""
    now = time.monotonic()
    if not signals.count:
        return
    if not told:
        _tell(group, signal.SIGINT)
    elif len(told) == 1 and (signals.count > 1 or now - told[0] > GRACE_S):
        _tell(group, signal.SIGTERM)
    elif len(told) == 2 and now - told[1] > KILL_AFTER_S:
        _tell(group, signal.SIGKILL)
    else:
        return
    told.append(now)


def _tell(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
