"""Rows of the event tables of an Nsight Systems export -> rows of the tables: what each one's columns mean.

`EVENT_TABLES` says which table of the export goes where. Columns are computed as whole Arrow arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError
from analyze.sources.base import batch_schema
from analyze.sources.nsys.names import NVTX_TABLES, Names, mapped
from analyze.sources.nsys.tables import PROCESS_BITS, Columns, Tables, filtered

_THREAD_BITS = ~PROCESS_BITS
UNKNOWN_DEVICE = 2**31 - 1
"""From here on a device index means that there is none (CUPTI writes INT_MAX and UINT_MAX)."""

NVTX_STYLES = {59: "PushPop", 60: "StartEnd", 70: "PushPop", 71: "StartEnd"}
"""Style of a range by NVTX_EVENTS.eventType (70 and 71: ranges imported from NVTXT files)."""

_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""CUpti_ActivitySynchronizationType under the names that torch.profiler gives it."""

_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")

_CALL_NUMBERS = re.compile(r"(?:, (?:seq|op_id) = [0-9]+)+(?=,|\Z)|, input_op_ids = \[[0-9(), ]*\]\Z")
"""`aten::mm, seq = 5, op_id = 12, sizes = [[2, 3]], input_op_ids = [(11,0)]` is a call of aten::mm with that size."""

Built = dict[str, Any]
"""Columns of a table: arrays, or one string for all rows."""


def _size(sizes: pa.Array) -> pa.Array:
    """Sizes in bytes, or lengths; NULL for those below 0."""
    return pc.if_else(pc.greater_equal(sizes, 0), sizes, pa.scalar(None, pa.int64()))


def pids(ids: pa.Array) -> pa.Array:
    """The processes of global ids, as the system numbers them."""
    return pc.bit_wise_and(pc.shift_right(ids, 24), _THREAD_BITS)


def _tids(ids: pa.Array) -> pa.Array:
    return pc.bit_wise_and(ids, _THREAD_BITS)


def _times(batch: Columns) -> Built:
    return {"start_ns": batch["start"], "dur_ns": _size(pc.subtract(batch["end"], batch["start"]))}


def _gpu(batch: Columns) -> Built:
    # graphNodeId holds the graph in its upper half; exports since 2024 say graphId, too.
    graph = pc.coalesce(batch["graphId"], pc.shift_right(batch["graphNodeId"], 32))
    return _times(batch) | {
        "pid": pids(batch["globalPid"]),
        "device": batch["deviceId"],
        "stream": batch["streamId"],
        "correlation_id": batch["correlationId"],
        "graph_id": graph,
    }


