"""Which captured launch call each kernel, copy and fill of a replayed CUDA graph comes from.

A graph has a node for each launch call of its capture, in the order of the calls. A replay runs each node once. The
node ids of CUPTI are in that order. Without ids, work of a replay belongs to the node with its name; of several
with one name, the first to start belongs to the first node, unless they run at the same time on several streams. That
holds only if the replay has as much work of each name as the graph has nodes; up to 1 % may have been lost, and work
with the names of that is not linked. Otherwise nothing is.
`docs/definitions.md`, "Which operator launched GPU work", states the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import firsts
from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, text_codes
from analyze.derive.threads import OpenIntervals
from schemas.recorded_tables import CAPTURED
from schemas.table_declaration import declare_table, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

_CALLS = ("tid", "name", "start_ns", "dur_ns", "correlation_id", "kernel")
READS = {
    "cuda_calls": _CALLS,
    "captured_calls": _CALLS,
    "graph_nodes": ("graph", "begin_ns", "end_ns", "node", "kind", "name"),
}
"""Columns that graph_launches is computed from."""

_BEGIN, _END = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
_REPLAY = re.compile(r"CUDAGraph\.replay#(\d{1,9})")
"""The range around a replay, which `collect` opens."""
_LAUNCH = re.compile(r"(?:cu|cuda|hip)Graph(?:Exec)?Launch")
_LOST = 0.01
"""Share of a graph that a profiler may lose of a replay."""
_COPY = re.compile(r"(memcpy|memset)", re.IGNORECASE)
_KINDS = (
    (re.compile(r"Graph(?:Exec)?Launch|LaunchHostFunc"), None),
    (re.compile(r"Launch"), "kernel"),
    (re.compile(r"[Mm]emcpy"), "memcpy"),
    (re.compile(r"[Mm]emset"), "memset"),
)
"""What a call adds to the graph that is captured."""


def captures_added(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return tables with the events of captures added to those of the recording.

    External ids are left out: those of a capture are not those of the recording.
    """
    import pyarrow as pa

    found = dict(tables)
    for table, captured in CAPTURED.items():
        rows = tables.get(captured)
        if rows is not None and table in tables and rows.num_rows:
            at = rows.schema.get_field_index("op_id")
            if at >= 0:
                rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
            found[table] = pa.concat_tables(
                [tables[table], rows.select(tables[table].column_names)], promote_options="default"
            )
    return found


class Graph(NamedTuple):
    """A captured graph."""

    number: int
    label: Ints
    """Number of the name of each node."""
    tid: Ints
    start: Ints
    """Launch call of each node."""


def is_graph_launch(name: str | None) -> bool:
    """Return whether a call launches a CUDA graph."""
    return name is not None and _LAUNCH.match(name) is not None


def _kind(name: str | None) -> str | None:
    return next((kind for pattern, kind in _KINDS if pattern.search(name or "")), None)


