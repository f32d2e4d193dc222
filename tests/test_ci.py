"""CI: the steps of action.yml and of the page about it run as a CI system runs them."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from traces import write_run

yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BLOCKS = [yaml.safe_load(b) for b in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/ci.md").read_text(), re.S)]


def record(root: Path, name: str, step_ms: float) -> None:
    """Three runs without a profiler, which differ by 0.1 %."""
    for i in range(3):
        folder = root / f"{name}-{i}"
        rows = [f"0,{n},true,true,{step_ms * math.exp(0.001 * i) / 1e3}" for n in range(5)]
        (folder / "none").mkdir(parents=True)
        (folder / "none/rank-0.step_metrics.csv").write_text("\n".join(["rank,step,warmup,undisturbed,step_s", *rows]))
        write_run(folder, [("none/rank-0.step_metrics.csv", "step_metrics", 0)], profiler="none")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, and the commands of this checkout on the path."""
    root = tmp_path_factory.mktemp("project")
    record(root, "before", 10)
    record(root, "slow", 11)
    (root / "bin").mkdir()
    for name, arguments in (("python", ""), ("analyze", "-m analyze"), ("collect", "-m collect")):
        command = root / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        command.chmod(0o755)
    return root


def bash(project: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does: bash that stops at the first error."""
    path = f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **variables}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(shell, capture_output=True, text=True, cwd=project, env=environment)


def compare_step(project: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action that compares."""
    [step] = [s for s in ACTION["runs"]["steps"] if s["name"] == "compare"]
    values = {name: str(i.get("default", "")) for name, i in ACTION["inputs"].items()} | inputs
    variables = {k: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], v) for k, v in step["env"].items()}
    for name in ("summary.md", "verdict.md"):
        (project / name).unlink(missing_ok=True)
    return bash(project, step["run"], GITHUB_STEP_SUMMARY=str(project / "summary.md"), **variables)


@pytest.mark.parametrize(
    ("runs", "inputs", "code"),
    [
        ("before-* --with slow-*", {"fail-if": "step_time > 20%\nstep_time < 0%\n"}, 0),  # 10 % slower
        ("before-0 --with slow-0", {}, 0),  # one run each cannot tell
        ("before-0 --with slow-0", {"unsure": "fail"}, 1),
        ("before-0 --with none", {}, 2),
    ],
)
def test_steps_of_the_action(project: Path, runs: str, inputs: dict[str, str], code: int) -> None:
    done = compare_step(project, runs=runs, **inputs)
    summary = project / "summary.md"
    assert done.returncode == code, done.stderr
    assert summary.exists() == (code != 2)
    if code != 2:
        assert summary.read_text().startswith("### Performance: ") and "step_time" in done.stdout


def uses(block: Any) -> list[dict[str, Any]]:
    return [s for job in block.get("jobs", {}).values() for s in job["steps"] if "tracequarry" in s.get("uses", "")]


def test_page_uses_inputs_that_the_action_has() -> None:
    [step] = [s for block in BLOCKS for s in uses(block)]
    assert step["with"].keys() <= ACTION["inputs"].keys()
    listed = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs/ci.md").read_text(), re.M))
    assert ACTION["inputs"].keys() <= listed
    texts = "\n".join(s.get("run", "") for s in ACTION["runs"]["steps"])
    # Inputs reach the shell as variables: text of a pull request is never part of a script.
    assert "${{" not in texts


PROGRAM = """
import sys, time, torch
parameter = torch.nn.Parameter(torch.ones(1))
parameter.grad = torch.ones(1)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(int(sys.argv[2])):
    time.sleep({seconds})
    optimizer.step()
"""


def of_gitlab(program: str) -> str:
    """The command of a program in the script of GitLab."""
    [command] = [c for block in BLOCKS for c in block.get("verdict", {}).get("script", []) if c.startswith(program)]
    return str(command)


def test_every_system_records_alike(project: Path) -> None:
    """The comparison of GitLab runs on other runs."""
    assert bash(project, of_gitlab("analyze ").replace("ab/", "before-* --with slow-*")).returncode == 1
    assert (ROOT / "docs/ci.md").read_text().count(of_gitlab("collect ")) == 3


def test_way_of_the_page(project: Path) -> None:
    """Its recording, with fewer runs and steps, and the comparison of GitHub."""
    pytest.importorskip("torch")
    (project / "base").mkdir()
    # Ten times as long: two runs show it even if they differ by a third.
    (project / "base/train.py").write_text(PROGRAM.format(seconds=0.03))
    (project / "train.py").write_text(PROGRAM.format(seconds=0.3))
    command = of_gitlab("collect ")
    for value, smaller in (("-n 5", "-n 2"), ("--undisturbed 30", "--undisturbed 4"), ("--steps 40", "--steps 7")):
        assert command.count(value) == 1
        command = command.replace(value, smaller)
    recorded = bash(project, command, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    assert recorded.returncode == 0, recorded.stderr
    [inputs] = [s["with"] for block in BLOCKS for s in uses(block)]
    compared = compare_step(project, **inputs)
    assert compared.returncode == 1 and "failed: step_time > 5%: step_time changed by +" in compared.stderr
    assert (project / "summary.md").read_text().startswith("### Performance: slower\n")
