"""The operator of GPU work: External ids that are correlation ids, shared ids, threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, op, write_trace

import analyze


def by_op(path: Path) -> dict[str, int]:
    return {r["path"]: r["self_gpu_ns"] for r in ask(path, "op-tree") if r["self_gpu_ns"]}


def numbered_by_correlation(path: Path, *more: dict[str, Any]) -> Path:
    # outer [0, 100) > inner [40, 80), which launches k (50 us) at [50, 60) under correlation 2; outer itself l (7 us)
    # at [85, 90) under 3; on thread 2 a call between operators, at 150. The External ids of calls and GPU work are
    # their correlation ids, which are operators of another place: view and other.
    return write_trace(
        path,
        [
            op("outer", 0, 100, 10), op("inner", 40, 40, 11), op("view", 200, 10, 2), op("other", 220, 10, 3),
            op("beside", 45, 30, 12, tid=2),
            launch(50, 2, 10, **{"External id": 2}), kernel("k", 70, 50, correlation=2, **{"External id": 2}),
            launch(85, 3, 5, **{"External id": 3}), kernel("l", 130, 7, correlation=3, **{"External id": 3}),
            launch(150, 4, 5, **{"External id": 4}) | {"tid": 2},
            kernel("m", 160, 3, correlation=4, **{"External id": 4}), *more,
        ],
    )  # fmt: skip


def test_external_ids_that_are_correlation_ids(tmp_path: Path) -> None:
    path = numbered_by_correlation(tmp_path / "t.json")
    assert by_op(path) == {"outer > inner": 50_000, "outer": 7_000, "(no operator)": 3_000}
    total = {r["name"]: r["total_device_ns"] for r in ask(path, "ops") if r["kind"] == "op"}
    assert total == {"outer": 57_000, "inner": 50_000, "view": 0, "other": 0, "beside": 0}
    # Calls inside an operator stay on its thread: 40 - 10 and 100 - 40 - 5 us are left to the two.
    own = {r["name"]: r["self_cpu_ns"] for r in ask(path, "ops") if r["kind"] == "op"}
    assert own["inner"] == 30_000 and own["outer"] == 55_000
    tree = {r["path"]: r["self_device_ns"] for r in ask(path, "module-tree", params={"kernels": "no"})}
    assert {k: v for k, v in tree.items() if v} == by_op(path)
    assert {r["after"]: r["after_op"] for r in ask(path, "gaps")} == {"l": "outer", "m": None}
    pieces = sql(path, "SELECT name, op_id FROM critical_path WHERE turn IS NULL AND kind = 'kernel' ORDER BY seq")
    assert {p["name"]: p["op_id"] for p in pieces}.items() <= {"k": 11, "l": 10, "m": None}.items()
    sequences = ask(path, "frequent-sequences", params={"min_count": 1})
    assert [(r["operator"], r["sequence"]) for r in sequences] == [("outer", "k > l")]


def test_calls_of_several_ranks(tmp_path: Path) -> None:
    # Of rank n: a [0, 10) and b [5, 15) overlap in part; the numbers of operators are 10 n + 1 and 10 n + 2. Calls at 4
    # (in a), 5 (in b, which begins then), two at 12 (in b: a has ended), 15 (b has just ended) and 20 on thread 2,
    # inside c of both the same times and the higher number, 10 n + 4, and beside an operator without a number.
    (tmp_path / "run").mkdir()
    at = {1: 4, 2: 5, 3: 12, 4: 12, 5: 15, 6: 20}
    for rank in range(3):
        n = 10 * rank
        events = [
            op("a", 0, 10, n + 1), op("b", 5, 10, n + 2), op("c", 18, 9, n + 4, tid=2), op("c", 18, 9, n + 3, tid=2),
            op("none", 19, 4, 0, tid=2),
            *(launch(ts, i, 1, **{"External id": i}) | {"tid": 2 if i == 6 else 1} for i, ts in at.items()),
            *(kernel("k", 100 + i, 1, correlation=i, **{"External id": i}) for i in at),
        ]  # fmt: skip
        world = {"distributedInfo": {"rank": rank, "world_size": 3}}
        write_trace(tmp_path / "run" / f"rank{rank}.json", events, **world)
    expected = [
        {"rank": r, "correlation_id": i, "op_id": o and 10 * r + o}
        for r in range(3)
        for i, o in {1: 1, 2: 2, 3: 2, 4: 2, 5: None, 6: 4}.items()
    ]
    assert sql(tmp_path / "run", "SELECT rank, correlation_id, op_id FROM call_ops ORDER BY ALL") == expected


def test_one_different_id_shows_that_ids_are_operators(tmp_path: Path) -> None:
    # The same with one kernel whose External id is not its correlation id: all of them are the operators', as Kineto
    # writes now, and equal by chance.
    path = numbered_by_correlation(tmp_path / "t.json", kernel("n", 170, 2, correlation=9, **{"External id": 10}))
    assert by_op(path) == {"view": 50_000, "other": 7_000, "outer": 2_000, "(no operator)": 3_000}


def test_many_equal_ids_are_needed_without_calls(tmp_path: Path) -> None:
    def made(name: str, n: int) -> Path:
        events = [e for i in range(1, n + 1) for e in (
            op(f"op{i}", 10 * i, 5, i), kernel("k", 10 * i, 5, correlation=i, **{"External id": i}))]  # fmt: skip
        return write_trace(tmp_path / name / "t.json", events)

    assert "(no operator)" not in by_op(made("few", 15)) and list(by_op(made("many", 16))) == ["(no operator)"]


def test_each_rank_is_decided_by_itself(tmp_path: Path) -> None:
    ranks = {"distributedInfo": {"rank": 0, "world_size": 2}}, {"distributedInfo": {"rank": 1, "world_size": 2}}
    (tmp_path / "run").mkdir()
    old = numbered_by_correlation(tmp_path / "run" / "rank0.json")
    old.write_text(old.read_text().replace("{", '{"distributedInfo": {"rank": 0, "world_size": 2}, ', 1))
    new = [
        op("outer", 0, 100, 2), launch(50, 7, 10, **{"External id": 2}),
        kernel("k", 70, 50, correlation=7, **{"External id": 2}),
    ]  # fmt: skip
    write_trace(tmp_path / "run" / "rank1.json", new, **ranks[1])
    rows = analyze.open(tmp_path / "run").query("op-tree", by=["rank"]).dicts()
    found = {(r["rank"], r["path"]): r["self_gpu_ns"] for r in rows if r["self_gpu_ns"]}
    assert found == {
        (0, "outer > inner"): 50_000, (0, "outer"): 7_000, (0, "(no operator)"): 3_000, (1, "outer"): 50_000,
    }  # fmt: skip


@pytest.mark.parametrize("query", ["op-tree", "module-tree"])
def test_shared_external_id_counts_once(tmp_path: Path, query: str) -> None:
    # A range and an operator in it have one number (5 us of GPU work): the operator's. Two threads use number 2, and
    # the launch call tells whose the 7 us are; of 3 us, no launch call is there to tell.
    events = [
        event("user_annotation", "r", 0, 50, **{"External id": 1}), op("a", 10, 20, 1),
        launch(12, 1, **{"External id": 1}), kernel("k", 60, 5, correlation=1, **{"External id": 1}),
        op("b", 100, 50, 2), op("c", 100, 60, 2, tid=2),
        launch(110, 8, **{"External id": 2}), kernel("l", 170, 7, correlation=8, **{"External id": 2}),
        kernel("m", 180, 3, correlation=9, **{"External id": 2}),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), query)
    own = "self_gpu_ns" if query == "op-tree" else "self_device_ns"
    found = {r["path"]: r[own] for r in rows if r[own] and r["kind"] != "kernel"}
    assert found == {"r > a": 5_000, "b": 7_000, "(no operator)": 3_000}


def test_a_correlation_id_that_two_processes_use_links_nothing(tmp_path: Path) -> None:
    # Two processes in one trace, each with a call of correlation id 1. The trace does not say whose the kernel is, and
    # its time must not count twice: phases, gaps, launches.
    events = [
        event("user_annotation", "forward", 0, 50), launch(10, 1), launch(12, 1) | {"pid": 2, "tid": 2},
        launch(20, 2), kernel("k", 30, 10, correlation=1), kernel("l", 50, 5, correlation=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert {r["phase"]: r["gpu_ns"] for r in ask(path, "phases")} == {"forward": 5_000, "(outside)": 10_000}
    assert {r["name"]: (r["calls"], r["kernels"]) for r in ask(path, "launch")} == {
        "cudaLaunchKernel": (1, 1), "(no launch call)": (0, 1),
    }  # fmt: skip
    [gap] = ask(path, "gaps")
    assert gap["gap_ns"] == 10_000


OVERHEAD = [
    # forward [0, 100) > aten::mm [60, 80), which launches 40 us. The profiler's own work, [50, 150), is filed under a
    # thread that is none; torch puts it on the main thread.
    event("user_annotation", "forward", 0, 100, **{"External id": 1}),
    event("overhead", "Activity Buffer Request", 50, 100, tid=0),
    op("aten::mm", 60, 20, 2),
    launch(65, 9, 5, **{"External id": 2}),
    kernel("gemm", 90, 40, correlation=9, **{"External id": 2}),
]


def test_overhead_adopts_operators_for_torch_alone(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", OVERHEAD)
    rows = {r["path"]: (r["self_cpu_ns"], r["total_cpu_ns"], r["self_gpu_ns"]) for r in ask(path, "op-tree")}
    assert rows == {"forward": (80_000, 100_000, 0), "forward > aten::mm": (20_000, 20_000, 40_000)}
    tree = {r["path"]: r["total_device_ns"] for r in ask(path, "module-tree")}
    assert tree["forward"] == tree["forward > aten::mm"] == 40_000
    # key_averages() of torch has the operator under the overhead.
    totals = {r["name"]: r["total_device_ns"] for r in ask(path, "ops") if r["place"] == "cpu"}
    assert totals["Activity Buffer Request"] == 40_000 and totals["forward"] == 0


def test_call_without_an_operator_adopts_none(tmp_path: Path) -> None:
    # The call of another thread, [5, 95), is on the main thread for torch, and there around aten::mm.
    events = [op("aten::mm", 10, 20, 1), launch(5, 3, 90, "cudaEventSynchronize") | {"tid": 2}]
    path = write_trace(tmp_path / "t.json", events)
    assert [r["path"] for r in ask(path, "module-tree")] == ["aten::mm"]
    assert sql(path, "SELECT parent FROM call_tree WHERE name = 'aten::mm'") == [{"parent": None}]
    self_ns = "SELECT self_ns FROM op_sums WHERE NOT python AND name = 'cudaEventSynchronize'"
    assert sql(path, self_ns) == [{"self_ns": 70_000}]


def test_threads_of_two_processes_with_one_number(tmp_path: Path) -> None:
    events = [op("outer", 0, 100, 1), op("inner", 10, 20, 2) | {"pid": 2}]
    assert {r["path"] for r in ask(write_trace(tmp_path / "t.json", events), "op-tree")} == {"outer", "inner"}


def test_samples_are_numbered_by_operators() -> None:
    assert sql(SAMPLES, "SELECT * FROM call_ops") == []
