"""Read memory snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`).

A snapshot is a pickle of dicts, lists, tuples, text and numbers. Pickles can run code, so one that refers to anything
else is refused.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.interface import FileReport, Mapper, Source, TableBatch, batch_schema, inline_map
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


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which a snapshot does not")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of the file, which a snapshot does not")


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
                    "file": _text(frame.get("filename")),
                    "line": _whole(frame.get("line"), LARGEST_INT32),
                    "function": _text(frame.get("name")),
                }


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the events, blocks and stacks of a snapshot. Raises InputError if it is none.

    An event or a block with a value that cannot be is dropped, with a warning.
    """
    snapshot = _load(path)
    stacks = _Stacks()
    yield from _batches("allocator_events", _events(snapshot["device_traces"], stacks, path, report))
    yield from _batches("allocator_blocks", _blocks(snapshot["segments"], stacks, path, report))
    yield from _batches("allocator_frames", stacks.rows())


def _load(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open("rb") as f:
            snapshot = _PlainUnpickler(f).load()
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    except MemoryError as e:
        raise InputError(f"{path}: a snapshot of {path.stat().st_size:,} bytes does not fit into memory") from e
    # Damaged pickles raise nearly anything.
    except Exception as e:
        raise InputError(f"{path}: not a memory snapshot: {str(e).rstrip('.') or type(e).__name__}") from e
    if not isinstance(snapshot, dict) or not all(
        isinstance(snapshot.get(key), list) for key in ("segments", "device_traces")
    ):
        raise InputError(f"{path}: not a memory snapshot: it has no lists segments and device_traces")
    return snapshot


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
        for number, entry in enumerate(trace if isinstance(trace, list) else ()):
            row = _event(entry) if isinstance(entry, dict) else None
            if row is None:
                lost += 1
            else:
                yield row | {"device": device, "event": number, "stack": stacks.number(entry.get("frames"))}
        traces[device] = None  # frees the memory of a large history early
    _tell(path, report, lost, "events of the allocator")


def _event(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    microseconds = _whole(entry.get("time_us"), LARGEST_INT64 // 1000)
    row = {
        "start_ns": None if microseconds is None else microseconds * 1000,
        "action": _text(entry.get("action")),
        "addr": _whole(entry.get("addr"), LARGEST_INT64),
        "bytes": _whole(entry.get("size"), LARGEST_INT64),
        "stream": _whole(entry.get("stream"), LARGEST_INT64),
        "device_free_bytes": _whole(entry.get("device_free"), LARGEST_INT64),
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
            "device": _whole(found.get("device"), LARGEST_INT32),
            "stream": _whole(found.get("stream"), LARGEST_INT64),
            "segment_addr": _whole(found.get("address"), LARGEST_INT64),
            "segment_bytes": _whole(found.get("total_size"), LARGEST_INT64),
            "segment_kind": _text(found.get("segment_type")),
            "pool": _text(str(found["segment_pool_id"])) if "segment_pool_id" in found else None,
            "expandable": found.get("is_expandable") if isinstance(found.get("is_expandable"), bool) else None,
        }
        addr = shared["segment_addr"]
        for block in blocks:
            entry = block if isinstance(block, dict) else {}
            size = _whole(entry.get("size"), LARGEST_INT64)
            # Older versions of torch write no address: blocks of a segment are in order.
            addr = _whole(entry.get("address", addr), LARGEST_INT64)
            state = _text(entry.get("state"))
            if None in (size, addr, state, shared["device"], shared["segment_bytes"]):
                lost += 1
                continue
            yield shared | {
                "addr": addr,
                "bytes": size,
                "requested_bytes": _whole(entry.get("requested_size"), LARGEST_INT64),
                "state": state,
                "stack": stacks.number(entry.get("frames")),
            }
            addr = addr + size if addr is not None and size is not None else None
    _tell(path, report, lost, "blocks or segments")


def _tell(path: Path, report: FileReport, lost: int, what: str) -> None:
    if lost:
        report.lost += lost
        report.warnings.append(f"{path}: {lost:,} {what} were dropped: a value in them is missing or cannot be")


def _whole(value: object, largest: int) -> int | None:
    """Return a number of the file; None for another value, and for one out of range."""
    return value if type(value) is int and 0 <= value <= largest else None


def _text(value: object) -> str | None:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
