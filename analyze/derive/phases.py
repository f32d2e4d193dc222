"""The phases of the training steps of a rank: data, h2d, forward, loss, backward and optimizer.

`docs/definitions.md`, "Phases", states the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive.forward_operators import ENGINE, NODE
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import firsts
from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, nullable, text_codes, texts
from analyze.derive.threads import OpenIntervals, by_thread, distinct, find, nesting_order
from schemas.phases import PHASES
from schemas.table_declaration import INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

READS = {
    "ranges": ("origin", "tid", "name", "start_ns", "dur_ns"),
    "cpu_ops": ("tid", "name", "start_ns", "dur_ns", "sequence_number"),
}
"""Columns that phase_calls is computed from."""

FORWARD, BACKWARD, OPTIMIZER = (PHASES.index(phase) for phase in ("forward", "backward", "optimizer"))
_TORCH_RANGES = (
    (re.compile(r"enumerate\(DataLoader\)"), "data"),
    (re.compile(r"(DistributedDataParallel|DataParallel)\.forward\Z"), "forward"),
    (re.compile(r"Optimizer\.(step|zero_grad)#"), "optimizer"),
)
"""PyTorch's own ranges of a phase."""
_OPTIMIZER_RANGE = re.compile(r"Optimizer\..*#", re.DOTALL)


class Spans(NamedTuple):
    """Stretches of time of threads, each in a phase."""

    tid: Ints
    """NULL is a thread of its own."""
    start: Ints
    end: Ints
    phase: Ints
    """Its place in PHASES."""

    def take(self, rows: Ints | Mask) -> Spans:
        """Return these rows."""
        return Spans(self.tid[rows], self.start[rows], self.end[rows], self.phase[rows])


class PhaseAt:
    """Finds the phase in which a thread is: the innermost of its own ranges, else the innermost of all threads'."""

    def __init__(self, phase_calls: pa.Table):
        """`phase_calls`: its columns tid, phase, start_ns, dur_ns and call_start_ns."""
        tid, start, dur = (ints(phase_calls, c) for c in ("tid", "start_ns", "dur_ns"))
        (self._phase,), self._phases = text_codes([phase_calls.column("phase")])
        self._call_start = np.append(ints(phase_calls, "call_start_ns"), NULL)
        self._phase = np.append(self._phase, np.int32(-1))
        self._own_rows = np.append(np.flatnonzero(tid != NULL), -1)
        own = self._own_rows[:-1]
        self._own = OpenIntervals(tid[own], start[own], start[own] + dur[own])
        self._all = OpenIntervals(np.zeros(len(start), np.int64), start, start + dur)

    def columns(self, tid: Ints, time: Ints, capture_tid: Ints, capture_time: Ints) -> dict[str, pa.Array]:
        """Return the phase at these times (NULL: none) and the start of its call.

        Of the replay of a CUDA graph it is the phase in which the launch was captured, if there was one. That begins
        with the launch of the replay.
        """
        row = self._own_rows[self._own.at(tid, time)]
        captured = self._own_rows[self._own.at(capture_tid, capture_time)]
        row = np.where(captured >= 0, captured, row)
        others = np.flatnonzero((row < 0) & (time != NULL))
        row[others] = self._all.at(np.zeros(len(others), np.int64), time[others])
        start = np.where(captured >= 0, time, self._call_start[row])
        return {"phase": texts(self._phase[row], self._phases), "phase_start_ns": nullable(start)}


