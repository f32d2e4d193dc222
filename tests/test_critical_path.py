"""The critical path: each rule by hand, and lengths that add up to the window exactly on every sample."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SAMPLES, ask, lines_run, recorded_tables, sql, with_derived
from traces import event, kernel, launch, write_trace

import analyze
from analyze.derive.critical_path import critical_path
from analyze.derive.critical_path_cpu import critical_path_cpu
from analyze.derive.interval_nesting import by_number
from analyze.derive.numpy_columns import NULL
from analyze.derive.path_graph import Graph, Pieces, Syncs, Window, Work, merge_activities


def path_of(path: Path, window: str = "span") -> list[tuple[Any, ...]]:
    """(kind, start us, length us) along the path, from the first start."""
    turns = "turn IS NULL" if window == "span" else "turn IS NOT NULL"
    rows = sql(path, f"SELECT kind, start_ns, dur_ns FROM critical_path WHERE {turns} ORDER BY turn, seq")
    return [(r["kind"], (r["start_ns"] - rows[0]["start_ns"]) / 1000, r["dur_ns"] / 1000) for r in rows]


def test_launch_kernel_and_sync(tmp_path: Path) -> None:
    # An operator [0, 10) launches at [5, 8) a kernel that runs [12, 40). cudaDeviceSynchronize [10, 43) returns 3 us
    # after it, and another operator follows [50, 60). Back from 60: cpu to 43, sync to 40, the kernel to 12, 4 us after
    # its launch call, cpu.
    events = [
        event("cpu_op", "a", 0, 10), launch(5, 1, 3), kernel("k", 12, 28, correlation=1),
        event("cuda_runtime", "cudaDeviceSynchronize", 10, 33, correlation=2), event("cpu_op", "b", 50, 10),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert path_of(path) == [("cpu", 0, 8), ("launch", 8, 4), ("kernel", 12, 28), ("sync", 40, 3), ("cpu", 43, 17)]
    rows = {r["kind"]: r for r in ask(path, "critical-path")}
    assert (rows["cpu"]["total_ns"], rows["cpu"]["pieces"], rows["cpu"]["path_pct"]) == (
        25000,
        2,
        pytest.approx(2500 / 60),
    )
    # By name: the launch call takes [5, 8) from the operator; behind the sync, 7 us of no event.
    named = {(r["kind"], r["name"]): r["total_ns"] for r in ask(path, "critical-path", params={"group": "name"})}
    assert named == {
        ("cpu", "a"): 5000, ("cpu", "cudaLaunchKernel"): 3000,
        ("launch", "cudaLaunchKernel"): 4000, ("kernel", "k"): 28000,
        ("sync", "cudaDeviceSynchronize"): 3000, ("cpu", "(no event)"): 7000, ("cpu", "b"): 10000,
    }  # fmt: skip


def test_a_queue_of_kernels_hides_the_cpu(tmp_path: Path) -> None:
    # Launches at 0, 2 and 4; kernels [5, 15), [16, 30), [30, 40). Each of the later ones was queued: only the first
    # launch counts. An all-reduce on another stream [18, 25) is hidden; the path ends with the last kernel.
    events = [
        *(launch(2 * n, n + 1) for n in range(3)),
        kernel("a", 5, 10, correlation=1), kernel("b", 16, 14, correlation=2), kernel("c", 30, 10, correlation=3),
        kernel("ncclDevKernel_AllReduce", 18, 7, stream=20),
    ]  # fmt: skip
    assert path_of(write_trace(tmp_path / "t.json", events)) == [
        ("cpu", 0, 1), ("launch", 1, 4), ("kernel", 5, 10), ("gap", 15, 1), ("kernel", 16, 14), ("kernel", 30, 10),
    ]  # fmt: skip


def test_late_launches_put_the_cpu_on_the_path(tmp_path: Path) -> None:
    # The second kernel is launched at 20, when the first [2, 10) is long done: that one is not on the path.
    events = [launch(0, 1), kernel("a", 2, 8, correlation=1), launch(20, 2), kernel("b", 23, 7, correlation=2)]
    assert path_of(write_trace(tmp_path / "t.json", events)) == [("cpu", 0, 21), ("launch", 21, 2), ("kernel", 23, 7)]


def test_launch_call_of_a_kernel_on_the_path(tmp_path: Path) -> None:
    # A driver's call inside one of the runtime under the same id, in either order in the file: the runtime's counts,
    # and the kernel begins 5 us after its end. A driver's call alone: 3 us. An id that two processes used is nobody's.
    runtime = event("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1)
    inside = event("cuda_driver", "cuLaunchKernel", 1, 2, correlation=1)
    alone = event("cuda_driver", "cuLaunchKernelEx", 0, 7, correlation=1)
    other = event("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1) | {"pid": 77, "tid": 77}
    work = kernel("k", 10, 10, correlation=1)
    found = {}
    for name, calls in {
        "inside": [runtime, inside], "before": [inside, runtime], "alone": [alone], "of two": [runtime, other],
    }.items():  # fmt: skip
        path = write_trace(tmp_path / f"{name}.json", [*calls, work])
        found[name] = [piece for piece in path_of(path) if piece[0] in ("cpu", "launch")]
    assert found["inside"] == found["before"] == [("cpu", 0, 5), ("launch", 5, 5)]
    assert found["alone"] == [("cpu", 0, 7), ("launch", 7, 3)]
    assert "launch" not in dict(p[:2] for p in found["of two"])


def test_stream_waits_and_collectives(tmp_path: Path) -> None:
    # A kernel [3, 20) on stream 7, an all-reduce on stream 20 [21, 50) that was made to wait for it, and a kernel on
    # stream 7 [52, 60) that was made to wait for that: all launched before 12.
    events = [
        launch(0, 1), kernel("a", 3, 17, correlation=1),
        event("cuda_runtime", "cudaStreamWaitEvent", 2, 1, correlation=10),
        launch(4, 2), kernel("ncclDevKernel_AllReduce_Sum", 21, 29, stream=20, correlation=2),
        event("cuda_runtime", "cudaStreamWaitEvent", 6, 1, correlation=11),
        launch(8, 3), kernel("b", 52, 8, correlation=3),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert path_of(path) == [
        ("cpu", 0, 1), ("launch", 1, 2), ("kernel", 3, 17), ("stream_wait", 20, 1), ("communication", 21, 29),
        ("stream_wait", 50, 2), ("kernel", 52, 8),
    ]  # fmt: skip
    # Without the waits, b waited for its own stream alone, and the all-reduce for nothing but its launch.
    unlinked = [e for e in events if e["name"] != "cudaStreamWaitEvent"]
    assert path_of(write_trace(tmp_path / "u" / "t.json", unlinked))[-2:] == [("gap", 20, 32), ("kernel", 52, 8)]


def test_backward_runs_on_another_thread(tmp_path: Path) -> None:
    # Thread 1: forward [0, 10), then it waits in backward while thread 2 works [15, 30) and [32, 60); it goes on at
    # [64, 80).
    events = [
        event("cpu_op", "forward", 0, 10), event("cpu_op", "optimizer", 64, 16),
        event("cpu_op", "b1", 15, 15, tid=2), event("cpu_op", "b2", 32, 28, tid=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = sql(path, "SELECT tid, dur_ns FROM critical_path WHERE turn IS NULL ORDER BY seq")
    assert [(r["tid"], r["dur_ns"]) for r in rows] == [(1, 10000), (2, 50000), (1, 20000)]


def test_a_blocking_copy(tmp_path: Path) -> None:
    # A kernel [3, 30), and a copy to pageable memory behind it [31, 35), whose call [5, 37) blocks: sync of 2 us.
    events = [
        launch(0, 1), kernel("a", 3, 27, correlation=1), launch(5, 2, 32, "cudaMemcpyAsync"),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 31, 4, 0, 7, device=0, stream=7, correlation=2),
        event("cpu_op", "after", 40, 10),
    ]  # fmt: skip
    assert path_of(write_trace(tmp_path / "t.json", events)) == [
        ("cpu", 0, 1), ("launch", 1, 2), ("kernel", 3, 27), ("gap", 30, 1), ("copy", 31, 4), ("sync", 35, 2),
        ("cpu", 37, 13),
    ]  # fmt: skip


def test_critical_path_of_each_step(tmp_path: Path) -> None:
    """A step is cut at its edges; the work that goes on in the next one is on the path only where it is waited for."""
    events = [
        event("user_annotation", "ProfilerStep#3", 0, 20), event("user_annotation", "ProfilerStep#4", 20, 30),
        event("cpu_op", "a", 1, 15), launch(10, 1), kernel("k", 15, 20, correlation=1),
        event("cuda_runtime", "cudaStreamSynchronize", 25, 12, correlation=2), event("cpu_op", "b", 40, 9),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "critical-path", params={"window": "step"})
    assert [(r["step"], r["kind"], r["total_ns"], r["window_ns"]) for r in rows] == [
        (3, "cpu", 20000, 20000), (4, "kernel", 15000, 30000), (4, "cpu", 13000, 30000), (4, "sync", 2000, 30000),
    ]  # fmt: skip


def test_unlinked_work_alone(tmp_path: Path) -> None:
    """Without launch calls the stream's own order is all there is; what is before is not explained."""
    events = [event("cpu_op", "a", 0, 1), kernel("k", 10, 5), kernel("l", 17, 3), kernel("zero", 17, 0)]
    path = path_of(write_trace(tmp_path / "t.json", events))
    assert path == [("other", 0, 10), ("kernel", 10, 5), ("gap", 15, 2), ("kernel", 17, 3)]


