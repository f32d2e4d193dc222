"""What NCCL said of its calls in NVTX payloads: communicator, size of the message, peer; joined to their kernels.

NCCL puts a range around each call, with a payload (its src/include/nvtx_payload_schemas.h). Exports of newer versions
of nsys have the payloads as `NVTX_EVENTS.binaryData`: four 8-byte numbers (domain, schema, size of the payload, size of
all), then the payload, whose fields `NVTX_PAYLOAD_SCHEMA_ENTRIES` describes. Exports of nsys 2023.4 lack them.

A kernel is launched within the range of its call, or within the ncclGroupEnd that ends the group of the call.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.names import Names
from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.rows import Owners
from analyze.sources.nsys.values import PROCESS_BITS, Columns, filtered
from schemas.option_declaration import LARGEST_INT64

_EVENTS = "NVTX_EVENTS"
_PAYLOAD = "binaryData"
_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_GROUP_END = "ncclGroupEnd"
_COLLECTIVES = {
    "ncclAllReduce": "all_reduce", "ncclAllGather": "all_gather", "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast", "ncclBcast": "broadcast", "ncclReduce": "reduce", "ncclAlltoAll": "all_to_all",
    "ncclGather": "gather", "ncclScatter": "scatter", "ncclSend": "send", "ncclRecv": "recv",
}  # fmt: skip
"""The function, and the collective as torch names it."""

_ALL_RANKS = {"ncclAllGather": "out", "ncclGather": "out", "ncclReduceScatter": "in", "ncclScatter": "in"}
"""The side that has the message of each rank: NCCL says the size of one."""

_COMMUNICATOR, _BYTES, _PEER, _RANK, _RANKS = (
    "NCCL communicator ID", "Message size [bytes]", "Peer rank", "Rank", "No. of ranks",
)  # fmt: skip
_HEADER = struct.Struct("<QQQQ")
_FORMATS = {5: "<i", 6: "<I", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""NVTX_PAYLOAD_ENTRY_TYPE_*: INT, UINT, INT32, UINT32, INT64, UINT64, SIZE."""

COLUMNS = ("collective", "in_elems", "out_elems", "dtype", "group_size", "group_name", "group_ranks", "peer")


class _Call(NamedTuple):
    function: str
    communicator: int
    bytes: int
    peer: int | None


