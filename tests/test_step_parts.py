"""What fills a step of a GPU: every ns counts once, and the rest is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES, ask
from traces import event, kernel, step, write_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_step_by_hand(tmp_path: Path) -> None:
    # A step of 100 us: compute 10 to 50, communication 30 to 70, a copy 60 to 80. Nothing runs for 10 + 20 us.
    copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 20, 0, 9, device=0, stream=9, bytes=1)
    events = [step(1, 0, 100), kernel("gemm", 10, 40), kernel(NCCL, 30, 40, stream=8), copy]
    found = ask(write_trace(tmp_path / "t.json", events), "step-parts", params={"group": "kernel"})
    assert {r["kernel"]: (r["exposed_ns"], r["hidden_ns"]) for r in found} == {
        "gemm": (40_000, 0),
        NCCL: (20_000, 20_000),
        "Memcpy HtoD (Pinned -> Device)": (10_000, 10_000),
        "(idle)": (30_000, 0),
    }
    assert sum(r["step_pct"] for r in found) == pytest.approx(100)


@pytest.mark.parametrize("group", ["family", "kernel", "op", "module", "phase"])
def test_parts_add_up_to_the_steps_of_breakdown(group: str) -> None:
    sample = SAMPLES / "late-ddp"
    steps = ask(sample, "breakdown", params={"window": "step"})
    parts = ask(sample, "step-parts", params={"group": group})
    whole = sum(r["span_ns"] + r["excluded_ns"] for r in steps) / len(steps)
    assert sum(r["exposed_ns"] for r in parts) == pytest.approx(whole)
    assert [r["exposed_ns"] for r in parts if r[group] == "(idle)"] == [
        pytest.approx(sum(r["idle_ns"] for r in steps) / len(steps))
    ]