@pytest.mark.parametrize("window", ["span", "step"])
@pytest.mark.parametrize("group", ["kind", "name"])
def test_pieces_add_up_on_every_sample(window: str, group: str) -> None:
    traces = analyze.open(SAMPLES)
    turns = "turn IS NULL" if window == "span" else "turn IS NOT NULL"
    pieces = traces.sql(
        f"SELECT p.*, s.step FROM (SELECT * FROM critical_path WHERE {turns}) p"
        " LEFT JOIN step_ranges s USING (run_id, rank, turn) ORDER BY run_id, rank, step, seq"
    ).dicts()
    ends: dict[tuple[Any, ...], int] = {}
    lengths: dict[tuple[Any, ...], int] = {}
    for p in pieces:
        key = (p["run_id"], p["rank"], p["step"])
        assert p["start_ns"] == ends.get(key, p["start_ns"]) and p["dur_ns"] > 0, "end to end"
        ends[key] = p["start_ns"] + p["dur_ns"]
        lengths[key] = lengths.get(key, 0) + p["dur_ns"]
    assert len(lengths) >= 8
    sums: dict[tuple[Any, ...], int] = {}
    for r in traces.query("critical-path", params={"window": window, "group": group}).dicts():
        key = (r["run_id"], r["rank"], r["step"])
        assert r["window_ns"] == lengths[key]
        sums[key] = sums.get(key, 0) + r["total_ns"]
    assert sums == lengths
    if window == "step":
        for r in traces.sql("SELECT run_id, rank, step, end_ns - start_ns AS ns FROM step_windows").dicts():
            assert lengths.get((r["run_id"], r["rank"], r["step"]), r["ns"]) == r["ns"]


