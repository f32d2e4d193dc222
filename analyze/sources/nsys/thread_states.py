"""Convert what an Nsight Systems export says of CPU threads: OS and MPI calls, context switches, sampled stacks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.names import Names
from analyze.sources.nsys.rows import Built, EventTable, thread, times
from analyze.sources.nsys.stacks import OS_CALLS, SAMPLES
from analyze.sources.nsys.values import Columns, filtered

_MARKERS = (31, 32)
"""eventClass of rows that say when nsys began and ceased to trace the calls."""


def _os_calls(batch: Columns, names: Names, process: int) -> Built:
    batch = filtered(batch, pc.invert(pc.is_in(batch["eventClass"], pa.array(_MARKERS, pa.int64()))))
    name = names.lookup(batch["nameId"]).fill_null("(unknown)")
    return thread(batch) | times(batch) | {"name": name, "stack": names.stacks.paths(OS_CALLS, batch["callchainId"])}


def _mpi_calls(batch: Columns, names: Names, process: int) -> Built:
    return thread(batch) | times(batch) | {"name": names.lookup(batch["textId"]).fill_null("(unknown)")}


def _switches(batch: Columns, names: Names, process: int) -> Built:
    is_in = pc.not_equal(batch["isSchedIn"], 0)
    return thread(batch) | {"start_ns": batch["start"], "cpu": batch["cpu"], "is_in": is_in}


def _samples(batch: Columns, names: Names, process: int) -> Built:
    return thread(batch) | {
        "start_ns": batch["start"],
        "cpu": batch["cpu"],
        "function": names.stacks.functions(SAMPLES, batch["id"]),
        "stack": names.stacks.paths(SAMPLES, batch["id"]),
    }


THREAD_TABLES = (
    EventTable(
        "OSRT_API",
        "os_calls",
        "globalTid",
        ("start", "end", "globalTid", "nameId", "callchainId", "eventClass"),
        _os_calls,
    ),
    *(
        EventTable(f"MPI_{kind}_EVENTS", "os_calls", "globalTid", ("start", "end", "globalTid", "textId"), _mpi_calls)
        for kind in ("P2P", "START_WAIT", "COLLECTIVES", "RMA", "OTHER")
    ),
    EventTable("SCHED_EVENTS", "thread_switches", "globalTid", ("start", "cpu", "isSchedIn", "globalTid"), _switches),
    EventTable("COMPOSITE_EVENTS", "cpu_samples", "globalTid", ("id", "start", "cpu", "globalTid"), _samples),
)
"""Tables of threads. They do not say which processes are ranks: a shell has rows in them, too."""
