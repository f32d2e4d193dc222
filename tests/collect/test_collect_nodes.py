"""A job on several nodes: one `collect` for each node, or one for all."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from collect_support import Collect, names, read_trace, start, wait_for

import analyze
from collect.multi_node import reaches_nodes, slurm_job
from schemas.manifest import read_manifest

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_collect_on_each_node(tmp_path: Path) -> None:
    """Two "nodes" on loopback leave one run of two ranks, which began its recorded steps together."""
    program, output, port = tmp_path / "train.py", tmp_path / "runs", free_port()
    program.write_text(TRAIN)
    nodes = [
        start(
            "run", "-o", str(output), "--job", "two", "--no-echo", "--steps", "2", "--warmup", "2", "--undisturbed",
            "0",
            "--", sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node),
            "--master-addr", "127.0.0.1", "--master-port", str(port), "--local-addr", "127.0.0.1",
            "--nproc-per-node", "1", str(program),
        )
        for node in (0, 1)
    ]  # fmt: skip
    said = [node.communicate() for node in nodes]
    assert [node.wait() for node in nodes] == [0, 0], said
    parts = sorted(output.glob("two/*"))
    assert sorted(out.strip() for out, _ in said) == [str(p) for p in parts] and len(parts) == 2
    assert all(err.endswith(f"next: analyze info {output / 'two'}\n") for _, err in said)
    manifests = [read_manifest(p) for p in parts]
    assert {(m.job, m.run_id, m.world_size) for m in manifests} == {("two", p.name, 2) for p in parts}
    with analyze.open(output / "two") as traces:
        [run] = traces.sql("SELECT run_id, status, world_size, ranks, steps FROM runs").dicts()
        assert run == {"run_id": "two", "status": "done", "world_size": 2, "ranks": 2, "steps": 2}
        hosts = traces.sql("SELECT rank, host FROM rank_hosts ORDER BY rank").dicts()
        assert hosts == [{"rank": rank, "host": socket.gethostname()} for rank in (0, 1)]
        steps = traces.sql(
            "SELECT rank, count(*) AS n FROM cpu_ops WHERE name = 'aten::addmm' GROUP BY rank ORDER BY 1"
        ).arrow()
        assert steps.to_pylist() == [{"rank": 0, "n": 2}, {"rank": 1, "n": 2}]
    assert all(rank.aligned for m in manifests for one in m.passes for rank in one.ranks)


LONG = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step, end = 0, torch.zeros(1)
while not end:
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    step += 1
    if step == 20:
        print("ready", flush=True)
    time.sleep(0.01)
    end += os.path.exists(sys.argv[1])
    dist.all_reduce(end)
dist.destroy_process_group()
"""


def test_recording_on_demand_on_two_nodes(tmp_path: Path) -> None:
    """A trigger on one "node" records the same steps on both, and they are one run."""
    (program := tmp_path / "train.py").write_text(LONG)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    outputs = [tmp_path / f"node-{node}" for node in (0, 1)]
    nodes = [
        start(
            "run", "-o", str(output), "--job", "two", "--on-demand",
            "--", sys.executable, str(program), str(tmp_path / "end"), **shared, RANK=str(node),
        )
        for node, output in enumerate(outputs)
    ]  # fmt: skip
    for node in nodes:
        assert node.stdout is not None and node.stdout.readline() == "ready\n"
    [job] = outputs[1].glob("two/*")
    trigger = start("trigger", str(job), "--seconds", "0.2")
    assert trigger.communicate()[1] == "" and trigger.returncode == 0
    wait_for(lambda: len(list(tmp_path.glob("node-*/two/*/*/run.json"))) == 2, "the recording, while the job runs")
    (tmp_path / "end").touch()
    said = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    parts = [part.parent for output in outputs for part in output.glob("two/*/*/run.json")]
    manifests = [read_manifest(part) for part in parts]
    assert len({m.job for m in manifests}) == 1
    assert [(r.rank, r.aligned) for m in manifests for r in m.passes[0].ranks] == [(0, True), (1, True)]
    [count] = {r.counted_steps for m in manifests for r in m.passes[0].ranks}
    assert count in range(1, 21)  # a step takes 10 ms or more
    steps = [
        {name for name in names(read_trace(trace), "user_annotation") if name.startswith("ProfilerStep#")}
        for part in parts
        for trace in part.glob("torch/*.trace.json.gz")
    ]
    assert len(steps[0]) == count and steps == [steps[0]] * 2
    with analyze.open(tmp_path) as traces:
        [run] = traces.sql("SELECT status, world_size, ranks, steps FROM runs").dicts()
    assert run == {"status": "done", "world_size": 2, "ranks": 2, "steps": count}


def test_one_collect_for_all_nodes(collect: Collect, tmp_path: Path) -> None:
    """Processes that srun starts elsewhere do not see this node's own disks: what they tell goes by the run folder."""
    srun = tmp_path / "srun"
    srun.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys\n"
        "for i in '01': subprocess.run(sys.argv[1:], check=True, env=os.environ | {'SLURM_PROCID': i})\n"
    )
    srun.chmod(0o755)
    program = "import os, torch; torch.randn(4); print(os.environ['TRACEQUARRY_ATTACH'])"
    ran = collect("--", str(srun), sys.executable, "-c", program)
    assert ran.code == 0, ran.stderr
    assert [f.rank for f in ran.manifest.passes[0].files if f.kind == "chrome_trace"] == [0, 1]
    assert [r.rank for r in ran.manifest.passes[0].ranks] == [0, 1]
    assert f'"work": "{ran.folder}/.tracequarry-' in (ran.folder / "torch/log.txt").read_text()
    assert sorted(p.name for p in ran.folder.iterdir()) == ["run.json", "torch"]


def test_slurm_job_names() -> None:
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "4"}
    assert slurm_job(step) == "slurm-77-3"
    assert slurm_job(step | {"SLURM_RESTART_COUNT": "1"}) == "slurm-77-3-restart1"
    # A batch script is no step; a step of one task is no job on several nodes.
    assert slurm_job({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4"}) is None
    assert slurm_job(step | {"SLURM_STEP_NUM_TASKS": "1"}) is None and slurm_job({}) is None
    assert reaches_nodes(("/usr/bin/srun", "python3", "x.py")) and not reaches_nodes(("python3", "srun"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--job", "a/b", "--", "python3"], "--job: 'a/b' cannot name a folder"),
        (["--job", "a", "--model", "resnet18"], "--job: needs a program of your own after --"),
    ],
)
def test_invalid_jobs(collect: Collect, arguments: list[str], said: str) -> None:
    ran = collect(*arguments)
    assert ran.code == 2 and said in ran.stderr and not ran.output.exists()
