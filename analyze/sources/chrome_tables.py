"""Lists of Chrome trace events as Arrow batches of the tables.

Which category goes to which table stands in `CATEGORIES`; the names differ between 2021 (`Kernel`) and now (`kernel`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from analyze.sources.chrome_events import Args, Event
from analyze.sources.decimal_us import to_ns
from schemas.tables import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_ARGS = Args()

Columns = dict[str, Any]
Batches = dict[str, pa.RecordBatch]

_MEMCPY = re.compile(
    r"(?:Memcpy|Copy)\s*(HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoA|AtoD|DtoA)?[^(]*(?:\((\S+) -> (\S+)\))?"
)
_MEMSET = re.compile(r"[^(]*\((\w+)\)")


def _args(events: Sequence[Event]) -> list[Args]:
    return [e.args or _NO_ARGS for e in events]


def _cpu(events: Sequence[Event]) -> Columns:
    return {"pid": [e.pid for e in events], "tid": [e.tid for e in events]}


def _op_ids(args: Sequence[Args]) -> list[int | None]:
    return [a.op_id if a.op_id is not None else a.op_id_2021 for a in args]


def _gpu(events: Sequence[Event], args: Sequence[Args]) -> Columns:
    # Kineto puts a GPU event into the process "device index", thread "stream"; `pid` of the owner is not written.
    return {
        "device": [e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)],
        "stream": [e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)],
        "correlation_id": [a.correlation for a in args],
        "op_id": _op_ids(args),
        "graph_id": [a.graph_id for a in args],
    }


def _dim(sizes: Iterable[list[int] | None], axis: int) -> list[int | None]:
    return [s[axis] if s and len(s) > axis else None for s in sizes]


def _text(raws: list[Raw]) -> pa.DictionaryArray:
    """JSON texts as they stand in the file; absent ones are NULL. Made of one buffer: every operator has some."""
    lengths = np.fromiter(map(len, raws), np.int64, len(raws))
    ends = np.cumsum(lengths)
    if not len(raws) or ends[-1] >= 2**31:
        return pa.array([bytes(r).decode("utf-8", "replace") or None for r in raws], pa.string()).dictionary_encode()
    buffers = [
        pa.py_buffer(np.packbits(lengths > 0, bitorder="little")),
        pa.py_buffer(np.append(0, ends).astype(np.int32)),
        pa.py_buffer(b"".join(raws)),
    ]
    texts = pa.Array.from_buffers(pa.string(), len(raws), buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        texts = pa.array([bytes(r).decode("utf-8", "replace") or None for r in raws], pa.string())
    return texts.dictionary_encode()


def _kernels(events: Sequence[Event]) -> Columns:
    args = _args(events)
    grids, blocks = [a.grid for a in args], [a.block for a in args]
    columns = _gpu(events, args) | {
        "registers": [a.registers for a in args],
        "shared_mem_bytes": [a.shared_memory for a in args],
        "blocks_per_sm": [a.blocks_per_sm for a in args],
        "occupancy_pct": [a.occupancy for a in args],
    }
    for i, axis in enumerate("xyz"):
        columns[f"grid_{axis}"] = _dim(grids, i)
        columns[f"block_{axis}"] = _dim(blocks, i)
    if any(a.collective is not None for a in args):
        columns |= {
            "collective": [a.collective for a in args],
            "in_elems": [a.in_elems for a in args],
            "out_elems": [a.out_elems for a in args],
            "dtype": [a.dtype for a in args],
            "group_size": [a.group_size for a in args],
            "group_name": [a.group_name for a in args],
            "group_ranks": [_list_text(a.group_ranks) for a in args],
            "seq": [a.seq for a in args],
        }
    return columns


def _list_text(raw: Raw) -> str | None:
    """A list, or a string that holds one (with '...' in it when it was long)."""
    text = bytes(raw)
    if text[:1] == b'"':
        return str(msgspec.json.decode(text))
    return text.decode() or None


def _memcpys(events: Sequence[Event]) -> Columns:
    args = _args(events)
    columns = _gpu(events, args)
    matches = [_MEMCPY.match(e.name) for e in events]
    # Peer-to-peer copies say inDevice instead of device.
    columns["device"] = [a.in_device if a.device is None and a.in_device is not None else d
                         for a, d in zip(args, columns["device"], strict=True)]  # fmt: skip
    return columns | {
        "kind": [(m and m.group(1)) or "Unknown" for m in matches],
        "src_memory": [m and m.group(2) for m in matches],
        "dst_memory": [m and m.group(3) for m in matches],
        "src_device": [a.from_device for a in args],
        "dst_device": [a.to_device for a in args],
        "bytes": [a.bytes for a in args],
    }


def _memsets(events: Sequence[Event]) -> Columns:
    args = _args(events)
    matches = [_MEMSET.match(e.name) for e in events]
    return _gpu(events, args) | {"dst_memory": [m and m.group(1) for m in matches], "bytes": [a.bytes for a in args]}


def _calls(api: str) -> Callable[[Sequence[Event]], Columns]:
    def build(events: Sequence[Event]) -> Columns:
        args = _args(events)
        return _cpu(events) | {
            "api": [api] * len(events),
            "correlation_id": [a.correlation for a in args],
            "op_id": _op_ids(args),
        }

    return build


def _cpu_ops(events: Sequence[Event]) -> Columns:
    args = _args(events)
    dims = _text([a.input_dims for a in args])
    return _cpu(events) | {
        "op_id": _op_ids(args),
        "sequence_number": [a.sequence_number for a in args],
        "fwd_thread": [a.fwd_thread for a in args],
        "record_function_id": [a.record_function_id for a in args],
        "input_dims": dims if dims.null_count < len(dims) else _text([a.input_dims_2021 for a in args]),
        "input_types": _text([a.input_types for a in args]),
        "concrete_inputs": _text([a.concrete_inputs for a in args]),
    }


def _ranges(origin: str) -> Callable[[Sequence[Event]], Columns]:
    def build(events: Sequence[Event]) -> Columns:
        args = _args(events)
        names = [e.name for e in events]
        gpu = _gpu(events, args) if origin == "gpu_annotation" else {}
        return _cpu(events) | {
            "origin": ["profiler_step" if n.startswith("ProfilerStep#") else origin for n in names]
            if origin == "record_function"
            else [origin] * len(events),
            "device": gpu.get("device"),
            "stream": gpu.get("stream"),
            "op_id": _op_ids(args),
            "python_id": [a.python_id for a in args],
            "python_parent_id": [a.python_parent_id for a in args],
        }

    return build


ALLOCATOR_DEVICES = {0: "cpu", 1: "cuda", 2: "mkldnn", 6: "hip", 12: "xpu"}
"""c10::DeviceType"""


def _memory_events(events: Sequence[Event]) -> Columns:
    args = _args(events)
    return {
        "pid": [e.pid for e in events],
        "device_type": [ALLOCATOR_DEVICES.get(a.memory_device_type or 0, "other") for a in args],
        "device": [a.memory_device for a in args],
        "addr": [a.addr for a in args],
        "bytes": [a.memory_bytes for a in args],
        "allocated_bytes": [a.allocated for a in args],
        "reserved_bytes": [a.reserved for a in args],
    }


Builder = tuple[str, Callable[[Sequence[Event]], Columns]]

CATEGORIES: dict[str, Builder] = {
    "kernel": ("kernels", _kernels),
    "gpu_memcpy": ("memcpys", _memcpys),
    "gpu_memset": ("memsets", _memsets),
    "cuda_runtime": ("cuda_calls", _calls("runtime")),
    "cuda_driver": ("cuda_calls", _calls("driver")),
    "cuda_sync": ("cuda_calls", _calls("sync")),
    "cpu_op": ("cpu_ops", _cpu_ops),
    "user_annotation": ("ranges", _ranges("record_function")),
    "gpu_user_annotation": ("ranges", _ranges("gpu_annotation")),
    "python_function": ("ranges", _ranges("python_function")),
    "overhead": ("ranges", _ranges("overhead")),
    "cpu_instant_event": ("memory_events", _memory_events),
}
"""Category of an event -> its table and how to build the table's columns."""

