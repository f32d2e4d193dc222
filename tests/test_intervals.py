"""The interval macros against a naive Python version that counts points, on tables in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyze.query.modules import modules

Interval = tuple[int, int, int]
"""Track, start, end."""
Points = dict[int, set[int]]
"""Track -> the ns that are held."""

intervals = st.lists(
    st.builds(
        lambda track, start, dur: (track, start, start + dur), st.integers(0, 2), st.integers(0, 40), st.integers(0, 12)
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for name in ("arithmetic", "intervals"):
        made.execute(modules([name])[name].sql)
    return made


def table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
    if rows := list(rows):
        values = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        connection.execute(f"INSERT INTO {name} VALUES {values}", [value for row in rows for value in row])


def load(connection: duckdb.DuckDBPyConnection, name: str, rows: list[Interval]) -> None:
    table(connection, name, "track INTEGER, start_ns BIGINT, end_ns BIGINT", rows)


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def points(of: list[Interval]) -> Points:
    held: Points = defaultdict(set)
    for track, start, end in of:
        held[track].update(range(start, end))
    return held


def as_intervals(held: Points) -> list[Interval]:
    """The disjoint intervals, as long as can be, that hold the points."""
    found = []
    for track, at in sorted(held.items()):
        starts = sorted(p for p in at if p - 1 not in at)
        ends = sorted(p + 1 for p in at if p + 1 not in at)
        found += [(track, s, e) for s, e in zip(starts, ends, strict=True)]
    return found


@settings(max_examples=60, deadline=None)
@given(intervals)
def test_union_and_length(connection: duckdb.DuckDBPyConnection, some: list[Interval]) -> None:
    load(connection, "a", some)
    union = as_intervals(points(some))
    assert rows(connection, "FROM intervals_union('a') ORDER BY ALL") == union
    lengths = {
        t: (first, last, covered) for t, first, last, covered in rows(connection, "FROM intervals_coverage('a')")
    }
    assert lengths == {
        t: (min(s for u, s, _ in some if u == t), max(e for u, _, e in some if u == t), len(points(some)[t]))
        for t in {t for t, _, _ in some}
    }


@settings(max_examples=60, deadline=None)
@given(intervals, intervals)
def test_intersection_and_subtraction(
    connection: duckdb.DuckDBPyConnection, some: list[Interval], others: list[Interval]
) -> None:
    load(connection, "a", some)
    load(connection, "b", others)
    in_a, in_b = points(some), points(others)
    both = {t: in_a[t] & in_b[t] for t in range(3)}
    only_a = {t: in_a[t] - in_b[t] for t in range(3)}
    assert rows(connection, "FROM intervals_intersect('a', 'b') ORDER BY ALL") == as_intervals(both)
    assert rows(connection, "FROM intervals_subtract('a', 'b') ORDER BY ALL") == as_intervals(only_a)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 12), st.integers(1, 9)), max_size=25))
def test_sweep(connection: duckdb.DuckDBPyConnection, some: list[tuple[int, int, int, int]]) -> None:
    valued = [(track, start, start + dur, value) for track, start, dur, value in some]
    table(connection, "a", "track INTEGER, start_ns BIGINT, end_ns BIGINT, value INTEGER", valued)
    swept = rows(connection, "SELECT track, start_ns, end_ns, n, total FROM intervals_overlap_sum('a') ORDER BY ALL")
    assert rows(connection, "FROM intervals_overlap_count('a') ORDER BY ALL") == [
        (t, s, e, n) for t, s, e, n, _ in swept
    ]
    for track, start, end, n, total in swept:
        for at in range(start, end):
            open_here = [v for t, s, e, v in valued if t == track and s <= at < e]
            assert (n, total) == (len(open_here), sum(open_here))
    # Nothing is left out and nothing is told twice: the stretches fill each track from its first edge to its last.
    for track in {t for t, s, e, _ in valued if s < e}:
        edges = [p for t, s, e, _ in valued if t == track and s < e for p in (s, e)]
        own = [(s, e) for t, s, e, _, _ in swept if t == track]
        assert (own[0][0], own[-1][1]) == (min(edges), max(edges))
        assert all(e == s for (_, e), (s, _) in pairwise(own))


@pytest.mark.parametrize("track", ["t", "{'run': t, 'tid': NULL}"])
def test_many_unsorted_intervals(connection: duckdb.DuckDBPyConnection, track: str) -> None:
    """More than a thread takes at once: 100,000 intervals of 20 ns on each of three tracks, 30 ns apart, and in each a
    shorter one."""
    connection.execute(
        f"CREATE OR REPLACE TABLE a AS SELECT {track} AS track, since + unnest([0, 5]) AS start_ns,"
        " since + unnest([20, 10]) AS end_ns FROM (SELECT i % 3 AS t, 30 * (i // 3) AS since FROM range(300_000) r(i))"
        " ORDER BY hash(track, start_ns)"
    )
    summed = "SELECT count(*), sum(end_ns - start_ns), min(start_ns), max(end_ns), count(DISTINCT start_ns)"
    assert rows(connection, f"{summed} FROM intervals_union('a') GROUP BY track") == 3 * [
        (100_000, 2_000_000, 0, 2_999_990, 100_000)
    ]
    assert rows(connection, "SELECT * EXCLUDE (track) FROM intervals_coverage('a')") == 3 * [(0, 2_999_990, 2_000_000)]
    # Two are open in the 5 ns of the shorter one.
    open_ns = "SELECT n, sum(end_ns - start_ns) FROM intervals_overlap_count('a') GROUP BY n ORDER BY n"
    assert rows(connection, open_ns) == [(0, 2_999_970), (1, 4_500_000), (2, 1_500_000)]


CLOCKS: dict[str, Callable[[int], int]] = {
    "as it is": lambda t: t,
    "late": lambda t: 1_700_000_000_000_000_000 + 1001 * t,
    "before 0, most of it in a hundredth of the time": lambda t: t**5 - 10**6,
}
"""Other times in the same order: cells of one ns, of many, and several ranges in one."""


@settings(max_examples=100, deadline=None)
@given(intervals, intervals, st.sampled_from(list(CLOCKS.values())))
def test_cut(
    connection: duckdb.DuckDBPyConnection, some: list[Interval], others: list[Interval], clock: Callable[[int], int]
) -> None:
    windows = [(t, clock(s), clock(e), i) for i, (t, s, e) in enumerate(as_intervals(points(others)))]
    some = [(track, clock(start), clock(end)) for track, start, end in some]
    table(
        connection,
        "a",
        "track INTEGER, start_ns BIGINT, end_ns BIGINT, id INTEGER",
        [(*a, i) for i, a in enumerate(some)],
    )
    table(connection, "w", "track INTEGER, start_ns BIGINT, end_ns BIGINT, window_id INTEGER", windows)
    pieces = rows(
        connection, "SELECT id, window_id, track, start_ns, end_ns FROM intervals_clip('a', 'w') ORDER BY ALL"
    )
    assert pieces == sorted(
        (i, window, track, max(start, begin), min(end, finish))
        for i, (track, start, end) in enumerate(some)
        for t, begin, finish, window in windows
        if t == track and max(start, begin) < min(end, finish)
    )


@settings(max_examples=100, deadline=None)
@given(
    intervals,
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=20),
    st.sampled_from(list(CLOCKS.values())),
)
def test_points_in_ranges(
    connection: duckdb.DuckDBPyConnection,
    others: list[Interval],
    some: list[tuple[int, int]],
    clock: Callable[[int], int],
) -> None:
    ranges = [(track, clock(start), clock(end)) for track, start, end in as_intervals(points(others))]
    some = [(track, clock(at)) for track, at in some]
    load(connection, "r", ranges)
    table(connection, "p", "track INTEGER, at_ns BIGINT", some)
    found = rows(connection, "SELECT track, at_ns, inside.start_ns, inside.end_ns FROM points_in_intervals('p', 'r')")

    def holding(track: int, at: int) -> tuple[int | None, int | None]:
        return next(((s, e) for t, s, e in ranges if t == track and s <= at < e), (None, None))

    assert sorted(found, key=str) == sorted(((t, p, *holding(t, p)) for t, p in some), key=str)


def test_innermost(connection: duckdb.DuckDBPyConnection) -> None:
    # Track 1: step [0, 100) holds op [10, 40) holds call [20, 30), and nothing runs from 100 to 120. Two begin together
    # on track 2, the longer one outside. An end and a start meet at 50 on track 3.
    nested = [
        (1, "step", 0, 100),
        (1, "op", 10, 40),
        (1, "call", 20, 30),
        (1, "empty", 35, 35),
        (1, "step", 120, 130),
        (2, "backward", 5, 15),
        (2, "kernel launch", 5, 9),
        (3, "outer", 0, 60),
        (3, "first", 40, 50),
        (3, "second", 50, 60),
    ]
    table(connection, "nested", "track INTEGER, name VARCHAR, start_ns BIGINT, end_ns BIGINT", nested)
    assert rows(connection, "SELECT track, start_ns, end_ns, name FROM intervals_innermost('nested') ORDER BY ALL") == [
        (1, 0, 10, "step"),
        (1, 10, 20, "op"),
        (1, 20, 30, "call"),
        (1, 30, 40, "op"),
        (1, 40, 100, "step"),
        (1, 120, 130, "step"),
        (2, 5, 9, "kernel launch"),
        (2, 9, 15, "backward"),
        (3, 0, 40, "outer"),
        (3, 40, 50, "first"),
        (3, 50, 60, "second"),
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 15)), max_size=15))
def test_innermost_of_random_nesting(connection: duckdb.DuckDBPyConnection, some: list[Interval]) -> None:
    nested: list[Interval] = []
    for track, start, dur in sorted(set(some), key=lambda e: (e[0], e[1], -e[2])):
        # Intervals that overlap only in part are not nested, and not of a real call stack.
        if all(t != track or e <= start or start + dur <= e for t, s, e in nested):
            nested.append((track, start, start + dur))
    named = [(track, str(i), start, end) for i, (track, start, end) in enumerate(nested)]
    table(connection, "nested", "track INTEGER, name VARCHAR, start_ns BIGINT, end_ns BIGINT", named)
    flat = {
        (track, at): int(name)
        for track, first, last, name in rows(
            connection, "SELECT track, start_ns, end_ns, name FROM intervals_innermost('nested')"
        )
        for at in range(first, last)
    }
    # The innermost one at a time is the last of those that hold it, in order of start, longer first.
    for track in (0, 1):
        for at in range(50):
            holding = [i for i, (t, s, e) in enumerate(nested) if t == track and s <= at < e]
            assert flat.get((track, at)) == (holding[-1] if holding else None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 15), st.integers(0, 1)), max_size=15))
def test_last_begun_of_random_overlap(
    connection: duckdb.DuckDBPyConnection, some: list[tuple[int, int, int, int]]
) -> None:
    named = [(track, start, start + dur, level, i) for i, (track, start, dur, level) in enumerate(some)]
    table(
        connection, "layers", "track INTEGER, start_ns BIGINT, end_ns BIGINT, level INTEGER, id INTEGER", named
    )  # fmt: skip
    found = rows(connection, "SELECT track, start_ns, end_ns, latest.id FROM intervals_latest('layers')")
    flat = {(track, at): i for track, first, last, i in found for at in range(first, last)}
    assert sum(last - first for _, first, last, _ in found) == len(flat), "the stretches are disjoint"
    for track in (0, 1):
        for at in range(50):
            keys = [(level, s, -e) for t, s, e, level, _ in named if t == track and s <= at < e]
            i = flat.get((track, at))
            assert (None if i is None else (named[i][3], named[i][1], -named[i][2])) == max(keys, default=None)
