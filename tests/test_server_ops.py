"""FLOPs and bytes of operators of inference servers, computed by hand from the schemas of the operators."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import ask
from traces import event, kernel, launch, write_trace

from analyze.derive.server_ops import OPERATORS, work_of

DATA = Path(__file__).parent / "data"
BF16, FP8, FP4, INT = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2", "int"
NONE: tuple[list[int], str, str] = ([], "", "")


def tensor(*shape: int, of: str = BF16) -> tuple[list[int], str, str]:
    """A tensor among the inputs."""
    return list(shape), of, ""


def value(number: object) -> tuple[list[int], str, str]:
    """A number or a bool among the inputs."""
    return [], "Scalar", str(number)


def recorded(*inputs: tuple[list[int], str, str]) -> dict[str, Any]:
    """The shapes, types and values of inputs as torch.profiler writes them."""
    dims, types, values = (list(part) for part in zip(*inputs, strict=True))
    return {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}


def counted(name: str, *inputs: tuple[list[int], str, str]) -> tuple[int, int | None, str | None, bool] | None:
    """FLOPs, bytes, type, and whether FLOPs are a bound."""
    found = work_of(name, *(json.dumps(part) for part in recorded(*inputs).values()))
    return found and (found.flops, found.bytes, found.type, found.at_most)


# 16 tokens of 64 numbers by weights of 32 rows: 2 x 16 x 64 x 32 FLOPs.
M, N, K = 16, 32, 64
FLOPS = 2 * M * N * K
OUT = 2 * M * N
"""Bytes of a result in bf16."""


@pytest.mark.parametrize(
    ("name", "inputs", "moved", "kind"),
    [
        (
            "_C::cutlass_scaled_mm",
            [tensor(M, N), tensor(M, K, of=FP8), tensor(K, N, of=FP8), tensor(M, 1, of="float")],
            OUT + M * K + K * N,
            FP8,
        ),
        ("sgl_kernel::fp8_scaled_mm", [tensor(M, K, of=FP8), tensor(K, N, of=FP8)], OUT + M * K + K * N, FP8),
        # DeepGEMM: A, its scales, B, its scales, the result.
        (
            "sglang::deep_gemm_fp8_fp8_bf16_nt",
            [tensor(M, K, of=FP8), tensor(M, 1), tensor(N, K, of=FP8), tensor(1, 1), tensor(M, N)],
            OUT + M * K + K * N,
            FP8,
        ),
        # Two numbers of 4 bits in each byte.
        (
            "_C::cutlass_scaled_fp4_mm",
            [tensor(M, N), tensor(M, K // 2, of="unsigned char"), tensor(N, K // 2, of="unsigned char")],
            OUT + (M * K + N * K) // 2,
            "Float4",
        ),
        # Weights of 4 bits, eight in an integer: machete_prepack_B keeps [K / 8, N], AWQ [K, N / 8].
        ("_C::machete_mm", [tensor(M, K), tensor(K // 8, N, of=INT)], OUT + 2 * M * K + K * N // 2, BF16),
        ("_C::gptq_gemm", [tensor(M, K), tensor(K // 8, N, of=INT)], OUT + 2 * M * K + K * N // 2, BF16),
        ("_C::awq_gemm", [tensor(M, K), tensor(K, N // 8, of=INT)], OUT + 2 * M * K + K * N // 2, BF16),
        # Tiles of 16 x 16 numbers; sizes M, N, K are inputs, at other places in each version.
        (
            "_C::gptq_marlin_gemm",
            [tensor(M, K), NONE, tensor(K // 16, N * 2, of=INT), tensor(1, N), value(9), *map(value, (M, N, K, True))],
            OUT + 2 * M * K + K * N // 2,
            BF16,
        ),
        (
            "_C::marlin_gemm",
            [tensor(M, K), NONE, tensor(K // 16, N * 2, of=INT), NONE, NONE, *map(value, (7, M, N, K))],
            OUT + 2 * M * K + K * N // 2,
            BF16,
        ),
        # torch's shapes are those of pairs.
        (
            "aten::_scaled_mm",
            [tensor(M, K // 2, of=FP4), tensor(K // 2, N, of=FP4)],
            OUT + (M * K + N * K) // 2,
            "Float4",
        ),
        # Added to a matrix, which is read and written.
        (
            "aten::_scaled_addmm",
            [tensor(M, N), tensor(M, K, of=FP8), tensor(K, N, of=FP8)],
            2 * OUT + M * K + K * N,
            FP8,
        ),
        ("aten::_scaled_addmm_", [tensor(M, N), tensor(M, K // 2, of=FP4), tensor(K // 2, N, of=FP4)], None, "Float4"),
        # Groups of rows with 3 matrices; 2 groups of 8 rows; 3 groups of columns; parts of the inner dimension.
        (
            "aten::_scaled_grouped_mm",
            [tensor(M, K // 2, of=FP4), tensor(3, K // 2, N, of=FP4)],
            OUT + (M * K + 3 * N * K) // 2,
            "Float4",
        ),
        (
            "aten::_scaled_grouped_mm_v2",
            [tensor(2, M // 2, K // 2, of=FP4), tensor(2, K // 2, N, of=FP4)],
            OUT + (M * K + 2 * N * K) // 2,
            "Float4",
        ),
        (
            "aten::_scaled_grouped_mm_v2",
            [tensor(3, M, K // 2, of=FP4), tensor(K // 2, N, of=FP4)],
            OUT + (3 * M * K + N * K) // 2,
            "Float4",
        ),
        ("aten::_scaled_grouped_mm_v2", [tensor(M, K // 2, of=FP4), tensor(K // 2, N, of=FP4)], None, "Float4"),
        ("aten::_int_mm", [tensor(M, K, of="signed char"), tensor(K, N, of="signed char")], None, "signed char"),
    ],
)
def test_product(name: str, inputs: list[tuple[list[int], str, str]], moved: int | None, kind: str) -> None:
    found = counted(name, *inputs)
    assert found is not None
    assert (found[0], found[2], found[3]) == (FLOPS, kind, False)
    assert moved is None or found[1] == moved


def test_products_as_tracelens_counts_them() -> None:
    """GEMM.csv and InferenceAttention_fwd.csv of TraceLens' sglang_decode and sglang_prefilldecode (Qwen3-8B).

    It says 6.442450944 GFLOP and 193.75 MiB; 128.84901888 GFLOP and 300 MiB for 15 prompts of 1024 tokens.
    """
    product = counted("aiter::gemm_a16w16", tensor(32, 4096), tensor(24576, 4096), NONE)
    assert product == (6_442_450_944, int(193.75 * 2**20), BF16, False)
    cache = tensor(835874, 8, 128)
    prompts = [tensor(15360, 32, 128), cache, cache, tensor(16, of=INT), tensor(16, of=INT), tensor(15616, of=INT)]
    numbers = ("1024", "1024", "0.", "0.088388347648318447", "0.", "False", "True")
    attention = counted("aiter::mha_batch_prefill", *prompts, *map(value, numbers))
    assert attention == (128_849_018_880, 300 * 2**20, BF16, False)


def test_fused_experts() -> None:
    # 4 tokens with 2 of 8 experts each: [64 -> 2 x 32], then [32 -> 64].
    tokens, chosen = tensor(4, 64), tensor(4, 2, of=INT)
    inputs = [tokens, tensor(8, 64, 64), tensor(8, 64, 32), tensor(4, 2, of="float"), chosen]
    flops = 2 * 4 * 2 * (64 * 64 + 32 * 64)
    # Tokens in and out, and at least the weights of the two experts of a token.
    moved = 2 * 2 * 4 * 64 + 2 * 2 * (64 * 64 + 64 * 32)
    assert counted("vllm::outplace_fused_experts", *inputs) == (flops, moved, BF16, False)
    # A map of 16 experts to the 8 of this rank: some of the chosen ones are elsewhere.
    assert counted("vllm::inplace_fused_experts", *inputs, tensor(16, of=INT)) == (flops, 2 * 2 * 4 * 64, BF16, True)
    # Weights of 4 bits, two in a byte.
    packed = [tokens, tensor(8, 64, 32, of="unsigned char"), tensor(8, 64, 16, of="unsigned char"), *inputs[3:]]
    found = counted("sglang::outplace_fused_experts", *packed)
    assert found is not None and (found[0], found[2]) == (flops, BF16)


def test_experts_one_product_at_a_time() -> None:
    # Marlin: blocks of 8 rows, 2 experts of each of 4 tokens; then their 8 results, of 1 expert each.
    weights = tensor(8, 4, 128, of=INT)
    up = [tensor(4, 64), NONE, weights, NONE, value(8), value(2), value(False), value(11), *map(value, (4, 96, 64))]
    down = [tensor(8, 96), NONE, weights, NONE, value(8), value(1), value(True), value(11), *map(value, (8, 64, 96))]
    found = [counted("_moe_C::moe_wna16_marlin_gemm", *inputs) for inputs in (up, down)]
    assert [f and f[0] for f in found] == [2 * 4 * 2 * 96 * 64] * 2
    # CUTLASS: rows are sorted by expert already. Triton's kernel for weights of 4 bits writes [tokens, experts, N].
    grouped = [tensor(8, 96), tensor(8, 64, of=FP8), tensor(8, 64, 96, of=FP8)]
    assert counted("_C::cutlass_moe_mm", *grouped) == (2 * 8 * 96 * 64, 2 * 8 * 96 + 8 * 64 + 64 * 96, FP8, False)
    wna16 = [tensor(4, 64), tensor(4, 2, 96), tensor(8, 96, 32, of="unsigned char")]
    found = [counted("_moe_C::moe_wna16_gemm", *wna16)]
    assert found[0] is not None and found[0][0] == 2 * 8 * 96 * 64


def expert_layer(tmp_path: Path, rows: int, *inner: tuple[str, Any]) -> Any:
    """A row of flops-by-op: 4 tokens of 64 numbers, 8 experts of width 32, with so many rows in the activation."""
    activation = recorded(tensor(rows, 32), tensor(rows, 64))
    calls = [*inner, ("_C::silu_and_mul", activation)]
    layer = recorded(tensor(4, 64), tensor(4, 8), value("layers.0"))
    events = [
        event("cpu_op", "vllm::moe_forward", 0, 50, **{"External id": 1}, **layer),
        *(event("cpu_op", name, 10 + i, 1, **inputs) for i, (name, inputs) in enumerate(calls)),
        launch(20, 1, **{"External id": 1}), kernel("fused_moe_kernel", 60, 5, correlation=1, **{"External id": 1}),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / f"{rows}-{len(inner)}.json", events), "flops-by-op")
    return row["name"], row["flops"], row["at_most_calls"]


def test_experts_whose_weights_are_no_inputs(tmp_path: Path) -> None:
    """vLLM's operators within moe_forward: moe_align_block_size(topk_ids, ..), silu_and_mul(out, input)."""
    align = ("_moe_C::moe_align_block_size", recorded(tensor(4, 2, of="int"), value(8), value(16)))
    # 4 tokens with 2 experts each: [64 -> 2 x 32], then [32 -> 64].
    flops = 2 * 4 * 2 * 64 * (2 * 32 + 32)
    assert expert_layer(tmp_path, 8, align) == ("vllm::moe_forward", flops, 0)
    # More rows than that are padding, and a map of experts says that some are on other ranks.
    assert expert_layer(tmp_path, 16, align) == ("vllm::moe_forward", 2 * flops, 1)
    mapped = ("aten::index", recorded(tensor(8, of="int"), tensor(16, of="int")))
    assert expert_layer(tmp_path, 8, align, mapped) == ("vllm::moe_forward", flops, 1)
    # How many experts a token has is not known.
    assert expert_layer(tmp_path, 8) == ("vllm::moe_forward", flops, 1)
    # Products that the layer calls count by themselves.
    inner = ("aten::mm", recorded(tensor(4, 64), tensor(64, 8)))
    assert expert_layer(tmp_path, 8, align, inner, align) == ("aten::mm", 2 * 4 * 64 * 8, 0)


