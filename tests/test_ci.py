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
    """A folder with runs, and `analyze` on the path."""
    root = tmp_path_factory.mktemp("project")
    record(root, "before", 10)
    record(root, "slow", 11)
    (root / "bin").mkdir()
    command = root / "bin/analyze"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m analyze "$@"\n')
    command.chmod(0o755)
    return root


def bash(project: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does: bash that stops at the first error."""
    path = f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **variables}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(shell, capture_output=True, text=True, cwd=project, env=environment)


@pytest.mark.parametrize(
    ("runs", "inputs", "code"),
    [
        ("before-* --with slow-*", {}, 1),  # 10 % slower, and 2 % are allowed
        ("before-* --with slow-*", {"fail-if": "step_time > 20%\nstep_time < 0%\n"}, 0),
        ("before-0 --with slow-0", {}, 0),  # one run each cannot tell
        ("before-0 --with slow-0", {"unsure": "fail"}, 1),
        ("before-0 --with none", {}, 2),
    ],
)
def test_steps_of_the_action(project: Path, runs: str, inputs: dict[str, str], code: int) -> None:
    [step] = [s for s in ACTION["runs"]["steps"] if s["name"] == "compare"]
    values = {name: str(i.get("default", "")) for name, i in ACTION["inputs"].items()} | {"runs": runs} | inputs
    variables = {k: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], v) for k, v in step["env"].items()}
    summary = project / "summary.md"
    summary.unlink(missing_ok=True)
    (project / "verdict.md").unlink(missing_ok=True)
    done = bash(project, step["run"], GITHUB_STEP_SUMMARY=str(summary), **variables)
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


def test_commands_of_the_page_are_those_of_collect_and_analyze(project: Path) -> None:
    """The same recording in every system; the comparison of GitLab runs on other runs."""
    [gitlab] = [block["verdict"]["script"] for block in BLOCKS if "verdict" in block]
    text = (ROOT / "docs/ci.md").read_text()
    [recording] = [line for line in gitlab if line.startswith("collect ")]
    assert text.count(recording) == 3
    [comparison] = [line for line in gitlab if line.startswith("analyze ")]
    assert bash(project, comparison.replace("ab/", "before-* --with slow-*")).returncode == 1
