"""GPU time by module, source line and operator of the forward pass, with its backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask
from traces import event, kernel, launch, op, write_trace
from two_blocks import with_gpu_block

import analyze
from analyze.errors import InputError

NODE = "autograd::engine::evaluate_function: "


def python(name: str, ts: float, dur: float) -> dict[str, Any]:
    return event("python_function", name, ts, dur)


def work(ts: float, op_id: int, start: float, dur: float, tid: int = 1, **at: int) -> list[dict[str, Any]]:
    """A launch in an operator, and its kernel."""
    own: dict[str, Any] = {"External id": op_id}
    return [launch(ts, op_id, tid=tid, **own), kernel("k", start, dur, correlation=op_id, **at, **own)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two linear layers in a module, both with the backward pass on thread 2; an optimizer; a user's range."""
    events = [
        python("train.py(9): main", 0, 300),
        event("user_annotation", "encode", 5, 90),
        python("train.py(3): forward", 10, 80),
        python("nn.Module: Net_0", 12, 76),
        python("nn.Module: Linear_0", 15, 20),
        # Without a gradient, an operator has the number of the node that comes next.
        op("aten::empty", 16, 2, 1, **{"Sequence number": 7}),
        op("aten::linear", 20, 10, 2, **{"Sequence number": 7}),
        op("aten::addmm", 22, 6, 3, **{"Sequence number": 7}),
        *work(23, 3, 100, 10),
        python("nn.Module: Linear_1", 40, 20),
        op("aten::linear", 42, 10, 4, **{"Sequence number": 8}),
        *work(44, 4, 110, 20),
        # The optimizer is in no module.
        op("aten::_foreach_add_", 250, 10, 9),
        *work(252, 9, 400, 3, stream=8),
    ]
    for ts, number, op_id, start, dur in ((150, 8, 5, 200, 40), (180, 7, 7, 240, 25)):
        backward = {"Sequence number": number, "Fwd thread id": 1}
        events += [
            op(f"{NODE}AddmmBackward0", ts, 20, op_id, 2, **backward),
            op("AddmmBackward0", ts + 1, 18, op_id + 10, 2, **backward),
            op("aten::mm", ts + 2, 10, op_id + 20, 2),
            *work(ts + 3, op_id + 20, start, dur, 2),
        ]
    # No operator with this number is in the recording.
    events += [op(f"{NODE}GhostBackward0", 210, 9, 40, 2, **{"Sequence number": 3}), *work(212, 40, 300, 2, 2)]
    return write_trace(tmp_path_factory.mktemp("places") / "t.json", events)


def shares(trace: Path, group: str) -> dict[str, tuple[int, int]]:
    """Kernels and their time in us, by group."""
    rows = ask(trace, "kernel-share", params={"group": group})
    assert sum(r["kernel_time_pct"] for r in rows) == pytest.approx(100)
    return {r[group]: (r["calls"], r["total_ns"] // 1000) for r in rows}


def test_backward_counts_at_its_forward_module(trace: Path) -> None:
    assert shares(trace, "module") == {"Linear_1": (2, 20 + 40), "Linear_0": (2, 10 + 25), "(no module)": (2, 3 + 2)}


def test_backward_counts_at_its_forward_line(trace: Path) -> None:
    lines = shares(trace, "line")
    assert lines == {"train.py:3 in forward": (4, 95), "train.py:9 in main": (1, 3), "(no line)": (1, 2)}


def test_backward_counts_at_its_forward_operator(trace: Path) -> None:
    assert shares(trace, "op") == {
        "aten::linear": (4, 95), "aten::_foreach_add_": (1, 3), f"{NODE}GhostBackward0": (1, 2)
    }  # fmt: skip


def test_kernels_by_device_and_stream(trace: Path) -> None:
    assert shares(trace, "device") == {"rank 0 GPU 0": (6, 100)}
    assert shares(trace, "stream") == {"rank 0 GPU 0 stream 7": (5, 97), "rank 0 GPU 0 stream 8": (1, 3)}


def test_range_has_the_gpu_time_of_its_backward(trace: Path) -> None:
    [row] = ask(trace, "nvtx")
    assert (row["name"], row["gpu_ops"], row["gpu_ns"], row["backward_ns"]) == ("encode", 2, 95_000, 65_000)
    # The projection is that of nsys: from 100 to 130 us.
    assert row["proj_total_ns"] == 30_000


def test_work_launched_in_a_range_counts_once(tmp_path: Path) -> None:
    """The backward pass runs in the range itself, on its thread."""
    backward = {"Sequence number": 1, "Fwd thread id": 1}
    events = [
        event("user_annotation", "step", 0, 100),
        op("aten::mul", 10, 10, 1, **{"Sequence number": 1}), *work(12, 1, 100, 5),
        op(f"{NODE}MulBackward0", 30, 20, 2, **backward), op("aten::mul", 32, 10, 3), *work(34, 3, 110, 7),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events), "nvtx")
    assert (row["gpu_ops"], row["gpu_ns"], row["backward_ns"]) == (2, 12_000, 0)


def test_group_is_an_option(trace: Path) -> None:
    option = run_cli("query", "kernel-share", trace, "--group", "module", "-f", "csv")
    assert option.returncode == 0 and "Linear_1,2,60000" in option.stdout
    assert option.stdout == run_cli("query", "kernel-share", trace, "-p", "group=module", "-f", "csv").stdout
    wrong = run_cli("query", "kernel-share", trace, "--group", "colour")
    assert wrong.returncode == 2 and "group must be one of name, short_name, family" in wrong.stderr
    none = run_cli("query", "gpu-busy", trace, "--group", "module")
    assert none.returncode == 2 and "query gpu-busy has no parameter 'group'" in none.stderr
    with analyze.open(trace) as traces, pytest.raises(InputError, match=r"--by family: .* --group family"):
        traces.query("kernel-share", by="family")


def test_modules_are_those_of_the_full_block(tmp_path: Path) -> None:
    """The GPU-only block has the true times, but no modules."""
    path = with_gpu_block(SAMPLES / "train-stacks", tmp_path / "two")
    full = ask(SAMPLES / "train-stacks", "kernel-share", params={"group": "module"})
    assert len(full) == 8 and ask(path, "kernel-share", params={"group": "module"}) == full
    with analyze.open(path) as traces:
        assert "using gpu only" in traces.query("kernel-share", params={"group": "family"}).note
        assert "using torch only" in traces.query("kernel-share", params={"group": "module"}).note
