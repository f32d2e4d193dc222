"""Chrome traces of other programs than torch.profiler, and of other vendors' GPUs."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import ask, opened
from traces import event, launch, op, write_trace

import analyze


def named(pid: int, name: str) -> dict[str, Any]:
    """The name of a process."""
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def row(pid: int, name: str, **more: Any) -> dict[str, Any]:
    """A complete event of a process."""
    return {"ph": "X", "name": name, "pid": pid, "tid": 2, "ts": 10, "dur": 4, **more}


def thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    """The name of a thread."""
    return named(pid, name) | {"name": "thread_name", "tid": tid}


def test_unsupported_device_rows_are_a_warning(tmp_path: Path) -> None:
    device_row = row(5, "gemm", cat="hip_kernel")
    path = write_trace(tmp_path / "t.json", [named(5, "CPU HIP API"), op("aten::mm", 0, 5, 1), device_row])
    said = "written by rocprof (ROCm), whose GPU events are not read"
    with analyze.open(path) as traces:
        assert said in traces.warnings[0]
        answer = traces.query("kernel-share")
        assert answer.rows() == [] and answer.why and answer.why() == f"no kernels in what was read; {said}"
        [run] = traces.info().runs
        assert said in run.columns["warnings"]


def test_unread_categories_are_named_if_there_are_no_kernels(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [op("aten::mm", 0, 5, 1), event("npu_kernel", "gemm", 10, 4)])
    answer = opened(path).query("kernel-share")
    assert answer.why and answer.why() == "no kernels in what was read; categories that are not read: 1 npu_kernel"


def test_proton_trace(tmp_path: Path) -> None:
    """Triton Proton: two kernels of 30 and 12 us on its stream."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "mm", "pid": 0, "tid": 1000007, "ts": 20 + 50 * n, "dur": dur,
         "args": {"call_stack": ["ROOT", "mm"]}}
        for n, dur in enumerate((30, 12))
    ]  # fmt: skip
    [found] = ask(write_trace(tmp_path / "p.chrome_trace", kernels), "kernel-share")
    assert (found["name"], found["calls"], found["total_ns"]) == ("mm", 2, 42_000)


def test_jax_trace(tmp_path: Path) -> None:
    """A GPU with a kernel of 200 us that cuLaunchKernel launched, a copy, and rows that XLA derives from them."""
    kernel_details = "regs:32 static_shared:1024 dynamic_shared:8 grid:4,2,1 block:128,1,1 occ_pct:50"
    events = [
        named(1, "/device:GPU:1 (pid 9)"), thread(1, 15, "Stream #15(Compute)"), thread(1, 16, "Stream #16(MemcpyH2D)"),
        thread(1, 17, "XLA Ops"), named(701, "/host:CPU"), thread(701, 77, "python"),
        row(701, "train", tid=77, ts=0, dur=400, args={"step_num": "3"}),
        row(701, "PjitFunction(f)", tid=77, ts=1, dur=60),
        row(701, "cuLaunchKernel", tid=77, ts=20, dur=5, args={"correlation_id": "8"}),
        row(1, "gemm", tid=15, ts=100, dur=200, args={"correlation_id": "8", "kernel_details": kernel_details}),
        row(1, "MemcpyH2D", tid=16, ts=50, dur=20, args={"memcpy_details": "kind_src:pinned size:4096 dest:0"}),
        row(1, "dot.1", tid=17, ts=100, dur=200), {},
    ]  # fmt: skip
    traces = opened(write_trace(tmp_path / "t.trace.json", events))
    assert list(traces.warnings) == ["t.trace.json: written by JAX (XLA); 12 events kept"]
    [work] = traces.sql(
        "SELECT name, device, stream, dur_ns, grid_x, grid_y, block_x, registers, shared_mem_bytes FROM kernels"
    ).rows()
    assert work == ("gemm", 1, 15, 200_000, 4, 2, 128, 32, 1032)
    assert traces.sql("SELECT kind, bytes, stream FROM memcpys").rows() == [("HtoD", 4096, 16)]
    # Launched at 20, it started at 100 us.
    assert traces.sql("SELECT start_ns - call_start_ns, op_name FROM gpu_work WHERE kind = 'kernel'").rows() == [
        (80_000, "PjitFunction(f)")
    ]
    assert traces.info().runs[0].steps == 1


