"""Read logs of NCCL Inspector, the profiler plugin of NCCL that logs each collective, send and receive of a process.

A log is a stream of JSON objects, one a line. Until version 4.2 of the format each has its communicator (`header`).
Since 4.3 only the marker has (`dump_stats`) that begins a dump of a communicator and states the number of its records.
The layout: inspector_json.cc in plugins/profiler/inspector of https://github.com/NVIDIA/nccl; inspector.cc before
NCCL 2.30.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analyze.sources.interface import BATCH_ROWS, LOG_NAME, FileReport, Row, Source, TableBatch, row_batches
from analyze.sources.plain_values import text, whole
from analyze.sources.rank_hint import RankHint
from analyze.sources.text_lines import LostRows, numbered_lines
from schemas.option_declaration import LARGEST_INT32, LARGEST_INT64

SOURCES = (
    Source(
        "nccl_inspector",
        __name__,
        "nccl_inspector",
        re.compile(rf"{LOG_NAME.pattern}|.*\.jsonl?$", re.IGNORECASE),
        re.compile(rb'\A\s*\{\s*"header"\s*:.{1,4096}"inspector_output_format_version"', re.DOTALL),
        says_rank=True,
    ),
)
_HINT_LINES = 2_000
_MOST_BYTES = 1 << 50
_MOST_US = 1 << 40
"""Limits of a size and of a duration (12 days). Sums of 2^13 such values fit into int64."""

_KINDS = {"coll_perf": "coll", "p2p_perf": "p2p"}
_UNREAD = ("proxy_trace",)
_UNNAMED = "unknown"
_RANK_PARTS = ("AllGather", "ReduceScatter")
"""Operations whose size in the log is that of one rank's part: the larger of input and output has one of each rank."""
_KNOWN_VERSION = re.compile(r"v?4\.[0-4](\..*)?")
"""Versions of the format whose records are known."""


