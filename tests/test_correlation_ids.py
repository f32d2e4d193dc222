"""Correlation ids that are none, and ids that several calls have, as damaged and merged traces hold them.

A kernel is there once whatever its launch calls are, so what is asked by way of them holds as many kernels, for as much
time, as `kernel-share` counts, which joins nothing. Times in the comments are us, in the rows ns.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, op, write_trace

Event = dict[str, Any]


def zero() -> list[Event]:
    # Three launches and three kernels of 2, none of which has an id.
    return [
        event("user_annotation", "forward", 0, 100),
        *(e for i in range(3) for e in (launch(10 + 5 * i, 0, 2), kernel("gemm", 12 + 5 * i, 2, correlation=0))),
    ]


def below_zero() -> list[Event]:
    return [{**e, "args": {**e["args"], "correlation": -1}} if "correlation" in e["args"] else e for e in zero()]


def written_twice() -> list[Event]:
    # One kernel of 10, and the event of its launch call twice.
    return [
        event("user_annotation", "forward", 0, 100),
        launch(10, 5, 2), launch(10, 5, 2), kernel("gemm", 20, 10, correlation=5),
    ]  # fmt: skip


def two_calls() -> list[Event]:
    # Two calls have the id of the kernel of 10.
    return [
        event("user_annotation", "forward", 0, 100),
        launch(10, 5, 2), launch(14, 5, 2), kernel("gemm", 20, 10, correlation=5),
    ]  # fmt: skip


def two_threads() -> list[Event]:
    return [*two_calls()[:2], launch(10, 5, 2, tid=2), *two_calls()[3:]]


def two_driver_calls() -> list[Event]:
    return [{**e, "cat": "cuda_driver"} if e["cat"] == "cuda_runtime" else e for e in two_calls()]


def around_driver_calls() -> list[Event]:
    # The runtime's call is the launch, whatever the driver does in it.
    inside = [{**launch(ts, 5, 0.5, "cuLaunchKernel"), "cat": "cuda_driver"} for ts in (10.5, 11)]
    return [event("user_annotation", "forward", 0, 100), launch(10, 5, 2), *inside, kernel("g", 20, 10, correlation=5)]


def sample(name: str) -> list[Event]:
    """A recording of which every fifth event is there twice."""
    with gzip.open(SAMPLES / name / "torch/rank-0.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    return [e for i, e in enumerate(events) for _ in range(1 + (i % 5 == 0))]


LINKED = {"written_twice": 1, "around_driver_calls": 1}
"""Kernels whose launch call is known; 0 of the others."""


@pytest.mark.parametrize(
    "made", [zero, below_zero, written_twice, two_calls, two_threads, two_driver_calls, around_driver_calls]
)
def test_a_kernel_counts_once(tmp_path: Path, made: Any) -> None:
    path = write_trace(tmp_path / "t.json", made())
    kernels, ns = holds_each_kernel_once(path)
    assert (kernels, ns) == ((3, 6_000) if "zero" in made.__name__ else (1, 10_000))
    linked = LINKED.get(made.__name__, 0)
    assert [r["calls"] for r in ask(path, "launch") if r["device"] == 0] == [linked]
    assert sum(r["launches"] for r in ask(path, "queue-depth")) == linked
    [forward] = [r for r in ask(path, "nvtx") if r["name"] == "forward"]
    assert forward["gpu_ops"] == linked
    [unlinked] = [r for r in ask(path, "health") if r["fact"] == "GPU work without a launch call"]
    assert unlinked["value"].startswith(f"{kernels - linked} of {kernels} ")
    assert ("launch" in [r["kind"] for r in ask(path, "critical-path")]) == bool(linked)


@pytest.mark.parametrize("name", ["resnet18-1gpu", "train-stacks", "cuda-graph"])
def test_duplicate_events_of_a_sample_count_once(tmp_path: Path, name: str) -> None:
    holds_each_kernel_once(write_trace(tmp_path / "t.json", sample(name)))


def holds_each_kernel_once(path: Path) -> tuple[int, int]:
    """The kernels of a trace and their time, as all that goes by way of launch calls has them, too."""
    shares = ask(path, "kernel-share")
    kernels, ns = sum(r["calls"] for r in shares), sum(r["total_ns"] for r in shares)
    [work] = sql(path, "SELECT count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM gpu_work")
    by_phase = ask(path, "kernel-by-phase")
    assert (sum(r["calls"] for r in by_phase), sum(r["total_ns"] for r in by_phase)) == (kernels, ns)
    phases = ask(path, "phases")
    assert (sum(r["gpu_ops"] for r in phases), sum(r["gpu_ns"] for r in phases)) == (work["n"], work["ns"])
    tree = ask(path, "op-tree")
    assert (sum(r["gpu_ops"] for r in tree), sum(r["self_gpu_ns"] for r in tree)) == (work["n"], work["ns"])
    modules = ask(path, "module-tree", params={"kernels": "no"})
    assert sum(r["self_device_ns"] for r in modules) == work["ns"]
    assert sum(r["kernels"] for r in ask(path, "launch")) == kernels
    return kernels, ns


@pytest.mark.parametrize(
    ("calls", "ends"),
    [
        ([launch(90, 7)], 905),
        # One call, written twice: its work counts, and so does that of one in the last step alone.
        ([launch(90, 7), launch(90, 7)], 905),
        ([launch(10, 7), launch(10, 7)], 100),
        # An id of two processes, or of two calls, links nothing: nobody knows that the last step launched the kernel.
        ([launch(90, 7), launch(95, 7) | {"pid": 2}], 100),
        ([launch(90, 7), launch(95, 7)], 100),
        ([launch(90, 0)], 100),
    ],
)
def test_last_step_ends_with_its_own_work(tmp_path: Path, calls: list[Event], ends: float) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{n}", 50 * n, 50) for n in range(2)]
    late = kernel("late", 900, 5, correlation=calls[0]["args"]["correlation"])
    rows = ask(write_trace(tmp_path / "t.json", [*steps, *calls, late]), "steps")
    assert [r["step_ns"] for r in rows] == [50_000, ends * 1000 - 50_000]


def test_copy_whose_id_several_calls_share(tmp_path: Path) -> None:
    # cudaMemcpy returns at 50, its copy ends at 40 and another one of the same id at 48: which it waited for is not
    # known, so the path does not go from the call to either.
    events = [
        op("aten::copy_", 0, 60, 1), launch(10, 7, 40, "cudaMemcpy"), launch(5, 7, 2, "cudaMemcpy"),
        *(event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", ts, dur, pid=0, tid=7, device=0, stream=7,
                correlation=7, bytes=4096) for ts, dur in ((20, 20), (42, 6))),
        op("aten::add", 70, 10, 2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert "copy" not in [r["kind"] for r in ask(path, "critical-path")]
