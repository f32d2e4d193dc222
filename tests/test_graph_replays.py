"""Kernels of replayed CUDA graphs belong to the operators and modules that were captured.

In the captures of these tests a launch call of kernel NAME lies in an operator aten::NAME, and that in a module M_NAME.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, write_trace

import analyze

Node = tuple[str, str]
"""Kind and name of a node: ("kernel", "a")."""

RECORDED = Path(__file__).parent / "data" / "decode-loop"
"""Recordings of tests/data/decode_loop.py on an H100."""


def call_of(kind: str) -> str:
    return {"kernel": "cudaLaunchKernel", "memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}[kind]


def captured(at: float, nodes: Sequence[Node], launches_name_kernels: bool = False) -> list[dict[str, Any]]:
    """The events of a capture that begins at `at` us: 100 us for each node, whose launch call begins in the middle."""
    events = [launch(at, 1, 1, "cudaStreamBeginCapture")]
    for place, (kind, name) in enumerate(nodes):
        ts = at + 10 + 100 * place
        named = {"kernel": name} if launches_name_kernels and kind == "kernel" else {}
        events += [
            event("python_function", f"nn.Module: M_{name}", ts, 90),
            # Numbers of operators begin anew in each recording: these are also those of operators in the other file.
            event("cpu_op", f"aten::{name}", ts + 10, 70, **{"External id": place + 1}),
            launch(ts + 50, 100 + place, 5, call_of(kind), **named),
        ]
    return [*events, launch(at + 20 + 100 * len(nodes), 2, 1, "cudaStreamEndCapture")]


def write_pair(
    folder: Path, graphs: Sequence[Sequence[Node]], events: Sequence[dict[str, Any]], hidden: Sequence[int] = ()
) -> Path:
    """A trace, and beside it the captures of graphs 1, 2 ...; those of `hidden` have no kernel names."""
    listed, all_captured = [], []
    for number, nodes in enumerate(graphs, 1):
        at = 10_000 * number
        own = captured(at, nodes)
        named = [[kind, name if kind == "kernel" and number not in hidden else None] for kind, name in nodes]
        listed.append({"graph": number, "begin_ns": at * 1000, "end_ns": (own[-1]["ts"] + 1) * 1000, "nodes": named})
        all_captured += own
    path = folder / "rank-0.trace.json.gz"
    write_gzip(path, {"traceEvents": list(events)})
    write_gzip(folder / "rank-0.graphs.json.gz", {"cudaGraphs": listed, "traceEvents": all_captured})
    return path


def write_gzip(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def replay(ts: float, correlation: int, graph: int | None, *work: dict[str, Any]) -> list[dict[str, Any]]:
    """A launch of a graph of 4 us, and its work; with a range that names the graph."""
    call = launch(ts, correlation, 4, "cudaGraphLaunch")
    for one in work:
        one["args"]["correlation"] = correlation
    name = f"CUDAGraph.replay#{graph}"
    return [call, *work, *([event("user_annotation", name, ts - 1, 6)] if graph is not None else [])]


def by_op(path: Path) -> list[tuple[Any, ...]]:
    rows = ask(path, "kernel-share", params={"group": "op"})
    return sorted((r["op"], r["calls"], r["total_ns"]) for r in rows)


A, B = ("kernel", "a"), ("kernel", "b")


def test_kernels_of_two_replays_by_operator_and_module(tmp_path: Path) -> None:
    first = [kernel("a", 200_000, 3), kernel("b", 200_010, 5), kernel("a", 200_020, 7)]
    second = [kernel("a", 300_000, 4), kernel("b", 300_010, 6), kernel("a", 300_020, 8)]
    # An operator of the recording has the External id of a captured one, and runs a kernel of its own.
    eager = [
        event("cpu_op", "aten::other", 400_000, 20, **{"External id": 1}),
        launch(400_005, 9, **{"External id": 1}),
        kernel("a", 400_030, 100, correlation=9, **{"External id": 1}),
    ]
    path = write_pair(tmp_path, [[A, B, A]], [*replay(199_000, 5, 1, *first), *replay(299_000, 6, 1, *second), *eager])
    assert by_op(path) == [("aten::a", 4, 22_000), ("aten::b", 2, 11_000), ("aten::other", 1, 100_000)]
    modules = ask(path, "kernel-share", params={"group": "module"})
    assert {r["module"]: r["total_ns"] for r in modules} == {"M_a": 22_000, "M_b": 11_000, "(no module)": 100_000}
    # The third node's launch call: 10,000 + 10 + 200 + 50 us.
    rows = sql(path, "SELECT graph, capture_start_ns, dur_ns FROM gpu_work WHERE graph = 1 ORDER BY start_ns")
    assert [(r["graph"], r["capture_start_ns"]) for r in rows[:3]] == [
        (1, 10_060_000),
        (1, 10_160_000),
        (1, 10_260_000),
    ]


def test_branches_are_linked_by_name(tmp_path: Path) -> None:
    """b is the second node and starts first, on another stream."""
    work = [kernel("b", 200_000, 5, stream=8), kernel("a", 200_001, 3), kernel("a", 200_020, 7)]
    path = write_pair(tmp_path, [[A, B, A]], replay(199_000, 5, 1, *work))
    assert by_op(path) == [("aten::a", 2, 10_000), ("aten::b", 1, 5_000)]


def test_node_ids_tell_equal_kernels_of_branches_apart(tmp_path: Path) -> None:
    """CUPTI's ids: the graph, and in the lower 32 bits the node. The third node, on stream 8, starts first."""

    def captures(*nodes: int | None) -> list[int | None]:
        args = [{} if node is None else {"graph id": 9, "graph node id": (9 << 32) + node} for node in nodes]
        work = [
            kernel("a", 200_000, 5, stream=8, **args[0]), kernel("a", 200_001, 3, **args[1]),
            kernel("b", 200_010, 7, **args[2]),
        ]  # fmt: skip
        path = write_pair(tmp_path / str(nodes), [[A, B, A], [B, A, A]], replay(199_000, 5, 1, *work))
        rows = sql(path, "SELECT capture_start_ns FROM gpu_work ORDER BY start_ns")
        return [r["capture_start_ns"] for r in rows]

    assert captures(2, 0, 1) == [10_260_000, 10_060_000, 10_160_000]
    # Without ids, or if their order is not that of the capture: which of two kernels at one time is which is not known.
    assert captures(None, None, None) == captures(0, 1, 2) == [None, None, 10_160_000]


