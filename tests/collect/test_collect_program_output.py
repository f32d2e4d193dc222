"""What a program of the user's own writes, and the signals that it is sent: as without `collect`."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from collect_support import Collect, Ran, environment, interrupt, start, wait_for
from rich.console import Console

from collect.progress import PassProgress


def test_program_reopening_stderr_keeps_its_output(collect: Collect) -> None:
    text = "echo a long line, which is cut away; sleep 0.5; echo second > /dev/stderr; echo third"
    ran = collect("--profiler", "none", "--", "sh", "-c", text)
    assert ran.code == 0, ran.stderr
    # As behind `>>`: nothing is written over, and there is no hole before what comes.
    assert (ran.folder / "none/log.txt").read_text() == "second\nthird\n"
    assert "which is cut away\nsecond\nthird\n" in ran.stderr


def test_split_multibyte_characters_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    shown = PassProgress(Console(file=io.StringIO()), "", None, tmp_path, log, echo=True)
    with shown as progress, log.open("wb", 0) as f:
        for byte in "█é€".encode():
            f.write(bytes([byte]))
            progress.update()
        f.write("€".encode()[:2])
    # What never becomes a whole character is said as such.
    assert capsys.readouterr().err == "█é€\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("profilers", "read"), [("none", "given"), ("none,torch", "")])
def test_program_reads_stdin(tmp_path: Path, profilers: str, read: str) -> None:
    """A second pass would find nothing left: then none has it."""
    command = [sys.executable, "-m", "collect", "run", "-o", str(tmp_path), "--profiler", profilers, "--", "cat"]
    subprocess.run(command, input="given", text=True, env=environment(), capture_output=True, timeout=60)
    assert next(tmp_path.glob("*/none/log.txt")).read_text() == read


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
