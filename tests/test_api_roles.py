"""Roles of runtime and driver calls by name; queries treat CUDA, HIP and XPU alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support import ask
from traces import event, kernel, launch, write_trace

import analyze
from schemas.api_roles import matching_rule, rules


@pytest.mark.parametrize("rule", rules(), ids=lambda r: f"{r.role}-{r.waits_for}")
def test_every_pattern_has_an_example_that_matches_it(rule: Any) -> None:
    for name in rule.examples:
        assert matching_rule(name) is rule, name
    for pattern in rule.matches:
        assert any(re.match(pattern, name) for name in rule.examples), pattern


def test_calls_without_a_role() -> None:
    for name in (
        "cudaEventQuery", "cudaEventRecord", "cudaStreamIsCapturing", "cudaLaunchHostFunc", "cudaMalloc",
        "cudaMemsetAsync", "cuKernelGetName", "hipEventQuery", "hipGetDevice", "hipLaunchHostFunc",
        "__hipPushCallConfiguration", "urEventGetInfo", "zeEventQueryStatus", "zeMemAllocDevice",
    ):  # fmt: skip
        assert matching_rule(name) is None, name


# The names of one program's calls: launch, copy that may block, wait for the device or queue.
NAMES = {
    "cuda": ("cudaLaunchKernel", "cudaMemcpy", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaStreamWaitEvent"),
    "hip": ("hipLaunchKernel", "hipMemcpyWithStream", "hipMemcpyAsync", "hipStreamSynchronize", "hipStreamWaitEvent"),
}


def program(path: Path, api: str) -> Path:
    # A kernel [20, 1020) that is launched at [5, 15), waited for [30, 1030); after it a blocking copy [1100, 1140) to
    # pageable memory, on the GPU [1110, 1130), and an asynchronous one [1150, 1190), on the GPU [1160, 1180). A kernel
    # on stream 8 [1200, 1250) that was made to wait, and the last one, [1300, 1310).
    run, copy, copy_async, wait, stream_wait = NAMES[api]

    def call(name: str, ts: float, dur: float, correlation: int) -> dict[str, Any]:
        return event("cuda_runtime", name, ts, dur, correlation=correlation)

    def copied(ts: float, correlation: int) -> dict[str, Any]:
        name = "Memcpy DtoH (Device -> Pageable)"
        return event("gpu_memcpy", name, ts, 20, 0, 7, device=0, stream=7, correlation=correlation, bytes=10**6)

    events = [
        event("cpu_op", "aten::mm", 0, 20, **{"External id": 1}), call(run, 5, 10, 2),
        kernel("k", 20, 1000, correlation=2), call(wait, 30, 1000, 3),
        call(copy, 1100, 40, 4), copied(1110, 4), call(copy_async, 1150, 40, 5), copied(1160, 5),
        call(stream_wait, 1191, 1, 6), call(run, 1192, 3, 7), kernel("l", 1200, 50, stream=8, correlation=7),
        call(run, 1253, 3, 8), kernel("m", 1300, 10, correlation=8),
    ]  # fmt: skip
    return write_trace(path, events)


def test_cuda_by_hand(tmp_path: Path) -> None:
    path = program(tmp_path / "t.json", "cuda")
    waits = [(r["name"], r["waits_for"], r["total_ns"], r["flagged"]) for r in ask(path, "api-sync")]
    assert waits == [("cudaStreamSynchronize", "stream", 1_000_000, True), ("cudaMemcpy", "copy", 40_000, False)]
    copies = [(r["rule"], r["name"], r["call_ns"]) for r in ask(path, "memcpy-sync")]
    assert copies == [("pageable", "cudaMemcpyAsync", 40_000), ("synchronous", "cudaMemcpy", 40_000)]
    # The path waits for both copies and for k: it is not all CPU.
    kinds = {r["kind"]: r["total_ns"] for r in ask(path, "critical-path")}
    # 20 us of copies each, 10 us from the end of k to the return, 10 from that of each copy.
    assert kinds["copy"] == 40_000 and kinds["sync"] == 30_000
    assert sum(kinds.values()) == 1_310_000


@pytest.mark.parametrize("query", ["api-sync", "memcpy-sync", "critical-path", "launch"])
def test_hip_calls_have_the_roles_of_cuda_calls(tmp_path: Path, query: str) -> None:
    def rows(api: str) -> list[Any]:
        answer = ask(program(tmp_path / api / "t.json", api), query)
        return sorted([v for k, v in r.items() if k not in ("name", "run_id")] for r in answer) if answer else []

    assert rows("hip") == rows("cuda") != []


def test_advice_on_blocking_calls(tmp_path: Path) -> None:
    found = {}
    for api in NAMES:
        advice = analyze.open(program(tmp_path / api / "t.json", api)).advise(min_pct=0).dicts()
        # The evidence names the calls.
        found[api] = [
            (a["saving_ns"], a["evidence"].replace("hip", "cuda")) for a in advice if a["finding"] == "blocking-calls"
        ]
    assert found["hip"] == found["cuda"] != []


def test_xpu_calls_have_roles(tmp_path: Path) -> None:
    # Kineto's category for SYCL's runtime, with Level Zero's driver calls inside: each call waits by its own name.
    events = [
        event("cpu_op", "aten::mm", 0, 20, **{"External id": 1}),
        event("xpu_runtime", "urEnqueueKernelLaunch", 5, 10, correlation=2, **{"External id": 1}),
        kernel("gemm", 20, 1000, correlation=2, **{"External id": 1}),
        event("xpu_runtime", "urQueueFinish", 30, 1000, correlation=3),
        event("xpu_driver", "zeCommandQueueSynchronize", 31, 998, correlation=4),
        event("cpu_op", "aten::item", 1040, 10, **{"External id": 4}),
    ]
    path = write_trace(tmp_path / "t.json", events)
    waits = {r["name"]: (r["waits_for"], r["total_ns"], r["flagged"]) for r in ask(path, "api-sync")}
    assert waits == {
        "urQueueFinish": ("stream", 1_000_000, True),
        "zeCommandQueueSynchronize": ("stream", 998_000, False),
    }
    # 0 to 15 on the CPU, 15 to 20 until the start, 20 to 1020, 1020 to 1030 until the call returns (1020 to 1029 the
    # driver's), then 1030 to 1050.
    kinds = {r["kind"]: r["total_ns"] for r in ask(path, "critical-path")}
    assert kinds["kernel"] == 1_000_000 and kinds["launch"] == 5_000 and sum(kinds.values()) == 1_050_000
    assert [(r["name"], r["calls"]) for r in ask(path, "launch")] == [("urEnqueueKernelLaunch", 1)]


def test_launch_without_its_kernel_is_a_launch(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [launch(0, 1, name="hipExtModuleLaunchKernel"), kernel("k", 9, 1)])
    assert {r["name"]: (r["calls"], r["kernels"]) for r in ask(path, "launch")} == {
        "hipExtModuleLaunchKernel": (1, 0),
        "(no launch call)": (0, 1),
    }
