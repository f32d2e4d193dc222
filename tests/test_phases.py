"""Phases inferred from autograd: by hand, and against annotations of real recordings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, write_trace

from schemas.phases import PHASES

MAIN, ENGINE = 1, 2


def op(name: str, ts: float, dur: float, seq: int, tid: int = MAIN) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid=tid, **{"Sequence number": seq})


def node(name: str, ts: float, dur: float, seq: int) -> list[dict[str, Any]]:
    """A node of autograd as its engine evaluates it, with the operator of its own inside."""
    around = op(f"autograd::engine::evaluate_function: {name}", ts, dur, seq, ENGINE)
    return [around, op(name, ts + 1, dur - 2, seq, ENGINE)]


def plain_loop() -> list[dict[str, Any]]:
    """A step: forward [10, 34), backward [40, 70) on the engine's thread, optimizer [80, 90); then one more of each."""
    events = [
        # .item() of the step before looks at the number that the next node will get: it made none.
        op("aten::item", 0, 4, 7),
        op("aten::linear", 10, 10, 7), op("aten::addmm", 12, 6, 7), op("aten::sum", 30, 4, 8),
        *node("SumBackward0", 40, 10, 8), *node("AddmmBackward0", 52, 18, 7),
        # Recomputed inside a node: still backward.
        op("aten::mm", 55, 3, 9, ENGINE),
        event("user_annotation", "Optimizer.step#SGD.step", 80, 10),
        op("aten::mm", 100, 10, 9), *node("MmBackward0", 120, 10, 9),
    ]  # fmt: skip
    # Launches: in item, linear, sum, between forward and backward, in a node, between nodes, in a recomputation, in the
    # optimizer, in the second forward and backward; kernels of 1, 2, 4 ... 512 us.
    for i, (at, tid) in enumerate(
        [(1, 1), (15, 1), (31, 1), (36, 1), (45, 2), (51, 2), (56, 2), (85, 1), (105, 1), (125, 2)]
    ):
        events += [launch(at, i + 1) | {"tid": tid}, kernel("k", 2000 * (i + 1), 2**i, correlation=i + 1)]
    return events


def test_a_plain_training_loop(tmp_path: Path) -> None:
    rows = ask(write_trace(tmp_path / "t.json", plain_loop()), "phases")
    found = {r["phase"]: (r["inferred"], r["calls"], r["cpu_ns"], r["gpu_ops"], r["gpu_ns"]) for r in rows}
    assert found == {
        "forward": (True, 2, (24 + 10) * 1000, 3, (2 + 4 + 256) * 1000),
        "backward": (True, 2, (30 + 10) * 1000, 4, (16 + 32 + 64 + 512) * 1000),
        "optimizer": (False, 1, 10_000, 1, 128_000),
        "(outside)": (False, 0, 0, 2, (1 + 8) * 1000),
    }


def test_annotated_phases_are_not_inferred(tmp_path: Path) -> None:
    events = [*plain_loop(), event("user_annotation", "backward", 38, 34)]
    rows = ask(write_trace(tmp_path / "t.json", events), "phases")
    # Only [38, 72): the launches at 45, 51 and 56.
    assert [(r["phase"], r["inferred"], r["gpu_ns"]) for r in rows] == [
        ("backward", False, (16 + 32 + 64) * 1000),
        ("(outside)", False, (1023 - 112) * 1000),
    ]


def test_forward_of_part_of_the_model(tmp_path: Path) -> None:
    # DDP around aten::linear alone: the sum behind it is inferred, and both are one call of [9, 34).
    events = [*plain_loop(), event("user_annotation", "DistributedDataParallel.forward", 9, 12)]
    rows = {r["phase"]: r for r in ask(write_trace(tmp_path / "t.json", events), "phases")}
    assert (rows["forward"]["inferred"], rows["forward"]["calls"], rows["forward"]["cpu_ns"]) == (True, 2, 35_000)
    assert rows["forward"]["gpu_ns"] == (2 + 4 + 256) * 1000


@pytest.mark.parametrize("sample", ["resnet18-1gpu", "resnet18-ddp2", "alexnet-dp2"])
def test_inferred_phases_agree_with_annotations(tmp_path: Path, sample: str) -> None:
    """A recording without its annotations: the phases that they named, told by autograd."""
    with gzip.open(SAMPLES / sample / "torch/rank-0.trace.json.gz") as f:
        trace = json.load(f)
    paths = []
    for name, hidden in (("said", ()), ("inferred", PHASES)):
        events = [e for e in trace["traceEvents"] if e.get("name") not in hidden]
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps({**trace, "traceEvents": events}))
    said, inferred = ({r["phase"]: r["gpu_ns"] for r in ask(path, "phases")} for path in paths)
    assert sum(said.values()) == sum(inferred.values())
    assert inferred["forward"] == said["forward"] + said["loss"]
    assert inferred["optimizer"] == said["optimizer"]
    # The gradient of the loss is made before the first node, and DDP copies from its buckets behind the last.
    assert 0.98 * said["backward"] < inferred["backward"] <= said["backward"]
