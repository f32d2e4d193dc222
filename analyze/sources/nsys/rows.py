"""Convert rows of the event tables of an Nsight Systems export to rows of the tables.

`EVENT_TABLES` maps tables of the export to tables. Columns are computed as whole Arrow arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError
from analyze.sources.interface import batch_schema
from analyze.sources.nsys.names import NVTX_TABLES, Names, mapped
from analyze.sources.nsys.open_export import Tables
from analyze.sources.nsys.stacks import CALL_TABLES, CUDA_CALLS
from analyze.sources.nsys.values import PROCESS_BITS, Columns, filtered

_THREAD_BITS = ~PROCESS_BITS
UNKNOWN_DEVICE = 2**31 - 1
"""Device indices from here on mean that there is no device (CUPTI writes INT_MAX and UINT_MAX)."""

NVTX_STYLES = {59: "PushPop", 60: "StartEnd", 70: "PushPop", 71: "StartEnd"}
"""Style of a range by NVTX_EVENTS.eventType (70 and 71: ranges imported from NVTXT files)."""

_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""CUpti_ActivitySynchronizationType, named as by torch.profiler."""

_DRIVER = re.compile(r"cu(?!da)")
"""Beginning of calls of the CUDA driver."""

_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")

_CALL_NUMBERS = re.compile(r"(?:, (?:seq|op_id) = [0-9]+)+(?=,|\Z)|, input_op_ids = \[[0-9(), ]*\]\Z")
"""`aten::mm, seq = 5, op_id = 12, sizes = [[2, 3]], input_op_ids = [(11,0)]` is a call of aten::mm with that size."""

Built = dict[str, Any]
"""Columns of a table: arrays, or one string for all rows."""


def _size(sizes: pa.Array) -> pa.Array:
    """Return sizes or lengths; NULL for negative ones."""
    return pc.if_else(pc.greater_equal(sizes, 0), sizes, pa.scalar(None, pa.int64()))


def pids(ids: pa.Array) -> pa.Array:
    """Return the system's process ids of global ids."""
    return pc.bit_wise_and(pc.shift_right(ids, 24), _THREAD_BITS)


def thread(batch: Columns) -> Built:
    """Return process and thread."""
    return {"pid": pids(batch["globalTid"]), "tid": pc.bit_wise_and(batch["globalTid"], _THREAD_BITS)}


def times(batch: Columns) -> Built:
    """Return start and length."""
    return {"start_ns": batch["start"], "dur_ns": _size(pc.subtract(batch["end"], batch["start"]))}


def _gpu(batch: Columns) -> Built:
    # The upper half of graphNodeId is the graph; exports since 2024 also have graphId.
    graph = pc.coalesce(batch["graphId"], pc.shift_right(batch["graphNodeId"], 32))
    return times(batch) | {
        "pid": pids(batch["globalPid"]),
        "device": batch["deviceId"],
        "stream": batch["streamId"],
        "correlation_id": batch["correlationId"],
        "graph_id": graph,
        "graph_node_id": batch["graphNodeId"],
    }


def _kernels(batch: Columns, names: Names, process: int) -> Built:
    name = pc.coalesce(*(names.lookup(batch[c]) for c in ("demangledName", "shortName", "mangledName")))
    built = _gpu(batch) | {
        "name": name.fill_null("(unknown)"),
        "registers": batch["registersPerThread"],
        # An overflowing sum is negative.
        "shared_mem_bytes": _size(pc.add(_size(batch["staticSharedMemory"]), _size(batch["dynamicSharedMemory"]))),
    }
    return built | {f"{kind}_{axis.lower()}": batch[kind + axis] for kind in ("grid", "block") for axis in "XYZ"}


def _graph_launches(batch: Columns, names: Names, process: int) -> Built:
    return _gpu(batch) | {"name": GRAPH_LAUNCH}


def _memcpys(batch: Columns, names: Names, process: int) -> Built:
    return _gpu(batch) | {
        "kind": mapped(batch["copyKind"], names.copy_kinds).fill_null("Unknown"),
        "src_device": batch["srcDeviceId"],
        "dst_device": batch["dstDeviceId"],
        "src_memory": mapped(batch["srcKind"], names.memory_kinds),
        "dst_memory": mapped(batch["dstKind"], names.memory_kinds),
        "bytes": _size(batch["bytes"]),
    }


def _memsets(batch: Columns, names: Names, process: int) -> Built:
    return _gpu(batch) | {"dst_memory": mapped(batch["memKind"], names.memory_kinds), "bytes": _size(batch["bytes"])}


