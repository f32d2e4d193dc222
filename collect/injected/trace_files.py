"""Writes what torch.profiler recorded: the Chrome trace, key_averages() as CSV, the memory timeline.

Each file appears under its name once it is complete. It is written in a temporary folder that only this user can enter,
so that a link that somebody else has placed is not followed.
"""

from __future__ import annotations

import csv
import errno
import gzip
import inspect
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ALMOST_FULL_BYTES = 1 << 20
"""A disk with less free space counts as full."""
UNFINISHED = (".part-*", ".*.part", "process-*")
"""Patterns of the files and folders that a killed process leaves, or one that ends later than `collect`."""
WORK = (b'"cat": "cpu_op"', b'"cat": "kernel"', b'"cat": "gpu_')
"""How a trace says that an event is an operator or GPU work."""
BASE = re.compile(rb'"baseTimeNanoseconds": (\d+)')
"""How a trace says what its times count from, in ns since the epoch; else they count from the epoch."""
MOST_AVERAGED = 50_000
"""Events up to which key_averages() is written: it takes 70 us and 3 kB for each. `analyze query ops` has the same."""
KEY_AVERAGES_COLUMNS = (
    "key",
    "device_type",
    "is_user_annotation",
    "calls",
    "self_cpu_us",
    "total_cpu_us",
    "self_device_us",
    "total_device_us",
    "self_cpu_mem_bytes",
    "self_device_mem_bytes",
    "flops",
)


def private_folder(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder in `folder` that only this user can enter; a context manager."""
    return tempfile.TemporaryDirectory(prefix=".part-", dir=folder)


def write_recording(
    profile: Any,
    folder: Path,
    stem: str,
    memory_timeline: bool = False,
    unfinished: str | None = None,
    averages: bool = True,
    steps: Sequence[tuple[int, int, int]] = (),
) -> bool:
    """Write STEM.trace.json.gz and STEM.key_averages.csv of a stopped torch.profiler.profile into `folder`.

    Writes nothing and returns False if no operator and no GPU work was recorded; no averages of a large recording, or
    without `averages`. `unfinished` names a ProfilerStep range whose step did not end; both files get it under another
    name. `steps` are number, start and end (ns since the epoch) of steps whose ranges are not recorded, and are added.
    Raises OSError when the disk is full.
    """
    with private_folder(folder) as temporary:
        work = Path(temporary)
        # torch's own .gz export writes through /tmp, which is small on many nodes.
        trace = work / "trace.json"
        profile.export_chrome_trace(str(trace))
        _check_complete(trace)
        events, has_work, base_ns = _scan(trace)
        if not has_work:
            return False
        if averages and events <= MOST_AVERAGED:
            if unfinished:
                for event in profile.events():
                    if unfinished in (event.name, getattr(event, "trace_name", None)):
                        event.name = event.trace_name = _unfinished_name(unfinished)
            _write_key_averages(profile.key_averages(), work / f"{stem}.key_averages.csv", folder)
        _compress(trace, folder / f"{stem}.trace.json.gz", unfinished, _step_ranges(steps, base_ns))
        if memory_timeline:
            timeline = work / f"{stem}.memory_timeline.json.gz"
            # torch warns that it is deprecated. Catching that would make Python repeat warnings of the program.
            inspect.unwrap(type(profile).export_memory_timeline)(profile, str(timeline))
            timeline.replace(folder / timeline.name)
    return True


def _scan(trace: Path) -> tuple[int, bool, int]:
    """Return how many events a trace has, whether operators or GPU work are among them, and where its clock begins."""
    events, has_work, base_ns = 0, False, 0
    with trace.open("rb") as lines:
        for line in lines:
            events += b'"ph": "X"' in line
            has_work = has_work or any(category in line for category in WORK)
            base = BASE.search(line)
            base_ns = int(base[1]) if base else base_ns
    return events, has_work, base_ns


def _step_ranges(steps: Sequence[tuple[int, int, int]], base_ns: int) -> bytes:
    """The events of steps, each with a comma, as torch.profiler writes them."""
    common = {"ph": "X", "cat": "user_annotation", "pid": os.getpid(), "tid": threading.get_native_id()}
    found = []
    for number, start_ns, end_ns in steps:
        times = {"ts": (start_ns - base_ns) / 1000, "dur": (end_ns - start_ns) / 1000}
        found.append(json.dumps({**common, "name": f"ProfilerStep#{number}", **times, "args": {}}) + ",\n")
    return "".join(found).encode()


def _unfinished_name(name: str) -> str:
    return name.replace("ProfilerStep#", "unfinished step ")


def _compress(trace: Path, target: Path, unfinished: str | None, first_events: bytes) -> None:
    compressed = trace.with_name("trace.json.gz")
    with trace.open("rb") as source, gzip.open(compressed, "wb", compresslevel=6) as out:
        if first_events:
            for line in source:
                out.write(line)
                if b'"traceEvents"' in line:
                    out.write(first_events)
                    break
        if unfinished:
            old, new = (f'"{name}"'.encode() for name in (unfinished, _unfinished_name(unfinished)))
            out.writelines(line.replace(old, new) for line in source)
        shutil.copyfileobj(source, out, 1 << 20)
    compressed.replace(target)


def _check_complete(path: Path) -> None:
    """Raise OSError unless the file ends as JSON does: torch's C++ writer does not report a failed write."""
    end = b""
    if path.exists():
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 64))
            end = f.read().rstrip()
    if end.endswith((b"}", b"]")):
        return
    full = shutil.disk_usage(path.parent).free < ALMOST_FULL_BYTES
    number = errno.ENOSPC if full else errno.EIO
    raise OSError(number, os.strerror(number), str(path))


def _write_key_averages(averages: Any, temporary: Path, folder: Path) -> None:
    """Write the rows of key_averages() as CSV; times in microseconds, with three decimals: exact nanoseconds."""
    with temporary.open("w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(KEY_AVERAGES_COLUMNS)
        for row in averages:
            out.writerow(
                (
                    row.key,
                    str(row.device_type).rpartition(".")[2],
                    "true" if getattr(row, "is_user_annotation", False) else "false",
                    row.count,
                    f"{row.self_cpu_time_total:.3f}",
                    f"{row.cpu_time_total:.3f}",
                    f"{_first(row, 'self_device_time_total', 'self_cuda_time_total'):.3f}",
                    f"{_first(row, 'device_time_total', 'cuda_time_total'):.3f}",
                    int(row.self_cpu_memory_usage),
                    int(_first(row, "self_device_memory_usage", "self_cuda_memory_usage")),
                    int(row.flops or 0),
                )
            )
    temporary.replace(folder / temporary.name)


def _first(row: Any, *names: str) -> Any:
    """Return the first attribute that this version of torch has, or 0."""
    for name in names:
        value = getattr(row, name, None)
        if value is not None:
            return value
    return 0
