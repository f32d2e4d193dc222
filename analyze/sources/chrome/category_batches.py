"""Group the events of a Chrome trace by category and convert them to Arrow batches of the tables.

`CATEGORIES` (`category_columns`) has the table of each category; `_ALIASES` the names of categories in other versions.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyze.sources.chrome.arrow_columns import Columns, concat, record_batch
from analyze.sources.chrome.category_columns import CATEGORIES
from analyze.sources.chrome.counters import counter_batch
from analyze.sources.chrome.decimal_us import MAX_NS, to_ns
from analyze.sources.chrome.events import PROFILER_RANGE, Event, Tally
from analyze.sources.chrome.metadata import CapturedGraph, ProcessGroup

Batches = dict[str, pa.RecordBatch]
_ALIASES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "hip_runtime": "cuda_runtime",
    "hip_driver": "cuda_driver",
    "xpu_runtime": "cuda_runtime",
    "xpu_driver": "cuda_driver",
    "privateuse1_runtime": "cuda_runtime",
    "privateuse1_driver": "cuda_driver",
    "mtia_runtime": "cuda_runtime",
    "mtia_ccp_events": "kernel",
    "Synchronization": "cuda_sync",
    "Operator": "cpu_op",
    "operator": "cpu_op",
    "Python function": "python_function",
    "Overhead": "overhead",
}
_MEMORY = "cpu_instant_event"
"""Category of memory events, the only ones without a length."""
_NOT_STORED = {"M", "s", "t", "f", "i", "I", "R", "P", "N", "O", "D", "c"}
"""Phases of events without a table: names, flows, instants, marks, samples, objects."""

_COUNTERS = "counters"
"""Events with values of counters, of any category."""

_METRICS_OF_KERNEL = "metrics: "
"""Begin of the names of events that repeat a kernel of Intel's with its metrics, which are counters, too."""

_NOT_STORED_CATEGORIES = {"Trace"}
"""Categories of complete events without a table: the span of the recording."""

_RANGE_NAMES = (
    "ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#", "enumerate(DataPipe)#",
    "DistributedDataParallel.forward",
)  # fmt: skip
"""Ranges of torch itself, which it wrote as operators until 2021."""

NO_PHASE = "without a phase (ph)"
NO_TIME = "without a time (ts) within 146 years of the clock's zero"


def build_batches(events: Sequence[Event], base_ns: int, tally: Tally) -> Batches:
    """Convert events to Arrow batches by table, without run_id and rank; count each event in `tally`.

    `base_ns` is added to every start: Kineto's baseTimeNanoseconds, 0 if the file has none.
    """
    parts: dict[str, list[pa.RecordBatch]] = {}
    for category, group in _by_category(events, tally).items():
        if category == _COUNTERS:
            timed, start = _timed(group, base_ns, tally)
            if batch := counter_batch(timed, start, tally.unrepresentable):
                parts["counters"] = [batch]
        elif batch := _category_batch(category, group, base_ns, tally):
            parts.setdefault(CATEGORIES[category][0], []).append(batch)
    return {t: b[0] if len(b) == 1 else concat(b) for t, b in parts.items()}


def _by_category(events: Sequence[Event], tally: Tally) -> dict[str, list[Event]]:
    """Group the events that have a table by category (`CATEGORIES`); count all in `tally`.

    Events of a category keep their order, one alias of the category after the other.
    """
    complete: defaultdict[str, list[Event]] = defaultdict(list)
    found: defaultdict[str, list[Event]] = defaultdict(list)
    no_phase = 0
    unread: Counter[str] = Counter()
    for e in events:
        ph = e.ph
        if ph == "X":
            complete[e.cat].append(e)
        elif ph == "i":
            if e.cat == _MEMORY and e.name == "[memory]":
                found[_MEMORY].append(e)
        elif ph == "C":
            found[_COUNTERS].append(e)
        elif ph not in _NOT_STORED:
            if ph:
                unread[phase_label(e)] += 1
            else:
                no_phase += 1
    for cat, group in complete.items():
        category = _ALIASES.get(cat, cat)
        if category in CATEGORIES and category != _MEMORY:
            found[category] += group
        elif cat == PROFILER_RANGE:
            found[_COUNTERS] += group
        elif cat not in _NOT_STORED_CATEGORIES:
            unread[_label(cat)] += len(group)
    _move_ranges(found)
    found["kernel"] = [e for e in found["kernel"] if not e.name.startswith(_METRICS_OF_KERNEL)]
    if no_phase:
        tally.lost[NO_PHASE] += no_phase
    tally.unread += unread
    tally.events += len(events) - no_phase - unread.total()
    return found