def _kernels(batch: Columns, names: Names, process: int) -> Built:
    name = pc.coalesce(*(names.lookup(batch[c]) for c in ("demangledName", "shortName", "mangledName")))
    built = _gpu(batch) | {
        "name": name.fill_null("(unknown)"),
        "registers": batch["registersPerThread"],
        # A sum above int64 would come out below 0.
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
    called = names.lookup(batch["nameId"]).fill_null("(unknown)").dictionary_encode()
    distinct = called.dictionary.to_pylist()
    return _times(batch) | {
        "pid": pids(batch["globalTid"]),
        "tid": _tids(batch["globalTid"]),
        "name": pa.array([_VERSION_SUFFIX.sub("", n) for n in distinct], pa.string()).take(called.indices),
        "api": pa.array([_api(n) for n in distinct], pa.string()).take(called.indices),
        "correlation_id": batch["correlationId"],
    }


def _api(name: str) -> str:
    return "driver" if re.match(r"cu(?!da)", name) else "runtime"


def _synchronisations(batch: Columns, names: Names, process: int) -> Built:
    return _times(batch) | {
        "pid": pids(batch["globalPid"]),
        "name": mapped(batch["syncType"], _SYNC_NAMES).fill_null("Unknown Sync"),
        "api": "sync",
        "correlation_id": batch["correlationId"],
    }


def _ranges(batch: Columns, names: Names, process: int) -> Built:
    return _times(batch) | {
        "origin": "nvtx",
        "domain": names.domains(process, batch["domainId"]),
        "style": mapped(batch["eventType"], NVTX_STYLES),
        "name": _names(names.text(batch)),
        "pid": pids(batch["globalTid"]),
        "tid": _tids(batch["globalTid"]),
        "end_tid": _tids(batch["endGlobalTid"]),
    }


def _names(texts: pa.Array) -> pa.Array:
    """Names of ranges without the numbers of the call that torch's `emit_nvtx` appends to them."""
    coded = texts.dictionary_encode()
    return pa.array([_plain_name(n) for n in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _plain_name(name: str) -> str:
    return _CALL_NUMBERS.sub("", name) if " = " in name else name


def _is_range(batch: Columns) -> pa.Array:
    return pc.is_in(batch["eventType"], pa.array(list(NVTX_STYLES), pa.int64()))


GRAPH_LAUNCH = "[CUDA graph]"
"""Name in `kernels` of a graph that was traced as a whole: its kernels are not in the export, its time is."""

_GPU_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId")
_RANGE_COLUMNS = ("start", "end", "eventType", "text", "textId", "globalTid", "endGlobalTid", "domainId")
_KERNEL_COLUMNS = (
    "demangledName", "shortName", "mangledName", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
)  # fmt: skip


class EventTable(NamedTuple):
    """A table of the export whose rows become rows of a table.

    `owner`: the column that says whose the row is; `columns`: all that are read, NULL where the export lacks them;
    `chosen`: which rows count, None for all.
    """

    source: str
    table: str
    owner: str
    columns: tuple[str, ...]
    build: Callable[[Columns, Names, int], Built]
    chosen: Callable[[Columns], pa.Array] | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether its rows are work of a GPU."""
        return self.table in ("kernels", "memcpys", "memsets")


EVENT_TABLES = (
    EventTable("CUPTI_ACTIVITY_KIND_KERNEL", "kernels", "globalPid", _GPU_COLUMNS + _KERNEL_COLUMNS, _kernels),
    EventTable("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernels", "globalPid", _GPU_COLUMNS, _graph_launches),
    EventTable(
        "CUPTI_ACTIVITY_KIND_MEMCPY", "memcpys", "globalPid",
        (*_GPU_COLUMNS, "copyKind", "bytes", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"), _memcpys,
    ),
    EventTable("CUPTI_ACTIVITY_KIND_MEMSET", "memsets", "globalPid", (*_GPU_COLUMNS, "bytes", "memKind"), _memsets),
    EventTable("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_calls", "globalTid", _CALL_COLUMNS, _calls),
    EventTable("CUPTI_ACTIVITY_KIND_DRIVER", "cuda_calls", "globalTid", _CALL_COLUMNS, _calls),
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
    if event.chosen is None:
        return tables.processes(event.source, event.owner)
    counts: Counter[int] = Counter()
    for batch in tables.batches(event.source, [event.owner, "eventType"]):
        owners = batch[event.owner].filter(event.chosen(batch))
        for count in pc.bit_wise_and(owners, PROCESS_BITS).fill_null(0).value_counts().to_pylist():
            counts[count["values"]] += count["counts"]
    return dict(counts)


class Skipped:
    """Rows of the export that no table holds although it should, by what is wrong with them."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[str, str]] = Counter()

    def choose(self, table: str, batch: Columns, good: pa.Array, why: str) -> Columns:
        """The rows for which `good` is true; the others, NULL among them, are counted."""
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
        """All of them."""
        return self._rows.total()

    def sentences(self) -> Iterator[str]:
        """`2 kernels without an end left out`, for each table and reason."""
        for (table, why), n in self._rows.items():
            noun = table.replace("_", " ").removesuffix("s")
            yield f"{n} {noun}{'s' if n != 1 else ''} {why} left out"


_CORRELATION_BITS = 32
"""Bits of a correlation id: CUPTI numbers the calls of a process from 1 in an uint32."""


class Owners:
    """Whose the rows of a process are: its rank; of processes that share a GPU, one device and distinct ids.

    The correlation ids of the n-th such process are raised by (n - 1) x 2^32.
    """

    def __init__(self, ranks: dict[int, int | None], shared: Sequence[dict[int, int]]):
        self.ranks = ranks
        self._shared = {
            process: (place << _CORRELATION_BITS, next(iter(group.values())))
            for group in shared
            for place, process in enumerate(group)
        }

    def device(self, process: int) -> int | None:
        """What its GPU is called, if another process uses it, too."""
        return self._shared[process][1] if process in self._shared else None

    def own(self, process: int, built: Built) -> Built:
        """Columns of a process as columns of its rank."""
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
    """Batches of one event table, each of one process, with its rank; rows of processes without a rank are left out.

    Rows that never ended, or that cannot have been, go to `skipped`. Raises InputError for a layout that cannot be
    understood.
    """
    have = tables.columns(event.source)
    for column in ("start", "end"):
        if have and column not in have:
            raise InputError(f"{tables.path}: {event.source} has no column {column!r}: a layout that is not known")
    for batch in tables.batches(event.source, event.columns):
        if event.chosen is not None:
            batch = skipped.choose(event.table, batch, pc.is_valid(batch["eventType"]), "without a kind")
            batch = filtered(batch, event.chosen(batch))
        batch = skipped.choose(event.table, batch, pc.is_valid(batch["start"]), "without a start")
        batch = skipped.choose(event.table, batch, pc.is_valid(batch["end"]), "without an end")
        # A length above int64 comes out below 0.
        forward = pc.and_(
            pc.greater_equal(batch["end"], batch["start"]),
            pc.greater_equal(pc.subtract(batch["end"], batch["start"]), 0),
        )
        batch = skipped.choose(event.table, batch, forward, "with an end before the start")
        for process, own in _by_process(batch, event.owner):
            if process in owners.ranks:
                built = owners.own(process, event.build(own, names, process))
                yield owners.ranks[process], record_batch(event.table, built, len(own["start"]))
            elif not process:
                skipped.add(event.table, "of no process", len(own["start"]))


def _by_process(batch: Columns, owner: str) -> Iterator[tuple[int, Columns]]:
    """The rows of each process, in the order in which the processes first appear."""
    processes = pc.bit_wise_and(batch[owner], PROCESS_BITS).fill_null(0).dictionary_encode()
    distinct = processes.dictionary.to_pylist()
    if len(distinct) > 1:
        # One sort and slices, because a filter for each process would read all rows for each.
        codes = processes.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        batch = {name: array.take(pa.array(order)) for name, array in batch.items()}
        ends = np.cumsum(np.bincount(codes, minlength=len(distinct)))
        for process, start, end in zip(distinct, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            yield process, {name: array.slice(start, end - start) for name, array in batch.items()}
    elif distinct:
        yield distinct[0], batch


def record_batch(table: str, columns: Built, n: int) -> pa.RecordBatch:
    """A batch of a table without run_id and rank; columns that are not given are NULL."""
    schema = batch_schema(table)
    arrays = [_array(columns.get(f.name), f.type, n) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(value: Any, type_: pa.DataType, n: int) -> pa.Array:
    if pa.types.is_dictionary(type_):
        if value is None or isinstance(value, str):
            indices = pa.nulls(n, pa.int32()) if value is None else pa.repeat(pa.scalar(0, pa.int32()), n)
            return pa.DictionaryArray.from_arrays(indices, pa.array([] if value is None else [value], pa.string()))
        return value.cast(pa.string()).dictionary_encode()
    if value is None:
        return pa.nulls(n, type_)
    if type_ == pa.int32():
        known = pc.and_(pc.greater_equal(value, -1), pc.less(value, UNKNOWN_DEVICE))
        value = pc.if_else(known, value, pa.scalar(None, value.type))
    return value.cast(type_)
