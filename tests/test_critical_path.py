"""The critical path: each rule by hand, and lengths that add up to the window exactly on every sample."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, ask, event, kernel, launch, lines_run, sql, write_trace

import analyze
from analyze.query.computed import critical_path, innermost, path_events, path_rows, path_totals, path_walk
from analyze.query.computed.nesting import by_number
from analyze.query.computed.path_chains import Chain
from analyze.query.computed.path_walk import COPIES, SYNCHRONIZES, Rank, Segment, without_overhead
from analyze.query.computed.places import UNKNOWN, Among, Places
from analyze.query.engine import Engine


def path_of(path: Path, window: str = "span") -> list[tuple[Any, ...]]:
    """(kind, start us, length us) along the path, from the first start."""
    rows = sql(path, f"SELECT kind, start_ns, dur_ns FROM critical_path_{window} ORDER BY step, seq")
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


def test_which_call_launched(tmp_path: Path) -> None:
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
    rows = sql(path, "SELECT tid, dur_ns FROM critical_path_span ORDER BY seq")
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


def test_steps(tmp_path: Path) -> None:
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
    pieces = traces.sql(f"SELECT * FROM critical_path_{window} ORDER BY run_id, rank, step, seq").to_pylist()
    ends: dict[tuple[Any, ...], int] = {}
    lengths: dict[tuple[Any, ...], int] = {}
    for p in pieces:
        key = (p["run_id"], p["rank"], p["step"])
        assert p["start_ns"] == ends.get(key, p["start_ns"]) and p["dur_ns"] > 0, "end to end"
        ends[key] = p["start_ns"] + p["dur_ns"]
        lengths[key] = lengths.get(key, 0) + p["dur_ns"]
    assert len(lengths) >= 8
    sums: dict[tuple[Any, ...], int] = {}
    for r in traces.query("critical-path", params={"window": window, "group": group}).to_pylist():
        key = (r["run_id"], r["rank"], r["step"])
        assert r["window_ns"] == lengths[key]
        sums[key] = sums.get(key, 0) + r["total_ns"]
    assert sums == lengths
    if window == "step":
        for r in traces.sql("SELECT run_id, rank, step, end_ns - start_ns AS ns FROM step_windows").to_pylist():
            assert lengths.get((r["run_id"], r["rank"], r["step"]), r["ns"]) == r["ns"]


def rank_of(work: list[tuple[Any, ...]], cpu: list[tuple[Any, ...]]) -> Rank:
    """A rank of GPU work and of calls, each with these columns in order."""
    integer, text = pa.int64(), pa.string()
    work_columns = {
        "device": integer, "stream": integer, "name": text, "correlation_id": integer, "op_id": integer, "class": text,
        "start_ns": integer, "end_ns": integer, "tid": integer, "launch_ns": integer, "launch_end_ns": integer,
        "launch": text, "waits": pa.bool_(),
    }  # fmt: skip
    cpu_columns = {
        "tid": integer, "start_ns": integer, "end_ns": integer, "name": text, "correlation_id": integer,
        "blocks": pa.int8(),
    }  # fmt: skip
    of_work, of_cpu = (
        pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=pa.schema(columns))
        for rows, columns in ((work, work_columns), (cpu, cpu_columns))
    )
    return Rank(of_work, of_cpu.select(["tid", "start_ns", "end_ns"]), of_cpu.filter(of_cpu["blocks"].is_valid()))


def test_any_events_give_a_path_of_the_right_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlaps, 0 ns, unlinked work and calls in any order: the walk ends, and its pieces fill the window. They are
    the same whether work is gone through one by one or in arrays."""
    chained = 0
    random = np.random.default_rng(0)
    for _ in range(300):
        n = int(random.integers(1, 30))
        starts = np.sort(random.integers(0, 60, n))
        work = []
        for i, start in enumerate(starts.tolist()):
            launch_at = int(start - random.integers(-2, 20)) if random.random() < 0.8 else None
            work.append(
                (
                    0, int(random.integers(0, 3)), "k", i, None, "kernel", start, start + int(random.integers(0, 12)),
                    int(random.integers(1, 3)), launch_at,
                    None if launch_at is None else launch_at + int(random.integers(0, 4)),
                    "cudaLaunchKernel", bool(random.integers(0, 2)),
                )
            )  # fmt: skip
        cpu = sorted(
            (
                int(random.integers(1, 4)), s, s + int(random.integers(0, 15)), "c", int(random.integers(0, 30)),
                int(b) or None,
            )
            for s, b in zip(
                random.integers(0, 70, n).tolist(), random.choice([0, SYNCHRONIZES, COPIES], n).tolist(), strict=True
            )
        )  # fmt: skip
        rank = rank_of(work, cpu)
        begin, end = rank.span() or (0, 0)
        for a, b in ((begin, end), (begin + 3, max(begin + 3, end - 5))):
            for on_cpu in (True, False):
                monkeypatch.setattr(path_walk, "_FEW", 1 << 60)
                path = rank.walk(a, b, on_cpu)
                rows = path_rows.rows(("run", 0, None, None), rank, path).to_pylist()
                assert sum(r["dur_ns"] for r in rows) == b - a
                assert all(x["start_ns"] + x["dur_ns"] == y["start_ns"] for x, y in pairwise(rows))
                assert all(isinstance(piece, Segment) for piece in path)
                monkeypatch.setattr(path_walk, "_FEW", 1)
                path = rank.walk(a, b, on_cpu)
                assert path_rows.rows(("run", 0, None, None), rank, path).to_pylist() == rows
                chained += sum(isinstance(piece, Chain) for piece in path)
    assert chained > 300


