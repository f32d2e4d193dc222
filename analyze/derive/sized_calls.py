"""Calls of operators whose FLOPs or outputs follow from the shapes of their inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from analyze.derive.graph_replays import captures_added
from analyze.derive.interface import Derived
from analyze.derive.interval_nesting import dense, pairs
from analyze.derive.numpy_columns import NULL, Ints, Mask, ints, nullable, text_codes, values_at
from analyze.derive.server_ops import EXPERT_LAYERS, IS_ATTENTION, OPERATORS, formula_of, is_part_of_layer, work_of
from analyze.derive.threads import OpenIntervals, by_thread, nesting_order, outermost
from schemas.table_declaration import CPU, INTERVAL, declare_table, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

Parts = tuple[tuple[str, str | None], ...]
"""Name and shapes of the operators that an expert layer calls."""
_SIGNATURE = ("name", "input_dims", "input_types", "concrete_inputs")
_OPS = ("pid", "tid", "op_id", "start_ns", "dur_ns", *_SIGNATURE)
_LIBRARY_CONV_BACKWARD = (
    "aten::cudnn_convolution_backward",
    "aten::cudnn_convolution_transpose_backward",
    "aten::miopen_convolution_backward",
    "aten::miopen_convolution_transpose_backward",
    "aten::miopen_depthwise_convolution_backward",
    "aten::mkldnn_convolution_backward",
)
"""Backward operators of each library, until torch 1.10. Each gradient is an operator below them."""
_GRADIENTS = tuple(name + part for name in _LIBRARY_CONV_BACKWARD for part in ("_input", "_weight", "_weights"))
_DISPATCH = "PythonSubclass"
"""The range in which an operator on a tensor subclass calls operators on what it consists of."""
_COMPILES = re.compile(
    r"(_compile\.|create_aot_dispatcher_function|backward\._backward_impl|compile_fx).*\(dynamo_timed\)"
)
"""Ranges in which torch.compile compiles. Most operators that it calls there have fake tensors and compute nothing."""
_FLOP_OPS: dict[str, tuple[str, ...]] = {
    # Names in other kinds are of these.
    "server_matmul": (*(name for name in OPERATORS if name not in IS_ATTENTION), *EXPERT_LAYERS),
    "server_attention": tuple(IS_ATTENTION),
    "conv": ("aten::convolution",),
    "conv_backward": (
        "aten::convolution_backward",
        *_LIBRARY_CONV_BACKWARD,
        "aten::thnn_conv2d_backward",
        "aten::thnn_conv_depthwise2d_backward",
    ),
    "linear": ("aten::addmm",),
    "matmul": ("aten::mm", "aten::_scaled_mm", "aten::_scaled_mm_v2"),
    "grouped_matmul": ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"),
    "batched_matmul": ("aten::bmm", "aten::baddbmm"),
    "attention": (
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ),
    "attention_backward": (
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "template_matmul": (),
}
"""Operators whose FLOPs follow from their input shapes.

Operators that only call another one (aten::conv2d, aten::linear, aten::matmul) are not listed, so nothing counts twice.
Of template_matmul are the products that Inductor makes of Triton templates (_TEMPLATE).
"""
_BYTE_OPS = {
    "like 0": (
        "clamp_min", "clamp_min_", "threshold_backward", "gelu", "gelu_backward", "silu", "silu_", "silu_backward",
        "sigmoid", "tanh", "hardtanh", "hardtanh_", "hardtanh_backward", "cudnn_batch_norm",
        "cudnn_batch_norm_backward", "native_batch_norm", "native_batch_norm_backward", "native_layer_norm",
        "native_layer_norm_backward", "_softmax", "_softmax_backward_data", "_log_softmax",
        "_log_softmax_backward_data", "native_dropout_backward", "neg", "exp", "sqrt", "rsqrt",
    ),
    "broadcast": ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"),
}  # fmt: skip
"""Operators without counted FLOPs whose output has the shape of input 0, or of inputs 0 and 1 broadcast."""
_OUTPUTS = {name: output for output, names in _FLOP_OPS.items() for name in names} | {
    f"aten::{name}": output for output, names in _BYTE_OPS.items() for name in names
}
_TEMPLATE = re.compile(r"triton_tem_.*?(?<!grouped)_(scaled_)?(mm|addmm|bmm|baddbmm)(?![a-z0-9])")
"""Inductor's Triton template of a product: triton_tem_fused_addmm_relu_3."""
_ARGUMENTS = re.compile(r"triton_(poi|red|per|spl|for)_")
"""Inductor's other Triton kernels, whose arguments are their inputs and outputs."""


