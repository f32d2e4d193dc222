"""Messages of `collect` on the terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from collect_support import ROOT, TINY, Collect, environment, start

from collect.doctor import check_output
from collect.option_checks import has_gpu, make_options
from collect.sweep.plan import Plan
from schemas.errors import InputError


def test_output_warns_about_cpu_and_names_the_next_command(collect: Collect) -> None:
    if has_gpu():
        pytest.skip("this node has a GPU")
    ran = collect(*TINY)
    lines = ran.stderr.splitlines()
    said = next(i for i, line in enumerate(lines) if "training on the CPU" in line)
    started = next(i for i, line in enumerate(lines) if line.startswith("torch: squeezenet1_1"))
    assert said < started and lines[-1] == f"next: analyze info {ran.folder}" and ran.manifest.workload.device == "cpu"
    asked = [sys.executable, "-m", "analyze", "info", str(ran.folder)]
    info = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT)
    assert "torch.profiler, 1 rank of 1, 2 steps" in info.stdout


def test_square_brackets_are_not_markup(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('[red]no[/red] torch')")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    child = start("doctor", "-o", str(tmp_path), PYTHONPATH=path, COLUMNS="200")
    out, _ = child.communicate(timeout=100)
    assert child.returncode == 1
    assert "pip install 'tracequarry[collect]'" in out and "[red]no[/red] torch" in out


def test_help_has_no_raw_markup() -> None:
    from typer.testing import CliRunner

    from collect.cli import app

    for command in ("run", "sweep", "doctor"):
        text = re.sub(r"\s+", " ", CliRunner().invoke(app, [command, "--help"]).output)
        assert "[]" not in text and " , " not in text


def test_internal_error_is_reported_as_a_bug() -> None:
    code = (
        "import sys\nfrom collect.cli import app, main\n@app.command()\ndef broken() -> None:\n    {}['key']\n"
        "sys.argv = ['collect', 'broken']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    *trace, last = done.stderr.splitlines()
    assert done.returncode == 1 and trace[-1] == "KeyError: 'key'"
    assert last == "collect: internal error; please report it with these lines"


def test_output_rejects_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would become a folder `s3:` here."""
    monkeypatch.chdir(tmp_path)
    plan = tmp_path / "plan.toml"
    plan.write_text('[options]\nmodel = "vgg16"\n[grid]\nbatch_size = [1]\n')
    with pytest.raises(InputError, match=r"^--output: s3://bucket/runs is a URL; record into a folder and copy it"):
        make_options({"program": ["true"], "output": "s3://bucket/runs"})
    with pytest.raises(InputError, match=r"^--output: s3://bucket/runs is a URL"):
        Plan(plan, {}, []).folder(Path("s3://bucket/runs"))
    disk = check_output(Path("s3://bucket/runs"))
    assert (disk.status, disk.found) == ("missing", "s3://bucket/runs is a URL")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]
