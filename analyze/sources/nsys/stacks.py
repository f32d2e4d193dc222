"""Look up the call stacks of an Nsight Systems export: of samples, CUDA calls (--cudabacktrace) and OS calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.open_export import Tables

SAMPLES, CUDA_CALLS, OS_CALLS = "SAMPLING_CALLCHAINS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS"


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
        frames = frames.sort_by([("id", "ascending"), ("stackDepth", "descending")]).combine_chunks()
        symbol, module = (self._lookup(frames[c].combine_chunks()).fill_null("(unknown)") for c in ("symbol", "module"))
        library = pc.binary_join_element_wise("[", pc.replace_substring_regex(module, r"^.*/|[\[\]]", ""), "]", "")
        function = pc.if_else(pc.starts_with(symbol, "0x"), library, symbol)
        frames = pa.table({"id": frames["id"], "function": function})
        stacks = frames.group_by("id", use_threads=False).aggregate([("function", "list"), ("function", "last")])
        joined = pc.binary_join(stacks["function_list"].combine_chunks(), " > ")
        return _Found(stacks["id"].combine_chunks(), stacks["function_last"].combine_chunks(), joined)
