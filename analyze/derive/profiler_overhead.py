"""The ranges of a rank in which the profiler itself works, and the operators that it holds up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.interface import Derived
from analyze.derive.numpy_columns import NULL, Ints, equals, ints, nullable, text_codes, texts, values_at
from analyze.derive.threads import OpenIntervals, distinct, find
from schemas.table_declaration import INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

READS = {
    "ranges": ("origin", "tid", "name", "start_ns", "dur_ns"),
    "cpu_ops": ("tid", "name", "start_ns", "dur_ns"),
    "cuda_calls": ("tid",),
}
"""Columns that profiler_overhead is computed from."""


def profiler_overhead(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of profiler_overhead, from the columns READS of a rank's tables."""
    import pyarrow as pa

    ranges, ops = tables["ranges"], tables["cpu_ops"]
    is_overhead = equals(ranges["origin"], "overhead")
    found, others = ranges.filter(pa.array(is_overhead)), ranges.filter(pa.array(~is_overhead))
    tid, start, dur = (ints(found, c) for c in ("tid", "start_ns", "dur_ns"))
    used = np.concatenate([ints(table, "tid") for table in (others, ops, tables["cuda_calls"])]) if len(tid) else tid
    (code,), names = text_codes([ops["name"]])
    return pa.table(
        {
            "tid": nullable(np.where(find(distinct(used), tid) >= 0, tid, NULL)),
            "name": found["name"],
            "start_ns": found["start_ns"],
            "dur_ns": found["dur_ns"],
            "op_name": texts(values_at(code, _operator(ops, tid, start, start + dur), missing=-1), names),
        }
    )


def _operator(ops: pa.Table, tid: Ints, start: Ints, end: Ints) -> Ints:
    """Return the innermost operator around each interval; -1 without one."""
    op_tid, op_start, op_dur = (ints(ops, c) for c in ("tid", "start_ns", "dur_ns"))
    op_end = op_start + op_dur
    known = distinct(start)
    holds = np.searchsorted(known, op_start) < np.searchsorted(known, op_end, "right")
    rows = np.flatnonzero(holds & (op_dur != NULL))
    has_ops = (tid != NULL) & (find(distinct(op_tid), tid) >= 0)
    op_tid, op_start, op_end = op_tid[rows], op_start[rows], op_end[rows]
    everywhere = np.zeros(len(rows), np.int64)
    place = np.where(
        has_ops,
        OpenIntervals(op_tid, op_start, op_end).around(tid, start, end),
        OpenIntervals(everywhere, op_start, op_end).around(np.zeros_like(tid), start, end),
    )
    return values_at(rows, place, missing=-1)


DERIVED = (
    Derived(
        declare_table(
            "profiler_overhead",
            "a range in which the profiler itself works, as Kineto writes it: Buffer Flush and others",
            ("tid", "int64", "", "thread; NULL if nothing else ran on it: CUPTI numbers threads in its own way"),
            ("name", "string", "", "what the profiler did"),
            *INTERVAL,
            (
                "op_name",
                "string",
                "",
                "innermost operator around it: on its thread, or on any if its thread runs no operators",
            ),
        ),
        version=1,
        reads=READS,
        compute=profiler_overhead,
    ),
)
