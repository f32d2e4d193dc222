"""Read memory snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`)."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from analyze.errors import InputError
from analyze.sources.interface import BATCH_ROWS, FileReport, Source, TableBatch, row_batches
from analyze.sources.plain_pickle import PlainPickle
from analyze.sources.plain_values import text, warn_of_losses, whole
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

_ACTIONS = {
    *("alloc", "free_requested", "free_completed", "oom", "snapshot", "workspace_snapshot"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
}

_Place = tuple[str | None, int | None, str | None]
"""File, line and function of a frame."""


class _Stack(NamedTuple):
    """Stands for a list of frames."""

    number: int


class _Stacks:
    """Numbers distinct stacks, and has the rows of those that are new."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[bytes, int] = {}
        self._places: dict[_Place, int] = {}

    def add(self, frames: list[Any]) -> _Stack:
        """Return the number of a stack."""
        places = [_place(frame) for frame in frames]
        key = array("Q", (self._places.setdefault(place, len(self._places)) for place in places)).tobytes()
        digest = blake2b(key, digest_size=16).digest()  # a stack has some hundred bytes
        if digest not in self._numbers:
            self._numbers[digest] = stack = len(self._numbers)
            self.rows += (
                {"stack": stack, "depth": depth, "file": file, "line": line, "function": function}
                for depth, (file, line, function) in enumerate(places)
            )
        return _Stack(self._numbers[digest])

    def number(self, frames: object) -> int | None:
        """Return the number of a stack; None for none."""
        if isinstance(frames, list) and frames:
            frames = self.add(frames)
        return frames.number if isinstance(frames, _Stack) else None


def _place(frame: object) -> _Place:
    frame = frame if isinstance(frame, dict) else {}
    return text(frame.get("filename")), whole(frame.get("line"), LARGEST_INT32), text(frame.get("name"))


class _History:
    """Converts the events of all devices."""

    def __init__(self, stacks: _Stacks) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lost = 0
        self._stacks = stacks
        self.numbers: Counter[int] = Counter()
        """Events of each device so far, with those that are lost."""

    def add(self, device: int, entries: list[Any]) -> None:
        """Convert the next events of a device."""
        for number, entry in enumerate(entries, self.numbers[device]):
            row = _event(entry) if isinstance(entry, dict) else None
            if row is None:
                self.lost += 1
            else:
                stack = self._stacks.number(entry.get("frames"))
                self.rows.append(row | {"device": device, "event": number, "stack": stack})
        self.numbers[device] += len(entries)


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the events, blocks, stacks and statistics of a snapshot. Raises InputError if it is none.

    Events are converted while the file is read: memory holds the blocks, the distinct stacks and a pointer for each
    object. An event or a block with a value that cannot be is dropped, with a warning.
    """
    stacks = _Stacks()
    history = _History(stacks)
    blocks: list[dict[str, Any]] = []
    tables = {"allocator_events": history.rows, "allocator_blocks": blocks, "allocator_frames": stacks.rows}

    pickle = PlainPickle(path, "memory snapshot", stacks.add)
    for values, items in pickle.parts():
        device = _device(values)
        if device is not None:
            history.add(device, items)
            items.clear()
            yield from row_batches(tables, BATCH_ROWS)
        report.position = pickle.position
    snapshot = pickle.value
    if not all(isinstance(snapshot.get(key), list) for key in ("segments", "device_traces")):
        raise InputError(f"{path}: not a memory snapshot: it has no lists segments and device_traces")
    devices: dict[int, int] = {}
    for device, trace in enumerate(snapshot["device_traces"]):
        if not isinstance(trace, list):
            history.lost += 1
        elif (first := devices.setdefault(id(trace), device)) != device:
            history.lost += history.numbers[first]  # one list twice: its events are of the first device
        else:
            history.add(device, trace)
    warn_of_losses(path, report, history.lost, "events of the allocator")
    for row in _blocks(snapshot["segments"], stacks, path, report):
        blocks.append(row)
        yield from row_batches(tables, BATCH_ROWS)
    tables["allocator_stats"] = list(_stats(snapshot.get("memory_stats", []), path, report))
    yield from row_batches(tables)


def _device(values: list[Any]) -> int | None:
    """Return the device whose history is the last of the values that are being read; None for another list."""
    lists = values[values.index("device_traces") + 1 :] if "device_traces" in values else []
    return len(lists) - 2 if len(lists) > 1 and all(type(v) is list for v in lists) else None


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
    warn_of_losses(path, report, lost, "blocks or segments")


def _stats(devices: object, path: Path, report: FileReport) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each device that `collect` wrote into the snapshot."""
    lost = 0
    for device, stats in enumerate(devices if isinstance(devices, list) else [None]):
        if not isinstance(stats, dict):
            lost += 1
            continue
        for name, value in stats.items():
            # No limit is -1: max_split_size.
            row = {"device": device, "name": text(name), "value": -1 if value == -1 else whole(value)}
            if None in row.values():
                lost += 1
            else:
                yield row
    warn_of_losses(path, report, lost, "statistics of the allocator")
