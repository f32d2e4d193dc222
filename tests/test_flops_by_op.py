"""Model FLOPs from the shapes in a trace against torch.utils.flop_counter, which dispatches the operators itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, op, write_trace


def recorded(path: Path, work: Callable[[], object]) -> Path:
    from torch import profiler

    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as p:
        work()
    p.export_chrome_trace(str(path))
    return path


def counted(work: Callable[[], object]) -> int:
    """What torch's counter says of `work`. Attention on a CPU is flash attention on some and two products on others;
    flash attention there is not among the operators that the counter knows, so it is told that they are alike."""
    import torch
    from torch.utils import flop_counter

    name = "_scaled_dot_product_flash_attention_for_cpu"
    forward, backward = (getattr(torch.ops.aten, n) for n in (name, f"{name}_backward"))
    alike = {
        forward: lambda *shapes, **_: flop_counter.sdpa_flop_count(*shapes[:3]),
        backward: lambda *shapes, **_: flop_counter.sdpa_backward_flop_count(*shapes[:4]),
    }
    with flop_counter.FlopCounterMode(display=False, custom_mapping=alike) as counter:
        work()
    return int(counter.get_total_flops())


def attention() -> None:
    import torch

    q, k, v = (torch.randn(2, 4, s, 16, requires_grad=True) for s in (32, 24, 24))
    torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()


def matrices() -> None:
    import torch

    a, b = torch.randn(3, 5, 7), torch.randn(3, 7, 11)
    torch.bmm(a, b)
    torch.baddbmm(torch.zeros(3, 5, 11), a, b)
    torch.matmul(torch.randn(5, 7), torch.randn(7, 11))
    torch.nn.functional.linear(torch.randn(4, 9), torch.randn(6, 9), torch.randn(6))


def transposed() -> None:
    import torch

    layer = torch.nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1)
    layer(torch.randn(2, 3, 9, 8)).sum().backward()


@cache
def model(name: str) -> Callable[[object], Any]:
    import torchvision

    return torchvision.models.get_model(name, num_classes=10)


def train(name: str) -> Callable[[], None]:
    import torch

    return lambda: model(name)(torch.randn(2, 3, 64, 64)).sum().backward()


@pytest.mark.parametrize(
    "work", [attention, matrices, transposed, train("resnet18"), train("alexnet")], ids=lambda w: w.__qualname__
)
def test_equals_flop_counter(tmp_path: Path, work: Callable[[], None]) -> None:
    rows = ask(recorded(tmp_path / "t.json", work), "flops-by-op")
    assert sum(r["flops"] for r in rows) == counted(work) > 0
    assert sum(r["unknown_calls"] for r in rows) == 0
    assert sum(r["flops_pct"] for r in rows) == pytest.approx(100)


def test_grouped_convolution_by_hand(tmp_path: Path) -> None:
    # Depthwise: 8 channels, 3x3, 10x10 out, batch 2: 2 * 2 * 8 * 1 * 9 * 100 = 28,800 forward; the input needs no
    # gradient, so the backward is the weight's alone: 28,800 again.
    import torch

    layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
    rows = ask(recorded(tmp_path / "t.json", lambda: layer(torch.randn(2, 8, 10, 10)).sum().backward()), "flops-by-op")
    assert {r["op"]: r["flops"] for r in rows} == {"conv": 28_800, "conv_backward": 28_800}


def test_operators_that_torch_compile_calls_to_compile_do_not_count(tmp_path: Path) -> None:
    """Three steps of a product and its gradient, of which two compile."""
    import torch

    def work() -> None:
        times = torch.compile(torch.mm, backend="aot_eager")
        for n in (3, 3, 4):
            times(torch.randn(2, n, requires_grad=True), torch.randn(n, 5)).sum().backward()

    [row] = ask(recorded(tmp_path / "t.json", work), "flops-by-op")
    assert (row["name"], row["calls"], row["flops"]) == ("aten::mm", 6, 2 * 2 * 2 * 5 * (3 + 3 + 4))


def test_operators_of_a_compiled_step_count_where_they_ran() -> None:
    """A step calls 15 products (7 in each of two layers, and the head's). Three run eagerly, a graph 21 times."""
    [row] = [r for r in ask(SAMPLES / "generate-static", "flops-by-op") if r["name"] == "aten::mm"]
    assert row["calls"] == 15 * (3 + 21)


def test_without_shapes_there_is_no_answer(tmp_path: Path) -> None:
    import torch
    from torch import profiler

    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as p:
        torch.mm(torch.randn(2, 3), torch.randn(3, 4))
    p.export_chrome_trace(str(tmp_path / "t.json"))
    assert ask(tmp_path / "t.json", "flops-by-op") == []


def old(name: str, ts: float, dur: float, dims: list[list[int]] | None = None) -> dict[str, Any]:
    """An operator as Kineto wrote it in 2021: `Input dims` in lower case, no concrete inputs."""
    return event("Operator", name, ts, dur, **({"Input dims": dims} if dims else {}))


@pytest.mark.parametrize("pair", ["[1, 1]", "(1,1)", "(1, 1)"])
def test_strides_as_lists_and_tuples(tmp_path: Path, pair: str) -> None:
    """x [2, 3, 8, 8], w [4, 3, 3, 3], stride and padding 1: 2 * N * C_out * C_in * k * k * |out| = 2*2*4*3*9*64."""
    inputs = ["", "", "", pair, pair, pair, "False", pair.replace("1", "0"), "1"]
    dims = [[2, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []]
    call = op("aten::convolution", 0, 10, 1, **{"Input Dims": dims, "Concrete Inputs": inputs})
    [row] = ask(write_trace(tmp_path / "t.json", [call]), "flops-by-op")
    assert (row["flops"], row["unknown_calls"]) == (27_648, 0)


def test_backward_of_the_libraries_until_torch_1_10(tmp_path: Path) -> None:
    # x [2, 3, 8, 8], w [4, 3, 3, 3], grad [2, 4, 6, 6]: 2 * N * C_out * C_in * k * k * |out| = 2 * 2 * 4 * 3 * 9 * 36 =
    # 15,552 a gradient. Both in the first call, the weight's alone in the second (a first layer). The transposed one, x
    # [2, 4, 6, 6], w [4, 3, 3, 3], grad [2, 3, 8, 8], costs the same a gradient, by its input's size. thnn does not say
    # which gradients it computes, and a forward's stride is unknown.
    x, w, grad = [2, 3, 8, 8], [4, 3, 3, 3], [2, 4, 6, 6]
    cudnn, transposed = "aten::cudnn_convolution_backward", "aten::cudnn_convolution_transpose_backward"
    events = [
        old(cudnn, 0, 50, [x, grad, w]), old(f"{cudnn}_input", 5, 10, [[], grad, w]),
        old(f"{cudnn}_weight", 20, 10, [[], grad, x]),
        old(cudnn, 100, 50, [x, grad, w]), old(f"{cudnn}_weight", 120, 10, [[], grad, x]),
        old(transposed, 200, 50, [grad, x, w]), old(f"{transposed}_input", 205, 10, [x, w]),
        old(f"{transposed}_weight", 220, 10, [[], x, grad]),
        old("aten::mkldnn_convolution_backward", 300, 50, [x, grad, w]),
        old("aten::mkldnn_convolution_backward_weights", 310, 5, [[], grad, x]),
        old("aten::miopen_convolution_backward", 400, 50, [x, grad, w]),
        old("aten::thnn_conv2d_backward", 500, 50, [grad, x, w]), old("aten::convolution", 600, 50, [x, w]),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "flops-by-op")
    assert {r["name"].removeprefix("aten::"): (r["calls"], r["flops"], r["unknown_calls"]) for r in rows} == {
        "cudnn_convolution_backward": (2, 3 * 15_552, 0),
        "cudnn_convolution_transpose_backward": (1, 2 * 15_552, 0),
        "mkldnn_convolution_backward": (1, 15_552, 0),
        "miopen_convolution_backward": (1, None, 1),
        "thnn_conv2d_backward": (1, None, 1),
        "convolution": (1, None, 1),
    }


CAUSAL = [
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
]


@pytest.mark.parametrize("causal", ["False", None, "True"])
def test_causal_attention_counts_half(tmp_path: Path, causal: str | None) -> None:
    # q, k, v [2, 4, 32, 16]: scores and values are 2 * 2 * 4 * 32 * 32 * (16 + 16) = 524,288; a backward 2.5 times
    # that. Where is_causal stands among the arguments, torch's own schema says.
    import torch

    events: list[dict[str, Any]] = []
    expected: dict[str, int] = {}
    for at, name in enumerate([*CAUSAL, *(f"{n}_backward" for n in CAUSAL)], 1):
        whole = 524_288 * 5 // 2 if name.endswith("_backward") else 524_288
        expected[f"aten::{name}"] = whole // 2 if causal == "True" else whole
        places = [a.name for a in getattr(torch.ops.aten, name).default._schema.arguments]
        inputs: dict[str, Any] = {"Input Dims": [[2, 4, 32, 16]] * 4, "Input type": ["float"] * 4}
        if causal:
            inputs["Concrete Inputs"] = [causal if p == "is_causal" else "" for p in places]
        start = 100 * at
        op: dict[str, Any] = {"External id": at}
        events += [
            event("cpu_op", f"aten::{name}", start, 20, **op, **inputs),
            launch(start + 5, at, **op), kernel("k", start + 10, 5, correlation=at, **op),
        ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    for query in ("flops-by-op", "op-roofline"):
        assert {row["name"]: row["flops"] for row in ask(path, query)} == expected


def test_causal_attention_as_torch_records_it(tmp_path: Path) -> None:
    import torch

    q, k, v = (torch.randn(2, 4, 32, 16, requires_grad=True) for _ in range(3))

    def work() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    rows = ask(recorded(tmp_path / "t.json", work), "flops-by-op")
    # torch's counter takes the whole square.
    assert sum(r["flops"] for r in rows) * 2 == counted(work) > 0