def waited_for(kernels: int) -> list[Segment | Chain]:
    """The path through so many kernels, each waited for: cpu, launch, kernel, sync for each."""
    work = [
        (0, 7, "k", i, None, "kernel", 10 * i + 3, 10 * i + 8, 1, 10 * i, 10 * i + 1, "l", False)
        for i in range(kernels)
    ]
    cpu = [
        c
        for i in range(kernels)
        for c in ((1, 10 * i, 10 * i + 1, "l", i, None), (1, 10 * i + 2, 10 * i + 9, "s", None, SYNCHRONIZES))
    ]
    return rank_of(work, cpu).walk(0, 10 * kernels - 1, True)


def test_cost_is_linear() -> None:
    assert len(waited_for(40_000)) == 4 * 40_000
    once, tenfold = (lines_run(partial(waited_for, n)) for n in (300, 3000))
    assert tenfold < 11 * once


def test_the_table_for_other_programs() -> None:
    """`critical_path_step` has the pieces of all ranks, of the runs that were selected, numbered from one end on."""
    engine = Engine(analyze.open(SAMPLES).stores, where="parallelism = 'ddp'")
    pieces = engine.sql("SELECT rank, step, seq, start_ns, dur_ns FROM critical_path_step ORDER BY ALL").rows()
    assert {(rank, step) for rank, step, *_ in pieces} == {(0, 3), (0, 4), (1, 3), (1, 4)}
    for (_, before), (_, after) in pairwise((p[:3], p) for p in pieces):
        if before[:2] == after[:2]:
            assert after[2] == before[2] + 1 and after[3] == before[3] + before[4]


def test_the_profilers_own_time(tmp_path: Path) -> None:
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


def test_overhead_that_overlaps_counts_once() -> None:
    path = [Segment("cpu", None, 1, None, None, None, None, 0, 100), Segment("kernel", "k", *[None] * 5, 100, 200)]
    overhead = [(1, 10, 60, "a"), (1, 20, 30, "b"), (1, 50, 70, "c"), (2, 71, 80, "d"), (None, 90, 120, "e")]
    pieces = [(s.kind, s.name, s.start, s.end) for s in without_overhead(path, overhead)]
    # Of thread 2 nothing is on the path, and of GPU work nothing is the profiler's.
    assert pieces == [
        ("cpu", None, 0, 10), ("profiler", "a", 10, 60), ("profiler", "c", 60, 70), ("cpu", None, 70, 90),
        ("profiler", "e", 90, 100), ("kernel", "k", 100, 200),
    ]  # fmt: skip