def phase_calls(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of phase_calls, from the columns READS of a rank's tables."""
    import pyarrow as pa

    ranges = tables["ranges"]
    ranges = ranges.filter(pa.array(_matches(ranges, "origin", lambda text: text in ("record_function", "nvtx"))))
    annotated = _matches(ranges, "name", lambda text: text in PHASES).any()
    ranges = _with_length(ranges)
    is_own = _matches(ranges, "name", lambda text: text in PHASES)
    given = _spans(ranges, _phases(ranges))
    given = given.take((given.phase >= 0) & (is_own | ~is_own.any()))
    inferred = given.take(np.empty(0, np.int64)) if annotated else inferred_phases(ranges, tables["cpu_ops"])
    calls = _joined([given, inferred])
    begins, call_start = _overlapping_calls(calls)
    return pa.table(
        {
            "tid": nullable(calls.tid),
            "phase": texts(calls.phase, pa.array(PHASES)),
            "start_ns": calls.start,
            "dur_ns": calls.end - calls.start,
            "inferred": np.arange(len(begins)) >= len(given.tid),
            "begins": begins,
            "call_start_ns": call_start,
        }
    )


def inferred_phases(ranges: pa.Table, cpu_ops: pa.Table) -> Spans:
    """Return the stretches of forward and backward that autograd's nodes and torch's optimizers tell apart.

    Backward are the nodes that autograd's engine evaluates, forward the operators that made these nodes: of the
    operators with the sequence number of a node, the last to begin, and those around it. What lies inside a node or an
    optimizer is part of that. A stretch is from the first to the last on a thread with none of another phase between
    on the rank. `ranges`: those of record_function and NVTX that have a length.
    """
    cpu_ops = _with_length(cpu_ops)
    is_node = _matches(cpu_ops, "name", lambda text: text.startswith(NODE))
    sequence = ints(cpu_ops, "sequence_number")
    of_node = distinct(sequence[is_node & (sequence != NULL)])
    is_forward = _matches(cpu_ops, "name", lambda text: not text.startswith(ENGINE)) & (find(of_node, sequence) >= 0)
    parts = [
        _marks(cpu_ops, is_node, BACKWARD),
        _marks(ranges, _matches(ranges, "name", lambda text: _OPTIMIZER_RANGE.match(text) is not None), OPTIMIZER),
        _marks(cpu_ops, is_forward, FORWARD),
    ]
    marks = _joined(parts)
    sequence = np.concatenate([np.full(len(marks.tid) - np.count_nonzero(is_forward), NULL), sequence[is_forward]])
    outside = _outside_of_others(marks)
    marks, sequence = marks.take(outside), sequence[outside]
    # Forward operators that end no earlier than the innermost one of their sequence number.
    order = np.lexsort((-marks.end, marks.start, sequence, marks.tid))
    starts_group = firsts(marks.tid[order], sequence[order])
    last_end = marks.end[order][np.append(starts_group, True)[1:]][np.cumsum(starts_group) - 1]
    made = np.empty(len(order), bool)
    made[order] = marks.end[order] >= last_end
    marks = marks.take(made | (marks.phase != FORWARD))
    # A stretch ends where the phase of the rank changes.
    marks = marks.take(np.lexsort((marks.tid, -marks.end, marks.start)))
    number = np.cumsum(firsts(marks.phase), dtype=np.int64)
    order = np.lexsort((number, marks.tid))
    begins = np.flatnonzero(firsts(marks.tid[order], number[order]))
    if not len(begins):
        return marks
    rows = order[begins]
    ends = np.maximum.reduceat(marks.end[order], begins)
    stretches = Spans(marks.tid[rows], np.minimum.reduceat(marks.start[order], begins), ends, marks.phase[rows])
    return stretches.take(stretches.phase != OPTIMIZER)


def _outside_of_others(marks: Spans) -> Mask:
    """Return which lie in no earlier node or optimizer of their thread."""
    outside = np.ones(len(marks.tid), bool)
    for _, rows in by_thread(marks.tid):
        rows = rows[nesting_order(marks.start[rows], marks.end[rows])]
        ends = np.where(marks.phase[rows] != FORWARD, marks.end[rows], NULL)
        outside[rows[1:]] = marks.start[rows[1:]] >= np.maximum.accumulate(ends)[:-1]
    return outside


def _overlapping_calls(calls: Spans) -> tuple[Mask, Ints]:
    """Return which begin a call of their phase, and the start of each one's call.

    Ranges of one phase that overlap on a thread, such as an optimizer that steps another, are one call.
    """
    begins, call_start = np.ones(len(calls.tid), bool), calls.start.copy()
    for _, of_thread in by_thread(calls.tid):
        for _, places in by_thread(calls.phase[of_thread]):
            rows = of_thread[places]
            rows = rows[nesting_order(calls.start[rows], calls.end[rows])]
            begins[rows[1:]] = calls.start[rows[1:]] >= np.maximum.accumulate(calls.end[rows])[:-1]
            call_start[rows] = np.maximum.accumulate(np.where(begins[rows], calls.start[rows], NULL))
    return begins, call_start


def _phases(ranges: pa.Table) -> Ints:
    """Return the phase of each range as its place in PHASES; -1 of other ranges."""
    (codes,), names = text_codes([ranges.column("name")])
    return np.array([*map(_phase, names.to_pylist()), -1])[codes]


def _phase(name: str) -> int:
    if name in PHASES:
        return PHASES.index(name)
    return next((PHASES.index(phase) for pattern, phase in _TORCH_RANGES if pattern.match(name)), -1)


def _matches(table: pa.Table, column: str, condition: Callable[[str], bool]) -> Mask:
    """Return for which rows a text fulfils a condition; it is called once for each distinct text."""
    (codes,), found = text_codes([table.column(column)])
    matches: Mask = np.array([*map(condition, found.to_pylist()), False], bool)[codes]
    return matches


def _with_length(table: pa.Table) -> pa.Table:
    return table.filter(table.column("dur_ns").is_valid()) if table.column("dur_ns").null_count else table


def _marks(table: pa.Table, rows: Mask, phase: int) -> Spans:
    import pyarrow as pa

    chosen = table.filter(pa.array(rows))
    return _spans(chosen, np.full(chosen.num_rows, phase))


def _spans(table: pa.Table, phase: Ints) -> Spans:
    start = ints(table, "start_ns")
    return Spans(ints(table, "tid"), start, start + ints(table, "dur_ns"), phase)


def _joined(parts: list[Spans]) -> Spans:
    tid, start, end, phase = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Spans(tid, start, end, phase)


DERIVED = (
    Derived(
        declare_table(
            "phase_calls",
            "a range of a phase on a thread: of the collector's names, else of torch's, with inferred phases",
            ("tid", "int64", "", "thread"),
            ("phase", "string", "", "data, h2d, forward, loss, backward or optimizer"),
            *INTERVAL,
            ("inferred", "bool", "", "inferred from autograd's nodes: no range says it"),
            ("begins", "bool", "", "first of the ranges of one phase that overlap on a thread: they are one call"),
            ("call_start_ns", "int64", "ns", "start of that one"),
        ),
        version=1,
        reads=READS,
        compute=phase_calls,
    ),
)
