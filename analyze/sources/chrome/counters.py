"""Rows of `counters` from counter events ("C"), and from metrics of kernels by CUPTI's range profiler.

Kineto writes samples of NVIDIA's hardware counters with pid "GPU 0 Counters" and one value without a name. For Intel's
and Meta's devices, the pid is the device, and each counter has a value. CUPTI's range profiler has a complete
event for each kernel, with the metrics among the args. Other programs write the process as pid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Raw

from analyze.sources.chrome.arrow_columns import Columns, record_batch
from analyze.sources.chrome.events import NOTHING, PROFILER_RANGE, CounterEvent, Event

EXPORTED = "tracequarry"
"""Category of the counters that `analyze trace` computes from other rows: they are not read again."""
_GPU = re.compile(r"GPU ([0-9]{1,9}) Counters")
_PID_IS_DEVICE = ("mtia_counters", "xpu_scope_profiler", PROFILER_RANGE)
_NO_METRICS = ("correlation", "External id")


def counter_batch(
    events: Sequence[Event], start: npt.NDArray[np.int64], unrepresentable: Counter[str]
) -> pa.RecordBatch | None:
    """Return a row for each value of the events; None if there is none. Values that are no numbers are counted."""
    rows: list[tuple[int, str, float, int | str | None, str | None, int | None]] = []
    for at, e in zip(start.tolist(), events, strict=True):
        if e.cat == EXPORTED or not isinstance(e, CounterEvent):
            continue
        correlation = e.args.correlation if e.args and e.cat == PROFILER_RANGE else None
        for key, raw in e.values.items():
            if key == "rank" or (e.cat == PROFILER_RANGE and key in _NO_METRICS):
                continue  # tools that merge traces add the rank to each event
            if (value := _number(raw)) is None:
                unrepresentable["value"] += bytes(raw) not in NOTHING
                continue
            name = key if e.cat == PROFILER_RANGE else f"{e.name} {key}".strip()
            rows.append((at, name, value, _device(e), e.name if correlation else None, correlation or None))
    if not rows:
        return None
    names = ("start_ns", "name", "value", "device", "kernel", "correlation_id")
    columns: Columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return record_batch("counters", columns, len(rows), unrepresentable)


def _device(event: Event) -> int | str | None:
    if isinstance(event.pid, str) and (match := _GPU.fullmatch(event.pid)):
        return int(match[1])
    return event.pid if event.cat in _PID_IS_DEVICE else None


def _number(raw: Raw) -> float | None:
    try:
        return float(msgspec.json.decode(raw, type=int | float))
    except (msgspec.DecodeError, OverflowError):
        return None