def read_rank_hint(path: Path) -> RankHint:
    """Return the rank in the largest communicator, and its size. Raises InputError."""
    largest: tuple[int, int] | None = None
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for _, (_, line) in zip(range(_HINT_LINES), numbered_lines(file), strict=False):
            header = (_object(line) or {}).get("header")
            if isinstance(header, dict):
                size, rank = (whole(header.get(key), LARGEST_INT32) for key in ("n_ranks", "rank"))
                if size is not None and rank is not None and (largest is None or size > largest[0]):
                    largest = size, rank
    return RankHint(largest[1], largest[0]) if largest else RankHint(None)


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the operations of a log. A record that is damaged is lost, with a warning."""
    log = _Log(LostRows(path, report))
    tables = {"nccl_records": log.rows}
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for number, line in numbered_lines(file):
            if line.strip():
                log.take(number, line)
            yield from row_batches(tables, BATCH_ROWS)
    yield from row_batches(tables)
    log.end(path, report)


class _Log:
    """What the lines so far say."""

    def __init__(self, lost: LostRows) -> None:
        self.rows: list[Row] = []
        self._lost = lost
        self._records = 0
        self._header: Mapping[str, Any] | None = None
        """Communicator of the records that have none."""
        self._awaited: Counter[str] = Counter()
        """Records that the last marker states and that have not come."""
        self._missing = 0
        self._numbers: dict[tuple[str, str | None], tuple[int, int]] = {}
        """How many operations of a communicator that are numbered together were started, and have a record."""
        self._dropped = 0
        self._dumped_ns: int | None = None
        """When the last dump began whose time is known."""
        self._impossible = 0
        self._unread = 0
        self._channels = 0
        self._odd_versions: set[str] = set()

    def take(self, number: int, line: str) -> None:
        """Take a line."""
        data = _object(line)
        if data is None:
            self._lost.add(number, "its JSON is damaged")
            if '"header"' in line:  # it may be the marker of another communicator
                self._begin(None, {})
            return
        header = data.get("header")
        self._take_metadata(data.get("metadata"))
        stats = data.get("dump_stats")
        if isinstance(stats, dict):
            self._begin(header, stats)
            return
        if any(key in data for key in _UNREAD):
            self._unread += 1
            return
        key = next((key for key in _KINDS if isinstance(data.get(key), dict)), None)
        if key is None:
            self._lost.add(number, "no record of NCCL Inspector")
            return
        known = header if isinstance(header, dict) else self._header if self._awaited[key] > 0 else None
        self._awaited[key] -= 1
        if known is None:
            self._lost.add(number, "its communicator is not known")
            return
        row = _row(data[key], _KINDS[key], known)
        if row is None:
            self._lost.add(number, "a value is missing or cannot be")
            return
        if _is_impossible(row, self._dumped_ns):
            row["dur_ns"] = row["busbw_gb_per_s"] = None
            self._impossible += 1
        self._channels += _has_channels(data[key])
        self.rows.append(row | {"record": self._records})
        self._records += 1
        # Collectives are numbered from 0, each operation by itself; sends and receives from 1, together.
        numbered = row["comm_id"], None if row["is_p2p"] else row["operation"]
        started, logged = self._numbers.get(numbered, (0, 0))
        self._numbers[numbered] = max(started, row["seq"] + (not row["is_p2p"])), logged + 1

    def _take_metadata(self, metadata: object) -> None:
        if not isinstance(metadata, dict):
            return
        self._dumped_ns = _ns(metadata.get("dump_timestamp_us"))
        version = metadata.get("inspector_output_format_version")
        if version is not None and not _KNOWN_VERSION.fullmatch(str(version)) and len(self._odd_versions) < 3:
            self._odd_versions.add(str(version)[:20])

    def _begin(self, header: object, stats: Mapping[str, Any]) -> None:
        self._close()
        self._header = header if isinstance(header, dict) else None
        for key, prefix in _KINDS.items():
            self._awaited[key] = whole(stats.get(f"{prefix}_records")) or 0
            self._dropped += whole(stats.get(f"{prefix}_dropped_since_last_dump")) or 0

    def _close(self) -> None:
        self._missing += sum(count for count in self._awaited.values() if count > 0)
        self._awaited.clear()

    def end(self, path: Path, report: FileReport) -> None:
        """Report what was lost."""
        self._close()
        self._lost.warn()
        if self._odd_versions:
            odd = ", ".join(sorted(self._odd_versions))
            report.warnings.append(f"{path.name}: its format is of version {odd}; known are 4.0 to 4.4")
        found = (
            (self._missing, "records that its dumps announce and that are not there: {:,}"),
            (
                self._dropped,
                "records that NCCL Inspector overwrote before it wrote them: {:,} (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE)",
            ),
            (
                self._unlogged(is_p2p=False),
                "collectives without a record, by the numbers of the others: {:,}. NCCL Inspector skips small "
                "messages; before NCCL 2.30 it logs only the last one of each dump interval",
            ),
            (
                self._unlogged(is_p2p=True),
                "sends and receives without a record, by the numbers of the others: {:,}. NCCL Inspector skips small "
                "messages and what a rank sends to itself in an all_to_all; after such an all_to_all NCCL may give "
                "calls the durations of earlier ones",
            ),
            (
                self._impossible,
                "durations that are longer than the time from the launch to the dump, and left out: {:,}. After an "
                "all_to_all NCCL may give calls the durations of earlier ones: others may be wrong, too",
            ),
            (self._unread, "recorded and not read: records of proxy operations: {:,}"),
            (self._channels, "recorded and not read: times of each channel (kernel_events) of operations: {:,}"),
        )
        report.warnings += [f"{path.name}: {sentence.format(count)}" for count, sentence in found if count]

    def _unlogged(self, is_p2p: bool) -> int:
        numbers = (n for (_, operation), n in self._numbers.items() if (operation is None) == is_p2p)
        return sum(max(started - logged, 0) for started, logged in numbers)


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _row(perf: Mapping[str, Any], kind: str, header: Mapping[str, Any]) -> Row | None:
    """Return the columns of an operation; None if one that each has is missing."""
    busbw = perf.get(f"{kind}_busbw_gbs")
    times = perf.get("event_trace_ts")
    size, is_sized = _size(perf.get(f"{kind}_msg_size_bytes"))
    row: Row = {
        "comm_id": text(header.get("id")),
        "comm_rank": whole(header.get("rank"), LARGEST_INT32),
        "comm_size": whole(header.get("n_ranks"), LARGEST_INT32),
        "operation": text(perf.get(kind)),
        "seq": whole(perf.get(f"{kind}_sn")),
        "bytes": size,
        "dur_ns": _ns(perf.get(f"{kind}_exec_time_us"), _MOST_US),
    }
    if any(value is None for value in row.values()):
        return None
    if row["operation"] in _RANK_PARTS:
        row["bytes"] *= row["comm_size"]
        if row["bytes"] > _MOST_BYTES:
            return None
    return row | {
        "is_p2p": kind == "p2p",
        "comm_name": _name(header.get("comm_name")),
        "peer": whole(perf.get("p2p_peer"), LARGEST_INT32),
        "algorithm": _name(perf.get("coll_algo")),
        "protocol": _name(perf.get("coll_proto")),
        "timing": text(perf.get(f"{kind}_timing_source")),
        "busbw_gb_per_s": float(busbw) if is_sized and isinstance(busbw, int | float) and 0 <= busbw < 1e9 else None,
        "start_ns": _ns(times.get(f"{kind}_start_ts")) if isinstance(times, dict) else None,
    }


def _is_impossible(row: Row, dumped_ns: int | None) -> bool:
    """Whether an operation took longer than from its launch to its dump, which is after its end."""
    if dumped_ns is None or row["start_ns"] is None:
        return False
    return 0 <= dumped_ns - row["start_ns"] < int(row["dur_ns"])


def _has_channels(perf: Mapping[str, Any]) -> bool:
    times = perf.get("event_trace_ts")
    return isinstance(times, dict) and bool(times.get("kernel_events"))


def _size(size: object) -> tuple[int | None, bool]:
    """Return the bytes of a message, and whether its bandwidth was computed from them.

    NCCL has no name for the type uint8, which also stands for bool. NCCL Inspector takes -1 as the size of an element,
    and writes the product as an unsigned number.
    """
    if type(size) is int and size > LARGEST_INT64:
        return whole((1 << 64) - size, _MOST_BYTES), False
    return whole(size, _MOST_BYTES), True


def _name(value: object) -> str | None:
    name = text(value)
    return None if name == _UNNAMED else name


def _ns(microseconds: object, largest: int = LARGEST_INT64 // 1000) -> int | None:
    us = whole(microseconds, largest)
    return None if us is None else us * 1000
