"""Variation of a kernel over ranks and steps, by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pytest
from support import ask
from traces import event, kernel, launch, write_trace


def rank(number: int, durations: list[list[float]]) -> list[dict[str, Any]]:
    """Steps of 1000 us; the gemm's kernels take so many us in each. The last of the first step runs in the second."""
    events: list[dict[str, Any]] = []
    correlation = 0
    for step, lengths in enumerate(durations):
        events.append(event("user_annotation", f"ProfilerStep#{step}", 1000 * step, 1000))
        for i, length in enumerate(lengths):
            correlation += 1
            at = 1000 * step + 100 * (i + 1)
            late = 1000 if step == 0 and i == len(lengths) - 1 else 0
            events.append(launch(at, correlation))
            size = {"grid": [2, 1, 1], "block": [64, 1, 1]}
            events.append(kernel("gemm", at + 50 + late, length, correlation=correlation, **size))
    if number == 0:
        # Of another grid: another row. In no step: none of its own.
        events.append(kernel("gemm", 1900, 7, grid=[9, 1, 1], block=[64, 1, 1]))
        events.append(kernel("relu", 5000, 1, grid=[1, 1, 1], block=[64, 1, 1]))
    return events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for number, durations in enumerate(([[10, 10], [20]], [[30], [30, 20]])):
        about = {"rank": number, "world_size": 2}
        write_trace(tmp_path / f"rank{number}.json", rank(number, durations), distributedInfo=about)
    return tmp_path


def test_pace_of_a_kernel(path: Path) -> None:
    first, other, relu = ask(path, "kernel-pace")
    # 10, 10, 20, 30, 30, 20: mean 20, squared distances 100, 100, 0, 100, 100, 0, so a deviation of sqrt(400 / 6).
    assert (first["name"], first["grid"], first["block"], first["launches"]) == ("gemm", "2x1x1", "64x1x1", 6)
    times = [first[c] for c in ("total_ns", "avg_ns", "min_ns", "median_ns", "max_ns")]
    assert times == [120_000, 20_000, 10_000, 20_000, 30_000]
    assert first["variation_pct"] == pytest.approx(100 * (400 / 6) ** 0.5 / 20)
    # Rank 0 takes 40 / 3 on average, rank 1 80 / 3; step 0 50 / 3 (10, 10, 30), step 1 70 / 3 (20, 30, 20).
    assert (first["rank_spread"], first["step_spread"]) == pytest.approx((2, 1.4))
    assert (first["pace"], first["rank"], first["step"]) == (1, None, None)
    assert (other["grid"], other["total_ns"], other["rank_spread"]) == ("9x1x1", 7_000, None)
    assert (relu["name"], relu["step_spread"]) == ("relu", None)


def test_variation_is_of_whole_sums(tmp_path: Path) -> None:
    """To the last digits, in whatever order (and so by however many threads) the launches are added up."""
    # 1 s and up to 999 ns: in floating point, the last digits depend on the order. pstdev has fractions.
    lengths = [10**9 + 7919 * n % 1000 for n in range(1000)]
    found = set()
    for name, order in (("up", sorted(lengths)), ("as-is", lengths), ("down", sorted(lengths, reverse=True))):
        events = [
            kernel("gemm", 2_000_000 * n, ns / 1000, grid=[1, 1, 1], block=[1, 1, 1]) for n, ns in enumerate(order)
        ]
        [row] = ask(write_trace(tmp_path / f"{name}.json", events), "kernel-pace")
        found.add(row["variation_pct"])
    assert list(found) == [pytest.approx(100 * pstdev(lengths) / mean(lengths), rel=1e-14, abs=0)]


def test_on_each_rank_and_in_each_step(path: Path) -> None:
    rows = [r for r in ask(path, "kernel-pace", params={"per": "rank", "top": "1"})]
    assert [(r["rank"], r["launches"], r["pace"], r["step_spread"]) for r in rows] == [
        (0, 3, pytest.approx(2 / 3), pytest.approx(2)),  # steps of 10 and 20
        (1, 3, pytest.approx(4 / 3), pytest.approx(1.2)),  # of 30 and 25
    ]
    rows = [r for r in ask(path, "kernel-pace", params={"per": "step", "top": "1"})]
    assert [(r["rank"], r["step"], r["launches"], r["avg_ns"]) for r in rows] == [
        (0, 0, 2, 10_000), (0, 1, 1, 20_000), (1, 0, 1, 30_000), (1, 1, 2, 25_000),
    ]  # fmt: skip


def test_pace_of_selected_kernels(path: Path) -> None:
    assert [r["name"] for r in ask(path, "kernel-pace", params={"kernel": "rel"})] == ["relu"]
    assert sum(r["kernels"] for r in ask(path, "kernel-durations", params={"kernel": "gemm"})) == 7
