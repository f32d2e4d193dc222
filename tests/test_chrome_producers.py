"""Chrome traces of other programs than torch.profiler, and of other vendors' GPUs."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("process", "device_row", "producer"),
    [
        ("Ascend Hardware", row(5, "MatMulV2"), "torch_npu (Ascend)"),
        ("/device:GPU:0", row(5, "gemm_fusion"), "JAX (XLA)"),
        ("DEVICE<Intel(R) Data Center GPU Max 1550>", row(5, "gemm", cat="gpu_op"), "Intel unitrace"),
        ("CPU HIP API", row(5, "gemm", cat="hip_kernel"), "rocprof (ROCm)"),
    ],
)
def test_unsupported_device_rows_are_a_warning(
    tmp_path: Path, process: str, device_row: dict[str, Any], producer: str
) -> None:
    path = write_trace(tmp_path / "t.json", [named(5, process), op("aten::mm", 0, 5, 1), device_row])
    said = f"written by {producer}, whose GPU events are not read"
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
