"""What both formats of rocprofv3 share: columns of the tables from its values, limits and warnings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyze.errors import InputError
from analyze.sources.chrome.arrow_columns import Columns
from analyze.sources.interface import FileReport

_MOST_RANKS = 1024
"""Limit, because each rank gets its own files. A recording is of one node."""

_COPY = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)")
_LETTERS = {"HOST": "H", "DEVICE": "D"}


def check_processes(path: Path, processes: int) -> None:
    """Raise InputError for more processes than a node can have."""
    if processes > _MOST_RANKS:
        raise InputError(f"{path}: it has {processes:,} processes; a recording of at most {_MOST_RANKS:,} is read")


def warn(path: Path, report: FileReport, processes: int, unrepresentable: Counter[str], damaged: Counter[str]) -> None:
    """Add warnings for guessed ranks, values that their columns cannot hold, and records that are lost."""
    if processes > 1:
        report.warnings.append(f"{path.name}: the ranks of its {processes} processes are guessed from their order")
    if unrepresentable:
        report.warnings.append(
            f"{path.name}: {unrepresentable.total():,} values that their columns cannot hold are NULL"
        )
    if damaged := +damaged:
        report.lost += damaged.total()
        counts = ", ".join(f"{n:,} {table}" for table, n in damaged.most_common())
        report.warnings.append(f"{path.name}: records were dropped: a value in them is missing or cannot be: {counts}")


def copy_kind(name: str | None) -> str:
    """Return the kind of a copy, as in the table memcpys: MEMORY_COPY_HOST_TO_DEVICE is HtoD."""
    if match := _COPY.search(name or ""):
        return f"{_LETTERS[match[1]]}to{_LETTERS[match[2]]}"
    return "Unknown"


def sizes(work_items: Mapping[str, Sequence[int | None]], groups: Mapping[str, Sequence[int | None]]) -> Columns:
    """Return grid and block of dispatches, given sizes by axis: AMD counts a grid in work-items, not in groups."""
    columns: Columns = {f"block_{axis}": groups[axis] for axis in "xyz"}
    for axis in "xyz":
        pairs = zip(work_items[axis], groups[axis], strict=True)
        columns[f"grid_{axis}"] = [None if n is None or not g or g < 0 else -(-n // g) for n, g in pairs]
    return columns


def timed(starts: Sequence[int], ends: Sequence[int | None], calls: Sequence[int | None]) -> Columns:
    """Return the columns of all events: times, and the call by its correlation id (0: none)."""
    pairs = zip(starts, ends, strict=True)
    return {
        "start_ns": starts,
        "dur_ns": [None if end is None or end < start else end - start for start, end in pairs],
        "correlation_id": [call or None for call in calls],
    }


def call_table(kind: str) -> tuple[str, str]:
    """Return the table of a traced API and its column `api` or `origin`."""
    if kind.startswith("MARKER"):
        return "ranges", "nvtx"
    return "cuda_calls", "driver" if kind.startswith("HSA") else "runtime"


def demangled(*names: str | None) -> str | None:
    """Return the first name that is there, without the suffix of a kernel descriptor."""
    return next((name.removesuffix(".kd") for name in names if name), None)
