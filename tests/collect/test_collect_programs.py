"""Programs as people write them end under `collect run` as without: exit code, output and loss, bit for bit.

Those in programs/packages/ need packages, which their first lines name; `.ci/compat` runs them, each in an environment
of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from collect_support import ROOT, environment, names, read_trace

from schemas.manifest import Manifest, read_manifest

PROGRAMS = Path(__file__).with_name("programs")
WITH_PACKAGES = "TRACEQUARRY_PROGRAMS"
"""The variable that asks for the programs that need packages."""
MORE_CPU_S, MORE_MEMORY_MB = 20, 800
"""What a program may take more than without `collect` (docs/collect.md)."""
STEP_FUNCTIONS = {
    "fastai_learner": ("fastai.learner:Learner.one_batch", "aten::linear", 2),
    "keras_fit": ("keras.src.backend.torch.trainer:TorchTrainer.train_step", "aten::matmul", 4),
    "lightning_fit": ("lightning.pytorch.loops.training_epoch_loop:_TrainingEpochLoop.advance", "aten::linear", 4),
}
"""The function whose calls are the steps of a program, and how often the layers of its model run in two of them."""
NOT_RECORDED = {"own_profiler": "the program runs a torch.profiler of its own"}
"""Programs that `collect` cannot record, and why."""


def check(program: Path, python: str, tmp_path: Path, *options: str) -> Manifest:
    """Run a program with and without `collect` at the same time, and return what was recorded."""
    command = [python, str(program)]
    options = ("--steps", "2", "--warmup", "2", "--undisturbed", "1", *options, "-o", str(tmp_path))
    plain = Process(command, tmp_path)
    recorded = Process([sys.executable, "-m", "collect", "run", *options, "--", *command], tmp_path)
    plain.wait()
    recorded.wait()
    stderr = recorded.stderr
    assert recorded.stdout == plain.stdout, stderr
    assert recorded.cpu_s - plain.cpu_s < MORE_CPU_S and recorded.memory_mb - plain.memory_mb < MORE_MEMORY_MB
    if not is_packaged(program):
        assert not added_lines(stderr, plain.stderr, tmp_path)
    manifest = read_manifest(next(p.parent for p in sorted(tmp_path.glob("*/run.json"))))
    [done] = manifest.passes
    assert done.exit_code == plain.code, stderr
    if program.stem in NOT_RECORDED:
        assert recorded.code == 1 and NOT_RECORDED[program.stem] in (done.reason or "")
    else:
        assert recorded.code == (plain.code if plain.code >= 0 else 128 - plain.code), stderr
        assert any(file.kind == "chrome_trace" for file in done.files), stderr
    return manifest


class Process:
    """A process that runs, and what it printed and took once it has ended."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 (wait() reads them)
        stdout, stderr = self._files
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=cwd, env=environment()
        )

    def wait(self) -> None:
        _, status, usage = os.wait4(self._process.pid, 0)
        self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        """With all processes that it started and waited for."""
        self.memory_mb = usage.ru_maxrss / 1024
        """Of the largest of these processes, and at least what this process of tests has."""
        for file in self._files:
            file.seek(0)
        self.stdout, self.stderr = (file.read() for file in self._files)


def is_packaged(program: Path) -> bool:
    """Whether a program needs packages. Their messages have times, and come in another order each time."""
    return program.parent.name == "packages"


def added_lines(recorded: str, plain: str, output: Path) -> list[str]:
    """The lines that `collect` adds to stderr, but its own: Kineto's, warnings. Numbers are those of processes."""
    own = ("torch: ", "note: ", "next: ", "collect: ", "profiler overhead per step: ", f"{output}/")
    counts = Counter(re.sub(r"\d", "", line) for line in recorded.splitlines() if not line.startswith(own))
    return list((counts - Counter(re.sub(r"\d", "", line) for line in plain.splitlines())).elements())


HERE = ("reads_stdin", "threads")
"""Programs that run here; `.ci/compat` runs all, which would take too long here. What they do has other tests."""
CHECKED = [p for p in sorted(PROGRAMS.glob("*.py")) if p.stem in HERE or WITH_PACKAGES in os.environ]


@pytest.mark.parametrize("program", CHECKED, ids=lambda path: path.stem)
def test_program_ends_as_without_collect(program: Path, tmp_path: Path) -> None:
    check(program, sys.executable, tmp_path)


@pytest.mark.skipif(WITH_PACKAGES not in os.environ, reason=f"{WITH_PACKAGES} is not set; installs packages")
@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("packages/*.py")), ids=lambda path: path.stem)
@pytest.mark.timeout(900)
def test_program_with_packages_ends_as_without_collect(program: Path, tmp_path: Path) -> None:
    check(program, python_with_packages(program), tmp_path)


@pytest.mark.skipif(WITH_PACKAGES not in os.environ, reason=f"{WITH_PACKAGES} is not set; installs packages")
@pytest.mark.parametrize("name", STEP_FUNCTIONS)
@pytest.mark.timeout(900)
def test_calls_of_a_framework_s_function_are_steps(name: str, tmp_path: Path) -> None:
    function, operator, count = STEP_FUNCTIONS[name]
    assert f"`{function}`" in (ROOT / "docs" / "collect.md").read_text()
    program = PROGRAMS / "packages" / f"{name}.py"
    manifest = check(program, python_with_packages(program), tmp_path, "--step-function", function)
    assert manifest.passes[0].counted_steps == 2
    trace = read_trace(next(tmp_path.glob("*/torch/rank-0.trace.json.gz")))
    assert names(trace, "cpu_op").count(operator) == count


def python_with_packages(program: Path) -> str:
    """Install what a program needs, and return its Python."""
    subprocess.run(["uv", "sync", "-q", "--script", str(program)], check=True, timeout=600)
    find = ["uv", "python", "find", "--script", str(program)]
    return subprocess.run(find, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