_ALIASES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "hip_runtime": "cuda_runtime",
    "hip_driver": "cuda_driver",
    "Synchronization": "cuda_sync",
    "Operator": "cpu_op",
    "operator": "cpu_op",
    "Python function": "python_function",
    "Overhead": "overhead",
}


def build_batches(events: Sequence[Event], base_ns: int) -> tuple[Batches, int, int]:
    """Arrow batches by table name, without run_id and rank; how many were no events (no `ph`) or had no time.

    `base_ns` is added to every start: Kineto's baseTimeNanoseconds, 0 where the file has none.
    """
    groups: defaultdict[str, list[Event]] = defaultdict(list)
    no_event = 0
    for e in events:
        ph = e.ph
        if ph == "X" or (ph == "i" and e.name == "[memory]"):
            groups[e.cat].append(e)
        elif not ph:
            no_event += 1
    parts: dict[str, list[pa.RecordBatch]] = {}
    lost = 0
    for cat, group in groups.items():
        builder = CATEGORIES.get(_ALIASES.get(cat, cat))
        if builder is None or (builder[0] == "memory_events") != (group[0].ph == "i"):
            continue
        start, known = to_ns([e.ts for e in group])
        if not known.all():
            lost += int((~known).sum())
            group = [e for e, ok in zip(group, known, strict=True) if ok]
            start = start[known]
        table, build = builder
        columns = build(group)
        columns["start_ns"] = start + base_ns
        if table != "memory_events":
            dur, has_dur = to_ns([e.dur for e in group])
            columns["dur_ns"] = pa.array(dur, mask=~has_dur)
        if "name" not in columns:
            columns["name"] = [e.name for e in group]
        parts.setdefault(table, []).append(_batch(table, columns, len(group)))
    return {t: b[0] if len(b) == 1 else _concat(b) for t, b in parts.items()}, no_event, lost


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]


