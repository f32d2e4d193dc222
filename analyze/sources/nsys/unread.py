"""Name the tables of an Nsight Systems export whose events are not read."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.counters import FAULT_TABLES, METRICS, NETWORK
from analyze.sources.nsys.names import NVTX_TABLES
from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.rows import EVENT_TABLES
from analyze.sources.nsys.thread_states import THREAD_TABLES

_TIMES = ("start", "timestamp", "rawTimestamp")
"""Columns of times; a table of events has one of them."""

_NVTX_MARK = 34
"""NVTX_EVENTS.eventType of an event without a length."""

_GENERIC = "GENERIC_EVENTS"

_NAME = re.compile(r"[A-Za-z0-9_]{1,80}")
_SHOWN = 16
"""Most tables that are named."""

_READ = (
    {event.source for event in (*EVENT_TABLES, *FAULT_TABLES, *THREAD_TABLES)}
    | {METRICS, *NETWORK}
    | {
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "DIAGNOSTIC_EVENT",
        "PROFILER_OVERHEAD",  # of the profiler itself
        "TARGET_INFO_SESSION_START_TIME",
    }
)

_KINDS: Mapping[str, str] = {
    "MPI_": "MPI calls",
    "NIC_": "NIC metrics",
    "IB_": "InfiniBand metrics",
    "NET_": "network metrics",
    "UCX_": "UCX calls",
    "SHMEM_": "OpenSHMEM calls",
    "NVSHMEM_": "NVSHMEM calls",
    "CUDNN_": "cuDNN calls",
    "CUBLAS_": "cuBLAS calls",
    "OPENACC_": "OpenACC",
    "OPENMP_": "OpenMP",
    "GPU_CONTEXT_SWITCH": "context switches of GPUs",
    "NVVIDEO_": "NVIDIA video",
    "SYSCALL": "system calls",
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE": "host nodes of CUDA graphs",
}
"""Contents of tables by the beginning of their names; other tables are only named."""


def unread_tables(tables: Tables) -> list[str]:
    """Return a phrase for each table with events that are not read: `UCX calls (UCX_EVENTS: 1 row)`."""
    found = [f"NVTX marks ({table}: {_rows(n)})" for table in NVTX_TABLES if (n := _marks(tables, table))]
    for table in sorted(name for name in tables.names() - _READ if _NAME.fullmatch(name)):
        times = tables.columns(table).intersection(_TIMES)
        n = _other_events(tables) if table == _GENERIC and times else _count(tables, table, [*times])
        if not n:
            continue
        kind = next((words for start, words in _KINDS.items() if table.startswith(start)), None)
        found.append(f"{kind} ({table}: {_rows(n)})" if kind else f"{table} ({_rows(n)})")
    return found[:_SHOWN] + ([f"{len(found) - _SHOWN} more tables"] if len(found) > _SHOWN else [])


def _count(tables: Tables, table: str, columns: list[str]) -> int:
    return sum(len(batch[columns[0]]) for batch in tables.batches(table, columns)) if columns else 0


def _other_events(tables: Tables) -> int:
    """Return the number of generic events that are not the samples of GPU_METRICS once more."""
    sources = {r["sourceId"] for r in rows(tables, "TARGET_INFO_GPU_METRICS", ["sourceId"])} - {None}
    types = rows(tables, "GENERIC_EVENT_TYPES", ["typeId", "sourceId"])
    known = pa.array([r["typeId"] for r in types if r["sourceId"] in sources], pa.int64())
    ids = [batch["typeId"] for batch in tables.batches(_GENERIC, ["typeId"])]
    return sum(len(i) - (pc.sum(pc.is_in(i, known)).as_py() or 0) for i in ids)


def _marks(tables: Tables, table: str) -> int:
    return sum(pc.sum(pc.equal(b["eventType"], _NVTX_MARK)).as_py() or 0 for b in tables.batches(table, ["eventType"]))


def _rows(n: int) -> str:
    return f"{n:,} row{'s' if n != 1 else ''}"
