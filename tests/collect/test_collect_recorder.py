"""collect.Recorder: the blocks of steps of one's own loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from collect_support import Collect, environment, names, read_csv, read_trace, two_ranks

import analyze
from collect import Recorder
from schemas.errors import InputError
from schemas.manifest import read_manifest

LOOP = """
import sys, torch
from collect import Recorder
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Recorder(sys.argv[1], steps=3, warmup=2, undisturbed=2) as recorder:
    for step in range(int(sys.argv[2])):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        recorder.step()
print("folder:", recorder.folder, "reason:", recorder.reason)
"""
RANKS = (
    """
import torch.distributed as dist
dist.init_process_group("gloo")
"""
    + LOOP
    + """
dist.destroy_process_group()
"""
)


def run(tmp_path: Path, text: str, *arguments: str, **variables: str) -> str:
    program = tmp_path / "loop.py"
    program.write_text(text)
    command = [sys.executable, str(program), str(tmp_path / "runs"), *arguments]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    return done.stdout


def test_blocks_of_a_loop(tmp_path: Path) -> None:
    said = run(tmp_path, LOOP, "9")
    [folder] = (tmp_path / "runs").iterdir()
    assert said == f"folder: {folder} reason: None\n"
    # 0 | 1 2 | 3 | 4 5 6, and two more steps that are not recorded.
    manifest = read_manifest(folder)
    [done] = manifest.passes
    assert (manifest.status, done.profiler, done.status, done.counted_steps) == ("done", "torch", "done", 3)
    [rank] = done.ranks
    assert rank.warmed_up and rank.undisturbed_step_ns and rank.recorded_step_ns
    rows = read_csv(folder / "torch/rank-0.step_metrics.csv")
    assert [(r["step"], r["undisturbed"]) for r in rows] == [
        *(("1", "true"), ("2", "true")),
        *((step, "false") for step in "456"),
    ]
    trace = read_trace(folder / "torch/rank-0.trace.json.gz")
    assert names(trace, "cpu_op").count("aten::linear") == 3
    assert not [p for p in folder.rglob("*") if p.name.startswith("process-")]
    with analyze.open(folder) as traces:
        assert traces.query("steps").arrow().num_rows == 3


def test_loop_that_is_too_short(tmp_path: Path) -> None:
    assert "it took 3 calls of step(), and --warmup is 2, --undisturbed 2: it needs 5 or more" in run(
        tmp_path, LOOP, "3"
    )
    [folder] = (tmp_path / "runs").iterdir()
    assert read_manifest(folder).status == "failed"


def test_off(tmp_path: Path) -> None:
    assert run(tmp_path, LOOP, "9", TRACEQUARRY_RECORDER="0") == "folder: None reason: None\n"
    assert not (tmp_path / "runs").exists()
    # It does not even look at its options, and needs no torch.
    with Recorder(tmp_path / "runs", enabled=False, nonsense=1) as recorder:
        recorder.step()
    assert recorder.folder is None and not (tmp_path / "runs").exists()


def test_bad_options() -> None:
    with pytest.raises(InputError, match="Recorder: stepps: unknown option; did you mean 'steps'"):
        Recorder(stepps=3)


def test_ranks_record_one_run(tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(RANKS)
    command = two_ranks(program, tmp_path / "runs", "9")
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [job] = (tmp_path / "runs").iterdir()
    manifests = [read_manifest(part) for part in job.iterdir()]
    assert {(m.job, m.world_size) for m in manifests} == {(job.name, 2)}
    ranks = [rank for m in manifests for rank in m.passes[0].ranks]
    assert sorted((r.rank, r.counted_steps, r.aligned) for r in ranks) == [(0, 3, True), (1, 3, True)]


def test_collect_is_cheap_to_import() -> None:
    code = "import sys, collect; print({'torch', 'msgspec', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_steps_under_collect_run(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(LOOP)
    function = ["--step-function", "collect.recorder:Recorder.step", "--steps", "2", "--warmup", "1"]
    ran = collect(*function, "--", sys.executable, str(program), str(tmp_path / "own"), "9")
    assert ran.code == 0 and ran.stdout == "folder: None reason: None\n", ran.stderr
    assert ran.manifest.passes[-1].counted_steps == 2 and not (tmp_path / "own").exists()