def test_node_ids_of_a_recording_are_in_the_order_of_its_capture() -> None:
    """What CUPTI wrote on an H100 for 35 kernels of each of three replays, and what the driver listed before."""
    listed = json.loads(gzip.decompress((RECORDED / "compiled/torch/rank-0.graphs.json.gz").read_bytes()))
    [nodes] = [g["nodes"] for g in listed["cudaGraphs"] if g["graph"] == 2]
    trace = json.loads(gzip.decompress((RECORDED / "compiled/gpu/rank-0.trace.json.gz").read_bytes()))
    work = [e for e in trace["traceEvents"] if "graph node id" in e.get("args", {})]
    assert len(work) == 3 * len(nodes)
    assert all(nodes[e["args"]["graph node id"] % 2**32] == ["kernel", e["name"]] for e in work)


def test_annotations_are_modules_without_a_capture(tmp_path: Path) -> None:
    """What export_chrome_trace(cuda_graph_annotations=..., graph_lanes="all") of torch 2.15 writes: mark_kernels("x"),
    mark_stream(stream 42, {"name": "y", ...}), and a node without either. Kernels ran on streams 7, 8 and 9.
    """

    def modules(folder: str, graphs: Sequence[Sequence[Node]]) -> dict[str, int]:
        of_stream = {"name": "y", "dtype": "bf16", "autograd_phase": "backward", "original_stream": 8}
        work = [
            kernel("a", 200_000, 3), kernel("b", 200_001, 5, stream=42), kernel("c", 200_002, 7, original_stream=9)
        ]  # fmt: skip
        for node, (one, said) in enumerate(zip(work, ({"name": "x"}, of_stream, {}), strict=True)):
            one["args"] |= {"graph id": 9, "graph node id": (9 << 32) + node, **said}
        path = write_pair(tmp_path / folder, graphs, replay(199_000, 5, None, *work))
        if not graphs:
            (path.parent / "rank-0.graphs.json.gz").unlink()
        exported = tmp_path / f"{folder}.json"
        analyze.open(path).trace(exported)
        for read in (path, exported):
            rows = sql(read, "SELECT stream, annotation FROM kernels ORDER BY start_ns")
            assert [(r["stream"], r["annotation"]) for r in rows] == [(7, "x"), (8, "y"), (9, None)]
        return {r["module"]: r["total_ns"] for r in ask(path, "kernel-share", params={"group": "module"})}

    assert modules("alone", []) == {"x": 3_000, "y": 5_000, "(no module)": 7_000}
    assert modules("captured", [[A, B, ("kernel", "c")]]) == {"M_a": 3_000, "M_b": 5_000, "M_c": 7_000}


