"""What a Chrome trace says about itself around its events: rank, GPU, versions, the zero of its clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from analyze.sources.json_events import TraceFile, repair


class Distributed(msgspec.Struct):
    """`distributedInfo` of a trace."""

    rank: int | None = None
    world_size: int | None = None
    nccl_version: str | None = None


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
        return {k: v for k, v in columns.items() if v is not None}


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def parse_metadata(text: bytes) -> Metadata:
    """Metadata from the JSON object around the events; fields that cannot be read are left out."""
    for candidate in (text, repair(text)):
        try:
            return msgspec.json.decode(candidate, type=Metadata, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    try:
        fields = msgspec.json.decode(repair(text), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Metadata()
    found = Metadata()
    for spec in msgspec.structs.fields(Metadata):
        if spec.encode_name in fields:
            try:
                setattr(found, spec.name, msgspec.json.decode(fields[spec.encode_name], type=spec.type, strict=False))
            except msgspec.DecodeError:
                continue
    return found


def read_metadata(path: Path) -> Metadata:
    """Metadata from the beginning of a trace file; raises InputError if it is none."""
    trace = TraceFile(path, chunk_bytes=64 << 10)
    trace.close()
    return parse_metadata(trace.header.text)
