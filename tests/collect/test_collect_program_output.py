"""What a program of the user's own writes, and the signals that it is sent: as without `collect`."""

from __future__ import annotations

from pathlib import Path

from collect_support import Collect


def test_program_that_opens_its_stderr_anew(collect: Collect) -> None:
    text = "echo a long line, which is cut away; sleep 0.5; echo second > /dev/stderr; echo third"
    ran = collect("--profiler", "none", "--", "sh", "-c", text)
    assert ran.code == 0, ran.stderr
    # As behind `>>`: nothing is written over, and there is no hole before what comes.
    assert (ran.folder / "none/log.txt").read_text() == "second\nthird\n"
    assert "which is cut away\nsecond\nthird\n" in ran.stderr
