"""`collect ab` and `collect run --repeat`: order, folders, variables, resuming, and what failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collect_support import Collect, start

from collect.sweep.sides import Side, plan_sides
from schemas.manifest import read_manifest

# Needs no torch: what is tested is in which order and how programs are started.
PROGRAM = """
import os, pathlib
with open({log!r}, "a") as f:
    print(os.environ.get("SIDE", "a"), pathlib.Path.cwd().name, file=f)
"""


def ab(output: Path, *arguments: str) -> tuple[int, str, str]:
    child = start("ab", "-o", str(output), "--profiler", "none", *arguments)
    stdout, stderr = child.communicate(timeout=120)
    assert "Traceback" not in stderr, stderr
    return child.wait(), stdout, stderr


def cells(output: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((output / "sweep.json").read_text())["cells"]
    return found


def order(seed: int) -> str:
    plan = plan_sides({"program": ["true"]}, [Side("a"), Side("b")], 6, seed)
    assert [c["repetition"] for c in plan.cells] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    return "".join(c["side"] for c in plan.cells)


def test_each_four_recordings_are_balanced_and_the_seed_decides() -> None:
    orders = {order(seed) for seed in range(40)}
    assert all(o[i : i + 4] in ("abba", "baab") for o in orders for i in (0, 4, 8))
    assert len(orders) == 8  # three choices of two
    assert order(3) == order(3)


def test_checkouts_and_variables_in_turn_and_resumed(tmp_path: Path) -> None:
    log, output = tmp_path / "log", tmp_path / "ab"
    commits = {}
    for name in ("old", "new"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(PROGRAM.format(log=str(log)) + f"# {name}\n")
        git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x"]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", name]):
            subprocess.run([*git, *arguments], check=True)
        commits[name] = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    sides = ["--a-dir", str(tmp_path / "old"), "--b-dir", str(tmp_path / "new"), "--b-env", "SIDE=b"]
    code, stdout, stderr = ab(output, "-n", "1", *sides, "--", sys.executable, "train.py")
    assert (code, stdout) == (0, f"{output}\n"), stderr
    first = cells(output)
    # More repetitions later: what was recorded stays.
    code, _, stderr = ab(output, "-n", "2", *sides, "--", sys.executable, "train.py")
    assert code == 0, stderr
    after = cells(output)
    assert after[:2] == first
    # The programs' own log has the order in which they ran, and where.
    ran = [f"{c['values']['side']} {'new' if c['values']['side'] == 'b' else 'old'}" for c in after]
    assert log.read_text().splitlines() == ran and sorted(ran) == ["a old", "a old", "b new", "b new"]
    for cell in after:
        manifest = read_manifest(output / cell["run"])
        assert manifest.git_commit == commits["new" if cell["values"]["side"] == "b" else "old"]


def test_a_failed_recording_is_made_again(tmp_path: Path) -> None:
    output, marker = tmp_path / "ab", tmp_path / "marker"
    fails_once = f"test -e {marker} || {{ touch {marker}; exit 3; }}"
    code, _, stderr = ab(output, "-n", "2", "--a", "true", "--b", f'sh -c "{fails_once}"')
    assert code == 0 and "exited with code 3" in stderr and "recording again what failed" in stderr
    assert [c["status"] for c in cells(output)] == ["done"] * 4


def test_a_side_that_always_fails_is_not_recorded_again(tmp_path: Path) -> None:
    output = tmp_path / "ab"
    code, _, stderr = ab(output, "-n", "1", "--a", "true", "--b", "false")
    assert code == 1 and "1 done, 1 failed" in stderr and "again" not in stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--a", "true"], "--b: expected a command, or one of both sides after --"),
        (["--a", "true '", "--b", "true"], '--a: "true \'" is not a command: No closing quotation'),
        (["--b-env", "=1", "--", "true"], "--b-env: invalid value '=1'; expected NAME=VALUE"),
        (["--a-dir", "missing", "--", "true"], "--a-dir: missing is not a folder"),
        (["--undisturbed", "3", "--warmup", "1", "--", "true"], "--undisturbed: needs --warmup 2 or more"),
    ],
)
def test_bad_sides_are_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    code, _, stderr = ab(tmp_path / "ab", *arguments)
    assert code == 2 and sentence in stderr and len(stderr.splitlines()) == 1
    assert not (tmp_path / "ab").exists()


def test_repeat(collect: Collect) -> None:
    ran = collect("--repeat", "2", "--profiler", "none", "--no-echo", "--", "true")
    assert ran.code == 0, ran.stderr
    folders = ran.stdout.split()
    assert sorted(folders) == sorted(str(p) for p in ran.output.iterdir()) and len(folders) == 2
    failed = collect("--repeat", "3", "--profiler", "none", "--", "false", output=ran.output / "failed")
    assert failed.code == 1 and len(list(failed.output.iterdir())) == 1
