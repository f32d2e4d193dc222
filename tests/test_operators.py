"""Module tree, operator roofline, data loading, recomputation: by hand and against torch."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, write_trace

# Module Net_0 [0, 100) calls Linear_0 [10, 50), which calls aten::linear [20, 40) > aten::addmm [22, 38), which
# launches a kernel of 7 us; Net_0 itself runs aten::relu [60, 70), which launches one of 3 us. A second call of
# Linear_0 at [80, 90) has a Python helper [81, 86) that runs aten::addmm [82, 85) with a kernel of 5 us. A kernel of 2
# us has no operator.
MODULES = [
    event("python_function", "nn.Module: Net_0", 0, 100, **{"Python id": 1}),
    event("python_function", "nn.Module: Linear_0", 10, 40, **{"Python id": 2}),
    event("cpu_op", "aten::linear", 20, 20, **{"External id": 1}),
    event("cpu_op", "aten::addmm", 22, 16, **{"External id": 2}),
    launch(25, 1, **{"External id": 2}), kernel("gemm", 200, 7, correlation=1, **{"External id": 2}),
    event("cpu_op", "aten::relu", 60, 10, **{"External id": 3}),
    launch(61, 2, **{"External id": 3}), kernel("relu", 210, 3, correlation=2, **{"External id": 3}),
    event("python_function", "nn.Module: Linear_0", 80, 10, **{"Python id": 3}),
    event("python_function", "helper.py(1): f", 81, 5, **{"Python id": 4}),
    event("cpu_op", "aten::addmm", 82, 3, **{"External id": 4}),
    launch(83, 3, **{"External id": 4}), kernel("gemm", 220, 5, correlation=3, **{"External id": 4}),
    kernel("lost", 230, 2),
]  # fmt: skip
COLUMNS = ("calls", "total_cpu_ns", "self_cpu_ns", "total_device_ns", "self_device_ns")


def tree(path: Path, **params: Any) -> list[tuple[Any, ...]]:
    rows = ask(path, "module-tree", params=params)
    assert all(r["path"].count(" > ") == r["depth"] for r in rows)
    return [(r["path"], r["kind"], *(r[c] for c in COLUMNS)) for r in rows]


def test_module_tree_by_hand(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", MODULES)
    # Net_0 itself: 100 - (40 + 10) - 10 = 40. Linear_0: 50 - 20 - 3 = 27, of which the helper has 2.
    assert tree(path) == [
        ("Net_0", "module", 1, 100000, 40000, 15000, 0),
        ("Net_0 > Linear_0", "module", 2, 50000, 27000, 12000, 0),
        ("Net_0 > Linear_0 > aten::linear", "op", 1, 20000, 4000, 7000, 0),
        ("Net_0 > Linear_0 > aten::linear > aten::addmm", "op", 1, 16000, 16000, 7000, 7000),
        ("Net_0 > Linear_0 > aten::linear > aten::addmm > gemm", "kernel", 1, 0, 0, 7000, 7000),
        ("Net_0 > Linear_0 > aten::addmm", "op", 1, 3000, 3000, 5000, 5000),
        ("Net_0 > Linear_0 > aten::addmm > gemm", "kernel", 1, 0, 0, 5000, 5000),
        ("Net_0 > aten::relu", "op", 1, 10000, 10000, 3000, 3000),
        ("Net_0 > aten::relu > relu", "kernel", 1, 0, 0, 3000, 3000),
        ("(no operator)", "op", 0, 0, 0, 2000, 2000),
        ("(no operator) > lost", "kernel", 1, 0, 0, 2000, 2000),
    ]
    assert ("Net_0 > Linear_0 > helper.py(1): f", "python", 1, 5000, 2000, 5000, 0) in tree(path, tree="stack")


def test_module_tree_below_a_root(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", MODULES)
    assert tree(path, root="Linear_0", kernels="no") == [
        ("Linear_0", "module", 2, 50000, 27000, 12000, 0),
        ("Linear_0 > aten::linear", "op", 1, 20000, 4000, 7000, 0),
        ("Linear_0 > aten::linear > aten::addmm", "op", 1, 16000, 16000, 7000, 7000),
        ("Linear_0 > aten::addmm", "op", 1, 3000, 3000, 5000, 5000),
    ]
    # The same operator at two places below the top is one row.
    assert tree(path, root="aten::addmm") == [
        ("aten::addmm", "op", 2, 19000, 19000, 12000, 12000),
        ("aten::addmm > gemm", "kernel", 2, 0, 0, 12000, 12000),
    ]
    assert [r[0] for r in tree(path, depth=0)] == ["Net_0", "(no operator)"]


def test_module_tree_of_a_real_model(tmp_path: Path) -> None:
    """The modules, and how often and how long each ran, are those of the raw trace."""
    import torch
    import torchvision
    from torch import profiler

    model = torchvision.models.resnet18(num_classes=10)
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], with_stack=True) as p:
        for _ in range(2):
            with profiler.record_function("forward"):
                model(torch.randn(2, 3, 32, 32)).sum().backward()
    path = tmp_path / "t.json.gz"
    p.export_chrome_trace(str(path))
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    raw_calls: Counter[str] = Counter()
    raw_us: Counter[str] = Counter()
    for e in events:
        if e["name"].startswith("nn.Module: "):
            raw_calls[e["name"].removeprefix("nn.Module: ")] += 1
            raw_us[e["name"].removeprefix("nn.Module: ")] += e["dur"]
    rows = ask(path, "module-tree")
    modules = [r for r in rows if r["kind"] == "module"]
    assert {r["path"].split(" > ")[-1]: r["calls"] for r in modules} == dict(raw_calls)
    for r in modules:
        assert r["total_cpu_ns"] == round(raw_us[r["path"].split(" > ")[-1]] * 1000)
    # torchvision's own structure: the blocks are in their layers, in the order of the forward pass.
    names = [r["path"].removeprefix("forward > ") for r in modules]
    assert names[0] == "ResNet_0" and "ResNet_0 > Sequential_0 > BasicBlock_1 > Conv2d_3" in names
    assert (
        names.index("ResNet_0 > Conv2d_0") < names.index("ResNet_0 > Sequential_3") < names.index("ResNet_0 > Linear_0")
    )
    for query in ("module", "stack"):
        rows = ask(path, "module-tree", params={"tree": query})
        assert sum(r["self_cpu_ns"] for r in rows) == sum(r["total_cpu_ns"] for r in rows if r["depth"] == 0)


@pytest.mark.parametrize("sample", ["resnet18-1gpu", "resnet18-ddp2", "alexnet-dp2"])
def test_module_tree_holds_all_gpu_work(sample: str) -> None:
    rows = ask(SAMPLES / sample, "module-tree", params={"kernels": "no"}, where="profiler = 'torch'")
    [gpu] = [
        r["ns"]
        for r in sql(
            SAMPLES / sample,
            "SELECT sum(dur_ns)::BIGINT AS ns FROM gpu_work JOIN runs USING (run_id) WHERE profiler = 'torch'",
        )
    ]
    assert sum(r["self_device_ns"] for r in rows) == gpu
    assert sum(r["total_device_ns"] for r in rows if r["depth"] == 0) == gpu


def shaped(
    name: str, ts: float, dims: list[Any], types: list[str], op_id: int, concrete: list[str] | None = None
) -> Any:
    """An operator of 10 us with shapes."""
    args = {"Input Dims": dims, "Input type": types, "External id": op_id}
    if concrete:
        args["Concrete Inputs"] = concrete
    return event("cpu_op", name, ts, 10, **args)


H200 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}


def test_op_roofline_by_hand(tmp_path: Path) -> None:
    # mm [100, 200] x [200, 50], float: 2 * 100 * 200 * 50 = 2,000,000 FLOPs; (20,000 + 10,000 + 5,000) * 4 = 140,000 B.
    # Two kernels [100, 110) and [105, 120) us: 20 us busy. 1e11 FLOP/s, 7 GB/s, 14.29 FLOP/B; H200: 67 TFLOP/s over
    # 4800 GB/s, 14.29 * 4.8e12 = 6.857e13 > 6.7e13, so compute: 1e11 / 6.7e13. mul of [64, 1] by [32]: 64 * 32 out, (64
    # + 32 + 2048) * 2 B = 4288 B in Half, 1 us: 4.288 GB/s of 4800.
    events = [
        shaped("aten::mm", 0, [[100, 200], [200, 50]], ["float", "float"], 1),
        launch(1, 1, **{"External id": 1}), kernel("sgemm", 100, 10, correlation=1, **{"External id": 1}),
        launch(3, 2, **{"External id": 1}), kernel("splitk", 105, 15, stream=8, correlation=2, **{"External id": 1}),
        shaped("aten::mul", 20, [[64, 1], [32]], ["c10::Half", "c10::Half"], 2),
        launch(21, 3, **{"External id": 2}), kernel("mul", 200, 1, correlation=3, **{"External id": 2}),
        shaped("aten::mm", 40, [[2, 2], [2, 2]], ["float", "float"], 3),  # no GPU work
        shaped("aten::sort", 60, [[2, 2]], ["float"], 4),  # output unknown
        launch(61, 4, **{"External id": 4}), kernel("sort", 300, 1, correlation=4, **{"External id": 4}),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events, **H200), "op-roofline")
    assert [
        (r["name"], r["calls"], r["busy_ns"], r["flops"], r["bytes"], r["bound"], r["peak_roof"]) for r in rows
    ] == [
        ("aten::mm", 1, 20000, 2_000_000, 140_000, "compute", "fp32"),
        ("aten::mul", 1, 1000, None, 4288, "memory", None),
    ]
    mm, mul = rows
    assert mm["flops_per_s"] == pytest.approx(1e11) and mm["gb_per_s"] == pytest.approx(7)
    assert mm["attainable_flops_per_s"] == pytest.approx(6.7e13) and mm["roof_pct"] == pytest.approx(100 / 670)
    assert mul["roof_pct"] == pytest.approx(100 * 4.288 / 4800)


def test_op_roofline_tensor_roofs(tmp_path: Path) -> None:
    """By type, and TF32 where a kernel's name says it; an unknown GPU has no roof, and no guess is made."""
    dims = [[1024, 1024], [1024, 1024]]
    events = []
    for n, (type_, name) in enumerate(
        [("c10::BFloat16", "nvjet_hsh"), ("c10::Half", "gemm"), ("float", "sm80_xmma_gemm_tf32f32")], 1
    ):
        events += [
            shaped("aten::mm", 20 * n, dims, [type_, type_], n),
            launch(20 * n + 1, n, **{"External id": n}), kernel(name, 100 * n, 10, correlation=n, **{"External id": n}),
        ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events, **H200), "op-roofline")
    assert {r["type"]: r["peak_roof"] for r in rows} == {
        "c10::BFloat16": "tensor_bf16",
        "c10::Half": "tensor_fp16",
        "float": "tensor_tf32",
    }
    for r in ask(write_trace(tmp_path / "other" / "t.json", events), "op-roofline"):
        assert r["bound"] is None and r["roof_pct"] is None and r["flops_per_s"] > 0


