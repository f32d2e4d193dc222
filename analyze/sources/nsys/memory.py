"""Convert the memory events of an Nsight Systems export to rows of memory_events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.names import Names, labels
from analyze.sources.nsys.open_export import Tables
from analyze.sources.nsys.rows import UNKNOWN_DEVICE, Owners, Skipped, pids, record_batch
from analyze.sources.nsys.values import PROCESS_BITS, filtered

_HOST_MEMORY = ("Pageable", "Pinned")
_MOST_BYTES = 1 << 50
"""Limit of a size. Sums of 2^13 such sizes fit into int64."""


def memory_batches(
    tables: Tables, names: Names, owners: Owners, skipped: Skipped
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield CUDA_GPU_MEMORY_USAGE_EVENTS as memory_events: what a process allocates from the driver and frees.

    `reserved_bytes`: all memory that the process then holds on the device (device -1: pinned host memory): that of
    PyTorch's caching allocator, NCCL, cuBLAS and modules. `allocated_bytes` is NULL: Nsight Systems does not see how
    much the caching allocator has handed out. Static variables of modules (kinds ... Static) have no rows: no call
    allocates them, and nsys lists them under device 0 always. Memory from before the recording is at time 0.
    Rows without a time, a size or a known operation are counted in `skipped`.
    """
    columns = ["start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType"]
    static = pa.array([k for k, name in names.memory_kinds.items() if name.endswith("Static")], pa.int64())
    operations = {0: "Allocation", 1: "Deallocation"} | labels(tables, "ENUM_CUDA_DEV_MEM_EVENT_OPER")
    batches = []
    for batch in tables.batches("CUDA_GPU_MEMORY_USAGE_EVENTS", columns):
        batch = filtered(batch, pc.invert(pc.is_in(batch["memKind"], static)))
        batch = skipped.choose("memory_events", batch, pc.is_valid(batch["start"]), "without a start")
        sized = pc.and_(pc.greater_equal(batch["bytes"], 0), pc.less(batch["bytes"], _MOST_BYTES))
        batch = skipped.choose("memory_events", batch, sized, "without a size that can be")
        known = pc.is_in(batch["memoryOperationType"], pa.array(list(operations), pa.int64()))
        batches.append(skipped.choose("memory_events", batch, known, "without a known operation"))
    if not batches:
        return
    host_kinds = [k for k, name in names.memory_kinds.items() if name in _HOST_MEMORY]
    frees = [k for k, label in operations.items() if label == "Deallocation"]
    whole = {c: pa.concat_arrays([b[c] for b in batches]) for c in columns}
    process = pc.bit_wise_and(whole["globalPid"], PROCESS_BITS).fill_null(0).to_numpy(zero_copy_only=False)
    on_host = pc.is_in(whole["memKind"], pa.array(host_kinds, pa.int64())).to_numpy(zero_copy_only=False)
    device = np.where(on_host, -1, whole["deviceId"].fill_null(UNKNOWN_DEVICE).to_numpy(zero_copy_only=False))
    freed = pc.is_in(whole["memoryOperationType"], pa.array(frees, pa.int64())).to_numpy(zero_copy_only=False)
    size = whole["bytes"].to_numpy(zero_copy_only=False)
    change = np.where(freed, -size, size)
    start = whole["start"].to_numpy(zero_copy_only=False)
    if unowned := 0 if 0 in owners.ranks else int(np.count_nonzero(process == 0)):
        skipped.add("memory_events", "of no process", unowned)
    order = np.lexsort((start, process))
    by_rank: dict[int | None, list[np.ndarray]] = {}
    for one, rank in owners.ranks.items():
        first, end = np.searchsorted(process, [one, one + 1], sorter=order)
        if (shared := owners.device(one)) is not None:
            device[order[first:end]] = np.where(device[order[first:end]] == -1, -1, shared)
        by_rank.setdefault(rank, []).append(order[first:end])
    for rank, parts in by_rank.items():
        rows_of = np.concatenate(parts)
        if not len(rows_of):
            continue
        rows_of = rows_of[np.argsort(start[rows_of], kind="stable")]
        held = np.empty(len(rows_of), np.int64)
        by_device = np.argsort(device[rows_of], kind="stable")
        ends = np.flatnonzero(np.diff(device[rows_of][by_device])) + 1
        for here in np.split(by_device, ends):
            held[here] = np.cumsum(change[rows_of][here])
        built = {
            "pid": pids(whole["globalPid"]).take(pa.array(rows_of)),
            "device_type": pa.array(["cuda", "cpu"]).take(pa.array(on_host[rows_of].astype(np.int64))),
            "device": pa.array(device[rows_of]),
            "start_ns": pa.array(start[rows_of]),
            "addr": whole["address"].take(pa.array(rows_of)),
            "bytes": pa.array(change[rows_of]),
            "reserved_bytes": pa.array(held),
        }
        yield rank, record_batch("memory_events", built, len(rows_of))
