"""Look up ids of an Nsight Systems export: strings, NVTX domains, kinds of copies and of memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.stacks import Backtraces, Stacks
from analyze.sources.nsys.values import PROCESS_BITS, Columns, filtered

NVTX_TABLES = ("NVTX_EVENTS", "NVTX_EVENTS_V2")
"""The second one is in some exports of 2019 and 2020."""

_NVTX_DOMAIN = 75
"""NVTX_EVENTS.eventType of an event that names a domain."""

_COPY_KINDS = {
    0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
"""CUpti_ActivityMemcpyKind; from 11 on nsys's own kinds: migrated pages of unified memory."""

_MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
    7: "Unknown",
}  # fmt: skip

_TRANSFER = re.compile(r"(Unified )?(\w)\w*-to-(\w)\w*$")


class Names:
    """The names of ids in an export."""

    def __init__(self, tables: Tables):
        batches = [filtered(b, pc.is_valid(b["id"])) for b in tables.batches("StringIds", ["id", "value"])]
        self._ids = pa.concat_arrays([b["id"] for b in batches] or [pa.array([], pa.int64())])
        self._values = pa.concat_arrays([b["value"] for b in batches] or [pa.array([], pa.string())])
        self.copy_kinds = _COPY_KINDS | labels(tables, "ENUM_CUDA_MEMCPY_OPER", _short_kind)
        self.memory_kinds = _MEMORY_KINDS | labels(tables, "ENUM_CUDA_MEM_KIND")
        self._domains = self._read_domains(tables)
        self.stacks = Stacks(tables, self.lookup)
        self.backtraces = Backtraces(tables)

    def lookup(self, ids: pa.Array) -> pa.Array:
        """Return the strings of ids; NULL for an unknown id."""
        return self._values.take(pc.index_in(ids, self._ids))

    def text(self, batch: Columns) -> pa.Array:
        """Return the messages of NVTX events: registered strings (textId) or plain text."""
        return pc.coalesce(self.lookup(batch["textId"]), batch["text"].cast(pa.string()))

    def domains(self, process: int, ids: pa.Array) -> pa.Array:
        """Return the names of NVTX domains of a process; NULL for the default domain."""
        return mapped(ids, self._domains.get(process, {}))

    def _read_domains(self, tables: Tables) -> dict[int, dict[int, str]]:
        found: dict[int, dict[int, tuple[float, str]]] = {}
        columns = ["start", "eventType", "domainId", "text", "textId", "globalTid"]
        for batch in chain.from_iterable(tables.batches(table, columns) for table in NVTX_TABLES):
            chosen = filtered(batch, pc.equal(batch["eventType"], _NVTX_DOMAIN))
            threads = chosen["globalTid"].fill_null(0).to_pylist()
            starts, ids, texts = chosen["start"].to_pylist(), chosen["domainId"].to_pylist(), self.text(chosen)
            for at, domain, text, thread in zip(starts, ids, texts.to_pylist(), threads, strict=True):
                start = float("inf") if at is None else at
                known = found.setdefault(thread & PROCESS_BITS, {})
                # A domain that was created twice has its first name, as in `nsys stats`.
                if text is not None and domain is not None and (domain not in known or start < known[domain][0]):
                    known[domain] = (start, text)
        return {process: {d: text for d, (_, text) in known.items()} for process, known in found.items()}


def labels(tables: Tables, table: str, shorten: Callable[[str], str] = str) -> dict[int, str]:
    """Return the labels of ids from a table of labels of the export."""
    read = rows(tables, table, ["id", "label"])
    return {r["id"]: shorten(r["label"]) for r in read if r["id"] is not None and r["label"] is not None}


def _short_kind(label: str) -> str:
    """Shorten Host-to-Device to HtoD, Unified Host-to-Device to Unified HtoD."""
    match = _TRANSFER.match(label)
    return f"{match.group(1) or ''}{match.group(2)}to{match.group(3)}" if match else label


def mapped(ids: pa.Array, names: dict[int, str]) -> pa.Array:
    """Return the names of ids; NULL for an unknown id."""
    at = pc.index_in(ids, pa.array(list(names), pa.int64()))
    return pa.array(list(names.values()), pa.string()).take(at)