def test_op_roofline_ignores_json_spacing(tmp_path: Path) -> None:
    # Three traces of one mm, as torch writes JSON, without spaces and indented: one row with the calls of all.
    events = [
        shaped("aten::mm", 0, [[100, 200], [200, 50], []], ["float", "float", "Scalar"], 1),
        launch(1, 1, **{"External id": 1}), kernel("sgemm", 100, 10, correlation=1, **{"External id": 1}),
    ]  # fmt: skip
    torchs = write_trace(tmp_path / "a.json", events, **H200)
    paths = [torchs, tmp_path / "b.json", tmp_path / "c.json"]
    written = json.loads(torchs.read_text())
    paths[1].write_text(json.dumps(written, separators=(",", ":")))
    paths[2].write_text(json.dumps(written, indent="\t"))
    [row] = ask(tmp_path, "op-roofline")
    assert (row["shapes"], row["calls"], row["busy_ns"]) == ("[[100, 200], [200, 50], []]", 3, 30_000)
    assert {ask(path, "op-roofline")[0]["shapes"] for path in paths} == {row["shapes"]}


def test_op_roofline_of_the_sample() -> None:
    """FLOPs are those of flops-by-op, convolution by convolution; bytes of one worked out here."""
    path = SAMPLES / "resnet18-1gpu"
    by_op = {r["name"]: r["flops"] for r in ask(path, "flops-by-op")}
    rows = ask(path, "op-roofline", params={"group": "name"})
    assert {r["name"]: r["flops"] for r in rows if r["flops"] is not None} == by_op
    shapes = {(r["name"], r["shapes"]): r for r in ask(path, "op-roofline")}
    first = shapes["aten::convolution", "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]"]
    one = 4 * (32 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 32 * 64 * 112 * 112)
    assert first["calls"] == 2 and first["bytes"] == 2 * one
    assert first["busy_ns"] * first["flops_per_s"] == pytest.approx(first["flops"] * 1e9)