@pytest.mark.parametrize("window", ["span", "step"])
def test_batches_of_ranks_have_the_same_paths(window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = analyze.open(SAMPLES / "pipeline-4gpu").stores
    rows = f"SELECT * FROM critical_path_{window} ORDER BY ALL"
    whole = Engine(stores).rows(rows, [f"critical_path_{window}"])
    assert len({(r[0], r[1]) for r in whole}) == 4
    monkeypatch.setattr(critical_path, "_BATCH", 1)
    assert Engine(stores).rows(rows, [f"critical_path_{window}"]) == whole
    # With room for one of them alone.
    monkeypatch.setattr(critical_path, "_EVENT_BYTES", 1 << 40)
    assert Engine(stores).rows(rows, [f"critical_path_{window}"]) == whole


@pytest.mark.parametrize("window", ["span", "step"])
def test_batches_of_ranks_have_the_same_names(window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = analyze.open(SAMPLES / "pipeline-4gpu").stores
    table = f"critical_path_by_name_{window}"
    rows = f"SELECT * FROM {table} ORDER BY ALL"
    whole = Engine(stores).rows(rows, [table])
    assert len({(r[0], r[1]) for r in whole}) == 4
    monkeypatch.setattr(path_totals, "_BATCH", 1)
    assert Engine(stores).rows(rows, [table]) == whole
    # With room for one of them alone.
    with monkeypatch.context() as alone:
        alone.setattr(path_totals, "_EVENT_BYTES", 1 << 40)
        assert Engine(stores).rows(rows, [table]) == whole
    # Without what is compiled, too.
    monkeypatch.setattr(innermost, "compiled", None)
    assert Engine(stores).rows(rows, [table]) == whole
    # Of each rank and step they have the time of all its pieces, and of each kind.
    path, both = f"critical_path_{window}", ["run_id", "rank", "step", "kind"]
    lengths = f"SELECT {', '.join(both)}, sum({{}})::BIGINT AS ns FROM {{}} GROUP BY ALL ORDER BY ALL"
    pieces = Engine(stores).rows(lengths.format("dur_ns", path), [path])
    for name in (table, f"critical_path_by_kind_{window}"):
        assert Engine(stores).rows(lengths.format("total_ns", name), [name]) == pieces


def test_names_of_events_that_overlap_in_part(tmp_path: Path) -> None:
    # a [0, 10) and b [5, 15) of one thread: behind 10 only b is open. Two that are equal: the last by name. An empty
    # one is never open, one of another thread nowhere here.
    events = [
        event("cpu_op", "a", 0, 10), event("cpu_op", "b", 5, 10), event("cpu_op", "empty", 7, 0),
        event("cpu_op", "d", 15, 5), event("cpu_op", "c", 15, 5), event("cpu_op", "beside", 2, 1, tid=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "critical-path", params={"group": "name"})
    assert {r["name"]: (r["pieces"], r["total_ns"]) for r in rows} == {"a": (1, 5000), "b": (1, 10000), "d": (1, 5000)}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-1, 0, 7, 2**62]) | st.integers(0, 9)), max_size=40))
def test_rows_of_each_thread(rows: list[tuple[int, int]]) -> None:
    """Of few threads and of more than are looked for one by one."""
    expected: dict[tuple[int, int], list[int]] = {}
    for at, thread in enumerate(rows):
        expected.setdefault(thread, []).append(at)
    process, tid = (np.array([row[i] for row in rows], kind) for i, kind in enumerate((np.int32, np.int64)))
    found = [here.tolist() for here in path_events._of_threads(process, tid)]
    assert sorted(found) == sorted(expected.values())


@given(st.lists(st.integers(1, 60)), st.sampled_from([1, 10**6]), st.lists(st.integers(-2, 62)))
def test_numbers_are_found_near_each_other_or_far_apart(values: list[int], apart: int, wanted: list[int]) -> None:
    of = np.array(values, np.int64) * apart
    asked = np.append(np.array(wanted, np.int64) * apart, [UNKNOWN, 7 * apart + 1])
    last = {value: place for place, value in enumerate(of.tolist())}
    assert Places(of).of(asked).tolist() == [last.get(n, -1) for n in asked.tolist()]
    assert Among(of).has(asked).tolist() == [n in last for n in asked.tolist()]


@given(st.lists(st.sampled_from([0, 1, 2, 2**16 - 1, 2**16, 2**40])))
def test_the_order_of_numbers_is_stable(numbers: list[int]) -> None:
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert by_number(np.array(numbers, np.int64)).tolist() == expected
