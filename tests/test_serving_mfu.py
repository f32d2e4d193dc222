"""MFU and MBU of prefill and decode, counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, write_trace

BF16 = "c10::BFloat16"
H200 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}
PEAK, BANDWIDTH = 989.5e12, 4800e9
"""Of an H200, as published: dense bf16 and HBM3e."""


def call(name: str, ts: float, number: int, dims: list[list[int]], gpu: str, types: list[str] | None = None) -> Any:
    """An operator of 4 us with its launch and a kernel of 2 us."""
    own: dict[str, Any] = {"External id": number}
    shapes = {"Input Dims": dims, "Input type": types or [BF16] * len(dims)}
    return [
        event("cpu_op", name, ts, 4, **own, **shapes), launch(ts + 1, number + 100, **own),
        kernel(gpu, ts + 2, 2, correlation=number + 100, **own),
    ]  # fmt: skip


def test_decode_by_hand(tmp_path: Path) -> None:
    # 4 requests with 1000 tokens in the cache; 8 heads of 16 for queries, 2 for keys and values.
    name = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk1000sqsq4sqsk1000)"
    attention = [[4, 8, 16], [4, 2, 16], [4, 2, 16], [4, 8, 16]]
    events = [
        event("user_annotation", name, 0, 20), *call("aten::mm", 1, 1, [[4, 128], [128, 512]], "nvjet_tst"),
        *call("vllm::unified_attention_with_output", 8, 2, attention, "kernel_unified_attention_3d"),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    # Scores and values: 2 x 2 FLOPs for each of 128 numbers and 1000 pairs. Keys and values: 2 x 32 numbers of 2 bytes.
    flops, cache = 2 * 4 * 128 * 512 + 4 * 128 * 1000, 1000 * 2 * 32 * 2
    moved = 2 * (4 * 128 + 128 * 512 + 4 * 512) + cache + 2 * 2 * 4 * 128
    assert (row["flops"], row["attention_flops"]) == (flops, 4 * 128 * 1000)
    assert (row["bytes"], row["kv_cache_bytes"], row["note"]) == (moved, cache, None)
    assert row["mfu_pct"] == pytest.approx(100 * flops / PEAK / 20e-6)
    assert row["mbu_pct"] == pytest.approx(100 * moved / BANDWIDTH / 20e-6)


def test_a_prompt_attends_to_what_is_cached_and_to_itself(tmp_path: Path) -> None:
    # 3 new tokens after 5 cached ones attend to 6, 7 and 8: 21 pairs. SGLang's cache of fp8 has pages of 1 token.
    name = "step[EXTEND bs=1 toks=3 c_sqsq=9 c_sqsk=24 c_sk=8]"
    dims = [[3, 8, 16], [4096], [3, 8, 16], [900, 1, 2, 16], [900, 1, 2, 16]]
    types = [BF16, "unsigned char", BF16, "c10::Float8_e4m3fn", "c10::Float8_e4m3fn"]
    events = [
        event("user_annotation", name, 0, 20),
        *call("sglang::attention", 8, 2, dims, "void flashinfer::BatchPrefillWithPagedKVCacheKernel<1>()", types),
        *call("vllm::moe_forward", 14, 3, [[3, 128], [3, 32]], "fused_moe_kernel"),
        *call("aten::mm", 2, 4, [[3, 128], [128, 8]], "nvjet_tst"),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    assert (row["attention_flops"], row["kv_cache_bytes"]) == (4 * 128 * 21, 8 * 2 * 32)
    # One of three kernels of 2 us is of experts, whose weights no shape shows.
    assert row["note"] == "lower bound: 33 % of the time of matrix and attention kernels is not counted"


HEADS, LATENT, ROPE, VALUE = 4, 512, 64, 128
"""DeepSeek-V3's multi-head latent attention, with 4 heads."""
DECODES = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk3000sqsq2sqsk3000)"


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        # vLLM: queries, latent vectors, rotary keys, result.
        (
            "vllm::unified_mla_attention_with_output",
            [[2, HEADS, 128 + ROPE], [2, LATENT], [2, 1, ROPE], [2, HEADS * VALUE]],
        ),
        # CUTLASS: result, both parts of queries, cache of pages of 128.
        (
            "sgl_kernel::cutlass_mla_decode",
            [[2, HEADS, LATENT], [2, HEADS, LATENT], [2, HEADS, ROPE], [90, 128, LATENT + ROPE], [2], [2, 40]],
        ),
        # FlashMLA: queries, cache of pages of 64; the size of values is a number.
        ("sgl_kernel::fwd_kvcache_mla", [[2, 1, HEADS, LATENT + ROPE], [90, 64, 1, LATENT + ROPE], [], [2], [2, 40]]),
        # aiter: queries, cache, borders, ..., results of parts.
        (
            "aiter::mla_decode_stage1_asm_fwd",
            [[2, HEADS, LATENT + ROPE], [900, 1, 1, LATENT + ROPE], [3], [3], [900], [2, 8, HEADS, LATENT]],
        ),
        # FlashAttention 3: rotary queries, both caches, new keys and values, latent queries.
        ("_vllm_fa3_C::fwd", [[2, HEADS, ROPE], [90, 64, 1, ROPE], [90, 64, 1, LATENT], [], [], [2, HEADS, LATENT]]),
    ],
)
def test_decode_with_latent_attention(tmp_path: Path, name: str, dims: list[list[int]]) -> None:
    """As FlashMLA's benchmark counts: 2 x heads x (576 + 512) FLOPs a pair, 576 numbers of each token in the cache."""
    events = [event("user_annotation", DECODES, 0, 20), *call(name, 8, 2, dims, "flash_fwd_splitkv_mla_kernel")]
    events[1]["args"]["Concrete Inputs"] = ["", "", str(LATENT), *[""] * (len(dims) - 3)]
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    assert row["attention_flops"] == 2 * HEADS * (LATENT + ROPE + LATENT) * 3000
    assert (row["kv_cache_bytes"], row["note"]) == (2 * (LATENT + ROPE) * 3000, None)


