"""Which interval is the innermost, against its definition, instant by instant: intervals that overlap in any way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import require_compiled

from analyze.query.computed import innermost
from analyze.query.computed.innermost import Intervals, Windows

Interval = tuple[int, int, int, int]
Walk = Callable[[Intervals, Windows], innermost.Times]

# Short, so that many of them share an edge, or are equal; some are empty.
intervals_strategy = st.lists(
    st.builds(lambda t, s, d, label: (t, s, s + d, label), *(st.integers(0, n) for n in (2, 30, 12, 3))), max_size=40
)


def disjoint(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Windows of those that come: each begins where the one before has ended, or later."""
    made: list[tuple[int, int, int]] = []
    for lane, start, dur in sorted(rows):
        begin = max(start, made[-1][2]) if made and made[-1][0] == lane else start
        made.append((lane, begin, begin + dur))
    return made


# (A lane in which nothing is asked for, and one in which nothing runs.)
windows_strategy = st.lists(st.tuples(st.sampled_from([0, 2, 3]), st.integers(-3, 40), st.integers(0, 9)), max_size=12)


def naive(intervals: list[Interval], windows: list[tuple[int, int, int]]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for number, (lane, begin, until) in enumerate(windows):
        for at in range(begin, until):
            held = [(s, -e, label) for t, s, e, label in intervals if t == lane and s <= at < e]
            if held:
                found[number, max(held)[2]] += 1
    return found


def columns(intervals: list[Interval], windows: list[tuple[int, int, int]]) -> tuple[Intervals, Windows]:
    types = (np.int32, np.int64, np.int64, np.int32)
    given = [np.array([row[i] for row in intervals], kind) for i, kind in enumerate(types)]
    asked = [np.array([row[i] for row in windows], kind) for i, kind in enumerate(types[:3])]
    return Intervals(*given), Windows(*asked)


def as_counter(found: innermost.Times) -> Counter[tuple[int, int]]:
    rows = list(zip(found.window.tolist(), found.label.tolist(), strict=True))
    assert len(rows) == len(set(rows)), "a window and a label have one row"
    return Counter(dict(zip(rows, found.ns.tolist(), strict=True)))


def test_the_compiled_walk_is_there() -> None:
    require_compiled(innermost.compiled, "_innermost")


WALKS = [
    innermost.of_edges,
    pytest.param(
        innermost.one_by_one,
        marks=pytest.mark.skipif(innermost.compiled is None, reason="test_the_compiled_walk_is_there says why"),
    ),
]


@pytest.mark.parametrize("walk", WALKS)
@settings(deadline=None)
@given(intervals_strategy, windows_strategy.map(disjoint))
# What overlaps in part: the second is open until 15, and the first is not behind its own end; a third inside of both.
@example([(0, 0, 10, 0), (0, 5, 15, 1)], [(0, 0, 20)])
@example([(0, 0, 10, 0), (0, 5, 15, 1), (0, 7, 12, 2), (0, 8, 9, 3)], [(0, 0, 8), (0, 8, 13), (0, 13, 20)])
# Two that begin together, the longer one first or last in the file; two that are equal.
@example([(0, 0, 4, 0), (0, 0, 9, 1), (0, 2, 3, 2), (0, 2, 3, 1)], [(0, 0, 9)])
def test_the_innermost_began_last_of_those_open(
    walk: Walk, intervals: list[Interval], windows: list[tuple[int, int, int]]
) -> None:
    assert as_counter(walk(*columns(intervals, windows))) == naive(intervals, windows)


@pytest.mark.parametrize("walk", WALKS)
def test_times_of_any_size(walk: Walk) -> None:
    # Nanoseconds since 1970 and before, and a window that is longer than any recording.
    low, high = -(2**62), 2**62
    found = as_counter(walk(*columns([(0, low, high, 7), (0, 10**18, 10**18 + 5, 2**20)], [(0, 0, high)])))
    assert found == {(0, 7): high - 5, (0, 2**20): 5}


@pytest.mark.skipif(innermost.compiled is None, reason="test_the_compiled_walk_is_there says why")
def test_the_compiled_walk_refuses_what_is_no_column() -> None:
    intervals, windows = columns([(0, 0, 4, 0)], [(0, 0, 4)])
    with pytest.raises(ValueError, match="not as long"):
        innermost.one_by_one(intervals._replace(start=np.array([0, 1])), windows)
    with pytest.raises(ValueError, match="not as long"):
        innermost.one_by_one(intervals, windows._replace(end=np.array([], np.int64)))
    with pytest.raises(ValueError, match="below 0"):
        innermost.one_by_one(intervals._replace(label=np.array([-1], np.int32)), windows)
    assert innermost.compiled is not None
    with pytest.raises(TypeError, match="9 arguments"):
        innermost.compiled.times(0)
    # A lane below 0 is nobody's.
    found = innermost.one_by_one(intervals._replace(lane=np.array([-1], np.int32)), windows)
    assert as_counter(found) == Counter()
    found = innermost.one_by_one(intervals, windows._replace(lane=np.array([-1], np.int32)))
    assert as_counter(found) == Counter()
