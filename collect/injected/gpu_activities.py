"""Records only what runs on the GPU: kernels, copies and fills, as activity records of CUPTI.

Nothing else is recorded on the host: the program is hardly slowed down. `cupti-python` delivers the records, which are
written as Kineto writes them, so that whatever reads a trace of torch.profiler reads this one, too.
"""

from __future__ import annotations

import ctypes
import gzip
import importlib.metadata
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .job import process_group
from .torch_internals import find

PACKAGE = "cupti-python"
BUFFER_BYTES = 64 << 20
"""Size of a buffer that CUPTI fills, one for each thread that launches: 300,000 kernels. Taking one costs 30 ms, and
emptying a full one seconds, during which the program waits."""
LATER_BUFFER_BYTES = 1 << 20
"""Size of a buffer that is taken after the warm-up: threads that a program starts in each step launch few kernels."""
RECORDS = {
    "CONCURRENT_KERNEL": r"activity_kernel\d+_dtype",
    "MEMCPY": r"activity_memcpy\d+_dtype",
    "MEMCPY2": r"activity_memcpy_pto_p\d+_dtype",
    "MEMSET": r"activity_memset\d+_dtype",
}
"""The kinds of activity, and the NumPy types that cupti-python has of their records; the number is CUPTI's version."""
COPY_KINDS = ("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
"""Names of CUpti_ActivityMemcpyKind, as Kineto prints them."""
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
"""Names of CUpti_ActivityMemoryKind."""
CLOCK_READINGS = 20


def unavailable() -> str | None:
    """Say why cupti-python cannot be used with the CUDA that torch has loaded; None if it can."""
    import torch

    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return f"{PACKAGE} is not installed"
    if version.split(".")[0] != str(torch.version.cuda).split(".")[0]:
        return f"{PACKAGE} {version} does not fit CUDA {torch.version.cuda}, which torch has loaded"
    try:
        GpuActivities()
    except Exception as e:
        return f"{PACKAGE} {version} cannot be used: {type(e).__name__}: {e}"
    return None


class GpuActivities:
    """Records kernels, copies and fills from start() to stop()."""

    def __init__(self) -> None:
        """Record nothing yet. Raises what importing cupti-python raises; see unavailable()."""
        from cupti import cupti

        self._cupti = cupti
        self._types = {}
        """NumPy type of the records, by the number of their kind."""
        for kind, pattern in RECORDS.items():
            name = next(n for n in vars(cupti) if re.fullmatch(pattern, n))
            self._types[int(cupti.ActivityKind[kind])] = getattr(cupti, name)
        self._kernel, self._copy, self._peer_copy, self._fill = self._types
        self._records: dict[int, list[bytes]] = {kind: [] for kind in self._types}
        self._names: dict[bytes, int] = {}
        """Mangled names of kernels, numbered."""
        self._name_of: list[int] = []
        """Number of the name of each kernel's record."""
        self._offset_ns = 0
        """Offset from CUPTI's timestamps to time.time_ns()."""
        self._buffer_bytes = BUFFER_BYTES
        """Size of the next buffer."""

    @property
    def recorder(self) -> str:
        """The package that records, and its version."""
        return f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"

    def start(self) -> None:
        """Start to record. The first step takes longer than the others: CUPTI takes its buffers."""
        self._cupti.activity_register_callbacks(lambda: (self._buffer_bytes, 0), self.take)
        for kind in self._types:
            self._cupti.activity_enable(kind)
        self._offset_ns = self._clock_offset_ns()

    def end_warmup(self) -> None:
        """Let threads that launch for the first time from now on take small buffers."""
        self._buffer_bytes = LATER_BUFFER_BYTES

    def stop(self) -> None:
        """Stop, and detach CUPTI, which slows the program down until then."""
        for kind in self._types:
            self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(1)
        self._cupti.finalize()

    def write(self, path: Path, steps: list[tuple[int, int, int]]) -> bool:
        """Write a gzip-compressed Chrome trace; return False, and write nothing, if there is no GPU work.

        `steps`: number, start and end of each step by time.time_ns(). What started before the first one is left out:
        it belongs to the warm-up. Raises OSError.
        """
        begin_ns = steps[0][1] if steps else 0
        events = [e for e in self._events() if e[0] >= begin_ns]
        if not events:
            return False
        base_ns = min(events[0][0], begin_ns or events[0][0]) // 10**9 * 10**9
        header = {
            "schemaVersion": 1,
            "deviceProperties": _device_properties(),
            **_distributed_info(),
            "recorder": self.recorder,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base_ns,
        }
        with gzip.open(path, "wt", compresslevel=6, encoding="utf-8") as out:
            out.write(json.dumps(header)[:-1] + ', "traceEvents": [')
            for i, (start_ns, end_ns, event) in enumerate(itertools.chain(_step_events(steps), events)):
                times = {"ph": "X", "ts": (start_ns - base_ns) / 1000, "dur": (end_ns - start_ns) / 1000}
                out.write((",\n" if i else "\n") + json.dumps(times | event))
            out.write("\n]}\n")
        return True

    def _clock_offset_ns(self) -> int:
        """Return time.time_ns() - CUPTI's clock, from the fastest of several readings."""
        readings = []
        for _ in range(CLOCK_READINGS):
            before = time.time_ns()
            timestamp = self._cupti.get_timestamp()
            after = time.time_ns()
            readings.append((after - before, (before + after) // 2 - timestamp))
        return min(readings)[1]

    def take(self, activities: list[Any]) -> None:
        """Copy the records of a buffer. Their attributes are not used: each costs 3 us."""
        name_at = self._types[self._kernel].fields["name"][1]
        for activity in activities:
            address = activity.ptr
            kind = ctypes.c_int.from_address(address).value  # the first field of every record
            if kind not in self._records:
                continue
            self._records[kind].append(ctypes.string_at(address, self._types[kind].itemsize))
            if kind == self._kernel:
                name = ctypes.string_at(ctypes.c_void_p.from_address(address + name_at).value or 0)
                self._name_of.append(self._names.setdefault(name, len(self._names)))

    def _events(self) -> list[tuple[int, int, dict[str, Any]]]:
        """Start, end and what else Kineto writes of all GPU work, in order of start."""
        import numpy

        demangle = find("torch._C._demangle") or str
        names = [demangle(name.decode()) for name in self._names]
        found = []
        for kind, records in self._records.items():
            columns = numpy.frombuffer(b"".join(records), self._types[kind])
            rows = zip(*(columns[name].tolist() for name in self._columns(kind)), strict=True)
            for i, (start, end, device, context, stream, correlation, graph, node, *own) in enumerate(rows):
                args = {"device": device, "context": context, "stream": stream, "correlation": correlation}
                if graph:
                    args |= {"graph id": graph, "graph node id": node}
                event = {"pid": device, "tid": stream, **self._described(kind, own), "args": args}
                if kind == self._kernel:
                    event["name"] = names[self._name_of[i]]
                args |= event.pop("own")
                found.append((start + self._offset_ns, end + self._offset_ns, event))
        return sorted(found, key=lambda e: e[:2])

    def _columns(self, kind: int) -> list[str]:
        """Fields of a record that are written."""
        ids = ["start", "end", "device_id", "context_id", "stream_id", "correlation_id", "graph_id", "graph_node_id"]
        if kind == self._kernel:
            sizes = [f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"]
            return [*ids, *sizes, "registers_per_thread", "static_shared_memory", "dynamic_shared_memory"]
        if kind == self._fill:
            return [*ids, "memory_kind", "bytes"]
        devices = ["src_device_id", "dst_device_id"] if kind == self._peer_copy else []
        return [*ids, "copy_kind", "src_kind", "dst_kind", "bytes", *devices]

    def _described(self, kind: int, own: list[int]) -> dict[str, Any]:
        """Category, name (but a kernel's) and arguments of its own of a piece of GPU work."""
        if kind == self._kernel:
            shared = own[7] + own[8]
            args: dict[str, Any] = {"registers per thread": own[6], "shared memory": shared}
            return {"cat": "kernel", "own": args | {"grid": own[:3], "block": own[3:6]}}
        if kind == self._fill:
            return {"cat": "gpu_memset", "name": f"Memset ({MEMORY_KINDS[own[0]]})", "own": {"bytes": own[1]}}
        name = f"Memcpy {COPY_KINDS[own[0]]} ({MEMORY_KINDS[own[1]]} -> {MEMORY_KINDS[own[2]]})"
        devices = dict(zip(("fromDevice", "toDevice"), own[4:], strict=False))
        return {"cat": "gpu_memcpy", "name": name, "own": {"bytes": own[3]} | devices}


def _step_events(steps: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The ranges of the steps, as torch.profiler has them."""
    place = {"pid": os.getpid(), "tid": threading.get_native_id()}
    for number, start_ns, end_ns in steps:
        yield start_ns, end_ns, {"cat": "user_annotation", "name": f"ProfilerStep#{number}", **place, "args": {}}


def _device_properties() -> list[dict[str, Any]]:
    """The GPUs that the process sees, with Kineto's names."""
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "id": index,
                "name": properties.name,
                "totalGlobalMem": properties.total_memory,
                "computeMajor": properties.major,
                "computeMinor": properties.minor,
                "maxThreadsPerMultiprocessor": properties.max_threads_per_multi_processor,
                "warpSize": properties.warp_size,
                "numSms": properties.multi_processor_count,
            }
        )
    return found


def _distributed_info() -> dict[str, Any]:
    """The rank of the process in its job; nothing outside one."""
    group = process_group()
    if group is None:
        return {}
    return {"distributedInfo": {"rank": group.get_rank(), "world_size": group.get_world_size()}}
