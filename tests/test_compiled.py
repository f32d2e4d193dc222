"""torch.compile: Inductor kernels by operator and by compiled region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES, ask, sql
from traces import event, kernel, launched, op, write_trace


def work(ts: float, number: int, name: str, dur: float) -> list[dict[str, Any]]:
    """An operator of 4 us with the kernel's name, and the kernel."""
    return [op(name, ts, 4, number), *launched(ts + 1, number, ts + 50, dur, name)]


@pytest.mark.parametrize(
    ("name", "kind", "ops"),
    [
        # Names that TorchInductor gave, in traces of its own and in its documentation.
        ("triton_poi_fused_add_gelu_3", "pointwise", ["add", "gelu"]),
        (
            "triton_per_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_9",
            "persistent reduction",
            ["_to_copy", "add", "native_layer_norm", "native_layer_norm_backward", "view"],
        ),
        ("triton_red_fused__log_softmax_nll_loss_forward_12", "reduction", ["_log_softmax", "nll_loss_forward"]),
        ("triton_tem_fused_addmm_relu_4", "template", ["addmm", "relu"]),
        ("triton_poi_fused_max_pool2d_with_indices_1", "pointwise", ["max_pool2d_with_indices"]),
        ("triton_for_fused_1", "foreach", []),
        ("triton_mm", "triton", []),
        ("ampere_sgemm_128x64_tn", None, []),
    ],
)
def test_operators_are_parsed_from_triton_names(tmp_path: Path, name: str, kind: str | None, ops: list[str]) -> None:
    path = write_trace(tmp_path / "t.json", [kernel(name, 0, 1)])
    [row] = sql(path, "SELECT triton_kind(name) AS kind, fused_ops(name) AS ops FROM kernels")
    assert (row["kind"], row["ops"]) == (kind, ops)