def test_node_ids_tell_graphs_with_equal_kernels_apart(tmp_path: Path) -> None:
    ids = [{"graph node id": (9 << 32) + node} for node in (0, 1)]
    events = replay(199_000, 5, None, kernel("b", 200_000, 5, **ids[0]), kernel("a", 200_010, 3, **ids[1]))
    path = write_pair(tmp_path, [[A, B], [B, A]], events)
    assert [r["graph"] for r in sql(path, "SELECT graph FROM gpu_work")] == [2, 2]


@pytest.mark.parametrize(
    "names", [("a",), ("a", "b", "b"), ("a", "c"), ("a", "b", "a", "a")], ids=["fewer", "more", "other", "other count"]
)
def test_work_that_is_not_that_of_the_graph_has_no_operator(tmp_path: Path, names: tuple[str, ...]) -> None:
    work = [kernel(name, 200_000 + 10 * at, 5) for at, name in enumerate(names)]
    path = write_pair(tmp_path, [[A, B]], replay(199_000, 5, 1, *work))
    assert by_op(path) == [("(no operator)", len(names), 5_000 * len(names))]


@pytest.mark.parametrize(("lost", "linked"), [([7], 197), ([0], 196), ([7, 8], 0)])
def test_a_replay_of_which_little_was_lost(tmp_path: Path, lost: list[int], linked: int) -> None:
    """Of 198 kernels: the first two have one name, so which of them is missing is not known. Two are more than 1 %."""
    names = ["k0", *(f"k{i}" for i in range(197))]
    ran = [name for i, name in enumerate(names) if i not in lost]
    work = [kernel(name, 200_000 + 10 * i, 5) for i, name in enumerate(ran)]
    path = write_pair(tmp_path, [[("kernel", name) for name in names]], replay(199_000, 5, None, *work))
    rows = sql(path, "SELECT name, op_name FROM gpu_work WHERE op_name IS NOT NULL")
    assert len(rows) == linked and all(r["op_name"] == f"aten::{r['name']}" for r in rows)


def test_graphs_with_the_same_kernels_are_told_apart_by_the_range_of_the_replay(tmp_path: Path) -> None:
    def graphs(*numbers: int | None) -> Path:
        events = [
            one
            for at, number in enumerate(numbers)
            for one in replay(200_000 + 100 * at, 5 + at, number, kernel("a", 200_050 + 100 * at, 5))
        ]
        return write_pair(tmp_path / "-".join(map(str, numbers)), [[A], [A]], events)

    rows = sql(graphs(2, 1), "SELECT graph FROM gpu_work ORDER BY start_ns")
    assert [r["graph"] for r in rows] == [2, 1]
    assert by_op(graphs(None)) == [("(no operator)", 1, 5_000)]


