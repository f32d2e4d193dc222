"""The operator of each correlation id, in files of torch 1.12 to 2.2, whose External ids are correlation ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive import launching_events
from analyze.derive.interface import Derived
from analyze.derive.launch_calls import launch_calls
from analyze.derive.launching_events import NO_EVENTS, read_events, together
from analyze.derive.numpy_columns import NULL, Ints, ints, nullable, text_codes, values_at
from analyze.derive.threads import OpenIntervals, distinct, find
from schemas.table_declaration import declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_WORK = ("kernels", "memcpys", "memsets")
READS = {
    **{table: ("correlation_id", "op_id") for table in _WORK},
    "cuda_calls": ("pid", "tid", "api", "name", "start_ns", "dur_ns", "correlation_id", "op_id"),
    "cpu_ops": launching_events.COLUMNS,
    "ranges": ("origin", *launching_events.COLUMNS),
}
"""Columns that call_ops is computed from."""

_LEAST_ROWS = 16
"""GPU work that must have its correlation id for External id before that says something of a file without calls: a few
may be equal by chance."""


def call_ops(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of call_ops, from the columns READS of a rank's tables."""
    import pyarrow as pa

    calls = tables["cuda_calls"]
    (api,), apis = text_codes([calls.column("api")])
    is_call = np.array([text != "sync" for text in apis.to_pylist()] + [False])[api]
    ids = [ints(calls, "correlation_id")[is_call], *(ints(tables[t], "correlation_id") for t in _WORK)]
    op_ids = [ints(calls, "op_id")[is_call], *(ints(tables[t], "op_id") for t in _WORK)]
    if not _are_correlation_ids(ids, op_ids):
        return pa.table({"correlation_id": pa.array([], pa.int64()), "op_id": pa.array([], pa.int64())})
    wanted = distinct(np.concatenate(ids))
    wanted = wanted[wanted != NULL]
    launching = launch_calls(calls, wanted)[0]
    events = together([NO_EVENTS, *(part.take(part.op_id > 0) for part in read_events(tables)[0])])
    events = events.take(np.argsort(events.op_id, kind="stable"))
    inside = OpenIntervals(events.tid, events.start, events.end).at(launching.tid, launching.start)
    found = values_at(events.op_id, values_at(inside, find(launching.id, wanted), -1))
    return pa.table({"correlation_id": wanted, "op_id": nullable(found)})


def _are_correlation_ids(ids: list[Ints], op_ids: list[Ints]) -> bool:
    """Return whether all External ids, of calls (first) and of GPU work, are correlation ids.

    Kineto wrote those until February 2024 (torch 1.12 to 2.2). They name another operator or none.
    """
    given = [(op > 0) & (own != NULL) for own, op in zip(ids, op_ids, strict=True)]
    if any((own[rows] != op[rows]).any() for own, op, rows in zip(ids, op_ids, given, strict=True)):
        return False
    return bool(given[0].any()) or sum(map(np.count_nonzero, given)) >= _LEAST_ROWS


DERIVED = (
    Derived(
        declare_table(
            "call_ops",
            "a correlation id of a rank whose External ids are correlation ids (torch 1.12 to 2.2)",
            ("correlation_id", "int64", "", "of a CUDA call or GPU work"),
            (
                "op_id",
                "int64",
                "",
                "External id of the innermost operator or range on the thread when the call begins; NULL without one",
            ),
        ),
        version=1,
        reads=READS,
        compute=call_ops,
    ),
)
