"""Look up the call stacks of an Nsight Systems export: of samples, CUDA calls (--cudabacktrace) and OS calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.open_export import Tables
from analyze.sources.nsys.values import PROCESS_BITS, Columns, filtered

SAMPLES, CUDA_CALLS, OS_CALLS = "SAMPLING_CALLCHAINS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS"

CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_BACKTRACE = 67
"""eventClass of a row that nsys's own hook of a call wrote, with its stack. CUPTI's row of the call has no stack."""


class _Found(NamedTuple):
    """The stacks of a table: their ids, innermost functions and all functions."""

    ids: pa.Array
    functions: pa.Array
    paths: pa.Array


class Stacks:
    """Reads a table of stacks when it is first needed."""

    def __init__(self, tables: Tables, lookup: Callable[[pa.Array], pa.Array]):
        self._tables = tables
        self._lookup = lookup
        self._read = cache(self._read_table)

    def functions(self, table: str, ids: pa.Array) -> pa.Array:
        """Return the innermost functions of stacks; [LIBRARY] where a symbol is unknown, NULL for an unknown id."""
        found = self._read(table)
        return found.functions.take(pc.index_in(ids, found.ids))

    def paths(self, table: str, ids: pa.Array) -> pa.Array:
        """Return the functions of stacks, outermost first, separated by ` > `; NULL for an unknown id."""
        found = self._read(table)
        return found.paths.take(pc.index_in(ids, found.ids))

    def _read_table(self, table: str) -> _Found:
        columns = ["id", "symbol", "module", "stackDepth"]
        batches = [pa.table(batch) for batch in self._tables.batches(table, columns)]
        frames = pa.concat_tables(batches) if batches else pa.table({c: pa.array([], pa.int64()) for c in columns})
        frames = frames.filter(pc.and_(pc.is_valid(frames["id"]), pc.is_valid(frames["stackDepth"])))
        if table == CUDA_CALLS and _numbered_from_zero(self._tables, frames["id"]):
            frames = frames.set_column(0, "id", pc.subtract(frames["id"], 1))
        frames = frames.sort_by([("id", "ascending"), ("stackDepth", "descending")]).combine_chunks()
        symbol, module = (self._lookup(frames[c].combine_chunks()).fill_null("(unknown)") for c in ("symbol", "module"))
        library = pc.binary_join_element_wise("[", pc.replace_substring_regex(module, r"^.*/|[\[\]]", ""), "]", "")
        function = pc.if_else(pc.starts_with(symbol, "0x"), library, symbol)
        frames = pa.table({"id": frames["id"], "function": function})
        stacks = frames.group_by("id", use_threads=False).aggregate([("function", "list"), ("function", "last")])
        joined = pc.binary_join(stacks["function_list"].combine_chunks(), " > ")
        return _Found(stacks["id"].combine_chunks(), stacks["function_last"].combine_chunks(), joined)


def _numbered_from_zero(tables: Tables, ids: pa.ChunkedArray) -> bool:
    """Return whether calls number the stacks from 0 though the table does from 1, as in exports of nsys 2023.4.

    A call then has stack 0, which the table lacks, and no call has its last stack.
    """
    ranges = [pc.min_max(b["callchainId"]) for table in CALL_TABLES for b in tables.batches(table, ["callchainId"])]
    used = [(r["min"].as_py(), r["max"].as_py()) for r in ranges if r["min"].is_valid]
    if not used or not len(ids):
        return False
    lowest, highest = min(low for low, _ in used), max(high for _, high in used)
    return lowest == 0 and pc.min(ids).as_py() == 1 and pc.max(ids).as_py() == highest + 1


class Backtraces:
    """Joins the two rows of a CUDA call that was recorded with its stack: CUPTI's row and the backtrace's row.

    Both have the correlation id of the call, and the backtrace begins before CUPTI's row and ends after it. Calls that
    CUPTI did not record have a backtrace only.
    """

    def __init__(self, tables: Tables):
        self._tables = tables

    @cached_property
    def _joined(self) -> dict[int, tuple[pa.Array, pa.Array, pa.Array]]:
        return _joined_backtraces(self._tables) if self._tables.columns(CUDA_CALLS) else {}

    def join(self, batch: Columns, process: int) -> Columns:
        """Return calls of a process, each once: a call of CUPTI has the stack of its backtrace."""
        if process not in self._joined:
            return batch
        ids, starts, chains = self._joined[process]
        repeated = pc.and_(_is_backtrace(batch), pc.is_in(batch["start"], starts))
        batch = filtered(batch, pc.invert(repeated))
        found = chains.take(pc.index_in(batch["correlationId"], ids))
        return batch | {"callchainId": pc.coalesce(batch["callchainId"], found)}


def _is_backtrace(batch: Columns) -> pa.Array:
    return pc.equal(batch["eventClass"], _BACKTRACE).fill_null(False)


def _joined_backtraces(tables: Tables) -> dict[int, tuple[pa.Array, pa.Array, pa.Array]]:
    """Return correlation ids, starts and stacks of the backtraces of calls that CUPTI recorded, by process."""
    keys = ["globalTid", "correlationId"]
    columns = ["start", "end", *keys, "callchainId", "eventClass"]
    batches = [batch for table in CALL_TABLES for batch in tables.batches(table, columns)]
    backtraces = [pa.table(filtered(b, _is_backtrace(b))) for b in batches]
    if not any(map(len, backtraces)):
        return {}
    calls = [pa.table(filtered(b, pc.invert(_is_backtrace(b)))).select(["start", "end", *keys]) for b in batches]
    pairs = pa.concat_tables(backtraces).join(pa.concat_tables(calls), keys, join_type="inner", right_suffix="_call")
    around = pc.and_(
        pc.less_equal(pairs["start"], pairs["start_call"]), pc.greater_equal(pairs["end"], pairs["end_call"])
    )
    pairs = pairs.filter(around).combine_chunks()
    processes = pc.bit_wise_and(pairs["globalTid"], PROCESS_BITS)
    found = {}
    for process in processes.unique().to_pylist():
        own = pairs.filter(pc.equal(processes, process)).combine_chunks()
        found[process] = tuple(own[c].combine_chunks() for c in ("correlationId", "start", "callchainId"))
    return found