def test_a_replay_without_a_range_is_that_of_the_only_graph_with_its_kernels(tmp_path: Path) -> None:
    events = [*replay(200_000, 5, None, kernel("b", 200_050, 5)), *replay(300_000, 6, None, kernel("a", 300_050, 3))]
    path = write_pair(tmp_path, [[A], [B]], events)
    assert by_op(path) == [("aten::a", 1, 3_000), ("aten::b", 1, 5_000)]


@pytest.mark.parametrize(
    ("replayed", "graphs"),
    [
        # As piecewise graphs of vLLM: the first and last part differ, the layers between are alike.
        ("abbbc abbbc", [1, 2, 3, 4, 5] * 2),
        # A layer is missing, one is twice there, or the last part is: which one is not known.
        ("abbc abbbbc abbb", [1, None, None, 5, 1, None, None, None, None, 5, 1, None, None, None]),
        ("bbb", [None] * 3),
    ],
)
def test_parts_of_a_model_are_replayed_in_the_order_of_their_captures(
    tmp_path: Path, replayed: str, graphs: list[int | None]
) -> None:
    events: list[dict[str, Any]] = []
    for at, name in enumerate(replayed.replace(" ", "")):
        ts = 200_000 + 100 * at
        events += replay(ts, at + 5, None, kernel(name, ts + 10, 3))
    path = write_pair(tmp_path, [[("kernel", name)] for name in "abbbc"], events)
    rows = sql(path, "SELECT graph, capture_start_ns FROM gpu_work ORDER BY start_ns")
    assert [r["graph"] for r in rows] == graphs
    assert [r["capture_start_ns"] for r in rows] == [n and n * 10_000_000 + 60_000 for n in graphs]


def test_kernels_without_names_in_the_capture_have_no_operator(tmp_path: Path) -> None:
    path = write_pair(tmp_path, [[A]], replay(200_000, 5, 1, kernel("a", 200_050, 5)), hidden=[1])
    assert by_op(path) == [("(no operator)", 1, 5_000)]


def test_copies_and_fills_may_run_as_kernels(tmp_path: Path) -> None:
    """CUDA runs small copies of a graph as kernels called memcpy32_post."""
    copy = event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 200_030, 2, 0, 7, device=0, stream=7)
    work = [kernel("memcpy32_post", 200_000, 1), kernel("a", 200_010, 3), copy]
    nodes = [("memcpy", "first"), A, ("memcpy", "second")]
    path = write_pair(tmp_path, [nodes], replay(199_000, 5, 1, *work))
    rows = sql(path, "SELECT kind, op_name FROM gpu_work ORDER BY start_ns")
    # Which of two copies each is, only their kind says: the first to start that is a kernel, or else a copy.
    assert [(r["kind"], r["op_name"]) for r in rows] == [
        ("kernel", "aten::first"), ("kernel", "aten::a"), ("memcpy", "aten::second"),
    ]  # fmt: skip


def test_captures_within_the_recording(tmp_path: Path) -> None:
    """The operators are those of the recording itself; the nodes of the graph lie beside it."""
    own = captured(10_000, [A, B])
    events = [*own, *replay(200_000, 5, 1, kernel("a", 200_050, 3), kernel("b", 200_060, 5))]
    path = write_pair(tmp_path, [[A, B]], events)
    listed = json.loads(gzip.decompress((tmp_path / "rank-0.graphs.json.gz").read_bytes()))
    write_gzip(tmp_path / "rank-0.graphs.json.gz", {**listed, "traceEvents": []})
    assert by_op(path) == [("aten::a", 1, 3_000), ("aten::b", 1, 5_000)]


def test_capture_traces_of_others(tmp_path: Path) -> None:
    """A folder capture_traces beside the trace; ROCm's launch calls name their kernels, and no list of nodes does."""
    events = replay(200_000, 5, None, kernel("a", 200_050, 3), kernel("b", 200_060, 5))
    write_trace(
        tmp_path / "decode.json", [e | {"name": "hipGraphLaunch"} if "Graph" in e["name"] else e for e in events]
    )
    own = captured(10_000, [A, B], launches_name_kernels=True)
    for one in own:
        one["name"] = one["name"].replace("cuda", "hip")
    write_gzip(tmp_path / "capture_traces" / "graph_capture_rank_0.json.gz", {"traceEvents": own})
    write_gzip(tmp_path / "capture_traces" / "graph_capture_rank_1.json.gz", {"traceEvents": []})
    assert by_op(tmp_path) == [("aten::a", 1, 3_000), ("aten::b", 1, 5_000)]


