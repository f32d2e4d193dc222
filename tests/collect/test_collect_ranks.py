"""Which processes of a user's program are ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from collect_support import LAUNCHER, Collect, Ran, names, read_csv, read_trace, two_ranks

from collect.injected.step_blocks import FULL, GPU, UNDISTURBED
from collect.rank_reports import AttachedReport, BlockReport, RankReport
from collect.ranks import assign_ranks
from schemas.manifest import read_manifest

JOIN = """
import multiprocessing, os, subprocess, sys, torch
import torch.distributed as dist
def join(rank, world, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    torch.ones(rank + 1).sum()
    dist.barrier()
    dist.destroy_process_group()
"""
SPAWNED = (
    JOIN
    + """
if __name__ == "__main__":
    torch.ones(3) + 1  # the parent is no rank of the job that it starts
    torch.multiprocessing.spawn(join, (2, sys.argv[1] + "/store"), 2)
"""
)
HELPED = (
    JOIN
    + """
rank = int(os.environ["RANK"])
subprocess.run([sys.executable, "-c", "import torch; torch.zeros(3) + 1"], check=True)  # with the same RANK
join(rank, 2, sys.argv[1] + "/store")
"""
)


def operators(ran: Ran) -> dict[str, set[str]]:
    """By trace of the run, the factories that were called in it."""
    assert ran.code == 0, ran.stderr
    paths = [f.path for f in ran.manifest.passes[0].files if f.kind == "chrome_trace"]
    called = {path: names(read_trace(ran.folder / path), "cpu_op") for path in paths}
    return {Path(p).name: {"aten::ones", "aten::zeros"} & set(called[p]) for p in paths}


BOTH = ("rank-0.trace.json.gz", "rank-1.trace.json.gz")


def test_parent_of_ranks_is_not_a_rank(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNED)
    ran = collect("--", sys.executable, str(program), str(tmp_path))
    assert operators(ran) == {key: {"aten::ones"} for key in BOTH}
    assert ran.manifest.world_size == 2 and [r.rank for r in ran.manifest.passes[0].ranks] == [0, 1]
    says = "discarded recordings: 1 of a process that is no rank of the job"
    assert ran.manifest.passes[0].note == says and f"note: torch: {says}" in ran.stderr
    assert not list((ran.folder / "torch").glob("process-*"))


def test_helper_with_rank_variables_is_not_a_rank(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HELPED)
    ran = collect("--", *two_ranks(program, tmp_path))
    assert operators(ran) == {key: {"aten::ones"} for key in BOTH}
    says = "discarded recordings: 2 of a rank of another job, or of an earlier attempt"
    assert ran.manifest.passes[0].note == says


def test_ranks_are_known_after_process_group_is_destroyed(collect: Collect, tmp_path: Path) -> None:
    """Nothing else says them: no optimizer steps, no variable."""
    program = tmp_path / "program.py"
    start = "process = multiprocessing.get_context('spawn').Process(target=join, args=(rank, 2, sys.argv[1] + '/s'))"
    text = f"if __name__ == '__main__':\n    for rank in (1, 0):\n        {start}\n        process.start()\n"
    program.write_text(JOIN + text)
    ran = collect("--", sys.executable, str(program), str(tmp_path))
    assert set(operators(ran)) == set(BOTH)
    for rank in (0, 1):
        sizes = [
            e["args"]["Concrete Inputs"][0]
            for e in read_trace(ran.folder / f"torch/rank-{rank}.trace.json.gz")["traceEvents"]
            if e.get("name") == "aten::ones"
        ]
        assert sizes == [f"[{rank + 1}]"]


STEPS = """
import sys, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps, last=torch.sigmoid):
    for step in range(steps):
        last(model(torch.ones(2, 8))).sum().backward()
        optimizer.step()
"""
LAUNCHES = "import subprocess, sys, torchvision\nsubprocess.run([sys.executable, sys.argv[1]], check=True)\n"
RESTARTED = """
import os, torch.distributed as dist
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
# gloo does not always connect again through the store of torchrun.
store = "file://" + sys.argv[1] + "/store" + attempt
dist.init_process_group("gloo", init_method=store, rank=int(os.environ["RANK"]), world_size=2)
if attempt == "0":
    train(3)
    raise SystemExit(1)
