"""Programs as people write them end under `collect run` as without: exit code, output and loss, bit for bit.

Those in programs/packages/ need packages, which their first lines name; `.ci/compat` runs them, each in an environment
of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from collect_support import NO_GPU, environment

from schemas.manifest import read_manifest

PROGRAMS = Path(__file__).with_name("programs")
WITH_PACKAGES = "TRACEQUARRY_PROGRAMS"
"""The variable that asks for the programs that need packages."""
NOT_RECORDED = {"own_profiler": "the program runs a torch.profiler of its own"}
"""Programs that `collect` cannot record, and why."""


def check(program: Path, python: str, tmp_path: Path, timeout_s: float) -> None:
    """Run a program with and without `collect` at the same time."""
    command = [python, str(program)]
    options = ["--steps", "2", "--warmup", "2", "--undisturbed", "1", "-o", str(tmp_path)]
    pipe = subprocess.PIPE
    plain, recorded = (
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment(**NO_GPU)
        )
        for argv in (command, [sys.executable, "-m", "collect", "run", *options, "--", *command])
    )
    expected, said = plain.communicate(timeout=timeout_s)
    stdout, stderr = recorded.communicate(timeout=timeout_s)
    assert stdout == expected, stderr
    if not is_packaged(program):
        assert not added_lines(stderr, said, tmp_path)
    manifest = read_manifest(next(p.parent for p in sorted(tmp_path.glob("*/run.json"))))
    [done] = manifest.passes
    assert done.exit_code == plain.returncode, stderr
    if program.stem in NOT_RECORDED:
        assert recorded.returncode == 1 and NOT_RECORDED[program.stem] in (done.reason or "")
    else:
        assert recorded.returncode == (plain.returncode if plain.returncode >= 0 else 128 - plain.returncode), stderr
        assert any(file.kind == "chrome_trace" for file in done.files), stderr


def is_packaged(program: Path) -> bool:
    """Whether a program needs packages. Their messages have times, and come in another order each time."""
    return program.parent.name == "packages"


def added_lines(recorded: str, plain: str, output: Path) -> list[str]:
    """The lines that `collect` adds to stderr, but its own: Kineto's, warnings. Numbers are those of processes."""
    own = ("torch: ", "note: ", "next: ", "collect: ", "recorded over undisturbed step time: ", f"{output}/")
    counts = Counter(re.sub(r"\d", "", line) for line in recorded.splitlines() if not line.startswith(own))
    return list((counts - Counter(re.sub(r"\d", "", line) for line in plain.splitlines())).elements())


IN_COMPAT = {
    "asynchronous", "copied_optimizer", "functional", "gan", "generator", "http_service", "hydra_like", "lbfgs",
    "lr_finder", "mixed_precision", "policy_calls", "process_pool", "restarts_itself", "traced_python", "vision",
}  # fmt: skip
"""Programs that `.ci/compat` alone runs: all would take too long here."""
HERE = [p for p in sorted(PROGRAMS.glob("*.py")) if p.stem not in IN_COMPAT or WITH_PACKAGES in os.environ]


@pytest.mark.parametrize("program", HERE, ids=lambda path: path.stem)
def test_program_ends_as_without_collect(program: Path, tmp_path: Path) -> None:
    check(program, sys.executable, tmp_path, 120)


@pytest.mark.skipif(WITH_PACKAGES not in os.environ, reason=f"{WITH_PACKAGES} is not set; installs packages")
@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("packages/*.py")), ids=lambda path: path.stem)
@pytest.mark.timeout(900)
def test_program_with_packages_ends_as_without_collect(program: Path, tmp_path: Path) -> None:
    subprocess.run(["uv", "sync", "-q", "--script", str(program)], check=True, timeout=600)
    find = ["uv", "python", "find", "--script", str(program)]
    python = subprocess.run(find, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    check(program, python, tmp_path, 300)
