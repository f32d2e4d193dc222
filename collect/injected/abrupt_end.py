"""Finishes the recording of a program that ends without exit handlers: by os._exit, or by SIGTERM's default action.

It notices SIGINT and SIGTERM in a program that waits in C++ for ever, too.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

GRACE_S = 20.0
"""How long finishing may take, for example waiting for a GPU that hangs, before the process ends without it."""


def finish_before_abrupt_end(finish: Callable[[], None], interrupted: Callable[[], None]) -> None:
    """Call `finish` before this process, but not one forked from it, ends by os._exit or SIGTERM's default action.

    A thread calls `interrupted` at SIGINT and SIGTERM, at once.
    """
    pid = os.getpid()
    leave = os._exit

    @functools.wraps(leave)
    def _exit(status: int) -> Any:
        if os.getpid() == pid:
            _after_grace(lambda: leave(status))
            with contextlib.suppress(Exception):
                finish()
        return leave(status)

    os._exit = _exit
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _handle_sigterm(finish, interrupted)


def _handle_sigterm(finish: Callable[[], None], interrupted: Callable[[], None]) -> None:
    """Handle SIGTERM as its default action, after `finish`. The program still sees, and may set, the default action."""
    source, end = os.pipe()
    os.set_blocking(end, False)
    if signal.set_wakeup_fd(end, warn_on_full_buffer=False) != -1:  # another library's
        return

    def handle(number: int, frame: Any) -> None:
        with contextlib.suppress(Exception):
            finish()
        _end_by_sigterm()

    def block() -> None:
        # A child that got SIGTERM before it restores the default action would write into this process's pipe.
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def restore_in_child() -> None:
        if get(signal.SIGTERM) is handle:
            set_(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
        unblock()

    def watch() -> None:
        # Python calls handlers once its main thread runs Python code: not while that waits for another rank in C++.
        with contextlib.suppress(OSError):
            ends = False
            while not ends:
                numbers = os.read(source, 64)
                ends = signal.SIGTERM in numbers and get(signal.SIGTERM) is handle
                if ends:
                    _after_grace(_end_by_sigterm)
                if {signal.SIGINT, signal.SIGTERM} & set(numbers):
                    interrupted()

    set_, get = signal.signal, signal.getsignal
    masks: list[Any] = []

    @functools.wraps(set_)
    def set_handler(number: Any, handler: Any) -> Any:
        previous = set_(number, handler)
        return signal.SIG_DFL if previous is handle else previous

    @functools.wraps(get)
    def get_handler(number: Any) -> Any:
        handler = get(number)
        return signal.SIG_DFL if handler is handle else handler

    # Frameworks install a handler of their own only where there is none.
    module: Any = signal
    module.signal, module.getsignal = set_handler, get_handler
    set_(signal.SIGTERM, handle)
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore_in_child)
    _thread.start_new_thread(watch, ())


def _end_by_sigterm() -> None:
    """End this process as SIGTERM's default action does; from any thread, where signal.signal raises."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)


def _after_grace(end: Callable[[], Any]) -> None:
    def wait() -> None:
        time.sleep(GRACE_S)
        end()

    _thread.start_new_thread(wait, ())
