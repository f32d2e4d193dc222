"""MFU and HFU: hand-computed traces, and the transformer of examples/language_model.py counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launched, write_trace

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"


def op(name: str, ts: float, op_id: int, dims: list[list[int]], kind: str = BF16, **args: object) -> dict[str, Any]:
    """An operator of 10 us with shapes."""
    types = [kind] * len(dims)
    return event("cpu_op", name, ts, 10, **{"External id": op_id, "Input Dims": dims, "Input type": types, **args})


def work(ts: float, op_id: int, start: float) -> list[dict[str, Any]]:
    """A launch of 1 us and its kernel of 5 us."""
    return launched(ts, op_id, start, 5, "nvjet_tst")


def mfu(path: Path, gpu: str = "NVIDIA H200", **params: object) -> list[dict[str, Any]]:
    if gpu:
        document = json.loads(path.read_text())
        events = document if isinstance(document, list) else document["traceEvents"]
        properties = [{"id": 0, "name": gpu, "computeMajor": 9, "computeMinor": 0}]
        path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": events}))
    return ask(path, "mfu", params=params)


def test_mfu_by_hand(tmp_path: Path) -> None:
    # Two steps of 100 us. In the first a product 1000 x 2000 x 500 in bf16 (2e9 FLOPs) and one in fp8 as large; in the
    # second the one in bf16. A product on the CPU (nothing launched) does not count.
    # H200, dense: 989.5 TFLOP/s in bf16, 1979 in fp8.
    dims = [[1000, 2000], [2000, 500]]
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100), event("user_annotation", "ProfilerStep#2", 100, 100),
        op("aten::mm", 10, 1, dims), *work(12, 1, 20), op("aten::_scaled_mm", 30, 2, dims, FP8), *work(32, 2, 40),
        op("aten::mm", 50, 3, dims), op("aten::mm", 110, 4, dims), *work(112, 4, 120),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = mfu(path)
    assert (row["gpus"], row["avg_step_ns"], row["gpu_time_ns"]) == (1, 100_000, 200_000)
    assert (row["model_flops"], row["recomputed_flops"], row["note"]) == (6_000_000_000, 0, None)
    assert row["precision"] == "tensor_bf16, tensor_fp8"
    ideal_s = 4e9 / 989.5e12 + 2e9 / 1979e12
    assert row["peak_flops_per_s"] == pytest.approx(6e9 / ideal_s)
    assert row["mfu_pct"] == row["hfu_pct"] == pytest.approx(100 * ideal_s / 200e-6)
    steps = mfu(path, "", per="step")
    assert [(r["step"], r["model_flops"], r["precision"]) for r in steps] == [
        (1, 4_000_000_000, "tensor_bf16, tensor_fp8"),
        (2, 2_000_000_000, "tensor_bf16"),
    ]
    assert steps[1]["mfu_pct"] == pytest.approx(100 * 2e9 / (100e-6 * 989.5e12))
    # What is given takes the place of the shapes: 1e6 FLOPs for each of 5000 tokens, in both steps.
    [given] = mfu(path, "", flops_per_token=1e6, tokens_per_step=5000, peak_tflops=100)
    assert given["model_flops"] == 10_000_000_000
    assert given["mfu_pct"] == pytest.approx(100 * 1e10 / (200e-6 * 100e12))


def test_an_unknown_gpu_is_not_guessed(tmp_path: Path) -> None:
    events = [op("aten::mm", 10, 1, [[10, 20], [20, 30]]), *work(12, 1, 20)]
    path = write_trace(tmp_path / "t.json", events)
    [row] = mfu(path, "NVIDIA H100 XYZ")
    # Without steps, from the operator to the end of its kernel.
    assert (row["model_flops"], row["avg_step_ns"]) == (12_000, 15_000)
    assert row["peak_flops_per_s"] is row["mfu_pct"] is row["hfu_pct"] is None
    assert row["note"].startswith("NVIDIA H100 XYZ has no published peaks here") and "H100 SXM5, " in row["note"]
    [unnamed] = ask(write_trace(tmp_path / "n.json", events), "mfu")
    assert unnamed["mfu_pct"] is None and "does not name its GPU" in unnamed["note"]
    [given] = mfu(path, "", peak_tflops=1)
    assert given["mfu_pct"] == pytest.approx(100 * 12_000 / (15e-6 * 1e12)) and given["note"] is None
    # No fp8 on a V100.
    old = write_trace(tmp_path / "v.json", [op("aten::_scaled_mm", 10, 1, [[2, 2], [2, 2]], FP8), *work(12, 1, 20)])
    [row] = mfu(old, "Tesla V100-SXM2-16GB")
    assert row["mfu_pct"] is None and "no published peak for a type" in row["note"]


def test_matrix_kernels_without_an_operator_are_a_note(tmp_path: Path) -> None:
    """An own kernel of 15 us beside the 5 us of a product: three quarters of the time is not counted."""
    own = [kernel("my_gemm_kernel", 30, 15), kernel("elementwise", 50, 500)]
    path = write_trace(tmp_path / "t.json", [op("aten::mm", 10, 1, [[10, 20], [20, 30]]), *work(12, 1, 20), *own])
    [row] = mfu(path)
    assert row["model_flops"] == 2 * 10 * 20 * 30 and row["note"].startswith("lower bound: 75 % of the time of")
    [given] = mfu(path, "", flops_per_token=1e6, tokens_per_step=5000)
    assert given["note"] is None


def test_recomputation_counts_only_for_hfu(tmp_path: Path) -> None:
    # q, k, v [1, 2, 8, 4], causal: forward 2 products of 2 * 2 * 8 * 8 * 4 = 1024, half of them 1024 in all; backward
    # five of these, half of them 2560, of which 512 are the scores again. A product of 240 that the backward repeats.
    q = [1, 2, 8, 4]
    causal = ["", "", "", "", "True"]
    backward = [*[""] * 11, "True"]
    forward, again = "aten::_scaled_dot_product_flash_attention", {"Sequence number": 7, "Fwd thread id": 0}
    events = [
        op(forward, 0, 1, [q] * 3, **{"Concrete Inputs": causal}), *work(2, 1, 20),
        op("aten::mm", 12, 2, [[2, 3], [3, 20]], **again), *work(14, 2, 30),
        event("cpu_op", "autograd::engine::evaluate_function: X", 40, 60, **{"External id": 3}),
        op(f"{forward}_backward", 45, 4, [q] * 4, **{"Concrete Inputs": backward}), *work(47, 4, 60),
        op("aten::mm", 70, 5, [[2, 3], [3, 20]], **again), *work(72, 5, 80),
    ]  # fmt: skip
    [row] = mfu(write_trace(tmp_path / "t.json", events))
    assert (row["model_flops"], row["recomputed_flops"]) == (1024 + 240 + 2048, 512 + 240)
    assert row["hfu_pct"] / row["mfu_pct"] == pytest.approx((3312 + 752) / 3312)


def test_grouped_products_by_hand(tmp_path: Path) -> None:
    # 2 groups, 3 x 5 matrices: 7 rows in all; 4 rows each; the weights' gradient over 7 rows; 7 columns in all.
    cases = {
        ((7, 3), (2, 3, 5)): 2 * 7 * 3 * 5,
        ((2, 4, 3), (2, 3, 5)): 2 * 2 * 4 * 3 * 5,
        ((3, 7), (7, 5)): 2 * 3 * 7 * 5,
        ((2, 4, 3), (3, 7)): 2 * 4 * 3 * 7,
    }
    events = [op("aten::_grouped_mm", 20 * i, i + 1, [list(a), list(b)]) for i, (a, b) in enumerate(cases)]
    path = write_trace(tmp_path / "t.json", events)
    assert [(r["op"], r["calls"], r["flops"]) for r in ask(path, "flops-by-op")] == [
        ("grouped_matmul", 4, sum(cases.values()))
    ]


def test_innermost_operator_counts(tmp_path: Path) -> None:
    # A product of DTensors, 8 x 4 x 6, is one of this rank's shards, 8 x 4 x 3; a grouped product one for each group.
    events = [
        op("aten::mm", 0, 1, [[8, 4], [4, 6]]), op("aten::mm", 2, 2, [[8, 4], [4, 3]]) | {"dur": 3},
        op("aten::_grouped_mm", 20, 3, [[7, 3], [2, 3, 5]]), op("aten::mm", 21, 4, [[4, 3], [3, 5]]) | {"dur": 3},
        op("aten::mm", 25, 5, [[3, 3], [3, 5]]) | {"dur": 3},
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "flops-by-op")
    assert [(r["op"], r["calls"], r["flops"]) for r in rows] == [("matmul", 3, 192 + 120 + 90)]


@pytest.mark.parametrize("sample", ["lm-eager", "lm-compiled"])
def test_transformer_by_hand(sample: str) -> None:
    """examples/language_model.py: 4 blocks of width 512, 1000 words, 4 sequences of 512 tokens; three steps."""
    width, layers, words, batch, tokens, steps = 512, 4, 1000, 4, 512, 3
    # A block: qkv, out, and an MLP of four times the width; and the head. Two of three thirds are the backward.
    weights = layers * (3 + 1 + 4 + 4) * width**2 + words * width
    linear = 6 * weights * batch * tokens
    # Scores and values over half of the tokens before (causal), and twice that backward.
    attention = 3 * layers * 2 * 2 * batch * tokens**2 * width // 2
    [row] = ask(SAMPLES / sample, "mfu")
    assert row["model_flops"] == steps * (linear + attention)
    assert row["recomputed_flops"] == steps * attention // 6
    # Tokens per second times FLOPs per token, against the data sheet's 989.5 TFLOP/s for dense bf16.
    rate = steps * batch * tokens / (row["gpu_time_ns"] / 1e9)
    assert row["mfu_pct"] == pytest.approx(100 * rate * (6 * weights + attention / (batch * tokens)) / 989.5e12)
    assert (row["precision"], row["note"]) == ("tensor_bf16", None)
    [given] = ask(
        SAMPLES / sample,
        "mfu",
        params={"flops_per_token": 6 * weights + 12 * layers * width * tokens // 2, "tokens_per_step": batch * tokens},
    )
    assert given["mfu_pct"] == pytest.approx(row["mfu_pct"], rel=0.01)
