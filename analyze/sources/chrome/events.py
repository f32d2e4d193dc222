"""Decode events of a Chrome trace to typed structs. Names of arguments changed since 2021 (`external id`)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from analyze.sources.chrome.json_recovery import MALFORMED, TOO_DEEP, count_events
from analyze.sources.chrome.json_repair import repair

_NONE = Raw(b"")
_Int = int | None
_Number = int | float | None
_Str = str | None


class Args(msgspec.Struct, gc=False, omit_defaults=True):
    """The `args` of an event that the tables use, by their names since 2022.

    They are in the order in which Kineto writes them: msgspec first tries the key after the last one it found.
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
    grid: list[int] | str | None = None
    """Text in Inductor's operators."""
    block: list[int] | None = None
    occupancy: _Number = msgspec.field(default=None, name="est. achieved occupancy %")
    python_parent_id: _Int = msgspec.field(default=None, name="Python parent id")
    python_id: _Int = msgspec.field(default=None, name="Python id")
    graph_id: _Int = msgspec.field(default=None, name="graph id")
    graph_node_id: _Int = msgspec.field(default=None, name="graph node id")
    original_stream: _Int = None
    """The stream of work that torch draws on another one (`graph_lanes` of export_chrome_trace)."""
    collective: _Str = msgspec.field(default=None, name="Collective name")
    in_elems: _Int = msgspec.field(default=None, name="In msg nelems")
    out_elems: _Int = msgspec.field(default=None, name="Out msg nelems")
    group_size: _Int = msgspec.field(default=None, name="Group size")
    dtype: _Str = None
    in_splits: Raw = msgspec.field(default=_NONE, name="In split size")
    out_splits: Raw = msgspec.field(default=_NONE, name="Out split size")
    group_name: _Str = msgspec.field(default=None, name="Process Group Name")
    group_desc: _Str = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Raw = msgspec.field(default=_NONE, name="Process Group Ranks")
    destination: _Int = msgspec.field(default=None, name="Dst Rank")
    source: _Int = msgspec.field(default=None, name="Src Rank")
    seq: _Int = msgspec.field(default=None, name="Seq")
    bytes: _Int = None
    from_device: _Int = msgspec.field(default=None, name="fromDevice")
    in_device: _Int = msgspec.field(default=None, name="inDevice")
    to_device: _Int = msgspec.field(default=None, name="toDevice")
    op_id_2021: _Int = msgspec.field(default=None, name="external id")
    input_dims_2021: Raw = msgspec.field(default=_NONE, name="Input dims")
    kernel: _Str = None
    """The kernel that a call launches: ROCm's calls have it."""
    tid: _Int = msgspec.field(default=None, name="thread id")
    """The thread of events that `analyze trace` draws on another thread."""
    rank: Raw = _NONE
    """The rank of events in a file of several processes (see `processes`). Other programs may write anything here."""
    # Arguments of other programs than torch.profiler (see `producers`), of any type.
    label: Raw = msgspec.field(default=_NONE, name="name")
    """The name of a process or thread, or the annotation of a node of a CUDA graph (torch's mark_kernels)."""
    id: Raw = _NONE
    correlation_id: Raw = _NONE
    connection_id: Raw = _NONE
    kernel_details: Raw = _NONE
    memcpy_details: Raw = _NONE
    memset_details: Raw = _NONE
    step_num: Raw = _NONE
    task_type: Raw = msgspec.field(default=_NONE, name="Task Type")


class Event(msgspec.Struct, gc=False):
    """An event. `ts` and `dur` stay text; `pid` and `tid` may be labels ("Spans")."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = _NONE
    dur: Raw = _NONE
    args: Args | None = None


class CounterEvent(Event):
    """A sample of counters, or metrics of a kernel: the values of its `args`, which have any names."""

    values: dict[str, Raw] = {}


class _Values(msgspec.Struct, gc=False):
    args: dict[str, Raw] | None = None


PROFILER_RANGE = "cuda_profiler_range"
"""Category of complete events with metrics of a kernel, or of a range, by CUPTI's range profiler."""

