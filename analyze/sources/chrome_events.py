"""Events of a Chrome trace as typed structs; names of arguments differ between 2021 (`external id`) and now."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

_NONE = Raw(b"")
_Int = int | None
_Number = int | float | None
_Str = str | None


class Args(msgspec.Struct, gc=False, omit_defaults=True):
    """The `args` of an event that the tables use, under their names since 2022.

    In the order in which Kineto writes them for each category: msgspec looks for a key behind the last one it met.
    """

    op_id: _Int = msgspec.field(default=None, name="External id")
    sequence_number: _Int = msgspec.field(default=None, name="Sequence number")
    fwd_thread: _Int = msgspec.field(default=None, name="Fwd thread id")
    record_function_id: _Int = msgspec.field(default=None, name="Record function id")
    concrete_inputs: Raw = msgspec.field(default=_NONE, name="Concrete Inputs")
    input_types: Raw = msgspec.field(default=_NONE, name="Input type")
    input_dims: Raw = msgspec.field(default=_NONE, name="Input Dims")
    reserved: _Int = msgspec.field(default=None, name="Total Reserved")
    allocated: _Int = msgspec.field(default=None, name="Total Allocated")
    memory_bytes: _Int = msgspec.field(default=None, name="Bytes")
    memory_device: _Int = msgspec.field(default=None, name="Device Id")
    memory_device_type: _Int = msgspec.field(default=None, name="Device Type")
    addr: _Int = msgspec.field(default=None, name="Addr")
    device: _Int = None
    stream: _Int = None
    correlation: _Int = None
    registers: _Int = msgspec.field(default=None, name="registers per thread")
    shared_memory: _Int = msgspec.field(default=None, name="shared memory")
    blocks_per_sm: _Number = msgspec.field(default=None, name="blocks per SM")
    grid: list[int] | None = None
    block: list[int] | None = None
    occupancy: _Number = msgspec.field(default=None, name="est. achieved occupancy %")
    python_parent_id: _Int = msgspec.field(default=None, name="Python parent id")
    python_id: _Int = msgspec.field(default=None, name="Python id")
    graph_id: _Int = msgspec.field(default=None, name="graph id")
    collective: _Str = msgspec.field(default=None, name="Collective name")
    in_elems: _Int = msgspec.field(default=None, name="In msg nelems")
    out_elems: _Int = msgspec.field(default=None, name="Out msg nelems")
    dtype: _Str = None
    group_size: _Int = msgspec.field(default=None, name="Group size")
    group_name: _Str = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Raw = msgspec.field(default=_NONE, name="Process Group Ranks")
    seq: _Int = msgspec.field(default=None, name="Seq")
    bytes: _Int = None
    from_device: _Int = msgspec.field(default=None, name="fromDevice")
    in_device: _Int = msgspec.field(default=None, name="inDevice")
    to_device: _Int = msgspec.field(default=None, name="toDevice")
    op_id_2021: _Int = msgspec.field(default=None, name="external id")
    input_dims_2021: Raw = msgspec.field(default=_NONE, name="Input dims")


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` stay text; `pid` and `tid` can be labels ("Spans")."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = _NONE
    dur: Raw = _NONE
    args: Args | None = None


_decode_list = msgspec.json.Decoder(list[Event], strict=False).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_one = msgspec.json.Decoder(Event, strict=False).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)


def decode_chunk(chunk: bytes) -> list[Event] | None:
    """Decode comma-separated events; None if they are not all well-formed and of the expected types."""
    try:
        return _decode_list(b"[" + chunk + b"]")
    except _ERRORS:
        return None


def split_chunk(chunk: bytes) -> list[bytes] | None:
    """Comma-separated JSON objects one by one; None if the chunk is not well-formed (or was cut inside an event)."""
    try:
        return [bytes(raw) for raw in _decode_raws(b"[" + chunk + b"]")]
    except _ERRORS:
        return None


def decode_event(data: bytes) -> Event | None:
    """Decode one event; a field of an unexpected type is left out, None if it is not JSON or no event at all."""
    try:
        return _decode_one(data)
    except _ERRORS:
        pass
    try:
        fields = _decode_fields(data)
        args = _decode_fields(fields["args"]) if bytes(fields.get("args", b""))[:1] == b"{" else {}
    except _ERRORS:
        return None
    event = _lenient(Event, fields)
    event.args = _lenient(Args, args)
    return event


def _lenient(struct: type[Any], fields: dict[str, Raw]) -> Any:
    values = {}
    for field in msgspec.structs.fields(struct):
        if field.encode_name in fields and field.encode_name != "args":
            try:
                values[field.name] = msgspec.json.decode(fields[field.encode_name], type=field.type, strict=False)
            except _ERRORS:
                continue
    return struct(**values)
