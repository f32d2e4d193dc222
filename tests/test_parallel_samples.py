"""Recordings of two H200s (sample_traces/*-2gpu), against what their programs in examples/parallel compute."""

from __future__ import annotations

import re

import pytest
from support import SAMPLES, ask, sql

SAMPLE_NAMES = ["fsdp-2gpu", "pipeline-2gpu", "expert-2gpu"]
RANKS, STEPS = 2, 2


@pytest.mark.parametrize("sample", SAMPLE_NAMES)
def test_the_recording_is_not_the_story(sample: str) -> None:
    """A recorded step takes at most a tenth longer than those before it, and both ranks are recorded as long: but for
    a pipeline, whose last stage begins earlier by its receive and ends earlier by the drain."""
    [value] = [r["value"] for r in ask(SAMPLES / sample, "health") if r["fact"] == "recorded / undisturbed step"]
    [ratio] = re.findall(r"^([\d.]+) x", value)
    assert 0.9 < float(ratio) < 1.1
    spans = sql(SAMPLES / sample, "SELECT max(start_ns + dur_ns) - min(start_ns) AS ns FROM kernels GROUP BY rank")
    shortest, longest = sorted(row["ns"] for row in spans)
    assert longest < (1.1 if sample == "pipeline-2gpu" else 1.05) * shortest


def test_fsdp() -> None:
    """Three blocks of 4096 x 16384 and back with biases, in bf16; 8192 rows a rank."""
    width, layers, rows = 4096, 3, 8192
    block = 2 * (4 * width * width) + 4 * width + width
    # A block is gathered for its forward and again for its backward, its gradients are scattered once.
    expected = {"all_gather": 2 * layers * STEPS, "reduce_scatter": layers * STEPS}
    answer = {r["collective"]: (r["calls"], r["bytes"]) for r in ask(SAMPLES / "fsdp-2gpu", "collectives")}
    assert answer == {name: (calls, calls * block * 2) for name, calls in expected.items()}
    # Two products a block forward, two for its weights and two for its input, but for that of the first.
    products = 3 * 2 * layers - 1
    [row] = ask(SAMPLES / "fsdp-2gpu", "mfu")
    assert row["model_flops"] == products * (2 * rows * width * 4 * width) * RANKS * STEPS
    assert row["recomputed_flops"] == 0


def test_pipeline() -> None:
    """Two stages, four microbatches of 2048 x 4096 floats: each goes on once and its gradient comes back."""
    [row] = ask(SAMPLES / "pipeline-2gpu", "collectives")
    assert (row["collective"], row["status"], row["calls"]) == ("send_recv", "matched", 4 * 2 * STEPS)
    assert row["bytes"] == row["calls"] * 2048 * 4096 * 4
    # 1F1B: (stages - 1) of (microbatches + stages - 1) slots.
    assert {r["ideal_pct"] for r in ask(SAMPLES / "pipeline-2gpu", "pipeline-bubbles")} == {100 / 5}


def test_expert() -> None:
    """Two blocks: tokens go there and back, gradients too, but for those of the very first tokens."""
    calls, rows = (2 * 2 + 2 * 2 - 1) * STEPS, 16384 // RANKS
    answer = ask(SAMPLES / "expert-2gpu", "moe-balance")
    assert [(r["source"], r["destination"]) for r in answer] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {(r["calls"], r["rows"], r["bytes"]) for r in answer} == {(calls, calls * rows, calls * rows * 2048 * 2)}