@pytest.mark.parametrize(("context", "share"), [(100, None), (150, 50)])
def test_a_mixed_step_with_latent_attention(tmp_path: Path, context: int, share: int | None) -> None:
    """A prompt of 100 tokens attends to keys and values of each head, decodes to the cache."""
    names = f"context_1(sq100sk{context}sqsq10000sqsk{100 * context})_generation_2(sq2sk3000sqsq2sqsk3000)"
    layer = {"Input Dims": [[102, HEADS, 192], [102, LATENT], [102, 1, ROPE], [102, HEADS * VALUE]]}
    prompt = call("_vllm_fa3_C::fwd", 3, 1, [[100, HEADS, 192], [100, HEADS, 192], [100, HEADS, VALUE]], "flash_fwd")
    decode = event("cpu_op", "vllm::unified_mla_attention", 1, 15, **{"External id": 2}, **layer)
    decode["args"]["Input type"] = [BF16] * 4
    events = [
        event("user_annotation", f"execute_102_{names}", 0, 20), decode, *prompt,
        launch(10, 102, **{"External id": 2}), kernel("_fwd_grouped_kernel_stage1", 11, 2, correlation=102),
    ]  # fmt: skip
    events[-1]["args"]["External id"] = 2
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    pairs = 100 * 101 // 2
    prompts = 2 * HEADS * (192 + VALUE) * pairs if share is None else 0
    assert row["attention_flops"] == 2 * HEADS * (2 * LATENT + ROPE) * 3000 + prompts
    # With cached tokens, a prompt is processed in several calls.
    note = share and f"lower bound: {share} % of the time of matrix and attention kernels is not counted"
    assert row["note"] == note


def test_sparse_latent_attention_is_said_not_to_count(tmp_path: Path) -> None:
    """Of two kernels of 2 us: to how many of 2048 listed tokens queries attend is not known."""
    dims = [[2, 1, HEADS, LATENT + ROPE], [90, 64, 1, LATENT + ROPE], [], [2], [2, 40], [2, 1, 2048]]
    types = [BF16, BF16, "", "int", "int", "int"]
    events = [
        event("user_annotation", DECODES, 0, 20), *call("aten::mm", 1, 1, [[4, 128], [128, 512]], "nvjet_tst"),
        *call("sgl_kernel::fwd_kvcache_mla", 8, 2, dims, "flash_fwd_splitkv_mla_sparse_kernel", types),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    assert row["attention_flops"] is None
    assert row["note"] == "lower bound: 50 % of the time of matrix and attention kernels is not counted"


def test_attention_of_unknown_lengths_is_said_not_to_count(tmp_path: Path) -> None:
    attention = [[4, 8, 16], [4, 2, 16], [4, 2, 16], [4, 8, 16]]
    events = [
        event("user_annotation", "execute_context_0(0)_generation_4(4)", 0, 20),
        *call("aten::mm", 1, 1, [[4, 128], [128, 512]], "nvjet_tst"),
        *call("vllm::unified_attention_with_output", 8, 2, attention, "kernel_unified_attention_3d"),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events, **H200), "serving-mfu")
    assert (row["flops"], row["attention_flops"]) == (2 * 4 * 128 * 512, None)
    # One of two kernels of 2 us.
    assert row["note"] == "lower bound: 50 % of the time of matrix and attention kernels is not counted"


