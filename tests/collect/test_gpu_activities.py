"""GPU-only recordings by CUPTI: records as cupti-python delivers them become a trace as Kineto writes it."""

from __future__ import annotations

import ctypes
import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pytest
from commands import run_cli

from collect.injected.gpu_activities import GpuActivities

cupti = pytest.importorskip("cupti.cupti", exc_type=ImportError)  # docs/collect.md says how to install it

MANGLED = ctypes.create_string_buffer(b"_Z3addPfS_i")
LINK = {"device_id": 1, "context_id": 1, "stream_id": 7, "correlation_id": 40, "graph_id": 0, "graph_node_id": 0}


class Record:
    """An activity record of CUPTI in memory; cupti-python's objects have its address as `ptr`, too."""

    def __init__(self, type_name: str, kind: str, **fields: int) -> None:
        """Fill a record of one of cupti-python's NumPy types; other fields are 0."""
        self._row = numpy.zeros(1, getattr(cupti, type_name))
        for name, value in (LINK | {"kind": int(cupti.ActivityKind[kind])} | fields).items():
            self._row[name] = value
        self.ptr = self._row.ctypes.data


def type_of(prefix: str) -> str:
    """Name of cupti-python's type of a record, whose number is CUPTI's version."""
    return next(n for n in dir(cupti) if n.startswith(prefix) and n.removeprefix(prefix)[0].isdecimal())


def kernel(start: int, end: int, **fields: int) -> Record:
    """A kernel `add(float*, float*, int)` of 4 x 1 x 1 blocks of 32 x 2 x 1 threads."""
    size = dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (4, 1, 1, 32, 2, 1), strict=True))
    size |= {"registers_per_thread": 24, "static_shared_memory": 512, "dynamic_shared_memory": 1024}
    name = {"name": ctypes.addressof(MANGLED)}
    return Record(type_of("activity_kernel"), "CONCURRENT_KERNEL", start=start, end=end, **size | name | fields)


RECORDS = [
    kernel(500, 900),  # of the warm-up
    kernel(2000, 3500),
    kernel(4000, 4100, stream_id=9, graph_id=3, graph_node_id=17),
    Record(
        type_of("activity_memcpy"), "MEMCPY",
        start=5000, end=6000, copy_kind=int(cupti.ActivityMemcpyKind.HTOD), src_kind=2, dst_kind=3, bytes=4096,
    ),
    Record(
        type_of("activity_memcpy_pto_p"), "MEMCPY2",
        start=6000, end=6500, copy_kind=int(cupti.ActivityMemcpyKind.PTOP), src_kind=3, dst_kind=3, bytes=64,
        src_device_id=1, dst_device_id=0,
    ),
    Record(type_of("activity_memset"), "MEMSET", start=7000, end=7001, memory_kind=3, bytes=8),
]  # fmt: skip


def trace(path: Path, records: list[Any], steps: list[tuple[int, int, int]]) -> dict[str, Any]:
    """The trace that is written of these records."""
    activities = GpuActivities()
    activities.take(records)
    assert activities.write(path, steps)
    with gzip.open(path, "rt") as f:
        read: dict[str, Any] = json.load(f)
    return read


def test_events_are_those_that_kineto_writes(tmp_path: Path) -> None:
    """Names and arguments as in a trace of torch 2.11 of an H100; warm-up is left out."""
    written = trace(tmp_path / "rank-0.trace.json.gz", RECORDS, [(5, 1000, 4500), (6, 4500, 8000)])
    events = written["traceEvents"]
    assert [(e["cat"], e["name"], e["ts"], e["dur"]) for e in events] == [
        ("user_annotation", "ProfilerStep#5", 1.0, 3.5),
        ("user_annotation", "ProfilerStep#6", 4.5, 3.5),
        ("kernel", "add(float*, float*, int)", 2.0, 1.5),
        ("kernel", "add(float*, float*, int)", 4.0, 0.1),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 5.0, 1.0),
        ("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 6.0, 0.5),
        ("gpu_memset", "Memset (Device)", 7.0, 0.001),
    ]
    link = {"device": 1, "context": 1, "stream": 7, "correlation": 40}
    size = {"registers per thread": 24, "shared memory": 1536, "grid": [4, 1, 1], "block": [32, 2, 1]}
    assert [e["args"] for e in events[2:]] == [
        link | size,
        link | size | {"stream": 9, "graph id": 3, "graph node id": 17},
        link | {"bytes": 4096},
        link | {"bytes": 64, "fromDevice": 1, "toDevice": 0},
        link | {"bytes": 8},
    ]


def test_analyze_reads_the_trace(tmp_path: Path) -> None:
    """Two kernels of 1,500 and 100 ns, as the records say."""
    path, out = tmp_path / "rank-0.trace.json.gz", tmp_path / "kernels.parquet"
    trace(path, RECORDS, [(5, 1000, 8000)])
    done = run_cli("sql", "SELECT * FROM kernels ORDER BY start_ns", path, "--format", "parquet", "-o", out)
    assert done.returncode == 0, done.stderr
    columns = "name, dur_ns, device, stream, grid_x, block_x, registers, shared_mem_bytes, graph_id, graph_node_id"
    assert duckdb.execute(f"SELECT {columns} FROM '{out}'").fetchall() == [
        ("add(float*, float*, int)", 1500, 1, 7, 4, 32, 24, 1536, None, None),
        ("add(float*, float*, int)", 100, 1, 9, 4, 32, 24, 1536, 3, 17),
    ]


def test_nothing_is_written_without_gpu_work(tmp_path: Path) -> None:
    """A process that launched nothing in its steps has no GPU-only recording."""
    activities = GpuActivities()
    activities.take([kernel(500, 900)])
    assert not activities.write(tmp_path / "x.json.gz", [(5, 1000, 2000)])
    assert not list(tmp_path.iterdir())
