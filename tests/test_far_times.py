"""A time, length or number of ranks that is far out of range: what is asked takes memory by the events of a trace, not
by how long they are apart. Times in the comments are us, in the rows ns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ask, sql
from traces import event, kernel, launch, op, step, write_trace

from analyze.query.duckdb_memory import MEMORY_VARIABLE

DAYS_51 = 4_400_000_000_000
"""What a clock that began at 0 is off by."""


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of a ms over these times take gigabytes."""
    monkeypatch.setenv(MEMORY_VARIABLE, "500MB")


def two_kernels(until: int) -> list[dict[str, Any]]:
    # A gap from 1015 to until + 20. The operator of the next launch runs in [until + 5, until + 25), of which its call
    # takes 2.
    return [
        launch(1000, 4, 2), kernel("a", 1005, 10, correlation=4),
        op("aten::mm", until + 5, 20, 3), launch(until + 10, 5, 2), kernel("b", until + 20, 10, correlation=5),
    ]  # fmt: skip


@pytest.mark.parametrize("until", [2_000, 268_000, 270_000, 10**6, 10**8, 86_400 * 10**6, DAYS_51])
def test_gap_of_any_length(tmp_path: Path, until: int) -> None:
    path = write_trace(tmp_path / "t.json", two_kernels(until))
    [gap] = ask(path, "gaps")
    assert (gap["gap_ns"], gap["cause"], gap["cpu"], gap["cpu_ns"]) == (
        (until + 20 - 1015) * 1000, "host_wait", "aten::mm", 13_000,
    )  # fmt: skip
    [idle] = ask(path, "idle-causes")
    assert (idle["cause"], idle["gaps"], idle["idle_ns"]) == ("host_wait", 1, gap["gap_ns"])


@pytest.mark.parametrize("until", [2_000, 270_000, DAYS_51])
def test_an_event_that_runs_into_a_long_gap(tmp_path: Path, until: int) -> None:
    # An operator [200, 1045) has 30 of the gap.
    path = write_trace(tmp_path / "t.json", [*two_kernels(until), op("aten::add", 200, 845, 2)])
    assert [(r["cpu"], r["cpu_ns"]) for r in ask(path, "gaps")] == [("aten::add", 30_000)]


def test_gaps_of_all_lengths(tmp_path: Path) -> None:
    # Gaps of 4^n, each with an operator in its last 7 before the launch of 1, which has the 2 to the kernel's start.
    events, at, ends = [launch(0, 1), kernel("k", 2, 1, correlation=1)], 3, []
    for n in range(3, 22):
        at += 4**n
        ends.append(4**n)
        events += [op(f"op{n}", at - 10, 7, n), launch(at - 3, n, 1), kernel("k", at, 1, correlation=n)]
        at += 1
    rows = ask(write_trace(tmp_path / "t.json", events), "gaps")
    assert [(r["gap_ns"], r["cpu"], r["cpu_ns"]) for r in rows] == [
        (1000 * 4**n, f"op{n}", 7_000) for n in range(21, 2, -1)
    ]


def test_work_of_the_profiler_without_end(tmp_path: Path) -> None:
    # From 100 on; in the gap [1015, 5020) up to the return of the launch call at 5012.
    events = [*two_kernels(5_000), event("overhead", "Buffer Flush", 100, DAYS_51, tid=99)]
    path = write_trace(tmp_path / "t.json", events)
    assert [(r["cause"], r["profiler_ns"]) for r in ask(path, "idle-causes")] == [("profiler", 3_997_000)]
    assert [(r["cpu"], r["cpu_ns"]) for r in ask(path, "gaps")] == [("Buffer Flush", 3_997_000)]


def test_two_billion_ranks(tmp_path: Path) -> None:
    ranks = 2**31 - 1
    said = {"Collective name": "allreduce", "Group size": ranks, "dtype": "Float", "In msg nelems": 10}
    events = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 50, correlation=7, **said)]
    job = {"rank": 0, "world_size": ranks, "backend": "nccl"}
    path = write_trace(tmp_path / "t.json", events, distributedInfo=job)
    assert [(r["collective"], r["calls"]) for r in ask(path, "nccl-share")] == [("all_reduce", 1)]
    assert [r["collective"] for r in ask(path, "collectives")] == ["all_reduce"]
    assert [(r["size"], r["scope"]) for r in sql(path, "SELECT size, scope FROM job_ranks")] == [(ranks, None)]


def test_steps_whose_sum_is_beyond_64_bits(tmp_path: Path) -> None:
    # Each of three GPUs is busy for 10 of 4 * 10^15. The sum of the steps is more than 2^63 ns.
    events = [step(1, 0, 4 * 10**15), *(kernel("k", 0, 10, device) for device in range(3))]
    path = write_trace(tmp_path / "t.json", events)
    assert {r["kernel"]: r["exposed_ns"] for r in ask(path, "step-parts", params={"group": "kernel"})} == {
        "k": 10_000, "(idle)": float(4 * 10**18 - 10_000),
    }  # fmt: skip
