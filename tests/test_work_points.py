"""Where on the CPU GPU work comes from, beside the call tree, which finds the same in another way."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES, event, kernel, launch, op, sql, write_trace

import analyze
from analyze.query.computed import launch_points, launching, work_of_calls

TREE = """
SELECT w.run_id, w.rank, w.correlation_id, w.start_ns, t.tid AS from_tid, t.start_ns AS from_ns
FROM work_nodes('gpu_named_work', 'call_tree_no') w JOIN call_tree_no t USING (node)
WHERE w.op_id > 0
ORDER BY ALL
"""
POINTS = """
SELECT run_id, rank, correlation_id, start_ns, from_tid, from_ns
FROM work_points('gpu_named_work')
WHERE op_id > 0 AND from_ns IS NOT NULL
ORDER BY ALL
"""


@pytest.mark.parametrize("sample", ["resnet18-ddp2", "train-stacks", "lm-compiled", "resnet18-checkpoint"])
def test_linked_work_comes_from_the_node_of_the_tree(sample: str) -> None:
    expected = sql(SAMPLES / sample, TREE)
    assert expected and sql(SAMPLES / sample, POINTS) == expected


def points(path: Path) -> list[dict[str, object]]:
    found = sql(path, "SELECT name, from_tid, from_ns, from_end_ns FROM work_points('gpu_named_work') ORDER BY name")
    return [{k.removeprefix("from_"): v for k, v in row.items()} for row in found]


def test_an_id_of_two_threads_is_that_of_the_one_that_launched(tmp_path: Path) -> None:
    # Both operators are 5; the call is made on thread 1, whose operator began first. A call without an operator, and
    # one that the trace does not hold.
    trace = [
        op("aten::mm", 0, 100, 5), op("aten::mm", 10, 50, 5, tid=2), launch(20, 7, 5),
        kernel("linked", 90, 40, correlation=7, **{"External id": 5}),
        launch(200, 8, 5) | {"tid": 3}, kernel("without", 300, 10, correlation=8),
        kernel("lost", 400, 10, correlation=9),
    ]  # fmt: skip
    assert points(write_trace(tmp_path / "t.json", trace)) == [
        {"name": "linked", "tid": 1, "ns": 0, "end_ns": 100_000},
        {"name": "lost", "tid": None, "ns": None, "end_ns": None},
        {"name": "without", "tid": 3, "ns": 200_000, "end_ns": 200_000},
    ]


def test_an_id_of_two_of_a_thread_is_that_of_the_inner_one(tmp_path: Path) -> None:
    trace = [
        event("user_annotation", "forward", 0, 100, **{"External id": 1}), op("aten::mm", 10, 20, 1), launch(15, 7, 5),
        kernel("k", 90, 40, correlation=7, **{"External id": 1}),
    ]  # fmt: skip
    assert points(write_trace(tmp_path / "t.json", trace)) == [{"name": "k", "tid": 1, "ns": 10_000, "end_ns": 30_000}]


LINKED = """
SELECT run_id, rank, correlation_id, start_ns, dur_ns, from_tid, from_ns, from_end_ns
FROM work_points('gpu_named_work')
WHERE op_id > 0
ORDER BY ALL
"""
# What `intervals` makes of all operators, which are in the order that the furthest end so far needs.
OUTER = """
WITH operators AS (
    SELECT track, name, start_ns, end_ns FROM cpu_intervals WHERE kind = 'op' AND end_ns IS NOT NULL
),
outermost AS (
    SELECT * FROM intervals_reached('operators') WHERE coalesce(end_ns > reached_ns, true)
)
SELECT p.correlation_id, o.name, count(*) OVER (PARTITION BY o.track, o.start_ns) AS pieces
FROM work_points('gpu_named_work') p
JOIN cpu_tracks t ON t.run_id = p.run_id AND t.rank = p.rank AND t.tid IS NOT DISTINCT FROM p.from_tid
ASOF JOIN outermost o ON o.track = t.track AND p.from_ns >= o.start_ns
WHERE p.op_id > 0 AND p.from_ns < o.end_ns
ORDER BY ALL
"""
IN_ARRAYS = """
SELECT run_id, rank, correlation_id, start_ns, dur_ns, from_tid, from_ns, from_end_ns FROM launch_points ORDER BY ALL
"""
OUTER_IN_ARRAYS = """
SELECT correlation_id, n.name, outer_pieces AS pieces
FROM launch_points JOIN launch_points_names n ON n.number = outer_name
ORDER BY ALL
"""


@pytest.mark.parametrize(
    ("batch", "most_empty", "sample"),
    [
        (4_000_000, 32, "resnet18-ddp2"), (1, 32, "resnet18-ddp2"), (4_000_000, -(2**16), "train-stacks"),
        (4_000_000, 32, "cuda-graph"), (4_000_000, 32, "lm-compiled"),
    ],
)  # fmt: skip
def test_arrays_find_what_joins_and_windows_do(
    batch: int, most_empty: int, sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all ranks at once and one by one, with ids that are numbered through and that are not."""
    monkeypatch.setattr(launch_points, "_BATCH", batch)
    monkeypatch.setattr(launching, "_MOST_EMPTY", most_empty)
    # Opened anew, for a table is made once.
    with analyze.open(SAMPLES / sample) as traces:
        linked, linked_in_arrays, outer, outer_in_arrays = (
            traces.sql(q).to_pylist() for q in (LINKED, IN_ARRAYS, OUTER, OUTER_IN_ARRAYS)
        )
    assert linked and linked_in_arrays == linked
    assert outer and outer_in_arrays == outer