def _calls(batch: Columns, names: Names, process: int) -> Built:
    batch = names.backtraces.join(batch, process)
    called = names.lookup(batch["nameId"]).fill_null("(unknown)").dictionary_encode()
    distinct = called.dictionary.to_pylist()
    return (
        thread(batch)
        | times(batch)
        | {
            "name": pa.array([_VERSION_SUFFIX.sub("", n) for n in distinct], pa.string()).take(called.indices),
            "api": pa.array(["driver" if _DRIVER.match(n) else "runtime" for n in distinct]).take(called.indices),
            "correlation_id": batch["correlationId"],
            "stack": names.stacks.paths(CUDA_CALLS, batch["callchainId"]),
        }
    )


def _synchronisations(batch: Columns, names: Names, process: int) -> Built:
    return times(batch) | {
        "pid": pids(batch["globalPid"]),
        "name": mapped(batch["syncType"], _SYNC_NAMES).fill_null("Unknown Sync"),
        "api": "sync",
        "correlation_id": batch["correlationId"],
    }


def _ranges(batch: Columns, names: Names, process: int) -> Built:
    return (
        thread(batch)
        | times(batch)
        | {
            "origin": "nvtx",
            "domain": names.domains(process, batch["domainId"]),
            "style": mapped(batch["eventType"], NVTX_STYLES),
            "name": _names(names.text(batch)),
            "end_tid": pc.bit_wise_and(batch["endGlobalTid"], _THREAD_BITS),
        }
    )


def _names(texts: pa.Array) -> pa.Array:
    """Remove the numbers of the call that torch's `emit_nvtx` appends to names of ranges."""
    coded = texts.dictionary_encode()
    names = [_CALL_NUMBERS.sub("", n) if " = " in n else n for n in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)


def _is_range(batch: Columns) -> pa.Array:
    return pc.is_in(batch["eventType"], pa.array(list(NVTX_STYLES), pa.int64()))


GRAPH_LAUNCH = "[CUDA graph]"
"""Name in `kernels` of a CUDA graph that was traced as a whole: the export has its time but not its kernels."""

_GPU_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId", "callchainId", "eventClass")
_RANGE_COLUMNS = ("start", "end", "eventType", "text", "textId", "globalTid", "endGlobalTid", "domainId")
_KERNEL_COLUMNS = (
    "demangledName", "shortName", "mangledName", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
)  # fmt: skip


class EventTable(NamedTuple):
    """A table of the export whose rows become rows of a table.

    `owner`: the column with the global id of the process. `columns`: all that are read, NULL where the export has none.
    `chosen`: selects rows; None: all.
    """

    source: str
    table: str
    owner: str
    columns: tuple[str, ...]
    build: Callable[[Columns, Names, int], Built]
    chosen: Callable[[Columns], pa.Array] | None = None

    @property
    def on_gpu(self) -> bool:
        """Return whether its rows are GPU work."""
        return self.table in ("kernels", "memcpys", "memsets")


