"""GPU work by the External id of the operator that launched it, for a batch of ranks.

Looked up as the events come: as a join, DuckDB would make a hash table of all events, which is what took longest of a
call tree. Ids are numbered through in each process, so an array over all of them is mostly not much longer than
there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from analyze.query.computed.nesting import Room

Ints = npt.NDArray[np.int64]

_MOST_EMPTY = 32
"""Places of the array for each piece of work."""


class Launched:
    """Sums of n pieces of work by process and External id, which is above 0 (all int64, shape n).

    An array of the room says where there are any, until the next batch is put into it.
    """

    def __init__(self, process: Ints, op: Ints, ns: Ints, room: Room):
        self._first = int(process.min(initial=0))
        number = process - self._first
        low, high = _ranges(number, op)
        # Each process has one place more, and there is one process more: what launched nothing is found there.
        self._low, self._size = np.append(low, 0), np.append(high - low + 1, 0)
        # (As floating point, for the sum of sizes that are no counts may be more than an integer holds.)
        self._is_array = self._size.sum(dtype=np.float64) <= _MOST_EMPTY * len(op) + 2**16
        if self._is_array:
            self._offset = np.cumsum(self._size + 1) - self._size - 1
            self._keys, self._ns = _summed(self._offset[number] + (op - low[number]), ns)
            # (A byte for each place: sums would be eight times what the system clears first.)
            self._there = room.array("launched", np.bool_, int(self._offset[-1]) + 1)
            self._there[:] = False
            self._there[self._keys] = True
        else:
            self._ops = _summed(op, ns)[0]
            self._keys, self._ns = _summed(number * len(self._ops) + np.searchsorted(self._ops, op), ns)

    def of(self, process: npt.NDArray[Any], op: Ints) -> Ints:
        """The sums of processes and External ids (of one shape); 0 of those that launched nothing."""
        if len(process) and (process == process[0]).all():
            # As there are many of one rank before the next: numbers in place of columns.
            process = process[0]
        number = np.minimum(_unsigned(process.astype(np.int64) - self._first), np.uint64(len(self._low) - 1))
        if self._is_array:
            place = np.minimum(_unsigned(op - self._low[number]), _unsigned(self._size)[number])
            key = self._offset[number] + place.view(np.int64)
            here = np.flatnonzero(self._there[key])
            sums = np.zeros(len(op), np.int64)
            sums[here] = self._ns[np.searchsorted(self._keys, key[here])]
            return sums
        at = np.minimum(np.searchsorted(self._ops, op), len(self._ops) - 1)
        wanted = number.view(np.int64) * len(self._ops) + at
        key = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where((self._ops[at] == op) & (self._keys[key] == wanted), self._ns[key], 0)


def _unsigned(values: Ints) -> npt.NDArray[np.uint64]:
    """The same bits: what is below 0 is larger than anything else."""
    return values.view(np.uint64)


def _ranges(number: Ints, op: Ints) -> tuple[Ints, Ints]:
    """The least and the largest id of each process by its number; of one that has none, 0 and -1."""
    numbers = int(number.max(initial=-1)) + 1
    low, high = np.full(numbers, np.iinfo(np.int64).max), np.full(numbers, -1)
    np.minimum.at(low, number, op)
    np.maximum.at(high, number, op)
    low[high < 0] = 0
    return low, high


def _summed(key: Ints, ns: Ints) -> tuple[Ints, Ints]:
    """The keys in their order, each once, and the sum of each."""
    order = np.argsort(key, kind="stable")  # which is fast, for most are in order
    key = key[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    return key[begins], np.add.reduceat(ns[order], begins) if len(begins) else np.empty(0, np.int64)
