"""Waiting that is an artifact of the recording: ranks that begin to record apart, cold first collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask
from test_communication import collective
from traces import kernel, launch, step, write_ranks, write_trace

import analyze

Events = list[dict[str, Any]]


def all_reduce(at: float, dur: float) -> dict[str, Any]:
    return collective("allreduce", at, dur, 1000, 1000)


def skewed(late: float, scale: float = 1) -> list[Events]:
    """Two ranks of two steps, in us; rank 1 begins to record `late`. Both compute, then reduce: rank 1 always later.

    Rank 0 waits in the first all_reduce from 2000 to 12000, in the second from 22000 to 25000.
    """

    def scaled(*events: dict[str, Any]) -> Events:
        return [e | {"ts": e["ts"] * scale, "dur": e["dur"] * scale} for e in events]

    first = scaled(
        step(1, 0, 20_000), step(2, 20_000, 20_000), kernel("k", 0, 2000), all_reduce(2000, 11_000),
        kernel("k", 20_000, 2000), all_reduce(22_000, 4000),
    )  # fmt: skip
    second = scaled(
        step(1, late, 20_000 - late), step(2, 20_000, 20_000), kernel("k", late, 12_000 - late),
        all_reduce(12_000, 1000), kernel("k", 20_000, 5000), all_reduce(25_000, 1000),
    )  # fmt: skip
    return [first, second]


def lengths(row: dict[str, Any]) -> tuple[int, ...]:
    """Span, excluded, compute, communication and idle time in us; the law of breakdown holds."""
    parts = [row[f"{c}_ns"] // 1000 for c in ("span", "excluded", "compute", "exposed_comm", "idle")]
    assert row["span_ns"] == sum(row[f"{c}_ns"] for c in ("compute", "exposed_comm", "exposed_memcpy", "idle"))
    return tuple(parts)


def test_windows_begin_when_all_ranks_have_begun(tmp_path: Path) -> None:
    # Rank 1 begins at 8000. From then on rank 0 communicates from 8000 to 13000 and from 22000 to 26000.
    path = write_ranks(tmp_path / "r", *skewed(8000))
    assert [lengths(r) for r in ask(path, "breakdown")] == [
        (18_000, 8000, 2000, 9000, 7000),
        (18_000, 0, 9000, 2000, 7000),
    ]
    assert [(r["rank"], r["step"], *lengths(r)) for r in ask(path, "breakdown", params={"window": "step"})] == [
        (0, 1, 12_000, 8000, 0, 5000, 7000), (0, 2, 20_000, 0, 2000, 4000, 14_000),
        (1, 1, 12_000, 0, 4000, 1000, 7000), (1, 2, 20_000, 0, 5000, 1000, 14_000),
    ]  # fmt: skip
    # The other answers over windows agree.
    assert [r["idle_ns"] for r in ask(path, "gpu-busy")] == [7_000_000, 7_000_000]
    for window in ("span", "step"):
        exposed = {
            (r["rank"], r["step"]): r["exposed_ns"] for r in ask(path, "comm-exposed", params={"window": window})
        }
        rows = ask(path, "breakdown", params={"window": window})
        assert exposed == {(r["rank"], r["step"]): r["exposed_comm_ns"] for r in rows}
    idle = sum(r["idle_ns"] for r in ask(path, "idle-causes"))
    assert idle == 14_000_000


def test_waits_before_all_ranks_have_begun_do_not_count(tmp_path: Path) -> None:
    # Rank 0 waits for 10000 and 3000, of which 6000 before rank 1 began.
    path = write_ranks(tmp_path / "r", *skewed(8000))
    columns = ("wait_ns", "excluded_ns", "times_last", "margin_ns", "blocked_ns")
    assert [tuple(r[c] for c in columns) for r in ask(path, "stragglers")] == [
        (7_000_000, 6_000_000, 0, 0, 0),
        (0, 0, 2, 7_000_000, 7_000_000),
    ]
    [row] = ask(path, "collective-waits")
    assert [row[f"{c}_ns"] for c in ("transfer", "waiting", "excluded", "unknown")] == [
        4_000_000,
        7_000_000,
        6_000_000,
        0,
    ]
    assert row["waiting_pct"] == pytest.approx(100 * 7 / 11)
    first = ask(path, "comm-exposed")[0]
    assert (first["transfer_ns"], first["waiting_ns"], first["unknown_ns"]) == (2_000_000, 7_000_000, 0)
    found = {r["finding"]: r for r in analyze.open(path).advise().dicts()}
    assert found["stragglers"]["saving_ns"] == 3_500_000
    [said] = [r for r in ask(path, "health") if r["fact"] == "start skew"]
    assert (said["rank"], said["verdict"], said["value"]) == (1, "note", "8.000 ms")
    assert said["impact"] == "waits, breakdown and MFU exclude up to 8.000 ms, until all ranks had begun to record"


def test_mfu_leaves_out_waiting_before_all_ranks_have_begun(tmp_path: Path) -> None:
    # Of 6000 us rank 0 only communicates before rank 1 begins: its first step is 14000 long.
    path = write_ranks(tmp_path / "r", *skewed(8000))
    rows = ask(path, "mfu", params={"per": "rank", "flops_per_token": 1e6, "tokens_per_step": 1e3, "peak_tflops": 1})
    assert [r["avg_step_ns"] for r in rows] == [17_000_000, 16_000_000]
    assert rows[0]["mfu_pct"] == pytest.approx(100 * 2e9 / (34e-3 * 1e12))
    assert rows[0]["note"].startswith("without 6.000 ms of waiting") and rows[1]["note"] is None


@pytest.mark.parametrize(("late", "scale"), [(8000, 0.1), (20_000, 1), (0, 1)])
def test_ranks_that_begin_together_or_were_recorded_apart_keep_all(tmp_path: Path, late: float, scale: float) -> None:
    # 0.8 ms apart; rank 1 begins behind the middle of rank 0's work; 0.
    events = skewed(late if late < 12_000 else 11_000, scale)
    if late > 12_000:
        events[1] = [e | {"ts": e["ts"] + late} for e in events[1]]
    path = write_ranks(tmp_path / "r", *events)
    assert {r["excluded_ns"] for q in ("breakdown", "stragglers", "collective-waits") for r in ask(path, q)} == {0}
    assert ask(path, "breakdown")[0]["span_ns"] == 26_000_000 * scale


def test_clocks_of_different_hosts_have_no_common_start(tmp_path: Path) -> None:
    for rank, events in enumerate(skewed(8000)):
        job = {"rank": rank, "world_size": 2}
        write_trace(tmp_path / f"r/rank-{rank}.json", events, distributedInfo=job, host_name=f"node{rank}")
    assert {r["excluded_ns"] for q in ("breakdown", "stragglers") for r in ask(tmp_path / "r", q)} == {0}


def cold(second: float = 500, steps: int = 2) -> list[Events]:
    """Two ranks of two steps with three all_reduces each, in us.

    Rank 0 waits in the first from 1000 to 100000 and computes meanwhile from 10000 to 30000. It waits for 500 in the
    others, but in the first of step 2 for `second`.
    """
    windows = [step(1, 0, 120_000), step(2, 120_000, 400_000)][:steps]
    starts = (102_000, 104_000, 121_000, 323_000, 325_000)
    waits = (500, 500, second, 500, 500)
    first = [*windows, kernel("k", 0, 1000), kernel("k", 10_000, 20_000, stream=9), all_reduce(1000, 100_000)]
    first += [all_reduce(at, wait + 1000) for at, wait in zip(starts, waits, strict=True)]
    late = [*windows, kernel("k", 0, 100_000), all_reduce(100_000, 1000)]
    late += [all_reduce(at + wait, 1000) for at, wait in zip(starts, waits, strict=True)]
    return [first, late]


def test_cold_first_collective_does_not_count(tmp_path: Path) -> None:
    # 99000 of 101500 us of waiting are in the first of 6 calls, 79000 of them without compute. Without these the span
    # of 326500 is 247500: compute 21000, communication 6 x 1000 and 5 x 500, idle the rest.
    path = write_ranks(tmp_path / "r", *cold())
    [row, other] = ask(path, "breakdown")
    assert lengths(row) == (247_500, 79_000, 21_000, 8500, 218_000)
    assert lengths(other)[1] == 0
    steps = ask(path, "breakdown", params={"window": "step"})
    assert lengths(steps[0]) == (41_000, 79_000, 21_000, 4000, 16_000)
    columns = ("calls", "wait_ns", "excluded_ns", "times_last", "blocked_ns")
    assert [tuple(r[c] for c in columns) for r in ask(path, "stragglers")] == [
        (6, 2_500_000, 99_000_000, 0, 0),
        (6, 0, 0, 5, 2_500_000),
    ]
    [waits] = ask(path, "collective-waits")
    assert [waits[f"{c}_ns"] for c in ("transfer", "waiting", "excluded")] == [12_000_000, 2_500_000, 99_000_000]
    exposed = ask(path, "comm-exposed")[0]
    assert [exposed[f"{c}_ns"] for c in ("exposed", "transfer", "waiting")] == [8_500_000, 6_000_000, 2_500_000]
    found = {r["finding"]: r for r in analyze.open(path).advise(min_pct=0).dicts()}
    assert found["stragglers"]["saving_ns"] == 1_250_000
    mfu = ask(path, "mfu", params={"per": "step", "flops_per_token": 1, "tokens_per_step": 1, "peak_tflops": 1})
    assert [(r["rank"], r["step"], r["avg_step_ns"]) for r in mfu][:2] == [(0, 1, 41_000_000), (0, 2, 400_000_000)]
    [said] = [r for r in ask(path, "health") if r["fact"] == "cold first collective"]
    assert (said["rank"], said["verdict"]) == (0, "note")
    assert said["value"] == "99.000 of 101.500 ms of waiting in 6 calls of group 0"
    assert "note: cold first collective: 99.000 of 101.500 ms" in run_cli("advise", path).stdout


@pytest.mark.parametrize(("second", "steps"), [(99_000, 2), (500, 1), (500, 0)])
def test_waiting_that_may_repeat_counts(tmp_path: Path, second: float, steps: int) -> None:
    # Rank 1 is as late in the second step; or one step or none was recorded, so that each step may be so.
    path = write_ranks(tmp_path / "r", *cold(second, steps))
    assert {r["excluded_ns"] for q in ("breakdown", "stragglers") for r in ask(path, q)} == {0}
    assert ask(path, "stragglers")[0]["wait_ns"] == 1000 * (101_000 + second)


def test_late_rank_is_late_by_what_it_sleeps() -> None:
    # Rank 3 sleeps 20 ms before each of three all_reduces, and its recording began 45 ms late.
    rows = ask(SAMPLES / "late-rank", "stragglers")
    assert [r["times_last"] for r in rows] == [0, 0, 0, 3]
    assert all(20e6 < r["avg_wait_ns"] < 25e6 for r in rows[:3]) and rows[1]["excluded_ns"] > 40e6


def test_one_gap_that_dominates_is_a_finding_of_its_own(tmp_path: Path) -> None:
    # In each of three steps nothing is queued for 30 us; in the second for 10030 us.
    events: Events = []
    for n, (at, late) in enumerate([(0, 0), (100, 10_000), (10_200, 0)]):
        events += [
            launch(at, 2 * n + 1), kernel("k", at, 40, correlation=2 * n + 1), launch(at + late + 65, 2 * n + 2),
            kernel("k", at + late + 70, 30, correlation=2 * n + 2),
        ]  # fmt: skip
    steps = [step(1, 0, 100), step(2, 100, 10_100), step(3, 10_200, 100)]
    for count, saving in ((3, 60_000), (2, 10_090_000)):
        path = write_trace(tmp_path / f"{count}.json", [*events, *steps[:count]])
        found = {r["finding"]: r for r in analyze.open(path).advise(min_pct=0).dicts()}
        assert found["host-wait"]["saving_ns"] == saving
        # From 140 to 10170.
        assert ("lone-gap" in found) == (count == 3)
        assert count < 3 or found["lone-gap"]["saving_ns"] == 10_030_000
