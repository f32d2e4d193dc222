"""Rows of an Nsight Systems export -> rows of the tables: what each table's columns mean, and what the ids in them say.

`EVENT_TABLES` says which table of the export goes where. Columns are computed as whole Arrow arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError
from analyze.sources.base import batch_schema
from analyze.sources.nsys.tables import PROCESS_BITS, Columns, Tables, rows

_THREAD_BITS = ~PROCESS_BITS
_UNKNOWN_DEVICE = 2**31 - 1
"""From here on a device index means that there is none (CUPTI writes INT_MAX and UINT_MAX)."""

NVTX_DOMAIN = 75
NVTX_STYLES = {59: "PushPop", 60: "StartEnd", 70: "PushPop", 71: "StartEnd"}
"""Style of a range by NVTX_EVENTS.eventType (70 and 71: ranges imported from NVTXT files)."""

_COPY_KINDS = {
    0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
"""CUpti_ActivityMemcpyKind, and nsys's own from 11 on: pages of unified memory that moved."""

_MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
    7: "Unknown",
}  # fmt: skip
_HOST_MEMORY = ("Pageable", "Pinned")
_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""CUpti_ActivitySynchronizationType under the names that torch.profiler gives it."""

_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")
_TRANSFER = re.compile(r"(Unified )?(\w)\w*-to-(\w)\w*$")


class Names:
    """What ids mean in one export: strings, NVTX domains, kinds of copies and of memory."""

    def __init__(self, tables: Tables):
        batches = [_filter(b, pc.is_valid(b["id"])) for b in tables.batches("StringIds", ["id", "value"])]
        ids = np.concatenate([b["id"].to_numpy(zero_copy_only=False) for b in batches] or [np.empty(0, np.int64)])
        values = pa.concat_arrays([b["value"] for b in batches] or [pa.array([], pa.string())])
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._values = values.take(pa.array(order))
        self.copy_kinds = _COPY_KINDS | _labels(tables, "ENUM_CUDA_MEMCPY_OPER", _short_kind)
        self.memory_kinds = _MEMORY_KINDS | _labels(tables, "ENUM_CUDA_MEM_KIND", str)
        self._domains = self._read_domains(tables)

    def lookup(self, ids: pa.Array) -> pa.Array:
        """The strings of ids; NULL for an id that has none."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.string())
        wanted = ids.fill_null(-1).to_numpy(zero_copy_only=False)
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return self._values.take(pa.array(at, mask=self._ids[at] != wanted))

    def text(self, batch: Columns) -> pa.Array:
        """Message of NVTX events: registered (textId) or given in place."""
        return pc.coalesce(self.lookup(batch["textId"]), batch["text"].cast(pa.string()))

    def domains(self, process: int, ids: pa.Array) -> pa.Array:
        """Names of NVTX domains of a process; NULL for the default domain."""
        return _mapped(ids, self._domains.get(process, {}))

    def _read_domains(self, tables: Tables) -> dict[int, dict[int, str]]:
        found: dict[int, dict[int, tuple[float, str]]] = {}
        for batch in tables.batches("NVTX_EVENTS", ["start", "eventType", "domainId", "text", "textId", "globalTid"]):
            chosen = _filter(batch, pc.equal(batch["eventType"], NVTX_DOMAIN))
            threads = chosen["globalTid"].fill_null(0).to_pylist()
            starts, ids, texts = chosen["start"].to_pylist(), chosen["domainId"].to_pylist(), self.text(chosen)
            for at, domain, text, thread in zip(starts, ids, texts.to_pylist(), threads, strict=True):
                start = float("inf") if at is None else at
                known = found.setdefault(thread & PROCESS_BITS, {})
                # A domain that was made twice has the name that it got first, as in `nsys stats`.
                if text is not None and domain is not None and (domain not in known or start < known[domain][0]):
                    known[domain] = (start, text)
        return {process: {d: text for d, (_, text) in known.items()} for process, known in found.items()}


def _labels(tables: Tables, table: str, shorten: Callable[[str], str]) -> dict[int, str]:
    read = rows(tables, table, ["id", "label"])
    return {r["id"]: shorten(r["label"]) for r in read if r["id"] is not None and r["label"] is not None}


def _short_kind(label: str) -> str:
    """Host-to-Device -> HtoD, Unified Host-to-Device -> Unified HtoD."""
    match = _TRANSFER.match(label)
    return f"{match.group(1) or ''}{match.group(2)}to{match.group(3)}" if match else label


