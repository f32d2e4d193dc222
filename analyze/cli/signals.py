"""Ctrl-C, and other signals to end, while DuckDB works.

Python raises nothing before DuckDB returns, which for most statements is when all of it is done. So another thread
hears of the signal, and has the engines end what they work on.
"""

from __future__ import annotations

import signal
import socket
import sys
from threading import Thread

from analyze.query import interrupts

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

sent: list[int] = []
"""Signals to end that came."""


def watch() -> None:
    """Begin, in the main thread. Servers, which watch for signals themselves, may take over from it."""
    for number in _ENDING:
        # One that is ignored stays so, as SIGHUP under nohup; of SIGINT, Python makes an exception itself.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminated)
    hears, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    Thread(target=_hear, args=(hears, tells), daemon=True, name="signals").start()


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)  # so that what is half-written is removed on the way out


def _hear(hears: socket.socket, tells: socket.socket) -> None:
    while numbers := hears.recv(64):
        ending = [n for n in numbers if n in _ENDING and signal.getsignal(n) is not signal.SIG_IGN]
        if ending:
            sent.extend(ending)
            interrupts.interrupt_all()
