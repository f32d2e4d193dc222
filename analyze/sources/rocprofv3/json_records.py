"""Read JSON of rocprofv3 (`--output-format json`): records of dispatches, copies and calls, by process.

https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html#json-output-schema
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from analyze.errors import InputError
from analyze.sources.chrome.arrow_columns import Columns, record_batch
from analyze.sources.interface import FileReport, TableBatch
from analyze.sources.rocprofv3.columns import call_table, check_processes, copy_kind, demangled, sizes, timed, warn

_GPU = 2
"""Type of an agent."""

_Time = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _Handle(msgspec.Struct):
    handle: int = 0


class _Correlation(msgspec.Struct):
    internal: int = 0


class _Size(msgspec.Struct):
    x: int | None = None
    y: int | None = None
    z: int | None = None


class _Dispatch(msgspec.Struct):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = 0
    group_segment_size: int | None = None
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)


class _Record(msgspec.Struct):
    start_timestamp: _Time
    end_timestamp: _Time
    kind: int | str = 0
    operation: int | str = 0
    thread_id: int | None = None
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    stream_id: _Handle | None = None
    dispatch_info: _Dispatch = msgspec.field(default_factory=_Dispatch)
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: int | None = None


class _Agent(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: int | str = 0
    logical_node_type_id: int | None = None
    product_name: str | None = None
    name: str | None = None


class _Kind(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct):
    key: int
    value: str = ""


class _Strings(msgspec.Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Symbol(msgspec.Struct):
    kernel_id: int
    formatted_kernel_name: str | None = None
    demangled_kernel_name: str | None = None
    kernel_name: str | None = None


class _Metadata(msgspec.Struct):
    command: list[str] = []


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: dict[str, msgspec.Raw] = {}


class _File(msgspec.Struct):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the kernels, copies, calls and ranges of all processes. Raises InputError for damaged JSON."""
    unrepresentable: Counter[str] = Counter()
    damaged: Counter[str] = Counter()
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        check_processes(path, len(file.processes))
        several = len(file.processes) > 1
        for rank, process in enumerate(file.processes):
            report.info |= _run_columns(process)
            for table, columns, n in _work(process, damaged):
                yield table, rank if several else None, record_batch(table, columns, n, unrepresentable)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        raise InputError(f"{path}: not JSON of rocprofv3, or damaged: {e}") from e
    warn(path, report, len(file.processes), unrepresentable, damaged)


def _run_columns(process: _Process) -> dict[str, Any]:
    names = [a.product_name or a.name for a in process.agents if _is_gpu(a)]
    found = {"gpu_name": names[0] if names else None, "command": " ".join(process.metadata.command)}
    return {column: value for column, value in found.items() if value}


def _is_gpu(agent: _Agent) -> bool:
    return agent.type in (_GPU, "GPU")


def _records(raw: msgspec.Raw, name: str, damaged: Counter[str]) -> list[_Record]:
    """Return the records of a list; those with a value that is missing or cannot be are counted."""
    try:
        return msgspec.json.decode(raw, type=list[_Record])
    except msgspec.ValidationError:
        singles = msgspec.json.decode(raw, type=list[msgspec.Raw])
    records = []
    for single in singles:
        try:
            records.append(msgspec.json.decode(single, type=_Record))
        except msgspec.ValidationError:
            damaged[name] += 1
    return records


def _work(process: _Process, damaged: Counter[str]) -> Iterator[tuple[str, Columns, int]]:
    gpus = [a for a in process.agents if _is_gpu(a)]
    devices = {
        a.id.handle: at if a.logical_node_type_id is None else a.logical_node_type_id for at, a in enumerate(gpus)
    }
    calls: defaultdict[tuple[str, str], list[_Record]] = defaultdict(list)
    for name, raw in process.buffer_records.items():
        if name == "kernel_dispatch" and (records := _records(raw, name, damaged)):
            yield "kernels", _kernels(process, records, devices), len(records)
        elif name == "memory_copy" and (records := _records(raw, name, damaged)):
            yield "memcpys", _memcpys(process, records, devices), len(records)
        elif name.endswith("_api"):
            calls[call_table(name.upper())] += _records(raw, name, damaged)
    messages = {message.key: message.value for message in process.strings.marker_api}
    for (table, api), records in calls.items():
        names = [_operation(process, r) for r in records]
        if table == "ranges":
            names = [messages.get(r.correlation_id.internal, name) for r, name in zip(records, names, strict=True)]
        columns: Columns = {"name": names, "tid": [r.thread_id for r in records], **_common(records)}
        columns["origin" if table == "ranges" else "api"] = [api] * len(records)
        yield table, columns, len(records)


def _kernels(process: _Process, records: Sequence[_Record], devices: dict[int, int]) -> Columns:
    symbols = {
        s.kernel_id: demangled(s.formatted_kernel_name, s.demangled_kernel_name, s.kernel_name)
        for s in process.kernel_symbols
    }
    infos = [r.dispatch_info for r in records]
    grids = {axis: [getattr(d.grid_size, axis) for d in infos] for axis in "xyz"}
    groups = {axis: [getattr(d.workgroup_size, axis) for d in infos] for axis in "xyz"}
    return {
        "name": [symbols.get(d.kernel_id) for d in infos],
        "device": [devices.get(d.agent_id.handle) for d in infos],
        "stream": [
            d.queue_id.handle if r.stream_id is None else r.stream_id.handle
            for r, d in zip(records, infos, strict=True)
        ],
        "shared_mem_bytes": [d.group_segment_size for d in infos],
        **sizes(grids, groups),
        **_common(records),
    }


def _memcpys(process: _Process, records: Sequence[_Record], devices: dict[int, int]) -> Columns:
    ends = [(devices.get(r.src_agent_id.handle), devices.get(r.dst_agent_id.handle)) for r in records]
    return {
        "kind": [copy_kind(_operation(process, r)) for r in records],
        "device": [target if source is None else source for source, target in ends],
        "stream": [r.stream_id and r.stream_id.handle for r in records],
        "bytes": [r.bytes for r in records],
        **_common(records),
    }


def _operation(process: _Process, record: _Record) -> str | None:
    """Return the name of an operation: the file numbers kinds and their operations."""
    if isinstance(record.operation, str):
        return record.operation
    kinds = process.strings.buffer_records
    if not isinstance(record.kind, int) or not 0 <= record.kind < len(kinds):
        return None
    names = kinds[record.kind].operations
    return names[record.operation] if 0 <= record.operation < len(names) else None


def _common(records: Sequence[_Record]) -> Columns:
    return timed(
        [r.start_timestamp for r in records],
        [r.end_timestamp for r in records],
        [r.correlation_id.internal for r in records],
    )
