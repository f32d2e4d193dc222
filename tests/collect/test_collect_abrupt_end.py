"""What was recorded of a program that ends, or whose `collect` ends, without exit handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from collect_support import ROOT, Collect, descendants, environment, names, read_trace, start, wait_for

import analyze
from schemas.manifest import read_manifest

STEPS = """
import os, pathlib, signal, sys, time, torch
began = pathlib.Path(__file__).with_name("began")

def train(steps):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

def wait(seconds=120):
    began.touch()
    time.sleep(seconds)
"""
ENDS = {
    "os._exit": ("train(4); os._exit(5)", 5),
    "SIGTERM": ("train(4); os.kill(os.getpid(), signal.SIGTERM); wait()", 128 + signal.SIGTERM),
    "SIGTERM in a fork": ("train(4)\nif not (child := os.fork()): wait()\n"
        "os.kill(child, signal.SIGTERM); sys.exit(os.waitpid(child, 0)[1])", signal.SIGTERM),
    "the program's own handler": ("assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "assert signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)) == signal.SIG_DFL\n"
        "train(4); os.kill(os.getpid(), signal.SIGTERM); wait()", 7),
}  # fmt: skip
"""Programs, and their exit codes without `collect`; each ends within the recorded steps."""


@pytest.mark.parametrize("how", ENDS)
def test_program_that_ends_abruptly_is_recorded(how: str, collect: Collect, tmp_path: Path) -> None:
    text, code = ENDS[how]
    script = tmp_path / "train.py"
    script.write_text(STEPS + text + "\n")
    ran = collect("--steps", "9", "--warmup", "1", "--", sys.executable, str(script))
    assert ran.code == code, ran.stderr
    assert ran.manifest.passes[0].counted_steps == 3
    assert names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::linear") == 3


def test_sigterm_ends_a_process_that_runs_no_python(tmp_path: Path) -> None:
    """As a rank that waits in C++ for one that has ended: launchers end it by SIGTERM."""
    code = (
        f"import ctypes, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from collect.injected import abrupt_end\nabrupt_end.GRACE_S = 0.5\n"
        "abrupt_end.finish_before_abrupt_end(lambda: None, lambda: print('interrupted', flush=True))\n"
        "print('waits', flush=True)\nctypes.CDLL(None).system(b'sleep 60')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "waits\n"
        left = descendants(child.pid)
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM
        assert child.stdout.readline() == "interrupted\n"
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_finished_traces_of_a_killed_collect_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEPS + "train(6); wait()\n")
    runs = tmp_path / "runs"
    child = start("run", "-o", str(runs), "--steps", "2", "--warmup", "1", "--", sys.executable, str(script))
    wait_for((tmp_path / "began").exists, "the steps")
    left = descendants(child.pid)
    child.kill()
    child.wait()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    [folder] = runs.iterdir()
    manifest = read_manifest(folder)
    assert (manifest.status, manifest.passes[0].files) == ("running", [])
    [run] = analyze.open(folder).query("runs").dicts()
    assert run["status"] == "running" and run["profiler"] == "torch"
    said = subprocess.run(
        [sys.executable, "-m", "analyze", "info", str(folder)], capture_output=True, text=True, env=environment()
    )
    assert "status running: `collect` still records, or was killed; reading 1 finished trace" in said.stdout
    assert said.returncode == 0 and "2 steps" in said.stdout
