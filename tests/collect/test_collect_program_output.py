"""Output, input and signals of a recorded program are as without `collect`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch  # noqa: F401 (imported before a test changes the platform)
from collect_support import Collect, Ran, environment, interrupt, start, wait_for

from collect.injected.profiler_start import start_profiler

WRITES = """
import os, subprocess, sys
for number in range(3):
    print("out", number, sys.stdout.isatty(), flush=True)
    print("err", number, file=sys.stderr, flush=True)
left = "sleep 4; echo late; touch " + sys.argv[1]
subprocess.Popen(["sh", "-c", left])  # in the same group of processes
sys.exit(7)
"""
LINES = [f"{stream} {number}" for number in range(3) for stream in ("out", "err")]


@pytest.fixture
def writes(tmp_path: Path) -> list[str]:
    """The command of `collect` with a program that writes to both streams, and leaves a job that makes a file."""
    program = tmp_path / "program.py"
    program.write_text(WRITES)
    run = [sys.executable, "-m", "collect", "run", "-o", str(tmp_path / "runs"), "--profiler", "none", "--"]
    return [*run, sys.executable, str(program), str(tmp_path / "left")]


def test_both_streams_and_the_exit_code_are_the_program_s(writes: list[str], tmp_path: Path) -> None:
    ran = subprocess.run(writes, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 7
    assert ran.stdout == "".join(f"out {number} False\n" for number in range(3)) + "late\n"
    assert [line for line in ran.stderr.splitlines() if line.startswith("err")] == LINES[1::2]
    assert "collect: the program exited with code 7" in ran.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert f"\n{folder}\n" in ran.stderr
    assert sorted((folder / "none/log.txt").read_text().replace(" False", "").splitlines()) == sorted([*LINES, "late"])


def test_job_that_the_program_leaves_behind_goes_on(writes: list[str], tmp_path: Path) -> None:
    """It writes to where the output of `collect` goes, in the order of the program's."""
    output = tmp_path / "output"
    with output.open("w") as f:
        subprocess.run(writes, env=environment(), stdout=f, stderr=subprocess.STDOUT, timeout=60)
    assert not (tmp_path / "left").exists()
    wait_for((tmp_path / "left").exists, "the job")
    lines = [line.removesuffix(" False") for line in output.read_text().splitlines()]
    assert [line for line in lines if line in LINES] == LINES and lines[-1] == "late"


WARNS = """
import threading, warnings, torch
model = torch.nn.Linear(8, 1)
def step():
    warnings.warn("seen")
    model(torch.ones(1, 8))
def train():
    for _ in range(6):
        step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def test_starting_to_record_in_a_thread_prints_nothing(collect: Collect, tmp_path: Path) -> None:
    """Kineto has an error for that, and Python repeats warnings that were printed once any warning is caught."""
    (program := tmp_path / "program.py").write_text(WARNS)
    steps = ["--step-function", "__main__:step", "--steps", "2", "--warmup", "2", "--undisturbed", "0"]
    ran = collect(*steps, "--", sys.executable, str(program))
    assert ran.code == 0 and ran.manifest.passes[0].counted_steps == 2, ran.stderr
    own = ("torch: ", "next: ", f"{ran.folder}")
    assert [line for line in ran.stderr.splitlines() if not line.startswith(own)] == [
        f"{program}:5: UserWarning: seen",
        '  warnings.warn("seen")',
    ]


def test_program_on_a_terminal_has_one(writes: list[str]) -> None:
    ours, theirs = os.openpty()
    subprocess.run(writes, env=environment(), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "out 0 True\r\nerr 0\r\nout 1 True\r\nerr 1\r\n" in shown


@pytest.mark.parametrize(("profilers", "read"), [("none", "given"), ("none,torch", "")])
def test_program_reads_stdin(tmp_path: Path, profilers: str, read: str) -> None:
    """A second pass would find nothing left: then none has it."""
    command = [sys.executable, "-m", "collect", "run", "-o", str(tmp_path), "--profiler", profilers, "--", "cat"]
    subprocess.run(command, input="given", text=True, env=environment(), capture_output=True, timeout=60)
    assert next(tmp_path.glob("*/none/log.txt")).read_text() == read


SERVES = """
import signal, sys, time, torch
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
model = torch.nn.Linear(8, 4)
model(torch.ones(1, 8))
print("serving", flush=True)
while True:
    time.sleep(0.05)
"""


def test_server_that_ends_well_after_ctrl_c_is_done(tmp_path: Path) -> None:
    program, output = tmp_path / "program.py", tmp_path / "runs"
    program.write_text(SERVES)
    child = start("run", "-o", str(output), "--", sys.executable, str(program))
    log = wait_for(lambda: next(output.glob("*/torch/log.txt"), None), "a log")
    wait_for(lambda: "serving" in log.read_text(), "the program")
    code, _, stderr = interrupt(child)
    ran = Ran(code, "", stderr, output)
    assert (code, ran.manifest.status, ran.manifest.reason) == (0, "done", None), stderr
    assert (ran.folder / "torch/rank-0.trace.json.gz").exists()


WAITS = """
import signal, time
came = []
def note(number, frame):
    came.append(number)
    print("came", signal.Signals(number).name, flush=True)
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
print("ready", flush=True)
while len(came) < 2:
    time.sleep(0.05)
"""


def test_signals_are_forwarded_to_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WAITS)
    output = tmp_path / "runs"
    child = start("run", "-o", str(output), "--profiler", "none", "--", sys.executable, str(program))
    log = wait_for(lambda: next(output.glob("*/none/log.txt"), None), "a log")
    wait_for(lambda: "ready" in log.read_text(), "the program")
    # As sbatch --signal sends them before the time is up: the program writes a checkpoint, and goes on.
    child.send_signal(signal.SIGUSR1)
    wait_for(lambda: "came SIGUSR1" in log.read_text(), "SIGUSR1")
    code, _, stderr = interrupt(child, signal.SIGUSR2)
    assert code == 0, stderr
    assert "came SIGUSR2" in log.read_text()
    assert Ran(code, "", stderr, output).manifest.status == "done"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_profiler_starts_in_a_thread_without_glibc(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only glibc lets a program replace C's stderr: macOS has it by another name, Windows not at all."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delattr(ctypes, "CDLL")
    profile = SimpleNamespace(profiler=SimpleNamespace(), started=[])
    profile.start = lambda: profile.started.append(threading.current_thread())
    thread = threading.Thread(target=start_profiler, args=(profile,))
    thread.start()
    thread.join()
    assert profile.started == [thread]
