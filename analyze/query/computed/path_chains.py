"""Stretches of a critical path along which GPU work waited for other GPU work: there may be millions of pieces, so they
are in arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ITSELF, GAP, STREAM_WAIT = -1, 0, 1
"""What a piece is: the work, or time before or behind it without any."""


class Chain(NamedTuple):
    """Pieces of the path, end to end in order of time. Times in ns."""

    work: Ints
    """The GPU work that each is of, by its place."""
    kind: npt.NDArray[np.int8]
    start: Ints
    end: Ints


def chain(works: Ints, waited: Ints, starts: Ints, ends: Ints, at: int, begin: int) -> Chain:
    """The pieces from `at` back to the end of the last of `works`, or to `begin`.

    `works`: from the last in time to the first, each released by the one behind it here; `waited`: of which of them
    that was on another stream; `starts`, `ends`: of all work.
    """
    # `at`, and by turns the end and the start of each; the end of the last.
    times = np.empty(2 * len(works), np.int64)
    times[0], times[1::2], times[2::2] = at, ends[works], starts[works[:-1]]
    reached = np.maximum(np.minimum.accumulate(times), begin)
    kinds = np.resize(np.array([GAP, ITSELF], np.int8), len(times) - 1)
    kinds[2 * waited + 2] = STREAM_WAIT
    there = np.flatnonzero(reached[1:] < reached[:-1])[::-1]
    return Chain(works[np.maximum(there - 1, 0) // 2], kinds[there], reached[there + 1], reached[there])
