"""Lists of Chrome trace events as Arrow batches of the tables.

Which category goes to which table stands in `CATEGORIES`; the names differ between 2021 (`Kernel`) and now (`kernel`).
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Raw

from analyze.sources.chrome.arrow_columns import Columns, concat, json_texts, record_batch
from analyze.sources.chrome.decimal_us import MAX_NS, to_ns
from analyze.sources.chrome.events import Args, Event, Tally
from analyze.sources.chrome.json_repair import repair
from analyze.sources.chrome.metadata import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_ARGS = Args()


class Kind(Protocol):
    """What tells which table an event belongs to."""

    @property
    def ph(self) -> str:
        """Phase."""

    @property
    def cat(self) -> str:
        """Category."""

    @property
    def name(self) -> str:
        """Name."""


E = TypeVar("E", bound=Kind)
Batches = dict[str, pa.RecordBatch]

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
"""Of Intel's GPUs, where M is memory that is no device's (H2D, M2D), and of AMD's (HostToDevice)."""
_MEMSET = re.compile(r"[^(]*\((\w+)\)")


def _args(events: Sequence[Event]) -> list[Args]:
    return [e.args or _NO_ARGS for e in events]


def _cpu(events: Sequence[Event], args: Sequence[Args]) -> Columns:
    tids = [e.tid if a.tid is None else a.tid for e, a in zip(events, args, strict=True)]
    return {"pid": [e.pid for e in events], "tid": tids}


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
    """What stands beside a collective, on the GPU and where it is asked for; nothing if none of the events is one."""
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
    """A list, or a string that holds one (with '...' in it when it was long)."""
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
    # Peer-to-peer copies say inDevice instead of device.
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


def _calls(api: str) -> Callable[[Sequence[Event]], Columns]:
    def build(events: Sequence[Event]) -> Columns:
        args = _args(events)
        return _cpu(events, args) | {
            "api": [api] * len(events),
            "correlation_id": [a.correlation for a in args],
            "op_id": _op_ids(args),
        }

    return build


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


def _ranges(origin: str) -> Callable[[Sequence[Event]], Columns]:
    def build(events: Sequence[Event]) -> Columns:
        args = _args(events)
        names = [e.name for e in events]
        gpu = _gpu(events, args) if origin == "gpu_annotation" else {}
        return _cpu(events, args) | {
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
    "xpu_runtime": "cuda_runtime",
    "xpu_driver": "cuda_driver",
    "privateuse1_runtime": "cuda_runtime",
    "privateuse1_driver": "cuda_driver",
    "mtia_runtime": "cuda_runtime",
    "mtia_ccp_events": "kernel",
    "Synchronization": "cuda_sync",
    "Operator": "cpu_op",
    "operator": "cpu_op",
    "Python function": "python_function",
    "Overhead": "overhead",
}


_NOT_STORED = {"M", "s", "t", "f", "C", "i", "I", "R", "P", "N", "O", "D", "c"}
"""Phases of events that no table is for: names, flows, counters, instants, marks, samples, objects."""
_NOT_STORED_CATEGORIES = {"Trace"}
"""Complete events that say nothing that other events do not: the span of the recording."""

_RANGE_NAMES = (
    "ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#", "enumerate(DataPipe)#",
    "DistributedDataParallel.forward",
)  # fmt: skip
"""What torch itself records as ranges, and wrote among the operators until 2021."""

NO_PHASE = "without a phase (ph)"
NO_TIME = "without a time (ts) within 146 years of the clock's zero"


def build_batches(events: Sequence[Event], base_ns: int, tally: Tally) -> Batches:
    """Arrow batches by table name, without run_id and rank; what became of each event goes to `tally`.

    `base_ns` is added to every start: Kineto's baseTimeNanoseconds, 0 where the file has none.
    """
    parts: dict[str, list[pa.RecordBatch]] = {}
    for category, group in by_category(events, tally).items():
        if batch := category_batch(category, group, base_ns, tally):
            parts.setdefault(CATEGORIES[category][0], []).append(batch)
    return {t: b[0] if len(b) == 1 else concat(b) for t, b in parts.items()}


