"""Several passes of one workload: one answers, a note says which, and no work counts twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import complaints, run_cli
from support import SAMPLES

import analyze
from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.query.query_files import find

DP2 = SAMPLES / "alexnet-dp2"
"""One workload under torch.profiler and under Nsight Systems."""


@pytest.fixture(scope="module")
def dp2() -> analyze.Traces:
    return analyze.open(DP2)


def broadcasts(traces: analyze.Traces, where: str | None = None, profiler: str | None = None) -> int:
    rows = traces.where(where, profiler).query("nccl-share").dicts()
    return sum(r["calls"] for r in rows if r["collective"] == "broadcast")


def test_a_workload_counts_once(dp2: analyze.Traces) -> None:
    # torch.profiler's own table of the run (torch/rank-0.key_averages.csv) counts 16 calls of the kernel.
    torch = broadcasts(dp2, where="profiler = 'torch'")
    nsys = broadcasts(dp2, where="profiler = 'nsys'")
    assert (torch, nsys) == (16, 16)
    assert broadcasts(dp2) == torch
    assert broadcasts(dp2, profiler="torch") == torch and broadcasts(dp2, profiler="nsys") == nsys
    assert broadcasts(dp2, profiler="all") == torch + nsys
    [row] = dp2.sql("SELECT count(DISTINCT run_id) AS n, any_value(profiler) AS p FROM runs").dicts()
    assert (row["n"], row["p"]) == (1, "torch")


def test_grouping_by_profiler_uses_all_passes(dp2: analyze.Traces) -> None:
    for by in ("profiler", "run_id"):
        rows = dp2.query("nccl-share", by=[by]).dicts()
        assert len({r[by] for r in rows}) == 2
    pivot = dp2.pivot("nccl-share", rows=["collective"], columns=["profiler"], value="calls").dicts()
    assert {r["collective"]: (r["profiler=nsys"], r["profiler=torch"]) for r in pivot}["broadcast"] == (16, 16)
    assert {r["profiler"] for r in dp2.query("runs").dicts()} == {"torch", "nsys"}


def test_query_uses_the_pass_with_its_data(dp2: analyze.Traces) -> None:
    assert dp2.query("nvtx").dicts() == dp2.where("profiler = 'nsys'").query("nvtx").dicts() != []
    assert dp2.query("ops").arrow().num_rows > 0
    # A recording under torch.profiler alone answers it as well as it can.
    assert analyze.open(SAMPLES / "resnet18-1gpu").query("nvtx").arrow().num_rows > 0


def test_passes_without_times_are_kept() -> None:
    """Nsight Compute's counters and the operators of the torch pass are asked together."""
    traces = analyze.open(SAMPLES / "alexnet-ncu")
    both = traces.sql("SELECT DISTINCT profiler FROM runs").dicts()
    assert {"ncu", "torch"} <= {r["profiler"] for r in both}
    assert Engine(traces.stores).note == ""
    assert traces.query("useful-flops").dicts() == traces.where(profiler="all").query("useful-flops").dicts() != []


def test_failed_pass_is_replaced(tmp_path: Path) -> None:
    folder = shutil.copytree(DP2, tmp_path / "run")
    manifest = json.loads((folder / "run.json").read_text())
    for one in manifest["passes"]:
        one["status"] = "failed" if one["profiler"] == "torch" else one["status"]
    (folder / "run.json").write_text(json.dumps(manifest))
    assert Engine(analyze.open(folder).stores).rows("SELECT DISTINCT profiler FROM runs") == [("nsys",)]


def test_pass_without_gpu_work_is_replaced() -> None:
    stores = analyze.open(DP2).stores
    for store in stores:
        for run_id, run in store.snapshot.runs.items():
            if run_id.endswith(".torch"):
                run.tables = {t: r for t, r in run.tables.items() if t in ("runs", "cpu_ops", "kernel_names")}
    assert Engine(stores).rows("SELECT DISTINCT profiler FROM runs") == [("nsys",)]


def test_rank_filter_does_not_change_the_pass() -> None:
    traces = analyze.open(DP2, SAMPLES / "resnet18-ddp2")
    rows = traces.where("rank = 0").query("kernel-share").dicts()
    by_run = {
        r["run_id"]: r["ns"]
        for r in traces.where("rank = 0")
        .sql("SELECT run_id, sum(dur_ns)::BIGINT AS ns FROM kernels GROUP BY run_id")
        .dicts()
    }
    assert len(by_run) == 2 and sum(r["total_ns"] for r in rows) == sum(by_run.values())


def test_chosen_pass_is_a_note_and_an_option(tmp_path: Path) -> None:
    says = "note: recorded with torch and nsys; using torch only"
    result = run_cli("query", "nccl-share", DP2, "-f", "csv")
    assert [line.startswith(says) for line in complaints(result)] == [True]
    assert run_cli("sql", "SELECT count(*) FROM kernels", DP2, "-f", "csv").stderr.startswith(says)
    assert run_cli("query", "nccl-share", DP2, "-f", "csv", "--where", "profiler = 'nsys'").stderr == ""
    assert run_cli("query", "nccl-share", DP2, "-f", "csv", "--by", "profiler").stderr == ""
    assert run_cli("query", "nccl-share", DP2, "-f", "csv", "--profiler", "nsys").stderr == ""
    compared = run_cli("compare", DP2, DP2, "--level", "family", "-f", "csv")
    assert "A: recorded with" in compared.stderr and "B: recorded with" in compared.stderr
    advised = run_cli("advise", DP2)
    assert "using torch only" in advised.stderr and advised.stdout.count("-g2-fp32-") == 1
    trace = run_cli("trace", DP2, "-o", tmp_path / "t.json")
    assert trace.returncode == 0 and ".torch: " in trace.stdout and "using torch only" in trace.stderr
    assert ".nsys: " in run_cli("trace", DP2, "-o", tmp_path / "t.json", "--profiler", "nsys").stdout
    wrong = run_cli("query", "nccl-share", DP2, "--profiler", "vtune")
    assert (wrong.returncode, wrong.stderr) == (
        2, "analyze: --profiler vtune: must be one of torch, nsys, rocprof, nvprof, gpu, ncu, none or all\n"
    )  # fmt: skip


def test_query_files_name_a_pass_that_exists(tmp_path: Path) -> None:
    assert find("nvtx").prefer == "nsys"
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "own.sql").write_text("-- What?\n-- @pass vtune\n-- @column x number   It.\nSELECT 1")
    with pytest.raises(InputError, match="not a well-formed @pass line"):
        find("own", [tmp_path])
