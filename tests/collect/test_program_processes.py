"""Which processes on a GPU are the program's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collect.program_processes import ProgramProcesses, marked_processes

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session=True)
print(child.pid, flush=True)
if "leaves" not in sys.argv:
    child.wait()
"""
"""Prints the number of a child process, which ends with stdin; has it as its child, or leaves it behind."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, *arguments: str, **environment: str) -> tuple[int, int]:
    """Numbers of a process and of its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    stack.enter_context(process)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    if "leaves" in arguments:
        process.wait()
    return process.pid, child


def test_descendants_are_the_programs(stack: ExitStack) -> None:
    program, child = started(stack)
    stranger, _ = started(stack)
    processes = ProgramProcesses(program, "no such mark")
    assert processes.count_others([program, child]) == 0
    assert processes.count_others([program, child, stranger, os.getpid()]) == 2


def test_process_whose_parent_has_ended_is_known_by_its_environment(stack: ExitStack, tmp_path: Path) -> None:
    program, orphan = started(stack, "leaves", SCRATCH=str(tmp_path))
    assert ProgramProcesses(program, str(tmp_path)).count_others([orphan]) == 0
    assert ProgramProcesses(program, "no such mark").count_others([orphan]) == 1
    assert orphan in marked_processes(str(tmp_path))


def test_process_that_cannot_be_seen_leaves_the_number_unknown(stack: ExitStack) -> None:
    program, child = started(stack)
    processes = ProgramProcesses(program, "no such mark")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert processes.count_others([child, ended.pid]) is None
    # One that was seen before it ended is still known: the driver may list it a little longer.
    stack.close()
    assert processes.count_others([child]) == 0