def test_the_peak_is_that_of_the_type(tmp_path: Path) -> None:
    """H200, with sparsity: 989 TFLOP/s in TF32, 3,958 TOP/s in int8. It has no fp4."""
    types = {"float": ["float"] * 2, "int8": ["signed char"] * 2, "fp4": ["c10::Float4_e2m1fn_x2"] * 2}
    for name, own in types.items():
        product = call("aten::mm", 1, 1, [[4, 128], [128, 512]], "sm80_xmma_gemm_f32f32_tf32f32_f32", own)
        write_trace(tmp_path / name / "t.json", [event("user_annotation", "decode", 0, 20), *product], **H200)
    flops = 2 * 4 * 128 * 512
    [row] = ask(tmp_path / "float", "serving-mfu")
    assert row["mfu_pct"] == pytest.approx(100 * flops / 494.5e12 / 20e-6)
    [row] = ask(tmp_path / "int8", "serving-mfu")
    assert row["mfu_pct"] == pytest.approx(100 * flops / 1979e12 / 20e-6)
    [row] = ask(tmp_path / "fp4", "serving-mfu")
    assert (row["flops"], row["mfu_pct"]) == (flops, None)
    assert row["note"] == "NVIDIA H200 has no published peak for a type that was used"


def test_sample_by_shapes() -> None:
    """examples/generate.py: 2 layers of width 512, 1000 words, a prompt of 128 tokens and 11 steps of one token."""
    rows = {r["kind"]: r for r in ask(SAMPLES / "generate", "serving-mfu")}
    weights = 2 * (3 + 8) * 512 * 512 + 512 * 1000
    # Causal: half of 128 x 128 pairs, in 2 layers. Then 128 + i tokens at step i.
    assert rows["prefill"]["flops"] == 128 * 2 * weights + 2 * 4 * 512 * 128 * 128 // 2
    assert rows["decode"]["flops"] == 11 * 2 * weights + 2 * 4 * 512 * sum(128 + i for i in range(1, 12))
    # Weights of float32 are all but 1 % of what decode moves, with keys and values.
    moved = 11 * 4 * weights + 2 * 2 * 4 * 512 * sum(128 + i for i in range(1, 12))
    assert rows["decode"]["bytes"] == pytest.approx(moved, rel=0.01)


def test_sample_of_a_server_with_graphs_by_hand() -> None:
    """examples/serving/loop.py: 2 layers of width 1024, 1000 words, bf16; batches are padded to 1, 2 or 4 requests."""
    layers, width, words = 2, 1024, 1000
    weights = layers * (3 + 1 + 8) * width**2 + width * words
    flops, moved = {"prefill": 0, "decode": 0}, {"prefill": 0, "decode": 0}
    for step in ask(SAMPLES / "serving", "serving", params={"per": "step"}):
        kind, tokens, context = step["kind"], step["tokens"], round(step["requests"] * step["context_tokens"])
        rows = tokens if kind == "prefill" else next(size for size in (1, 2, 4) if size >= tokens)
        # Of a prompt, only the last token has a word chosen. It attends to itself and the tokens before it.
        chosen, pairs = (1, tokens * (tokens + 1) // 2) if kind == "prefill" else (rows, context)
        flops[kind] += 2 * rows * (weights - width * words) + 2 * chosen * width * words
        flops[kind] += layers * 4 * width * pairs
        # Weights; keys and values of the contexts; inputs and results of four products, and of attention, a layer.
        moved[kind] += 2 * (weights + layers * 2 * width * context + chosen * (width + words))
        moved[kind] += 2 * layers * (rows * (4 + 2 + 5 + 5) + tokens * 2) * width
    found = {row["kind"]: row for row in ask(SAMPLES / "serving", "serving-mfu")}
    for kind, row in found.items():
        assert (row["flops"], row["note"]) == (flops[kind], None)
        assert row["bytes"] == pytest.approx(moved[kind], rel=0.01)
        # An H100 SXM: dense bf16 and HBM3, as published.
        assert row["mfu_pct"] == pytest.approx(100 * flops[kind] / 989.5e12 / (row["time_ns"] / 1e9), rel=0.01)
        assert row["mbu_pct"] == pytest.approx(100 * moved[kind] / 3350e9 / (row["time_ns"] / 1e9), rel=0.01)