train(3, torch.tanh)
"""
FEW = ["--warmup", "1", "--steps", "2"]


def test_launcher_that_imports_torchvision_is_not_a_rank(collect: Collect, tmp_path: Path) -> None:
    launcher, program = tmp_path / "launcher.py", tmp_path / "program.py"
    launcher.write_text(LAUNCHES)
    program.write_text(STEPS + "train(3)\n")
    ran = collect(*FEW, "--", sys.executable, str(launcher), str(program))
    assert ran.code == 0, ran.stderr
    assert [(r.rank, r.counted_steps) for r in ran.manifest.passes[0].ranks] == [(0, 2)]


def test_trainings_one_after_the_other_are_runs_of_their_own(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STEPS + "train(int(sys.argv[1]))\n")
    command = f"{sys.executable} {program} 3 && {sys.executable} {program} 1 && {sys.executable} {program} 3"
    ran = collect(*FEW, "--", "sh", "-c", command)
    assert ran.code == 0, ran.stderr
    runs = sorted(ran.output.iterdir())
    manifests = [read_manifest(path) for path in runs]
    assert [m.run_id for m in manifests] == [manifests[0].run_id, f"{manifests[0].run_id}-2"]
    for path, manifest in zip(runs, manifests, strict=True):
        assert manifest.status == "done" and [(r.rank, r.counted_steps) for r in manifest.passes[0].ranks] == [(0, 2)]
        assert names(read_trace(path / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::linear") == 2
    assert f"note: torch: program.py was recorded as a run of its own: {runs[1]}" in ran.stderr
    # Each has the samples of the machine, the second those since it began.
    first, second = (read_csv(path / "torch/rank-0.host_samples.csv")[0]["start_ns"] for path in runs)
    assert int(first) < int(second)
    # The second, which took one step, is no failure.
    assert "not recorded: 1 other process: the program ended before" in (manifests[0].passes[0].note or "")


def test_restart_that_succeeds_is_done(collect: Collect, tmp_path: Path) -> None:
    """The recordings of the first attempt, which are complete, are discarded."""
    program = tmp_path / "program.py"
    program.write_text(STEPS + RESTARTED)
    ran = collect(*FEW, "--", *LAUNCHER, "--nproc-per-node=2", "--max-restarts=1", str(program), str(tmp_path))
    assert ran.code == 0 and ran.manifest.status == "done", ran.stderr
    done = ran.manifest.passes[0]
    assert done.counted_steps == 2 and [r.rank for r in done.ranks] == [0, 1]
    assert "2 of a rank of another job, or of an earlier attempt" in (done.note or "")
    for rank in (0, 1):
        assert names(read_trace(ran.folder / f"torch/rank-{rank}.trace.json.gz"), "cpu_op").count("aten::tanh") == 2


def recorded(folder: Path, stem: str, **fields: object) -> AttachedReport:
    (folder / f"{stem}.trace.json.gz").write_text(stem)
    return AttachedReport(ok=True, stem=stem, **fields)  # type: ignore[arg-type]


def settled(folder: Path, reports: list[RankReport]) -> dict[str, str]:
    """Which process has which rank."""
    assign_ranks(reports, {FULL: folder})
    return {path.name.partition(".")[0]: path.read_text() for path in sorted(folder.glob("*.trace.json.gz"))}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        # Of two jobs of a size the last one; a training of two ranks rather than an evaluation of one after it.
        ([("a", 0, 1), ("a", 1, 2), ("b", 0, 3), ("b", 1, 4)], {"rank-0": "p2", "rank-1": "p3"}),
        ([("a", 0, 1), ("a", 1, 2), ("b", 0, 3)], {"rank-0": "p0", "rank-1": "p1"}),
        # Ranks that are missing stay so.
        ([("a", 3, 1), ("a", 1, 2)], {"rank-1": "p1", "rank-3": "p0"}),
        ([("a", 0, 1), (None, None, 2)], {"rank-0": "p0"}),
    ],
)
def test_jobs_of_one_program_stay_apart(
    tmp_path: Path, jobs: list[tuple[str | None, int | None, float]], expected: dict[str, str]
) -> None:
    reports: list[RankReport] = [
        recorded(tmp_path, f"p{i}", job=job, job_rank=rank, when=when, in_group=True)
        for i, (job, rank, when) in enumerate(jobs)
    ]
    assert settled(tmp_path, reports) == expected


def test_processes_that_did_less_are_no_ranks(tmp_path: Path) -> None:
    reports: list[RankReport] = [
        recorded(tmp_path, "launcher", did=0, began_s=1.0),
        recorded(tmp_path, "validation", did=1, began_s=2.0),
        recorded(tmp_path, "training", did=2, began_s=3.0),
        AttachedReport(reason="the program ended before the profiled steps"),
    ]
    assigned = assign_ranks(reports, {FULL: tmp_path})
    assert [(r.rank, r.ok) for r in assigned.reports] == [(0, True)] and not assigned.separate
    assert [p.read_text() for p in tmp_path.glob("*.trace.json.gz")] == ["training"]
    assert assigned.note == (
        "discarded recordings: 2 of a process that did not train, or called no module; "
        "not recorded: 1 other process: the program ended before the profiled steps"
    )


def test_files_of_both_blocks_follow_the_rank(tmp_path: Path) -> None:
    gpu, full = tmp_path / "gpu", tmp_path / "torch"
    for folder in (gpu, full):
        folder.mkdir()
        for stem in ("training", "helper"):
            (folder / f"{stem}.trace.json.gz").write_text(stem)
    blocks = [
        BlockReport(kind=UNDISTURBED, steps=[(2, 1_000_000)]),
        BlockReport(kind=GPU, steps=[(4, 2_000_000)]),
        BlockReport(kind=FULL, steps=[(6, 3_000_000)]),
    ]
    reports: list[RankReport] = [
        AttachedReport(ok=True, stem="training", did=2, blocks=blocks),
        AttachedReport(ok=True, stem="helper", did=0),
    ]
    assign_ranks(reports, {GPU: gpu, FULL: full})
    for folder, step in ((gpu, "4"), (full, "6")):
        assert sorted(p.name for p in folder.iterdir()) == ["rank-0.step_metrics.csv", "rank-0.trace.json.gz"]
        assert (folder / "rank-0.trace.json.gz").read_text() == "training"
        # The undisturbed steps are those of both.
        rows = read_csv(folder / "rank-0.step_metrics.csv")
        assert [(r["step"], r["undisturbed"]) for r in rows] == [("2", "true"), (step, "false")]


def test_failure_in_the_same_job_remains(tmp_path: Path) -> None:
    reports: list[RankReport] = [
        recorded(tmp_path, "first", did=2, job="a", job_rank=0),
        AttachedReport(reason="it went wrong", job="a", job_rank=1),
        AttachedReport(reason="an earlier attempt", job="b", job_rank=1),
    ]
    assert [r.reason for r in assign_ranks(reports, {FULL: tmp_path}).reports if not r.ok] == ["it went wrong"]


def test_processes_of_slurm_tasks_are_numbered(tmp_path: Path) -> None:
    reports: list[RankReport] = [
        recorded(tmp_path, "late", began_s=2.0, blocks=[BlockReport(kind=FULL, steps=[(3, 1_000_000_001)])]),
        recorded(tmp_path, "early", began_s=1.0),
        recorded(tmp_path, "task", began_s=0.0, task=5),
        AttachedReport(reason="it went wrong"),
    ]
    assert settled(tmp_path, reports) == {"rank-0": "early", "rank-1": "late", "rank-5": "task"}
    rows = read_csv(tmp_path / "rank-1.step_metrics.csv")
    assert [(r["rank"], r["step"], r["warmup"], r["step_s"]) for r in rows] == [("1", "3", "false", "1.000000001")]
