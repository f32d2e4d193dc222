"""Findings: each by hand, with the saving its file promises; real recordings; and that all are documented."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES, event, kernel, launch, run_cli, write_trace

import analyze
from analyze.advise import findings, write_text
from analyze.cache import open_stores
from analyze.query_files import catalog


def advice(path: Path, min_pct: float = 0.0, **options: Any) -> dict[str, dict[str, Any]]:
    return {r["finding"]: r for r in analyze.open(path).advise(min_pct=min_pct, **options).to_pylist()}


def trace(path: Path, *events: dict[str, Any], **header: Any) -> Path:
    return write_trace(path / "t.json", events, **header)


HOPPER = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}


def test_waiting_for_data(tmp_path: Path) -> None:
    # Idle from 10 to 30; the loop waits for data from 5 to 25: 15 us of it on an idle GPU. The span is 40 us.
    path = trace(tmp_path, kernel("a", 0, 10), kernel("b", 30, 10), event("user_annotation", "data", 5, 20))
    row = advice(path)["data-wait"]
    assert (row["saving_ns"], row["saving_pct"]) == (15_000, 37.5)
    assert row["evidence"] == "1 waits for data take 0.020 ms on the CPU; the GPU is idle in 0.015 ms of it"


def test_waiting_for_the_host(tmp_path: Path) -> None:
    # Gap 10 to 30, launched at 28: nothing was queued. Gap 40 to 45: queued since 29.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1), launch(29, 2),
        kernel("c", 45, 5, correlation=2),
    )  # fmt: skip
    row = advice(path)["host-wait"]
    assert row["saving_ns"] == 20_000 and row["saving_pct"] == 40.0
    assert "1 gaps" in row["evidence"] and row["query"] == "idle-causes"


def test_savings_are_per_gpu(tmp_path: Path) -> None:
    # GPU 0 idles for 20 us of 40, GPU 1 never: 10 us a GPU of a mean span of 40.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1), kernel("c", 0, 40, device=1),
    )  # fmt: skip
    row = advice(path)["host-wait"]
    assert (row["saving_ns"], row["saving_pct"]) == (10_000, 25.0)


def test_communication(tmp_path: Path) -> None:
    # all_reduce from 10 to 30, compute beside it from 20: 10 us are exposed.
    path = trace(
        tmp_path,
        kernel("a", 0, 10),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, stream=8),
        kernel("b", 20, 20),
    )
    assert advice(path)["exposed-communication"]["saving_ns"] == 10_000
    assert "dataparallel" not in advice(path)


def test_dataparallel(tmp_path: Path) -> None:
    # One process, two GPUs, a broadcast of 6 us on each: 12 us, 6 a GPU, of 20 us of kernels.
    name = "ncclDevKernel_Broadcast_RING_LL"
    path = trace(tmp_path, *(k for d in (0, 1) for k in (kernel(name, 0, 6, d), kernel("a", 6, 4, d))))
    row = advice(path)["dataparallel"]
    assert row["saving_ns"] == 6_000 and "2 broadcasts take 0.012 ms, 60.0 % of kernel time" in row["evidence"]


def test_fp32_matrix_work(tmp_path: Path) -> None:
    # 20 us in fp32, of which half; the tf32 kernel is what it should be.
    events = [kernel("ampere_sgemm_128x64_tn", 0, 20), kernel("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n", 20, 5)]
    assert advice(trace(tmp_path / "a", *events, **HOPPER))["tf32"]["saving_ns"] == 10_000
    old = {"deviceProperties": [HOPPER["deviceProperties"][0] | {"computeMajor": 7}]}
    assert "tf32" not in advice(trace(tmp_path / "b", *events, **old))


def test_layout_kernels(tmp_path: Path) -> None:
    path = trace(tmp_path, kernel("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", 0, 3), kernel("a", 3, 7))
    assert advice(path)["layout"]["saving_ns"] == 3_000


def test_an_optimizer_of_many_kernels(tmp_path: Path) -> None:
    # 12 kernels of 1 us every 3 us: 34 us from first to last, 22 of them between kernels. With 10 kernels, no finding.
    def step(n: int) -> list[dict[str, Any]]:
        launches = [launch(0.1 + i * 0.5, i + 1, 0.1) for i in range(n)]
        kernels = [kernel("add", 20 + 3 * i, 1, correlation=i + 1) for i in range(n)]
        return [event("user_annotation", "optimizer", 0, 10), *launches, *kernels]

    assert advice(trace(tmp_path / "a", *step(12)))["optimizer"]["saving_ns"] == 22_000
    assert "optimizer" not in advice(trace(tmp_path / "b", *step(10)))


def test_short_kernels(tmp_path: Path) -> None:
    # 1 us after a call of 5: 4 too short. 3 us after a call of 2: not short. The GPU idles for 6 us, more than 4.
    path = trace(
        tmp_path,
        launch(0, 1, 5), kernel("a", 10, 1, correlation=1), launch(6, 2, 2), kernel("b", 17, 3, correlation=2),
    )  # fmt: skip
    row = advice(path)["short-kernels"]
    assert row["saving_ns"] == 4_000 and "1 of 2 launches (50 %)" in row["evidence"]


def test_copies(tmp_path: Path) -> None:
    # Pageable, 10 us, the last 4 beside a kernel: 6 are exposed. A small pinned one of 2 us at 30.
    def copy(ts: float, dur: float, memory: str, size: int) -> dict[str, Any]:
        name = f"Memcpy HtoD ({memory} -> Device)"
        return event("gpu_memcpy", name, ts, dur, 0, 7, device=0, stream=7, bytes=size)

    events = [copy(0, 10, "Pageable", 1_000_000), kernel("a", 6, 14, stream=8), copy(30, 2, "Pinned", 4)]
    found = advice(trace(tmp_path, *events))
    assert found["pageable-copies"]["saving_ns"] == 6_000
    assert "1 pageable copies of 1.0 MB take 0.010 ms at 100.0 GB/s" in found["pageable-copies"]["evidence"]
    assert found["exposed-copies"]["saving_ns"] == 8_000 and found["small-copies"]["saving_ns"] == 2_000


def test_blocking_calls(tmp_path: Path) -> None:
    # The call from 5 to 11 returns when the kernel ends at 10; the GPU then idles until 20. The gap from 25 to 28 is
    # nobody's.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), event("cuda_runtime", "cudaStreamSynchronize", 5, 6),
        kernel("b", 20, 5), kernel("c", 28, 2),
    )  # fmt: skip
    row = advice(path)["blocking-calls"]
    assert row["saving_ns"] == 10_000
    assert row["evidence"] == "1 blocking calls take 0.006 ms on the CPU; 1 GPU gaps of 0.010 ms in all begin in them"


def test_stragglers(tmp_path: Path) -> None:
    # Rank 0 starts its all_reduce at 0, rank 1 at 8: waits of 8 and 0 us, 4 on average.
    for rank, start in ((0, 0), (1, 8)):
        k = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, 20 - start, device=rank)
        write_trace(tmp_path / f"rank-{rank}.json", [k], distributedInfo={"rank": rank, "world_size": 2})
    row = advice(tmp_path)["stragglers"]
    assert row["saving_ns"] == 4_000 and "rank 1 waits least" in row["evidence"]


def test_ranked_and_cut_off(tmp_path: Path) -> None:
    table = analyze.open(SAMPLES).advise(where="profiler = 'torch'").to_pylist()
    assert len({r["run_id"] for r in table}) == 8
    for run_id in {r["run_id"] for r in table}:
        savings = [r["saving_ns"] for r in table if r["run_id"] == run_id]
        assert savings == sorted(savings, reverse=True)
    assert all(r["saving_pct"] >= 1 and re.search(r"\d", r["evidence"]) for r in table)
    assert all(r["query"] in catalog() for r in table)


def test_savings_agree_with_the_queries() -> None:
    """The evidence is what the named query says: over the GPUs of the run."""
    path, torch = SAMPLES / "alexnet-dp2", "profiler = 'torch'"
    found, traces = advice(path, where=torch), analyze.open(path)
    breakdown = traces.query("breakdown", where=torch).to_pylist()
    assert found["exposed-communication"]["saving_ns"] == round(sum(r["exposed_comm_ns"] for r in breakdown) / 2)
    assert found["exposed-copies"]["saving_ns"] == round(sum(r["exposed_memcpy_ns"] for r in breakdown) / 2)
    causes = [r for r in traces.query("idle-causes", where=torch).to_pylist() if r["cause"] == "host_wait"]
    assert found["host-wait"]["saving_ns"] == round(sum(r["idle_ns"] for r in causes) / 2)
    [broadcast] = [r for r in traces.query("nccl-share", where=torch).to_pylist() if r["collective"] == "broadcast"]
    assert found["dataparallel"]["saving_ns"] == round(broadcast["total_ns"] / 2)


def test_no_saving_is_more_than_the_time_there_is() -> None:
    for row in analyze.open(SAMPLES).advise(min_pct=0, where="profiler IN ('torch', 'nsys')").to_pylist():
        assert 0 < row["saving_pct"] <= 100, row


def test_nothing_to_say(tmp_path: Path) -> None:
    path = trace(tmp_path, kernel("a", 0, 10))
    assert advice(path) == {}
    result = run_cli("advise", path)
    assert (result.returncode, result.stdout) == (0, "no findings\n")
    none = run_cli("advise", write_trace(tmp_path / "none" / "t.json", []))
    assert none.returncode == 2 and "no run has GPU work" in none.stderr


def test_the_command(tmp_path: Path) -> None:
    path = SAMPLES / "resnet18-1gpu"
    text = run_cli("advise", path)
    assert text.returncode == 0 and text.stderr == ""
    assert "\n  1. Matrix work in fp32" in text.stdout and "(analyze query kernel-share)" in text.stdout
    rows = json.loads(run_cli("advise", path, "-f", "json").stdout)
    assert rows == analyze.open(path).advise().to_pylist()
    target = tmp_path / "advice.txt"
    run_cli("advise", path, "-o", target)
    assert target.read_text() == text.stdout


def test_runs_are_set_apart() -> None:
    from analyze.advise import advise

    file = io.StringIO()
    write_text(advise(open_stores([SAMPLES])[0], "profiler = 'torch' AND gpus = 2"), file)
    assert file.getvalue().count("\n  1. ") == 2


@pytest.mark.parametrize("finding", findings(), ids=lambda f: f.name)
def test_every_finding_is_documented(finding: Any) -> None:
    page = (ROOT / "docs" / "advise.md").read_text()
    assert f"`{finding.name}`" in page and finding.see in catalog()
    assert [c.name for c in finding.query.columns] == ["run_id", "saving_ns", "evidence"]
