"""Exports of Nsight Systems written by hand: layouts of 2021 to 2026, several processes, and files that are none.

Each export is a handful of rows whose expected rows in the tables stand beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analyze.errors import InputError
from analyze.sources.interface import FileReport
from analyze.sources.nsys.reader import read
from tests.commands import run_cli
from tests.support import ask, sql

Row = Sequence[Any]
TEXT = {"value", "name", "text", "label", "utcTime"}


def process(pid: int) -> int:
    """globalPid of a process: machine 1, VM 0, the pid in bits 24 to 47."""
    return (1 << 56) | (pid << 24)


def thread(pid: int, tid: int) -> int:
    """globalTid: the thread in the lowest 24 bits."""
    return process(pid) | tid


def write_export(path: Path, tables: dict[str, tuple[str, list[Row]]]) -> Path:
    """An SQLite file of `TABLE: ("column column ...", rows)`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as db:
        for table, (columns, rows) in tables.items():
            names = columns.split()
            declared = ", ".join(f'"{c}" {"TEXT" if c in TEXT else "INTEGER"}' for c in names)
            db.execute(f'CREATE TABLE "{table}" ({declared})')
            db.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(names))})', rows)
    db.close()
    return path


STRINGS = [
    (1, "void scale<float>(T1 *)"),
    (2, "scale"),
    (3, "cudaLaunchKernel_v7000"),
    (4, "cudaMemcpyAsync_v3020"),
    (5, "forward"),
    (6, "cudaStreamSynchronize_v3020"),
    (7, "cudaGraphLaunch_v10000"),
    (8, "library"),
    (9, "cuLaunchKernelEx"),
]

OLD = {
    # Nsight Systems 2021: no enum tables, no mangled names, no graphs, no devices of copies; names only as StringIds.
    "EXPORT_META_DATA": ("name value", [("EXPORT_SCHEMA_VERSION_MAJOR", "2"), ("EXPORT_PRODUCT_VERSION", "2021.3.2")]),
    "StringIds": ("id value", STRINGS),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId streamId correlationId globalPid demangledName shortName registersPerThread"
        " gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory",
        [(2000, 2500, 0, 1, 7, 101, process(40), 1, 2, 32, 8, 2, 1, 128, 1, 1, 1024, 512)],
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind",
        [
            (3000, 3400, 0, 1, 7, 102, process(40), 65536, 1, 0, 2),
            (3500, 3600, 0, 1, 7, 103, process(40), 400, 2, 2, 1),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start end deviceId contextId streamId correlationId globalPid value bytes",
        [(3700, 3701, 0, 1, 7, 104, process(40), 0, 64)],
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start end eventClass globalTid correlationId nameId returnValue",
        [
            (1000, 1010, 0, thread(40, 41), 101, 3, 0),
            (1020, 1060, 0, thread(40, 41), 102, 4, 0),
            (1070, 1080, 0, thread(40, 41), 103, 4, 0),
            (1200, 4000, 0, thread(40, 41), 105, 6, 0),
        ],
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId",
        [
            (-5, None, 75, None, None, None, None, thread(40, 41), None, 8, 3),
            (990, 1015, 59, None, None, None, None, thread(40, 41), None, 5, 0),
            (1016, 1100, 60, 1, None, None, "in place", thread(40, 41), None, None, 3),
            (1018, None, 59, None, None, None, "open", thread(40, 41), None, None, 0),
            (1019, None, 34, None, None, None, "mark", thread(40, 41), None, None, 0),
        ],
    ),
}


