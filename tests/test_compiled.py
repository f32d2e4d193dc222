"""torch.compile: kernels of Inductor by their operators and by the compiled region, and what is not compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import ROOT, SAMPLES, ask, event, kernel, launch, sql, write_trace


def work(ts: float, number: int, name: str, dur: float) -> list[dict[str, Any]]:
    """An operator of 4 us with the kernel's name, and the kernel."""
    call = launch(ts + 1, number)
    call["args"]["External id"] = number
    args = {"External id": number}
    return [event("cpu_op", name, ts, 4, **args), call, kernel(name, ts + 50, dur, correlation=number, **args)]


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
def test_operators_in_names(tmp_path: Path, name: str, kind: str | None, ops: list[str]) -> None:
    path = write_trace(tmp_path / "t.json", [kernel(name, 0, 1)])
    [row] = sql(path, "SELECT triton_kind(name) AS kind, fused_ops(name) AS ops FROM kernels")
    assert (row["kind"], row["ops"]) == (kind, ops)


def test_the_known_operators_are_pytorchs() -> None:
    text = (ROOT / "analyze" / "queries" / "blocks" / "inductor_names.sql").read_text()
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


def test_the_sample() -> None:
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
