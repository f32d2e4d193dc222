"""The main figures of a recording: a row of the query `summary` in words, for pages and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from analyze.plots.figure import quantity

_SHARES = (
    ("compute", "compute_pct"), ("exposed communication", "exposed_comm_pct"), ("exposed copies", "exposed_memcpy_pct"),
    ("idle", "idle_pct"),
)  # fmt: skip
_LEAST_PCT = 0.05
"""Shares below it are not shown."""


class Measure(NamedTuple):
    """A figure of a recording."""

    name: str
    value: float
    unit: str
    detail: str
    """What it is over, and what else is known."""
    query: str
    """The query that shows more."""
    parts: tuple[tuple[str, float], ...] = ()
    """Names and shares in %, which add up to 100."""

    @property
    def text(self) -> str:
        """The value with its unit."""
        return percent(self.value) if self.unit == "%" else quantity(self.value, self.unit)


def percent(value: float) -> str:
    """Return a share: two significant digits below 1 %."""
    return quantity(value, "%") if value >= 1 or value == 0 else f"{value:.2g} %"


def measures(row: Mapping[str, Any]) -> list[Measure]:
    """Return the figures that are known of a recording, from its row of `summary`."""
    found = [*_hang(row), *_out_of_memory(row), *_time(row), *_gpu(row), *_kernels(row), *_rates(row), *_memory(row)]
    if row["ranks"]:
        found.append(Measure("ranks", row["ranks"], "index", _recorded(row), "runs"))
    return found


def _recorded(row: Mapping[str, Any]) -> str:
    """Return how many GPUs worked, or what is there instead of their work."""
    if row["gpus"]:
        return f"{row['gpus']} GPU{'s' if row['gpus'] != 1 else ''}"
    instead = (
        ("counted_kernels", "counters only"), ("summed_kernels", "sums only"), ("span_ns", "CPU only"),
        ("hung_groups", "dumps of the flight recorder"), ("held_bytes", "memory snapshot"),
    )  # fmt: skip
    return next((text for column, text in instead if row[column] is not None), "no GPU work was read")


def _hang(row: Mapping[str, Any]) -> list[Measure]:
    if row["hung_groups"] is None:
        return []
    return [Measure("hung process groups", row["hung_groups"], "index", row["hang"] or "all completed", "hang")]


def _out_of_memory(row: Mapping[str, Any]) -> list[Measure]:
    if row["oom_bytes"] is None:
        return []
    return [Measure("out of memory", row["oom_bytes"], "B", f"requested: {row['oom']}", "memory-oom")]


def _kernels(row: Mapping[str, Any]) -> list[Measure]:
    """Return what counters and logs with sums know of kernels: no timeline, so no shares of it."""
    found = []
    if (kernels := row["counted_kernels"]) is not None:
        found.append(Measure("profiled kernels", kernels, "count", "launches with counters", "metrics"))
        if row["counted_ns"] is not None:
            detail = "sum of their durations, one by one"
            found.append(Measure("kernel time", row["counted_ns"], "ns", detail, "roofline"))
    if row["summed_ns"] is not None:
        calls = f"{row['summed_kernels']:,} call{'s' if row['summed_kernels'] != 1 else ''}"
        found.append(Measure("kernel time", row["summed_ns"], "ns", f"sum over {calls}", "kernel-share"))
    return found


def _time(row: Mapping[str, Any]) -> list[Measure]:
    recorded, undisturbed = row["avg_step_ns"], row["undisturbed_step_ns"]
    if undisturbed is not None:
        detail = "without the profiler" + (f"; {quantity(recorded, 'ns')} recorded" if recorded is not None else "")
        return [Measure("step time", undisturbed, "ns", detail, "steps")]
    if recorded is not None:
        steps = f"mean of {row['steps']} recorded step{'s' if row['steps'] != 1 else ''}"
        return [Measure("step time", recorded, "ns", steps, "steps")]
    if row["span_ns"] is not None:
        return [Measure("recording", row["span_ns"], "ns", "no training steps", "breakdown" if row["gpus"] else "ops")]
    return []


def _gpu(row: Mapping[str, Any]) -> list[Measure]:
    if row["idle_pct"] is None:
        return []
    parts = tuple((name, row[column]) for name, column in _SHARES if row[column] >= _LEAST_PCT)
    over = "the recorded steps" if row["steps"] else "the recording"
    detail = f"of {over}" + (f", mean of {row['gpus']} GPUs" if row["gpus"] > 1 else "")
    if row["undisturbed_idle_pct"] is not None:
        detail += f"; idle without the profiler: {percent(row['undisturbed_idle_pct'])}"
    return [Measure("GPU busy", 100 - row["idle_pct"], "%", detail, "breakdown", parts)]


def _rates(row: Mapping[str, Any]) -> list[Measure]:
    found = []
    undisturbed, recorded = row["undisturbed_mfu_pct"], row["mfu_pct"]
    if undisturbed is not None:
        detail = f"without the profiler; {percent(recorded)} recorded"
        found.append(Measure("MFU", undisturbed, "%", detail, "mfu"))
    elif recorded is not None:
        found.append(Measure("MFU", recorded, "%", "of recorded steps", "mfu"))
    if row["images_per_s"] is not None:
        found.append(Measure("throughput", row["images_per_s"], "images/s", "all ranks", "steps"))
    for kind in ("prefill", "decode"):
        if (rate := row[f"{kind}_tokens_per_s"]) is not None:
            found.append(Measure(kind, rate, "tokens/s", "of a rank", "serving"))
    return found


def _memory(row: Mapping[str, Any]) -> list[Measure]:
    allocated, reserved = row["peak_bytes"], row["peak_reserved_bytes"]
    if allocated is not None:
        detail = "allocated on a GPU" + (f"; {quantity(reserved, 'B')} reserved" if reserved is not None else "")
        return [Measure("peak memory", allocated, "B", detail, "memory-peak")]
    if reserved is not None:
        return [Measure("peak memory", reserved, "B", "reserved on a GPU", "memory-peak")]
    if row["peak_cpu_bytes"] is not None and row["gpus"] is None:
        return [Measure("peak memory", row["peak_cpu_bytes"], "B", "allocated on the CPU", "memory-peak")]
    if row["held_bytes"] is not None:
        return [Measure("memory", row["held_bytes"], "B", "allocated on a GPU at the snapshot", "memory-live")]
    return []