def _mapped(ids: pa.Array, names: dict[int, str]) -> pa.Array:
    at = pc.index_in(ids, pa.array(list(names), pa.int64()))
    return pa.array(list(names.values()), pa.string()).take(at)


def _filter(batch: Columns, mask: pa.Array) -> Columns:
    return {name: array.filter(mask) for name, array in batch.items()}


Built = dict[str, Any]
"""Columns of a table: arrays, or one string for all rows."""


def _size(sizes: pa.Array) -> pa.Array:
    """Sizes in bytes; NULL for those below 0."""
    return pc.if_else(pc.greater_equal(sizes, 0), sizes, pa.scalar(None, pa.int64()))


def _pid(ids: pa.Array) -> pa.Array:
    return pc.bit_wise_and(pc.shift_right(ids, 24), _THREAD_BITS)


def _tid(ids: pa.Array) -> pa.Array:
    return pc.bit_wise_and(ids, _THREAD_BITS)


def _times(batch: Columns) -> Built:
    return {"start_ns": batch["start"], "dur_ns": pc.subtract(batch["end"], batch["start"])}


def _gpu(batch: Columns) -> Built:
    # graphNodeId holds the graph in its upper half; exports since 2024 say graphId, too.
    graph = pc.coalesce(batch["graphId"], pc.shift_right(batch["graphNodeId"], 32))
    return _times(batch) | {
        "pid": _pid(batch["globalPid"]),
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
        "kind": _mapped(batch["copyKind"], names.copy_kinds).fill_null("Unknown"),
        "src_device": batch["srcDeviceId"],
        "dst_device": batch["dstDeviceId"],
        "src_memory": _mapped(batch["srcKind"], names.memory_kinds),
        "dst_memory": _mapped(batch["dstKind"], names.memory_kinds),
        "bytes": _size(batch["bytes"]),
    }


def _memsets(batch: Columns, names: Names, process: int) -> Built:
    return _gpu(batch) | {"dst_memory": _mapped(batch["memKind"], names.memory_kinds), "bytes": _size(batch["bytes"])}


def _calls(batch: Columns, names: Names, process: int) -> Built:
    called = names.lookup(batch["nameId"]).fill_null("(unknown)").dictionary_encode()
    distinct = called.dictionary.to_pylist()
    return _times(batch) | {
        "pid": _pid(batch["globalTid"]),
        "tid": _tid(batch["globalTid"]),
        "name": pa.array([_VERSION_SUFFIX.sub("", n) for n in distinct], pa.string()).take(called.indices),
        "api": pa.array([_api(n) for n in distinct], pa.string()).take(called.indices),
        "correlation_id": batch["correlationId"],
    }


def _api(name: str) -> str:
    return "driver" if re.match(r"cu(?!da)", name) else "runtime"


def _synchronisations(batch: Columns, names: Names, process: int) -> Built:
    return _times(batch) | {
        "pid": _pid(batch["globalPid"]),
        "name": _mapped(batch["syncType"], _SYNC_NAMES).fill_null("Unknown Sync"),
        "api": "sync",
        "correlation_id": batch["correlationId"],
    }


def _ranges(batch: Columns, names: Names, process: int) -> Built:
    return _times(batch) | {
        "origin": "nvtx",
        "domain": names.domains(process, batch["domainId"]),
        "style": _mapped(batch["eventType"], NVTX_STYLES),
        "name": names.text(batch),
        "pid": _pid(batch["globalTid"]),
        "tid": _tid(batch["globalTid"]),
        "end_tid": _tid(batch["endGlobalTid"]),
    }


def _is_range(batch: Columns) -> pa.Array:
    return pc.is_in(batch["eventType"], pa.array(list(NVTX_STYLES), pa.int64()))


GRAPH_LAUNCH = "[CUDA graph]"
"""Name in `kernels` of a graph that was traced as a whole: its kernels are not in the export, its time is."""

