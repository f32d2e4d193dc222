"""Counters: metrics of GPUs of Nsight Systems, and the samples that collect takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import SAMPLES, ask, sql
from tests.test_nsys_jobs import report
from tests.test_nsys_layouts import Row, thread
from tests.traces import kernel, write_trace

GPU_0, GPU_1, GPU_2 = (0x1234_5600 + gpu for gpu in range(3))
"""A typeId has the number of the GPU in its lowest byte."""
NAMES = [(gpu, 3, "Tensor Active [Throughput %]") for gpu in (GPU_0, GPU_1, GPU_2)] + [(GPU_0, 4, "SM Active")]
ACTIVE = "Tensor Active [Throughput %]"


def _metrics(rows: list[Row]) -> dict[str, tuple[str, list[Row]]]:
    return {
        "GPU_METRICS": ("timestamp typeId metricId value", rows),
        "TARGET_INFO_GPU_METRICS": ("typeId metricId metricName", list(NAMES)),
    }


def test_metrics_of_a_gpu(tmp_path: Path) -> None:
    rows: list[Row] = [(10, GPU_0, 3, 40), (20, GPU_0, 3, 60), (20, GPU_0, 4, 7)]
    path = report(tmp_path / "one.sqlite", [(1, 0, 100, 200)], more=_metrics(rows))
    found = {r["name"]: r for r in ask(path, "counters")}
    values = ("device", "samples", "avg_value", "min_value", "max_value", "total_value")
    assert [found[ACTIVE][v] for v in values] == [0, 2, 50, 40, 60, 100]
    assert found["SM Active"]["avg_value"] == 7
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": None}]


def test_a_report_of_two_ranks(tmp_path: Path) -> None:
    """Each process calls its GPU 0; the first one has GPU 1. Nobody uses GPU 2."""
    rows: list[Row] = [(10, GPU_1, 3, 1), (10, GPU_0, 3, 2), (10, GPU_2, 3, 3)]
    devices = {"TARGET_INFO_CUDA_DEVICE": ("pid cudaId gpuId", [(1, 0, 1), (2, 0, 0)])}
    path = report(tmp_path / "two.sqlite", [(1, 0, 100, 200), (2, 0, 100, 200)], more=_metrics(rows) | devices)
    assert {(r["rank"], r["device"]): r["avg_value"] for r in ask(path, "counters")} == {(0, 0): 1, (1, 0): 2}
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "1 counter of a GPU that no rank used left out" in run["warnings"]


def test_an_older_report_does_not_say_which_gpu_a_device_is(tmp_path: Path) -> None:
    """The only GPU with metrics is the one that the program used, whatever its number."""
    path = report(tmp_path / "old.sqlite", [(1, 0, 100, 200)], more=_metrics([(10, GPU_2, 3, 5)]))
    assert [(r["device"], r["avg_value"]) for r in ask(path, "counters")] == [(0, 5)]


def test_damaged_metrics_are_counted(tmp_path: Path) -> None:
    rows: list[Row] = [
        (10, GPU_0, 3, 5),
        (None, GPU_0, 3, 5),
        (10, GPU_0, 9, 5),
        (10, GPU_0, 3, None),
        (10, None, 3, 5),
    ]
    path = report(tmp_path / "bad.sqlite", [(1, 0, 100, 200)], more=_metrics(rows))
    assert [r["samples"] for r in ask(path, "counters")] == [1]
    [run] = sql(path, "SELECT warnings FROM runs")
    for said in ("1 counter without a start", "1 counter without a number", "2 counters without a name"):
        assert said in run["warnings"]


def test_mpi_calls_are_calls_of_a_thread(tmp_path: Path) -> None:
    strings: list[Row] = [(31, "MPI_Allreduce"), (32, "MPI_Send")]
    calls = "start end globalTid textId"
    more: dict[str, tuple[str, list[Row]]] = {
        "StringIds": ("id value", strings),
        "MPI_COLLECTIVES_EVENTS": (calls, [(0, 30_000, thread(1, 1), 31)]),
        "MPI_P2P_EVENTS": (calls, [(30_000, 31_000, thread(1, 1), 32)]),
    }
    path = report(tmp_path / "mpi.sqlite", [(1, 0, 100, 200)], more=more)
    assert {r["os_call"]: r["total_ns"] for r in ask(path, "thread-time")} == {
        "MPI_Allreduce": 30_000,
        "MPI_Send": 1_000,
    }


def test_counters_of_a_chrome_trace_are_said_not_to_be_read(tmp_path: Path) -> None:
    counters = [{"ph": "C", "name": "power", "pid": 0, "ts": ts, "args": {"W": 100}} for ts in (1, 2)]
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 10), *counters])
    assert sql(path, "SELECT warnings FROM runs") == [
        {"warnings": "t.json: categories that are not read: 2 counters; 1 events kept"}
    ]


@pytest.mark.parametrize("per", ["recording", "step"])
def test_samples_of_collect_are_counters(per: str) -> None:
    rows = ask(SAMPLES / "power-limit", "counters", params={"per": per})
    found = [r for r in rows if r["name"] == "power_w"]
    # The samples themselves: the CSV of the recording has 276 rows.
    counted = sql(SAMPLES / "power-limit", "SELECT count(power_w) AS n, max(power_w) AS most FROM gpu_samples")
    assert counted[0]["n"] == 276
    if per == "recording":
        assert [(r["samples"], r["max_value"]) for r in found] == [(276, counted[0]["most"])]
    else:
        assert 0 < sum(r["samples"] for r in found) < 276 and all(r["step"] is not None for r in found)