def test_known_operators_exist_in_pytorch() -> None:
    import torch

    text = (ROOT / "analyze" / "queries" / "modules" / "inductor.sql").read_text()
    known = text.split("concat_ws('|',")[1].split("'[a-z")[0].split("'")[1::2]
    schemas = {s.name.removeprefix("aten::") for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    # Of operators of other versions, and one that is not aten's.
    others = {"_fused_rms_norm", "_fused_rms_norm_backward", "_scaled_grouped_mm", "_grouped_mm"}
    assert [n for n in known if n not in schemas | others and not n.startswith("prims__")] == []
    # An operator whose name begins with that of another one stands before it.
    assert [(a, b) for i, a in enumerate(known) for b in known[i + 1 :] if b.startswith(a + "_")] == []


def test_regions_by_hand(tmp_path: Path) -> None:
    # Frame 0, compiled for the first time, and its second recompilation; a backward half by its sequence number; a
    # kernel of the optimizer, which is not compiled; one lookup and one compilation.
    events = [
        event("cpu_op", "TorchDynamo Cache Lookup", 0, 2), event("user_annotation", "compile (dynamo_timed)", 2, 7),
        event("cpu_op", "Torch-Compiled Region: 0/0", 10, 20),
        event("cpu_op", "CompiledFunction", 11, 18, **{"Sequence number": 5, "Fwd thread id": 0}),
        *work(12, 1, "triton_poi_fused_add_gelu_3", 6), *work(18, 2, "aten::mm", 10),
        event("cpu_op", "Torch-Compiled Region: 0/2", 40, 10), *work(42, 3, "triton_red_fused_sum_0", 3),
        event("cpu_op", "CompiledFunctionBackward", 60, 10, **{"Sequence number": 5, "Fwd thread id": 1}),
        *work(62, 4, "triton_poi_fused_gelu_backward_1", 5),
        *work(80, 5, "aten::add_", 1),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = {(r["region"], r["pass"]): r for r in ask(path, "compiled")}
    assert {k: (r["calls"], r["cpu_ns"], r["launches"], r["triton_ns"], r["gpu_ns"]) for k, r in rows.items()} == {
        ("0/0", "forward"): (1, 20_000, 2, 6_000, 16_000),
        ("0/0", "backward"): (1, 10_000, 1, 5_000, 5_000),
        ("0/2", "forward"): (1, 10_000, 1, 3_000, 3_000),
        ("(not compiled)", None): (0, 0, 1, 0, 1_000),
        ("(compilation)", None): (1, 7_000, 0, 0, 0),
        ("(guards)", None): (1, 2_000, 0, 0, 0),
    }
    # 16 of 25 us.
    assert rows["0/0", "forward"]["gpu_time_pct"] == 64
    kernels = ask(path, "compiled", params={"group": "kernel"})
    assert [(r["kernel"], r["kind"], r["ops"]) for r in kernels][:2] == [
        ("mm", "library", None), ("triton_poi_fused_add_gelu_3", "pointwise", "add, gelu"),
    ]  # fmt: skip


def test_compiled_regions_of_the_sample() -> None:
    """examples/language_model.py --compile inductor: one region of three steps; the loss and AdamW are not in it."""
    path = SAMPLES / "lm-compiled"
    rows = {(r["region"], r["pass"]): r for r in ask(path, "compiled")}
    assert set(rows) == {("0/0", "forward"), ("0/0", "backward"), ("(not compiled)", None), ("(guards)", None)}
    assert [rows["0/0", p]["calls"] for p in ("forward", "backward")] == [3, 3]
    [all_work] = sql(path, "SELECT sum(dur_ns)::BIGINT AS ns, count(*) AS n FROM gpu_work")
    assert (sum(r["gpu_ns"] for r in rows.values()), sum(r["launches"] for r in rows.values())) == tuple(
        all_work.values()
    )
    # Four blocks have a GELU each, in both directions.
    kernels = ask(path, "compiled", params={"group": "kernel"})
    gelu = {r["pass"]: r["launches"] for r in kernels if r["kind"] == "pointwise" and "gelu" in r["ops"].split(", ")}
    assert gelu == {"forward": 12, "backward": 12}
    assert ask(SAMPLES / "lm-eager", "compiled") == []


BF16 = "c10::BFloat16"


def triton(ts: float, number: int, name: str, shapes: list[list[int]], types: list[str], *sizes: int) -> list[Any]:
    """A kernel of 10 us as Inductor has it recorded: its tensors, inputs and outputs, then the sizes of its loops."""
    events = work(ts, number, name, 10)
    events[0]["args"] |= {
        "Input Dims": [*shapes, *([] for _ in sizes)],
        "Input type": [*types, *("Scalar" for _ in sizes)],
        "Concrete Inputs": [*("" for _ in shapes), *map(str, sizes)],
    }
    return events


def test_bytes_and_flops_of_triton_kernels(tmp_path: Path) -> None:
    half, both = [BF16] * 4, ["float", BF16]
    kernels = [
        # 100 x 10 floats to bfloat16: 4000 + 2000 B.
        triton(0, 1, "triton_poi_fused__to_copy_0", [[100, 10], [100, 10]], both, 1000),
        # 10 rows of 64 summed: 640 floats read, 10 bfloat16 written.
        triton(100, 2, "triton_per_fused_sum_1", [[10, 64], [10]], both, 10, 64),
        # Some rows of a table of 5000: which, the trace does not tell.
        triton(200, 3, "triton_poi_fused_embedding_2", [[5000, 10], [100, 10]], both, 1000),
        # relu(10 + (10 x 20) (20 x 30)): 2 * 10 * 20 * 30 FLOPs, 2 (30 + 200 + 600 + 300) B.
        triton(300, 4, "triton_tem_fused_addmm_relu_3", [[30], [10, 20], [20, 30], [10, 30]], half, 1, 1, 1),
        # Four (10 x 20) (20 x 30): 2 (800 + 2400 + 1200) B.
        triton(400, 5, "triton_tem_fused_bmm_4", [[4, 10, 20], [4, 20, 30], [4, 10, 30]], half[:3], 1, 1, 1),
        # The first two arguments are no matrices that fit.
        triton(500, 6, "triton_tem_fused__to_copy_mm_5", [[10, 30], [10, 20], [20, 30]], half[:3], 1, 1, 1),
        # Queries and keys have no heads.
        triton(600, 7, "triton_tem_fused_flex_attention_6", [[4, 10, 20], [4, 10, 20]], half[:2], 1, 1, 1),
    ]
    path = write_trace(tmp_path / "t.json", [e for k in kernels for e in k])
    rows = {r["name"].rpartition("_")[2]: (r["flops"], r["bytes"]) for r in ask(path, "op-roofline")}
    assert rows == {
        "0": (None, 6000), "1": (None, 2580), "2": (None, None), "3": (12_000, 2260), "4": (48_000, 8800),
        "5": (None, 2 * (300 + 200 + 600)), "6": (None, None),
    }  # fmt: skip
    counted = {r["name"]: (r["op"], r["flops"], r["unknown_calls"]) for r in ask(path, "flops-by-op")}
    assert counted == {
        "triton_tem_fused_addmm_relu_3": ("template_matmul", 12_000, 0),
        "triton_tem_fused_bmm_4": ("template_matmul", 48_000, 0),
        "triton_tem_fused__to_copy_mm_5": ("template_matmul", None, 1),
        "triton_tem_fused_flex_attention_6": ("server_attention", None, 1),
    }
    [row] = ask(path, "mfu", params={"peak_tflops": 1})
    assert (row["model_flops"], row["unknown_calls"]) == (60_000, 2)
