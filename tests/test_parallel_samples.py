"""Recordings of four H200s (sample_traces/*-4gpu) against their programs in examples/parallel."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal

import pytest
from support import SAMPLES, ask, sql

RANKS, STEPS = 4, 2


@pytest.mark.parametrize(
    ("sample", "spread"),
    [("fsdp-tp-4gpu", 1.05), ("pipeline-4gpu", 1.15), ("expert-4gpu", 1.05)],
)
def test_recordings_match_their_description(sample: str, spread: float) -> None:
    """A recorded step takes little longer than those before it, and all ranks are recorded as long: but for a pipeline,
    whose later stages begin after the first and end before it."""
    [health] = [r for r in ask(SAMPLES / sample, "health") if r["fact"] == "profiler overhead per step"]
    [ratio] = re.findall(r"^([\d.]+) x", health["value"])
    assert 0.9 < float(ratio) < 1.1 and health["verdict"] == "ok"
    spans = sql(SAMPLES / sample, "SELECT max(start_ns + dur_ns) - min(start_ns) AS ns FROM kernels GROUP BY rank")
    shortest, *_, longest = sorted(row["ns"] for row in spans)
    assert len(spans) == RANKS and longest < spread * shortest


def test_fsdp_and_tensor_parallelism() -> None:
    """Three blocks of 4096 x 16384 and back with biases in bf16, on a mesh of 2 x 2; 32768 rows for each pair of tp."""
    width, layers, rows = 4096, 3, 32768
    # A tp rank has half of both weights and of the wide bias, and the whole narrow one. A block is gathered over dp for
    # its forward and again for its backward, its gradients are scattered once.
    block = (2 * (4 * width * width) + 4 * width) // 2 + width
    calls = {("dp", "all_gather"): 2 * layers * STEPS, ("dp", "reduce_scatter"): layers * STEPS}
    expected = {of: (n, n * block * 2) for of, n in calls.items()}
    # Over tp, the output of each block is summed, and the gradient of its input, but for the first block's.
    expected["tp", "all_reduce"] = ((2 * layers - 1) * STEPS, (2 * layers - 1) * STEPS * rows * width * 2)
    groups = {"dp": ("mesh_dp [0, 2]", "mesh_dp [1, 3]"), "tp": ("mesh_tp [0, 1]", "mesh_tp [2, 3]")}
    answer = ask(SAMPLES / "fsdp-tp-4gpu", "collectives", by=["group"])
    assert {(r["process_group"], r["collective"]): (r["calls"], r["bytes"], r["ranks"]) for r in answer} == {
        (group, collective): (*of, 2) for (dimension, collective), of in expected.items() for group in groups[dimension]
    }
    # Two products a block forward, two for its weights and two for its input, but for that of the first; a pair of tp
    # shares them, and there are two pairs.
    [row] = ask(SAMPLES / "fsdp-tp-4gpu", "mfu")
    assert row["model_flops"] == (3 * 2 * layers - 1) * (2 * rows * width * 4 * width) * 2 * STEPS
    assert row["recomputed_flops"] == 0
    # H200 SXM: 989.5 TFLOP/s in bf16 without sparsity (NVIDIA's data sheet).
    assert row["mfu_pct"] == pytest.approx(100 * row["model_flops"] / (row["gpu_time_ns"] * 1e-9 * 989.5e12))


def test_operators_on_dtensors_are_of_the_shards() -> None:
    """An operator on DTensors has the shape of the whole, and calls itself on this rank's part: 2 of 2 in each."""
    sample = SAMPLES / "fsdp-tp-4gpu"
    counted = {r["name"]: (r["calls"], r["flops"]) for r in ask(sample, "flops-by-op")}
    rows = {r["name"]: r for r in ask(sample, "op-roofline", params={"group": "name"})}
    assert counted.keys() == {"aten::mm", "aten::addmm"}
    assert {name: (rows[name]["calls"], rows[name]["flops"]) for name in counted} == counted
    assert all(0 < rows[name]["roof_pct"] < 100 for name in counted)
    shapes = {r["shapes"] for r in ask(sample, "op-roofline") if r["name"] == "aten::mm"}
    assert "[[32768, 4096], [4096, 8192]]" in shapes and "[[32768, 4096], [4096, 16384]]" not in shapes


def test_pipeline() -> None:
    """Four stages, six microbatches of 2048 x 4096 floats: each goes on three times and its gradient comes back."""
    [row] = ask(SAMPLES / "pipeline-4gpu", "collectives")
    assert (row["collective"], row["status"], row["calls"]) == ("send_recv", "matched", 3 * 6 * 2 * STEPS)
    assert row["bytes"] == row["calls"] * 2048 * 4096 * 4
    bubbles = ask(SAMPLES / "pipeline-4gpu", "pipeline-bubbles")
    stages = {(r["rank"], r["stage"], r["stages"], r["micro_batches"]) for r in bubbles}
    assert stages == {(n, n, 4, 6) for n in range(4)}
    # 1F1B: (stages - 1) of (microbatches + stages - 1) slots.
    assert {r["ideal_pct"] for r in bubbles} == {100 * 3 / 9}