def test_dataloader_by_hand(tmp_path: Path) -> None:
    # Steps of 100 and 50 us that wait 30 and 2 us: 32 of 150. A kernel runs [20, 40): 20 of the first wait's 30 us are
    # hidden.
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    events = [
        event("user_annotation", "ProfilerStep#4", 0, 100), event("user_annotation", loader, 10, 30),
        event("user_annotation", "ProfilerStep#5", 100, 50), event("user_annotation", loader, 101, 2),
        kernel("k", 20, 20),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "dataloader")
    del row["run_id"]
    assert row == {
        "rank": 0, "step": None, "workers": None, "loader": "multi-process", "steps": 2,
        "step_ns": 150000, "data_ns": 32000,
        "data_pct": pytest.approx(3200 / 150), "wait_p50_ns": 16000,
        "wait_p95_ns": pytest.approx(28600), "wait_max_ns": 30000,
        "idle_wait_pct": pytest.approx(1200 / 32), "profiler_ns": 0, "images_per_s": None,
        "unbound_images_per_s": None, "bound": True,
    }  # fmt: skip
    steps = ask(path, "dataloader", params={"window": "step"})
    assert [(r["step"], r["data_ns"], r["data_pct"], r["bound"]) for r in steps] == [
        (4, 30000, 30.0, True),
        (5, 2000, 4.0, False),
    ]
    assert ask(path, "dataloader", params={"bound_pct": 25})[0]["bound"] is False