_GPU_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId")
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
    EventTable(
        "NVTX_EVENTS", "ranges", "globalTid",
        ("start", "end", "eventType", "text", "textId", "globalTid", "endGlobalTid", "domainId"), _ranges, _is_range,
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
        return _filter(batch, good)

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


def event_batches(
    tables: Tables, event: EventTable, names: Names, ranks: dict[int, int | None], skipped: Skipped
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
            batch = _filter(batch, event.chosen(batch))
        batch = skipped.choose(event.table, batch, pc.is_valid(batch["start"]), "without a start")
        batch = skipped.choose(event.table, batch, pc.is_valid(batch["end"]), "without an end")
        # A length above int64 comes out below 0.
        forward = pc.and_(
            pc.greater_equal(batch["end"], batch["start"]),
            pc.greater_equal(pc.subtract(batch["end"], batch["start"]), 0),
        )
        batch = skipped.choose(event.table, batch, forward, "with an end before the start")
        processes = pc.bit_wise_and(batch[event.owner], PROCESS_BITS).fill_null(0)
        distinct = processes.unique().to_pylist()
        for process in distinct:
            own = batch if len(distinct) == 1 else _filter(batch, pc.equal(processes, process))
            if process in ranks:
                yield ranks[process], record_batch(event.table, event.build(own, names, process), len(own["start"]))
            elif not process:
                skipped.add(event.table, "of no process", len(own["start"]))


_MOST_BYTES = 1 << 50
"""More than any memory has; sums of 2^13 such sizes stay within int64."""


def memory_batches(
    tables: Tables, names: Names, ranks: dict[int, int | None], skipped: Skipped
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """CUDA_GPU_MEMORY_USAGE_EVENTS as memory_events: what the process took from the driver and gave back.

    `reserved_bytes` is what it then holds on the device (device -1: in pinned host memory), all allocations from the
    driver together: PyTorch's caching allocator reserves from it, and NCCL, cuBLAS and modules take of it, too. How
    much of it the allocator has handed out (`allocated_bytes`) Nsight Systems cannot see. Variables of modules (kinds
    ... Static) are not allocated by a call, and nsys lists them under device 0 whichever device has them: no rows. What
    was taken before the recording began stands at time 0. Rows without a time, a size or a known operation go to
    `skipped`.
    """
    columns = ["start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType"]
    static = pa.array([k for k, name in names.memory_kinds.items() if name.endswith("Static")], pa.int64())
    operations = _memory_operations(tables)
    batches = []
    for batch in tables.batches("CUDA_GPU_MEMORY_USAGE_EVENTS", columns):
        batch = _filter(batch, pc.invert(pc.is_in(batch["memKind"], static)))
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
    device = np.where(on_host, -1, whole["deviceId"].fill_null(_UNKNOWN_DEVICE).to_numpy(zero_copy_only=False))
    freed = pc.is_in(whole["memoryOperationType"], pa.array(frees, pa.int64())).to_numpy(zero_copy_only=False)
    size = whole["bytes"].to_numpy(zero_copy_only=False)
    change = np.where(freed, -size, size)
    start = whole["start"].to_numpy(zero_copy_only=False)
    if unowned := 0 if 0 in ranks else int(np.count_nonzero(process == 0)):
        skipped.add("memory_events", "of no process", unowned)
    for one, rank in ranks.items():
        rows_of = np.flatnonzero(process == one)
        rows_of = rows_of[np.argsort(start[rows_of], kind="stable")]
        if not len(rows_of):
            continue
        held = np.empty(len(rows_of), np.int64)
        for index in np.unique(device[rows_of]):
            here = device[rows_of] == index
            held[here] = np.cumsum(change[rows_of][here])
        built = {
            "pid": _pid(whole["globalPid"]).take(pa.array(rows_of)),
            "device_type": pa.array(["cuda", "cpu"]).take(pa.array(on_host[rows_of].astype(np.int64))),
            "device": pa.array(device[rows_of]),
            "start_ns": pa.array(start[rows_of]),
            "addr": whole["address"].take(pa.array(rows_of)),
            "bytes": pa.array(change[rows_of]),
            "reserved_bytes": pa.array(held),
        }
        yield rank, record_batch("memory_events", built, len(rows_of))


def _memory_operations(tables: Tables) -> dict[int, str]:
    return {0: "Allocation", 1: "Deallocation"} | _labels(tables, "ENUM_CUDA_DEV_MEM_EVENT_OPER", str)


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
        known = pc.and_(pc.greater_equal(value, -1), pc.less(value, _UNKNOWN_DEVICE))
        value = pc.if_else(known, value, pa.scalar(None, value.type))
    return value.cast(type_)
