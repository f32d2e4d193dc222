"""Run commands as a user does: in this process, in their own, in a terminal, in bash."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from analyze.cli.main import run as run_command

ROOT = Path(__file__).parent.parent


def run_cli(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `analyze ARGUMENTS` in this process, with these environment variables."""
    printed, said = io.BytesIO(), io.BytesIO()
    out, err = io.TextIOWrapper(printed, "utf-8"), io.TextIOWrapper(said, "utf-8", "backslashreplace")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in {"COLUMNS": "160", **environment}.items():
            patch.setenv(name, value)
        if cwd:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            run_command([*map(str, arguments)])
    out.flush()
    err.flush()
    code = ended.value.code if isinstance(ended.value.code, int) else 0
    return subprocess.CompletedProcess(arguments, code, printed.getvalue().decode(), said.getvalue().decode())


def run_python(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS`."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables(**environment))


def run_cli_under(
    hook: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `analyze ARGUMENTS` in a process whose audit hook is this body of `def hook(event, args)`: it does what a
    machine or a user does at a certain moment."""
    code = "import errno, os, signal, sys\ndef hook(event, args):\n" + textwrap.indent(hook, "    ")
    code += "\nsys.addaudithook(hook)\nfrom analyze.cli.main import main\nmain()"
    return run_python("-c", code, *arguments, cwd=cwd, **environment)


def start_cli(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start `analyze ARGUMENTS`, with pipes to read from while it works."""
    command, pipe = [sys.executable, "-m", "analyze", *arguments], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables(**environment))


def variables(**environment: str) -> dict[str, str]:
    """The environment of a Python that imports these packages from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **environment}


def in_terminal(columns: int, *arguments: str | Path) -> list[str]:
    """What a command prints to a terminal of so many columns, line by line, without what makes it bold."""
    import pty  # not on Windows
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, columns))
    environment = {k: v for k, v in variables(TERM="xterm").items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "analyze", *arguments]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment) as process:
        os.close(slave)
        parts = []
        with suppress(OSError):  # the other side is closed
            while part := os.read(master, 1 << 16):
                parts.append(part)
        os.close(master)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(parts).decode()).splitlines()


def bash(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in bash, which fails where any part of a pipe does; `analyze` in it is that of this Python."""
    script = f'analyze() {{ {shlex.quote(sys.executable)} -m analyze "$@"; }}\n{command}\n'
    shell = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(shell, capture_output=True, text=True, cwd=ROOT, env=variables())


def complaints(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines on stderr beside the one that says what files were read as, which is there the first time."""
    return [line for line in result.stderr.splitlines() if not line.startswith("read as: ")]
