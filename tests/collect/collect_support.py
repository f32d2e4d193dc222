"""Run `collect` in a process, as a user does, and read what it wrote."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collect.cli import main
from schemas.manifest import Manifest, read_manifest

ROOT = Path(__file__).resolve().parent.parent.parent
TINY = ["--model", "squeezenet1_1", "--image-size", "32", "--batch-size", "2", "--steps", "2", "--warmup", "1"]
"""The smallest real training: three steps take less than a second, importing torch a few."""
CPU = [*TINY, "--device", "cpu"]

GPUS = {"CUDA_VISIBLE_DEVICES": "0,1"}
"""Variables of a program that sees GPUs. Others see none: they are recorded in the same way on each machine."""
needs_gpu = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a GPU")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
"""torchrun."""


def two_ranks(*command: object) -> list[str]:
    """Return a command that starts two ranks as mpirun does: it imports no torch, as torchrun does for 2 s."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE=2"
    both = f'{common} RANK=0 "$@" & {common} RANK=1 "$@"; code=$?; wait $! && exit $code'
    return ["sh", "-c", both, "sh", sys.executable, *map(str, command)]


@dataclass
class Ran:
    """What a command printed, and the run folders it left."""

    code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def folder(self) -> Path:
        folders = [p for p in self.output.iterdir() if p.is_dir()]
        assert len(folders) == 1, self.stderr
        return folders[0]

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.folder)


Collect = Callable[..., Ran]
"""The fixture `collect`: runs `collect run` with these arguments."""


def environment(**extra: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # One thread each: on batches of two images more of them only wait for each other.
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **extra}


STARTED: list[subprocess.Popen[str]] = []
"""What a test has started."""


def start(*arguments: str, **extra: str) -> subprocess.Popen[str]:
    """Start `collect ARGUMENTS` with these environment variables."""
    command, pipe = [sys.executable, "-m", "collect", *arguments], subprocess.PIPE
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment(**extra)
    )
    STARTED.append(child)
    return child


def refused(*arguments: str) -> tuple[int, str]:
    """Run `collect ARGUMENTS` in this process, where it starts nothing; return its exit code and stderr."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", ["collect", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.getvalue()


def kill_started() -> None:
    """Kill what a test that failed has left: a worker without end records until memory is full."""
    for child in STARTED:
        if child.poll() is None:
            for pid in (*descendants(child.pid), child.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            child.wait()
    STARTED.clear()


def read_trace(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        trace: dict[str, Any] = json.load(f)
    return trace


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def names(trace: dict[str, Any], category: str) -> list[str]:
    return [e["name"] for e in trace["traceEvents"] if e.get("cat") == category]


def descendants(pid: int) -> dict[int, str]:
    """Command line of every process below `pid`, from /proc, by their numbers."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    below = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    found = {}
    for p in sorted(below - {pid}):
        with contextlib.suppress(OSError):
            found[p] = Path(f"/proc/{p}/cmdline").read_text().replace("\0", " ")
    return found


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 90.0) -> Any:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def interrupt(child: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str, str]:
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=90)
    return child.wait(), stdout, stderr