def test_dataloader_of_a_sample() -> None:
    """The windows and waits of the trace, the images of the collector's CSV, the worker count of the manifest."""
    path = SAMPLES / "resnet18-ddp2"
    rows = ask(path, "dataloader")
    assert [r["rank"] for r in rows] == [0, 1]
    ranges = "SELECT {} AS ns FROM ranges WHERE rank = {} AND {} ORDER BY start_ns"
    for row in rows:
        first, _ = sql(path, ranges.format("start_ns", row["rank"], "origin = 'profiler_step'"))
        _, last = sql(path, ranges.format("start_ns + dur_ns", row["rank"], "origin = 'profiler_step'"))
        # All GPU work ends before the last step's range does.
        assert row["step_ns"] == last["ns"] - first["ns"]
        waits = sql(path, ranges.format("dur_ns", row["rank"], "name = 'data' AND origin = 'record_function'"))
        assert len(waits) == 2 and row["data_ns"] == sum(w["ns"] for w in waits)
        # Two steps of 16 images.
        assert row["images_per_s"] == pytest.approx(32e9 / row["step_ns"])
        assert row["workers"] == 4 and row["bound"] is False


def forward_op(name: str, ts: float, dur: float, number: int, op_id: int) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, **{"External id": op_id, "Sequence number": number, "Fwd thread id": 0})


