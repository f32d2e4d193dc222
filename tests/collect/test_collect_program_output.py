"""What a program of the user's own writes, and the signals that it is sent: as without `collect`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from collect_support import Collect
from rich.console import Console

from collect.progress import PassProgress


def test_program_that_opens_its_stderr_anew(collect: Collect) -> None:
    text = "echo a long line, which is cut away; sleep 0.5; echo second > /dev/stderr; echo third"
    ran = collect("--profiler", "none", "--", "sh", "-c", text)
    assert ran.code == 0, ran.stderr
    # As behind `>>`: nothing is written over, and there is no hole before what comes.
    assert (ran.folder / "none/log.txt").read_text() == "second\nthird\n"
    assert "which is cut away\nsecond\nthird\n" in ran.stderr


def test_characters_that_come_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    shown = PassProgress(Console(file=io.StringIO()), "", None, tmp_path, log, echo=True)
    with shown as progress, log.open("wb", 0) as f:
        for byte in "█é€".encode():
            f.write(bytes([byte]))
            progress.tick()
        f.write("€".encode()[:2])
    # What never becomes a whole character is said as such.
    assert capsys.readouterr().err == "█é€\N{REPLACEMENT CHARACTER}"
