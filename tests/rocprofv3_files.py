"""Recordings of AMD's rocprofv3, written by hand after ROCm's schema: its databases (rocpd) and its JSON.

Both hold the same: a kernel of 500 us that a hipLaunchKernel of 20 us, 100 us earlier, launched on stream 3 of the
second GPU, with 1,024 work-items in groups of 256; a copy of 4,096 B to that GPU; and a range.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

GUID = "_00049be3_1c39"
ROWS: dict[str, list[dict[str, Any]]] = {
    "string": [
        {"id": 1, "string": "hipLaunchKernel"}, {"id": 2, "string": "HIP_RUNTIME_API_EXT"},
        {"id": 3, "string": "MEMORY_COPY_HOST_TO_DEVICE"}, {"id": 4, "string": "MARKER_CORE_RANGE_API"},
        {"id": 5, "string": "roctxRangePushA"}, {"id": 6, "string": "KERNEL_DISPATCH"},
    ],
    "info_node": [{"id": 1, "hostname": "node7"}],
    "info_process": [{"id": 1, "pid": 4242, "command": "python train.py"}],
    "info_thread": [{"id": 1, "tid": 4243}],
    "info_agent": [
        {"id": 1, "type": "CPU", "type_index": 0, "product_name": "AMD EPYC"},
        {"id": 5, "type": "GPU", "type_index": 1, "product_name": "AMD Instinct MI300X"},
    ],
    "info_kernel_symbol": [{"id": 9, "kernel_name": "_Z4gemmPf.kd", "display_name": "gemm(float*)"}],
    "event": [
        {"id": 1, "category_id": 2, "stack_id": 77}, {"id": 2, "category_id": 6, "stack_id": 77},
        {"id": 3, "category_id": 4, "stack_id": 78, "extdata": '{"message": "forward"}'},
    ],
    "kernel_dispatch": [
        {"id": 1, "pid": 1, "agent_id": 5, "kernel_id": 9, "queue_id": 1, "stream_id": 3, "start": 1_100_000,
         "end": 1_600_000, "workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1, "grid_size_x": 1024,
         "grid_size_y": 1, "grid_size_z": 1, "group_segment_size": 64, "event_id": 2},
    ],
    "memory_copy": [
        {"id": 1, "pid": 1, "start": 900_000, "end": 950_000, "name_id": 3, "src_agent_id": 1, "dst_agent_id": 5,
         "size": 4096, "stream_id": 3, "event_id": None},
    ],
    "region": [
        {"id": 1, "pid": 1, "tid": 1, "start": 1_000_000, "end": 1_020_000, "name_id": 1, "event_id": 1},
        {"id": 2, "pid": 1, "tid": 1, "start": 990_000, "end": 1_700_000, "name_id": 5, "event_id": 3},
    ],
}  # fmt: skip


def rocpd(path: Path, rows: dict[str, list[dict[str, Any]]] = ROWS) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for table, of_table in rows.items():
            names = list(dict.fromkeys(name for row in of_table for name in row))
            database.execute(f'CREATE TABLE "rocpd_{table}{GUID}" ({", ".join(map(json.dumps, names))})')
            places = ", ".join("?" * len(names))
            values = [[row.get(name) for name in names] for row in of_table]
            database.executemany(f'INSERT INTO "rocpd_{table}{GUID}" VALUES ({places})', values)
        database.commit()
    return path


def record(kind: int, operation: int, start: int, end: int, internal: int, **more: Any) -> dict[str, Any]:
    times = {"start_timestamp": start, "end_timestamp": end}
    return {"kind": kind, "operation": operation, **times, "correlation_id": {"internal": internal}, **more}


def size(x: int) -> dict[str, int]:
    return {"x": x, "y": 1, "z": 1}


def rocprof_json(path: Path) -> Path:
    info = {
        "agent_id": {"handle": 55}, "queue_id": {"handle": 1}, "kernel_id": 9, "group_segment_size": 64,
        "workgroup_size": size(256), "grid_size": size(1024),
    }  # fmt: skip
    kinds = [["HIP_RUNTIME_API", "hipLaunchKernel"], ["KERNEL_DISPATCH", "NONE"], ["MEMORY_COPY", "HOST_TO_DEVICE"]]
    process = {
        "metadata": {"command": ["python", "train.py"]},
        "agents": [
            {"id": {"handle": 11}, "type": 1, "name": "EPYC"},
            {"id": {"handle": 55}, "type": 2, "logical_node_type_id": 1, "product_name": "AMD Instinct MI300X"},
        ],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": [name]} for kind, name in [*kinds, ["MARKER", "push"]]],
            "marker_api": [{"key": 78, "value": "forward"}],
        },
        "kernel_symbols": [{"kernel_id": 9, "kernel_name": "_Z4gemmPf.kd", "formatted_kernel_name": "gemm(float*)"}],
        "buffer_records": {
            "kernel_dispatch": [
                record(1, 0, 1_100_000, 1_600_000, 77, stream_id={"handle": 3}, dispatch_info=info)
            ],
            "memory_copy": [
                record(2, 0, 900_000, 950_000, 76, src_agent_id={"handle": 11}, dst_agent_id={"handle": 55},
                       stream_id={"handle": 3}, bytes=4096)
            ],
            "hip_api": [record(0, 0, 1_000_000, 1_020_000, 77, thread_id=4243)],
            "marker_api": [record(3, 0, 990_000, 1_700_000, 78, thread_id=4243)],
        },
    }  # fmt: skip
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path
