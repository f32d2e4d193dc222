"""Convert what an Nsight Systems export says of CPU threads: OS and MPI calls, context switches, sampled stacks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.names import Names
from analyze.sources.nsys.open_export import Tables
from analyze.sources.nsys.rows import Built, EventTable, pids, tids, times
from analyze.sources.nsys.values import Columns

_MPI = tuple(f"MPI_{kind}_EVENTS" for kind in ("P2P", "START_WAIT", "COLLECTIVES", "RMA", "OTHER"))
SOURCES = ("OSRT_API", *_MPI, "SCHED_EVENTS", "COMPOSITE_EVENTS")
STACKS = "SAMPLING_CALLCHAINS"
"""Frames of the stacks of COMPOSITE_EVENTS."""


def thread_tables(tables: Tables) -> tuple[EventTable, ...]:
    """Return the tables of threads. They do not say which processes are ranks: a shell has rows in them, too."""
    samples = _Samples(tables)
    return (
        EventTable("OSRT_API", "os_calls", "globalTid", ("start", "end", "globalTid", "nameId"), _os_calls),
        *(
            EventTable(table, "os_calls", "globalTid", ("start", "end", "globalTid", "textId"), _mpi_calls)
            for table in _MPI
        ),
        EventTable(
            "SCHED_EVENTS", "thread_switches", "globalTid", ("start", "cpu", "isSchedIn", "globalTid"), _switches
        ),
        EventTable("COMPOSITE_EVENTS", "cpu_samples", "globalTid", ("id", "start", "cpu", "globalTid"), samples.build),
    )


def _thread(batch: Columns) -> Built:
    return {"pid": pids(batch["globalTid"]), "tid": tids(batch["globalTid"])}


def _os_calls(batch: Columns, names: Names, process: int) -> Built:
    return _thread(batch) | times(batch) | {"name": names.lookup(batch["nameId"]).fill_null("(unknown)")}


def _mpi_calls(batch: Columns, names: Names, process: int) -> Built:
    return _thread(batch) | times(batch) | {"name": names.lookup(batch["textId"]).fill_null("(unknown)")}


def _switches(batch: Columns, names: Names, process: int) -> Built:
    is_in = pc.not_equal(batch["isSchedIn"], 0)
    return _thread(batch) | {"start_ns": batch["start"], "cpu": batch["cpu"], "is_in": is_in}


class _Samples:
    """Finds the stacks of samples."""

    def __init__(self, tables: Tables):
        self._tables = tables
        self._found: tuple[pa.Array, Built] | None = None

    def build(self, batch: Columns, names: Names, process: int) -> Built:
        """Return samples with their stacks."""
        if self._found is None:
            self._found = self._read(names)
        ids, stacks = self._found
        at = pc.index_in(batch["id"], ids)
        found = {name: values.take(at) for name, values in stacks.items()}
        return _thread(batch) | {"start_ns": batch["start"], "cpu": batch["cpu"]} | found

    def _read(self, names: Names) -> tuple[pa.Array, Built]:
        """Return the ids of the stacks, and the innermost function and all functions of each."""
        columns = ["id", "symbol", "module", "stackDepth"]
        batches = [pa.table(batch) for batch in self._tables.batches(STACKS, columns)]
        frames = pa.concat_tables(batches) if batches else pa.table({c: pa.array([], pa.int64()) for c in columns})
        frames = frames.filter(pc.and_(pc.is_valid(frames["id"]), pc.is_valid(frames["stackDepth"])))
        frames = frames.sort_by([("id", "ascending"), ("stackDepth", "descending")]).combine_chunks()
        symbol, module = (_looked_up(names, frames[c]).fill_null("(unknown)") for c in ("symbol", "module"))
        library = pc.binary_join_element_wise("[", pc.replace_substring_regex(module, r"^.*/|[\[\]]", ""), "]", "")
        function = pc.if_else(pc.starts_with(symbol, "0x"), library, symbol)
        frames = pa.table({"id": frames["id"], "function": function})
        stacks = frames.group_by("id", use_threads=False).aggregate([("function", "list"), ("function", "last")])
        joined = pc.binary_join(stacks["function_list"].combine_chunks(), " > ")
        return stacks["id"].combine_chunks(), {"function": stacks["function_last"].combine_chunks(), "stack": joined}


def _looked_up(names: Names, ids: pa.ChunkedArray) -> pa.Array:
    return names.lookup(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