_decode_list = msgspec.json.Decoder(list[Event], strict=False).decode
_decode_values = msgspec.json.Decoder(list[_Values]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
NOTHING = {b"null", b'""', b'"N/A"', b'"n/a"', b'"NaN"', b'"nan"', b'"None"', b'"none"', b'"undefined"'}
"""Texts that mean that there is no value."""
_OTHERS = {"stream": re.compile(rb'"0x[0-9a-fA-F]+"')}
"""Values of other meaning: the stream handle of ROCm's calls. They have no column, so they are not counted as lost."""
_CATEGORIES = 1000


@dataclass
class Tally:
    """Counts the events of a trace, or of a part of it. Each event is in one of the first three counts."""

    events: int = 0
    """Events that were read, also those without a table (flows, process names)."""
    lost: Counter[str] = field(default_factory=Counter)
    """Unreadable events, by reason."""
    unread: Counter[str] = field(default_factory=Counter)
    """Events of categories that are not read, by category."""
    unrepresentable: Counter[str] = field(default_factory=Counter)
    """Values that are NULL because their column cannot represent them, by column."""
    stray: bool = False
    """Whether there was something else between the events: a number, a list."""
    repaired: bool = False

    def add(self, other: Tally) -> None:
        """Add the counts of other events."""
        self.events += other.events
        self.lost += other.lost  # drops zeros
        for category, n in other.unread.items():
            known = category in self.unread or len(self.unread) < _CATEGORIES
            self.unread[category if known else "others"] += n
        self.unrepresentable += other.unrepresentable
        self.stray = self.stray or other.stray
        self.repaired = self.repaired or other.repaired


def decode_chunk(chunk: bytes) -> list[Event] | None:
    """Decode comma-separated events; None unless all are well-formed and of the expected types."""
    try:
        events = _decode_list(b"[%b]" % chunk)
        if any(e.ph == "C" or e.cat == PROFILER_RANGE for e in events):
            values = _decode_values(b"[%b]" % chunk)
            return [_with_values(e, v.args) if _is_counter(e) else e for e, v in zip(events, values, strict=True)]
        return events
    except _ERRORS:
        return None


def _is_counter(event: Event) -> bool:
    return event.ph == "C" or (event.cat == PROFILER_RANGE and event.ph == "X")


def _with_values(event: Event, values: dict[str, Raw] | None) -> CounterEvent:
    fields = {name: getattr(event, name) for name in Event.__struct_fields__}
    return CounterEvent(**fields, values=values or {})


def split_chunk(chunk: bytes) -> list[bytes] | None:
    """Split comma-separated JSON objects; None if the chunk is not well-formed (or was cut inside an event)."""
    try:
        return [bytes(raw) for raw in _decode_raws(b"[" + chunk + b"]")]
    except _ERRORS:
        return None


def decode_singles(singles: list[bytes], tally: Tally) -> list[Event]:
    """Decode JSON values one by one; values that are not events are counted as lost."""
    events = []
    for data in singles:
        if data[:1] != b"{":
            tally.stray = True
            tally.lost[MALFORMED] += count_events(data)
            continue
        event = decode_event(data)
        if event is None:
            fixed = repair(data)
            event = decode_event(fixed) or _decode_lenient(fixed, tally)
            tally.repaired = tally.repaired or (event is not None and fixed != data)
        if event is not None:
            events.append(event)
    return events


def decode_event(data: bytes) -> Event | None:
    """Decode an event; None unless it is well-formed and of the expected types."""
    events = decode_chunk(data)
    return events[0] if events and len(events) == 1 else None


def _decode_lenient(data: bytes, tally: Tally) -> Event | None:
    """Decode an event field by field; fields of an unexpected type are left out."""
    try:
        fields = _decode_fields(data)
        args_text = bytes(fields.pop("args", b"null"))
        args = _decode_fields(args_text) if args_text[:1] == b"{" else {}
    except RecursionError:
        tally.lost[TOO_DEEP] += 1
        return None
    except _ERRORS:
        tally.lost[MALFORMED] += max(1, count_events(data))
        return None
    if args_text[:1] != b"{" and args_text not in NOTHING:
        tally.unrepresentable["args"] += 1
    event: Event = _lenient(Event, fields, tally)
    is_counter = _is_counter(event)
    # Counters of the names of arguments may have values of other types.
    event.args = _lenient(Args, args, Tally() if is_counter else tally)
    return _with_values(event, args) if is_counter else event


def _lenient(struct: type[Any], fields: dict[str, Raw], tally: Tally) -> Any:
    values = {}
    for spec in msgspec.structs.fields(struct):
        text = bytes(fields.get(spec.encode_name, b""))
        if not text:
            continue
        try:
            values[spec.name] = msgspec.json.decode(text, type=spec.type, strict=False)
        except _ERRORS:
            other = spec.name in _OTHERS and _OTHERS[spec.name].fullmatch(text)
            if text not in NOTHING and not other and spec.name != "ph":  # an event without a phase is lost as a whole
                tally.unrepresentable[spec.name] += 1
    return struct(**values)
