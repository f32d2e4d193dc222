"""Figures compiled to Vega in a process of its own, beside what goes on here.

The compiler is JavaScript: its engine takes 0.4 s to start and each figure some 20 ms, in which no other thread of the
process that it is in runs Python.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from analyze.plots import drawing
from analyze.plots.figure import Figure
from schemas.isolation import python

_PROGRAM = Path(__file__).with_name("vega_process.py")


class _Compiler:
    """Compiles one figure after the other. What the process cannot do is done here, so that it says why."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError, TypeError):  # there is no Python to start
            self._process = subprocess.Popen(
                python(str(_PROGRAM), drawing.VERSION),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def vega(self, figure: Figure) -> dict[str, Any]:
        """What `drawing.vega` makes of a figure."""
        with suppress(OSError, ValueError):
            return self._asked(drawing.vega_lite_of_page(figure))
        return drawing.vega(figure)

    def _asked(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The process's answer. Raises OSError or ValueError if it has none."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise OSError
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        process.stdin.flush()
        compiled: dict[str, Any] = json.loads(process.stdout.readline())
        return compiled

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


_compilers: list[_Compiler] = []
"""The one that was started, for as long as this process lives."""
_lock = threading.Lock()


def start() -> _Compiler:
    """Start the compiler, for figures to come, unless it is there."""
    with _lock:
        if not _compilers:
            _compilers.append(_Compiler())
            atexit.register(_compilers[0].end)
        return _compilers[0]


def vega(figure: Figure) -> Future[dict[str, Any]]:
    """What `drawing.vega` makes of a figure, once it is there."""
    compiler = start()
    return compiler.thread.submit(compiler.vega, figure)


def _forget() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    for compiler in _compilers:
        atexit.unregister(compiler.end)
    _compilers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