def graph_launches(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of graph_launches, from the columns READS of a rank's tables."""
    import pyarrow as pa

    nodes = tables["graph_nodes"].to_pylist()
    rows: list[dict[str, Any]] = []
    # Few calls are left: those of captures.
    parts = [_of_captures(tables[t]) for t in ("captured_calls", "cuda_calls")]
    calls = sorted((c for part in parts for c in part), key=lambda c: c["start_ns"])
    number = max((n["graph"] for n in nodes), default=0)
    begin: dict[str, Any] | None = None
    inside: list[dict[str, Any]] = []
    seen: set[int] = set()
    for call in calls:
        if _BEGIN.search(call["name"]):
            begin, inside, seen = call, [], set()
        elif begin is not None and _END.search(call["name"]):
            own = [
                n
                for n in nodes
                if n["begin_ns"] <= begin["start_ns"] + begin["dur_ns"] and begin["start_ns"] <= n["end_ns"]
            ]
            number += not own
            rows += _of_graph(own[0]["graph"] if own else number, own, inside, begin["start_ns"], call["start_ns"])
            begin = None
        elif begin is not None and (kind := _kind(call["name"])) and call["correlation_id"] not in seen:
            seen |= {call["correlation_id"]} - {None}
            inside.append({**call, "kind": kind})
    return pa.Table.from_pylist(rows, schema=row_schema(_TABLE))


def _of_captures(calls: pa.Table) -> list[dict[str, Any]]:
    """Return the calls between the first begin of a capture and the last end of one that may be part of a capture."""
    (code,), names = text_codes([calls.column("name")])
    wanted = [bool(_BEGIN.search(n) or _END.search(n)) for n in names.to_pylist()]
    if not any(wanted):
        return []
    start = ints(calls, "start_ns")
    marks = start[np.array([*wanted, False])[code]]
    part = [_kind(n) is not None for n in names.to_pylist()]
    keep = np.array([*(w or p for w, p in zip(wanted, part, strict=True)), False])[code]
    rows = np.flatnonzero(keep & (start >= marks.min()) & (start <= marks.max()))
    return calls.take(rows).to_pylist()


def _of_graph(
    graph: int, nodes: list[dict[str, Any]], calls: list[dict[str, Any]], begin_ns: int, end_ns: int
) -> list[dict[str, Any]]:
    """Return the rows of a graph. Kernels have no name where the nodes that the driver lists are not the calls."""
    nodes = [n for n in nodes if n["kind"] != "other"]
    agree = [n["kind"] for n in nodes] == [c["kind"] for c in calls]
    known = [n["name"] for n in nodes] if agree else [c["kernel"] if not nodes else None for c in calls]
    numbers = [n["node"] for n in nodes] if agree else [None] * len(calls)
    return [
        {
            "graph": graph, "begin_ns": begin_ns, "end_ns": end_ns, "node": node, "kind": call["kind"], "name": name,
            "tid": call["tid"], "start_ns": call["start_ns"],
        }
        for call, name, node in zip(calls, known, numbers, strict=True)
    ]  # fmt: skip


class Replayed(NamedTuple):
    """The captured launch of each piece of work; NULL for all else."""

    graph: Ints
    tid: Ints
    start: Ints


def replayed(
    launches: pa.Table,
    ranges: pa.Table,
    work: Mapping[str, pa.Table],
    correlation_id: Ints,
    call_tid: Ints,
    call_start: Ints,
    is_replay: Mask,
) -> Replayed:
    """Return the captured launches of work. `work`: the table of each kind, in the order of the other arguments.

    `call_tid`, `call_start`: its launch call; `is_replay`: whether that launches a graph.
    """
    n = len(correlation_id)
    found = Replayed(np.full(n, NULL), np.full(n, NULL), np.full(n, NULL))
    rows = np.flatnonzero(is_replay)
    if not launches.num_rows or not len(rows):
        return found
    numbers: dict[str | None, int] = {}
    label = np.concatenate([_labels(kind, table, numbers) for kind, table in work.items()])
    start, dur, stream, node = (
        np.concatenate([ints(table, column) for table in work.values()])
        for column in ("start_ns", "dur_ns", "stream", "graph_node_id")
    )
    graphs = _graphs(launches, numbers)
    hint = _numbers(ranges, call_tid, call_start, rows)
    rows = rows[np.lexsort((start[rows], correlation_id[rows]))]
    bounds = np.append(np.flatnonzero(firsts(correlation_id[rows])), len(rows))
    replays = [rows[begin:end] for begin, end in pairwise(bounds)]
    replays.sort(key=lambda own: (call_tid[own[0]], call_start[own[0]]))
    by_sequence: dict[bytes, list[int]] = {}
    by_names: dict[bytes, list[int]] = {}
    for at, graph in enumerate(graphs):
        by_sequence.setdefault(graph.label.tobytes(), []).append(at)
        by_names.setdefault(np.sort(graph.label).tobytes(), []).append(at)
    at_number = {graph.number: at for at, graph in enumerate(graphs)}
    alike, in_order = [], []
    for turn, own in enumerate(replays):
        by_node, by_name = (own[np.argsort(key[own], kind="stable")] for key in (node, label))
        has_nodes = node[by_node[0]] != NULL and firsts(node[by_node]).all()
        same = by_sequence.get(label[by_node].tobytes()) if has_nodes else None
        named = at_number.get(int(hint[own[0]]))
        names = label[by_name].tobytes()
        if names not in by_names:
            by_names[names] = [at for at, graph in enumerate(graphs) if _is_most_of(graph.label, label[own])]
        found_in = same or by_names[names]
        alike.append([at for at in found_in if named in (None, at)])
        in_order.append(same is not None)
        replays[turn] = by_node if same else by_name
    sequence = _in_sequence([int(call_tid[own[0]]) for own in replays], alike)
    for own, place, by_id in zip(replays, sequence, in_order, strict=True):
        if place is None:
            continue
        graph = graphs[place]
        places = np.arange(len(own))
        if not by_id:
            unsure = np.union1d(
                _at_the_same_time(label[own], start[own], start[own] + dur[own], stream[own]),
                _lost(graph.label, label[own]),
            )
            places = np.argsort(graph.label, kind="stable")
            own, places = own[~np.isin(label[own], unsure)], places[~np.isin(graph.label[places], unsure)]
        found.graph[own] = graph.number
        found.tid[own], found.start[own] = graph.tid[places], graph.start[places]
    return found


def _at_the_same_time(label: Ints, start: Ints, end: Ints, stream: Ints) -> Ints:
    """Return the labels with two pieces that overlap on different streams, so that their order is unknown.

    Work is in the order of labels, then of starts.
    """
    return label[1:][(label[1:] == label[:-1]) & (start[1:] < end[:-1]) & (stream[1:] != stream[:-1])]


def _lost(graph: Ints, work: Ints) -> Ints:
    """Return the labels that more nodes of the graph have than pieces of work."""
    if len(graph) == len(work):
        return np.empty(0, np.int64)
    label, nodes = np.unique(graph, return_counts=True)
    return label[nodes > np.searchsorted(np.sort(work), label, "right") - np.searchsorted(np.sort(work), label)]


def _is_most_of(graph: Ints, work: Ints) -> bool:
    """Return whether work with these labels is that of a graph, except for a little that is missing."""
    nodes, pieces = (dict(zip(*np.unique(labels, return_counts=True), strict=True)) for labels in (graph, work))
    return len(work) >= (1 - _LOST) * len(graph) and all(nodes.get(one, 0) >= n for one, n in pieces.items())


def _in_sequence(tid: list[int], alike: list[list[int]]) -> list[int | None]:
    """Return the graph of each replay, in the order of their launch calls, from the graphs with the same work.

    The parts of a model (piecewise graphs of vLLM) may have the same work. They are replayed in the order of their
    captures: replays between two of known graphs have the graphs between these, if they are as many and alike.
    """
    chosen = [own[0] if len(own) == 1 else None for own in alike]
    known = [at for at, graph in enumerate(chosen) if graph is not None]
    for first, last in pairwise(known):
        between = range(first + 1, last)
        shift = (chosen[first] or 0) - first
        if tid[first] == tid[last] and chosen[last] == last + shift and all(at + shift in alike[at] for at in between):
            chosen[first + 1 : last] = [at + shift for at in between]
    return chosen


def _label(kind: str, name: str | None) -> str | None:
    """Return what is the same of a node and its work. Small copies and fills of a graph may run as kernels."""
    copy = _COPY.match(name or "")
    return (copy[1].lower() if copy else name) if kind == "kernel" else kind


def _labels(kind: str, work: pa.Table, numbers: dict[str | None, int]) -> Ints:
    """Return the number of the label of each piece of work; new ones are added to `numbers`."""
    if kind != "kernel":
        return np.full(work.num_rows, numbers.setdefault(kind, len(numbers)))
    (code,), names = text_codes([work.column("name")])
    labels = [_label(kind, name) for name in names.to_pylist()]
    return np.array([*(numbers.setdefault(text, len(numbers)) for text in labels), NULL], np.int64)[code]


def _graphs(launches: pa.Table, numbers: dict[str | None, int]) -> list[Graph]:
    graph, tid, start = (ints(launches, c) for c in ("graph", "tid", "start_ns"))
    kinds, names = (launches.column(c).to_pylist() for c in ("kind", "name"))
    labels = [_label(kind, name) for kind, name in zip(kinds, names, strict=True)]
    # A kernel whose name is not known is like no work.
    label = np.array([-1 if text is None else numbers.get(text, -1) for text in labels])
    return [Graph(int(g), label[graph == g], tid[graph == g], start[graph == g]) for g in np.unique(graph)]


def _numbers(ranges: pa.Table, call_tid: Ints, call_start: Ints, rows: Ints) -> Ints:
    """Return the number of the graph that a range around each launch names; NULL without one."""
    (code,), names = text_codes([ranges.column("name")])
    matches = [_REPLAY.fullmatch(name) for name in names.to_pylist()]
    number = np.array([int(m[1]) if m else NULL for m in matches] + [NULL])[code]
    own = np.flatnonzero(number != NULL)
    found = np.full(len(call_start), NULL)
    if len(own):
        tid, start, dur = (ints(ranges, c)[own] for c in ("tid", "start_ns", "dur_ns"))
        place = OpenIntervals(tid, start, start + dur).at(call_tid[rows], call_start[rows])
        found[rows] = np.where(place >= 0, number[own][place], NULL)
    return found


_TABLE = declare_table(
    "graph_launches",
    "a launch call in the capture of a CUDA graph",
    ("graph", "int32", "", "number of the graph, as in graph_nodes; else in the order of the captures"),
    ("begin_ns", "int64", "ns", "start of its capture"),
    ("end_ns", "int64", "ns", "end of its capture"),
    ("node", "int32", "", "node in graph_nodes; NULL if its nodes are not known, or not as many as the calls"),
    ("kind", "string", "", "kernel, memcpy or memset"),
    ("name", "string", "", "kernel name; NULL of copies and fills, and if it is not known"),
    ("tid", "int64", "", "thread of the launch call"),
    ("start_ns", "int64", "ns", "start of the launch call"),
)

DERIVED = (Derived(_TABLE, version=1, reads=READS, compute=graph_launches),)