class NcclCalls:
    """The calls of NCCL of an export by the correlation id of the launch of their kernel."""

    def __init__(self, tables: Tables, names: Names, owners: Owners):
        self.unknown = 0
        """Kernels of groups of different calls: the call of each kernel is not known."""
        self._of: dict[tuple[int | None, int], dict[str, Any]] = {}
        if _PAYLOAD not in tables.columns(_EVENTS):
            return
        layouts = _layouts(tables)
        calls: defaultdict[int, list[tuple[int, int, _Call | None]]] = defaultdict(list)
        members: defaultdict[int, dict[int, int]] = defaultdict(dict)
        sizes: dict[int, int] = {}
        for thread, start, end, name, fields in _payloads(tables, names, layouts):
            communicator = fields.get(_COMMUNICATOR)
            if name == _GROUP_END:
                calls[thread].append((start, end, None))
            elif communicator is not None and name in _COLLECTIVES and fields.get(_BYTES) is not None:
                calls[thread].append((start, end, _Call(name, communicator, fields[_BYTES], fields.get(_PEER))))
            elif communicator is not None and fields.get(_RANKS, 0) > 0 and _RANK in fields:
                sizes[communicator] = fields[_RANKS]
                rank = owners.ranks.get(thread & PROCESS_BITS)
                if rank is not None:
                    members[communicator][fields[_RANK]] = rank
        if not calls:
            return
        groups = {c: _ranks(members[c], size) for c, size in sizes.items()}
        for thread, launches in _launches(tables, names, calls).items():
            process = thread & PROCESS_BITS
            if process not in owners.ranks:
                continue
            for correlation, call in self._joined(sorted(calls[thread], key=lambda c: c[:2]), sorted(launches)):
                found = owners.own(process, {"correlation_id": pa.array([correlation], pa.int64())})
                key = owners.ranks[process], found["correlation_id"][0].as_py()
                self._of[key] = _columns(call, sizes.get(call.communicator), groups.get(call.communicator))

    def add(self, rank: int | None, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of kernels of a rank with what NCCL said of their calls."""
        if not self._of:
            return batch
        found = [self._of.get((rank, correlation), {}) for correlation in batch["correlation_id"].to_pylist()]
        if not any(found):
            return batch
        for column in COLUMNS:
            at = batch.schema.get_field_index(column)
            field = batch.schema.field(at)
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            values = pa.array([f.get(column) for f in found], plain)
            batch = batch.set_column(at, field, values.dictionary_encode() if plain != field.type else values)
        return batch

    def _joined(
        self, calls: Sequence[tuple[int, int, _Call | None]], launches: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, _Call]]:
        """Yield correlation ids of the launches of a thread with their calls. Both are in the order of time."""
        waiting: list[_Call] = []
        at = last_end = 0
        for start, end, call in calls:
            if start < last_end:
                continue  # NCCL calls a function of its own
            last_end = end
            while at < len(launches) and launches[at][0] < start:
                at += 1
            inside = []
            while at < len(launches) and launches[at][0] < end:
                inside.append(launches[at][1])
                at += 1
            if call is not None:
                if not inside:
                    waiting.append(call)
                yield from ((correlation, call) for correlation in inside)
            elif inside:
                yield from self._of_group(waiting, inside)
                waiting = []

    def _of_group(self, calls: Sequence[_Call], launched: Sequence[int]) -> Iterator[tuple[int, _Call]]:
        if len(set(calls)) == 1 and len(calls) == len(launched):
            yield from zip(launched, calls, strict=True)
        elif len(launched) == 1 and len({c._replace(bytes=0) for c in calls}) == 1:
            yield launched[0], calls[0]._replace(bytes=sum(c.bytes for c in calls))  # NCCL runs them as one kernel
        else:
            self.unknown += len(launched)


def _layouts(tables: Tables) -> dict[int, dict[str, tuple[int, str]]]:
    """Return offset and format of the fields of NCCL's payloads, by schema and name."""
    found: defaultdict[tuple[int, int], dict[str, tuple[int, str]]] = defaultdict(dict)
    for row in rows(tables, _ENTRIES, ["domainId", "schemaId", "type", "name", "offset"]):
        if row["type"] in _FORMATS and row["name"] is not None and (row["offset"] or 0) >= 0:
            found[row["domainId"], row["schemaId"]][row["name"]] = (row["offset"] or 0, _FORMATS[row["type"]])
    # Other libraries may have schemas of the same number, each process a domain of its own.
    return {schema: fields for (_, schema), fields in found.items() if _COMMUNICATOR in fields}


def _payloads(
    tables: Tables, names: Names, layouts: dict[int, dict[str, tuple[int, str]]]
) -> Iterator[tuple[int, int, int, str, dict[str, int]]]:
    """Yield thread, start, end, name and payload of the ranges of NCCL."""
    columns = ("start", "end", "globalTid", "text", "textId", "domainId", _PAYLOAD)
    for batch in tables.batches(_EVENTS, columns):
        batch["name"] = names.text(batch)
        is_whole = pc.and_(pc.is_valid(batch["start"]), pc.is_valid(batch["end"]))
        is_nccl = pc.and_(is_whole, pc.starts_with(batch["name"], "nccl").fill_null(False))
        own: Columns = filtered(batch, pc.and_(is_nccl, pc.is_valid(batch["globalTid"])))
        known: dict[str | None, dict[str, int]] = {}
        wanted = ("globalTid", "start", "end", "name", _PAYLOAD)
        for thread, start, end, name, data in zip(*(own[c].to_pylist() for c in wanted), strict=True):
            if data not in known:
                known[data] = _decoded(data, layouts)
            yield thread, start, end, name, known[data]


def _decoded(data: str | None, layouts: dict[int, dict[str, tuple[int, str]]]) -> dict[str, int]:
    """Return the fields of a payload, in hexadecimal; none if it is damaged or its layout is unknown."""
    try:
        content = bytes.fromhex(data or "")
        _, schema, _, _ = _HEADER.unpack_from(content)
        fields = layouts.get(schema, {})
        return {name: struct.unpack_from(form, content, _HEADER.size + at)[0] for name, (at, form) in fields.items()}
    except (ValueError, struct.error):
        return {}


def _launches(
    tables: Tables, names: Names, calls: dict[int, list[tuple[int, int, _Call | None]]]
) -> dict[int, list[tuple[int, int]]]:
    """Return time and correlation id of the launches of the threads that call NCCL."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    threads = pa.array(list(calls), pa.int64())
    for table in _CALLS:
        for batch in tables.batches(table, ("start", "globalTid", "correlationId", "nameId")):
            is_launch = pc.match_substring(names.lookup(batch["nameId"]), "Launch").fill_null(False)
            valid = pc.and_(pc.is_valid(batch["start"]), pc.is_valid(batch["correlationId"]))
            own = filtered(batch, pc.and_(pc.and_(is_launch, valid), pc.is_in(batch["globalTid"], threads)))
            for thread, start, correlation in zip(
                *(own[c].to_pylist() for c in ("globalTid", "start", "correlationId")), strict=True
            ):
                found[thread].append((start, correlation))
    return found


def _ranks(members: dict[int, int], size: int) -> list[int] | None:
    """Return the ranks of the job in a communicator, by their rank in it; None if the export has not all of them."""
    return [members[i] for i in range(size)] if len(members) == size and all(0 <= i < size for i in members) else None


def _columns(call: _Call, size: int | None, ranks: list[int] | None) -> dict[str, Any]:
    """Return the columns of a kernel. Elements are bytes: NCCL says the size of the message, not its type."""
    side = _ALL_RANKS.get(call.function, "both" if call.function == "ncclAlltoAll" else "")
    each, everyone = call.bytes, None if size is None else call.bytes * size
    sent, received = (everyone if side in (name, "both") else each for name in ("in", "out"))
    known = side == "" or size is not None
    fits = known and max(sent or 0, received or 0) <= LARGEST_INT64
    peer = None if ranks is None or call.peer is None or not 0 <= call.peer < len(ranks) else ranks[call.peer]
    return {
        "collective": _COLLECTIVES[call.function],
        "in_elems": sent if fits else None,
        "out_elems": received if fits else None,
        "dtype": "Byte" if fits else None,
        "group_size": size,
        "group_name": f"{call.communicator:#018x}",
        "group_ranks": None if ranks is None else json.dumps(ranks),
        "peer": peer,
    }