EVENT_TABLES = (
    EventTable("CUPTI_ACTIVITY_KIND_KERNEL", "kernels", "globalPid", _GPU_COLUMNS + _KERNEL_COLUMNS, _kernels),
    EventTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernels", "globalPid", _GPU_COLUMNS, _graph_launches),
    EventTable(
        "CUPTI_ACTIVITY_KIND_MEMCPY", "memcpys", "globalPid",
        (*_GPU_COLUMNS, "copyKind", "bytes", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"), _memcpys,
    ),
    EventTable("CUPTI_ACTIVITY_KIND_MEMSET", "memsets", "globalPid", (*_GPU_COLUMNS, "bytes", "memKind"), _memsets),
    *(EventTable(source, "cuda_calls", "globalTid", _CALL_COLUMNS, _calls) for source in CALL_TABLES),
    EventTable(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "cuda_calls", "globalPid",
        ("start", "end", "globalPid", "correlationId", "syncType"), _synchronisations,
    ),
    *(
        EventTable(source, "ranges", "globalTid", _RANGE_COLUMNS, _ranges, _is_range)
        for source in NVTX_TABLES
    ),
)  # fmt: skip


def rows_by_process(tables: Tables, event: EventTable) -> dict[int, int]:
    """Rows of an event table by process (`PROCESS_BITS` of its global id), 0 for those that do not say."""
    counts: Counter[int] = Counter()
    columns = [event.owner, "start"] + (["eventType"] if event.chosen else [])
    for batch in tables.batches(event.source, columns):
        owners = batch[event.owner].filter(event.chosen(batch)) if event.chosen else batch[event.owner]
        for count in pc.bit_wise_and(owners, PROCESS_BITS).fill_null(0).value_counts().to_pylist():
            counts[count["values"]] += count["counts"]
    return dict(counts)


class Skipped:
    """Counts the rows of the export that could not be converted, by reason."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[str, str]] = Counter()

    def choose(self, table: str, batch: Columns, good: pa.Array, why: str) -> Columns:
        """Return the rows for which `good` is true; count the others, also those with NULL."""
        bad = len(good) - (pc.sum(good).as_py() or 0)
        if not bad:
            return batch
        self.add(table, why, bad)
        return filtered(batch, good)

    def add(self, table: str, why: str, rows: int) -> None:
        """Count rows of a table."""
        self._rows[table, why] += rows

    @property
    def total(self) -> int:
        """Number of skipped rows."""
        return self._rows.total()

    def sentences(self) -> Iterator[str]:
        """Yield `2 kernels without an end left out` for each table and reason."""
        for (table, why), n in self._rows.items():
            plural = table.replace("_", " ")
            noun = plural.removesuffix("es") if plural.endswith("ches") else plural.removesuffix("s")
            yield f"{n} {noun if n == 1 else plural} {why} left out"


_CORRELATION_BITS = 32
"""Bits of a correlation id: CUPTI numbers the calls of a process from 1 in a uint32."""


class Owners:
    """Maps processes to ranks. Processes that share a GPU get one device index and distinct correlation ids.

    The correlation ids of the n-th such process are increased by (n - 1) x 2^32.
    """

    def __init__(self, ranks: dict[int, int | None], shared: Sequence[dict[int, int]]):
        self.ranks = ranks
        self._shared = {
            process: (place << _CORRELATION_BITS, next(iter(group.values())))
            for group in shared
            for place, process in enumerate(group)
        }

    def device(self, process: int) -> int | None:
        """Return the device index of a shared GPU; None if the process shares none."""
        return self._shared[process][1] if process in self._shared else None

    def own(self, process: int, built: Built) -> Built:
        """Convert columns of a process to columns of its rank."""
        if process not in self._shared:
            return built
        offset, device = self._shared[process]
        if "correlation_id" in built:
            built["correlation_id"] = pc.add(built["correlation_id"], offset)
        if "device" in built:
            built["device"] = pc.if_else(pc.is_valid(built["device"]), device, built["device"])
        return built


def event_batches(
    tables: Tables, event: EventTable, names: Names, owners: Owners, skipped: Skipped
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield batches of an event table, each of one process, with its rank; without processes that have no rank.

    Rows without a valid start and end are counted in `skipped`. Raises InputError for an unknown layout.
    """
    have = tables.columns(event.source)
    has_end = "end" in event.columns
    for column in ("start", "end") if has_end else ("start",):
        if have and column not in have:
            raise InputError(f"{tables.path}: {event.source} has no column {column!r}: unknown layout")
    for batch in tables.batches(event.source, event.columns):
        if event.chosen is not None:
            batch = skipped.choose(event.table, batch, pc.is_valid(batch["eventType"]), "without a kind")
            batch = filtered(batch, event.chosen(batch))
        batch = skipped.choose(event.table, batch, pc.is_valid(batch["start"]), "without a start")
        if has_end:
            batch = skipped.choose(event.table, batch, pc.is_valid(batch["end"]), "without an end")
            # An overflowing length is negative.
            forward = pc.and_(
                pc.greater_equal(batch["end"], batch["start"]),
                pc.greater_equal(pc.subtract(batch["end"], batch["start"]), 0),
            )
            batch = skipped.choose(event.table, batch, forward, "with an end before the start")
        for process, own in _by_process(batch, event.owner):
            if process in owners.ranks:
                built = owners.own(process, event.build(own, names, process))
                yield owners.ranks[process], record_batch(event.table, built, len(built["start_ns"]))
            elif not process:
                skipped.add(event.table, "of no process", len(own["start"]))


def _by_process(batch: Columns, owner: str) -> Iterator[tuple[int, Columns]]:
    """Yield the rows of each process, in order of first appearance."""
    processes = pc.bit_wise_and(batch[owner], PROCESS_BITS).fill_null(0)
    for process in processes.unique().to_pylist():
        yield process, filtered(batch, pc.equal(processes, process))


def record_batch(table: str, columns: Built, n: int) -> pa.RecordBatch:
    """Return a batch of a table without run_id and rank; missing columns are NULL."""
    schema = batch_schema(table)
    arrays = [_array(columns.get(f.name), f.type, n) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(value: Any, type_: pa.DataType, n: int) -> pa.Array:
    if value is None:
        return pa.nulls(n, type_)
    if pa.types.is_dictionary(type_):
        texts = pa.repeat(value, n) if isinstance(value, str) else value.cast(pa.string())
        return texts.dictionary_encode()
    if type_ == pa.int32():
        known = pc.and_(pc.greater_equal(value, -1), pc.less(value, UNKNOWN_DEVICE))
        value = pc.if_else(known, value, pa.scalar(None, value.type))
    return value.cast(type_)
