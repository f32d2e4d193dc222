"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP.

DuckDB lets Python handle signals while it works. It then raises RuntimeError in place of what the handler raised, so
the signals are recorded here.
"""

from __future__ import annotations

import signal

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

received: list[int] = []
"""Signals that should end the command."""


def watch() -> None:
    """Install the handlers, in the main thread. Servers, which watch for signals themselves, may replace them."""
    for number in _ENDING:
        # An ignored signal stays ignored, as SIGHUP under nohup.
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