_FIELDS: dict[str, list[pa.Field]] = {}


def batch_fields(table: str) -> list[pa.Field]:
    """Fields of a table without run_id and rank, in order."""
    if table not in _FIELDS:
        _FIELDS[table] = [f for f in arrow_schema(table) if f.name not in ("run_id", "rank")]
    return _FIELDS[table]


def _batch(table: str, columns: Columns, n: int) -> pa.RecordBatch:
    fields = batch_fields(table)
    arrays = [_array(columns.get(f.name), f.type, n) for f in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(values: Any, type_: pa.DataType, n: int) -> pa.Array:
    if values is None:
        if pa.types.is_dictionary(type_):
            return pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int32()), pa.array([], pa.string()))
        return pa.nulls(n, type_)
    if isinstance(values, pa.Array) and values.type == type_:
        return values
    if isinstance(values, np.ndarray | pa.Array):
        return pa.array(values, type=type_)
    if pa.types.is_dictionary(type_):
        return pa.array(values, pa.string()).dictionary_encode()
    try:
        return pa.array(values, type=type_)
    except (OverflowError, pa.ArrowInvalid):
        # What the column cannot hold says nothing: labels for ids ("pid": "Spans"), ids of 64 bits without sign,
        # "device": 4294967295.
        low, high = (-(2**31), 2**31 - 1) if type_ == pa.int32() else (-(2**63), 2**63 - 1)
        return pa.array([v if isinstance(v, int) and low <= v <= high else None for v in values], type=type_)