def varlen(tokens: int, keys: int, requests: int, longest: tuple[int, int], causal: bool) -> Any:
    """FlashAttention of 8 heads to 2 of keys, 64 wide."""
    borders = tensor(requests + 1, of=INT)
    kv = tensor(keys, 2, 64)
    scalars = map(value, (*longest, "0.", "0.125", causal))
    return counted("flash_attn::_flash_attn_varlen_forward", tensor(tokens, 8, 64), kv, kv, borders, borders, *scalars)


def test_attention_of_requests() -> None:
    per_pair = 4 * 8 * 64
    moved = 2 * 2 * 60 * 8 * 64 + 2 * 2 * 2 * 64
    # All queries are one: each attends to all keys of its request, however long.
    assert varlen(3, 90, 3, (1, 50), True)[:1] == (per_pair * (90 - 3 // 2),)
    # 3 x 20 tokens to themselves: half of 3 x 400 pairs.
    assert varlen(60, 60, 3, (20, 20), True) == (
        per_pair * 600,
        moved - 2 * 2 * 2 * 64 + 2 * 2 * 60 * 2 * 64,
        BF16,
        False,
    )
    # 10 and 50 tokens make 100 + 2500 pairs; the shapes tell 60 x 50 at most.
    assert varlen(60, 60, 2, (50, 50), False)[0] == per_pair * 60 * 50 >= per_pair * 2600
    assert varlen(60, 60, 2, (50, 50), False)[3]
    # Causal: half of each square, of which the smallest sum is that of two times 30.
    flops, _, _, at_most = varlen(60, 60, 2, (50, 50), True)
    assert at_most and flops == per_pair * (60 * 50 - 900) >= per_pair * 1300


def test_attention_to_pages() -> None:
    """Of vLLM's FlashAttention 3, with lengths that only the GPU knows: at most the longest context for all."""
    pages = tensor(900, 16, 2, 64)
    inputs = [tensor(4, 8, 64), pages, pages, NONE, NONE, NONE, tensor(4, 8, 64), tensor(5, of=INT), NONE, NONE, NONE]
    inputs += [tensor(4, of=INT), value(1), value(100), tensor(4, 64, of=INT)]
    inputs += [NONE] * 8 + [value("0.125"), value("True")]
    found = counted("_vllm_fa3_C::fwd", *inputs)
    assert found == (4 * 8 * 64 * (4 * 100 - 2), None, BF16, True)


def test_unknown_shapes_have_no_work() -> None:
    assert counted("_C::cutlass_scaled_mm", tensor(M, N), tensor(M, K), tensor(K + 1, N)) is None
    assert counted("aten::_scaled_mm", tensor(M, K, of=FP8), tensor(K, N, of=FP8)) is None, "counts by its shapes"
    parts = counted("aten::_scaled_grouped_mm", tensor(M, K, of=FP4), tensor(K, N, of=FP4))
    assert parts is not None and parts[1] is None, "as many products as parts"
    assert counted("_C::marlin_gemm", tensor(M, K), NONE, tensor(4, 64, of=INT)) is None
    layer = ("vllm::moe_forward", json.dumps([[4, 64], [4, 8]]), json.dumps([BF16, BF16]), "[]")
    assert work_of(*layer) is work_of(*layer, [("_C::silu_and_mul", None)]) is None
    assert [work_of(name, None, None, None) for name in OPERATORS] == [None] * len(OPERATORS)
    assert [work_of(name, "[[], [7], 3]", '["float"]', "{}") for name in OPERATORS] == [None] * len(OPERATORS)


def test_torch_flash_attention_counts_like_its_caller(tmp_path: Path) -> None:
    """scaled_dot_product_attention calls _flash_attention_forward, whose heads are the third dimension: one call."""
    heads, tokens = tensor(2, 8, 32, 64), tensor(2, 32, 8, 64)
    outer = recorded(heads, heads, heads, value("0."), value("True"))
    inner = recorded(tokens, tokens, tokens, NONE, NONE, value(32), value(32), value("0."), value("True"))
    name = "aten::_scaled_dot_product_flash_attention"
    events = [
        event("cpu_op", name, 0, 50, **{"External id": 1}, **outer),
        event("cpu_op", "aten::_flash_attention_forward", 10, 30, **{"External id": 2}, **inner),
        launch(20, 1, **{"External id": 2}), kernel("flash_fwd_kernel", 60, 5, correlation=1, **{"External id": 2}),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "flops-by-op")
    assert (row["name"], row["flops"]) == (name, 4 * 64 * 2 * 8 * 32 * 32 // 2)
    alone = write_trace(tmp_path / "alone.json", events[1:])
    assert [row["flops"] for row in ask(alone, "flops-by-op")] == [4 * 64 * 2 * 8 * 32 * 32 // 2]


def test_products_and_attention_on_a_gpu() -> None:
    """Shapes as torch 2.11 writes them on an H100: 64 x 512 by 512 x 256; requests of 20 and 40 tokens; flex_attention.

    tests/data/server_products.json.gz has a call of each, 8 heads to 4 of keys, 256 tokens, twice.
    """
    product, pair = 2 * 64 * 512 * 256, 4 * 8 * 64
    rows = [r for r in ask(DATA / "server_products.json.gz", "flops-by-op") if r["op"] != "template_matmul"]
    found = sorted((re.sub(r"triton_tem_.*(flex).*", r"\1", r["name"]), r["flops"], r["at_most_calls"]) for r in rows)
    assert found == [
        # 60 queries to at most 40 keys, all or causal.
        ("aten::_flash_attention_forward", pair * (60 * 40 + 60 * 40 - 60 * 60 // 4), 2),
        ("aten::_grouped_mm", product, 0),
        ("aten::_int_mm", product, 0),
        ("aten::_scaled_grouped_mm", product, 0),
        ("aten::_scaled_mm", 2 * product, 0),
        ("aten::_weight_int4pack_mm", product, 0),
        # With a mask of blocks; then without one, 256 queries and 1 query.
        ("flex", 2 * pair * 256 * 256, 1),
        ("flex", 2 * pair * 257 * 256, 0),
    ]


def test_queries(tmp_path: Path) -> None:
    """An fp8 product is compared with the peak of fp8, and a bound is not compared at all."""
    pages = tensor(900, 16, 2, 64)
    attention = recorded(
        tensor(4, 8, 64), pages, pages, tensor(4, 8, 64), tensor(5, of=INT), NONE, tensor(4, of=INT), NONE,
        tensor(4, 64, of=INT), NONE, value(1), value(100), value("0."), value("0.1"), value("False"), value("True"),
    )  # fmt: skip
    product = recorded(tensor(M, N), tensor(M, K, of=FP8), tensor(K, N, of=FP8))
    events = []
    for at, (name, inputs) in enumerate((("_C::cutlass_scaled_mm", product), ("_vllm_fa2_C::varlen_fwd", attention))):
        own: dict[str, Any] = {"External id": at + 1}
        events += [
            event("cpu_op", name, 100 * at, 20, **own, **inputs), launch(100 * at + 5, at, **own),
            kernel("gemm", 100 * at + 10, 2, correlation=at, **own),
        ]  # fmt: skip
    h200 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}
    path = write_trace(tmp_path / "t.json", events, **h200)
    rows = {row["name"]: row for row in ask(path, "flops-by-op")}
    assert {name: (row["op"], row["flops"], row["at_most_calls"]) for name, row in rows.items()} == {
        "_C::cutlass_scaled_mm": ("server_matmul", FLOPS, 0),
        "_vllm_fa2_C::varlen_fwd": ("server_attention", 4 * 8 * 64 * (4 * 100 - 2), 1),
    }
    rows = {row["name"]: row for row in ask(path, "op-roofline")}
    product_row, attention_row = rows["_C::cutlass_scaled_mm"], rows["_vllm_fa2_C::varlen_fwd"]
    assert (product_row["flops"], product_row["bytes"]) == (FLOPS, OUT + M * K + K * N)
    assert (product_row["type"], product_row["peak_roof"]) == (FP8, "tensor_fp8")
    assert (attention_row["flops"], attention_row["roof_pct"]) == (None, None)
    [row] = ask(path, "mfu")
    assert (row["model_flops"], row["unknown_calls"], row["precision"]) == (FLOPS, 1, "tensor_fp8")
