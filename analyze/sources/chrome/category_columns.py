"""Rows of kernels, memcpys, cuda_calls, cpu_ops and so on from Kineto's events: the columns of each category."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec import Raw

from analyze.sources.chrome.arrow_columns import Columns, json_texts
from analyze.sources.chrome.events import Args, Event
from analyze.sources.chrome.json_repair import repair

_NO_ARGS = Args()
_MEMCPY = re.compile(
    r"(?:Memcpy|Copy)\s*(HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoA|AtoD|DtoA|[HDM]2[HDM]|(?:Host|Device)To(?:Host|Device))?"
    r"[^(]*(?:\((\S+) -> (\S+)\))?"
)
_KINDS = {
    f"{a}{to}{b}": f"{ends[a]}to{ends[b]}"
    for to, ends in (("2", {"H": "H", "D": "D", "M": "H"}), ("To", {"Host": "H", "Device": "D"}))
    for a in ends
    for b in ends
}
"""Kinds of copies on GPUs of Intel (H2D, M2D; M: memory of no device) and AMD (HostToDevice)."""

_MEMSET = re.compile(r"[^(]*\((\w+)\)")


def _args(events: Sequence[Event]) -> list[Args]:
    return [e.args or _NO_ARGS for e in events]


def _cpu(events: Sequence[Event], args: Sequence[Args]) -> Columns:
    tids = [e.tid if a.tid is None else a.tid for e, a in zip(events, args, strict=True)]
    return {"pid": [e.pid for e in events], "tid": tids}


def _op_ids(args: Sequence[Args]) -> list[int | None]:
    return [a.op_id if a.op_id is not None else a.op_id_2021 for a in args]


def _gpu(events: Sequence[Event], args: Sequence[Args]) -> Columns:
    # Kineto writes the device index as process and the stream as thread; it does not write the process of the owner.
    return {
        "device": [e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)],
        "stream": [_stream(e, a) for e, a in zip(events, args, strict=True)],
        "correlation_id": [a.correlation for a in args],
        "op_id": _op_ids(args),
        "graph_id": [a.graph_id for a in args],
        "graph_node_id": [a.graph_node_id for a in args],
        "annotation": [None if a.graph_node_id is None else _annotation(a.label) for a in args],
    }


def _stream(event: Event, args: Args) -> int | str | None:
    if args.original_stream is not None:
        return args.original_stream
    return event.tid if args.stream is None else args.stream


def _annotation(label: Raw) -> str | None:
    try:
        return msgspec.json.decode(label, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _dim(sizes: Iterable[list[int] | str | None], axis: int) -> list[int | None]:
    return [s[axis] if isinstance(s, list) and len(s) > axis else None for s in sizes]


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
    columns |= _collectives(args)
    if "collective" in columns:
        args = [_NO_ARGS if a.collective is None else a for a in args]
        columns |= {
            "group_size": [a.group_size for a in args],
            "group_desc": [a.group_desc for a in args],
            "seq": [a.seq for a in args],
            "in_splits": [_list_text(a.in_splits) for a in args],
            "out_splits": [_list_text(a.out_splits) for a in args],
        }
    return columns


def _collectives(args: Sequence[Args]) -> Columns:
    """Return the columns of collectives, of kernels and of operators; nothing if no event is a collective."""
    if all(a.collective is None for a in args):
        return {}
    args = [_NO_ARGS if a.collective is None else a for a in args]
    return {
        "collective": [a.collective for a in args],
        "peer": [a.source if a.destination is None else a.destination for a in args],
        "in_elems": [a.in_elems for a in args],
        "out_elems": [a.out_elems for a in args],
        "dtype": [a.dtype for a in args],
        "group_name": [a.group_name for a in args],
        "group_ranks": [_list_text(a.group_ranks) for a in args],
    }


def _list_text(raw: Raw) -> str | None:
    """Return the text of a list, or of a string with a list (shortened with '...' if it was long)."""
    text = bytes(raw)
    if text[:1] == b'"':
        try:
            return str(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return str(msgspec.json.decode(repair(text)))
    return text.decode("utf-8", "replace") or None


def _memcpys(events: Sequence[Event]) -> Columns:
    args = _args(events)
    columns = _gpu(events, args)
    matches = [_MEMCPY.match(e.name) for e in events]
    # Peer-to-peer copies have inDevice instead of device.
    columns["device"] = [a.in_device if a.device is None and a.in_device is not None else d
                         for a, d in zip(args, columns["device"], strict=True)]  # fmt: skip
    return columns | {
        "kind": [_KINDS.get(m.group(1), m.group(1)) if m and m.group(1) else "Unknown" for m in matches],
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


def _calls(events: Sequence[Event], api: str) -> Columns:
    args = _args(events)
    return _cpu(events, args) | {
        "api": [api] * len(events),
        "correlation_id": [a.correlation for a in args],
        "op_id": _op_ids(args),
        "kernel": [a.kernel for a in args],
    }


def _cpu_ops(events: Sequence[Event]) -> Columns:
    args = _args(events)
    columns = _cpu(events, args) | {
        "op_id": _op_ids(args),
        "sequence_number": [a.sequence_number for a in args],
        "fwd_thread": [a.fwd_thread for a in args],
        "record_function_id": [a.record_function_id for a in args],
        "input_dims": json_texts([a.input_dims or a.input_dims_2021 for a in args]),
        "input_types": json_texts([a.input_types for a in args]),
        "concrete_inputs": json_texts([a.concrete_inputs for a in args]),
    }
    return columns | _collectives(args)


def _annotations(events: Sequence[Event]) -> Columns:
    origins = ["profiler_step" if e.name.startswith("ProfilerStep#") else "record_function" for e in events]
    return _ranges(events, "record_function") | {"origin": origins}


def _gpu_annotations(events: Sequence[Event]) -> Columns:
    gpu = _gpu(events, _args(events))
    return _ranges(events, "gpu_annotation") | {"device": gpu["device"], "stream": gpu["stream"]}


def _ranges(events: Sequence[Event], origin: str) -> Columns:
    args = _args(events)
    return _cpu(events, args) | {
        "origin": [origin] * len(events),
        "op_id": _op_ids(args),
        "python_id": [a.python_id for a in args],
        "python_parent_id": [a.python_parent_id for a in args],
    }


ALLOCATOR_DEVICES = {0: "cpu", 1: "cuda", 2: "mkldnn", 6: "hip", 12: "xpu"}
"""c10::DeviceType"""


def _memory_events(events: Sequence[Event]) -> Columns:
    args = _args(events)
    return {
        "pid": [e.pid for e in events],
        "device_type": [
            None if a.memory_device_type is None else ALLOCATOR_DEVICES.get(a.memory_device_type, "other") for a in args
        ],
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
    "cuda_runtime": ("cuda_calls", partial(_calls, api="runtime")),
    "cuda_driver": ("cuda_calls", partial(_calls, api="driver")),
    "cuda_sync": ("cuda_calls", partial(_calls, api="sync")),
    "cpu_op": ("cpu_ops", _cpu_ops),
    "user_annotation": ("ranges", _annotations),
    "gpu_user_annotation": ("ranges", _gpu_annotations),
    "python_function": ("ranges", partial(_ranges, origin="python_function")),
    "overhead": ("ranges", partial(_ranges, origin="overhead")),
    "cpu_instant_event": ("memory_events", _memory_events),
}
"""Category of an event -> its table and how to build the table's columns."""