def test_the_layout_of_2021(tmp_path: Path) -> None:
    path = write_export(tmp_path / "old.sqlite", OLD)
    # dur = end - start; shared memory = 1024 + 512; pid and tid from bits 24-47 and 0-23 of the global ids.
    assert sql(path, "SELECT * EXCLUDE (run_id, run_group) FROM kernels") == [
        {
            "rank": 0, "pid": 40, "device": 0, "stream": 7, "name": "void scale<float>(T1 *)", "start_ns": 2000,
            "dur_ns": 500, "correlation_id": 101, "op_id": None, "grid_x": 8, "grid_y": 2, "grid_z": 1, "block_x": 128,
            "block_y": 1, "block_z": 1, "registers": 32, "shared_mem_bytes": 1536, "blocks_per_sm": None,
            "occupancy_pct": None, "graph_id": None, "graph_node_id": None, "annotation": None, "collective": None,
            "in_elems": None, "out_elems": None, "dtype": None, "group_size": None, "group_name": None,
            "group_ranks": None, "group_desc": None, "seq": None, "peer": None, "in_splits": None, "out_splits": None,
        }
    ]  # fmt: skip
    # CUPTI's numbers: copyKind 1 HtoD, 2 DtoH; nsys's for memory: 0 pageable, 1 pinned, 2 device.
    columns = "kind, bytes, dur_ns, src_memory, dst_memory, correlation_id"
    assert [tuple(r.values()) for r in sql(path, f"SELECT {columns} FROM memcpys ORDER BY start_ns")] == [
        ("HtoD", 65536, 400, "Pageable", "Device", 102),
        ("DtoH", 400, 100, "Device", "Pinned", 103),
    ]
    assert [tuple(r.values()) for r in sql(path, "SELECT bytes, dur_ns, dst_memory FROM memsets")] == [(64, 1, None)]
    calls = sql(path, "SELECT api, name, pid, tid, dur_ns FROM cuda_calls ORDER BY start_ns")
    assert [tuple(r.values()) for r in calls] == [
        ("runtime", "cudaLaunchKernel", 40, 41, 10),
        ("runtime", "cudaMemcpyAsync", 40, 41, 40),
        ("runtime", "cudaMemcpyAsync", 40, 41, 10),
        ("runtime", "cudaStreamSynchronize", 40, 41, 2800),
    ]
    ranges = sql(
        path, "SELECT origin, domain, style, name, start_ns, dur_ns, tid, end_tid FROM ranges ORDER BY start_ns"
    )
    assert [tuple(r.values()) for r in ranges] == [
        ("nvtx", None, "PushPop", "forward", 990, 25, 41, None),
        ("nvtx", "library", "StartEnd", "in place", 1016, 84, 41, None),
    ]
    # The range `open` never ended; the mark is no range.
    said = "1 range without an end left out; recorded and not read: NVTX marks (NVTX_EVENTS: 1 row)"
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": f"old.sqlite: {said}"}]


def test_the_queries_on_the_layout_of_2021(tmp_path: Path) -> None:
    path = write_export(tmp_path / "old.sqlite", OLD)
    # 65536 B / 400 ns = 163.84 GB/s and not small (64 KiB is the limit); 400 B / 100 ns = 4 GB/s and small.
    memcpy = {
        r["kind"]: (r["calls"], r["bytes"], r["total_ns"], r["gb_per_s"], r["small_pct"]) for r in ask(path, "memcpy")
    }
    assert memcpy == {"HtoD": (1, 65536, 400, 163.84, 0.0), "DtoH": (1, 400, 100, 4.0, 100.0)}
    # `forward` holds the launch call of the kernel (2000..2500); `in place` those of both copies (3000..3600). The
    # call of the memset is not there.
    nvtx = {r["name"]: (r["total_ns"], r["proj_total_ns"], r["gpu_ops"]) for r in ask(path, "nvtx")}
    assert nvtx == {"forward": (25, 500, 1), "library:in place": (84, 600, 2)}
    assert [(r["name"], r["waits_for"], r["total_ns"], r["flagged"]) for r in ask(path, "api-sync")] == [
        ("cudaStreamSynchronize", "stream", 2800, True)
    ]
    # Asynchronous from pageable memory; the other copy is to pinned memory.
    assert [(r["rule"], r["kind"], r["calls"], r["gpu_ns"], r["call_ns"]) for r in ask(path, "memcpy-sync")] == [
        ("pageable", "HtoD", 1, 400, 40)
    ]
    # Launched in a phase: the kernel; the copies and the memset are outside of it. 500 of 500 + 400 + 100 + 1 ns.
    phases = {r["phase"]: (r["calls"], r["gpu_ops"], r["gpu_ns"]) for r in ask(path, "phases")}
    assert phases == {"forward": (1, 1, 500), "(outside)": (0, 3, 501)}


NODE = (6 << 32) + 1