def test_captures_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    path = write_pair(tmp_path, [[A]], replay(200_000, 5, 1, kernel("a", 200_050, 5)))
    (tmp_path / "rank-0.graphs.json.gz").write_bytes(gzip.compress(b"[1, 2]"))
    assert by_op(path) == [("(no operator)", 1, 5_000)]
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "the CUDA graphs of rank-0.trace.json.gz have no operators" in run["warnings"]


def test_the_trees_have_captured_modules_below_the_launches_of_replays(tmp_path: Path) -> None:
    first = [kernel("a", 200_000, 3), kernel("b", 200_010, 5), kernel("a", 200_020, 7)]
    second = [kernel("a", 300_000, 4), kernel("b", 300_010, 6), kernel("a", 300_020, 8)]
    around = [event("user_annotation", "decode", ts, 50) for ts in (198_980, 298_980)]
    path = write_pair(tmp_path, [[A, B, A]], [*around, *replay(199_000, 5, 1, *first), *replay(299_000, 6, 1, *second)])
    rows = ask(path, "module-tree", params={"kernels": "no"})
    below = "decode > CUDAGraph.replay#1"
    columns = ("path", "kind", "calls", "total_cpu_ns", "total_device_ns", "self_device_ns")
    assert [tuple(r[c] for c in columns) for r in rows] == [
        # Two ranges of 50 us, and in each one of 6 us. All kernels: 3 + 5 + 7 + 4 + 6 + 8 us.
        ("decode", "range", 2, 100_000, 33_000, 0),
        (below, "range", 2, 12_000, 33_000, 0),
        # Two nodes in two replays.
        (f"{below} > M_a", "module", 4, 0, 22_000, 0),
        (f"{below} > M_a > aten::a", "op", 4, 0, 22_000, 22_000),
        (f"{below} > M_b", "module", 2, 0, 11_000, 0),
        (f"{below} > M_b > aten::b", "op", 2, 0, 11_000, 11_000),
    ]
    # By operators alone; modules are Python functions.
    ops = ask(path, "op-tree")
    assert [(r["path"], r["calls"], r["self_gpu_ns"]) for r in ops if r["kind"] == "op"] == [
        (f"{below} > aten::a", 4, 22_000), (f"{below} > aten::b", 2, 11_000),
    ]  # fmt: skip
    sums = {r["name"]: r for r in ask(path, "ops")}
    assert [(sums[n]["calls"], sums[n]["self_device_ns"], sums[n]["total_cpu_ns"]) for n in ("aten::a", "aten::b")] == [
        (4, 22_000, 0), (2, 11_000, 0),
    ]  # fmt: skip


def test_a_graph_captured_within_the_recording_is_below_its_replays_too(tmp_path: Path) -> None:
    own = captured(10_000, [A, B])
    events = [*own, *replay(200_000, 5, 1, kernel("a", 200_050, 3), kernel("b", 200_060, 5))]
    path = write_pair(tmp_path, [[A, B]], events)
    listed = json.loads(gzip.decompress((tmp_path / "rank-0.graphs.json.gz").read_bytes()))
    write_gzip(tmp_path / "rank-0.graphs.json.gz", {**listed, "traceEvents": []})
    rows = ask(path, "module-tree", params={"kernels": "no"})
    assert [(r["path"], r["calls"], r["total_cpu_ns"], r["total_device_ns"]) for r in rows] == [
        ("M_a", 1, 90_000, 0),
        ("M_a > aten::a", 1, 70_000, 0),
        ("M_b", 1, 90_000, 0),
        ("M_b > aten::b", 1, 70_000, 0),
        ("CUDAGraph.replay#1", 1, 6_000, 8_000),
        ("CUDAGraph.replay#1 > M_a", 1, 0, 3_000),
        ("CUDAGraph.replay#1 > M_a > aten::a", 1, 0, 3_000),
        ("CUDAGraph.replay#1 > M_b", 1, 0, 5_000),
        ("CUDAGraph.replay#1 > M_b > aten::b", 1, 0, 5_000),
    ]
    sums = {r["name"]: r for r in ask(path, "ops")}
    assert [(sums[n]["calls"], sums[n]["self_device_ns"], sums[n]["total_cpu_ns"]) for n in ("aten::a", "aten::b")] == [
        (2, 3_000, 70_000), (2, 5_000, 70_000),
    ]  # fmt: skip


