"""Work on ranks one batch after the other, which bounds the memory: DuckDB reads one while another thread does the
one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from analyze.query.interrupts import end_if_told

T = TypeVar("T")
R = TypeVar("R")

ROWS_READ = 122_880
"""Rows that DuckDB hands over at once."""


def in_turn(work: Callable[[T], R], read: Iterable[T], alone: bool = False) -> Iterator[R]:
    """What `work`, in another thread, makes of each of what is read, in order; the next is read meanwhile.

    Each begins once the one before has been taken. `alone`: nothing is read meanwhile.
    """
    if alone:
        for one in read:
            end_if_told()
            yield work(one)
        return
    with ThreadPoolExecutor(1) as beside:
        before: Future[R] | None = None
        for one in read:
            end_if_told()
            if before is not None:
                yield before.result()
            before = beside.submit(work, one)
        if before is not None:
            yield before.result()
