"""The forward operator whose gradient a node of autograd's backward pass computes.

A node has the sequence number of the operator that made it, and the number that autograd gives the operator's thread.
`docs/definitions.md`, "Forward and backward", states the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, text_codes, values_at
from analyze.derive.threads import distinct, find

if TYPE_CHECKING:
    import pyarrow as pa

READS = ("tid", "name", "start_ns", "sequence_number", "fwd_thread")
"""Columns of cpu_ops that the links are computed from."""
ENGINE = "autograd::engine"
NODE = "autograd::engine::evaluate_function"
"""What the names of nodes begin with."""
MOST_THREADS = 16
"""Threads with forward operators up to which the thread of a node's operator is looked for."""


class ForwardOperators:
    """Finds the forward operator of a node, given by its thread and start."""

    def __init__(self, cpu_ops: pa.Table):
        (code,), names = text_codes([cpu_ops.column("name")])
        known = names.to_pylist()
        is_node = np.array([*(n.startswith(NODE) for n in known), False], bool)[code]
        is_engine = np.array([*(n.startswith(ENGINE) for n in known), False], bool)[code]
        tid, start, sequence, thread = (ints(cpu_ops, c) for c in ("tid", "start_ns", "sequence_number", "fwd_thread"))
        nodes = np.flatnonzero(is_node & (sequence >= 0))
        # The operators of the backward pass have the sequence number, too, and the thread of their forward one.
        may = ~is_engine & ((thread == NULL) | (thread == 0)) & (find(distinct(sequence[nodes]), sequence) >= 0)
        makers = np.flatnonzero(may)
        maker_of = _last_before(sequence, start, nodes, makers)
        for number, maker_tid in _threads(thread[nodes], sequence[nodes], tid[makers], sequence[makers]):
            own, theirs = nodes[thread[nodes] == number], makers[tid[makers] == maker_tid]
            maker_of[thread[nodes] == number] = _last_before(sequence, start, own, theirs)
        linked = maker_of >= 0
        nodes, maker_of = nodes[linked], maker_of[linked]
        self._threads = distinct(tid[nodes])
        order = np.lexsort((start[nodes], find(self._threads, tid[nodes])))
        self._node_tid, self._node_start = tid[nodes][order], start[nodes][order]
        self._tid, self._start = (np.append(c[maker_of][order], NULL) for c in (tid, start))

    def at(self, tid: Ints, start: Ints) -> tuple[Ints, Ints]:
        """Return thread and start of the forward operators of nodes; NULL where no node begins there."""
        place = np.full(len(tid), -1)
        for thread in self._threads:
            of_thread = np.flatnonzero(self._node_tid == thread)
            rows = np.flatnonzero((tid == thread) & (start != NULL))
            found = find(self._node_start[of_thread], start[rows])
            place[rows] = values_at(of_thread, found, missing=-1)
        return self._tid[place], self._start[place]


def _last_before(sequence: Ints, start: Ints, nodes: Ints, makers: Ints) -> Ints:
    """Return the last of the makers that has the number of each node and began no later; -1 without one."""
    rows = np.concatenate([makers, nodes])
    of_node: Mask = np.arange(len(rows)) >= len(makers)
    order = np.lexsort((of_node, start[rows], sequence[rows]))
    last = np.maximum.accumulate(np.where(of_node[order], -1, np.arange(len(rows))))
    maker = values_at(rows[order], last, missing=-1)
    maker[(maker >= 0) & (sequence[maker] != sequence[rows[order]])] = -1
    found = np.empty(len(rows), np.int64)
    found[order] = maker
    return found[len(makers) :]


def _threads(number: Ints, node_sequence: Ints, tid: Ints, sequence: Ints) -> list[tuple[int, int]]:
    """Return the thread of each of autograd's numbers of threads: the one that has most operators of its nodes.

    None where several have as many.
    Threads count sequence numbers alone, so operators of another thread may have the number of a node.
    """
    threads = distinct(tid)
    if not 1 < len(threads) <= MOST_THREADS:
        return []
    found = []
    for one in distinct(number[number > 0]):
        wanted = distinct(node_sequence[number == one])
        counts = np.array([np.count_nonzero(find(distinct(sequence[tid == t]), wanted) >= 0) for t in threads])
        if np.count_nonzero(counts == counts.max()) == 1:
            found.append((int(one), int(threads[counts.argmax()])))
    return found
