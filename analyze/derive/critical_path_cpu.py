"""What the threads of a rank did while its critical paths were on the CPU, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive.columns import NULL, Ints, equals, ints, nullable, text_codes, texts
from analyze.derive.gpu_work import ASYNC, RANGES
from analyze.derive.nesting import changes, dense, in_order, nest
from analyze.derive.threads import distinct

if TYPE_CHECKING:
    import pyarrow as pa

_EVENT = ("tid", "name", "start_ns", "dur_ns")
READS = {
    "critical_path": ("turn", "seq", "kind", "tid", "start_ns", "dur_ns"),
    "cpu_ops": _EVENT,
    "ranges": ("origin", *_EVENT),
    "cuda_calls": ("api", *_EVENT),
}
"""Columns that critical_path_cpu is computed from."""


class Events(NamedTuple):
    """Operators, ranges and CUDA calls, by thread and start, longer first; all of one shape."""

    tid: Ints
    start: Ints
    end: Ints
    name: Ints
    """Place of the name in alphabetical order; the last where there is none."""


def critical_path_cpu(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of critical_path_cpu, from the columns READS of a rank's tables.

    A moment of a piece counts for the innermost event that is open on its thread: the last to begin; of several that
    begin together the shortest, of equal ones the last by name. The rows of a piece add up to its length.
    """
    import pyarrow as pa

    path = tables["critical_path"]
    path = path.filter(pa.array(equals(path["kind"], "cpu")))
    turn, seq, tid, start, dur = (ints(path, c) for c in ("turn", "seq", "tid", "start_ns", "dur_ns"))
    threads = distinct(tid)
    events, names = _events(tables, threads)
    parent, last, _ = nest(events.tid, events.start, events.end)
    # From where a later one outlasts it on, an event is not the innermost any more. If it ends there, all are nested.
    later_tid, later = (np.append(c, NULL)[last + 1] for c in (events.tid, events.start))
    end = np.where(later_tid == events.tid, np.minimum(events.end, later), events.end)
    of_parent = np.append(events.name, len(names))[parent]

    # A piece is time without an event. Each event takes what it covers from the one around it.
    found = [(np.arange(len(dur)), np.full(len(dur), len(names)), dur)]
    for is_step in (False, True):  # of the pieces of either, none overlap
        for number in threads:
            rows = np.flatnonzero((tid == number) & ((turn != NULL) == is_step))
            rows = rows[np.argsort(start[rows], kind="stable")]
            own = slice(*(int(np.searchsorted(events.tid, number, side)) for side in ("left", "right")))
            event, at, covered = _overlaps(events.start[own], end[own], start[rows], start[rows] + dur[rows])
            found.append((rows[at], events.name[own][event], covered))
            found.append((rows[at], of_parent[own][event], -covered))
    piece, name, ns = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(piece * (len(names) + 1) + name, kind="stable")
    piece, name, ns = piece[order], name[order], ns[order]
    first = np.flatnonzero(changes(piece) | changes(name))
    total = np.add.reduceat(ns, first) if len(first) else ns
    some = total > 0
    piece, name, total = piece[first][some], name[first][some], total[some]
    return pa.table(
        {
            "turn": nullable(turn[piece], pa.int32()),
            "seq": pa.array(seq[piece]),
            "name": texts(np.where(name == len(names), -1, name), names),
            "dur_ns": pa.array(total),
        }
    )


def _events(tables: Mapping[str, pa.Table], threads: Ints) -> tuple[Events, pa.Array]:
    """Return what has a length and is on one of these threads, and the names in alphabetical order."""
    import pyarrow.compute as pc

    ops, ranges, calls = (tables[t] for t in ("cpu_ops", "ranges", "cuda_calls"))
    codes, texts_found = text_codes([t["name"] for t in (ops, ranges, calls)])
    renamed = pc.replace_substring_regex(texts_found, r"^ProfilerStep#\d+$", "ProfilerStep*")
    names = renamed.unique().sort()
    place = np.append(pc.index_in(renamed, names).to_numpy(zero_copy_only=False), len(names))
    is_async = np.append(pc.match_substring_regex(texts_found, ASYNC).to_numpy(zero_copy_only=False), False)
    of_torch = np.logical_or.reduce([equals(ranges["origin"], origin) for origin in RANGES]) & ~is_async[codes[1]]
    kept = (np.ones(ops.num_rows, bool), of_torch, ~equals(calls["api"], "sync"))
    parts = []
    for table, wanted, name in zip((ops, ranges, calls), kept, codes, strict=True):
        tid, start, dur = (ints(table, c) for c in ("tid", "start_ns", "dur_ns"))
        rows = np.flatnonzero(wanted & (dur > 0) & (tid != NULL) & np.isin(tid, threads))
        parts.append(Events(tid[rows], start[rows], start[rows] + dur[rows], place[name[rows]].astype(np.int64)))
    events = Events(*map(np.concatenate, zip(*parts, strict=True)))
    order = in_order(dense(events.tid)[0], events.start, (-events.end, events.name))
    return Events(*(column[order] for column in events)), names


def _overlaps(start: Ints, end: Ints, piece_start: Ints, piece_end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return event, piece and length of each overlap of events with disjoint pieces in order of time."""
    first = np.searchsorted(piece_end, start, "right")
    count = np.maximum(np.searchsorted(piece_start, end, "left") - first, 0)
    event = np.repeat(np.arange(len(start)), count)
    piece = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(event))
    return event, piece, np.minimum(end[event], piece_end[piece]) - np.maximum(start[event], piece_start[piece])
