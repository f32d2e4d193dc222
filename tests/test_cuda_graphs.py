"""CUDA graphs: replays, gaps between them, and the launches that their kernels belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, write_trace


def replay(ts: float, correlation: int, start: float, *work: tuple[str, float, float]) -> list[dict[str, Any]]:
    """A launch of 4 us, and kernels by name, offset to `start` and length."""
    call = launch(ts, correlation, 4) | {"name": "cudaGraphLaunch"}
    return [call, *(kernel(n, start + at, dur, correlation=correlation) for n, at, dur in work)]


def test_replays_by_hand(tmp_path: Path) -> None:
    # Graph 1: a and two b, of which the second overlaps: spans 16 and 20, covered 5 + 6 and 5 + 6, gaps 5 and 9. Its
    # launches end at 14 and 104: delays 6 and 0 (the work of the second began before). Graph 2: one c of 8. A launch
    # without work, and a kernel of 9 us outside of graphs: 11 + 1, 11 + 1, 8 of 41 us in graphs.
    graph = (("a", 0, 5), ("b", 10, 5), ("b", 12, 4))
    late = (("b", 14, 5), ("a", 0, 5), ("b", 16, 4))
    events = [
        *replay(10, 1, 20, *graph), *replay(100, 2, 102, *late), *replay(200, 3, 210, ("c", 0, 8)), *replay(300, 4, 0),
        launch(40, 5), kernel("d", 50, 9, correlation=5),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "graph-replays")
    columns = ("device", "graph", "replays", "kernels", "call_ns", "span_ns", "busy_ns", "gap_ns")
    assert [tuple(r[c] for c in columns) for r in rows] == [
        (0, 1, 2, 6, 8000, 36000, 22000, 14000),
        (0, 2, 1, 1, 4000, 8000, 8000, 0),
        (None, None, 1, 0, 4000, 0, 0, 0),
    ]
    first = rows[0]
    assert (first["min_span_ns"], first["median_span_ns"], first["max_span_ns"]) == (16000, 18000, 20000)
    # Standard deviation 2, mean 18; 28 of 45 us (kernels that overlap count twice).
    assert first["variation_pct"] == pytest.approx(100 * 2 / 18) and rows[1]["variation_pct"] is None
    assert (first["avg_queue_delay_ns"], first["gap_pct"]) == (3000, pytest.approx(1400 / 36))
    assert [r["avg_queue_delay_ns"] for r in rows[1:]] == [6000, None]
    assert first["device_time_pct"] == pytest.approx(100 * 28 / 45)
    each = ask(path, "graph-replays", params={"per": "replay"})
    assert [(r["graph"], r["replay"], r["span_ns"], r["gap_ns"]) for r in each[:3]] == [
        (1, 1, 16000, 5000), (1, 2, 20000, 9000), (2, 1, 8000, 0),
    ]  # fmt: skip


def test_graphs_are_distinguished_by_all_of_their_work(tmp_path: Path) -> None:
    """One copies to the device and one back; two begin at the same time on two threads."""

    def copy(name: str, ts: float, correlation: int) -> dict[str, Any]:
        return event("gpu_memcpy", name, ts, 0.1, 0, 7, device=0, stream=7, correlation=correlation, bytes=8)

    events = [
        *replay(0, 1, 10, ("a", 2, 1)), copy("Memcpy HtoD (Pinned -> Device)", 10, 1),
        *replay(100, 2, 110, ("a", 2, 1)), copy("Memcpy DtoH (Device -> Pinned)", 120, 2),
        *replay(200, 3, 210, ("b", 0, 5)), *replay(200, 4, 220, ("c", 0, 7)), *replay(300, 5, 310, ("c", 0, 8)),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "graph-replays")
    assert [(r["graph"], r["replays"], r["span_ns"]) for r in rows] == [
        (1, 1, 3000), (2, 1, 8100), (3, 1, 5000), (4, 2, 15_000),
    ]  # fmt: skip


def test_graph_kernels_belong_to_the_graph_launch(tmp_path: Path) -> None:
    # Two kernels of one launch in `forward`, one of a launch in no range; aten::add ended before the first launch.
    events = [
        event("user_annotation", "forward", 0, 30), event("cpu_op", "aten::add", 2, 5),
        *replay(10, 1, 20, ("a", 0, 5), ("b", 10, 6)), *replay(50, 2, 60, ("a", 0, 5)),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    tree = {r["path"]: r["self_device_ns"] for r in ask(path, "module-tree", params={"kernels": "no"})}
    assert tree == {"forward": 11_000, "forward > aten::add": 0, "(no operator)": 5_000}
    assert {r["phase"]: r["gpu_ns"] for r in ask(path, "phases")} == {"forward": 11_000, "(outside)": 5_000}
    # The path goes from the CPU (2 to 14) over the launch (to 20) and all that it launched, with 5 us in between.
    alone = write_trace(tmp_path / "g.json", events[:5])
    found = [(r["kind"], r["total_ns"]) for r in ask(alone, "critical-path", params={"group": "name"})]
    assert sum(ns for kind, ns in found if kind == "cpu") == 12_000
    assert sorted(f for f in found if f[0] != "cpu") == [
        ("gap", 5_000), ("kernel", 5_000), ("kernel", 6_000), ("launch", 6_000),
    ]  # fmt: skip


def test_graphs_of_the_sample() -> None:
    """Three steps of examples/cuda_graph.py: 16 layers, their backward, a loss; the optimizer stands outside."""
    [row] = ask(SAMPLES / "cuda-graph", "graph-replays")
    assert (row["graph"], row["replays"], row["kernels"]) == (1, 3, 3 * row["kernels_per_replay"])
    assert row["kernels_per_replay"] > 16 * 3 and row["span_ns"] == row["busy_ns"] + row["gap_ns"]
    tree = ask(SAMPLES / "cuda-graph", "module-tree", params={"kernels": "no"})
    assert "(no operator)" not in {r["path"] for r in tree}
