"""FLOPs and bytes of operators of inference servers, from the shapes of their inputs.

Positions of inputs are those in the operators' schemas: vLLM (csrc/torch_bindings.cpp, csrc/moe/torch_bindings.cpp,
fused_moe.py), SGLang (sgl-kernel/csrc/common_extension.cc, fp8_kernel.py), FlashAttention (flash_attn_interface.py,
hopper/flash_api.cpp), AITER and PyTorch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

Shape = list[int]
Part = tuple[str, list[Shape]]
"""An operator within another one: its name and the shapes of its inputs."""

_BYTES = {
    "unsigned char": 1, "signed char": 1, "bool": 1, "c10::Half": 2, "c10::BFloat16": 2, "short int": 2, "float": 4,
    "int": 4, "double": 8, "long int": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What a call needs."""

    flops: int
    bytes: int | None
    """Inputs and outputs, each once; None if not known."""

    type: str | None
    """Type of the inputs that are multiplied."""

    at_most: bool = False
    """Whether the FLOPs are an upper bound: lengths or tokens per expert are in no shape."""


@dataclass(frozen=True)
class Call:
    """Inputs of a call; an input that is no tensor has no dimensions."""

    shapes: list[Shape]
    types: list[str]
    values: list[str]

    def shape(self, i: int, *ranks: int) -> Shape:
        """Return the shape of input i, which must have one of the ranks. Raises ValueError."""
        if i >= len(self.shapes) or len(self.shapes[i]) not in ranks:
            raise ValueError(f"input {i} has no shape of {ranks} dimensions")
        return self.shapes[i]

    def number(self, i: int) -> int:
        """Return a number among the inputs. Raises ValueError."""
        return int(self.values[i]) if i < len(self.values) else int("")

    def is_true(self, i: int) -> bool:
        """Return whether input i is True, or a number that is not 0."""
        return i < len(self.values) and self.values[i] not in ("", "0", "False", "None")

    def has(self, i: int) -> bool:
        """Return whether input i is a tensor with elements."""
        return i < len(self.shapes) and bool(self.shapes[i])

    def size(self, i: int) -> int:
        """Return the bytes of an element of input i. Raises ValueError."""
        kind = self.types[i] if i < len(self.types) else ""
        if "Float8" in kind or "Float4" in kind:
            return 1
        if kind not in _BYTES:
            raise ValueError(f"{kind} has no known size")
        return _BYTES[kind]

    def moved(self, *inputs: int) -> int:
        """Return the bytes of inputs; those that are not there have none."""
        return sum(math.prod(self.shapes[i]) * self.size(i) for i in inputs if self.has(i))


def _out_size(call: Call, a: int) -> int:
    """Return the bytes of an element of a product's output, if it is no input: bf16 of quantized inputs."""
    return max(call.size(a), 2)


def _product(call: Call, a: int, b: int, out: int | None = None, transposed: bool = False) -> Work:
    """A [.., K] by B [.., K, N]; transposed: B [.., N, K]. Two numbers of 4 bits are in a byte."""
    left, right = call.shape(a, 2, 3), call.shape(b, 2, 3)
    n, k = (right[-2], right[-1]) if transposed else (right[-1], right[-2])
    if left[-1] != k or left[:-2] != right[:-2]:
        raise ValueError("shapes do not fit")
    packed = call.types[a] == "unsigned char" or "Float4" in call.types[a]
    rows = math.prod(left[:-1])
    moved = call.moved(a, b) + (call.moved(out) if out is not None else rows * n * _out_size(call, a))
    return Work(2 * rows * n * k * (2 if packed else 1), moved, "Float4" if packed else call.types[a])


