"""The interval macros against a naive Python version that counts points, on tables in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyze import call_tree
from analyze.query_files import blocks

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
    for name in ("arithmetic", "intervals", "gpu_classes", "innermost"):
        made.execute(blocks([name])[name])
    return made


def table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
    for row in rows:
        connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)


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
def test_union_length_and_gaps(connection: duckdb.DuckDBPyConnection, some: list[Interval]) -> None:
    load(connection, "a", some)
    union = as_intervals(points(some))
    assert rows(connection, "FROM intervals_union('a') ORDER BY ALL") == union
    lengths = {t: (first, last, covered) for t, first, last, covered in rows(connection, "FROM intervals_length('a')")}
    assert lengths == {
        t: (min(s for u, s, _ in some if u == t), max(e for u, _, e in some if u == t), len(points(some)[t]))
        for t in {t for t, _, _ in some}
    }
    gaps = [(t, e, s) for (t, _, e), (u, s, _) in pairwise(union) if t == u]
    assert rows(connection, "FROM intervals_gaps('a') ORDER BY ALL") == gaps


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
    assert rows(connection, "FROM intervals_intersection('a', 'b') ORDER BY ALL") == as_intervals(both)
    assert rows(connection, "FROM intervals_subtraction('a', 'b') ORDER BY ALL") == as_intervals(only_a)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 12), st.integers(1, 9)), max_size=25))
def test_sweep(connection: duckdb.DuckDBPyConnection, some: list[tuple[int, int, int, int]]) -> None:
    valued = [(track, start, start + dur, value) for track, start, dur, value in some]
    table(connection, "a", "track INTEGER, start_ns BIGINT, end_ns BIGINT, value INTEGER", valued)
    swept = rows(connection, "SELECT track, start_ns, end_ns, n, total FROM intervals_sweep('a') ORDER BY ALL")
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


@settings(max_examples=60, deadline=None)
@given(intervals, intervals)
def test_cut(connection: duckdb.DuckDBPyConnection, some: list[Interval], others: list[Interval]) -> None:
    windows = [(*w, i) for i, w in enumerate(as_intervals(points(others)))]
    table(
        connection,
        "a",
        "track INTEGER, start_ns BIGINT, end_ns BIGINT, id INTEGER",
        [(*a, i) for i, a in enumerate(some)],
    )
    table(connection, "w", "track INTEGER, start_ns BIGINT, end_ns BIGINT, window_id INTEGER", windows)
    pieces = rows(connection, "SELECT id, window_id, track, start_ns, end_ns FROM intervals_cut('a', 'w') ORDER BY ALL")
    assert pieces == sorted(
        (i, window, track, max(start, begin), min(end, finish))
        for i, (track, start, end) in enumerate(some)
        for t, begin, finish, window in windows
        if t == track and max(start, begin) < min(end, finish)
    )


@settings(max_examples=60, deadline=None)
@given(intervals, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=20))
def test_points_in_ranges(
    connection: duckdb.DuckDBPyConnection, others: list[Interval], some: list[tuple[int, int]]
) -> None:
    ranges = as_intervals(points(others))
    load(connection, "r", ranges)
    table(connection, "p", "track INTEGER, at_ns BIGINT", some)
    found = rows(connection, "SELECT track, at_ns, inside.start_ns, inside.end_ns FROM points_in_ranges('p', 'r')")

    def holding(track: int, at: int) -> tuple[int | None, int | None]:
        return next(((s, e) for t, s, e in ranges if t == track and s <= at < e), (None, None))

    assert sorted(found, key=str) == sorted(((t, p, *holding(t, p)) for t, p in some), key=str)


@settings(max_examples=60, deadline=None)
@given(intervals, st.lists(st.sampled_from(["compute", "comm", "copy"]), min_size=25, max_size=25))
def test_class_lengths(connection: duckdb.DuckDBPyConnection, some: list[Interval], classes: list[str]) -> None:
    labelled = [(*a, c) for a, c in zip(some, classes, strict=False)]
    table(connection, "a", "track INTEGER, start_ns BIGINT, end_ns BIGINT, class VARCHAR", labelled)
    columns = "track, busy_ns, kernel_ns, compute_ns, comm_ns, copy_ns"
    for track, *lengths in rows(connection, f"SELECT {columns} FROM gpu_class_lengths('a')"):
        every = ({"compute", "comm", "copy"}, {"compute", "comm"}, {"compute"}, {"comm"}, {"copy"})
        assert lengths == [len(points([(t, s, e) for t, s, e, c in labelled if c in of])[track]) for of in every]


def test_innermost(connection: duckdb.DuckDBPyConnection) -> None:
    # Thread 1: step [0, 100) holds op [10, 40) holds call [20, 30); op and call begin together on thread 2, at 5. An
    # orphan call of thread 3 lies in the step's tree (torch files it under the main thread), but is no child of its
    # time.
    nodes = [
        ("step", 1, 0, 100, None),
        ("op", 1, 10, 30, 0),
        ("call", 1, 20, 10, 1),
        ("orphan", 3, 50, 10, 0),
        ("backward", 2, 5, 10, None),
        ("kernel launch", 2, 5, 4, 4),
    ]
    connection.execute(
        "CREATE OR REPLACE TABLE tree (run_id VARCHAR, rank INTEGER, kind VARCHAR, node BIGINT, name VARCHAR,"
        " tid BIGINT, start_ns BIGINT, dur_ns BIGINT, parent BIGINT)"
    )
    for i, node in enumerate(nodes):
        connection.execute("INSERT INTO tree VALUES ('r', 0, 'op', ?, ?, ?, ?, ?, ?)", [i, *node])
    assert rows(connection, "SELECT tid, start_ns, end_ns, name FROM innermost('tree') ORDER BY ALL") == [
        (1, 0, 10, "step"),
        (1, 10, 20, "op"),
        (1, 20, 30, "call"),
        (1, 30, 40, "op"),
        (1, 40, 100, "step"),
        (2, 5, 9, "kernel launch"),
        (2, 9, 15, "backward"),
        (3, 50, 60, "orphan"),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 15)), max_size=15))
def test_innermost_of_any_nesting(connection: duckdb.DuckDBPyConnection, some: list[tuple[int, int, int]]) -> None:
    import numpy as np

    ordered = sorted(some, key=lambda e: (e[0], e[1], -e[2]))
    nested = []
    for tid, start, dur in ordered:
        # Events that overlap only in part are not nested, and not of a real call stack.
        if all(t != tid or s + d <= start or start + dur <= s + d for t, s, d in nested):
            nested.append((tid, start, dur))
    thread, start, dur = (np.array([e[i] for e in nested], dtype=np.int64) for i in range(3))
    parents = call_tree.nest(thread, start, start + dur)[0] if nested else []
    table(
        connection,
        "tree",
        "run_id VARCHAR, rank INTEGER, kind VARCHAR, node BIGINT, name VARCHAR, tid BIGINT, start_ns BIGINT,"
        " dur_ns BIGINT, parent BIGINT",
        [
            ("r", 0, "op", i, str(i), *event, None if parent < 0 else int(parent))
            for i, (event, parent) in enumerate(zip(nested, parents, strict=True))
        ],
    )
    flat = {
        (tid, at): node
        for tid, first, last, node in rows(connection, "SELECT tid, start_ns, end_ns, node FROM innermost('tree')")
        for at in range(first, last)
    }
    # The innermost event at a time is the last one in pre-order that holds it.
    for tid in (0, 1):
        for at in range(50):
            holding = [i for i, (t, s, d) in enumerate(nested) if t == tid and s <= at < s + d]
            assert flat.get((tid, at)) == (holding[-1] if holding else None)
