"""The launchers, shards and `collect` on a real Slurm: `.ci/cluster` makes one on this machine, of two nodes.

A node has a host name, an address and a /tmp of its own, and shares the folder of the tests with the others.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, stored_rows
from traces import kernel, write_trace

import analyze
from schemas.manifest import read_manifest
from schemas.slurm import largest_array, submitted


def told(*command: str | Path) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def nodes() -> list[str]:
    """The hosts of a Slurm that answers here; none without one."""
    try:
        return sorted(set(told("sinfo", "--noheader", "--Node", "--format=%N").split()))
    except (OSError, subprocess.CalledProcessError):
        return []


pytestmark = pytest.mark.skipif(len(nodes()) < 2, reason="needs a Slurm of two nodes: .ci/cluster makes one")

PYTHON = f"{shlex.quote(sys.executable)} -m"
TRAIN = """
import os, time, torch, torch.distributed as dist
if "RANK" not in os.environ:
    first = os.popen("scontrol show hostnames $SLURM_JOB_NODELIST").readline().strip()
    rank, world = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
    os.environ.update(RANK=rank, WORLD_SIZE=world, MASTER_ADDR=first, MASTER_PORT="29517")
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(os.environ.get("STEPS", "4"))):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    if step == 10 and dist.get_rank() == 0:
        open("recording", "w").close()
    time.sleep(float(os.environ.get("PAUSE", "0")))