def _groups(call: Call, a: int, b: int) -> Work:
    """A grouped product of torch; `call_flops` in op_flops.sql tells the shapes. Two numbers are in an element."""
    left, right = call.shape(a, 2, 3), call.shape(b, 2, 3)
    if left[-1] != right[-2] or (len(left) == len(right) == 3 and left[0] != right[0]):
        raise ValueError("shapes do not fit")
    rows = left[-2] if len(right) == 2 else math.prod(left[:-1])
    # Two matrices have a product for each part of the inner dimension; the number of parts is in neither shape.
    out = None if len(left) == len(right) == 2 else rows * right[-1] * _out_size(call, a)
    moved = None if out is None else call.moved(a, b) + out
    return Work(4 * rows * right[-1] * left[-1], moved, "Float4")


def _packed(call: Call, formula: Callable[[Call, int, int], Work]) -> Work:
    """A product of torch if there are two numbers in each element; by its shapes it has half of the FLOPs."""
    if "Float4" not in call.types[0]:
        raise ValueError("one number in each element")
    return formula(call, 0, 1)


def _scaled_addmm(call: Call) -> Work:
    """A product that is added to the first input."""
    return replace(_product(call, 1, 2, 0), bytes=call.moved(0, 0, 1, 2))


def _columns(call: Call, b: int, per_column: int = 1) -> Work:
    """A [M, K] by packed weights with N / per_column columns."""
    rows, k = call.shape(0, 2)
    n = call.shape(b, 2)[1] * per_column
    return Work(2 * rows * n * k, call.moved(0, b) + rows * n * _out_size(call, 0), call.types[0])


def _sizes(call: Call) -> tuple[int, int, int, int]:
    """Return M, N, K of Marlin, which are next to each other among the numbers, and the place of M."""
    rows, k = call.shape(0, 2)
    for i in range(len(call.values) - 2):
        m, n, last = call.values[i : i + 3]
        if (m, last) == (str(rows), str(k)) and n.isdigit():
            return rows, int(n), k, i
    raise ValueError("sizes are not among the inputs")


def _marlin(call: Call) -> Work:
    """Packed weights are the first integers among the inputs."""
    rows, n, k, _ = _sizes(call)
    weights = call.types.index("int")
    return Work(2 * rows * n * k, call.moved(0, weights) + rows * n * _out_size(call, 0), call.types[0])


