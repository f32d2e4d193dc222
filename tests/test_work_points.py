"""Where on the CPU GPU work comes from, beside the call tree, which finds the same in another way."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES, event, kernel, launch, op, sql, write_trace

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