def graph_of(
    work: list[tuple[Any, ...]], calls: list[tuple[int, int, int]], syncs: list[tuple[int, int, int]]
) -> Graph:
    """A rank of GPU work, calls (thread, start, end) and syncs (thread, end, place of the work)."""
    rows = np.array(work, np.int64).reshape(-1, 7)
    *numbers, may_wait = rows.T
    ordered = np.array(sorted(syncs, key=lambda s: s[1]), np.int64).reshape(-1, 3)
    busy = merge_activities(*np.array(calls, np.int64).reshape(-1, 3).T)
    return Graph(Work(*numbers, may_wait.astype(bool)), Syncs(*ordered.T), busy)


def test_any_events_give_a_path_of_the_right_length() -> None:
    """Overlaps, 0 ns, unlinked work and calls in any order: the path ends, and its pieces fill the window."""
    random = np.random.default_rng(0)
    for _ in range(300):
        n = int(random.integers(1, 30))
        starts = np.sort(random.integers(0, 60, n))
        ends = starts + random.integers(0, 12, n)
        launched = random.random(n) < 0.8
        launch = np.where(launched, starts - random.integers(-2, 20, n), NULL)
        launch_end = np.where(launched, launch + random.integers(0, 4, n), NULL)
        tid = np.where(launched, random.integers(1, 3, n), NULL)
        stream, may_wait = random.integers(0, 3, n), random.integers(0, 2, n)
        work = np.stack([stream, starts, ends, tid, launch, launch_end, may_wait], axis=1).tolist()
        calls = np.stack([random.integers(1, 4, n), random.integers(0, 70, n), random.integers(0, 15, n)], axis=1)
        calls[:, 2] += calls[:, 1]
        waited = random.integers(0, n, n)
        syncs = np.stack([random.integers(1, 4, n), ends[waited] + random.integers(0, 3, n), waited], axis=1).tolist()
        graph = graph_of(work, calls.tolist(), syncs)
        end = int(max(ends.max(), calls[:, 2].max()))
        for a, b in ((-20, end), (3, max(3, end - 5))):
            for on_cpu in (True, False):
                [path] = graph.paths([Window(a, b, on_cpu)])
                assert (path.start < path.end).all() and (path.end[:-1] == path.start[1:]).all()
                assert (path.end - path.start).sum() == b - a


