"""What the threads of a rank did while its critical paths were on the CPU, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from analyze.derive.event_names import RANGES, are_async, without_step_numbers
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import dense, in_order, nest
from analyze.derive.numpy_columns import BATCH_ROWS, NULL, Ints, Mask, equals, ints, nullable, text_codes, texts
from analyze.derive.path_graph import Activities, merge_activities
from analyze.derive.threads import distinct
from schemas.table_declaration import declare_table

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
    events, names = _events(tables, merge_activities(tid, start, start + dur))
    parent, last, _ = nest(events.tid, events.start, events.end)
    # From where a later one outlasts it on, an event is not the innermost any more. If it ends there, all are nested.
    later_tid, later = (np.append(c, NULL)[last + 1] for c in (events.tid, events.start))
    end = np.where(later_tid == events.tid, np.minimum(events.end, later), events.end)
    around = np.append(events.name, len(names))[parent]
    del parent, last, later_tid, later

    width = len(names) + 1
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for is_step in (False, True):  # of the pieces of either, none overlap
        for number in threads:
            rows = np.flatnonzero((tid == number) & ((turn != NULL) == is_step))
            rows = rows[np.argsort(start[rows], kind="stable")]
            own = slice(*(int(np.searchsorted(events.tid, number, side)) for side in ("left", "right")))
            event, at, covered = _overlaps(events.start[own], end[own], start[rows], start[rows] + dur[rows])
            # A piece is time without an event. Each event takes what it covers from the one around it.
            piece = rows[at] * width
            keys = (rows * width + len(names), piece + events.name[own][event], piece + around[own][event])
            found.append(_sums(np.concatenate(keys), np.concatenate([dur[rows], covered, -covered])))
    key, total = map(np.concatenate, zip(*found, strict=True))
    piece, name = np.divmod(key, width)
    return pa.table(
        {
            "turn": nullable(turn[piece], pa.int32()),
            "seq": pa.array(seq[piece]),
            "name": texts(np.where(name == len(names), -1, name), names),
            "dur_ns": pa.array(total),
        }
    )


def _events(tables: Mapping[str, pa.Table], path: Activities) -> tuple[Events, pa.Array]:
    """Return what overlaps a stretch of the path on its thread, and the names in alphabetical order."""
    import pyarrow.compute as pc

    ops, ranges, calls = (tables[t] for t in ("cpu_ops", "ranges", "cuda_calls"))
    codes, texts_found = text_codes([t["name"] for t in (ops, ranges, calls)])
    renamed = without_step_numbers(texts_found)
    names = renamed.unique().sort()
    place = np.append(pc.index_in(renamed, names).to_numpy(zero_copy_only=False), len(names))
    of_torch = np.logical_or.reduce([equals(ranges["origin"], origin) for origin in RANGES])
    of_torch &= ~are_async(texts_found)[codes[1]]
    kept = (np.ones(ops.num_rows, bool), of_torch, ~equals(calls["api"], "sync"))
    parts = [Events(*(np.empty(0, np.int64) for _ in Events._fields))]
    for table, wanted, name in zip((ops, ranges, calls), kept, codes, strict=True):
        for first in range(0, table.num_rows, BATCH_ROWS):
            tid, start, dur = (ints(table.slice(first, BATCH_ROWS), c) for c in ("tid", "start_ns", "dur_ns"))
            rows = np.flatnonzero(wanted[first : first + BATCH_ROWS] & (dur > 0) & (tid != NULL))
            tid, start, end = tid[rows], start[rows], (start + dur)[rows]
            names_here = place[name[first : first + BATCH_ROWS][rows]].astype(np.int64)
            on_path = _is_on_path(tid, start, end, path)
            parts.append(Events(*(c[on_path] for c in (tid, start, end, names_here))))
    events = Events(*map(np.concatenate, zip(*parts, strict=True)))
    order = in_order(dense(events.tid)[0], events.start, (-events.end, events.name))
    return Events(*(column[order] for column in events)), names


def _sums(key: Ints, ns: Ints) -> tuple[Ints, Ints]:
    """Return the keys, each once, that have a sum above 0, and the sums."""
    group, known = dense(key)
    total = np.zeros(len(known), np.int64)
    np.add.at(total, group, ns)
    return known[total > 0], total[total > 0]


def _is_on_path(tid: Ints, start: Ints, end: Ints, path: Activities) -> Mask:
    """Return which intervals overlap a stretch of the path on their thread."""
    found = np.zeros(len(tid), bool)
    for number in distinct(path.tid):
        own = path.tid == number
        rows = np.flatnonzero(tid == number)
        first = np.searchsorted(path.end[own], start[rows], "right")
        found[rows] = first < np.searchsorted(path.start[own], end[rows], "left")
    return found


def _overlaps(start: Ints, end: Ints, piece_start: Ints, piece_end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return event, piece and length of each overlap of events with disjoint pieces in order of time."""
    first = np.searchsorted(piece_end, start, "right")
    count = np.maximum(np.searchsorted(piece_start, end, "left") - first, 0)
    event = np.repeat(np.arange(len(start)), count)
    piece = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(event))
    return event, piece, np.minimum(end[event], piece_end[piece]) - np.maximum(start[event], piece_start[piece])


DERIVED = (
    Derived(
        declare_table(
            "critical_path_cpu",
            "a name of operators, ranges or CUDA calls in a piece of the critical path on the CPU",
            ("turn", "int32", "", "the step, as in critical_path"),
            ("seq", "int64", "", "the piece, as in critical_path"),
            ("name", "string", "", "name of what was innermost on the thread; NULL for time without an event"),
            ("dur_ns", "int64", "ns", "for how long; the rows of a piece add up to its length"),
        ),
        version=1,
        reads=READS,
        compute=critical_path_cpu,
    ),
)
