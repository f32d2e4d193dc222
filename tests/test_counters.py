"""Counters: metrics of GPUs of Nsight Systems, and the samples that collect takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run_cli
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


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("2,GPU-3f0", {0: 2, 1: 0}), ("2, 0", {0: 2, 1: 0}), ("2,7", {0: 0, 1: 1}), ("GPU-3", {0: 0, 1: 1})],
)
def test_gpus_that_a_program_may_use(tmp_path: Path, visible: str, expected: dict[int, int]) -> None:
    """All GPUs are sampled. What names no GPU, or more than one, is not understood: devices are GPUs by number."""
    gpus: list[Row] = [(0, 0, "3f0a", "A", 9, 0), (1, 1, "3c1b", "B", 9, 0), (2, 2, "77aa", "C", 10, 0)]
    rows: list[Row] = [(10, GPU_0, 3, 0), (10, GPU_1, 3, 1), (10, GPU_2, 3, 2)]
    path = report(
        tmp_path / "all.sqlite", [(1, 0, 100, 200), (1, 1, 100, 200)], environment={"CUDA_VISIBLE_DEVICES": visible},
        more=_metrics(rows) | {"TARGET_INFO_GPU": ("id cuDevice uuid name computeMajor computeMinor", gpus)},
    )  # fmt: skip
    assert {r["device"]: r["avg_value"] for r in ask(path, "counters")} == expected
    [run] = sql(path, "SELECT gpu_name, warnings FROM runs")
    assert run["gpu_name"] == "ABC"[expected[0]]
    assert "1 counter of a GPU that no rank used left out" in run["warnings"]


def test_a_clock_in_mhz_stays(tmp_path: Path) -> None:
    names: list[Row] = [(GPU_0, 3, "GPC Clock Frequency [MHz]")]
    metrics = _metrics([(10, GPU_0, 3, 1980), (20, GPU_0, 3, 345_000_000)])
    metrics["TARGET_INFO_GPU_METRICS"] = ("typeId metricId metricName", names)
    path = report(tmp_path / "mhz.sqlite", [(1, 0, 100, 200)], more=metrics)
    assert [(r["min_value"], r["max_value"]) for r in ask(path, "counters")] == [(345, 1980)]


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


def test_metrics_of_the_network(tmp_path: Path) -> None:
    """Metrics are of the node: of its first rank.

    The columns are those of the recipe nic_metric_map and of the report network_congestion of nsys 2023.4, with portId
    of NVIDIA's documentation of the exporter. Of switches the report knows the GUID only, which is their globalId.
    """
    guid = -5_764_607_523_034_234_880  # above 2^63: SQLite has no unsigned integers
    switch = 0x900A_8403_00B4_D8C0 - (1 << 64)
    more: dict[str, tuple[str, list[Row]]] = {
        "NET_NIC_METRIC": (
            "start end globalId metricsListId metricsIdx value",
            [(10, 20, guid, 1, 0, 500), (20, 30, guid, 1, 0, 700), (10, 20, guid, 1, 1, 3), (10, 20, 9, 1, 0, 1),
             (None, 20, guid, 1, 0, 5), (10, 20, guid, 1, 7, 5), (10, 20, guid, 1, 0, None)],
        ),
        "NET_IB_SWITCH_METRIC": (
            "start end globalId portId metricsListId metricsIdx value",
            [(10, 20, switch, 3, 1, 1, 40), (20, 30, switch, 3, 1, 1, 20), (10, 20, switch, 4, 1, 1, 9),
             (10, 20, None, 3, 1, 1, 5)],
        ),
        "TARGET_INFO_NETWORK_METRICS": (
            "metricsListId metricsIdx name unit", [(1, 0, "IB: Bytes sent", "B/ms"), (1, 1, "IB: Send waits", None)]
        ),
        "NIC_ID_MAP": ("nicId globalId", [(4, guid)]),
        "TARGET_INFO_NIC_INFO": ("nicId name", [(4, "mlx5_0")]),
    }  # fmt: skip
    path = report(tmp_path / "nic.sqlite", [(1, 0, 100, 200), (2, 1, 100, 200)], more=more)
    found = {(r["rank"], r["device"], r["name"]): (r["samples"], r["avg_value"]) for r in ask(path, "counters")}
    assert found == {
        (0, None, "mlx5_0 IB: Bytes sent [B/ms]"): (2, 600), (0, None, "mlx5_0 IB: Send waits"): (1, 3),
        (0, None, "0x9 IB: Bytes sent [B/ms]"): (1, 1),
        (0, None, "0x900a840300b4d8c0 port 3 IB: Send waits"): (2, 30),
        (0, None, "0x900a840300b4d8c0 port 4 IB: Send waits"): (1, 9),
    }  # fmt: skip
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


# As libkineto/src/output_json.cpp writes them (handleCounterEvent): samples of hardware counters one by one, without a
# name of the value, those of Intel's GPUs together. Other programs write any.
COUNTERS = [
    {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles_active.avg", "pid": "GPU 1 Counters", "tid": 0,
     "ts": 3.5, "args": {"": 12.5}},
    {"ph": "C", "cat": "xpu_scope_profiler", "name": "xpu", "pid": 2, "tid": 0,
     "ts": 4, "args": {"GpuTime": 7, "bytes": 1.5}},
    {"ph": "C", "name": "power", "pid": 4711, "ts": 5, "args": {"W": 100, "state": "high", "none": None}},
]  # fmt: skip


def test_counters_of_a_chrome_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 10), *COUNTERS])
    rows = sql(path, "SELECT device, name, start_ns, value FROM counters ORDER BY start_ns, name")
    assert [tuple(r.values()) for r in rows] == [
        (1, "sm__cycles_active.avg", 3500, 12.5), (2, "xpu GpuTime", 4000, 7), (2, "xpu bytes", 4000, 1.5),
        (None, "power W", 5000, 100),
    ]  # fmt: skip
    assert sql(path, "SELECT warnings FROM runs") == [
        {"warnings": "t.json: values that their columns cannot hold are NULL: 1 value; 4 events kept"}
    ]


@pytest.mark.parametrize("damage", ["truncated", "merged", "no time"])
def test_counters_of_an_odd_trace(tmp_path: Path, damage: str) -> None:
    """Each counter is read or said to be lost."""
    events = [kernel("k", 0, 10), *COUNTERS]
    text = json.dumps({"traceEvents": events})
    if damage == "truncated":
        text = text[: text.rindex("power")]
    elif damage == "no time":
        text = text.replace('"ts": 5', '"ts": "five"')
    else:
        # Tools that merge the traces of several ranks add the rank to each event.
        text = json.dumps({"traceEvents": [e | {"args": e["args"] | {"rank": 4 - (e["ph"] == "C")}} for e in events]})
    path = tmp_path / "t.json"
    path.write_text(text)
    names = {r["name"] for r in sql(path, "SELECT name FROM counters")}
    [run] = sql(path, "SELECT warnings FROM runs")
    if damage == "merged":
        assert names == {"sm__cycles_active.avg", "xpu GpuTime", "xpu bytes", "power W"}
        assert sql(path, "SELECT DISTINCT rank FROM counters") == [{"rank": 3}]
    else:
        assert names == {"sm__cycles_active.avg", "xpu GpuTime", "xpu bytes"}
        assert "1 event could not be read" in run["warnings"] or "truncated" in run["warnings"]


def test_metrics_of_kernels_by_cuptis_range_profiler(tmp_path: Path) -> None:
    """As libkineto/src/CuptiRangeProfiler.cpp wrote them until June 2026. The times of its events mean nothing."""
    ranges = [
        {"ph": "X", "cat": "cuda_profiler_range", "name": name, "pid": 0, "tid": 0, "ts": ts, "dur": 1, "args":
         {"External id": 5, "correlation": n, "smsp__inst_executed.sum": value, "sm__throughput.avg": 2.5}}
        for name, ts, n, value in [("gemm", 900, 1, 100), ("add", 901, 2, 10), ("gemm", 902, 3, 300)]
    ]  # fmt: skip
    kernels = [kernel(name, 10 * n, 5, correlation=n) for n, name in ((1, "gemm"), (2, "add"), (3, "gemm"))]
    path = write_trace(tmp_path / "t.json", [*kernels, *ranges])
    found = {(r["kernel"], r["name"]): r for r in ask(path, "counters", params={"per": "kernel"})}
    total, mean = found["gemm", "smsp__inst_executed.sum"], found["gemm", "sm__throughput.avg"]
    assert [total[c] for c in ("samples", "avg_value", "total_value")] == [2, 200, 400]
    assert (mean["avg_value"], mean["total_value"]) == (2.5, None)
    assert found["add", "smsp__inst_executed.sum"]["total_value"] == 10
    [all_of_them] = ask(path, "counters", filter="name = 'smsp__inst_executed.sum'")
    assert (all_of_them["samples"], all_of_them["total_value"], all_of_them["kernel"]) == (3, 410, None)
    starts = sql(path, "SELECT DISTINCT start_ns FROM counter_values ORDER BY 1")
    assert [r["start_ns"] for r in starts] == [10_000, 20_000, 30_000]
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": None}]


def test_metrics_of_an_intel_kernel_are_no_kernel(tmp_path: Path) -> None:
    """XpuptiScopeProfilerHandlers.cpp writes them as an event around the kernel, of its category, and as counters."""
    around = kernel("metrics: k", 9.999, 10.002)
    path = write_trace(tmp_path / "t.json", [kernel("k", 10, 10), around])
    assert sql(path, "SELECT name FROM kernels") == [{"name": "k"}]


def test_counters_of_an_exported_trace_are_not_read_again(tmp_path: Path) -> None:
    """Those of the recording are drawn on the GPU's process, or on that of the CPU."""
    source = write_trace(tmp_path / "t.json", [kernel("k", 0, 10), *COUNTERS])
    assert run_cli("trace", str(source), "-o", str(tmp_path / "out.json")).returncode == 0
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    processes = {pid: name.partition(" track")[0] for pid, name in names.items()}
    drawn = [(processes[e["pid"]], e["ts"], e["args"]) for e in events if (e["ph"], e["name"]) == ("C", "counter")]
    assert sorted(drawn, key=lambda d: (d[1], str(d[2]))) == [
        ("rank 0 GPU 1", 3.5, {"sm__cycles_active.avg": 12.5}), ("rank 0 GPU 2", 4, {"xpu GpuTime": 7}),
        ("rank 0 GPU 2", 4, {"xpu bytes": 1.5}), ("rank 0 CPU", 5, {"power W": 100}),
    ]  # fmt: skip
    assert sql(tmp_path / "out.json", "SELECT count(*) AS n FROM counters") == [{"n": 0}]
    assert sql(tmp_path / "out.json", "SELECT warnings FROM runs") == [{"warnings": None}]


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