def test_arrays_find_an_id_of_two_threads(tmp_path: Path) -> None:
    # As above; what comes from the second thread lies in no operator but its own. The last two overlap in part, so
    # both are outermost, and what begins in both is of the one that began last.
    trace = [
        op("aten::mm", 0, 100, 5), op("aten::mm", 10, 50, 5, tid=2), launch(20, 7, 5),
        kernel("linked", 90, 40, correlation=7, **{"External id": 5}),
        op("aten::a", 200, 100, 6), op("aten::b", 250, 100, 8), op("aten::c", 260, 10, 9),
        kernel("inner", 400, 10, correlation=10, **{"External id": 9}),
        op("aten::d", 220, 10, 10), kernel("first", 420, 10, correlation=11, **{"External id": 10}),
        kernel("unknown", 440, 10, correlation=12, **{"External id": 99}),
    ]  # fmt: skip
    found = sql(
        write_trace(tmp_path / "t.json", trace),
        "SELECT w.name, from_tid AS tid, from_ns AS ns, from_end_ns AS end_ns, o.name AS outer, outer_pieces AS pieces"
        " FROM launch_points p JOIN launch_points_names w ON w.number = p.name"
        " LEFT JOIN launch_points_names o ON o.number = outer_name ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in found] == [
        ("first", 1, 220_000, 230_000, "aten::a", 1),
        ("inner", 1, 260_000, 270_000, "aten::b", 1),
        ("linked", 1, 0, 100_000, "aten::mm", 1),
        ("unknown", None, None, None, None, None),
    ]


# What `work_points` and a join make of all GPU work.
OF_CALLS = """
WITH placed AS (
    SELECT
        w.run_id, w.rank, w.device, w.kind = 'kernel' AS is_kernel, w.name, w.start_ns, w.dur_ns, c.call,
        w.from_ns < c.end_ns AS is_inside
    FROM work_points('linked') w
    ASOF LEFT JOIN {calls} c
        ON c.run_id = w.run_id AND c.rank = w.rank AND coalesce(c.tid, -1) = coalesce(w.from_tid, -1)
        AND w.from_ns >= c.start_ns
)
SELECT
    run_id, rank, device, is_kernel, coalesce(n.family IN ('gemm', 'convolution', 'attention'), false) AS is_product,
    coalesce(is_tf32_kernel(name), false) AS is_tf32, start_ns, dur_ns, CASE WHEN is_inside THEN call END AS call
FROM placed LEFT JOIN kernel_names n USING (run_id, name)
ORDER BY ALL
"""
LINKED_WORK = "WITH linked AS (SELECT * FROM linked_to_ops('gpu_work')), placed"


@pytest.mark.parametrize("calls", ["op_calls", "sized_calls"])
@pytest.mark.parametrize(
    ("batch", "most_empty", "sample"),
    [
        (4_000_000, 32, "resnet18-ddp2"), (1, 32, "resnet18-ddp2"), (4_000_000, -(2**16), "train-stacks"),
        (4_000_000, 32, "cuda-graph"), (4_000_000, 32, "lm-compiled"), (4_000_000, 32, "generate"),
    ],
)  # fmt: skip
def test_arrays_find_the_calls_that_a_join_does(
    batch: int, most_empty: int, sample: str, calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_of_calls, "_BATCH", batch)
    monkeypatch.setattr(launching, "_MOST_EMPTY", most_empty)
    with analyze.open(SAMPLES / sample) as traces:
        found = traces.sql(f"SELECT * FROM work_of_{calls} ORDER BY ALL").to_pylist()
        query = OF_CALLS.format(calls=calls).replace("WITH placed", LINKED_WORK)
        assert found and found == traces.sql(query).to_pylist()
    assert sample == "cuda-graph" or any(row["call"] is not None for row in found)


def test_calls_of_work_that_its_id_does_not_place(tmp_path: Path) -> None:
    # The id is that of an operator on each of two threads; of the next no operator is seen, but its launch; the next
    # has an id that nothing has; the next is launched outside of all, the last by an operator whose end is not known.
    mm = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    trace = [
        op("aten::mm", 0, 100, 5, **mm), op("aten::mm", 10, 50, 6, tid=2, **mm), op("aten::copy_", 12, 5, 5, tid=2),
        launch(20, 7, 5), kernel("first", 90, 40, correlation=7, **{"External id": 5}),
        launch(30, 8) | {"tid": 2}, kernel("second", 300, 10, correlation=8),
        kernel("none", 400, 10, correlation=9, **{"External id": 99}),
        launch(500, 10), kernel("outside", 600, 10, correlation=10),
        {k: v for k, v in op("aten::mm", 700, 0, 11, **mm).items() if k != "dur"}, launch(710, 12, 11),
        kernel("unended", 800, 10, correlation=12, **{"External id": 11}),
    ]  # fmt: skip
    found = sql(
        write_trace(tmp_path / "t.json", trace),
        "SELECT w.start_ns // 1000 AS us, c.tid FROM work_of_op_calls w LEFT JOIN op_calls c USING (call) ORDER BY us",
    )
    assert [tuple(row.values()) for row in found] == [(90, 1), (300, 2), (400, None), (600, None), (800, None)]
