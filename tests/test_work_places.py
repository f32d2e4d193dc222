"""GPU time by module, source line and operator of the forward pass, with its backward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, op, write_trace

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


@pytest.mark.parametrize(
    ("sample", "forward"), [("lm-compiled", "Torch-Compiled Region: 0/0"), ("resnet18-checkpoint", "aten::conv2d")]
)
def test_backward_of_compiled_regions_and_checkpoints_counts_forward(sample: str, forward: str) -> None:
    """All kernels of autograd's nodes: none stays in the node, also where it runs the forward pass again."""
    [row] = sql(
        SAMPLES / sample,
        "SELECT count(*) AS n, count(forward_op) AS known FROM gpu_work"
        " WHERE kind = 'kernel' AND outer_name LIKE 'autograd::engine%'",
    )
    assert row["n"] == row["known"] > 100
    shares = [r["op"] for r in ask(SAMPLES / sample, "kernel-share", params={"group": "op"})]
    assert shares[0] == forward and not any(op.startswith(NODE) for op in shares)


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


def test_operators_have_the_gpu_time_of_their_backward(trace: Path) -> None:
    """The launches are in the operators of the threads: 30 us of the forward pass, 65 us of the backward pass."""
    found = {r["name"]: (r["total_device_ns"] // 1000, r["backward_ns"] // 1000) for r in ask(trace, "ops")}
    assert found["aten::linear"] == (30, 65)
    assert found["aten::addmm"] == (10, 25)
    assert found[f"{NODE}AddmmBackward0"] == (65, 0)
    assert found["encode"] == (30, 65) and found["aten::_foreach_add_"] == (3, 0)


def test_tree_has_the_gpu_time_of_the_backward(trace: Path) -> None:
    rows = ask(trace, "module-tree", params={"kernels": "no"})
    found = {r["tree"].strip(): (r["total_device_ns"] // 1000, r["backward_ns"] // 1000) for r in rows}
    assert found["Net_0"] == (30, 65) and found["Linear_0"] == (10, 25) and found["Linear_1"] == (20, 40)
    assert found[f"{NODE}AddmmBackward0"] == (65, 0)


def test_backward_launched_inside_is_no_backward_of_the_tree(tmp_path: Path) -> None:
    """The step launches forward (5 us) and backward (7 us) itself; of its operator the backward is elsewhere."""
    backward = {"Sequence number": 1, "Fwd thread id": 1}
    events = [
        event("user_annotation", "step", 0, 100),
        op("aten::relu", 10, 10, 1, **{"Sequence number": 1}), *work(12, 1, 100, 5),
        op(f"{NODE}ReluBackward0", 30, 20, 2, **backward), op("aten::mul", 32, 10, 3), *work(34, 3, 110, 7),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    expected = {"step": (12, 0), "aten::relu": (5, 7), f"{NODE}ReluBackward0": (7, 0), "aten::mul": (7, 0)}
    for query, name in (("ops", "name"), ("module-tree", "tree")):
        rows = ask(path, query, params={"kernels": "no"} if query == "module-tree" else {})
        found = {r[name].strip(): (r["total_device_ns"] // 1000, r["backward_ns"] // 1000) for r in rows}
        assert {n: found[n] for n in expected} == expected


def test_threads_count_their_sequence_numbers_alone(tmp_path: Path) -> None:
    """A later operator of another thread has the number of the node, too: the thread of the node's number decides."""
    events = []
    for tid, at in ((1, 0), (3, 5)):
        for i in range(3 if tid == 1 else 1):
            op_id = 10 * tid + i
            events += [
                op(f"aten::op{tid}", at + 20 * i, 4, op_id, tid, **{"Sequence number": i}),
                *work(at + 20 * i + 1, op_id, 200 + 10 * op_id, 1, tid),
            ]
    backward = {"Sequence number": 0, "Fwd thread id": 1}
    events += [op(f"{NODE}Backward", 100, 9, 90, 2, **backward), *work(102, 90, 2000, 7, 2)]
    events += [op(f"{NODE}Backward", 120, 9, 91, 2, **backward | {"Sequence number": 2}), *work(122, 91, 2100, 8, 2)]
    found = {r["name"]: r["backward_ns"] // 1000 for r in ask(write_trace(tmp_path / "t.json", events), "ops")}
    assert (found["aten::op1"], found["aten::op3"]) == (15, 0)


def test_group_is_an_option(trace: Path) -> None:
    option = run_cli("query", "kernel-share", trace, "--group", "module", "-f", "csv")
    assert option.returncode == 0 and "Linear_1,2,60000" in option.stdout
    assert option.stdout == run_cli("query", "kernel-share", trace, "-p", "group=module", "-f", "csv").stdout
    wrong = run_cli("query", "kernel-share", trace, "--group", "colour")
    assert wrong.returncode == 2 and "group must be one of name, short_name, family" in wrong.stderr
    none = run_cli("query", "gpu-busy", trace, "--group", "module")
    assert none.returncode == 2 and "query gpu-busy has no parameter 'group'" in none.stderr
    with (
        analyze.open(trace) as traces,
        pytest.raises(InputError, match=r"by groups runs and ranks; use --group family"),
    ):
        traces.query("kernel-share", by="family")