def _output_of(name: str) -> str | None:
    """Return how the output of an operator follows from its inputs (the column `output`), or None if it does not."""
    if not name.startswith("triton_"):
        return _OUTPUTS.get(name)
    if _TEMPLATE.match(name):
        return "template_matmul"
    if formula_of(name):
        return "server_attention"
    return "arguments" if _ARGUMENTS.match(name) else None


def sized_calls(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of sized_calls, from the columns `reads` of a rank's tables.

    A GPU-only block has the calls of its full block.
    """
    import pyarrow as pa

    if tables["twins"].num_rows:
        return tables["full.sized_calls"]

    recorded = tables["cpu_ops"]
    tables = captures_added(tables)
    [name], names = text_codes([tables["cpu_ops"].column("name")])
    known = [*names.to_pylist(), ""]
    outputs = [_output_of(text) for text in known]
    has_layers = not set(EXPERT_LAYERS).isdisjoint(known)
    is_compile = [_COMPILES.match(text) is not None for text in known]
    listed = [
        output or text in _GRADIENTS or text == _DISPATCH or compiles or (has_layers and is_part_of_layer(text))
        for text, output, compiles in zip(known, outputs, is_compile, strict=True)
    ]
    rows = np.flatnonzero(np.array(listed, bool)[name])
    ops, name = tables["cpu_ops"].take(rows), name[rows]

    def named(chosen: Iterable[bool]) -> Mask:
        return np.fromiter(chosen, bool)[name]

    pid, tid, start, dur = (ints(ops, c) for c in ("pid", "tid", "start_ns", "dur_ns"))
    # A call without an end comes after those that begin with it and have one.
    end = np.where(dur == NULL, start - 1, start + dur)
    has_flops = named(output in _FLOP_OPS for output in outputs)
    is_inner, is_outer = (named(output == kind for output in outputs) for kind in ("server_attention", "attention"))
    has_flops[_inside(np.flatnonzero(is_inner), np.flatnonzero(is_outer), tid, start, end)] = False
    is_sized = named(output is not None for output in outputs) & (dur != NULL)
    layers = np.flatnonzero(named(text in EXPERT_LAYERS for text in known))
    parts, known_parts = _parts(layers, np.flatnonzero(named(map(is_part_of_layer, known))), ops, tid, start, end)
    has_flops[layers[parts[layers] == 0]] = False
    is_dispatch = named(text == _DISPATCH for text in known)
    of_compiles = _inside(np.arange(len(start)), np.flatnonzero(named(is_compile)), tid, start, end)
    has_flops[of_compiles], is_sized[of_compiles] = False, False
    lane = pairs(pid, tid)  # In merged traces, threads of several processes may have the same number.
    counts_flops = _without_another_inside(has_flops, tid, start, end)
    # Products that an expert layer calls count, instead of the layer.
    is_sized[layers[~counts_flops[layers]]] = False
    counts_bytes = np.zeros(len(start), bool)
    sized = np.flatnonzero(is_sized)
    sized = sized[~_dispatched(sized, np.flatnonzero(is_dispatch), lane, start, end)]
    counts_bytes[sized[outermost(lane[sized], start[sized], end[sized])]] = True
    gradients = _gradients(
        np.flatnonzero(named(text in _LIBRARY_CONV_BACKWARD for text in known)),
        np.flatnonzero(named(text in _GRADIENTS for text in known)),
        tid, start, end,
    )  # fmt: skip
    graph = _graph_of(tables["graph_launches"], tid, start)
    # Captured calls ran only if their graph is known.
    rows = np.flatnonzero((counts_flops | counts_bytes) & ((rows < recorded.num_rows) | (graph != NULL)))
    calls = ops.take(rows)
    signature = _signatures(calls, gradients[rows], parts[rows])
    found = {
        "call": np.arange(len(rows)),
        "graph": nullable(graph[rows]),
        **{c: calls[c] for c in _OPS if c != "pid"},
        "signature": signature,
        "output": pa.array(outputs, pa.string()).take(pa.array(name[rows])),
        "gradients": nullable(gradients[rows]),
        "counts_flops": counts_flops[rows],
        "counts_bytes": counts_bytes[rows],
        **_server_work(calls, signature, graph[rows] != NULL, parts[rows], known_parts),
    }
    schema = row_schema(_TABLE)
    return pa.table(found).select(schema.names).cast(schema)


def _inside(calls: Ints, around: Ints, tid: Ints, start: Ints, end: Ints) -> Ints:
    """Return the calls that begin in one of the others of their thread."""
    return calls[OpenIntervals(tid[around], start[around], end[around]).at(tid[calls], start[calls]) >= 0]


def _parts(layers: Ints, parts: Ints, ops: pa.Table, tid: Ints, start: Ints, end: Ints) -> tuple[Ints, list[Parts]]:
    """Return for each interval the number of what it calls, if it is a layer, and this: names and shapes in order."""
    around = OpenIntervals(tid[layers], start[layers], end[layers]).at(tid[parts], start[parts])
    found: dict[int, Parts] = {}
    inside = parts[around >= 0]
    names, dims = (ops.column(c).take(inside).to_pylist() for c in ("name", "input_dims"))
    for row, name, shapes in zip(layers[around[around >= 0]].tolist(), names, dims, strict=True):
        found[row] = (*found.get(row, ()), (name, shapes))
    numbers: dict[Parts, int] = {(): 0}
    number = np.zeros(len(start), np.int64)
    for row, own in found.items():
        number[row] = numbers.setdefault(own, len(numbers))
    return number, list(numbers)


def _server_work(
    calls: pa.Table, signature: Ints, captured: Mask, parts: Ints, known_parts: Sequence[Parts]
) -> dict[str, pa.Array]:
    """Return the columns with what operators of servers need, which is the same for calls of one signature.

    Lengths of requests at the capture of a CUDA graph are not those of its replays.
    """
    import pyarrow as pa

    one = np.zeros(int(signature.max(initial=-1)) + 1, np.int64)  # a call of each signature
    one[signature] = np.arange(len(signature))
    distinct = calls.take(one)
    names, *inputs = (distinct[c].to_pylist() for c in _SIGNATURE)
    work = [*map(work_of, names, *inputs, (known_parts[n] for n in parts[one])), None]
    is_attention = np.array([name in IS_ATTENTION for name in names], bool)
    at = pa.array(np.where(captured & is_attention[signature], len(one), signature))
    columns = {
        "server_flops": [w.flops if w else None for w in work],
        "server_bytes": [w.bytes if w else None for w in work],
        "server_type": [w.type if w else None for w in work],
        "at_most": [w is not None and w.at_most for w in work],
    }
    return {name: pa.array(values).take(at) for name, values in columns.items()}


def _graph_of(launches: pa.Table, tid: Ints, start: Ints) -> Ints:
    """Return the graph that each thread was capturing at a time; NULL if none."""
    graph, thread, begin, end = (ints(launches, c) for c in ("graph", "tid", "begin_ns", "end_ns"))
    return values_at(graph, OpenIntervals(thread, begin, end).at(tid, start))


def _without_another_inside(wanted: Mask, tid: Ints, start: Ints, end: Ints) -> Mask:
    """Return which of the wanted intervals contain the start of no other one of their thread."""
    found = np.zeros(len(start), bool)
    for _, rows in by_thread(tid[wanted]):
        rows = np.flatnonzero(wanted)[rows]
        rows = rows[nesting_order(start[rows], end[rows])]
        found[rows] = np.append(start[rows[1:]] >= end[rows[:-1]], True)
    return found


def _dispatched(calls: Ints, dispatches: Ints, lane: Ints, start: Ints, end: Ints) -> Mask:
    """Return which calls are dispatched by a tensor subclass (DTensor): they call another one on the local part."""
    found = np.zeros(len(calls), bool)
    lanes = dict(by_thread(lane[calls]))
    for thread, rows in by_thread(lane[dispatches]):
        begin, until = start[dispatches[rows]], end[dispatches[rows]]
        own = lanes.get(thread, np.empty(0, np.int64))
        own = own[nesting_order(start[calls[own]], end[calls[own]])]
        starts, ends = start[calls[own]], end[calls[own]]
        before, after = np.searchsorted(starts, begin, "right") - 1, np.searchsorted(starts, begin)
        around = (before >= 0) & (until <= values_at(ends, before))
        inside = (after < len(own)) & (values_at(ends, after) <= until)
        found[own[before[around & inside]]] = True
    return found


def _gradients(calls: Ints, parts: Ints, tid: Ints, start: Ints, end: Ints) -> Ints:
    """Return for each interval how many parts lie in it, if it is one of the calls and has some; else NULL."""
    found = np.full(len(start), NULL)
    place = OpenIntervals(tid[calls], start[calls], end[calls]).at(tid[parts], start[parts])
    counted, count = np.unique(place[(place >= 0) & (tid[parts] != NULL)], return_counts=True)
    found[calls[counted]] = count
    return found


def _signatures(calls: pa.Table, gradients: Ints, parts: Ints) -> Ints:
    """Return the number of the gradients, parts, name, shapes, types and other inputs of each call."""
    number = dense(pairs(dense(gradients)[0], parts))[0]
    for column in _SIGNATURE:
        [codes], _ = text_codes([calls.column(column)])
        number = dense(pairs(number, codes))[0]
    return number


def calls_at(sized_calls: pa.Table, counted: str) -> Callable[[Ints, Ints], Ints]:
    """Return a function that finds the call of `sized_calls` in which a thread is at a time; NULL if there is none.

    `counted`: the column of the calls that are meant, counts_flops or counts_bytes. Those of a thread are not nested.
    """
    rows = np.flatnonzero(sized_calls.column(counted).to_numpy())
    tid, start, dur, call = (ints(sized_calls, c)[rows] for c in ("tid", "start_ns", "dur_ns", "call"))
    calls = OpenIntervals(tid, start, np.where(dur == NULL, start, start + dur))
    return lambda tid, time: values_at(call, calls.at(tid, time))


_TABLE = declare_table(
    "sized_calls",
    "a call of an operator whose FLOPs or outputs follow from the shapes of its inputs; of a GPU-only block, one of its"
    " full block",
    ("call", "int32", "", "number in the rank"),
    (
        "graph",
        "int32",
        "",
        "CUDA graph that it was captured in, which ran it once for each replay; NULL of a call of the recording",
    ),
    CPU[1],
    ("name", "string", "", "operator"),
    *INTERVAL,
    ("op_id", "int64", "", "External id"),
    (
        "output",
        "string",
        "",
        "kind of operator with counted FLOPs (conv, conv_backward, linear, matmul, batched_matmul, grouped_matmul,"
        " attention, attention_backward, template_matmul, server_matmul, server_attention); like 0: the output has the"
        " shape of input 0; broadcast: that of inputs 0 and 1; arguments: outputs are among the inputs (Inductor's"
        " Triton kernels)",
    ),
    ("signature", "int32", "", "number of the name, shapes, types, other inputs and gradients in the rank"),
    ("input_dims", "string", "", "shapes of the inputs, JSON"),
    ("input_types", "string", "", "element types of the inputs, JSON"),
    ("concrete_inputs", "string", "", "scalar inputs, JSON"),
    (
        "gradients",
        "int32",
        "",
        "gradients with FLOPs (input, weight) that a library's backward convolution computes, until torch 1.10",
    ),
    ("counts_flops", "bool", "", "its FLOPs count: its kind has a formula, and no other such call begins in it"),
    ("counts_bytes", "bool", "", "its bytes count: it has an end and is in no other such call"),
    ("server_flops", "int64", "FLOP", "FLOPs of an operator of an inference server; NULL of others, or if not known"),
    ("server_bytes", "int64", "B", "its inputs and outputs, each once; of experts, weights of those of one token"),
    ("server_type", "string", "", "type of the numbers that it multiplies"),
    ("at_most", "bool", "", "server_flops is an upper bound: lengths, or experts of other ranks, are in no shape"),
)

DERIVED = (
    Derived(
        _TABLE,
        version=11,
        reads={
            "cpu_ops": _OPS,
            "captured_ops": _OPS,
            "graph_launches": ("graph", "tid", "begin_ns", "end_ns"),
            "twins": ("turn",),
            "full.sized_calls": tuple(column.name for column in _TABLE.columns[2:]),
        },
        compute=sized_calls,
    ),
)
