"""Model FLOPs from the shapes in a trace against torch.utils.flop_counter, which dispatches the operators itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision
from support import ask
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def recorded(path: Path, work: Callable[[], object]) -> Path:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        work()
    p.export_chrome_trace(str(path))
    return path


def attention() -> None:
    q, k, v = (torch.randn(2, 4, s, 16, requires_grad=True) for s in (32, 24, 24))
    torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()


def matrices() -> None:
    a, b = torch.randn(3, 5, 7), torch.randn(3, 7, 11)
    torch.bmm(a, b)
    torch.baddbmm(torch.zeros(3, 5, 11), a, b)
    torch.matmul(torch.randn(5, 7), torch.randn(7, 11))
    torch.nn.functional.linear(torch.randn(4, 9), torch.randn(6, 9), torch.randn(6))


def transposed() -> None:
    layer = torch.nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1)
    layer(torch.randn(2, 3, 9, 8)).sum().backward()


def train(name: str) -> Callable[[], None]:
    model = torchvision.models.get_model(name, num_classes=10)
    batch = torch.randn(2, 3, 64, 64)
    return lambda: model(batch).sum().backward()


@pytest.mark.parametrize(
    "work", [attention, matrices, transposed, train("resnet18"), train("alexnet")], ids=lambda w: w.__qualname__
)
def test_equals_flop_counter(tmp_path: Path, work: Callable[[], None]) -> None:
    with FlopCounterMode(display=False) as counter:
        work()
    rows = ask(recorded(tmp_path / "t.json", work), "flops-by-op")
    assert sum(r["flops"] for r in rows) == counter.get_total_flops()
    assert sum(r["unknown_calls"] for r in rows) == 0
    assert sum(r["flops_pct"] for r in rows) == pytest.approx(100)


def test_grouped_convolution_by_hand(tmp_path: Path) -> None:
    # Depthwise: 8 channels, 3x3, 10x10 out, batch 2: 2 * 2 * 8 * 1 * 9 * 100 = 28,800 forward; the input needs no
    # gradient, so the backward is the weight's alone: 28,800 again.
    layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
    rows = ask(recorded(tmp_path / "t.json", lambda: layer(torch.randn(2, 8, 10, 10)).sum().backward()), "flops-by-op")
    assert {r["op"]: r["flops"] for r in rows} == {"conv": 28_800, "conv_backward": 28_800}


def test_without_shapes_calls_are_unknown(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as p:
        torch.mm(torch.randn(2, 3), torch.randn(3, 4))
    p.export_chrome_trace(str(tmp_path / "t.json"))
    [row] = ask(tmp_path / "t.json", "flops-by-op")
    assert (row["name"], row["calls"], row["flops"], row["unknown_calls"]) == ("aten::mm", 1, 0, 1)