@pytest.mark.parametrize("within", [False, True])
def test_flops_of_a_graph_count_once_for_each_replay(tmp_path: Path, within: bool) -> None:
    """The product of 4 x 8 and 8 x 16 is 2 * 4 * 8 * 16 = 1,024 FLOP; it is captured once, and replayed three times.

    `within`: the capture lies in the recording. It runs nothing.
    """
    shapes = {"Input Dims": [[4, 8], [8, 16]], "Input type": ["float", "float"]}
    works = [replay(1000 * n, n, 1, kernel("mm", 1000 * n + 10, 2 * n)) for n in (200, 201, 202)]
    events = [one for work in works for one in work]
    path = write_pair(tmp_path, [[("kernel", "mm")]], events)
    listed = json.loads(gzip.decompress((tmp_path / "rank-0.graphs.json.gz").read_bytes()))
    [op] = [e for e in listed["traceEvents"] if e["name"] == "aten::mm"]
    op["args"] |= shapes
    if within:
        write_gzip(path, {"traceEvents": listed.pop("traceEvents") + events})
    write_gzip(tmp_path / "rank-0.graphs.json.gz", {"traceEvents": [], **listed})
    [row] = ask(path, "flops-by-op")
    assert (row["name"], row["calls"], row["flops"]) == ("aten::mm", 3, 3072)
    [row] = ask(path, "op-roofline")
    # 2 * (200 + 201 + 202) us.
    assert (row["name"], row["calls"], row["flops"], row["busy_ns"]) == ("aten::mm", 3, 3072, 1_206_000)
    [row] = ask(path, "mfu")
    assert row["model_flops"] == 3072


def test_health_says_how_much_work_has_its_capture(tmp_path: Path) -> None:
    events = [
        *replay(199_000, 5, 1, kernel("a", 200_000, 3), kernel("b", 200_010, 5)),
        *replay(299_000, 6, 1, kernel("a", 300_000, 3), kernel("c", 300_010, 5)),
    ]
    path = write_pair(tmp_path, [[A, B]], events)
    [row] = [r for r in ask(path, "health") if r["fact"] == "CUDA graphs with their capture"]
    assert (row["verdict"], row["value"]) == ("note", "50.00 % of 4 kernels, copies and fills")


def test_phases_of_a_captured_training_step(tmp_path: Path) -> None:
    """a was captured in a range `forward`, b in `backward`; a replay runs them 10 us apart."""
    events = [
        *replay(199_000, 5, 1, kernel("a", 200_000, 3), kernel("b", 200_010, 5)),
        *replay(299_000, 6, 1, kernel("a", 300_000, 4), kernel("b", 300_010, 6)),
        event("user_annotation", "optimizer", 400_000, 50), launch(400_010, 7), kernel("c", 400_100, 2, correlation=7),
    ]  # fmt: skip
    path = write_pair(tmp_path, [[A, B]], events)
    listed = json.loads(gzip.decompress((tmp_path / "rank-0.graphs.json.gz").read_bytes()))
    # Node n is captured from 10,010 + 100 n us on.
    listed["traceEvents"] += [
        event("user_annotation", "forward", 10_010, 95), event("user_annotation", "backward", 10_110, 95),
    ]  # fmt: skip
    write_gzip(tmp_path / "rank-0.graphs.json.gz", listed)
    rows = {r["phase"]: (r["gpu_ops"], r["gpu_ns"], r["gpu_span_ns"]) for r in ask(path, "phases")}
    assert rows == {"forward": (2, 7_000, 7_000), "backward": (2, 11_000, 11_000), "optimizer": (1, 2_000, 2_000)}