def _chosen(call: Call, weights: tuple[int, ...], experts: int) -> int:
    """Return the bytes of the weights of the experts of one token: the least, as all may choose the same."""
    return sum(call.moved(w) * min(experts, call.shape(w, 3)[0]) // call.shape(w, 3)[0] for w in weights)


def _marlin_experts(call: Call) -> Work:
    """A product of Marlin's experts. The first two numbers are the rows of a block and the experts of a token."""
    rows, n, k, place = _sizes(call)
    numbers = [int(v) for v in call.values[:place] if v.isdigit()]
    if len(numbers) < 2:
        raise ValueError("the number of experts of a token is not among the inputs")
    rows *= numbers[1]
    moved = call.moved(0) + _chosen(call, (2,), numbers[1]) + rows * n * _out_size(call, 0)
    return Work(2 * rows * n * k, moved, call.types[0])


def _grouped(call: Call, out: int, a: int, b: int) -> Work:
    """A product in which each row of A [.., K] has one of the matrices B; the result has the rows and columns."""
    result, k = call.shape(out, 2, 3), call.shape(a, 2)[1]
    packed = call.types[a] == "unsigned char"
    flops = 2 * math.prod(result) * k * (2 if packed else 1)
    return Work(flops, call.moved(out, a) + _chosen(call, (b,), 1), "Float4" if packed else call.types[a])


def _experts(call: Call, chosen: int) -> Work:
    """Both layers of experts on hidden states [tokens, K]: W1 [experts, 2 I or I, K], W2 [experts, K, I].

    `chosen`: the input [tokens, experts of a token]. Several numbers of W1 and W2 may be in an element. With a map of
    experts, some of the chosen experts are of other ranks.
    """
    (tokens, k), (experts, wide, packed_k) = call.shape(0, 2), call.shape(1, 3)
    packing = k // packed_k
    inner = call.shape(2, 3)[2] * packing
    if packing * packed_k != k or inner not in (wide, wide // 2):
        raise ValueError("shapes do not fit")
    choices = call.shape(chosen, 2)[1]
    mapped = any(
        len(shape) == 1 and shape[0] > experts and call.types[i] == "int" for i, shape in enumerate(call.shapes)
    )
    moved = call.moved(0) * 2 + (0 if mapped else _chosen(call, (1, 2), choices))
    # If weights and inputs are quantized, products have the type of the weights; if only weights are, of the inputs.
    kind = call.types[1] if "Float8" in call.types[1] else call.types[0]
    return Work(2 * tokens * choices * k * (wide + inner), moved, kind, at_most=mapped)


def _attention(
    call: Call, causal: int, borders: int, longest: int, cache: tuple[int, ...] = (), paged: bool = False
) -> Work:
    """Attention of queries [tokens, heads, d] to keys and values, with the borders of requests; or [batch, tokens, ..].

    The inputs `longest` and the next one are the most queries and keys of a request. Keys are of a cache if an input of
    `cache` is there: pages, or used lengths. Without the lengths in the shapes, FLOPs are at most all queries times the
    most keys. Half counts if causal, of the queries' own pairs.
    """
    q, k, v = call.shape(0, 3, 4), call.shape(1, 3, 4), call.shape(2, 3, 4)
    width = q[-2] * (q[-1] + v[-1])
    tokens = math.prod(q[:-2])
    half = call.is_true(causal)
    moved = call.moved(0) + tokens * q[-2] * v[-1] * call.size(0)
    paged = paged or any(call.has(i) for i in cache)
    if not call.has(borders):
        if paged or len(q) < 4 or len(k) < 4 or q[0] != k[0]:
            raise ValueError("lengths are in no shape")
        pairs = tokens * k[1] - (tokens * q[1] // 2 if half else 0)
        return Work(2 * pairs * width, moved + call.moved(1, 2), call.types[0])
    requests = call.shape(borders, 1)[0] - 1
    longest_q, longest_k = call.number(longest), call.number(longest + 1)
    same_q = requests * longest_q == tokens
    # Keys of a request are at least its queries, if causal.
    known = same_q and half and longest_q == longest_k
    pairs = tokens * longest_k
    if not paged:
        known = same_q or (requests * longest_k == k[0] and not half)
        pairs = min(pairs, longest_q * k[0])
    # By Cauchy and Schwarz, the squares of the requests' queries add up to at least this; to this if all are equal.
    pairs -= tokens * tokens // (2 * requests) if half else 0
    if not paged:
        moved += call.moved(1, 2)
    elif known:
        moved += requests * longest_k * (k[-2] * k[-1] * call.size(1) + v[-2] * v[-1] * call.size(2))
    return Work(2 * pairs * width, moved if known or not paged else None, call.types[0], at_most=not known)


def _expert_layer(call: Call, parts: Sequence[Part]) -> Work:
    """Both products of experts [K, 2 I] and [I, K] of hidden states [tokens, K], whose weights are no inputs.

    The activation between them has the results and inputs [rows, I], [rows, 2 I]. Rows are tokens x experts of a token
    [tokens, choices]; with a map of experts (an input, or indexed), some are of other ranks.
    """
    tokens, k = call.shape(0, 2)
    rows = inner = wide = 0
    choices, mapped = 0, False
    for name, shapes in parts:
        if name == _ALIGN:
            choices = shapes[0][1]
        mapped = mapped or name == _INDEX or (name == _ALIGN and bool(shapes[6:7]) and len(shapes[6]) == 1)
        if _ACTIVATION.match(name):
            (count, inner), wide = shapes[0], shapes[1][1]
            rows += count
    if not rows:
        raise ValueError("experts without an activation")
    return Work(2 * rows * k * (wide + inner), None, call.types[0], at_most=mapped or rows != tokens * choices)


def _int4(call: Call) -> Work:
    """A [M, K] by packed weights, whose scales and zeros are [groups, N, 2]."""
    (rows, k), n = call.shape(0, 2), call.shape(3, 3)[1]
    return Work(2 * rows * n * k, call.moved(0, 1, 3) + rows * n * _out_size(call, 0), call.types[0])


def _flex(call: Call) -> Work:
    """Arguments of Inductor's template of flex_attention: Q, K and V [batch, heads, .., d] (V is left out if it is K).

    With a mask of blocks, there are indices of full blocks, too: which blocks are computed is not known.
    """
    q, k, third = call.shape(0, 4), call.shape(1, 4), call.shapes[2]
    values = 2 if len(third) == 4 and third[:3] == k[:3] and call.types[2] == call.types[1] else 1
    v = call.shape(values, 4)
    masked = sum(kind == "int" and len(call.shapes[i]) == 4 for i, kind in enumerate(call.types)) > 1
    rows = math.prod(q[:-1])
    moved = call.moved(0, *{1, values}) + rows * v[-1] * call.size(0)
    return Work(2 * rows * k[2] * (q[-1] + v[-1]), moved, call.types[0], at_most=masked)


_NT = partial(_product, a=0, b=1, transposed=True)
_VARLEN = partial(_attention, borders=3, longest=5)
_FLASH_3 = partial(_attention, borders=7, longest=12, cache=(11, 14), causal=24)
_EXPERTS = partial(_experts, chosen=4)

OPERATORS: dict[str, Callable[[Call], Work]] = {
    "aten::_int_mm": partial(_product, a=0, b=1),
    "aten::_scaled_mm": partial(_packed, formula=_product),
    "aten::_scaled_mm_v2": partial(_packed, formula=_product),
    "aten::_scaled_grouped_mm": partial(_packed, formula=_groups),
    "aten::_scaled_grouped_mm_v2": partial(_packed, formula=_groups),
    "aten::_scaled_addmm": _scaled_addmm,
    "aten::_scaled_addmm_": _scaled_addmm,
    "aten::_weight_int4pack_mm": _int4,
    "aten::_weight_int8pack_mm": _NT,
    "aten::_flash_attention_forward": partial(_VARLEN, causal=8, cache=(13, 15)),
    "aten::_efficient_attention_forward": partial(_attention, borders=4, longest=6, cache=(12,), causal=9),
    "flash_attn::_flash_attn_forward": partial(_attention, borders=99, longest=99, causal=5),
    "flash_attn::_flash_attn_varlen_forward": partial(_VARLEN, causal=9, cache=(15,)),
    "flash_attn_3::fwd": _FLASH_3,
    "_vllm_fa2_C::varlen_fwd": partial(_attention, borders=4, longest=10, cache=(6, 8), causal=15),
    "_vllm_fa3_C::fwd": _FLASH_3,
    "sgl_kernel::fwd": _FLASH_3,
    "aiter::mha_batch_prefill": partial(_attention, borders=3, longest=6, causal=12, paged=True),
    "_C::cutlass_scaled_mm": partial(_product, a=1, b=2, out=0),
    "_C::cutlass_scaled_mm_azp": partial(_product, a=1, b=2, out=0),
    "_C::cutlass_scaled_fp4_mm": partial(_product, a=1, b=2, out=0, transposed=True),
    "_C::dsv3_fused_a_gemm": partial(_product, a=1, b=2, out=0),
    "_C::machete_mm": partial(_columns, b=1),
    "_C::gptq_gemm": partial(_columns, b=1),
    "_C::awq_gemm": partial(_columns, b=1, per_column=8),
    "_C::marlin_gemm": _marlin,
    "_C::gptq_marlin_gemm": _marlin,
    "_C::cutlass_moe_mm": partial(_grouped, out=0, a=1, b=2),
    "_C::cutlass_fp4_group_mm": partial(_grouped, out=0, a=1, b=2),
    "_moe_C::moe_wna16_gemm": partial(_grouped, out=1, a=0, b=2),
    "_moe_C::moe_wna16_marlin_gemm": _marlin_experts,
    "vllm::inplace_fused_experts": _EXPERTS,
    "vllm::outplace_fused_experts": _EXPERTS,
    "vllm::rocm_aiter_fused_moe": _EXPERTS,
    "vllm::rocm_unquantized_gemm": _NT,
    "vllm::w8a8_triton_block_scaled_mm_func": _NT,
    "vllm::fp8_gemm_nt_op": partial(_product, a=0, b=2, out=4, transposed=True),
    "sgl_kernel::fp8_scaled_mm": partial(_product, a=0, b=1),
    "sgl_kernel::int8_scaled_mm": partial(_product, a=0, b=1),
    "sgl_kernel::fp8_blockwise_scaled_mm": partial(_product, a=0, b=1),
    "sgl_kernel::cutlass_scaled_fp4_mm": partial(_product, a=1, b=2, out=0, transposed=True),
    "sgl_kernel::dsv3_fused_a_gemm": partial(_product, a=1, b=2, out=0),
    "sgl_kernel::dsv3_router_gemm": partial(_product, a=1, b=2, out=0, transposed=True),
    "sgl_kernel::gptq_gemm": partial(_columns, b=1),
    "sgl_kernel::gptq_marlin_gemm": _marlin,
    "sgl_kernel::moe_wna16_marlin_gemm": _marlin_experts,
    "sgl_kernel::fp8_blockwise_scaled_grouped_mm": partial(_grouped, out=0, a=6, b=7),
    "sglang::inplace_fused_experts": _EXPERTS,
    "sglang::outplace_fused_experts": _EXPERTS,
    "sglang::deep_gemm_fp8_fp8_bf16_nt": partial(_product, a=0, b=2, out=4, transposed=True),
    "aiter::gemm_a16w16": _NT,
    "aiter::gemm_a8w8": _NT,
    "aiter::gemm_a8w8_bpreshuffle": _NT,
    "aiter::gemm_a8w8_blockscale": _NT,
}
"""Formulas of operators that no other module counts, or not for some types."""

_ACTIVATION = re.compile(r"_C::\w+_and_mul$")
_ALIGN, _INDEX = "_moe_C::moe_align_block_size", "aten::index"
EXPERT_LAYERS = ("vllm::moe_forward", "vllm::moe_forward_shared")
"""Operators whose work follows from the operators that they call."""

IS_ATTENTION = frozenset(
    name for name, work in OPERATORS.items() if isinstance(work, partial) and work.func is _attention
)


_FLEX = re.compile(r"triton_tem_\w*flex_attention(?!_backward)")
"""Inductor's Triton template: triton_tem_fused_flex_attention_0."""


def formula_of(name: str) -> Callable[[Call], Work] | None:
    """Return the formula of an operator or template, or None if there is none."""
    return OPERATORS.get(name) or (_flex if _FLEX.match(name) else None)


def is_part_of_layer(name: str) -> bool:
    """Return whether an operator within one of EXPERT_LAYERS tells what that needs."""
    return name in (_ALIGN, _INDEX) or _ACTIVATION.match(name) is not None


def work_of(
    name: str, dims: str | None, types: str | None, values: str | None, parts: Sequence[tuple[str, str | None]] = ()
) -> Work | None:
    """Return what a call with a formula needs, from its inputs as JSON; None if they do not tell.

    `parts`: names and shapes of the operators that one of EXPERT_LAYERS calls.
    """
    formula = formula_of(name)
    if formula is None and not parts:
        return None
    try:
        call = Call(_shapes(dims), json.loads(types or "[]"), [str(value) for value in json.loads(values or "[]")])
        return formula(call) if formula else _expert_layer(call, [(n, _shapes(d)) for n, d in parts])
    except (ValueError, TypeError, IndexError):
        return None


def _shapes(dims: str | None) -> list[Shape]:
    return [shape if isinstance(shape, list) else [] for shape in json.loads(dims or "")]
