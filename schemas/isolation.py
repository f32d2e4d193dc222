"""Starts Python and other programs so that none loads code from the current directory.

That directory may contain files of unknown origin. `python -c` and `python -m` search it for modules first, and so do
the processes of multiprocessing, dask and submitit, which start with -c and -m. -P and PYTHONSAFEPATH=1 prevent that.
See https://docs.python.org/3/using/cmdline.html#cmdoption-P.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def python(*arguments: str) -> list[str]:
    """Return the command that runs this Python with these arguments and without the current directory on its path."""
    return [sys.executable, "-P", *arguments]


def python_variables() -> dict[str, str]:
    """Return variables for Python and its child processes: they find tracequarry, and skip the current directory."""
    variables = {"PYTHONSAFEPATH": "1"}
    root = str(Path(__file__).resolve().parent.parent)
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), root)))
    return variables


_lock = threading.Lock()
_users = 0
_previous: dict[str, str | None] = {}


@contextmanager
def isolated_children() -> Iterator[dict[str, str | None]]:
    """Set `python_variables` while a library starts processes; yield the previous values.

    For libraries that build the command line themselves. Several threads may use it at once.
    """
    global _users, _previous
    with _lock:
        if not _users:
            variables = python_variables()
            _previous = {name: os.environ.get(name) for name in variables}
            os.environ.update(variables)
        _users += 1
        previous = dict(_previous)
    try:
        yield previous
    finally:
        with _lock:
            _users -= 1
            if not _users:
                set_variables(previous)


def set_variables(values: Mapping[str, str | None]) -> None:
    """Set environment variables of this process; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run_tool(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a tool to its end in an empty folder: ncu, for example, reads options from a file in the current directory.

    Paths in the command must be absolute. `options` and exceptions: see subprocess.run.
    """
    with tempfile.TemporaryDirectory(prefix="tracequarry-", ignore_cleanup_errors=True) as empty:
        return subprocess.run(command, cwd=empty, stdin=subprocess.DEVNULL, check=False, **options)


def which(program: str) -> str | None:
    """Return the path of a program on PATH, as shutil.which does, but on Windows never one in the current directory.

    A program given with its folder is the user's choice, and so is PATH.
    """
    found = shutil.which(program)
    # Windows searches the current directory before PATH, and then returns a relative path.
    if sys.platform == "win32" and found and not os.path.dirname(program) and not os.path.isabs(found):  # noqa: PTH117, PTH120
        return None
    return found