@pytest.mark.parametrize("block", ["gpu", "full"])
def test_all_kernels_of_a_recorded_graph_of_torch_compile(block: str) -> None:
    """The operator that launches a kernel of Inductor has the kernel's name; the others are products and attention."""
    with analyze.open(RECORDED / "compiled", block=block) as traces:
        rows = traces.sql("SELECT name, op_name, call_name, graph, capture_start_ns FROM gpu_work").dicts()
        [check] = [r for r in traces.query("health").dicts() if r["fact"] == "CUDA graphs with their capture"]
    work = [r for r in rows if r["call_name"] == "cudaGraphLaunch"]
    # Three replays of 35 kernels.
    assert len(work) == 3 * 35 and len({r["capture_start_ns"] for r in work}) == 35
    assert all(r["graph"] == 2 for r in work)
    assert check["value"] == "100.00 % of 105 kernels, copies and fills"
    own = [r for r in work if r["name"].startswith("triton_")]
    assert len(own) == 3 * 22 and all(r["op_name"] == r["name"] for r in own)
    others = Counter("cudnn" if r["name"].startswith("cudnn") else "product" for r in work if r not in own)
    by_op = Counter(r["op_name"] for r in work if r not in own)
    assert others == {"cudnn": 6, "product": 33}
    # In each replay 2 x 2 products without a bias, 2 attentions, and 2 x 2 + 1 products with a bias; 2 of these have a
    # second kernel (split-k).
    assert by_op == {"aten::mm": 12, "aten::addmm": 21, "aten::_cudnn_attention_forward": 6}


def test_modules_of_a_graph_take_as_long_as_eager_ones() -> None:
    """Recorded on one H100 one after the other: the same decode step, launched by the program and replayed."""
    took, pieces = {}, {}
    for mode in ("eager", "graph"):
        with analyze.open(SAMPLES / f"decode-{mode}") as traces:
            # 41 kernels, copies and fills in each of three steps of both blocks.
            [work] = traces.sql("SELECT count(*) AS pieces, count(op_name) AS of_operators FROM gpu_work").dicts()
            assert work == {"pieces": 123, "of_operators": 123}
            pieces[mode] = traces.sql("SELECT name, op_name, dur_ns FROM gpu_work ORDER BY start_ns").dicts()
            rows = traces.query("module-tree", params={"kernels": "no"}).dicts()
        took[mode] = {r["tree"].strip(): r["total_device_ns"] for r in rows if r["kind"] == "module"}
    assert took["graph"].keys() == took["eager"].keys()
    # Modules have the same kernels. Small ones are not as fast in a graph: of the 41 means over three steps, those of
    # less than 6 us differ by up to 22 %, others by up to 6 %. A copy runs as a kernel in the graph.
    for at in range(41):
        eager, graph = ([pieces[mode][at + 41 * step] for step in range(3)] for mode in ("eager", "graph"))
        assert {r["op_name"] for r in graph} == {r["op_name"] for r in eager}
        assert {r["name"] for r in graph} == ({"memcpy32_post"} if at == 39 else {r["name"] for r in eager})
        mean = sum(r["dur_ns"] for r in eager)
        assert sum(r["dur_ns"] for r in graph) == pytest.approx(mean, rel=0.06 if mean >= 3 * 6_000 else 0.23), at
    large = {name: ns for name, ns in took["eager"].items() if ns >= 3 * 6_000}
    assert {"Model_0", "Layer_0", "Layer_1", "Attention_0", "Attention_1", "Sequential_0", "Sequential_1"} <= set(large)
    for name, ns in large.items():
        assert took["graph"][name] == pytest.approx(ns, rel=0.03), name
