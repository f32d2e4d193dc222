"""The rule of nesting: events of one thread as a tree.

It is torch.profiler's (`EventList._populate_cpu_children`): on one thread, in order of start (longer first), the parent
of an event is the last event before it that ends at or after its end, and after its start. Events that overlap in part
are not nested.

It is done event by event by `_nesting.c` where that is compiled (`analyze.compiled`); elsewhere level by level over
whole arrays: the events that nothing encloses are the roots of their thread; every other one belongs to the last root
before it, and the rest is the same question inside each root.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyze.compiled import if_compiled
from analyze.errors import InputError
from analyze.query.computed.call_paths import dense, pairs

compiled = if_compiled("analyze.query.computed._nesting")

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = np.iinfo(np.int64).max
"""What a file does not say comes behind what it says."""

KINDS = ("async", "call", "op", "overhead", "python", "range")
ASYNC, CALL, OP, OVERHEAD, _, RANGE = range(len(KINDS))
"""Of events, by their numbers."""


class Tree(NamedTuple):
    """A tree of n events, of which each has those below it behind it (pre-order); all of shape n."""

    order: Ints
    """Where each event stands among those that were given."""
    parent: npt.NDArray[np.integer[Any]]
    """-1 for a root."""
    last: npt.NDArray[np.integer[Any]]
    """The last event below; its own number if there is none."""
    depth: npt.NDArray[np.integer[Any]]
    self_ns: Ints
    folded: Bools
    gpu_ns: Ints
    total_gpu_ns: Ints


def check_sums(*columns: Ints) -> None:
    """Raise InputError if the sum of one may be more than an int64 holds."""
    if any(np.abs(c.sum(dtype=np.float64)) >= 2**62 for c in columns):
        raise InputError("what the operators and calls of a rank took is more, together, than 2^62 ns")


class Room:
    """Arrays by name, which are made once for as many values as there will be, and used again.

    For new ones the system would clear as much memory as all events take together.
    """

    def __init__(self, most: int):
        self._most = most
        self._made: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, kind: npt.DTypeLike, n: int) -> npt.NDArray[Any]:
        """The array of a name, of n values, which are what it held before; it grows where there are more after all."""
        held = self._made.get(name)
        if held is None or len(held) < n:
            self._made[name] = np.empty(max(self._most, n if held is None else 2 * n), kind)
            if held is not None:
                self._made[name][: len(held)] = held
        return self._made[name][:n]


def tree_of(events: dict[str, Any], room: Room) -> Tree:
    """The tree of the columns of call_tree._EVENTS; it may lie in the room."""
    return level_by_level(events) if compiled is None else event_by_event(events, room)


def event_by_event(events: dict[str, Any], room: Room) -> Tree:
    """The tree of the same: compiled."""
    if compiled is None:
        raise ImportError("analyze.query.computed._nesting is not built, or switched off")
    n = len(events["process"])
    given = ("process", "kind", "name", "owner", "stray", "tid", "op_id", "start_ns", "dur_ns", "launched_ns")
    types = (np.int64, np.int32, np.int32, np.int16, np.int64, np.bool_, np.int64, np.int64)
    tree = Tree(*(room.array(name, kind, n) for name, kind in zip(Tree._fields, types, strict=True)))
    compiled.tree(n, *map(events.get, given), *tree)
    return tree


def level_by_level(events: dict[str, Any]) -> Tree:
    """The same where nothing could be compiled, and what the compiled one is held to."""
    process, kind, name, start, length, thread, op = (
        events[c] for c in ("process", "kind", "name", "start_ns", "dur_ns", "tid", "op_id")
    )
    is_op = (kind == OP) | (kind == RANGE)
    stray = np.flatnonzero((kind == CALL) | (kind == OVERHEAD))
    if len(stray):
        calls = pairs(process, np.where(op == UNKNOWN, 0, op))
        stray = stray[~np.isin(calls[stray], calls[is_op & (op > 0) & (op != UNKNOWN)])]
        thread = thread.copy()
        thread[stray] = events["stray"][stray]
    owner = process * 2 + (kind == ASYNC)
    if "owner" in events:
        owner = pairs(owner, events["owner"])
    lane = dense(pairs(owner, thread))[0]
    order = in_order(lane, start, (-length, kind == CALL, op))
    kind, name, start, length, lane = (c[order] for c in (kind, name, start, length, lane))
    # The range of a collective ends on another thread than it began on: nobody's child and nobody's parent.
    alone = kind == ASYNC
    end = start + length
    changes = _changes(lane)
    changes |= alone
    changes[1:] |= alone[:-1]
    parent, last, depth = nest(np.cumsum(changes), start, end)
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    self_ns = length.copy()
    np.subtract.at(self_ns, above, length[child])
    for i in np.flatnonzero(self_ns < 0):
        # Children that overlap each other, as under the thread number of an accelerator: each moment counts once.
        inside = np.arange(i + 1, last[i] + 1)
        children = inside[parent[inside] == i]
        covered = np.append(start[i], np.maximum.accumulate(end[children])[:-1])
        self_ns[i] = end[i] - start[i] - np.maximum(end[children] - np.maximum(start[children], covered), 0).sum()
    folded = np.zeros(len(parent), bool)
    folded[child] = (np.bincount(above, minlength=len(parent))[above] == 1) & (name[child] == name[above])
    gpu = events["launched_ns"][order]
    gpu[parent[folded]] = 0
    so_far = np.append(0, np.cumsum(gpu))
    return Tree(order, parent, last, depth, self_ns, folded, gpu, so_far[last + 1] - so_far[np.arange(len(parent))])


def by_number(numbers: Ints) -> Ints:
    """Places in the order of numbers from 0, equal ones as they stand. Numbers of 16 bits are sorted by their digits,
    which is several times as fast."""
    return np.argsort(numbers.astype(np.uint16) if numbers.max(initial=0) < 2**16 else numbers, kind="stable")


def in_order(lane: Ints, start: Ints, ties: tuple[Any, ...]) -> Ints:
    """Places of events in the order of lane, start and `ties`. Files are nearly in that of start, so this is fast."""
    order = np.argsort(start, kind="stable")
    order = order[by_number(lane[order])]
    same = (lane[order[1:]] == lane[order[:-1]]) & (start[order[1:]] == start[order[:-1]])
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    if len(tied):
        group = np.cumsum(~np.append(False, same))[tied]
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(t[rows] for t in reversed(ties)), group))]
    return order


def nest(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Parents (-1 for roots), last descendants and depths of n intervals (all int64, shape n).

    The intervals are sorted by thread, then start, then longest first. O(n) for every level of nesting.
    """
    n = len(start)
    parent = np.full(n, -1, np.int64)
    last = np.arange(n, dtype=np.int64)
    depth = np.zeros(n, np.int64)
    # Of those that are left: their numbers, their ends above those of the threads before, and where a segment begins.
    left = np.arange(n, dtype=np.int64)
    new_segment = _changes(thread)
    raised = lifted(end, new_segment)
    empty = start == end
    level = 0
    while len(left):
        root = _not_enclosed(raised, empty)
        if not root[new_segment].all():
            # Something before a segment reaches into it: events that overlap in part.
            root = _not_enclosed(lifted(end[left], new_segment), empty)
        roots = np.flatnonzero(root)
        # The descendants of a root are the events up to the next root.
        ends = np.append(roots[1:], len(left))
        of_root = left[roots]
        depth[of_root] = level
        last[of_root] = left[ends - 1]
        below = ~root
        new_segment = np.append(False, root[:-1])[below]
        left, raised, empty = left[below], raised[below], empty[below]
        parent[left] = np.repeat(of_root, ends - roots - 1)
        level += 1
    return parent, last, depth


def _changes(values: Ints) -> Bools:
    """Where a value differs from the one before it; the first does."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _not_enclosed(ends: Ints, empty: Bools) -> Bools:
    """Whether nothing before an event ends at or after its end; where that is also its start, after its end."""
    reached = np.maximum.accumulate(ends)
    root = np.ones(len(ends), bool)
    root[1:] = reached[:-1] < ends[1:] + empty[1:]
    return root


def lifted(values: Ints, new_segment: Bools) -> Ints:
    """Values in the same order within a segment and above those of the segments before: one maximum serves them all."""
    if not len(values):
        return values
    segment = np.cumsum(new_segment)
    low, high = int(values.min()), int(values.max())
    if int(segment[-1] + 1) * (high - low + 1) >= 2**62:
        values = np.unique(values, return_inverse=True)[1]
        low, high = 0, len(values)
    return segment * (high - low + 1) + (values - low)
