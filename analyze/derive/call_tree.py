"""The call tree of a rank: which operator, range or Python function each event on the CPU lies in.

`analyze.derive.interval_nesting` has the rule. CUDA calls and the profiler's own overhead are leaves of the innermost
event that is open when they begin, and count for its time. So operators, ranges and Python functions have the same
parents, whether the CUDA calls were recorded or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.derive.call_paths import number_paths
from analyze.derive.event_names import are_async, without_step_numbers
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import firsts, in_order, last_below, nest, pairs, self_times
from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, last_if_null, nullable, text_codes, texts, values_at
from schemas.recorded_tables import CAPTURED
from schemas.table_declaration import CPU, INTERVAL, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = ("async", "call", "op", "overhead", "python", "range")
ASYNC, CALL, OP, OVERHEAD, PYTHON, RANGE = range(len(KINDS))
"""The kinds of events by their numbers."""

_ORIGINS = {"record_function": RANGE, "profiler_step": RANGE, "overhead": OVERHEAD, "python_function": PYTHON}
"""Kinds of PyTorch's ranges by their origin."""

READS = {
    "cpu_ops": ("pid", "tid", "name", "op_id", "start_ns", "dur_ns"),
    "ranges": ("origin", "pid", "tid", "name", "op_id", "start_ns", "dur_ns"),
    "cuda_calls": ("api", "pid", "tid", "name", "correlation_id", "op_id", "start_ns", "dur_ns"),
}
"""Columns that call_tree is computed from."""


class Events(NamedTuple):
    """Events on the CPU that have a length; all columns of one shape."""

    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]
    """Number of the name; -1 without."""
    pid: Ints
    tid: Ints
    correlation_id: Ints
    op_id: Ints
    start: Ints
    dur: Ints

    def take(self, rows: Ints | Mask | slice) -> Events:
        """Return these rows."""
        kind, name, *numbers = self
        return Events(kind[rows], name[rows], *(column[rows] for column in numbers))


