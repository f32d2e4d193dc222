"""Properties of real Chrome traces that break naive readers: one small trace each, and its rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support import ask, sql
from traces import event, kernel, launch, write_trace


def test_times_are_exact_where_a_double_is_not(tmp_path: Path) -> None:
    # 1712345678901234.567 us needs 19 digits; the nearest double is ...234.5, which would give ...234500 ns.
    text = """{"traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1712345678901234.567, "dur": 0.001},
      {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1712345678901235, "dur": 2, "args": {}}
    ]}"""
    path = tmp_path / "t.json"
    path.write_text(text)
    assert sql(path, "SELECT start_ns, dur_ns FROM kernels ORDER BY start_ns") == [
        {"start_ns": 1712345678901234567, "dur_ns": 1},
        {"start_ns": 1712345678901235000, "dur_ns": 2000},
    ]


def test_base_time_is_added_exactly(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 1.5, 1)], baseTimeNanoseconds=1790857026000000000)
    assert sql(path, "SELECT start_ns FROM kernels") == [{"start_ns": 1790857026000001500}]


def test_one_process_with_several_gpus(tmp_path: Path) -> None:
    # Device 0: [0, 10) and [5, 15) -> busy 15 of 15; device 1: [0, 2) and [8, 10) -> busy 4 of 10 (us).
    events = [
        kernel("a", 0, 10),
        kernel("b", 5, 10, stream=8),
        kernel("c", 0, 2, device=1),
        kernel("d", 8, 2, device=1),
    ]
    rows = ask(write_trace(tmp_path / "t.json", events), "gpu-busy")
    assert [(r["device"], r["span_ns"], r["busy_ns"], r["idle_ns"]) for r in rows] == [
        (0, 15000, 15000, 0),
        (1, 10000, 4000, 6000),
    ]


def test_peer_to_peer_copies_have_no_device(tmp_path: Path) -> None:
    copy = event(
        "gpu_memcpy", "Memcpy PtoP (Device -> Device)", 1, 2, 0, 7,
        fromDevice=0, inDevice=1, toDevice=1, bytes=4096, correlation=5, stream=7,
    )  # fmt: skip
    path = write_trace(tmp_path / "t.json", [copy])
    columns = "device, src_device, dst_device, kind, src_memory, dst_memory, bytes, correlation_id"
    assert sql(path, f"SELECT {columns} FROM memcpys") == [
        {
            "device": 1, "src_device": 0, "dst_device": 1, "kind": "PtoP", "src_memory": "Device",
            "dst_memory": "Device", "bytes": 4096, "correlation_id": 5,
        }
    ]  # fmt: skip


def test_gpu_events_without_a_launch_are_kept(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "forward", 0, 10),
        launch(1, 1),
        kernel("linked", 2, 3, correlation=1),
        kernel("unlinked", 6, 4, correlation=99),
        kernel("no correlation", 11, 5),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert sum(r["calls"] for r in ask(path, "kernel-share")) == 3
    rows = {r["phase"]: (r["gpu_ops"], r["gpu_ns"]) for r in ask(path, "phases")}
    assert rows == {"forward": (1, 3000), "(outside)": (2, 9000)}


def test_a_graph_launch_has_many_kernels(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "forward", 0, 10),
        launch(1, 7, name="cudaGraphLaunch"),
        *(kernel(f"k{i}", 2 + i, 1, correlation=7, **{"graph id": 3}) for i in range(4)),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert [r["gpu_ops"] for r in ask(path, "phases")] == [4]
    assert sql(path, "SELECT DISTINCT graph_id, correlation_id FROM kernels") == [{"graph_id": 3, "correlation_id": 7}]


def test_names_of_2021(tmp_path: Path) -> None:
    # PyTorch 1.8: capitalised categories, `external id`, whole us, string ids.
    events = [
        event("Operator", "aten::add", 100, 20, **{"external id": "12", "Input dims": [[2, 3], []]}),
        event("Runtime", "cudaLaunchKernel", 105, 4, **{"external id": 12, "correlation": "77"}),
        event("Kernel", "add_kernel", 130, 6, 0, 7, **{"external id": 12, "correlation": 77, "device": 0, "stream": 7}),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 140, 2, 0, 7, bytes=8),
        event("Memset", "Memset (Device)", 150, 1, 0, 7, bytes=16),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert sql(path, "SELECT op_id, start_ns, input_dims FROM cpu_ops") == [
        {"op_id": 12, "start_ns": 100000, "input_dims": "[[2, 3], []]"}
    ]
    assert sql(path, "SELECT op_id, correlation_id, dur_ns FROM kernels") == [
        {"op_id": 12, "correlation_id": 77, "dur_ns": 6000}
    ]
    assert sql(path, "SELECT name, correlation_id FROM cuda_calls") == [
        {"name": "cudaLaunchKernel", "correlation_id": 77}
    ]
    assert sql(path, "SELECT kind, src_memory, bytes FROM memcpys") == [
        {"kind": "HtoD", "src_memory": "Pageable", "bytes": 8}
    ]
    assert sql(path, "SELECT dst_memory, bytes FROM memsets") == [{"dst_memory": "Device", "bytes": 16}]
    [op] = [r for r in ask(path, "ops") if r["name"] == "aten::add"]
    assert (op["self_cpu_ns"], op["total_cpu_ns"], op["self_device_ns"]) == (16000, 20000, 6000)


def test_pid_and_tid_may_be_strings(tmp_path: Path) -> None:
    events = [
        event("Trace", "PyTorch Profiler (0)", 0, 50, "Spans", "PyTorch Profiler"),
        event("cpu_op", "aten::mul", 1, 2, "Traces", "main"),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert sql(path, "SELECT name, pid, tid FROM cpu_ops") == [{"name": "aten::mul", "pid": None, "tid": None}]


def test_kernels_of_zero_duration_are_kept(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("zero", 5, 0), kernel("one", 5, 1)])
    rows = {r["name"]: (r["calls"], r["total_ns"], r["min_ns"]) for r in ask(path, "kernel-share")}
    assert rows == {"zero": (1, 0, 0), "one": (1, 1000, 1000)}
    [busy] = ask(path, "gpu-busy")
    assert (busy["span_ns"], busy["busy_ns"], busy["idle_ns"]) == (1000, 1000, 0)


def test_strings_with_lists_are_read(tmp_path: Path) -> None:
    nccl = kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 5,
        **{
            "Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "dtype": "Float",
            "Group size": 8,
            "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, ...]", "Seq": 4,
            "In split size": "[]", "Out split size": "[]",
        },
    )  # fmt: skip
    path = write_trace(tmp_path / "t.json", [nccl])
    columns = "collective, in_elems, dtype, group_size, group_name, group_ranks, seq"
    assert sql(path, f"SELECT {columns} FROM kernels") == [
        {
            "collective": "allreduce", "in_elems": 10, "dtype": "Float", "group_size": 8, "group_name": "0",
            "group_ranks": "[0, 1, 2, ...]", "seq": 4,
        }
    ]  # fmt: skip


def test_rank_written_without_a_space_and_in_compact_json(tmp_path: Path) -> None:
    text = '{"schemaVersion":1,"distributedInfo":{"backend":"nccl","rank":3,"world_size":8},"traceEvents":['
    text += json.dumps(kernel("k", 1, 2), separators=(",", ":")) + "]}"
    path = tmp_path / "anything.json"
    path.write_text(text)
    assert sql(path, "SELECT rank, name FROM kernels") == [{"rank": 3, "name": "k"}]
    assert sql(path, "SELECT world_size FROM runs") == [{"world_size": 8}]


def test_top_level_array_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([kernel("k", 1, 2)]))
    assert sql(path, "SELECT name, dur_ns FROM kernels") == [{"name": "k", "dur_ns": 2000}]


def test_metadata_after_the_events_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    device = {"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0}
    path.write_text(json.dumps({"traceEvents": [kernel("k", 1, 2)], "deviceProperties": [device, device]}))
    assert sql(path, "SELECT gpu_name, compute_capability, warnings FROM runs") == [
        {"gpu_name": "Tesla V100-SXM2-16GB", "compute_capability": "7.0", "warnings": None}
    ]
    # ROCm 7 does not name some GPUs.
    unnamed = {"traceEvents": [kernel("k", 1, 2)], "deviceProperties": [device | {"name": ""}]}
    path.write_text(json.dumps(unnamed))
    assert sql(path, "SELECT gpu_name FROM runs") == [{"gpu_name": None}]


def test_numbers_that_overflow_are_null(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t.json", [kernel("k", 1, 2, correlation=2**64 - 1, **{"registers per thread": "N/A"})]
    )
    assert sql(path, "SELECT correlation_id, registers, dur_ns FROM kernels") == [
        {"correlation_id": None, "registers": None, "dur_ns": 2000}
    ]


def test_gpu_annotations_have_a_stream(tmp_path: Path) -> None:
    """Kineto writes the device and the stream as the process and the thread, and some versions as arguments, too."""
    events = [
        event("gpu_user_annotation", "forward", 1, 5, 1, 7, **{"External id": 3}),
        event("gpu_user_annotation", "backward", 7, 5, 0, 0, device=2, stream=9),
        event("user_annotation", "forward", 0, 9, 1, 7),
    ]
    rows = sql(write_trace(tmp_path / "t.json", events), "SELECT origin, device, stream FROM ranges ORDER BY ALL")
    assert [tuple(r.values()) for r in rows] == [
        ("gpu_annotation", 1, 7),
        ("gpu_annotation", 2, 9),
        ("record_function", None, None),
    ]


def test_memory_events(tmp_path: Path) -> None:
    def memory(ts: float, bytes_: int, allocated: int, reserved: int, device: int) -> dict[str, object]:
        args = {
            "Device Type": int(device >= 0), "Device Id": device, "Addr": 140000000000000, "Bytes": bytes_,
            "Total Allocated": allocated, "Total Reserved": reserved,
        }  # fmt: skip
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}

    events = [
        memory(1, 512, 512, 2048, 0),
        memory(2, 1024, 1536, 2048, 0),
        memory(3, -512, 1024, 2048, 0),
        memory(4, 8, 8, 0, -1),
    ]
    rows = ask(write_trace(tmp_path / "t.json", events), "memory-peak")
    assert [(r["device_type"], r["device"], r["allocated_bytes"], r["reserved_bytes"]) for r in rows] == [
        ("cuda", 0, 1536, 2048),
        ("cpu", -1, 8, 0),
    ]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_fields_after_the_events_equal_fields_before_them(tmp_path: Path, name: str) -> None:
    """Kineto since 2024-05 writes the zero of the clock behind the events."""
    behind = {"distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 1727743122000000000}
    text = json.dumps({"schemaVersion": 1, "traceEvents": [kernel("k", 1.5, 1)], **behind}).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert sql(path, "SELECT rank, start_ns FROM kernels") == [{"rank": 3, "start_ns": 1727743122000001500}]
    assert sql(path, "SELECT world_size, warnings FROM runs") == [{"world_size": 8, "warnings": None}]


def test_missing_base_time_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    trailer = {"baseTimeNanoseconds": 1727743122000000000, "x": "a" * (2 << 20)}
    path.write_text(json.dumps({"traceEvents": [kernel("k", 1, 1)], **trailer}))
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "baseTimeNanoseconds after its events is 1727743122000000000, but None was used" in run["warnings"]


def test_quoted_ids_are_numbers(tmp_path: Path) -> None:
    """2020/21: `"tid": "11"`; read as labels, two threads became one."""
    events = [
        event("Operator", "aten::mm", 20, 50, "1", "11", **{"External id": "3"}),
        event("Operator", "MmBackward", 30, 20, "1", "12", **{"External id": "4"}),
        event("Runtime", "cudaLaunchKernel", 35, 5, "1", "\u00b2", correlation="9"),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert sql(path, "SELECT pid, tid, op_id FROM cpu_ops ORDER BY tid") == [
        {"pid": 1, "tid": 11, "op_id": 3},
        {"pid": 1, "tid": 12, "op_id": 4},
    ]
    assert sql(path, "SELECT pid, tid, correlation_id FROM cuda_calls") == [
        {"pid": 1, "tid": None, "correlation_id": 9}
    ]


def test_ranges_among_the_operators_of_2021_are_ranges(tmp_path: Path) -> None:
    names = ["ProfilerStep#5", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"]
    for category in ("Operator", "cpu_op"):
        path = tmp_path / category / "t.json"
        write_trace(path, [event(category, n, i * 10, 5) for i, n in enumerate([*names, "aten::mm"])])
        assert sql(path, "SELECT name FROM cpu_ops") == [{"name": "aten::mm"}]
        assert [tuple(r.values()) for r in sql(path, "SELECT name, origin FROM ranges ORDER BY start_ns")] == [
            (names[0], "profiler_step"),
            (names[1], "record_function"),
            (names[2], "record_function"),
        ]


def test_impossible_rank_is_ignored(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 1, 1)], distributedInfo={"rank": 10**30, "world_size": 8})
    assert sql(path, "SELECT world_size FROM runs") == [{"world_size": 8}]
    assert "its rank cannot be read" in sql(path, "SELECT warnings FROM runs")[0]["warnings"]