def test_pipeline_in_subgroups() -> None:
    """Two stages of two replicas: microbatches go between 0 and 2 and between 1 and 3, by send and recv and in batches.

    Four forward and four back in each step: 2048 x 4096 floats each.
    """
    sample = SAMPLES / "pipeline-2x2"
    rows = [r for r in ask(sample, "collectives", profiler="torch", by=["group"]) if r["collective"] == "send_recv"]
    assert sum(r["calls"] for r in rows) == 2 * (4 + 4) * STEPS and {r["status"] for r in rows} == {"matched"}
    assert sum(r["bytes"] for r in rows) == sum(r["calls"] for r in rows) * 2048 * 4096 * 4
    bubbles = ask(sample, "pipeline-bubbles", profiler="torch")
    stages = {(r["rank"], r["pipeline"], r["stage"], r["stages"], r["micro_batches"]) for r in bubbles}
    assert stages == {(0, 0, 0, 2, 4), (1, 1, 0, 2, 4), (2, 0, 1, 2, 4), (3, 1, 1, 2, 4)}
    # PyTorch writes global ranks, also of a group of two: rank 1 sends to 3.
    peers = sql(sample, "SELECT DISTINCT rank, peer FROM kernels WHERE peer IS NOT NULL", profiler="torch")
    assert {(r["rank"], r["peer"]) for r in peers} == {(0, 2), (1, 3), (2, 0), (3, 1)}


@pytest.mark.parametrize(
    ("sample", "query"),
    [("pipeline-4gpu", "pipeline-bubbles"), ("pipeline-4gpu", "collectives"), ("fsdp-tp-4gpu", "fsdp")],
)
def test_starts_of_calls_are_since_the_first_event_of_the_run(sample: str, query: str) -> None:
    """As the files have them: the first communication kernel of all ranks, less the first event."""
    zero, first = [], []
    for path in (SAMPLES / sample / "torch").glob("*.trace.json.gz"):
        events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
        timed = [e for e in events if e.get("ph") == "X" and e["cat"] != "Trace" and "ts" in e]
        zero.append(min(e["ts"] for e in timed))
        names = ("AllGather", "ReduceScatter") if query == "fsdp" else ("SendRecv",)
        calls = (e for e in timed if e["cat"] == "kernel" and any(f"Kernel_{n}" in e["name"] for n in names))
        first.append(min(e["ts"] for e in calls))
    starts = [r["start_ns"] for r in ask(SAMPLES / sample, query, params={"each": "yes"})]
    assert min(starts) == 1000 * (min(first) - min(zero)) > 0


def test_pipeline_with_missing_ranks() -> None:
    """How many stages and micro-batches there are is not known, nor which stage a rank is; its waits are."""
    sample = SAMPLES / "pipeline-4gpu"
    columns = ("pipeline", "stage", "stages", "micro_batches", "chunks", "ideal_pct")
    for where in ("rank = 1", "rank <= 1", "rank <> 1", "rank IN (0, 3)"):
        for each in ("no", "yes"):
            rows = ask(sample, "pipeline-bubbles", where=where, params={"each": each})
            assert rows and all(r[c] is None for r in rows for c in columns)
    first, of_two = (
        [r["warmup_ns"] for r in ask(sample, "pipeline-bubbles", where=where) if r["rank"] == 0]
        for where in ("true", "rank <= 1")
    )
    assert first == of_two and sum(first) > 0
    # All ranks are there, each in a group of its own.
    by_rank = ask(sample, "pipeline-bubbles", by="rank")
    assert {(int(r["rank"]), r["stage"], r["stages"], r["micro_batches"], r["ideal_pct"]) for r in by_rank} == {
        (n, n, 4, 6, 100 * 3 / 9) for n in range(4)
    }


def test_expert() -> None:
    """Two blocks: tokens go there and back, gradients too, but for those of the very first tokens."""
    calls, rows = (2 * 2 + 2 * 2 - 1) * STEPS, 16384 // RANKS
    answer = ask(SAMPLES / "expert-4gpu", "moe-balance")
    assert [(r["source"], r["destination"]) for r in answer] == [(a, b) for a in range(RANKS) for b in range(RANKS)]
    assert {(r["calls"], r["rows"], r["bytes"]) for r in answer} == {(calls, calls * rows, calls * rows * 2048 * 2)}