def new(major: str = "3", severity: int = 2, text: str = "cuDNN symbols found") -> dict[str, tuple[str, list[Row]]]:
    """Nsight Systems 2025/2026: more columns, ids of graphs, diagnostics, device numbers of their own."""
    gpu = "start end deviceId contextId greenContextId streamId correlationId globalPid"
    return {
        "META_DATA_EXPORT": ("name value", [("EXPORT_SCHEMA_VERSION_MAJOR", major)]),
        "StringIds": ("id value", STRINGS),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            f"{gpu} demangledName shortName mangledName launchType clusterX registersPerThread gridX gridY gridZ"
            " blockX blockY blockZ staticSharedMemory dynamicSharedMemory graphNodeId graphId",
            [
                # Two kernels of one graph launch; and one whose graph shows only in the upper half of its node.
                (100, 150, 0, 1, None, 7, 11, process(50), 1, 2, 2, 1, 0, 16, 1, 1, 1, 32, 1, 1, 0, 0, 77, 5),
                (150, 210, 0, 1, None, 7, 11, process(50), 1, 2, 2, 1, 0, 16, 1, 1, 1, 32, 1, 1, 0, 0, 78, 5),
                (300, 310, 0, 1, None, 7, 12, process(50), 1, 2, 2, 1, 0, 16, 1, 1, 1, 32, 1, 1, 0, 0, NODE, None),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            f"{gpu} graphId graphExecId", [(400, 900, 2**31 - 1, 1, None, 7, 13, process(50), 9, 10)]
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            f"{gpu} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId graphNodeId graphId",
            [(1000, 1010, 1, 1, None, 7, 14, process(50), 1000, 21, 30, 30, 1, 0, None, None)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start end eventClass globalTid correlationId nameId returnValue callchainId",
            [(10, 20, 0, thread(50, 50), 11, 7, 0, None), (30, 40, 0, thread(50, 50), 13, 7, 0, None),
             (40, 50, 1, thread(50, 50), 12, 9, 0, None)],
        ),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            f"{gpu} syncType eventId", [(1020, 1040, 0, 1, None, 7, 15, process(50), 3, 0)]
        ),
        "CUDA_GPU_MEMORY_USAGE_EVENTS": (
            "start globalPid deviceId contextId address pc bytes memKind memoryOperationType name correlationId",
            [(60, process(50), 0, 1, 4096, 0, 100, 40, 1, None, None),
             (20, process(50), 0, 1, 4096, 0, 100, 40, 0, None, None),
             (30, process(50), 0, 1, 8192, 0, 30, 40, 0, None, None),
             (25, process(50), 0, 1, 16, 0, 7, 41, 0, None, None), (0, process(50), 0, 0, 9, 0, 4, 5, 0, "x", None)],
        ),
        "ENUM_CUDA_MEMCPY_OPER": ("id name label", [(21, "PTOP", "Peer-to-Peer")]),
        "ENUM_CUDA_MEM_KIND": ("id name label", [(30, "", "Device"), (40, "", "Device"), (41, "", "Pinned")]),
        "ENUM_CUDA_DEV_MEM_EVENT_OPER": ("id name label", [(0, "", "Allocation"), (1, "", "Deallocation")]),
        "NVTX_EVENTS": (
            "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value",
            [(5, 35, 60, 1, None, None, "crossing", thread(50, 50), thread(50, 51), None, 0, None)],
        ),
        "TARGET_INFO_GPU": (
            "id name cuDevice computeMajor computeMinor", [(0, "NVIDIA T4", 1, 7, 5), (3, "NVIDIA H200", 0, 9, 0)]
        ),
        "TARGET_INFO_CUDA_DEVICE": ("gpuId cudaId pid", [(3, 0, 50)]),
        "TARGET_INFO_SYSTEM_ENV": ("name value", [("Hostname", "node7"), ("NvDriverVersion", "590.1")]),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs utcTime", [(1, "2026-01-02T03:04:05")]),
        "META_DATA_CAPTURE": (
            "name value",
            [("PROCESS_0:COMMAND", "python"), ("PROCESS_0:ARGUMENT_0", "train.py"),
             ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"'), ("PROCESS_0:ENVIRONMENT_VARIABLE", 'WORLD_SIZE="8"')],
        ),
        "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": ("id name label", [(1, "", "Info"), (2, "", "Warning"), (3, "", "Error")]),
        "DIAGNOSTIC_EVENT": ("timestamp severity text", [(1, 1, "Profiling has started."), (2, severity, text)]),
    }  # fmt: skip


def test_the_layout_of_2026(tmp_path: Path) -> None:
    path = write_export(tmp_path / "new.sqlite", new())
    kernels = sql(path, "SELECT rank, device, name, dur_ns, correlation_id, graph_id FROM kernels ORDER BY start_ns")
    # $RANK of the profiled command is the rank of its only process. A whole graph has no device when it starts on the
    # host (INT_MAX). 6 is the upper half of the node's id.
    assert [tuple(r.values()) for r in kernels] == [
        (3, 0, "void scale<float>(T1 *)", 50, 11, 5),
        (3, 0, "void scale<float>(T1 *)", 60, 11, 5),
        (3, 0, "void scale<float>(T1 *)", 10, 12, 6),
        (3, None, "[CUDA graph]", 500, 13, 9),
    ]
    # The numbers of the enum tables count where they are there.
    copies = sql(path, "SELECT kind, device, src_device, dst_device, src_memory, dst_memory FROM memcpys")
    assert [tuple(r.values()) for r in copies] == [("PtoP", 1, 1, 0, "Device", "Device")]
    calls = sql(path, "SELECT api, name, correlation_id FROM cuda_calls ORDER BY start_ns")
    assert [tuple(r.values()) for r in calls] == [
        ("runtime", "cudaGraphLaunch", 11),
        ("runtime", "cudaGraphLaunch", 13),
        ("driver", "cuLaunchKernelEx", 12),
        ("sync", "Stream Sync", 15),
    ]
    # In order of time: +7 pinned (host), +100, +30, -100 on device 0, which then holds 30. A module's variable (kind 5,
    # the numbers of the enum tables come on top of nsys's own) is no allocation.
    memory = sql(
        path, "SELECT device_type, device, start_ns, bytes, reserved_bytes FROM memory_events ORDER BY start_ns"
    )
    assert [tuple(r.values()) for r in memory] == [
        ("cuda", 0, 20, 100, 100),
        ("cpu", -1, 25, 7, 7),
        ("cuda", 0, 30, 30, 130),
        ("cuda", 0, 60, -100, 30),
    ]
    assert sql(path, "SELECT tid, end_tid FROM ranges") == [{"tid": 50, "end_tid": 51}]
    # A range that ends on another thread has no projection, although it encloses two launches.
    assert [(r["name"], r["proj_instances"], r["gpu_ops"]) for r in ask(path, "nvtx")] == [("crossing", 0, 0)]
    run = sql(path, "SELECT * FROM runs")[0]
    assert {k: run[k] for k in ("gpu_name", "compute_capability", "host", "driver_version", "start_time")} == {
        "gpu_name": "NVIDIA H200",
        "compute_capability": "9.0",
        "host": "node7",
        "driver_version": "590.1",
        "start_time": "2026-01-02T03:04:05+00:00",
    }
    assert (run["command"], run["world_size"], run["ranks"]) == ("python train.py", 8, 1)
    assert run["warnings"] == (
        "new.sqlite: 1 CUDA graph traced as a whole, without kernels (--cuda-graph-trace=node traces them)"
    )


@pytest.mark.parametrize(
    ("severity", "text"),
    [
        (3, "Something failed.\nDetails"),
        # What nsys 2023.4 says of an API it does not know is a warning by its level.
        (2, "Error when processing events: Unknown runtime API function index: 486"),
        (2, "Not all CUDA events might have been collected."),
    ],
)
def test_losses_that_the_report_records_are_warnings(tmp_path: Path, severity: int, text: str) -> None:
    path = write_export(tmp_path / "new.sqlite", new(severity=severity, text=text))
    warning = sql(path, "SELECT warnings FROM runs")[0]["warnings"]
    assert warning.startswith(f"new.sqlite: the report itself says: {text.splitlines()[0]}; ")


def test_an_unknown_version_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = write_export(tmp_path / "later.sqlite", new(major="9"))
    assert len(sql(path, "SELECT * FROM kernels")) == 4
    assert "export schema 9 is newer" in sql(path, "SELECT warnings FROM runs")[0]["warnings"]


def two_processes(contexts: bool = True, agent_calls: bool = True) -> dict[str, tuple[str, list[Row]]]:
    tables = {
        "META_DATA_EXPORT": ("name value", []),
        "StringIds": ("id value", STRINGS),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId streamId correlationId globalPid demangledName",
            # Rank 1 ran before rank 0; both have the correlation id 1.
            [(300, 400, 1, 7, 1, process(62), 1), (310, 330, 0, 7, 1, process(61), 1)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start end globalTid correlationId nameId",
            [(100, 110, thread(61, 61), 1, 3), (200, 210, thread(62, 62), 1, 3)],
        ),
        "NVTX_EVENTS": (
            "start end eventType text globalTid textId domainId",
            [
                (90, 120, 59, "forward", thread(61, 61), None, 0),
                (190, 220, 59, "loss", thread(62, 62), None, 0),
                # Domain 1 of one process is another than domain 1 of the other.
                (1, None, 75, "first", thread(61, 61), None, 1),
                (1, None, 75, "second", thread(62, 62), None, 1),
                (95, 99, 59, "inner", thread(61, 61), None, 1),
                (195, 199, 59, "inner", thread(62, 62), None, 1),
                # The agent that started both: its domains are no rows, its range belongs to no rank.
                (1, None, 75, "first", thread(60, 60), None, 1),
                (2, 500, 59, "agent", thread(60, 60), None, 0),
            ],
        ),
        "TARGET_INFO_CUDA_CONTEXT_INFO": ("processId deviceId contextId", [(61, 0, 1), (62, 1, 1)]),
    }
    return tables


def test_two_processes_with_the_same_correlation_ids(tmp_path: Path) -> None:
    path = write_export(tmp_path / "ddp.sqlite", two_processes())
    kernels = sql(path, "SELECT rank, pid, device, dur_ns FROM kernels ORDER BY rank")
    assert [tuple(r.values()) for r in kernels] == [(0, 61, 0, 20), (1, 62, 1, 100)]
    ranges = sql(path, "SELECT rank, domain, name FROM ranges ORDER BY start_ns")
    assert [tuple(r.values()) for r in ranges] == [
        (0, None, "forward"),
        (0, "first", "inner"),
        (1, None, "loss"),
        (1, "second", "inner"),
    ]
    # Each kernel goes to the phase that its own process launched it in.
    assert {r["phase"]: (r["gpu_ops"], r["gpu_ns"]) for r in ask(path, "phases")} == {
        "forward": (1, 20),
        "loss": (1, 100),
    }
    assert {r["name"]: r["proj_total_ns"] for r in ask(path, "nvtx") if r["gpu_ops"]} == {"forward": 20, "loss": 100}
    assert [(r["rank"], r["device"], r["busy_ns"]) for r in ask(path, "gpu-busy")] == [(0, 0, 20), (1, 1, 100)]
    run = sql(path, "SELECT ranks, warnings FROM runs")[0]
    assert run == {
        "ranks": 2,
        "warnings": "ddp.sqlite: which process has which rank is guessed from the order of the process ids (61, 62); "
        "1 host event of 1 process without GPU work left out",
    }


def test_partial_report_keeps_its_ranks_with_a_warning(tmp_path: Path) -> None:
    # What nsys 2023.4 leaves of a CUDA 13 program: contexts, ranges, a copy of one process, no kernels.
    tables = two_processes()
    del tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    tables["CUPTI_ACTIVITY_KIND_MEMCPY"] = (
        "start end deviceId streamId correlationId globalPid bytes copyKind",
        [(300, 400, 1, 7, 1, process(62), 8, 1)],
    )
    path = write_export(tmp_path / "partial.sqlite", tables)
    assert sql(path, "SELECT DISTINCT rank, pid FROM ranges ORDER BY ALL") == [
        {"rank": 0, "pid": 61},
        {"rank": 1, "pid": 62},
    ]
    assert sql(path, "SELECT rank FROM memcpys") == [{"rank": 1}]
    warning = sql(path, "SELECT warnings FROM runs")[0]["warnings"]
    assert "no kernel of 2 of 2 ranks is in it (process 61, 62): the report is partial" in warning


def test_without_gpu_work_every_process_is_a_rank(tmp_path: Path) -> None:
    tables = {k: v for k, v in two_processes().items() if k in ("META_DATA_EXPORT", "StringIds", "NVTX_EVENTS")}
    path = write_export(tmp_path / "cpu.sqlite", tables)
    found = sql(path, "SELECT DISTINCT rank, pid FROM ranges ORDER BY ALL")
    assert [tuple(r.values()) for r in found] == [(0, 60), (1, 61), (2, 62)]
    [run] = sql(path, "SELECT warnings FROM runs")
    assert run["warnings"] == (
        "cpu.sqlite: which process has which rank is guessed from the order of the process ids (60, 61, 62)"
    )


def _many_processes(path: Path, processes: int) -> Path:
    """Five kernels of each process, in turn."""
    rows = [(100 + n, 101 + n, 0, 7, n, process(1 + n % processes), 1) for n in range(5 * processes)]
    columns = "start end deviceId streamId correlationId globalPid demangledName"
    tables = {
        "META_DATA_EXPORT": ("name value", []),
        "StringIds": ("id value", STRINGS),
        "CUPTI_ACTIVITY_KIND_KERNEL": (columns, rows),
    }
    return write_export(path, tables)


def test_kernels_of_interleaved_processes(tmp_path: Path) -> None:
    batches = list(read(_many_processes(tmp_path / "many.sqlite", 1000), FileReport()))
    assert [rank for _, rank, _ in batches] == [*range(1000)]
    assert batches[7][2]["start_ns"].to_pylist() == [107, 1107, 2107, 3107, 4107]
    assert set(batches[7][2]["pid"].to_pylist()) == {8}


def test_too_many_processes_is_one_sentence(tmp_path: Path) -> None:
    path = _many_processes(tmp_path / "many.sqlite", 1025)
    with pytest.raises(InputError, match=r"many\.sqlite: 1,025 processes worked on a GPU; .* at most 1,024 is read"):
        list(read(path, FileReport()))


def test_folders_of_parquet_and_arrow_files(tmp_path: Path) -> None:
    # nsys writes ids without sign, and as narrow integers in Arrow.
    expected = write_export(tmp_path / "new.sqlite", new())
    for suffix in (".parquet", ".arrow"):
        folder = tmp_path / f"report{suffix}dir"
        folder.mkdir()
        for table, (columns, rows) in new().items():
            arrays = {}
            for i, name in enumerate(columns.split()):
                values = [r[i] for r in rows]
                kind = pa.uint64() if name.startswith("global") or name == "address" else None
                arrays[name] = pa.array(values, pa.string() if name in TEXT else kind)
            content = pa.table(arrays)
            if suffix == ".parquet":
                pq.write_table(content, folder / (table + suffix))
            else:
                with pa.OSFile(str(folder / (table + suffix)), "wb") as f, pa.ipc.new_stream(f, content.schema) as w:
                    w.write_table(content)
        for table in ("kernels", "memcpys", "cuda_calls", "ranges", "memory_events"):
            select = f"SELECT * EXCLUDE (run_id, run_group) FROM {table} ORDER BY ALL"
            assert sql(folder, select) == sql(expected, select), (suffix, table)


def _files_that_are_none(folder: Path) -> dict[str, Path]:
    whole = write_export(folder / "whole.sqlite", OLD).read_bytes()
    found = {}
    for name, data in (
        ("cut-in-the-middle", whole[: len(whole) // 2]),
        ("cut-in-the-last-page", whole[:-100]),
        ("cut-in-the-header", whole[:50]),
        ("empty", b""),
        ("text", b"no database at all\n"),
    ):
        found[name] = folder / f"{name}.sqlite"
        found[name].write_bytes(data)
    found["foreign"] = write_export(folder / "foreign.sqlite", {"photos": ("id value", [(1, "x")])})
    # A layout that no version wrote: kernels without a start.
    strange = OLD | {"CUPTI_ACTIVITY_KIND_KERNEL": ("begin finish globalPid", [(1, 2, process(40))])}
    found["strange"] = write_export(folder / "strange.sqlite", strange)
    # A byte of a page's own bookkeeping: how many rows it holds. SQLite reads on, and one row is not there.
    pages = bytearray(whole)
    page = next(at for at in range(4096, len(whole), 4096) if pages[at] == 13 and pages[at + 4] > 1)
    pages[page + 4] -= 1
    found["page"] = folder / "page.sqlite"
    found["page"].write_bytes(pages)
    found["journal"] = write_export(folder / "journal.sqlite", OLD)
    (folder / "journal.sqlite-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    return found


def test_other_files_are_one_sentence_and_leave_the_store_unchanged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    good = write_export(tmp_path / "good.sqlite", OLD)
    assert run_cli("ingest", good, "--store", store).returncode == 0
    before = {p: p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}
    said = {}
    for name, path in _files_that_are_none(tmp_path / "bad").items():
        done = run_cli("ingest", path, "--store", store)
        assert done.returncode == 2, name
        assert len(done.stderr.strip().splitlines()) == 1 and path.name in done.stderr, done.stderr
        said[name] = done.stderr
    assert {p: p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()} == before
    for name, reason in {
        "cut-in-the-middle": "truncated",
        "cut-in-the-last-page": "truncated",
        "cut-in-the-header": "damaged or truncated",
        "empty": "the file is empty",
        "text": "not an SQLite file",
        "foreign": "not an export of Nsight Systems",
        "strange": "CUPTI_ACTIVITY_KIND_KERNEL has no column 'start'",
        "page": "damaged: SQLite's check says: ",
        "journal": "writing it was interrupted (journal.sqlite-journal is next to it)",
    }.items():
        assert reason in said[name], said[name]
