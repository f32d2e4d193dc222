"""Read memory snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.interface import FileReport, Mapper, Source, TableBatch, batch_schema, inline_map
from analyze.sources.plain_pickle import read_plain_pickle
from analyze.sources.plain_values import text, whole
from schemas.option_declaration import LARGEST_INT32, LARGEST_INT64

SOURCES = (
    Source(
        "memory_snapshot",
        __name__,
        "memory",
        re.compile(r".*\.(pickle|pkl)$", re.IGNORECASE),
        re.compile(rb"\A\x80[\x02-\x05].{0,64}segments", re.DOTALL),
    ),
)

_BATCH_ROWS = 100_000
_ACTIONS = {
    *("alloc", "free_requested", "free_completed", "oom", "snapshot", "workspace_snapshot"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
}


class _Stacks:
    """Numbers distinct stacks and yields their frames as rows."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames: list[list[Any]] = []

    def number(self, frames: object) -> int | None:
        """Return the number of a stack; None for none. Equal frames are one object in a snapshot."""
        if not isinstance(frames, list) or not frames:
            return None
        key = tuple(map(id, frames))
        if key not in self._numbers:
            self._numbers[key] = len(self._frames)
            self._frames.append(frames)
        return self._numbers[key]

    def rows(self) -> Iterator[dict[str, Any]]:
        for stack, frames in enumerate(self._frames):
            for depth, frame in enumerate(frames):
                frame = frame if isinstance(frame, dict) else {}
                yield {
                    "stack": stack,
                    "depth": depth,
                    "file": text(frame.get("filename")),
                    "line": whole(frame.get("line"), LARGEST_INT32),
                    "function": text(frame.get("name")),
                }


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the events, blocks and stacks of a snapshot. Raises InputError if it is none.

    An event or a block with a value that cannot be is dropped, with a warning.
    """
    snapshot = read_plain_pickle(path, "memory snapshot")
    if not all(isinstance(snapshot.get(key), list) for key in ("segments", "device_traces")):
        raise InputError(f"{path}: not a memory snapshot: it has no lists segments and device_traces")
    stacks = _Stacks()
    yield from _batches("allocator_events", _events(snapshot["device_traces"], stacks, path, report))
    yield from _batches("allocator_blocks", _blocks(snapshot["segments"], stacks, path, report))
    yield from _batches("allocator_frames", stacks.rows())


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[TableBatch]:
    import pyarrow as pa

    schema = batch_schema(table)
    held: list[dict[str, Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == _BATCH_ROWS:
            yield table, None, pa.RecordBatch.from_pylist(held, schema=schema)
            held = []
    yield table, None, pa.RecordBatch.from_pylist(held, schema=schema)


def _events(traces: list[Any], stacks: _Stacks, path: Path, report: FileReport) -> Iterator[dict[str, Any]]:
    lost = 0
    for device, trace in enumerate(traces):
        if not isinstance(trace, list):
            lost += 1
            continue
        for number, entry in enumerate(trace):
            row = _event(entry) if isinstance(entry, dict) else None
            if row is None:
                lost += 1
            else:
                yield row | {"device": device, "event": number, "stack": stacks.number(entry.get("frames"))}
        traces[device] = None  # frees the memory of a large history early
    _tell(path, report, lost, "events of the allocator")


def _event(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    microseconds = whole(entry.get("time_us"), LARGEST_INT64 // 1000)
    row = {
        "start_ns": None if microseconds is None else microseconds * 1000,
        "action": text(entry.get("action")),
        "addr": whole(entry.get("addr")),
        "bytes": whole(entry.get("size")),
        "stream": whole(entry.get("stream")),
        "device_free_bytes": whole(entry.get("device_free")),
        "metadata": text(entry.get("user_metadata")) or None,
    }
    needs = ["start_ns", "bytes"] + ([] if row["action"] in ("oom", "snapshot") else ["addr"])
    return None if row["action"] not in _ACTIONS or any(row[name] is None for name in needs) else row


def _blocks(segments: list[Any], stacks: _Stacks, path: Path, report: FileReport) -> Iterator[dict[str, Any]]:
    lost = 0
    for segment in segments:
        found = segment if isinstance(segment, dict) else {}
        blocks = found.get("blocks")
        if not isinstance(blocks, list):
            lost += 1
            continue
        shared = {
            "device": whole(found.get("device"), LARGEST_INT32),
            "stream": whole(found.get("stream")),
            "segment_addr": whole(found.get("address")),
            "segment_bytes": whole(found.get("total_size")),
            "segment_kind": text(found.get("segment_type")),
            "pool": text(str(found["segment_pool_id"])) if "segment_pool_id" in found else None,
            "expandable": found.get("is_expandable") if isinstance(found.get("is_expandable"), bool) else None,
        }
        addr = shared["segment_addr"]
        for block in blocks:
            entry = block if isinstance(block, dict) else {}
            size = whole(entry.get("size"))
            # Older versions of torch write no address: blocks of a segment are in order.
            addr = whole(entry.get("address", addr))
            state = text(entry.get("state"))
            if None in (size, addr, state, shared["device"], shared["segment_bytes"]):
                lost += 1
                continue
            yield shared | {
                "addr": addr,
                "bytes": size,
                "requested_bytes": whole(entry.get("requested_size")),
                "state": state,
                "stack": stacks.number(entry.get("frames")),
            }
            addr = addr + size if addr is not None and size is not None else None
    _tell(path, report, lost, "blocks or segments")


def _tell(path: Path, report: FileReport, lost: int, what: str) -> None:
    if lost:
        report.lost += lost
        report.warnings.append(f"{path}: {lost:,} {what} were dropped: a value in them is missing or cannot be")
