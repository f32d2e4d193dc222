"""Where on the CPU GPU work was launched, against the call tree, which is computed in another way."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES, sql
from traces import event, kernel, launch, op, write_trace

TREE = """
WITH last AS (
    SELECT run_id, rank, op_id, max_by({'tid': tid, 'start_ns': start_ns}, node) AS node
    FROM call_tree
    WHERE kind IN ('op', 'range')
    GROUP BY ALL
)
SELECT w.run_id, w.rank, w.correlation_id, w.start_ns, node.tid AS from_tid, node.start_ns AS from_ns
FROM work_origins w JOIN last USING (run_id, rank, op_id)
WHERE w.op_id > 0
ORDER BY ALL
"""
POINTS = """
SELECT run_id, rank, correlation_id, start_ns, from_tid, from_ns
FROM work_origins
WHERE op_id > 0 AND from_ns IS NOT NULL
ORDER BY ALL
"""


@pytest.mark.parametrize("sample", ["resnet18-ddp2", "train-stacks", "lm-compiled", "resnet18-checkpoint"])
def test_linked_work_belongs_to_its_tree_node(sample: str) -> None:
    expected = sql(SAMPLES / sample, TREE)
    assert expected and sql(SAMPLES / sample, POINTS) == expected


def points(path: Path) -> list[dict[str, object]]:
    found = sql(path, "SELECT short_name AS name, from_tid, from_ns, from_end_ns FROM work_origins ORDER BY 1")
    return [{k.removeprefix("from_"): v for k, v in row.items()} for row in found]


def test_shared_id_of_two_threads_belongs_to_the_launching_one(tmp_path: Path) -> None:
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


def test_shared_id_of_one_thread_belongs_to_the_inner_operator(tmp_path: Path) -> None:
    trace = [
        event("user_annotation", "forward", 0, 100, **{"External id": 1}), op("aten::mm", 10, 20, 1), launch(15, 7, 5),
        kernel("k", 90, 40, correlation=7, **{"External id": 1}),
    ]  # fmt: skip
    assert points(write_trace(tmp_path / "t.json", trace)) == [{"name": "k", "tid": 1, "ns": 10_000, "end_ns": 30_000}]


def test_outermost_operator_of_work(tmp_path: Path) -> None:
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
        "SELECT name, from_tid AS tid, from_ns AS ns, from_end_ns AS end_ns, outer_name FROM work_origins"
        " WHERE op_id > 0 ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in found] == [
        ("first", 1, 220_000, 230_000, "aten::a"),
        ("inner", 1, 260_000, 270_000, "aten::b"),
        ("linked", 1, 0, 100_000, "aten::mm"),
        ("unknown", None, None, None, None),
    ]


def test_calls_of_work_without_a_matching_id(tmp_path: Path) -> None:
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
        "SELECT w.start_ns // 1000 AS us, c.tid FROM gpu_work w"
        " LEFT JOIN sized_calls c ON c.rank = w.rank AND c.call = w.flop_call ORDER BY us",
    )
    assert [tuple(row.values()) for row in found] == [(90, 1), (300, 2), (400, None), (600, None), (800, None)]
