"""Counts of the rows of a damaged file by means that share nothing with the readers, and the law that they must obey.

Rows read + rows reported lost are at least the rows there. They may be more: a count by patterns misses a row whose
beginning is damaged, and a damaged header may be reported as a row. Where nothing is said to be lost, they are equal,
but for rows that a pattern cannot see.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from analyze.stored_tables import DERIVED_TABLES

Kept = dict[str, int]
"""Rows in the store by table; of `ncu_metrics` the lines they came from."""


def ncu_rows(data: bytes) -> int:
    """Lines that begin with a launch's number and a process's, and lines of text that begin with a metric."""
    lines = re.split(rb"[\r\n]+", data)
    csv_rows = sum(bool(re.match(rb'"\d{1,9}","\d{1,9}",', line)) for line in lines)
    return csv_rows + sum(bool(re.match(rb" {4}[a-z]\w+__[\w.]+ .*\S {0,3}$", line)) for line in lines)


def nvprof_rows(data: bytes) -> int:
    """Lines that begin as the rows of the corpus do."""
    begin = rb'"GPU activities",|"API calls",|"OpenACC|"?Tesla [KP]\d0 \(\d\)"?[,\t]|\d+\.\d{6},\d+\.\d{6},'
    tables = data[data.find(b" Profiling result:") :] if b" Profiling result:" in data else b""
    return sum(bool(re.match(begin, line)) for line in re.split(rb"[\r\n]+", tables))


def step_rows(data: bytes) -> int:
    """Lines behind the first."""
    return max(0, len([line for line in re.split(rb"[\r\n]+", data) if line]) - 1)


def chrome_kernels(data: bytes) -> int:
    """Complete events that call themselves kernels; of another phase, none is one."""
    return len(re.findall(rb'"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"kernel"', data))


def producer_rows(data: bytes) -> int:
    """Complete events."""
    return len(re.findall(rb'\{\s*"ph"\s*:\s*"X"', data))


def rocprof_records(data: bytes) -> int:
    """Records: what they are an instance of is a number."""
    return len(re.findall(rb'\{\s*"kind"\s*:\s*[0-9]', data))


def rocpd_rows(path: Path) -> int | None:
    """Rows of dispatches, copies and regions that SQLite counts itself; None if it cannot."""
    return _sqlite_rows(path, lambda table: re.match(r"rocpd_(kernel_dispatch|memory_copy|region)_", table) is not None)


def snapshot_rows(snapshot: dict[str, Any]) -> int | None:
    """Events, blocks and statistics of a memory snapshot; None if its lists are no lists, and it is refused."""
    traces, segments = snapshot.get("device_traces"), snapshot.get("segments")
    if not isinstance(traces, list) or not isinstance(segments, list):
        return None
    # What is no list of events, or no segment with blocks, is something lost, too.
    events = sum(len(trace) if isinstance(trace, list) else 1 for trace in traces)
    blocks = [s.get("blocks") if isinstance(s, dict) else None for s in segments]
    devices = snapshot.get("memory_stats", [])
    stats = devices if isinstance(devices, list) else [None]
    return (
        events
        + sum(len(found) if isinstance(found, list) else 1 for found in blocks)
        + sum(len(found) if isinstance(found, dict) else 1 for found in stats)
    )


def inspector_rows(data: bytes) -> int:
    """Lines with a record of a collective, send or receive."""
    return sum(bool(re.search(rb'"(coll|p2p)_perf"', line)) for line in re.split(rb"[\r\n]+", data))


def compilation_rows(data: bytes) -> int:
    """Records of compilations that end."""
    return len(re.findall(rb'^[VIWE]\d{4} [^\n]{1,200}\] \{"compilation_metrics"', data, re.M))


GPU_TABLES = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL",),
    "memcpys": ("CUPTI_ACTIVITY_KIND_MEMCPY",),
    "memsets": ("CUPTI_ACTIVITY_KIND_MEMSET",),
}


def nsys_rows(path: Path) -> int | None:
    """Rows of GPU work that SQLite counts itself; None if it cannot."""
    return _sqlite_rows(path, set(chain(*GPU_TABLES.values())).__contains__)


def _sqlite_rows(path: Path, counted: Callable[[str], bool]) -> int | None:
    total = 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if counted(table):
                    total += db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    except sqlite3.Error:
        return None
    return total


def gpu_kept(kept: Kept) -> int:
    """Rows of GPU work."""
    return sum(kept.get(t, 0) for t in GPU_TABLES)


def all_kept(kept: Kept) -> int:
    """Rows of every table of events or sums."""
    return sum(n for t, n in kept.items() if t not in ("runs", "kernel_names") and t not in DERIVED_TABLES)


def break_of_law(there: int, kept: int, lost: int, exact: bool) -> str | None:
    """What is wrong with the counts of a file that was read; `exact`: nothing in it was damaged."""
    if exact and (kept != there or lost):
        return f"{there} whole rows are there, {kept} were read, {lost} reported lost"
    if kept + lost < there:
        return f"{there} rows are there, {kept} were read, {lost} reported lost: {there - kept - lost} lost in silence"
    return None