def by_category(events: Sequence[E], tally: Tally) -> dict[str, list[E]]:
    """Events that tables are for, by their category in `CATEGORIES`; all are counted in `tally`.

    Those of a category stand in their order, the aliases of it one after the other.
    """
    groups: defaultdict[tuple[str, str], list[E]] = defaultdict(list)
    no_phase = 0
    unread: Counter[str] = Counter()
    for e in events:
        ph = e.ph
        if ph == "X" or (ph == "i" and e.name == "[memory]"):
            groups[ph, e.cat].append(e)
        elif ph not in _NOT_STORED:
            if ph:
                unread[phase_label(e)] += 1
            else:
                no_phase += 1
    found: defaultdict[str, list[E]] = defaultdict(list)
    for (ph, cat), group in groups.items():
        category = _ALIASES.get(cat, cat)
        if category in CATEGORIES and (category == "cpu_instant_event") == (ph == "i"):
            found[category] += group
        elif ph == "X" and cat not in _NOT_STORED_CATEGORIES:
            unread[_label(cat)] += len(group)
    _part_ranges(found)
    if no_phase:
        tally.lost[NO_PHASE] += no_phase
    tally.unread += unread
    tally.events += len(events) - no_phase - unread.total()
    return found


def category_batch(category: str, events: Sequence[Event], base_ns: int, tally: Tally) -> pa.RecordBatch | None:
    """The rows of a category's events; None if there are none. Those without a time are moved to `tally.lost`."""
    start, known = _starts(events, base_ns)
    if lost := int((~known).sum()):
        tally.lost[NO_TIME] += lost
        tally.events -= lost
        events = [e for e, ok in zip(events, known, strict=True) if ok]
        start = start[known]
    if not events:
        return None
    table, build = CATEGORIES[category]
    columns = build(events)
    columns["start_ns"] = start
    if table != "memory_events":
        dur, has_dur = to_ns([e.dur for e in events])
        has_dur &= dur >= 0  # a length below 0 would be taken from the sums that others are in
        columns["dur_ns"] = pa.array(dur, mask=~has_dur)
        if not has_dur.all():
            tally.unrepresentable["dur"] += int((~has_dur).sum())
    if "name" not in columns:
        columns["name"] = [e.name for e in events]
    return record_batch(table, columns, len(events), tally.unrepresentable)


def process_groups(groups: Sequence[ProcessGroup]) -> pa.RecordBatch:
    """The process groups that a trace lists, as rows of `process_groups`."""
    columns: Columns = {
        "group_name": [None if g.name is None else str(g.name) for g in groups],
        "description": [g.description for g in groups],
        "ranks": [json.dumps(g.ranks) if g.ranks else None for g in groups],
        "size": [g.size if g.size is not None else len(g.ranks or ()) or None for g in groups],
        "backend": [g.backend for g in groups],
    }
    return record_batch("process_groups", columns, len(groups), Counter())


def phase_label(event: Kind) -> str:
    """An event that is not read, as it can stand in a warning."""
    return f"{_label(event.cat)}, phase {_label(event.ph)}"


def _label(cat: str) -> str:
    """A category as it can stand in a warning."""
    return "".join(c if c.isprintable() else "?" for c in cat[:40]) or "no category"


def _part_ranges(found: dict[str, list[E]]) -> None:
    """Move the ranges among the operators to the ranges."""
    ops = found.get("cpu_op", [])
    if any(n.startswith(_RANGE_NAMES) for n in {e.name for e in ops}):
        found["user_annotation"] += [e for e in ops if e.name.startswith(_RANGE_NAMES)]
        found["cpu_op"] = [e for e in ops if not e.name.startswith(_RANGE_NAMES)]


def _starts(events: Sequence[Event], base_ns: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    start, known = to_ns([e.ts for e in events])
    start = start + base_ns
    return start, known & (np.abs(start) <= MAX_NS)
