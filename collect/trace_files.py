"""Writes what torch.profiler recorded: the Chrome trace, key_averages() as CSV, the memory timeline.

Uses the standard library and collect.new_files alone, because it also runs inside programs of the user's own, in
whatever Python those have.
"""

from __future__ import annotations

import csv
import errno
import gzip
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from .new_files import new_file, private_folder

ALMOST_NOTHING = 1 << 20
"""Bytes; with less than this free, a disk counts as full."""
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


def write_recording(
    profile: Any, folder: Path, stem: str, memory_timeline: bool = False, unfinished: str | None = None
) -> list[Any]:
    """Write STEM.trace.json.gz and STEM.key_averages.csv of a stopped torch.profiler.profile into `folder`.

    Both hold exactly the same events. A file appears under its name only when it is whole. `unfinished` is the name of
    a step's range that is no step: a profiler cannot forget what has begun, so both get it under another name. Returns
    the rows of key_averages(). Raises OSError when the disk is full.
    """
    if unfinished:
        for event in profile.events():
            if unfinished in (event.name, getattr(event, "trace_name", None)):
                event.name = event.trace_name = _no_step(unfinished)
    # Averages first: they need the events only, and export may be what runs out of disk.
    averages = list(profile.key_averages())
    write_key_averages(averages, folder / f"{stem}.key_averages.csv")
    # torch opens files by name, so it gets a folder that nobody else has laid a link in.
    with private_folder(folder) as work:
        _write_trace(profile, work, folder / f"{stem}.trace.json.gz", unfinished)
        if memory_timeline:
            timeline = work / f"{stem}.memory_timeline.json.gz"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                profile.export_memory_timeline(str(timeline))
            timeline.replace(folder / timeline.name)
    return averages


def _no_step(name: str) -> str:
    return name.replace("ProfilerStep#", "unfinished step ")


def _write_trace(profile: Any, work: Path, final: Path, unfinished: str | None) -> None:
    # Not through torch's own .gz path: that one goes through /tmp, which is small on many nodes.
    plain, packed = work / "trace.json", work / "trace.json.gz"
    profile.export_chrome_trace(str(plain))
    _check_whole(plain)
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        if unfinished:
            old, new = (f'"{name}"'.encode() for name in (unfinished, _no_step(unfinished)))
            target.writelines(line.replace(old, new) for line in source)
        shutil.copyfileobj(source, target, 1 << 20)
    packed.replace(final)
    plain.unlink()


def _check_whole(path: Path) -> None:
    """Raise OSError unless the file ends as JSON does: torch's C++ writer says nothing when it cannot write."""
    end = b""
    if path.exists():
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 64))
            end = f.read().rstrip()
    if end.endswith((b"}", b"]")):
        return
    full = shutil.disk_usage(path.parent).free < ALMOST_NOTHING
    number = errno.ENOSPC if full else errno.EIO
    raise OSError(number, os.strerror(number), str(path))


def _first(row: Any, *names: str) -> Any:
    """The first attribute that this version of torch has; 0 without any."""
    for name in names:
        value = getattr(row, name, None)
        if value is not None:
            return value
    return 0


def write_key_averages(averages: list[Any], path: Path) -> None:
    """Write the rows of key_averages() as CSV; times in microseconds with the three decimals that are exact ns."""
    with new_file(path, "t", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(KEY_AVERAGES_COLUMNS)
        for row in averages:
            device = str(row.device_type).rpartition(".")[2]
            out.writerow(
                (
                    row.key,
                    device,
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
