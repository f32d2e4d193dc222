"""Find the operator or range that launched GPU work, the outermost operator around it, and its forward operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive import forward_operators, launching_events
from analyze.derive.forward_operators import ForwardOperators
from analyze.derive.interval_nesting import firsts
from analyze.derive.launching_events import MISSING, NO_EVENTS, read_events, together
from analyze.derive.numpy_columns import NULL, Ints, Mask, nullable, texts, values_at
from analyze.derive.threads import OpenIntervals, distinct, find, outermost

if TYPE_CHECKING:
    import pyarrow as pa

READS = tuple(dict.fromkeys((*launching_events.COLUMNS, *forward_operators.READS)))
"""Columns of cpu_ops that are read."""


def without_id(op_id: Ints) -> Mask:
    """Return the rows without an External id."""
    return (op_id == NULL) | (op_id == 0)


class LaunchingOperators:
    """The operators and ranges of a rank, to look up what launched GPU work."""

    def __init__(self, tables: Mapping[str, pa.Table], op_ids: Ints, threads: Ints):
        """`op_ids`: External ids of GPU work. `threads`: those that launched work without one. Both ascend."""
        parts, self._names = read_events(tables)
        self._forward = ForwardOperators(tables["cpu_ops"])
        linked, open_, outer = [NO_EVENTS], [NO_EVENTS], [NO_EVENTS]
        for events in parts:
            linked.append(events.take((events.op_id > 0) & (find(op_ids, events.op_id) >= 0)))
            if len(threads):
                open_.append(events.take(find(threads, events.tid) >= 0))
            if events.is_op.any():
                outer.append(events.take(outermost(events.tid, events.start, events.end)))
        by_id, ops = together(linked), together(outer)
        ops = ops.take(outermost(ops.tid, ops.start, ops.end))
        self._outer = together([ops, MISSING])
        self._outer_at = OpenIntervals(ops.tid, ops.start, ops.end).at
        by_id = by_id.take(np.argsort(by_id.op_id, kind="stable"))
        if not firsts(by_id.op_id).all():
            by_id = by_id.take(np.lexsort((-by_id.end, by_id.start, by_id.op_id)))
        unnumbered = together(open_)
        self._open_at = OpenIntervals(unnumbered.tid, unnumbered.start, unnumbered.end).at
        self._events = together([by_id, unnumbered, MISSING])
        self._open_from = len(by_id.op_id)
        # The last row of each External id, and of the ids that several threads have that of each thread.
        begins = np.flatnonzero(firsts(by_id.op_id))
        counts = np.diff(begins, append=len(by_id.op_id))
        self._ids, self._last = by_id.op_id[begins], np.append(begins + counts - 1, -1)
        differs = by_id.tid != np.repeat(by_id.tid[begins], counts)
        several = np.logical_or.reduceat(differs, begins) if len(begins) else np.empty(0, bool)
        self._several = np.append(several, False)
        shared = np.flatnonzero(np.repeat(several, counts))
        shared = shared[np.lexsort((shared, by_id.tid[shared], by_id.op_id[shared]))]
        last = np.roll(firsts(by_id.op_id[shared], by_id.tid[shared]), -1)
        self._by_thread = shared[last]

    def columns(self, op_id: Ints, call_tid: Ints, call_start: Ints) -> dict[str, pa.Array]:
        """Return the columns on operators of GPU work with these External ids and launch calls (NULL: none)."""
        events, outer = self._events, self._outer
        place = find(self._ids, op_id)
        row = self._last[place]
        shared = np.flatnonzero(self._several[place])
        row[shared] = self._of_thread(op_id[shared], call_tid[shared], call_start[shared])
        by_call = without_id(op_id) & (call_start != NULL)
        rows = np.flatnonzero(by_call)
        inside = self._open_at(call_tid[rows], call_start[rows])
        row[rows] = np.where(inside >= 0, inside + self._open_from, -1)
        start, tid, end = events.start[row], events.tid[row], events.end[row]
        # The outermost operator at the start of the operator or range, or else at the launch call.
        rows = np.flatnonzero(by_call | (row >= 0))
        at_ns, until = (np.where(by_call, call_start, c)[rows] for c in (start, end))
        found = self._outer_at(np.where(by_call, call_tid, tid)[rows], at_ns)
        # An operator that begins with the range that launched the work, and ends before it, lies inside of the range.
        found[(found >= 0) & (outer.start[found] == at_ns) & (outer.end[found] < until)] = -1
        around = np.full(len(op_id), -1)
        around[rows] = found
        own = (around < 0) & (row >= 0) & ~events.is_op[row]
        outer_start = outer.start[around]
        forward_tid, forward_start = self._forward.at(np.where(by_call, call_tid, tid), outer_start)
        backward = np.flatnonzero(forward_start != NULL)
        of_forward = around.copy()
        of_forward[backward] = self._outer_at(forward_tid[backward], forward_start[backward])
        return {
            "op_name": texts(events.name[row], self._names),
            "op_tid": nullable(tid),
            "op_start_ns": nullable(start),
            "op_dur_ns": nullable(np.where(row >= 0, end - start, NULL)),
            "outer_name": texts(np.where(own, events.name[row], outer.name[around]), self._names),
            "outer_start_ns": nullable(np.where(own, start, outer_start)),
            "forward_tid": nullable(forward_tid),
            "forward_start_ns": nullable(forward_start),
            "forward_op": texts(outer.name[of_forward], self._names),
        }

    def _of_thread(self, op_id: Ints, tid: Ints, call_start: Ints) -> Ints:
        """Return the last row of each External id on a thread; -1 without a launch call."""
        known = self._events.take(self._by_thread)
        numbers, threads = distinct(known.op_id), distinct(known.tid)
        keys = find(numbers, known.op_id) * len(threads) + find(threads, known.tid)
        thread = find(threads, tid)
        place = find(keys, np.where(thread >= 0, find(numbers, op_id) * len(threads) + thread, -1))
        return np.where(call_start != NULL, values_at(self._by_thread, place, missing=-1), -1)