def call_tree(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of call_tree, from the columns READS of a rank's tables."""
    import pyarrow as pa

    events, names = read_events(tables)
    lane = pairs(pairs(events.pid, events.tid), (events.kind == ASYNC).astype(np.int64))
    is_leaf = (events.kind == CALL) | (events.kind == OVERHEAD)
    order = in_order(lane, events.start, (-events.dur, is_leaf, last_if_null(events.op_id)))
    events, lane, is_leaf = events.take(order), lane[order], is_leaf[order]
    del order
    end = events.start + events.dur
    inner = np.flatnonzero(~is_leaf)
    parent, last, depth = nest(segments(lane[inner], events.kind[inner]), events.start[inner], end[inner])
    self_ns = self_times(parent, last, events.start[inner], end[inner])
    label = events.kind[inner].astype(np.int64) * (len(names) + 1) + events.name[inner] + 1
    path = number_paths(parent, np.where(events.kind[inner] == ASYNC, -1, depth), label)

    # Back among all events. What a leaf lies in is open when it begins, or the first to be so of those around it.
    leaf = np.flatnonzero(is_leaf)
    inside = np.searchsorted(inner, leaf) - 1
    none = np.append(inner, -1)  # a last place, which -1 finds
    inside[(inside >= 0) & (lane[none[inside]] != lane[leaf])] = -1
    left = np.flatnonzero(inside >= 0)
    while len(left):
        left = left[end[inner[inside[left]]] <= events.start[leaf[left]]]
        inside[left] = parent[inside[left]]
        left = left[inside[left] >= 0]
    of_all = {name: np.empty(len(end), np.int64) for name in ("parent", "last_node", "depth", "self_ns", "path")}
    for name, values in (("parent", none[parent]), ("depth", depth), ("self_ns", self_ns), ("path", path)):
        of_all[name][inner] = values
    of_all["parent"][leaf] = none[inside]
    of_all["depth"][leaf] = values_at(depth, inside, missing=-1) + 1
    of_all["self_ns"][leaf] = events.dur[leaf]
    of_all["path"][leaf] = values_at(path, inside, missing=-1)
    of_all["last_node"] = last_below(of_all["parent"], of_all["depth"])
    return pa.table(
        {
            "kind": texts(events.kind, pa.array(KINDS)),
            "name": texts(events.name, names),
            "pid": nullable(events.pid),
            "tid": nullable(events.tid),
            "correlation_id": nullable(events.correlation_id),
            "op_id": nullable(events.op_id),
            "start_ns": events.start,
            "dur_ns": events.dur,
            "node": np.arange(len(end), dtype=np.int32),
            **{
                name: nullable(np.where(values < 0, NULL, values) if name in ("parent", "path") else values, kind)
                for name, values in of_all.items()
                for kind in [pa.int64() if name == "self_ns" else pa.int32()]
            },
        }
    )


def captured_tree(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of captured_tree: call_tree of what the CPU did while CUDA graphs were captured."""
    return call_tree({table: tables[CAPTURED[table]] for table in READS})


def read_events(tables: Mapping[str, pa.Table]) -> tuple[Events, pa.Array]:
    """Return the events of a rank and the text of each name; a profiler step is called ProfilerStep*."""
    ops, ranges, calls = (tables[t] for t in READS)
    columns, names = text_codes([t.column("name") for t in (ops, ranges, calls)])
    is_async = are_async(names)
    origin = _numbers(ranges, "origin", _ORIGINS)
    origin[(origin == RANGE) & is_async[columns[1]]] = ASYNC
    api = np.where(_numbers(calls, "api", {"sync": 0}, missing=1) == 1, np.int8(CALL), np.int8(-1))
    renamed = without_step_numbers(names).dictionary_encode()
    number = np.append(renamed.indices.to_numpy(zero_copy_only=False), -1).astype(np.int32)
    parts = []
    kinds_of = (np.full(ops.num_rows, OP, np.int8), origin, api)
    for table, kinds, name in zip((ops, ranges, calls), kinds_of, columns, strict=True):
        pid, tid, op_id, start, dur = (ints(table, c) for c in ("pid", "tid", "op_id", "start_ns", "dur_ns"))
        correlation = ints(table, "correlation_id") if table is calls else np.full(len(start), NULL)
        part = Events(kinds, number[name], pid, tid, correlation, op_id, start, dur)
        wanted = (kinds >= 0) & (dur != NULL)
        parts.append(part if wanted.all() else part.take(wanted))
    return Events(*(np.concatenate(c) for c in zip(*parts, strict=True))), renamed.dictionary


def segments(lane: Ints, kind: npt.NDArray[np.int8]) -> Ints:
    """Return a number for each lane; an async event has one of its own, for it has no parent and no children."""
    alone = kind == ASYNC
    new = firsts(lane) | alone
    new[1:] |= alone[:-1]
    return np.cumsum(new)


def _numbers(table: pa.Table, column: str, numbers: Mapping[str, int], missing: int = -1) -> npt.NDArray[np.int8]:
    """Return the number of each text of a column; -1 for NULL, `missing` for other texts."""
    (codes,), found = text_codes([table.column(column)])
    return np.array([*(numbers.get(text, missing) for text in found.to_pylist()), -1], np.int8)[codes]


_COLUMNS = (
    ("kind", "string", "", "op, range, python (a Python function), call (CUDA), overhead or async"),
    ("name", "string", "", "name; that of a profiler step is ProfilerStep*"),
    *CPU,
    ("correlation_id", "int64", "", "of CUDA calls, as in cuda_calls"),
    ("op_id", "int64", "", "External id, as the file says it"),
    *INTERVAL,
    ("node", "int32", "", "number of the event in the rank, in pre-order: its subtree ends at last_node"),
    ("parent", "int32", "", "node of the parent; NULL for a root. Of calls and overhead, where they begin"),
    ("last_node", "int32", "", "node of the last event below it; its own if there is none"),
    ("depth", "int32", "", "level in the tree, from 0"),
    ("self_ns", "int64", "ns", "length without that of its children; CUDA calls and overhead stay part of it"),
    (
        "path",
        "int32",
        "",
        "path in call_paths (tree stack), if no CUDA graph was replayed; of calls and overhead the parent's; NULL of "
        "async",
    ),
)

DERIVED = (
    Derived(
        declare_table(
            "call_tree",
            "an operator, range, Python function or CUDA call, with its position in the call tree of its thread",
            *_COLUMNS,
        ),
        version=1,
        reads=READS,
        compute=call_tree,
    ),
    Derived(
        declare_table(
            "captured_tree",
            "a row of call_tree while a CUDA graph was captured, with its position among these",
            *_COLUMNS,
        ),
        version=1,
        reads={CAPTURED[table]: columns for table, columns in READS.items()},
        compute=captured_tree,
    ),
)