dist.destroy_process_group()
"""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all nodes see, as the working directory, with the programs of this checkout."""
    base = Path(os.environ.get("TRACEQUARRY_CLUSTER", ROOT / ".cache"))
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=base))
    for program in ("analyze", "collect"):
        path = folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {PYTHON} {program} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def wait_for(there: Callable[[], Any], seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def queue() -> list[str]:
    """The tasks that Slurm has to do."""
    return told("squeue", "--me", "--noheader", "--array", "--format=%i").split()


def job(ranks: int) -> Path:
    """Traces of a job, with kernels of other names in each."""
    for rank in range(ranks):
        events = [kernel(f"k{rank}_{i}", i, 1) for i in range(20)]
        write_trace(Path("runs") / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": ranks})
    return Path("runs")


# --- Ingest ---


def test_more_tasks_than_an_array_allows_and_one_cancelled(shared: Path) -> None:
    most = largest_array()
    assert most is not None
    analyze.ingest(job(min(most, 20) + 2), store="one")
    # One task at a time: the second still waits when it is cancelled.
    ingest = start(
        "analyze", "ingest", "runs", "--store", "many", "--launcher", "slurm",
        "--launcher-option", "slurm_array_parallelism=1",
    )  # fmt: skip
    second = wait_for(lambda: next((task for task in queue() if task.endswith("_1")), None))
    told("scancel", second)
    stdout, stderr = ingest.communicate(timeout=300)
    assert ingest.returncode == 0, stderr
    assert not stdout and "1 run(s) ingested" in stderr and "WARNING" not in stderr
    assert stored_rows("many") == stored_rows("one")
    assert not list(Path("cache/tracequarry/jobs").iterdir()) and not Path("many/.submitit").exists()


def test_interrupted_ingest_cancels_its_tasks(shared: Path) -> None:
    job(4)
    ingest = start(
        "analyze", "ingest", "runs", "--store", "s", "--launcher", "slurm",
        "--launcher-option", "slurm_array_parallelism=1",
    )  # fmt: skip
    wait_for(queue)
    ingest.send_signal(signal.SIGTERM)
    ingest.communicate(timeout=60)
    assert ingest.returncode not in (0, 2)
    wait_for(lambda: not queue())


def test_invalid_slurm_options_are_one_sentence(shared: Path, tmp_path: Path) -> None:
    """A node has a /tmp of its own."""
    write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    for paths, options, said in (
        (tmp_path, ["--launcher-option", "slurm_partition=no-such"], "--launcher slurm: .*no-such"),
        (tmp_path, [], rf"{tmp_path}/t\.json: cannot be read: No such file or directory \(on {nodes()[0][:-1]}.*\)"),
    ):
        ingest = start("analyze", "ingest", str(paths), "--store", "s", "--launcher", "slurm", *options)
        _, stderr = ingest.communicate(timeout=120)
        assert ingest.returncode == 2 and re.fullmatch(f"analyze: {said}\n", stderr), stderr


def test_task_has_the_requested_cpus(shared: Path) -> None:
    with submitted("slurm", "cpus", {"cpus_per_task": "2"}) as tasks:
        [(_, cpus)] = tasks.outcomes(tasks.submit([(os.sched_getaffinity, (0,))]))
    assert len(cpus) >= 2


def test_shards_by_srun_and_by_sbatch(shared: Path) -> None:
    """As the documentation has them."""
    analyze.ingest(job(5), store="one")
    [command] = re.findall(r"^srun --ntasks=32 (bash -c '.*)'$", (ROOT / "docs/stores.md").read_text(), re.MULTILINE)
    told("bash", "-c", f"srun --ntasks=3 {command}'".replace("study/", "by-srun"))
    Path("script").write_text(told("analyze", "ingest", "runs", "-s", "by-sbatch", "--launcher", "slurm", "--print"))
    told("sbatch", "--wait", "script")
    for store in ("by-srun", "by-sbatch"):
        told("analyze", "commit", store)
        assert stored_rows(store) == stored_rows("one")


# --- Collect ---


def ranks_and_hosts(folder: Path) -> dict[int, str]:
    with analyze.open(folder) as traces:
        [run] = traces.sql("SELECT ranks, world_size FROM runs").dicts()
        assert run["ranks"] == run["world_size"]
        return {r["rank"]: r["host"] for r in traces.sql("SELECT * FROM rank_hosts ORDER BY rank").dicts()}


@pytest.mark.parametrize(
    ("command", "per_node"),
    [
        ("srun -N2 -n2 collect run {options} -- {python} train.py", 1),
        ("collect run {options} -- srun -N2 -n2 {python} train.py", 1),
        (
            "srun -N2 --ntasks-per-node=1 collect run {options} -- {python} -m torch.distributed.run --nnodes=2 "
            "--nproc-per-node=2 --rdzv-backend=c10d --rdzv-id=1 --rdzv-endpoint={first}:29518 train.py",
            2,
        ),
    ],
)
def test_a_job_on_two_nodes_is_one_run(shared: Path, command: str, per_node: int) -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(TRAIN)
    first, second = nodes()[:2]
    options = "-o out --steps 2 --warmup 2 --undisturbed 0"
    ran = start(*shlex.split(command.format(options=options, python=shlex.quote(sys.executable), first=first)))
    _, stderr = ran.communicate(timeout=300)
    assert ran.returncode == 0, stderr
    hosts = [host for host in (first, second) for _ in range(per_node)]
    assert ranks_and_hosts(Path("out")) == dict(enumerate(hosts))


@pytest.mark.parametrize("around", [False, True])
def test_ctrl_c_keeps_recorded_data(shared: Path, around: bool) -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(TRAIN)
    collect = "collect run -o out --steps 500 --warmup 2 --undisturbed 0 --"
    program = f"{shlex.quote(sys.executable)} train.py"
    command = f"{collect} srun -N2 -n2 {program}" if around else f"srun -X -N2 -n2 {collect} {program}"
    ran = start(*shlex.split(command), STEPS="600", PAUSE="0.1")
    wait_for(Path("recording").exists)
    ran.send_signal(signal.SIGINT)
    _, stderr = ran.communicate(timeout=60)
    assert ran.returncode == 130, stderr
    manifests = [read_manifest(path.parent) for path in Path("out").rglob("run.json")]
    assert len(manifests) == 2 - around and {(m.status, m.reason) for m in manifests} == {("failed", "interrupted")}
    traces = [f for m in manifests for done in m.passes for f in done.files if f.kind == "chrome_trace"]
    assert sorted(f.rank for f in traces) == [0, 1]
    assert not queue() and not list(Path("out").rglob(".*"))


def cells(folder: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(folder, "sweep.json").read_text())["cells"]
    return found


def test_sweep_with_a_lost_task(shared: Path) -> None:
    program = [["true"], ["sh", "-c", "kill -9 $PPID"]]
    Path("plan.toml").write_text(f"[options]\nprofiler = 'none'\n[grid]\nprogram = {json.dumps(program)}\n")
    sweep = start("collect", "sweep", "plan.toml", "-o", "out", "--launcher", "slurm")
    _, stderr = sweep.communicate(timeout=120)
    assert sweep.returncode == 1, stderr
    well, lost = cells("out")
    assert well["status"] == "done" and lost["status"] == "failed", stderr
    assert lost["reason"].startswith("its task was lost: ")
    manifest = read_manifest(Path("out", lost["run"]))
    assert (manifest.status, manifest.reason, manifest.end) == ("failed", lost["reason"], None)


def test_cell_that_exceeds_its_time_limit(shared: Path) -> None:
    """Slurm gives notice 90 s before, or up to 150: of three minutes both programs have begun by then."""
    well = ["sh", "-c", "trap 'echo ended; exit 1' INT; while :; do sleep 1; done"]
    deaf = ["sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"]
    plan = f"[options]\nprofiler = 'none'\n[grid]\nprogram = {json.dumps([well, deaf])}\n"
    Path("plan.toml").write_text(plan)
    sweep = start("collect", "sweep", "plan.toml", "-o", "out", "--launcher", "slurm", "--launcher-option",
                  "timeout_min=3")  # fmt: skip
    _, stderr = sweep.communicate(timeout=500)
    assert sweep.returncode == 1, stderr
    for cell in cells("out"):
        manifest = read_manifest(Path("out", cell["run"]))
        assert (cell["status"], manifest.status, manifest.passes[0].status) == ("failed", "failed", "failed")
        assert manifest.reason == cell["reason"] == manifest.passes[0].reason
        assert "it reached its time limit" in cell["reason"], stderr
    assert Path("out", cells("out")[0]["run"], "none/log.txt").read_text() == "ended\n"
    assert not list(Path("out").rglob(".reserve"))


def test_interrupted_sweep_cancels_slurm_tasks(shared: Path) -> None:
    program = ["sh", "-c", "touch begun; sleep 600"]
    plan = f"[options]\nprofiler = 'none'\nprogram = {json.dumps(program)}\n[grid]\nsteps = [1, 2]\n"
    Path("plan.toml").write_text(plan)
    sweep = start("collect", "sweep", "plan.toml", "-o", "out", "--launcher", "slurm")
    wait_for(Path("begun").exists)
    sweep.send_signal(signal.SIGINT)
    _, stderr = sweep.communicate(timeout=60)
    assert sweep.returncode == 130 and [c["status"] for c in cells("out")] == ["interrupted"] * 2, stderr
    wait_for(lambda: not queue())
    manifests = [read_manifest(path.parent) for path in Path("out").rglob("run.json")]
    assert manifests and {(m.status, m.reason) for m in manifests} == {("failed", "interrupted")}


def test_sweep_by_sbatch_script(shared: Path) -> None:
    """Of more cells than an array may have."""
    most = min(largest_array() or 1, 20)
    plan = f"[options]\nprofiler = 'none'\nprogram = ['true']\n[grid]\nsteps = {list(range(1, most + 2))}\n"
    Path("plan.toml").write_text(plan)
    script = told("collect", "sweep", "plan.toml", "-o", "out", "--launcher", "slurm", "--print")
    assert script.count("sbatch <<") == 2
    subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True)
    wait_for(lambda: not queue(), 300)
    done = [cell["values"] for n in range(most + 1) for cell in cells(f"out/cell-{n + 1}") if cell["status"] == "done"]
    assert done == [{"steps": n + 1} for n in range(most + 1)]


def test_two_sides_in_turn_resume_after_a_requeue(shared: Path) -> None:
    """The command of docs/collect.md, of which Slurm takes the job away and starts it again."""
    [command] = re.findall(r'`sbatch (.*) --wrap "collect ab \.\.\."`', (ROOT / "docs/collect.md").read_text())
    program = "sh -c 'echo $SIDE >> begun; [ $(wc -l < begun) != 2 ] || [ -e again ] || sleep 600'"
    sides = f"collect ab -n 2 -o ab --profiler none --a-env SIDE=a --b-env SIDE=b -- {program}"
    number = told("sbatch", "--parsable", *shlex.split(command), "--wrap", sides).strip()
    wait_for(lambda: Path("begun").exists() and len(Path("begun").read_text().split()) == 2)
    Path("again").touch()
    told("scontrol", "requeue", number)
    # Slurm waits two minutes before it starts a requeued job.
    wait_for(lambda: "JobState=PENDING" in told("scontrol", "show", "job", number))
    told("scontrol", "update", f"JobId={number}", "StartTime=now")
    wait_for(lambda: not queue())
    found = cells("ab")
    assert [cell["status"] for cell in found] == ["done"] * 4, Path(f"slurm-{number}.out").read_text()
    # The second recording was interrupted, and recorded again; the first one was not.
    order = [cell["values"]["side"] for cell in found]
    assert Path("begun").read_text().split() == [order[0], order[1], *order[1:]]
    statuses = sorted(read_manifest(path.parent).status for path in Path("ab").glob("*/run.json"))
    assert statuses == ["done"] * 4 + ["failed"]
