"""Launch calls, queues and sequences of small traces. Times in the comments are us, in the rows ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, op, write_trace


def test_launch(tmp_path: Path) -> None:
    # Call [0, 5), kernel [9, 29): delay 4. Call [10, 16), kernel [29, 31): delay 13, and 2 < 6 is short. Call [20,
    # 21), kernel from 20.5: a kernel that starts before its call returns was not delayed.
    events = [
        launch(0, 1, 5), kernel("a", 9, 20, correlation=1),
        launch(10, 2, 6), kernel("b", 29, 2, correlation=2),
        launch(20, 3, 1), kernel("c", 20.5, 1, stream=8, correlation=3),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events), "launch")
    assert (row["rank"], row["device"], row["name"], row["calls"], row["kernels"]) == (0, 0, "cudaLaunchKernel", 3, 3)
    assert (row["call_ns"], row["queue_delay_ns"], row["short_kernels"]) == (12_000, 17_000, 1)
    assert (row["avg_call_ns"], row["avg_queue_delay_ns"], row["max_queue_delay_ns"]) == (
        4_000,
        pytest.approx(17_000 / 3),
        13_000,
    )


def test_every_launch_function(tmp_path: Path) -> None:
    # A call that launches by its name counts even if the trace lost its kernel; other calls do not, nor do host
    # functions.
    names = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel"]
    events = [kernel("k", 100 + i, 1, correlation=1 + i) for i in range(len(names))]
    events += [launch(10 * i, 1 + i, name=name) for i, name in enumerate(names)]
    lost = ["cudaLaunchKernel", "cudaLaunchHostFunc", "cudaStreamSynchronize", "cudaMemcpyAsync"]
    events += [launch(60 + i, 50 + i, name=name) for i, name in enumerate(lost)]
    rows = ask(write_trace(tmp_path / "t.json", events), "launch")
    assert sorted((r["name"], r["device"]) for r in rows if r["device"] is not None) == sorted((n, 0) for n in names)
    [unlinked] = [r for r in rows if r["device"] is None]
    assert (unlinked["name"], unlinked["calls"], unlinked["kernels"], unlinked["queue_delay_ns"]) == (
        "cudaLaunchKernel", 1, 0, 0,
    )  # fmt: skip


def test_a_graph_launch_is_one_call(tmp_path: Path) -> None:
    # One call [0, 10), three kernels of 4 with its correlation id: delay to the first = 5; 12 >= 10, so not short.
    events = [launch(0, 1, 10, "cudaGraphLaunch")]
    events += [kernel(f"k{i}", 15 + 5 * i, 4, correlation=1, **{"graph id": 7}) for i in range(3)]
    [row] = ask(write_trace(tmp_path / "t.json", events), "launch")
    assert (row["name"], row["calls"], row["kernels"], row["call_ns"]) == ("cudaGraphLaunch", 1, 3, 10_000)
    assert (row["queue_delay_ns"], row["short_kernels"]) == (5_000, 0)


def test_a_graph_of_copies_alone_launches_no_kernel(tmp_path: Path) -> None:
    """Nor did the trace lose what it launched: with the copies counted, its delay is theirs."""
    copies = [
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", ts, 3, 0, 7, device=0, stream=7, correlation=n, bytes=8)
        for ts, n in ((11, 1), (30, 2))
    ]
    calls = [launch(10 * n, n, 4, name="cudaGraphLaunch") for n in (1, 2, 3)]
    events = [*calls, *copies, kernel("k", 20, 5, correlation=1)]
    path = write_trace(tmp_path / "t.json", [*events, launch(90, 9, name="cudaGraphLaunch")])
    asked = ("device", "calls", "kernels", "queue_delay_ns")
    rows = {work: ask(path, "launch", params={"work": work}) for work in ("kernels", "all")}
    assert [tuple(r[c] for c in asked) for r in rows["kernels"]] == [(0, 1, 1, 6000), (None, 2, 0, 0)]
    assert [tuple(r[c] for c in asked) for r in rows["all"]] == [(0, 2, 3, 6000), (None, 2, 0, 0)]


def test_kernels_without_a_launch_call(tmp_path: Path) -> None:
    events = [launch(0, 1), kernel("a", 5, 1, correlation=1), kernel("b", 6, 1, correlation=2), kernel("c", 7, 1)]
    rows = {
        r["name"]: (r["calls"], r["kernels"], r["queue_delay_ns"])
        for r in ask(write_trace(tmp_path / "t.json", events), "launch")
    }
    assert rows == {"cudaLaunchKernel": (1, 1, 4_000), "(no launch call)": (0, 2, 0)}


def test_unknown_launch_delay_is_null(tmp_path: Path) -> None:
    """Call 1 ends at 5 and its kernel begins at 9; nobody knows when call 2 ended, whose kernel begins at 30."""
    events = [
        launch(0, 1, 5), kernel("a", 9, 1, correlation=1),
        launch(10, 2, -1), kernel("b", 30, 1, correlation=2),
        launch(20, 3, 5), kernel("c", 50, 1, correlation=9),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "launch")
    columns = ("name", "device", "calls", "avg_queue_delay_ns", "max_queue_delay_ns")
    assert sorted((tuple(r[c] for c in columns) for r in rows), key=str) == [
        ("(no launch call)", 0, 0, None, None),
        ("cudaLaunchKernel", 0, 2, 4000, 4000),
        ("cudaLaunchKernel", None, 1, None, None),
    ]


def test_a_driver_call_inside_a_runtime_call_is_one_launch(tmp_path: Path) -> None:
    events = [
        launch(0, 1, 9),
        event("cuda_driver", "cuLaunchKernel", 2, 5, correlation=1),
        kernel("a", 20, 1, correlation=1),
    ]
    [row] = ask(write_trace(tmp_path / "t.json", events), "launch")
    assert (row["name"], row["calls"], row["queue_delay_ns"]) == ("cudaLaunchKernel", 1, 11_000)


def test_launch_outliers(tmp_path: Path) -> None:
    # Calls of 60 and 2, delays of 0 and 150: one call over 50, one delay over 100; with higher limits none.
    events = [
        launch(0, 1, 60), kernel("a", 60, 100, correlation=1),
        launch(70, 2, 2), kernel("b", 222, 9, correlation=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "launch")
    assert (row["outliers"], row["call_outliers"], row["delay_outliers"]) == (2, 1, 1)
    [row] = ask(path, "launch", params={"call_us": 60, "delay_us": 150})
    assert (row["outliers"], row["call_outliers"], row["delay_outliers"]) == (0, 0, 0)


def test_launch_of_copies_on_request(tmp_path: Path) -> None:
    events = [
        launch(0, 1), kernel("a", 5, 9, correlation=1),
        launch(10, 2, name="cudaMemcpyAsync"),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, 5, 0, 7, device=0, stream=7, correlation=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert [r["name"] for r in ask(path, "launch")] == ["cudaLaunchKernel"]
    rows = {r["name"]: (r["calls"], r["queue_delay_ns"]) for r in ask(path, "launch", params={"work": "all"})}
    assert rows == {"cudaLaunchKernel": (1, 4_000), "cudaMemcpyAsync": (1, 9_000)}


def test_launch_per_device_of_a_process(tmp_path: Path) -> None:
    events = [launch(0, 1), launch(2, 2), kernel("a", 5, 1, correlation=1), kernel("a", 5, 1, device=1, correlation=2)]
    rows = ask(write_trace(tmp_path / "t.json", events), "launch")
    assert [(r["device"], r["calls"], r["queue_delay_ns"]) for r in rows] == [(0, 1, 4_000), (1, 1, 2_000)]


def test_queue_depth(tmp_path: Path) -> None:
    # Stream 7: queued [0, 20), [10, 30) and [50, 60), over 60: depth 1 for 10 + 10 + 10, 2 for 10, 0 for 20: mean 50
    # / 60. Stream 8: the kernel starts when its call does.
    events = [
        launch(0, 1), kernel("a", 20, 5, correlation=1),
        launch(10, 2), kernel("b", 30, 5, correlation=2),
        launch(50, 3), kernel("c", 60, 5, correlation=3),
        launch(70, 4), kernel("d", 70, 5, stream=8, correlation=4),
        kernel("unlinked", 80, 5, stream=9),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    seven, eight = ask(path, "queue-depth")
    assert (seven["stream"], seven["launches"], seven["span_ns"]) == (7, 3, 60_000)
    assert (seven["avg_depth"], seven["max_depth"]) == (pytest.approx(50 / 60), 2)
    assert (seven["empty_ns"], seven["empty_pct"], seven["full_ns"]) == (20_000, pytest.approx(100 / 3), 0)
    assert (eight["stream"], eight["launches"], eight["max_depth"], eight["avg_depth"]) == (8, 1, 0, None)
    assert ask(path, "queue-depth", params={"full": 2})[0]["full_ns"] == 10_000


def test_queue_depth_over_time(tmp_path: Path) -> None:
    # Queued on two streams of GPU 0: [0, 20), [10, 30), [15, 30) and [50, 60), in buckets of 20 us. First: depth 1 for
    # 10 + 0, 2 from 10 to 15, 3 from 15 to 20: 10 + 10 + 15 = 35 us. Second: 2 for 10 us, then nothing for 10. Third:
    # nothing for 10, then 1. GPU 1: [5, 6), in three buckets of 1 ns more than a third of it, the last one shorter.
    events = [
        launch(0, 1), kernel("a", 20, 5, correlation=1), launch(10, 2), kernel("b", 30, 5, correlation=2),
        launch(15, 3), kernel("c", 30, 5, stream=8, correlation=3), launch(50, 4), kernel("d", 60, 5, correlation=4),
        launch(5, 5), kernel("e", 6, 5, 1, correlation=5), kernel("unlinked", 90, 5),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "queue-timeline", params={"buckets": 3})
    of = [[r[c] for c in ("start_ns", "span_ns", "max_depth", "waiting_ns", "empty_ns")] for r in rows]
    assert [r["device"] for r in rows] == [0, 0, 0, 1, 1, 1] and [r["bucket"] for r in rows] == [0, 1, 2] * 2
    assert of[:3] == [
        [0, 20_000, 3, 35_000, 0],
        [20_000, 20_000, 2, 20_000, 10_000],
        [40_000, 20_000, 1, 10_000, 10_000],
    ]
    assert of[3:] == [[5000, 334, 1, 334, 0], [5334, 334, 1, 334, 0], [5668, 332, 1, 332, 0]]
    assert [r["avg_depth"] for r in rows] == [1.75, 1, 0.5, 1, 1, 1]


def test_queue_depth_over_time_adds_up() -> None:
    """On a real recording, the buckets have the time that launches are queued, and their largest depth."""
    path = SAMPLES / "resnet18-ddp2"
    rows = ask(path, "queue-timeline", params={"buckets": 7})
    for rank in (0, 1):
        streams = [r for r in ask(path, "queue-depth") if r["rank"] == rank]
        [of_calls] = sql(path, f"SELECT sum(end_ns - start_ns) AS ns FROM queued_launches WHERE rank = {rank}")
        mine = [r for r in rows if r["rank"] == rank]
        assert sum(r["waiting_ns"] for r in mine) == of_calls["ns"]
        assert max(r["max_depth"] for r in streams) <= max(r["max_depth"] for r in mine)
        assert max(r["max_depth"] for r in mine) <= sum(r["max_depth"] for r in streams)


@pytest.mark.parametrize("sample", ["alexnet-dp2", "late-rank"])
def test_no_launch_delay_of_a_sample_exceeds_its_span(sample: str) -> None:
    path = SAMPLES / sample
    extents = sql(
        path,
        "SELECT run_id, rank, max(start_ns + dur_ns) - min(start_ns) AS ns FROM ("
        " SELECT run_id, rank, start_ns, dur_ns FROM gpu_work"
        " UNION ALL SELECT run_id, rank, start_ns, dur_ns FROM cuda_calls) GROUP BY ALL",
    )
    extent = {(r["run_id"], r["rank"]): r["ns"] for r in extents}
    launched, queued = ask(path, "launch", params={"work": "all"}), ask(path, "queue-depth")
    assert {(r["run_id"], r["rank"]) for r in launched} == {(r["run_id"], r["rank"]) for r in queued} == extent.keys()
    for r in launched:
        assert 0 <= (r["max_queue_delay_ns"] or 0) <= extent[r["run_id"], r["rank"]]
        assert r["queue_delay_ns"] <= r["calls"] * (r["max_queue_delay_ns"] or 0)
    for r in queued:
        assert 0 <= r["empty_ns"] <= r["span_ns"] <= extent[r["run_id"], r["rank"]]
        assert 0 <= r["full_ns"] <= r["span_ns"] - r["empty_ns"]


def test_a_graph_is_queued_once(tmp_path: Path) -> None:
    # Its later kernels wait for the first ones, not for the queue: one launch, [0, 10).
    events = [
        launch(0, 1, name="cudaGraphLaunch"),
        kernel("a", 10, 5, correlation=1),
        kernel("b", 15, 5, correlation=1),
    ]
    [row] = ask(write_trace(tmp_path / "t.json", events), "queue-depth")
    assert (row["launches"], row["max_depth"], row["span_ns"], row["avg_depth"]) == (1, 1, 10_000, 1)


def repeated() -> list[dict[str, Any]]:
    """Two calls of aten::norm (aten::mul inside) that launch mean, mul, mul; one of aten::add that launches add."""
    events = []
    for i, start in enumerate((0, 100)):
        events += [op("aten::norm", start, 50, 10 * i + 1), op("aten::mul", start + 10, 30, 10 * i + 2)]
        events += [
            kernel("mean", start + 60, 4, **{"External id": 10 * i + 1}),
            kernel("mul", start + 65, 3, **{"External id": 10 * i + 2}),
            kernel("mul", start + 70, 2, **{"External id": 10 * i + 2}),
        ]
    return [*events, op("aten::add", 200, 10, 99), kernel("add", 210, 18, **{"External id": 99})]


def test_frequent_sequences(tmp_path: Path) -> None:
    # Each: 4 + 3 + 2 = 9 of work, gaps [64, 65) + [68, 70) = 3. All GPU work: 2 * 9 + 18 = 36.
    path = write_trace(tmp_path / "t.json", repeated())
    [row] = ask(path, "frequent-sequences")
    assert row == {
        "operator": "aten::norm", "sequence": "mean > mul > mul", "length": 3, "count": 2, "pieces": 6,
        "gpu_ns": 18_000, "gap_ns": 6_000, "gpu_time_pct": 50,
    }  # fmt: skip
    assert ask(path, "frequent-sequences", params={"min_count": 3}) == []
    [row] = ask(path, "frequent-sequences", params={"operator": "mul"})
    assert (row["operator"], row["sequence"], row["gpu_ns"], row["gap_ns"]) == ("aten::mul", "mul > mul", 10_000, 4_000)


def test_sequences_of_a_length(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", repeated())
    rows = {
        r["sequence"]: (r["count"], r["pieces"], r["gpu_ns"], r["gap_ns"])
        for r in ask(path, "frequent-sequences", params={"length": 2})
    }
    assert rows == {"mean > mul": (2, 4, 14_000, 2_000), "mul > mul": (2, 4, 10_000, 4_000)}
    singles = ask(path, "frequent-sequences", params={"length": 1})
    assert {r["sequence"]: (r["count"], r["gap_ns"]) for r in singles} == {"mul": (4, 0), "mean": (2, 0)}


def test_overlapping_sequences_count_each_kernel_once(tmp_path: Path) -> None:
    # a a a a: pairs at 1, 2 and 3, four pieces of 5 and three gaps of 1.
    events = [op("aten::foreach", 0, 9, 1), *(kernel("a", 10 + 6 * i, 5, **{"External id": 1}) for i in range(4))]
    [row] = ask(write_trace(tmp_path / "t.json", events), "frequent-sequences", params={"length": 2})
    assert (row["sequence"], row["count"], row["pieces"], row["gpu_ns"], row["gap_ns"]) == (
        "a > a",
        3,
        4,
        20_000,
        3_000,
    )


def test_sequences_of_a_range_that_launched_them(tmp_path: Path) -> None:
    """An operator that began with the range and ended before the launch has none of them. Gap: [40, 45) twice."""
    events: list[dict[str, Any]] = []
    for i, start in enumerate((0, 100)):
        own = {"External id": 1 + 2 * i}
        events += [event("user_annotation", "Optimizer.step#Adam.step", start, 50, **own)]
        events += [op("aten::empty", start, 2, 2 + 2 * i)]
        events += [kernel("adam", start + 30, 10, **own), kernel("adam", start + 45, 10, **own)]
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "frequent-sequences")
    assert [row[c] for c in ("operator", "sequence", "count", "gpu_ns", "gap_ns")] == [
        "Optimizer.step#Adam.step", "adam > adam", 2, 40_000, 10_000,
    ]  # fmt: skip
    assert ask(path, "frequent-sequences", params={"operator": "empty"}) == []
    assert ask(path, "frequent-sequences", params={"operator": "step#"}) == [row]


def test_sequences_under_a_range(tmp_path: Path) -> None:
    # A range holds operators: what it launched is one sequence over all of them. Two steps of the same optimizer.
    events: list[dict[str, Any]] = []
    for i, start in enumerate((0, 100)):
        events.append(event("user_annotation", "optimizer", start, 90))
        for j, name in enumerate(("mul", "add")):
            identity = 1 + 2 * i + j
            events.append(op(f"aten::{name}", start + 10 * j, 5, identity))
            events.append(kernel(name, start + 30 + 10 * j, 10, **{"External id": identity}))
    path = write_trace(tmp_path / "t.json", events)
    assert ask(path, "frequent-sequences") == []
    [row] = ask(path, "frequent-sequences", params={"operator": "optimizer"})
    assert (row["operator"], row["sequence"], row["count"], row["gap_ns"]) == ("optimizer", "mul > add", 2, 0)