def waited_for(kernels: int) -> Pieces:
    """The path through so many kernels, each waited for: cpu, launch, kernel, sync for each."""
    at = [10 * i for i in range(kernels)]
    work = [(0, t + 3, t + 8, 1, t, t + 1, 0) for t in at]
    calls = [call for t in at for call in ((1, t, t + 1), (1, t + 2, t + 9))]
    graph = graph_of(work, calls, [(1, t + 9, i) for i, t in enumerate(at)])
    return graph.paths([Window(0, 10 * kernels - 1, on_cpu=True)])[0]


def test_cost_is_linear() -> None:
    assert len(waited_for(40_000).start) == 4 * 40_000
    once, tenfold = (lines_run(partial(waited_for, n)) for n in (300, 3000))
    assert tenfold < 11 * once


def tables_of(**rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """The tables of a rank with these rows, and those that are derived from them."""
    return with_derived(recorded_tables(**rows))


def op(name: str, start: int, dur: int, tid: int = 1) -> dict[str, Any]:
    return {"name": name, "tid": tid, "start_ns": start, "dur_ns": dur}


def test_overlapping_overhead_counts_once() -> None:
    # An operator [0, 200) on thread 1. Of the overhead on thread 2, on which another one runs [0, 1), nothing is on the
    # path; on thread 9 nothing else ran.
    overhead = [("a", 10, 50, 1), ("b", 20, 10, 1), ("c", 50, 20, 1), ("d", 71, 9, 2), ("e", 90, 30, 9)]
    tables = tables_of(
        cpu_ops=[op("x", 0, 200), op("y", 0, 1, tid=2)], ranges=[op(*o) | {"origin": "overhead"} for o in overhead]
    )
    pieces = critical_path(tables).to_pylist()
    assert [(p["kind"], p["name"], p["start_ns"], p["dur_ns"]) for p in pieces] == [
        ("cpu", None, 0, 10), ("profiler", "a", 10, 50), ("profiler", "c", 60, 10), ("cpu", None, 70, 20),
        ("profiler", "e", 90, 30), ("cpu", None, 120, 80),
    ]  # fmt: skip


def test_a_family_and_a_short_name_of_kernels() -> None:
    work = {"device": 0, "stream": 7, "dur_ns": 10}
    tables = tables_of(
        kernels=[work | {"name": name, "start_ns": at} for name, at in (("ncclX<1>", 0), (None, 10), ("f<2>()", 20))],
        memsets=[work | {"start_ns": 30}],
        kernel_names=[
            {"name": "f<2>()", "short_name": "f", "family": "other"},
            {"name": "ncclX<1>", "short_name": "ncclX", "family": "communication"},
        ],
    )
    assert [(p["kind"], p["name"]) for p in critical_path(tables).to_pylist()] == [
        ("communication", "ncclX"), ("kernel", "kernel"), ("kernel", "f"), ("copy", "memset"),
    ]  # fmt: skip


def test_profiler_overhead_is_a_category(tmp_path: Path) -> None:
    # An operator [0, 100) on thread 1 with a buffer request of the profiler [20, 50) inside, on a thread on which
    # nothing else ran; thread 2, not on the path, has an operator [10, 70) and loads a function [60, 65). A kernel
    # launched at [90, 95) runs [98, 150); the call that waits for it, [110, 160), returns late: a flush takes [155,
    # 158) of it.
    events = [
        event("cpu_op", "a", 0, 100), event("overhead", "Activity Buffer Request", 20, 30, tid=0),
        event("cpu_op", "b", 10, 60, tid=2), event("overhead", "Lazy Function Loading", 60, 5, tid=2),
        launch(90, 1, 5), kernel("k", 98, 52, correlation=1),
        event("cuda_runtime", "cudaDeviceSynchronize", 110, 50, correlation=2),
        event("overhead", "Buffer Flush", 155, 3),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert path_of(path) == [
        ("cpu", 0, 20), ("profiler", 20, 30), ("cpu", 50, 45), ("launch", 95, 3), ("kernel", 98, 52), ("sync", 150, 5),
        ("profiler", 155, 3), ("sync", 158, 2),
    ]  # fmt: skip
    named = {(r["kind"], r["name"]): r["total_ns"] for r in ask(path, "critical-path", params={"group": "name"})}
    assert named == {
        ("cpu", "a"): 60000, ("cpu", "cudaLaunchKernel"): 5000, ("launch", "cudaLaunchKernel"): 3000,
        ("kernel", "k"): 52000, ("sync", "cudaDeviceSynchronize"): 7000,
        ("profiler", "Activity Buffer Request"): 30000, ("profiler", "Buffer Flush"): 3000,
    }  # fmt: skip


def test_names_of_partially_overlapping_events(tmp_path: Path) -> None:
    # a [0, 10) and b [5, 15) of one thread: behind 10 only b is open. Two that are equal: the last by name. An empty
    # one is never open, one of another thread nowhere here.
    events = [
        event("cpu_op", "a", 0, 10), event("cpu_op", "b", 5, 10), event("cpu_op", "empty", 7, 0),
        event("cpu_op", "d", 15, 5), event("cpu_op", "c", 15, 5), event("cpu_op", "beside", 2, 1, tid=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "critical-path", params={"group": "name"})
    assert {r["name"]: (r["pieces"], r["total_ns"]) for r in rows} == {"a": (1, 5000), "b": (1, 10000), "d": (1, 5000)}


EVENTS = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20), st.integers(0, 10), st.sampled_from("abc")))


