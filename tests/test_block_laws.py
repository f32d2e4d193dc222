"""Sums of answers about time: they hold for the GPU-only block and for the full one of a recorded program.

The samples are recordings of whole programs, on H100s; sample_traces/README.md says how.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from support import SAMPLES, opened, sql

import analyze

Key = tuple[Any, ...]


@pytest.fixture(params=["late-ddp", "pipeline-2x2", "slow-loader"], scope="module")
def sample(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["gpu", "full"], scope="module")
def block(request: pytest.FixtureRequest, sample: str) -> analyze.Traces:
    return opened(SAMPLES / sample).where(block=request.param)


def by_key(rows: list[dict[str, Any]], key: tuple[str, ...], *values: str) -> dict[Key, int]:
    """The sum of some columns for each key."""
    sums: dict[Key, int] = defaultdict(int)
    for row in rows:
        sums[tuple(row[k] for k in key)] += sum(row[v] for v in values)
    return dict(sums)


GPU = ("rank", "device")


@pytest.mark.parametrize("window", ["span", "step"])
def test_parts_of_a_window_add_up_to_it(block: analyze.Traces, window: str) -> None:
    key = (*GPU, "step")
    rows = block.query("breakdown", params={"window": window}).dicts()
    span = by_key(rows, key, "span_ns")
    assert span == by_key(rows, key, "compute_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_ns") != {}
    shown = block.query("utilization", params={"window": window}).dicts()
    excluded = by_key(rows, key, "excluded_ns")
    assert by_key(shown, key, "span_ns") == {k: span[k] + excluded[k] for k in span}


def test_idle_time_is_one_number(block: analyze.Traces) -> None:
    """What breakdown has as idle is span less busy time, the sum of its causes, and of all gaps."""
    idle = by_key(block.query("breakdown").dicts(), GPU, "idle_ns")
    busy = block.query("gpu-busy").dicts()
    assert idle == by_key(busy, GPU, "idle_ns")
    assert by_key(busy, GPU, "span_ns") == by_key(busy, GPU, "busy_ns", "idle_ns")
    assert idle == by_key(block.query("idle-causes").dicts(), GPU, "idle_ns")
    gaps = block.query("gaps", params={"top": "100000"}).dicts()
    assert idle == by_key(gaps, GPU, "gap_ns")


def test_exposed_communication_is_transfer_waiting_and_unknown(block: analyze.Traces) -> None:
    rows = block.query("comm-exposed").dicts()
    exposed = by_key(rows, ("rank",), "exposed_ns")
    assert exposed == by_key(rows, ("rank",), "transfer_ns", "waiting_ns", "unknown_ns")
    parts = by_key(block.query("breakdown").dicts(), ("rank",), "exposed_comm_ns")
    assert exposed == {rank: parts[rank] for rank in exposed}


def test_shares_of_kernels_add_up_to_their_durations(block: analyze.Traces, sample: str) -> None:
    """The durations are those of the table `kernels`, of the block alone."""
    [run] = {r["run_id"] for r in block.query("gpu-busy").dicts()}
    [total] = sql(SAMPLES / sample, f"SELECT sum(dur_ns) AS ns FROM kernels WHERE run_id = '{run}'", profiler="all")
    for group in ("name", "family", "op", "module", "device", "stream"):
        rows = block.query("kernel-share", params={"group": group}).dicts()
        assert sum(r["total_ns"] for r in rows) == total["ns"] > 0, group


@pytest.mark.parametrize("window", ["span", "step"])
def test_critical_path_fills_its_window(block: analyze.Traces, window: str) -> None:
    rows = block.query("critical-path", params={"window": window}).dicts()
    sums = by_key(rows, ("rank", "step"), "total_ns")
    assert sums == {(r["rank"], r["step"]): r["window_ns"] for r in rows} != {}
