"""When the first event of a rank starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyze.derive.interface import Derived
from schemas.table_declaration import declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_EVENTS = ("kernels", "memcpys", "memsets", "cuda_calls", "cpu_ops", "ranges")
READS = {**dict.fromkeys(_EVENTS, ("start_ns",)), "memory_events": ("start_ns", "allocated_bytes")}
"""Columns that first_events is computed from."""


def first_events(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the row of first_events, from the columns READS of a rank's tables; none without events."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Other memory events are allocations by the driver, some at time 0.
    memory = tables["memory_events"].filter(tables["memory_events"]["allocated_bytes"].is_valid())
    starts = [pc.min(table["start_ns"]).as_py() for table in (memory, *(tables[name] for name in _EVENTS))]
    known = [start for start in starts if start is not None]
    return pa.table({"start_ns": pa.array([min(known)] if known else [], pa.int64())})


DERIVED = (
    Derived(
        declare_table(
            "first_events",
            "a rank with events",
            ("start_ns", "int64", "ns", "start of the first: kernel, copy, fill, call, operator, range or allocation"),
        ),
        version=1,
        reads=READS,
        compute=first_events,
    ),
)
