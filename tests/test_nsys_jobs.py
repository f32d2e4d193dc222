"""Nsight Systems reports of one job: rank, GPU and clock of each process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyze.ingestion.discover import discover
from tests.support import ask, sql
from tests.test_nsys_layouts import Row, process, thread, write_export

MS = 1_000_000
EPOCH_NS = 1_764_000_000 * 10**9
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"

Kernel = tuple[int, int, int, int]
"""Process, device, start and end in us."""


def report(
    path: Path,
    kernels: list[Kernel],
    environment: dict[str, object] | None = None,
    command: str = "python train.py",
    name: str = "gemm(float*)",
    clock_ns: int | None = EPOCH_NS,
    more: dict[str, tuple[str, list[Row]]] | None = None,
) -> Path:
    """An export with kernels, each launched 50 us before its start; correlation ids count from 1 in each process."""
    count: dict[int, int] = {}
    work, calls = [], []
    for pid, device, start, end in kernels:
        count[pid] = count.get(pid, 0) + 1
        work.append((start * 1000, end * 1000, device, 7, count[pid], process(pid), 1))
        calls.append(((start - 50) * 1000, (start - 45) * 1000, thread(pid, pid), count[pid], 2))
    program, *arguments = command.split()
    said = [("PROCESS_0:COMMAND", program), *((f"PROCESS_0:ARGUMENT_{i}", a) for i, a in enumerate(arguments))]
    said += [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{k}="{v}"') for k, v in (environment or {}).items()]
    tables: dict[str, tuple[str, list[Row]]] = {
        "META_DATA_EXPORT": ("name value", []),
        "META_DATA_CAPTURE": ("name value", said),
        "StringIds": ("id value", [(1, name), (2, "cudaLaunchKernel_v7000"), (3, "cudaGetDeviceCount_v3020")]),
        "CUPTI_ACTIVITY_KIND_KERNEL": ("start end deviceId streamId correlationId globalPid demangledName", work),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("start end globalTid correlationId nameId", calls),
    }
    if clock_ns is not None:
        tables["TARGET_INFO_SESSION_START_TIME"] = ("utcEpochNs utcTime", [(clock_ns, "2025-11-24T16:00:00")])
    for table, (columns, rows) in (more or {}).items():
        tables[table] = (columns, [*tables[table][1], *rows] if table in tables else rows)
    return write_export(path, tables)


@pytest.mark.parametrize(
    ("rank", "size", "more"),
    [
        ("SLURM_PROCID", "SLURM_NTASKS", {"SLURM_JOB_ID": 991}),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_NTASKS": 64, "SLURM_JOB_ID": 991}),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", {}),
        ("PMI_RANK", "PMI_SIZE", {}),
        ("PALS_RANKID", "PMI_SIZE", {"PALS_APID": "a-b"}),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 5}),
        ("RANK", "WORLD_SIZE", {"SLURM_PROCID": 1, "SLURM_NTASKS": 2, "MASTER_ADDR": "a"}),
    ],
)
def test_ranks_that_launchers_set(tmp_path: Path, rank: str, size: str, more: dict[str, object]) -> None:
    for n in range(3):
        environment = {rank: n, size: 3} | more
        if rank == "PALS_RANKID":
            environment["PMI_RANK"] = n
        # Named so that names say nothing.
        report(tmp_path / f"{'abc'[2 - n]}.sqlite", [(40 + n, 0, 100, 200 + n)], environment)
    assert sql(tmp_path, "SELECT ranks, world_size FROM runs") == [{"ranks": 3, "world_size": 3}]
    kernels = sql(tmp_path, "SELECT rank, pid, dur_ns FROM kernels ORDER BY rank")
    assert [tuple(k.values()) for k in kernels] == [(0, 40, 100_000), (1, 41, 101_000), (2, 42, 102_000)]


def test_srun_tasks_of_two_steps_are_two_runs(tmp_path: Path) -> None:
    for step in (0, 1):
        for n in (0, 1):
            told = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": step, "SLURM_PROCID": n, "SLURM_NTASKS": 2}
            report(tmp_path / f"{step}-{n}.sqlite", [(40, 0, 100, 200 + step + 2 * n)], told)
    assert sql(tmp_path, "SELECT ranks, world_size FROM runs") == [{"ranks": 2, "world_size": 2}] * 2


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ("torchrun --nnodes 2 --nproc-per-node 2 --node-rank {} train.py", {"MASTER_ADDR": "node0"}),
        ("torchrun --nnodes=2 --node_rank={} train.py", {}),
        ("torchrun --nnodes=2 --rdzv-backend c10d train.py", {"SLURM_PROCID": "{}", "SLURM_NTASKS": 2}),
    ],
)
def test_one_report_a_node(tmp_path: Path, command: str, environment: dict[str, str | int]) -> None:
    # Ten all_reduces of 2 ms; the rank r begins each r x 100 us late, all end together.
    for node in (0, 1):
        kernels = [
            (700 + local, local, 10_000 * call + 100 * (2 * node + local), 10_000 * call + 2000)
            for call in range(1, 11)
            for local in (0, 1)
        ]
        told = {k: str(v).format(node) for k, v in environment.items()}
        report(tmp_path / f"node{node}.sqlite", kernels, told, command.format(node), ALL_REDUCE)
    [run] = sql(tmp_path, "SELECT ranks, world_size, warnings FROM runs")
    assert (run["ranks"], run["world_size"]) == (4, 4)
    guessed = "which process has which rank is guessed from the order of the process ids (700, 701)"
    assert run["warnings"].splitlines() == [f"node{n}.sqlite: {guessed}" for n in (0, 1)]
    [ranks] = [r for r in ask(tmp_path, "health") if r["fact"] == "ranks"]
    assert (ranks["verdict"], ranks["value"]) == ("note", "4 of 4") and ranks["impact"] in guessed
    late = sql(
        tmp_path,
        "SELECT rank, count(*) AS calls, sum(last_ns - start_ns)::BIGINT AS wait_ns FROM (SELECT *, max(start_ns)"
        " OVER (PARTITION BY start_ns // 10000000) AS last_ns FROM kernels) GROUP BY rank ORDER BY rank",
    )
    assert [tuple(r.values()) for r in late] == [(0, 10, 3 * MS), (1, 10, 2 * MS), (2, 10, MS), (3, 10, 0)]
    # No file says that the four are one group: their ends do.
    rows = ask(tmp_path, "stragglers", params={"per": "group"})
    assert [(r["process_group"], r["wait_ns"], r["max_wait_ns"], r["times_last"]) for r in rows] == [
        ("all ranks (inferred)", wait * MS, wait * MS // 10, 10 * (wait == 0)) for wait in (3, 2, 1, 0)
    ]
    [fact] = [r for r in ask(tmp_path, "health") if r["fact"] == "process groups"]
    assert (fact["verdict"], fact["value"]) == ("note", "inferred for 40 of 40 communication kernels")
    # One of them alone is two ranks; of how many is not known.
    assert sql(tmp_path / "node1.sqlite", "SELECT ranks, world_size FROM runs") == [{"ranks": 2, "world_size": None}]


def test_two_jobs_of_two_ranks_are_not_one_of_four(tmp_path: Path) -> None:
    # The groups {0, 1} and {2, 3} call at the same rate; the second ends 1 ms after the first, though all overlap.
    kernels = [
        (600 + rank, rank, at, 10_000 * call + 3000 + 1000 * (rank > 1))
        for call in range(1, 21)
        for rank in range(4)
        for at in [10_000 * call + 700 * (rank % 2) + 1000 * (rank > 1)]
    ]
    report(tmp_path / "pairs.sqlite", kernels, None, "torchrun --nproc-per-node 4 train.py", ALL_REDUCE)
    [row] = ask(tmp_path, "collectives")
    assert (row["status"], row["calls"], row["total_ns"]) == ("group not known", 20, None)
    assert [(r["calls"], r["wait_ns"]) for r in ask(tmp_path, "stragglers")] == [(0, None)] * 4


def test_one_process_a_node(tmp_path: Path) -> None:
    for node in (0, 1):
        command = f"torchrun --nnodes 2 --nproc-per-node 1 --node-rank {1 - node} train.py"
        report(tmp_path / f"{node}.sqlite", [(9, 0, 100, 200 + node)], command=command)
    kernels = sql(tmp_path, "SELECT rank, dur_ns FROM kernels ORDER BY rank")
    assert [tuple(k.values()) for k in kernels] == [(0, 101_000), (1, 100_000)]


def test_reports_of_different_numbers_of_processes_are_not_joined(tmp_path: Path) -> None:
    for node, processes in ((0, 2), (1, 3)):
        told = {"SLURM_JOB_ID": 1, "SLURM_PROCID": node, "SLURM_NTASKS": 2}
        report(tmp_path / f"n{node}.sqlite", [(p, p, 100, 200) for p in range(1, 1 + processes)], told)
    assert [r["ranks"] for r in sql(tmp_path, "SELECT ranks FROM runs ORDER BY ranks")] == [2, 3]


def test_parent_process_without_gpu_work_is_not_a_rank(tmp_path: Path) -> None:
    path = report(
        tmp_path / "spawn.sqlite",
        [(51, 0, 100, 200), (52, 1, 100, 300)],
        more={
            "TARGET_INFO_CUDA_CONTEXT_INFO": ("processId deviceId contextId", [(50, 0, 1), (51, 0, 1), (52, 1, 1)]),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (
                "start end globalTid correlationId nameId", [(10, 20, thread(50, 50), 1, 3)],
            ),
        },
    )  # fmt: skip
    assert [tuple(r.values()) for r in sql(path, "SELECT rank, pid FROM kernels ORDER BY rank")] == [(0, 51), (1, 52)]
    [run] = sql(path, "SELECT ranks, warnings FROM runs")
    assert run["ranks"] == 2
    assert "1 host event of 1 process without GPU work left out" in run["warnings"]
    assert "partial" not in run["warnings"]


def test_times_count_from_the_start_of_the_first_report(tmp_path: Path) -> None:
    # Rank 1 began to record 1.5 s later; its first kernel starts at 3.005 s of rank 0's clock, 5 ms after rank 0's.
    for n, clock_ns, start in ((0, EPOCH_NS, 3_000_000), (1, EPOCH_NS + 1_500_000_000, 1_505_000)):
        told = {"RANK": n, "WORLD_SIZE": 2, "MASTER_ADDR": "a"}
        report(tmp_path / f"{n}.sqlite", [(60, n, start, start + 10_000)], told, clock_ns=clock_ns)
    starts = sql(tmp_path, "SELECT rank, start_ns FROM kernels ORDER BY rank")
    assert [r["start_ns"] for r in starts] == [3000 * MS, 3005 * MS]
    calls = sql(tmp_path, "SELECT rank, start_ns FROM cuda_calls ORDER BY rank")
    assert [r["start_ns"] for r in calls] == [3000 * MS - 50_000, 3005 * MS - 50_000]
    late = [r["value"] for r in ask(tmp_path, "health", params={"per": "rank"}) if r["fact"] == "start skew"]
    assert late == ["0.000 ms", "5.000 ms"]
    # A report alone counts from its own start.
    assert sql(tmp_path / "1.sqlite", "SELECT start_ns FROM kernels") == [{"start_ns": 1505 * MS}]


def test_reports_without_a_common_clock_are_a_warning(tmp_path: Path) -> None:
    for n, clock_ns in ((0, EPOCH_NS), (1, None)):
        told = {"RANK": n, "WORLD_SIZE": 2}
        report(tmp_path / f"{n}.sqlite", [(60 + n, n, 100, 200)], told, clock_ns=clock_ns)
    [run] = sql(tmp_path, "SELECT warnings FROM runs")
    assert run["warnings"] == (
        f"{tmp_path}/1.sqlite: does not say when its recording began (TARGET_INFO_SESSION_START_TIME), so the times "
        "of the 2 reports of this run are not aligned"
    )


def test_parts_of_a_job_have_their_own_ranks_and_one_clock(tmp_path: Path) -> None:
    for node, host in enumerate("ab"):
        report(
            tmp_path / host / "nsys" / "node-0.sqlite",
            [(70, 0, 100, 200), (71, 1, 100, 300)],
            clock_ns=EPOCH_NS + node * MS,
        )
        recorded = [{"rank": 2 * node + local, "host": host} for local in (0, 1)]
        done = {
            "profiler": "nsys", "status": "done", "files": [{"path": "nsys/node-0.sqlite", "kind": "nsys_sqlite"}],
            "ranks": recorded, "start": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        manifest = {
            "version": 2, "run_id": host, "job": "job", "status": "done", "start": "2026-01-01T00:00:00Z",
            "command": ["collect"], "passes": [done], "world_size": 4, "program": ["x"], "host": host,
        }  # fmt: skip
        (tmp_path / host / "run.json").write_text(json.dumps(manifest))
    assert sql(tmp_path, "SELECT ranks, world_size FROM runs") == [{"ranks": 4, "world_size": 4}]
    kernels = sql(tmp_path, "SELECT rank, start_ns, dur_ns FROM kernels ORDER BY rank")
    assert [tuple(k.values()) for k in kernels] == [
        (0, 100_000, 100_000), (1, 100_000, 200_000), (2, 1_100_000, 100_000), (3, 1_100_000, 200_000),
    ]  # fmt: skip
    hosts = sql(tmp_path, "SELECT rank, host FROM rank_hosts ORDER BY rank")
    assert [(h["rank"], h["host"]) for h in hosts] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]


def _devices(*rows: tuple[int, int, int, str | None]) -> dict[str, tuple[str, list[Row]]]:
    return {"TARGET_INFO_CUDA_DEVICE": ("pid cudaId gpuId uuid", list(rows))}


@pytest.mark.parametrize("second", [0, 1])
def test_processes_that_share_a_gpu(tmp_path: Path, second: int) -> None:
    # Kernels of 6 ms every 10 ms, those of the second process 3 ms later: busy 9 of every 10 ms, 99 ms in all.
    work = [(100, 0, 10_000 * n + 2000, 10_000 * n + 8000) for n in range(10)]
    work += [(101, second, 10_000 * n + 5000, 10_000 * n + 11_000) for n in range(10)]
    shared = _devices((100, 0, 0, "GPU-1"), (100, 1, 1, "GPU-2"), (101, second, 0, "GPU-1"))
    path = report(tmp_path / "mps.sqlite", work, more=shared)
    [busy] = ask(path, "gpu-busy")
    assert (busy["rank"], busy["device"], busy["span_ns"], busy["busy_ns"]) == (0, 0, 99 * MS, 90 * MS)
    assert busy["busy_pct"] == pytest.approx(90.909, abs=0.001)
    [run] = sql(path, "SELECT ranks, warnings FROM runs")
    assert run == {"ranks": 1, "warnings": "mps.sqlite: 2 processes (100, 101) share one GPU and are read as one rank"}
    # Both processes number their launches from 1: each kernel has the launch of its own process, 50 us before it.
    linked = sql(
        path, "SELECT k.start_ns - c.start_ns AS ns FROM kernels k JOIN cuda_calls c USING (rank, correlation_id, pid)"
    )
    assert [r["ns"] for r in linked] == [50_000] * 20


def test_processes_with_gpus_of_their_own_stay_ranks(tmp_path: Path) -> None:
    # Every process sees both GPUs, and the second has a stray kernel on the first's.
    seen = _devices((1, 0, 0, "A"), (1, 1, 1, "B"), (2, 0, 0, "A"), (2, 1, 1, "B"))
    path = report(tmp_path / "ddp.sqlite", [(1, 0, 100, 200), (2, 1, 100, 200), (2, 0, 300, 301)], more=seen)
    assert sql(path, "SELECT ranks FROM runs") == [{"ranks": 2}]
    # One visible GPU each, by CUDA_VISIBLE_DEVICES: both call theirs device 0.
    own = _devices((1, 0, 0, "A"), (2, 0, 1, "B"))
    path = report(tmp_path / "own.sqlite", [(1, 0, 100, 200), (2, 0, 100, 200)], more=own)
    assert sql(path, "SELECT ranks FROM runs") == [{"ranks": 2}]


def test_reports_that_are_named_like_ranks(tmp_path: Path) -> None:
    for n in (0, 1):
        report(tmp_path / "exports" / f"rank{n}.sqlite", [(1, 0, 100, 200 + n)])
        (tmp_path / "reports").mkdir(exist_ok=True)
        (tmp_path / "reports" / f"job.{n}.nsys-rep").write_bytes(b"%d" % n)
    said = "2 traces have ranks in their names only, so each is a run of its own;"
    one_run = "`analyze ingest --as-one-run` reads them as one run"
    assert discover([tmp_path / "exports"]).warnings == [f"{tmp_path}/exports: {said} {one_run}"]
    said = "the ranks of 2 reports of Nsight Systems are not read, so each is a run of its own;"
    export = "`nsys export --type sqlite` writes files whose ranks are read, and"
    assert discover([tmp_path / "reports"]).warnings == [f"{tmp_path}/reports: {said} {export} {one_run}"]
    [run] = discover([tmp_path / "exports"], as_one=True)
    assert [f.rank for f in run.files] == [0, 1]


def test_user_can_declare_exports_as_one_run(tmp_path: Path) -> None:
    report(tmp_path / "rank0.sqlite", [(1, 0, 100, 200)])
    report(tmp_path / "rank1.db", [(1, 0, 100, 300)])
    [run] = discover([tmp_path], as_one=True)
    assert [(f.rank, f.path.name) for f in run.files] == [(0, "rank0.sqlite"), (1, "rank1.db")]