def _category_batch(category: str, events: Sequence[Event], base_ns: int, tally: Tally) -> pa.RecordBatch | None:
    """Convert the events of a category to rows; None if there are none. Events without a time move to `tally.lost`."""
    events, start = _timed(events, base_ns, tally)
    if not events:
        return None
    table, build = CATEGORIES[category]
    columns = build(events)
    columns["start_ns"] = start
    if table != "memory_events":
        dur, has_dur = to_ns([e.dur for e in events])
        has_dur &= dur >= 0  # a negative duration would reduce sums
        columns["dur_ns"] = pa.array(dur, mask=~has_dur)
        if not has_dur.all():
            tally.unrepresentable["dur"] += int((~has_dur).sum())
    if "name" not in columns:
        columns["name"] = [e.name for e in events]
    return record_batch(table, columns, len(events), tally.unrepresentable)


def _timed(events: Sequence[Event], base_ns: int, tally: Tally) -> tuple[Sequence[Event], npt.NDArray[np.int64]]:
    """Return the events that have a time, with their starts; the others move to `tally.lost`."""
    start, known = to_ns([e.ts for e in events])
    start = start + base_ns
    known &= np.abs(start) <= MAX_NS
    if lost := int((~known).sum()):
        tally.lost[NO_TIME] += lost
        tally.events -= lost
        return [e for e, ok in zip(events, known, strict=True) if ok], start[known]
    return events, start


def process_groups(groups: Sequence[ProcessGroup]) -> pa.RecordBatch:
    """Convert the process groups that a trace lists to rows of `process_groups`."""
    columns: Columns = {
        "group_name": [None if g.name is None else str(g.name) for g in groups],
        "description": [g.description for g in groups],
        "ranks": [json.dumps(g.ranks) if g.ranks else None for g in groups],
        "size": [g.size if g.size is not None else len(g.ranks or ()) or None for g in groups],
        "backend": [g.backend for g in groups],
    }
    return record_batch("process_groups", columns, len(groups), Counter())


def graph_nodes(graphs: Sequence[CapturedGraph]) -> pa.RecordBatch:
    """Convert the captured CUDA graphs that a file lists to rows of `graph_nodes`."""
    rows = [(g, at, kind, name) for g in graphs for at, (kind, name) in enumerate(g.nodes)]
    columns: Columns = {
        "graph": [g.graph for g, *_ in rows],
        "begin_ns": [g.begin_ns for g, *_ in rows],
        "end_ns": [g.end_ns for g, *_ in rows],
        "node": [at for _, at, *_ in rows],
        "kind": [kind for *_, kind, _ in rows],
        "name": [name for *_, name in rows],
    }
    return record_batch("graph_nodes", columns, len(rows), Counter())


def phase_label(event: Event) -> str:
    """Describe an event that is not read, for a warning."""
    return f"{_label(event.cat)}, phase {_label(event.ph)}"


def _label(cat: str) -> str:
    """Return a category for a warning: printable and short."""
    return "".join(c if c.isprintable() else "?" for c in cat[:40]) or "no category"


def _move_ranges(found: dict[str, list[Event]]) -> None:
    """Move ranges that torch wrote as operators to the ranges."""
    ops = found.get("cpu_op", [])
    if any(n.startswith(_RANGE_NAMES) for n in {e.name for e in ops}):
        found["user_annotation"] += [e for e in ops if e.name.startswith(_RANGE_NAMES)]
        found["cpu_op"] = [e for e in ops if not e.name.startswith(_RANGE_NAMES)]
