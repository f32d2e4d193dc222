"""What a Chrome trace says about itself around its events: rank, GPU, versions, the zero of its clock."""

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
"""Bytes of a packed file that is unpacked as a whole to know its end."""
_TEXTS = {"nccl_version", "pytorch_version", "host_name"}


class ProcessGroup(msgspec.Struct):
    """An entry of `pg_config` in `distributedInfo`: a process group that the rank is in."""

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


class Device(msgspec.Struct, rename={"major": "computeMajor", "minor": "computeMinor"}):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    major: int | None = None
    minor: int | None = None


class Metadata(msgspec.Struct, rename={"base_ns": "baseTimeNanoseconds", "distributed": "distributedInfo"}):
    """What a trace says about itself around its events."""

    base_ns: int | None = None
    distributed: Distributed | None = None
    devices: list[Device] | None = msgspec.field(default=None, name="deviceProperties")
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None
    host_name: str | None = None
    torch_version: str | None = msgspec.field(default=None, name="pytorch_version")

    def run_columns(self) -> dict[str, Any]:
        """The columns of `runs` that this fills."""
        columns: dict[str, Any] = {"host": self.host_name, "torch_version": self.torch_version}
        if self.devices:
            device = self.devices[0]
            columns["gpu_name"] = device.name
            if device.major is not None and device.minor is not None:
                columns["compute_capability"] = f"{device.major}.{device.minor}"
        if self.cuda_runtime_version:
            columns["cuda_version"] = _cuda_version(self.cuda_runtime_version)
        if self.distributed:
            columns["world_size"] = self.distributed.world_size
            columns["nccl_version"] = self.distributed.nccl_version
        # What is not known is written as an empty name, too.
        return {k: v for k, v in columns.items() if v is not None and v != ""}


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def parse_metadata(text: bytes) -> tuple[Metadata, list[str]]:
    """Metadata from the JSON object around the events, and what could not be read of it; that is left out."""
    for candidate in (text, repair(text)):
        try:
            fields = msgspec.json.decode(candidate, type=dict[str, msgspec.Raw])
            break
        except _ERRORS:
            continue
    else:
        return Metadata(), ["what the file says of itself cannot be read"]
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
    """A struct of those fields that can be read."""
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
    """What msgspec compiles anew whenever it is asked: an eighth of the time that a file of a few events takes."""
    return msgspec.structs.fields(struct)


def _parts(name: str, text: bytes, odd: list[str]) -> Any:
    """A value of a wrong type: a text if it is a number, of `distributedInfo` what can be read of it."""
    try:
        if name == "distributedInfo":
            return _lenient(Distributed, msgspec.json.decode(text, type=dict[str, msgspec.Raw]), odd)
        if name in _TEXTS:
            return str(msgspec.json.decode(text, type=int | float))
    except _ERRORS:
        pass
    odd.append(name)
    return None


def behind_events(trace: TraceFile, longest: int | None = None) -> Metadata:
    """Metadata that stands behind the events of a trace, from the last MiB of the file (see TraceFile.tail)."""
    tail = trace.tail(longest)
    end = find_trailer(tail)
    return parse_metadata(trailer_object(tail[end + 1 :]))[0] if end >= 0 else Metadata()


def trailer_object(trailer: bytes) -> bytes:
    """What follows the list of events in the object of a trace, as an object of its own."""
    text = trailer.strip(b" \t\r\n,")
    return b"{" + text if text else b"{}"


def merged(first: Metadata, second: Metadata) -> Metadata:
    """Metadata of two places; the first goes before the second."""
    fields = {name: getattr(first, name) for name in first.__struct_fields__}
    return Metadata(**{n: getattr(second, n) if v is None else v for n, v in fields.items()})


def read_metadata(path: RawPath) -> Metadata:
    """Metadata of a trace file; raises InputError if it is none.

    What stands behind the events is found if it is in the last MiB of a plain file, or of a gzip file of up to 4 MiB on
    disk: to know its end, a gzip file must be unpacked. It is not looked for if `distributedInfo` stands before them.
    """
    trace = TraceFile(path, chunk_bytes=64 << 10)
    try:
        before, _ = parse_metadata(trace.header.text)
        if before.distributed or trace.header.is_array:
            return before
        return merged(before, behind_events(trace, LONGEST_GZIP))
    finally:
        trace.close()
