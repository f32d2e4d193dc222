"""Read the metadata around the events of a Chrome trace: rank, GPU, versions, time 0 of its clock."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from analyze.sources.chrome.decimal_us import MAX_NS
from analyze.sources.chrome.json_events import TraceFile
from analyze.sources.chrome.json_recovery import find_trailer
from analyze.sources.chrome.json_repair import repair
from analyze.sources.remote import RawPath

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_S = TypeVar("_S", bound=msgspec.Struct)
_LARGEST_RANK = 2**31 - 1
LONGEST_GZIP = 4 << 20
"""Size limit of gzip files that are decompressed completely to read their end."""
_TEXTS = {"nccl_version", "pytorch_version", "host_name"}


class ProcessGroup(msgspec.Struct):
    """An entry of `pg_config` in `distributedInfo`: a process group of the rank."""

    name: str | int | None = msgspec.field(default=None, name="pg_name")
    description: str | None = msgspec.field(default=None, name="pg_desc")
    backend: str | None = msgspec.field(default=None, name="backend_config")
    size: int | None = msgspec.field(default=None, name="pg_size")
    ranks: list[int] | None = None


class Distributed(msgspec.Struct):
    """`distributedInfo` of a trace."""

    rank: int | None = None
    world_size: int | None = None
    nccl_version: str | None = None
    groups: list[ProcessGroup] | None = msgspec.field(default=None, name="pg_config")


class TraceDevice(msgspec.Struct, rename={"major": "computeMajor", "minor": "computeMinor"}):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    major: int | None = None
    minor: int | None = None


class CapturedGraph(msgspec.Struct):
    """An entry of `cudaGraphs`, which `collect` writes: a CUDA graph, when it was captured, and what it runs."""

    graph: int
    begin_ns: int
    end_ns: int
    nodes: list[tuple[str, str | None]] = []
    """Kind and name of each node."""


class Metadata(msgspec.Struct, rename={"base_ns": "baseTimeNanoseconds", "distributed": "distributedInfo"}):
    """The metadata of a trace."""

    base_ns: int | None = None
    distributed: Distributed | None = None
    devices: list[TraceDevice] | None = msgspec.field(default=None, name="deviceProperties")
    cuda_runtime_version: int | None = None
    host_name: str | None = None
    torch_version: str | None = msgspec.field(default=None, name="pytorch_version")
    graphs: list[CapturedGraph] | None = msgspec.field(default=None, name="cudaGraphs")

    def run_columns(self) -> dict[str, Any]:
        """Return the columns of `runs` that are known."""
        columns: dict[str, Any] = {"host": self.host_name, "torch_version": self.torch_version}
        if self.devices:
            device = self.devices[0]
            columns["gpu_name"] = device.name
            if device.major is not None and device.minor is not None:
                columns["compute_capability"] = f"{device.major}.{device.minor}"
        if version := self.cuda_runtime_version:
            columns["cuda_version"] = f"{version // 1000}.{version % 1000 // 10}"
        if self.distributed:
            columns["world_size"] = self.distributed.world_size
            columns["nccl_version"] = self.distributed.nccl_version
        # Unknown values may be empty strings.
        return {k: v for k, v in columns.items() if v is not None and v != ""}


def parse_metadata(text: bytes) -> tuple[Metadata, list[str]]:
    """Parse the JSON object around the events; return the metadata and warnings about unreadable fields."""
    for candidate in (text, repair(text)):
        try:
            fields = msgspec.json.decode(candidate, type=dict[str, msgspec.Raw])
            break
        except _ERRORS:
            continue
    else:
        return Metadata(), ["its metadata cannot be read"]
    odd: list[str] = []
    found = _lenient(Metadata, fields, odd)
    if found.base_ns is not None and abs(found.base_ns) > MAX_NS:
        found.base_ns = None
        odd.append("baseTimeNanoseconds")
    if found.distributed:
        for name in ("rank", "world_size"):
            number = getattr(found.distributed, name)
            if number is not None and not 0 <= number <= _LARGEST_RANK:
                setattr(found.distributed, name, None)
                odd.append(name)
    return found, [f"its {', '.join(odd)} cannot be read"] if odd else []


def _lenient(struct: type[_S], fields: dict[str, msgspec.Raw], odd: list[str]) -> _S:
    """Return a struct of the fields that can be read; add the names of others to `odd`."""
    found = struct()
    for spec in _fields(struct):
        text = bytes(fields.get(spec.encode_name, b"null"))
        try:
            value = msgspec.json.decode(text, type=spec.type, strict=False)
        except _ERRORS:
            try:
                value = msgspec.json.decode(repair(text), type=spec.type, strict=False)
            except _ERRORS:
                value = _parts(spec.encode_name, text, odd)
        setattr(found, spec.name, value)
    return found


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct. Cached: msgspec compiles them each time, an eighth of the time of a tiny file."""
    return msgspec.structs.fields(struct)


def _parts(name: str, text: bytes, odd: list[str]) -> Any:
    """Read a value of a wrong type: a number as text, readable parts of `distributedInfo`; else None."""
    try:
        if name == "distributedInfo":
            return _lenient(Distributed, msgspec.json.decode(text, type=dict[str, msgspec.Raw]), odd)
        if name in _TEXTS:
            return str(msgspec.json.decode(text, type=int | float))
    except _ERRORS:
        pass
    odd.append(name)
    return None


def metadata_after_events(trace: TraceFile, longest: int | None = None) -> Metadata:
    """Return the metadata after the events of a trace, from the last MiB of the file (see TraceFile.tail)."""
    tail = trace.tail(longest)
    end = find_trailer(tail)
    return parse_metadata(trailer_object(tail[end + 1 :]))[0] if end >= 0 else Metadata()


def trailer_object(trailer: bytes) -> bytes:
    """Return the bytes after the list of events as a JSON object."""
    text = trailer.strip(b" \t\r\n,")
    return b"{" + text if text else b"{}"


def merged(first: Metadata, second: Metadata) -> Metadata:
    """Merge metadata of two places; fields of the first take precedence."""
    fields = {name: getattr(first, name) for name in first.__struct_fields__}
    return Metadata(**{n: getattr(second, n) if v is None else v for n, v in fields.items()})


def read_metadata(path: RawPath) -> Metadata:
    """Read the metadata of a trace file. Raises InputError if it is not a trace.

    Metadata after the events is read only if `distributedInfo` is not before them: from the last MiB of a plain file,
    or of a gzip file of up to 4 MiB, which must be decompressed completely.
    """
    trace = TraceFile(path, chunk_bytes=64 << 10)
    try:
        before, _ = parse_metadata(trace.header.text)
        if before.distributed or trace.header.is_array:
            return before
        return merged(before, metadata_after_events(trace, LONGEST_GZIP))
    finally:
        trace.close()
