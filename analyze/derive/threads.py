"""Find the interval of a thread that is open at a time, by binary search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyze.derive.interval_nesting import by_number, firsts, in_order
from analyze.derive.numpy_columns import Ints, Mask, values_at


def by_thread(tid: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each thread and the rows that it has, in their order."""
    import pyarrow as pa

    encoded = pa.array(tid).dictionary_encode()
    lane, threads = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    order = by_number(lane)
    ends = np.cumsum(np.bincount(lane, minlength=len(threads)))
    for thread, begin, end in zip(threads, [0, *ends[:-1]], ends, strict=False):
        yield thread, order[begin:end]


def nesting_order(start: Ints, end: Ints) -> Ints:
    """Return the order by start, longest first, of the intervals of a thread; equal ones keep their order."""
    return in_order(np.zeros(len(start), np.int64), start, (-end,))


def outermost(tid: Ints, start: Ints, end: Ints) -> Ints:
    """Return the rows of the intervals that end later than all that began before on their thread."""
    found = [np.empty(0, np.int64)]
    for _, rows in by_thread(tid):
        rows = rows[nesting_order(start[rows], end[rows])]
        found.append(rows[later_than_all_before(end[rows])])
    return np.concatenate(found)


def later_than_all_before(end: Ints) -> Mask:
    """Return which ends are later than all before them."""
    return np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])[: len(end)]


class OpenIntervals:
    """Finds the innermost interval at a moment: of those open on the thread, the last to begin.

    Of several that begin together it is the shortest, of equal ones the last given. Intervals may overlap in any way.
    """

    def __init__(self, tid: Ints, start: Ints, end: Ints):
        parts, self._rows, first = [np.empty(0, np.int64)], {}, 0
        some = end > start
        for thread, rows in by_thread(tid):
            rows = rows[some[rows]]
            rows = rows[nesting_order(start[rows], end[rows])]
            parts.append(rows)
            self._rows[thread] = slice(first, first + len(rows))
            first += len(rows)
        self._given = np.concatenate(parts)
        self._start, self._end = start[self._given], end[self._given]
        self._longer = self._longer_before()

    def _longer_before(self) -> Ints:
        """Return for each interval the last one before it on its thread that ends later; -1 if there is none."""
        before = np.arange(-1, len(self._end) - 1)
        for rows in self._rows.values():
            before[rows][later_than_all_before(self._end[rows])] = -1
        # All between an interval and `before` end no later than the interval. Where `before` does not either, all
        # between it and its own `before` end no later as well: the distances double.
        left = np.flatnonzero(before >= 0)
        while len(left):
            left = left[self._end[before[left]] <= self._end[left]]
            before[left] = before[before[left]]
            left = left[before[left] >= 0]
        return before

    def at(self, tid: Ints, time: Ints) -> Ints:
        """Return the given row of the interval at each moment of a thread; -1 where none is open."""
        return self.around(tid, time, time + 1)

    def around(self, tid: Ints, start: Ints, end: Ints) -> Ints:
        """Return the given row of the innermost interval that contains each interval of a thread; -1 without one."""
        found = np.full(len(tid), -1)
        for thread, asked in by_thread(tid):
            rows = self._rows.get(thread)
            if rows is not None and rows.stop > rows.start:
                place = np.searchsorted(self._start[rows], start[asked], "right") - 1
                found[asked] = np.where(place >= 0, place + rows.start, -1)
        left = np.flatnonzero(found >= 0)
        while len(left):
            left = left[self._end[found[left]] < end[left]]
            found[left] = self._longer[found[left]]
            left = left[found[left] >= 0]
        return np.where(found >= 0, values_at(self._given, found, missing=-1), -1)


def find(known: Ints, wanted: Ints) -> Ints:
    """Return the position of each wanted number among ascending ones; -1 if it is missing."""
    if not len(known):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, -1)


def distinct(values: Ints) -> Ints:
    """Return the distinct values in ascending order."""
    ordered = np.sort(values, kind="stable")  # fast, because ids are nearly in order
    return ordered[firsts(ordered)]