@settings(deadline=None)
@given(EVENTS, EVENTS)
def test_innermost_event_is_the_last_begun(events: list[tuple[int, int, int, str]], cuts: Any) -> None:
    """Against its definition, moment by moment; events overlap in any way."""
    pieces, at = [], {1: 0, 2: 0}
    for tid, gap, dur, _ in cuts:
        pieces.append(
            {"turn": None, "seq": len(pieces), "kind": "cpu", "tid": tid, "start_ns": at[tid] + gap, "dur_ns": dur}
        )
        at[tid] += gap + dur
    ops = [op(name, start, dur, tid) for tid, start, dur, name in events]
    tables = recorded_tables(cpu_ops=ops, critical_path=pieces)
    expected: dict[tuple[int, str | None], int] = {}
    for piece in pieces:
        for t in range(piece["start_ns"], piece["start_ns"] + piece["dur_ns"]):
            open_ = [(s, -d, n) for tid, s, d, n in events if tid == piece["tid"] and s <= t < s + d]
            key = (piece["seq"], max(open_)[2] if open_ else None)
            expected[key] = expected.get(key, 0) + 1
    found = critical_path_cpu(tables).to_pylist()
    assert {(r["seq"], r["name"]): r["dur_ns"] for r in found} == expected and len(found) == len(expected)


@given(st.lists(st.sampled_from([0, 1, 2, 2**16 - 1, 2**16, 2**40])))
def test_equal_times_sort_stably(numbers: list[int]) -> None:
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert by_number(np.array(numbers, np.int64)).tolist() == expected
