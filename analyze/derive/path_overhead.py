"""The time of the profiler itself on the critical path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive.event_names import RANGES, are_async
from analyze.derive.numpy_columns import NULL, Codes, Ints, equals, ints, text_codes
from analyze.derive.path_graph import CPU, NONE, PROFILER, SYNC, Pieces
from analyze.derive.threads import distinct

if TYPE_CHECKING:
    import pyarrow as pa


class Overhead(NamedTuple):
    """What the profiler itself did, in the order of its starts, longer first; all of one shape."""

    tid: Ints
    """NULL where nothing else ran on its thread."""
    start: Ints
    end: Ints
    name: Codes


def profiler_time(tables: Mapping[str, pa.Table], names: Codes) -> Overhead:
    """Return the profiler's own overhead; `names`: codes of the names of the ranges.

    CUPTI's number of a thread need not be the one that the rest of the trace has for it: where nothing else ran on a
    thread, the overhead counts wherever the path was on the CPU.
    """
    ranges = tables["ranges"]
    tid, start, dur = (ints(ranges, c) for c in ("tid", "start_ns", "dur_ns"))
    rows = np.flatnonzero(equals(ranges["origin"], "overhead") & (dur > 0))
    rows = rows[np.lexsort((-dur[rows], start[rows]))]
    own = tid[rows]
    if len(rows):
        on_thread = np.logical_or.reduce([equals(ranges["origin"], origin) for origin in RANGES])
        [names_of], texts_of = text_codes([ranges["name"]])
        on_thread &= ~are_async(texts_of)[names_of]
        calls = tables["cuda_calls"]
        of_calls = ints(calls, "tid")[~equals(calls["api"], "sync")]
        others = (ints(tables["cpu_ops"], "tid"), of_calls, tid[on_thread])
        own = np.where(np.isin(own, np.concatenate([distinct(o) for o in others])), own, NULL)
    return Overhead(own, start[rows], start[rows] + dur[rows], names[rows])


def cut_out(pieces: Pieces, overhead: Overhead) -> Pieces:
    """Return a path with the profiler's time cut out of CPU time and syncs.

    The `item` of such a piece is the place of the overhead. Where overhead overlaps, it counts for the first.
    """
    on_cpu = np.flatnonzero((pieces.kind == CPU) | (pieces.kind == SYNC))
    cuts = [np.empty((0, 4), np.int64)]
    """Piece, overhead, start and end."""
    for tid in np.unique(pieces.tid[on_cpu]) if len(overhead.start) else ():
        own = on_cpu[pieces.tid[on_cpu] == tid]
        rows = np.flatnonzero((overhead.tid == tid) | (overhead.tid == NULL))
        ends = np.maximum.accumulate(overhead.end[rows])
        starts = np.maximum(overhead.start[rows], np.append(NULL, ends)[:-1])
        disjoint = starts < ends
        rows, starts, ends = rows[disjoint], starts[disjoint], ends[disjoint]
        first = np.searchsorted(ends, pieces.start[own], "right")
        count = np.searchsorted(starts, pieces.end[own], "left") - first
        piece = np.repeat(own, count)
        at = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(piece))
        start, end = np.maximum(starts[at], pieces.start[piece]), np.minimum(ends[at], pieces.end[piece])
        cuts.append(np.stack([piece, rows[at], start, end], axis=1))
    piece, cause, start, end = np.concatenate(cuts).T
    if not len(piece):
        return pieces
    n, m = len(pieces.start), len(piece)
    # Each piece begins as itself, and goes on as itself behind each overhead.
    part = np.repeat([0, 1, 2], [n, m, m])
    origin, cause = np.concatenate([np.arange(n), piece, piece]), np.concatenate([np.full(n, NONE), cause, cause])
    begins = np.concatenate([pieces.start, start, end])
    order = np.lexsort((part, cause, origin))
    begins = begins[order]
    ends = np.append(begins[1:], pieces.end[-1])
    some = ends > begins
    order = order[some]
    origin, is_overhead = origin[order], part[order] == 1
    kind = np.where(is_overhead, PROFILER, pieces.kind[origin])
    item = np.where(is_overhead, cause[order], pieces.item[origin])
    return Pieces(kind, pieces.tid[origin], item, begins[some], ends[some])