def test_a_jax_trace_of_many_threads(tmp_path: Path) -> None:
    """The names of 1,000 host threads, in 80 KB, precede the GPU; its XLA Ops are derived from its streams."""
    threads = [named(701, "/host:CPU"), *(thread(701, tid, f"thread-{tid}") for tid in range(1_000))]
    gpu = [named(1, "/device:GPU:0"), thread(1, 15, "Stream #15(Compute)"), thread(1, 17, "XLA Ops")]
    rows = [row(1, "gemm", tid=15, dur=200), row(1, "dot.1", tid=17, dur=200)]
    [found] = ask(write_trace(tmp_path / "t.trace.json", [*threads, *gpu, *rows]), "kernel-share")
    assert (found["name"], found["total_ns"]) == ("gemm", 200_000)


def test_a_folder_of_jax_is_one_run(tmp_path: Path) -> None:
    """It has the trace, a copy for Perfetto, and the XPlane."""
    events = [named(1, "/device:GPU:0"), thread(1, 15, "Stream #15(Compute)"), row(1, "gemm", tid=15)]
    for name, more in (("host.trace.json.gz", {}), ("perfetto_trace.json.gz", {"displayTimeUnit": "ns"})):
        plain = write_trace(tmp_path / "plain.json", events, **more)
        (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    (tmp_path / "host.xplane.pb").write_bytes(b"\x0a")
    with analyze.open(tmp_path) as traces:
        assert [(r.columns["source"]) for r in traces.info().runs] == [str(tmp_path / "host.trace.json.gz")]
        assert "JAX's copy of the trace next to it; left out" in traces.warnings[0]


def test_tpu_trace(tmp_path: Path) -> None:
    events = [
        named(1, "/device:TPU:0"), thread(1, 2, "XLA Modules"), thread(1, 3, "XLA Ops"),
        row(1, "jit_step", ts=0, dur=90), row(1, "fusion.1", tid=3, ts=0, dur=50),
    ]  # fmt: skip
    [found] = ask(write_trace(tmp_path / "t.json", events), "kernel-share")
    assert (found["name"], found["total_ns"]) == ("fusion.1", 50_000)


def test_ascend_trace(tmp_path: Path) -> None:
    """A kernel and an all-reduce of 30 and 12 us; a wait is no work, and an analysis of msprof's own no row."""
    events = [
        named(5, "Ascend Hardware"), thread(5, 2, "Stream 2"), named(6, "CANN"), named(7, "Communication"),
        named(9, "Overlap Analysis"),
        row(6, "Node@launch", ts=1, dur=2, args={"connection_id": 12}),
        row(5, "MatMulV2", ts="10.000", dur=30, args={"Task Type": "AI_CORE", "connection_id": 12}),
        row(5, "EVENT_WAIT", ts=45, dur=9, args={"Task Type": "EVENT_WAIT"}),
        row(7, "hcom_allReduce__123_4_1", ts=50, dur=12, tid=0), row(9, "Computing", ts=10, dur=30),
    ]  # fmt: skip
    path = write_trace(tmp_path / "trace_view.json", events)
    traces = opened(path)
    families = {row["family"]: row["total_ns"] for row in ask(path, "kernel-share", params={"group": "family"})}
    assert families == {"communication": 12_000, "gemm": 30_000}
    assert traces.sql("SELECT start_ns - call_start_ns FROM gpu_work WHERE name = 'MatMulV2'").rows() == [(9_000,)]


def test_unitrace(tmp_path: Path) -> None:
    kernel_name = "gemm[SIMD32 {4; 2; 1} {256; 1; 1}]"
    events = [
        named(1, "DEVICE<Intel(R) Data Center GPU Max 1550>"), named(777, "HOST"),
        row(777, "zeCommandListAppendLaunchKernel", cat="cpu_op", ts=0, args={"id": "0"}),
        row(1, kernel_name, cat="gpu_op", ts=20, dur=8, args={"id": "0"}),
        row(1, "zeCommandListAppendMemoryCopy(M2D)[4096 bytes]", cat="gpu_op", ts=40, dur=2, args={"id": "1"}),
    ]  # fmt: skip
    traces = opened(write_trace(tmp_path / "python.777.json", events))
    assert traces.sql("SELECT name, grid_x, grid_y, block_x, dur_ns FROM kernels").rows() == [
        ("gemm", 4, 2, 256, 8_000)
    ]
    assert traces.sql("SELECT kind, bytes FROM memcpys").rows() == [("HtoD", 4096)]
    assert traces.sql("SELECT start_ns - call_start_ns FROM gpu_work WHERE kind = 'kernel'").rows() == [(20_000,)]


@pytest.mark.parametrize(
    ("content", "producer", "way_out"),
    [
        ({"traceEvents": [row(1, "f", cat="FEE")]}, "VizTracer", "vizviewer"),
        ([{"ph": "B", "cat": "py-spy", "name": "f", "ts": 1, "pid": 1, "tid": 1}], "py-spy", "speedscope"),
        ([row(1, "k") | {"cat": "cuda", "pid": "Device 0", "tid": "Stream 7"}], "nsys2json", ".nsys-rep"),
        ({"traceEvents": [row(1, "RunTask", cat="toplevel")]}, "Chrome", "perfetto"),
        ([{"children": [], "frame": {"name": "ROOT"}, "metrics": {}}], "Triton Proton (hatchet)", ".chrome_trace"),
        ({"$schema": "https://www.speedscope.app/file-format-schema.json"}, "speedscope", "that page"),
    ],
)
def test_other_programs_are_refused_by_name(tmp_path: Path, content: Any, producer: str, way_out: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with pytest.raises(analyze.InputError, match=re.escape(f"written by {producer}: ")) as refused:
        analyze.open(path)
    assert str(refused.value).startswith(f"{path}: ") and way_out in str(refused.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("host.xplane.pb", ".trace.json.gz"),
        ("1_results.pftrace", "rocpd or json"),
        ("42_kernel_trace.csv", "rocprofv3; record with --output-format rocpd or json"),
        ("p.hatchet", "data="),
        ("kernel_details.csv", "trace_view.json"),
    ],
)
def test_files_that_are_not_read_name_what_is(tmp_path: Path, name: str, instead: str) -> None:
    (tmp_path / name).write_bytes(b"\x0a\x0f")
    with pytest.raises(analyze.InputError, match=re.escape(instead)):
        analyze.open(tmp_path / name)


def test_a_database_of_ascend_names_what_is_read(tmp_path: Path) -> None:
    """It is SQLite, as are exports of Nsight Systems. In a folder, the trace next to it is read."""
    database = tmp_path / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE TASK (startNs, endNs)")
    with pytest.raises(analyze.InputError, match=r"read the trace_view\.json or msprof"):
        analyze.open(database)
    events = [named(5, "Ascend Hardware"), thread(5, 2, "Stream 2"), row(5, "MatMulV2", args={"Task Type": "AI_CORE"})]
    write_trace(tmp_path / "trace_view.json", events)
    with analyze.open(tmp_path) as traces:
        assert list(traces.warnings) == ["trace_view.json: written by torch_npu (Ascend); 3 events kept"]


def test_a_torch_trace_with_functions_of_viztracer_is_read(tmp_path: Path) -> None:
    """Its functions come first, more than the 64 KiB by which a producer is recognised."""
    functions = [row(1, "f" * 90, cat="FEE") for _ in range(1000)]
    events = [*functions, event("kernel", "k", 0, 4, 0, 7, device=0, stream=7)]
    assert ask(write_trace(tmp_path / "t.json", events), "kernel-share")[0]["name"] == "k"


def test_mtia_kernels(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 5, 1), launch(1, 9) | {"cat": "mtia_runtime"},
        event("mtia_ccp_events", "mtia_gemm", 10, 4, 0, 7, device=0, stream=7, correlation=9),
    ]  # fmt: skip
    [found] = ask(write_trace(tmp_path / "t.json", events), "kernel-share")
    assert (found["name"], found["total_ns"]) == ("mtia_gemm", 4_000)


def test_copies_are_recognised_by_name(tmp_path: Path) -> None:
    """Intel's (M is memory of no device) and AMD's."""
    kinds = {
        "Memcpy M2D (MEMORY(Unknown) -> DEVICE)": "HtoD", "Memcpy D2M (DEVICE -> HOST)": "DtoH",
        "Memcpy D2D (DEVICE -> DEVICE)": "DtoD", "CopyHostToDevice": "HtoD", "CopyDeviceToHost": "DtoH",
        "CopyDeviceToDevice": "DtoD", "Memcpy HtoD (Pinned -> Device)": "HtoD", "Memcpy PtoP": "PtoP",
    }  # fmt: skip
    for name, kind in kinds.items():
        copy = event("gpu_memcpy", name, 0, 2, 0, 7, device=0, stream=7, bytes=4096)
        [found] = ask(write_trace(tmp_path / "t.json", [copy]), "memcpy")
        assert (name, found["kind"], found["bytes"]) == (name, kind, 4096)