def test_recompute_by_hand(tmp_path: Path) -> None:
    # Forward: linear [0, 10) > addmm, relu [10, 12). Backward [20, 60): a node runs linear again [22, 32) > addmm [23,
    # 30), whose kernel takes 5 us, then its own mm (no sequence number), 4 us. A node of the backward's own, [60, 70),
    # recomputes nothing, nor does a forward operator that never ran before (aten::new). In all 3 + 5 + 4 + 8 = 20 us of
    # GPU work.
    engine = "autograd::engine::evaluate_function"
    node = {"Sequence number": 1, "Fwd thread id": 1}
    events = [
        forward_op("aten::linear", 0, 10, 0, 1), forward_op("aten::addmm", 1, 8, 0, 2),
        kernel("k", 100, 3, correlation=1, **{"External id": 2}), forward_op("aten::relu", 10, 2, 1, 3),
        event("cpu_op", f"{engine}: CheckpointFunctionBackward", 20, 40, tid=2, **node, **{"External id": 4}),
        forward_op("aten::linear", 22, 10, 2, 5) | {"tid": 2}, forward_op("aten::addmm", 23, 7, 2, 6) | {"tid": 2},
        kernel("k", 110, 5, correlation=2, **{"External id": 6}),
        forward_op("aten::new", 40, 2, 3, 7) | {"tid": 2},
        event("cpu_op", "aten::mm", 45, 3, tid=2, **{"External id": 8}),
        kernel("k", 120, 4, correlation=3, **{"External id": 8}),
        event("cpu_op", f"{engine}: ReluBackward0", 60, 10, tid=2, **node, **{"External id": 9}),
        event("cpu_op", "aten::threshold_backward", 61, 3, tid=2, **{"External id": 10}),
        kernel("k", 130, 8, correlation=4, **{"External id": 10}),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events), "recompute")
    assert (row["name"], row["calls"], row["cpu_ns"], row["gpu_ns"]) == ("aten::linear", 1, 10000, 5000)
    assert row["gpu_time_pct"] == 25 and row["backward_cpu_pct"] == 20


@pytest.mark.parametrize("reentrant", [False, True])
def test_recompute_of_torch_checkpoint(tmp_path: Path, reentrant: bool) -> None:
    """Two of three blocks are checkpointed: their operators run again, the third's do not, either way."""
    import torch
    from torch import profiler
    from torch.utils import checkpoint

    blocks = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3)]
    x = torch.randn(4, 8, requires_grad=True)
    for checkpointed in (True, False):
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as p:
            y = x
            for n, block in enumerate(blocks):
                again = checkpointed and n < 2
                y = checkpoint.checkpoint(block, y, use_reentrant=reentrant) if again else block(y)
            y.sum().backward()
        path = tmp_path / f"{checkpointed}.json"
        p.export_chrome_trace(str(path))
        calls = {r["name"]: r["calls"] for r in ask(path, "recompute")}
        assert calls == ({"aten::linear": 2, "aten::tanh": 2} if checkpointed else {})
    path = tmp_path / "True.json"
    [total] = ask(path, "recompute", params={"group": "all"})
    assert total["calls"] == 4 and 0 < total["backward_cpu_pct"] < 100


def test_recompute_of_the_samples() -> None:
    """One of them checkpoints: the four stages of resnet18, in three steps."""
    rows = ask(SAMPLES, "recompute", by=["run_id"])
    assert {r["run_id"] for r in rows} == {r["run_id"] for r in ask(SAMPLES / "resnet18-checkpoint", "runs")}
    # Eight blocks of two convolutions and three that fit the shortcut, each with a batch norm that counts its batches
    # (add_); two ReLUs and one addition a block.
    assert {r["name"]: r["calls"] for r in rows} == {
        "aten::conv2d": 3 * 19,
        "aten::batch_norm": 3 * 19,
        "aten::relu_": 3 * 16,
        "aten::add_": 3 * (19 + 8),
    }
    # The same program without checkpointing, recorded on the same node, had 21.279 ms of GPU time; this one 25.627 ms.
    assert sum(r["gpu_ns"] for r in rows) == pytest.approx(25_627_000 - 21_279_000, rel=0.02)
