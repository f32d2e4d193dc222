"""Run a command, show and log its output, and pass signals on to its processes (signals.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from collect.signals import Signals, escalate, signal_group

POLL_S = 0.1
DRAIN_S = 2.0
"""How long the last output may take to be copied, where a process that the command left behind may write more."""


def run_logged(
    argv: list[str],
    log: Path,
    environment: dict[str, str],
    signals: Signals,
    on_tick: Callable[[], None],
    echo: tuple[int, int] | None = None,
    reads_stdin: bool = False,
    directory: str | None = None,
) -> int:
    """Run a command to its end and return its exit code, negative for minus the signal that killed it.

    It runs in `directory`. stdout and stderr go to `log`, and to the two file descriptors of `echo`. With
    `reads_stdin` it inherits this process's stdin unless that is a terminal, which belongs to another session.
    `on_tick` is called several times a second. The first signal that `signals` catches is passed on as SIGINT, so that
    the command can write its recording; a second one, or the end of the grace period, as SIGTERM and then SIGKILL.
    Raises OSError when the command cannot be started.
    """
    signals.for_program.clear()
    inherits_stdin = reads_stdin and sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    with ExitStack() as files, signals.ignored_by_children():
        stdout, stderr, copies = _outputs(log, echo, files)
        # In a session of its own, a terminal's Ctrl-C reaches `collect` only, which then signals the whole group once.
        child = subprocess.Popen(
            argv,
            stdin=None if inherits_stdin else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
    sent_s: list[float] = []
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(POLL_S)
            on_tick()
            while signals.for_program:
                signal_group(child.pid, signals.for_program.pop(0))
            escalate(child.pid, signals, sent_s)
    finally:
        if signals.count or sys.exc_info()[0]:
            # Processes that outlive an interrupted command (data loaders of a killed process) would keep a GPU busy.
            # Those that a command leaves behind at its own end are meant to go on.
            signal_group(child.pid, signal.SIGKILL)
        for copy in copies:
            with suppress(subprocess.TimeoutExpired):
                copy.wait(DRAIN_S)


def _outputs(
    log: Path, echo: tuple[int, int] | None, files: ExitStack
) -> tuple[int, int, list[subprocess.Popen[bytes]]]:
    """Return the stdout and stderr of a command, which `files` closes, and the process that copies them, if any."""
    file = _append(str(log), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    files.callback(os.close, file)
    targets = [fd for fd in dict.fromkeys(echo or ()) if _is_open(fd)]
    if not targets:
        return file, file, []
    if len(targets) == 2 and os.path.samestat(os.fstat(targets[0]), os.fstat(targets[1])):
        targets.pop()  # in one stream, both keep their order
    sources, ends = zip(*(_stream(target) for target in targets), strict=True)
    for fd in (*sources, *ends):
        files.callback(os.close, fd)
    pairs = [str(fd) for pair in zip(sources, targets, strict=True) for fd in pair]
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("tee.py")), str(log), *pairs]
    copier = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(*sources, *targets), start_new_session=True)
    return ends[0], ends[-1], [copier]


def _is_open(fd: int) -> bool:
    with suppress(OSError):
        os.fstat(fd)
        return True
    return False


def _stream(target: int) -> tuple[int, int]:
    """Return the ends to read and to write of a pipe, or of a terminal like `target` if that is one."""
    if not os.isatty(target):
        return os.pipe()
    source, end = os.openpty()
    settings = termios.tcgetattr(target)
    settings[1] &= ~termios.OPOST  # the real terminal does it
    termios.tcsetattr(end, termios.TCSANOW, settings)
    termios.tcsetwinsize(end, termios.tcgetwinsize(target))
    return source, end


def _append(path: str, flags: int) -> int:
    """Open a log in append mode: a program that truncates it (`> /dev/stderr`) must not leave a hole in it."""
    return os.open(path, flags | os.O_APPEND, 0o600)
