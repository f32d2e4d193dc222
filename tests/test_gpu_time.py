"""GPU time: breakdown, overlap, idle causes, gaps, concurrency, copies, utilization and timeline of small traces.

Times in the pictures and comments are us, in the rows ns. Two characters of a picture are 10 us.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, step, write_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def memcpy(ts: float, dur: float, nbytes: int, kind: str = "HtoD (Pinned -> Device)", **args: Any) -> dict[str, Any]:
    return event("gpu_memcpy", f"Memcpy {kind}", ts, dur, 0, 7, **{"device": 0, "stream": 7, "bytes": nbytes, **args})


def overlapping() -> list[dict[str, Any]]:
    """Compute, communication and a copy that overlap in every way::

    us       0   20  40  60  80  100
    compute  ====    ====
    comm       ======  ======
    memcpy         ====    ====  ==
    """
    return [
        kernel("gemm", 0, 20),
        kernel("gemm", 40, 20),
        kernel(NCCL, 10, 30, stream=17),
        kernel(NCCL, 50, 30, stream=17),
        memcpy(30, 20, 1 << 20),
        memcpy(70, 20, 1 << 20),
        event("gpu_memset", "Memset (Device)", 100, 10, 0, 7, device=0, stream=7, bytes=4),
    ]


def test_breakdown(tmp_path: Path) -> None:
    # Span [0, 110). Compute [0, 20) + [40, 60) = 40. Communication [10, 40) + [50, 80), of which [20, 40) and [60,
    # 80) without compute = 40. Copies [30, 50) + [70, 90) + [100, 110), of which [80, 90) and the memset without any
    # kernel = 20. Idle: [90, 100) = 10. Together 110.
    [row] = ask(write_trace(tmp_path / "t.json", overlapping()), "breakdown")
    assert {k: v for k, v in row.items() if k.endswith("_ns") and v is not None} == {
        "span_ns": 110_000,
        "excluded_ns": 0,
        "compute_ns": 40_000,
        "exposed_comm_ns": 40_000,
        "exposed_memcpy_ns": 20_000,
        "idle_ns": 10_000,
    }
    assert row["exposed_comm_pct"] == pytest.approx(100 * 40 / 110)
    assert (row["rank"], row["device"], row["step"]) == (0, 0, None)


def test_overlap(tmp_path: Path) -> None:
    # Communication 30 + 30 = 60; beside compute [10, 20) and [50, 60) = 20.
    [row] = ask(write_trace(tmp_path / "t.json", overlapping()), "overlap")
    assert (row["comm_ns"], row["overlapped_ns"]) == (60_000, 20_000)
    assert row["overlap_pct"] == pytest.approx(100 / 3)


def test_overlap_without_communication_is_empty(tmp_path: Path) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [kernel("gemm", 0, 10)]), "overlap")
    assert (row["comm_ns"], row["overlapped_ns"], row["overlap_pct"]) == (0, 0, None)


def test_kernels_of_zero_duration(tmp_path: Path) -> None:
    # 0-ns kernels hold no time: at the ends they stretch the span, in a gap they do not split it.
    events = [
        kernel("a", 0, 0),
        kernel("b", 10, 5),
        kernel("c", 20, 0),
        kernel(NCCL, 25, 0),
        kernel("d", 30, 5),
        kernel("e", 40, 0),
    ]
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "breakdown")
    assert (row["span_ns"], row["compute_ns"], row["exposed_comm_ns"], row["idle_ns"]) == (40_000, 10_000, 0, 30_000)
    # They begin a gap only where the span begins, and end one only where it ends.
    gaps = [(r["start_ns"], r["gap_ns"], r["before"], r["after"]) for r in ask(path, "gaps")]
    assert gaps == [(15_000, 15_000, "b", "d"), (0, 10_000, "a", "b"), (35_000, 5_000, "d", "e")]
    assert sum(r["idle_ns"] for r in ask(path, "idle-causes")) == 30_000
    assert ask(path, "overlap")[0]["overlap_pct"] is None


def test_device_with_only_zero_length_kernels(tmp_path: Path) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [kernel("a", 5, 0)]), "breakdown")
    assert (row["span_ns"], row["idle_ns"], row["idle_pct"]) == (0, 0, None)


def test_breakdown_by_step(tmp_path: Path) -> None:
    # Steps [0, 40) and [50, 80) on the CPU; the first window goes on to 50, where the second begins. The last kernel
    # was launched in the second step (at 75) and ends at 120, so that is where its window ends. The kernel [30, 60)
    # counts in both. Step 1: window 50, compute [10, 20) + [30, 50) = 30. Step 2: window [50, 120), compute [50, 60)
    # + [100, 120) = 30. The kernel at 200 was launched outside all steps.
    events = [
        step(1, 0, 40), step(2, 50, 30), launch(75, 3), launch(190, 4),
        kernel("a", 10, 10), kernel("b", 30, 30),
        kernel("c", 100, 20, correlation=3), kernel("d", 200, 10, correlation=4),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "breakdown", params={"window": "step"})
    assert [(r["step"], r["span_ns"], r["compute_ns"], r["idle_ns"]) for r in rows] == [
        (1, 50_000, 30_000, 20_000),
        (2, 70_000, 30_000, 40_000),
    ]


def test_a_step_without_gpu_work_is_idle(tmp_path: Path) -> None:
    events = [step(1, 0, 40), step(2, 40, 40), kernel("a", 50, 10)]
    rows = ask(write_trace(tmp_path / "t.json", events), "breakdown", params={"window": "step"})
    assert [(r["step"], r["compute_ns"], r["idle_ns"]) for r in rows] == [(1, 0, 40_000), (2, 10_000, 30_000)]


def test_several_gpus_in_a_process(tmp_path: Path) -> None:
    # Each device is divided up by itself: what runs on device 1 hides nothing on device 0.
    events = [kernel(NCCL, 0, 10), kernel("gemm", 0, 10, device=1), kernel("gemm", 10, 10)]
    rows = ask(write_trace(tmp_path / "t.json", events), "breakdown")
    assert [(r["device"], r["compute_ns"], r["exposed_comm_ns"], r["span_ns"]) for r in rows] == [
        (0, 10_000, 10_000, 20_000),
        (1, 10_000, 0, 10_000),
    ]


def test_across_ranks_and_by_groups(tmp_path: Path) -> None:
    for rank, dur in enumerate((10, 30)):
        told = {"rank": rank, "world_size": 2}
        write_trace(tmp_path / f"rank-{rank}.json", [kernel("gemm", 0, dur, device=rank)], distributedInfo=told)
    rows = ask(tmp_path, "breakdown", by=["rank"])
    assert [(r["rank"], r["device"], r["compute_ns"]) for r in rows] == [(0, 0, 10_000), (1, 1, 30_000)]
    assert len(ask(tmp_path, "gaps", by=["run_id"])) == 0


def idle() -> list[dict[str, Any]]:
    """Gaps of each cause, by when the launch call before the second kernel began::

    us      0    10        20   30 ... 70    80        140
    kernel  =====          =====       =====           ====
    launch    ^c1 at 12 (host)   ^c2 at 15 (other)  c3 at 72 ^ (kernel wait, 80 to 100)
    """
    return [
        kernel("first", 0, 10, correlation=1), launch(-5, 1),
        kernel("hosted", 20, 10, correlation=2), launch(12, 2),
        kernel("waited", 70, 10, correlation=3), launch(15, 3),
        kernel("queued", 100, 10, correlation=4), launch(72, 4),
        kernel("unlinked", 120, 10, correlation=5),
    ]  # fmt: skip


def test_idle_causes(tmp_path: Path) -> None:
    # [10, 20): launched at 12, after the gap began: host wait. [30, 70): queued at 15, 40 us: other. [80, 100):
    # queued at 72, 20 us: kernel wait. [110, 120): no launch call: other. Together 10 + 40 + 20 + 10 = 80, the idle
    # time of the breakdown.
    path = write_trace(tmp_path / "t.json", idle())
    rows = {r["cause"]: (r["gaps"], r["idle_ns"], r["max_ns"]) for r in ask(path, "idle-causes")}
    assert rows == {"host_wait": (1, 10_000, 10_000), "other": (2, 50_000, 40_000), "kernel_wait": (1, 20_000, 20_000)}
    assert sum(ns for _, ns, _ in rows.values()) == ask(path, "breakdown")[0]["idle_ns"] == 80_000
    # The threshold itself does not count as kernel wait.
    causes = {r["cause"]: r["idle_ns"] for r in ask(path, "idle-causes", params={"threshold_us": 20})}
    assert causes == {"host_wait": 10_000, "other": 70_000}
    causes = {r["cause"]: r["idle_ns"] for r in ask(path, "idle-causes", params={"threshold_us": 20.001})}
    assert causes["kernel_wait"] == 20_000


def test_earliest_launch_decides_between_equal_starts(tmp_path: Path) -> None:
    """Two kernels end the gap [10, 30): one launched at 25, the other at 5, before the gap, whatever their ids."""
    first = [kernel("a", 0, 10, correlation=1), launch(-5, 1)]
    late, early = launch(25, 2), launch(5, 3)
    for name, events in {
        "ids": [kernel("b", 30, 10, correlation=2), kernel("c", 30, 5, stream=8, correlation=3), late, early],
        "no id": [kernel("b", 30, 10, correlation=-1), kernel("c", 30, 5, stream=8, correlation=3), early],
        "no call": [kernel("b", 30, 10, correlation=2), kernel("c", 30, 5, stream=8, correlation=3), early],
    }.items():
        path = write_trace(tmp_path / f"{name}.json", [*first, *events])
        assert [(r["cause"], r["idle_ns"]) for r in ask(path, "idle-causes")] == [("kernel_wait", 20_000)], name
        assert [r["cause"] for r in ask(path, "gaps")] == ["kernel_wait"]


def test_zero_length_kernel_at_the_end(tmp_path: Path) -> None:
    # Idle from 15 to the end of the span at 100, for work that was queued at 1.
    events = [kernel("k", 10, 5, correlation=1), launch(0, 1), kernel("k", 100, 0, correlation=2), launch(1, 2)]
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "idle-causes")
    assert (row["cause"], row["idle_ns"]) == ("other", ask(path, "breakdown")[0]["idle_ns"]) == ("other", 85_000)


def test_profiler_overhead_is_not_host_time(tmp_path: Path) -> None:
    """Gaps [10, 60) and [70, 90), both launched late by thread 1 and both host wait but for the profiler."""
    events = [
        kernel("a", 0, 10, correlation=1), launch(-5, 1), kernel("b", 60, 10, correlation=2), launch(55, 2),
        kernel("c", 90, 10, correlation=3), launch(85, 3), event("cpu_op", "aten::fill_", 12, 42),
    ]  # fmt: skip

    def asked(name: str, *overhead: dict[str, Any]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        path = write_trace(tmp_path / name, [*events, *overhead])
        causes = {r["cause"]: (r["gaps"], r["idle_ns"], r["profiler_ns"]) for r in ask(path, "idle-causes")}
        assert sum(ns for _, ns, _ in causes.values()) == ask(path, "breakdown")[0]["idle_ns"] == 70_000
        gaps = [(r["cause"], r["gap_ns"], r["profiler_ns"], r["cpu"]) for r in ask(path, "gaps")]
        return sorted(causes.items()), gaps

    def overhead(tid: int, ts: float, dur: float) -> dict[str, Any]:
        return event("overhead", "Activity Buffer Request", ts, dur, tid=tid)

    # [5, 40) and [35, 45) cover 35 of the first gap's 50, 10 of the second's 20: that is half, not the larger part.
    both = asked("a.json", overhead(0, 5, 35), overhead(0, 35, 10), overhead(0, 75, 10))
    assert both == (
        [("host_wait", (1, 20_000, 10_000)), ("profiler", (1, 50_000, 35_000))],
        [("profiler", 50_000, 35_000, "Activity Buffer Request"), ("host_wait", 20_000, 10_000, "cudaLaunchKernel")],
    )
    # What was launched by then was not held up: the second kernel at 6, in a gap from 10 on.
    early = [launch(6, 2) if e.get("args", {}).get("correlation") == 2 and e["pid"] == 1 else e for e in events]
    path = write_trace(tmp_path / "d.json", [*early, overhead(0, 12, 40)])
    longest = ask(path, "gaps")[0]
    assert (longest["cause"], longest["profiler_ns"]) == ("other", 0)
    # On the launching thread itself as on one that makes no calls; not on another that launches work of its own.
    assert asked("b.json", overhead(1, 12, 30))[1][0][:3] == ("profiler", 50_000, 30_000)
    other = launch(2, 9) | {"tid": 7}
    assert asked("c.json", other, overhead(7, 12, 30))[1][0][:3] == ("host_wait", 50_000, 0)
    # Nor on one that runs ranges or Python functions.
    for cat in ("user_annotation", "python_function"):
        other = event(cat, "work", 0, 100, tid=7)
        assert asked(f"{cat}.json", other, overhead(7, 12, 30))[1][0][:3] == ("host_wait", 50_000, 0)


def test_python_stacks_are_a_note(tmp_path: Path) -> None:
    plain = write_trace(tmp_path / "t.json", idle())
    assert {r["note"] for q in ("gaps", "idle-causes") for r in ask(plain, q)} == {None}
    frame = event("python_function", "train.py(3): step", 0, 100, **{"Python id": 1})
    path = write_trace(tmp_path / "u.json", [*idle(), frame])
    said = {r["note"] for q in ("gaps", "idle-causes") for r in ask(path, q)}
    assert said == {"recorded with Python stacks, which make host time longer"}


def test_any_work_splits_into_busy_time_and_causes(tmp_path: Path) -> None:
    """Random work on 120 devices, much of it of 0 ns, with calls and overhead at random: counted ns by ns."""
    random = Random(8)
    events: list[dict[str, Any]] = []
    work: dict[int, list[tuple[int, int, int]]] = {}
    for device in range(120):
        for _ in range(random.randint(1, 9)):
            start, dur = random.randint(0, 60), random.choice([0, 0, 1, 3, 8])
            stream, number = random.randint(7, 8), len(events)
            work.setdefault(device, []).append((start, start + dur, stream))
            events.append(kernel("k", start / 1000, dur / 1000, device, stream, correlation=number))
            if random.random() < 0.8:
                events.append(launch(random.randint(-20, start) / 1000, number, 0.001) | {"tid": random.randint(1, 3)})
    for _ in range(20):
        start, dur = random.randint(0, 60) / 1000, random.randint(0, 9) / 1000
        events.append(event("overhead", "Buffer Flush", start, dur, tid=random.randint(0, 3)))
    path = write_trace(tmp_path / "t.json", events)

    def expected(spans: list[tuple[int, int, int]]) -> int:
        covered = {at for s, e, _ in spans for at in range(s, e)}
        return max(e for _, e, _ in spans) - min(s for s, _, _ in spans) - len(covered)

    per_device = {d: expected(spans) for d, spans in work.items()}
    assert {r["device"]: r["idle_ns"] for r in ask(path, "breakdown")} == per_device
    lanes = {
        (d, stream): expected([s for s in spans if s[2] == stream]) for d, spans in work.items()
        for stream in {s[2] for s in spans}
    }  # fmt: skip
    for per, idle_ns in (("device", per_device), ("stream", lanes)):
        found: dict[Any, int] = {}
        for r in ask(path, "idle-causes", params={"per": per, "threshold_us": 0.004}):
            key = r["device"] if per == "device" else (r["device"], r["stream"])
            found[key] = found.get(key, 0) + r["idle_ns"]
            assert 0 <= r["profiler_ns"] <= r["idle_ns"]
        assert found == {k: ns for k, ns in idle_ns.items() if ns}
    for r in ask(path, "gaps", params={"top": 10_000}):
        assert 0 <= r["profiler_ns"] <= r["gap_ns"]


def test_idle_causes_of_a_stream(tmp_path: Path) -> None:
    # The device never stops; stream 8 waits [10, 30), for work that was queued at 5.
    events = [
        kernel("a", 0, 40), kernel("b", 0, 10, stream=8), kernel("c", 30, 10, stream=8, correlation=9), launch(5, 9),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert ask(path, "idle-causes") == []
    [row] = ask(path, "idle-causes", params={"per": "stream"})
    assert (row["stream"], row["cause"], row["idle_ns"]) == (8, "kernel_wait", 20_000)


def test_gaps_name_kernels_and_cpu_activity(tmp_path: Path) -> None:
    # Thread 1 launches "hosted" at 38; in the gap [10, 40) it is in aten::slow [12, 32) = 20, in the call [38, 39) =
    # 1, and in the step around them for the rest = 9.
    events = [
        step(1, 0, 100), event("cpu_op", "aten::slow", 12, 20, **{"External id": 1}),
        event("cpu_op", "aten::mm", 36, 6, **{"External id": 2}), launch(38, 2, **{"External id": 2}),
        kernel("first", 0, 10), kernel("void hosted<float>(float*)", 40, 10, correlation=2, **{"External id": 2}),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events), "gaps")
    assert row | {"run_id": "t"} == {
        "run_id": "t", "rank": 0, "device": 0, "start_ns": 10_000, "gap_ns": 30_000, "cause": "host_wait",
        "before": "first", "after": "hosted", "after_op": "aten::mm", "cpu": "aten::slow", "cpu_ns": 20_000,
        "profiler_ns": 0, "note": None,
    }  # fmt: skip


def test_longest_gaps_come_first(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", idle())
    assert [r["gap_ns"] for r in ask(path, "gaps")] == [40_000, 20_000, 10_000, 10_000]
    [longest] = ask(path, "gaps", params={"top": 1})
    assert (longest["before"], longest["after"], longest["cause"], longest["cpu"]) == (
        "hosted",
        "waited",
        "other",
        None,
    )


def test_concurrency(tmp_path: Path) -> None:
    # Kernels [0, 10) + [5, 15) + [5, 10): ∪ = 15, two or more [5, 10) = 5 (three count once). Copies [10, 20) and
    # [12, 14): ∪ = 10, beside kernels [10, 15) = 5. Host copies: 1,000,000 B in 10 us and 1,000 B in 2 us, the second
    # small: 1,001,000 B / 12 us = 83.4 GB/s of 64 GB/s (PCIe 5 x16, an H200); 2 of 12 us are for the small one.
    events = [
        kernel("a", 0, 10), kernel("b", 5, 10, stream=8), kernel("c", 5, 5, stream=9),
        memcpy(10, 10, 1_000_000), memcpy(12, 2, 1_000, "DtoH (Device -> Pinned)"),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    [row] = ask(path, "concurrency")
    assert (row["kernel_ns"], row["concurrent_ns"], row["memcpy_ns"], row["copy_overlap_ns"]) == (
        15_000,
        5_000,
        10_000,
        5_000,
    )
    assert (row["kernel_concurrency_pct"], row["copy_overlap_pct"]) == (pytest.approx(100 / 3), 50)
    assert (row["host_copies"], row["small_copies"], row["small_copies_pct"]) == (2, 1, 50)
    assert row["host_gb_per_s"] == pytest.approx(1001 / 12)
    assert row["host_link_pct"] == pytest.approx(100 * 1001 / 12 / 64)
    assert row["small_time_pct"] == pytest.approx(100 * 2 / 12)


def test_small_copies_are_under_64_kib(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [memcpy(0, 1, 65_535), memcpy(2, 1, 65_536)])
    assert ask(path, "concurrency")[0]["small_copies"] == 1
    assert ask(path, "concurrency", params={"small_kib": 128})[0]["small_copies"] == 2


def test_copies_without_a_size_or_an_end(tmp_path: Path) -> None:
    """One of 4000 B in 4 us; one of which the size and one of which the end is not known; and two without any size."""

    def unsized(ts: float, dur: float, name: str) -> dict[str, Any]:
        found = memcpy(ts, dur, 0, name)
        del found["args"]["bytes"]
        return found

    up, down, peers = "HtoD (Pageable -> Device)", "DtoH (Device -> Pinned)", "PtoP (Device -> Device)"
    some = [memcpy(0, 4, 4000, up), unsized(10, 6, up), memcpy(20, -1, 100_000, up)]
    none = [unsized(40, 3, down), unsized(50, 3, peers)]
    columns = ("bytes", "gb_per_s", "small_copies", "small_copies_pct", "small_time_pct")
    rows = ask(write_trace(tmp_path / "t.json", [*some, *none]), "copies")
    assert {r["kind"]: tuple(r[c] for c in columns) for r in rows} == {
        "HtoD": (104_000, 1.0, 1, 50, 100), "DtoH": (None,) * 5, "PtoP": (None,) * 5,
    }  # fmt: skip
    columns = ("host_copies", "host_bytes", "host_gb_per_s", "small_copies", "small_copies_pct", "small_time_pct")
    for name, events, expected in (
        ("some", [*some, *none], (4, 104_000, 1.0, 1, 50, 100)),
        ("none", none, (1, None, None, None, None, None)),
        ("no", none[1:], (0, 0, None, 0, None, None)),
    ):
        [row] = ask(write_trace(tmp_path / f"{name}.json", events), "concurrency")
        assert tuple(row[c] for c in columns) == expected, name


def test_copy_without_a_size_is_not_blocking(tmp_path: Path) -> None:
    """From host to device, 64,001 B do block and 64,000 do not; back to the host, any size does."""
    events = []
    for n, (size, kind) in enumerate([(64_000, "HtoD"), (64_001, "HtoD"), (None, "HtoD"), (None, "DtoH")], 1):
        copy = memcpy(100 * n, 5, size or 0, f"{kind} (Pinned -> Device)", correlation=n)
        if size is None:
            del copy["args"]["bytes"]
        events += [launch(100 * n - 10, n, 20, "cudaMemcpy"), copy]
    rows = ask(write_trace(tmp_path / "t.json", events), "memcpy-sync")
    assert sorted((r["kind"], r["calls"], r["bytes"]) for r in rows) == [("DtoH", 1, None), ("HtoD", 1, 64_001)]


def test_copy_bandwidth_is_compared_with_the_link(tmp_path: Path) -> None:
    # H200: PCIe 64, NVLink 450, memory 4800 / 2 GB/s.
    events = [
        memcpy(0, 10, 320_000),
        memcpy(20, 10, 2_250_000, "PtoP (Device -> Device)"),
        memcpy(40, 10, 6_000_000, "DtoD (Device -> Device)"),
    ]
    path = write_trace(tmp_path / "t.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    rows = {r["kind"]: (r["gb_per_s"], r["link_pct"]) for r in ask(path, "copies")}
    assert rows == {"HtoD": (32, 50), "PtoP": (225, 50), "DtoD": (600, 25)}
    unknown = write_trace(tmp_path / "u.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA Z1"}])
    assert {r["link_pct"] for r in ask(unknown, "copies")} == {None}


def test_utilization(tmp_path: Path) -> None:
    # Span [0, 40). a: [0, 20), 0.5 blocks per SM, occupancy 40. b: [10, 20), 0.75 and 10. c: [30, 40), 4 and 100.
    # Kernels 30 of 40. SM efficiency: [0, 10) 0.5, [10, 20) min(1, 1.25) = 1, [30, 40) 1 -> (5 + 10 + 10) / 40.
    # Occupancy: (40 * 20 + 10 * 10 + 100 * 10) / 40 = 47.5. d has neither and holds no time.
    shape = ("blocks per SM", "est. achieved occupancy %")
    events = [
        kernel("a", 0, 20, **dict(zip(shape, (0.5, 40), strict=True))),
        kernel("b", 10, 10, stream=8, **dict(zip(shape, (0.75, 10), strict=True))),
        kernel("c", 30, 10, **dict(zip(shape, (4, 100), strict=True))),
        kernel("d", 35, 0),
    ]
    [row] = ask(write_trace(tmp_path / "t.json", events), "utilization")
    assert (row["span_ns"], row["kernel_ns"], row["utilization_pct"]) == (40_000, 30_000, 75)
    assert (row["sm_efficiency_pct"], row["occupancy_pct"]) == (62.5, 47.5)


def test_utilization_from_the_grid(tmp_path: Path) -> None:
    # An H200 has 132 SMs: 33 x 2 blocks are half a block per SM.
    path = write_trace(
        tmp_path / "t.json", [kernel("a", 0, 10, grid=[33, 2, 1])], deviceProperties=[{"id": 0, "name": "NVIDIA H200"}]
    )
    [row] = ask(path, "utilization")
    assert (row["sm_efficiency_pct"], row["occupancy_pct"]) == (50, None)
    [row] = ask(write_trace(tmp_path / "u.json", [kernel("a", 0, 10)]), "utilization")
    assert (row["utilization_pct"], row["sm_efficiency_pct"]) == (100, None)


def test_timeline(tmp_path: Path) -> None:
    # Span 110 in 4 buckets of 27.5. Compute [0, 20) + [40, 60), communication [10, 40) + [50, 80), copies [30, 50) +
    # [70, 90) + [100, 110), cut at 27.5, 55 and 82.5; any of them runs all the time but for [90, 100).
    rows = ask(write_trace(tmp_path / "t.json", overlapping()), "timeline", params={"buckets": 4})
    assert [(r["bucket"], r["start_ns"], r["span_ns"]) for r in rows] == [
        (0, 0, 27_500), (1, 27_500, 27_500), (2, 55_000, 27_500), (3, 82_500, 27_500),
    ]  # fmt: skip
    shares = ("busy_pct", "compute_pct", "comm_pct", "memcpy_pct")
    assert [[round(r[share] * r["span_ns"] / 100) for share in shares] for r in rows] == [
        [27_500, 20_000, 17_500, 0],
        [27_500, 15_000, 17_500, 20_000],
        [27_500, 5_000, 25_000, 12_500],
        [17_500, 0, 0, 17_500],
    ]


def test_timeline_of_a_short_recording(tmp_path: Path) -> None:
    # 3 ns cannot be cut into 50 buckets: three of 1 ns.
    rows = ask(write_trace(tmp_path / "t.json", [kernel("a", 0, 0.003)]), "timeline")
    assert [(r["start_ns"], r["span_ns"], r["busy_pct"]) for r in rows] == [(0, 1, 100), (1, 1, 100), (2, 1, 100)]


def test_compact_json_without_flow_events(tmp_path: Path) -> None:
    # No spaces, no newlines, no ac2g events: linked by correlation id alone.
    trace = {"distributedInfo": {"rank": 3}, "traceEvents": idle()}
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode()))
    assert {(r["rank"], r["cause"]) for r in ask(path, "idle-causes")} == {
        (3, "host_wait"),
        (3, "kernel_wait"),
        (3, "other"),
    }


@pytest.mark.parametrize(
    "sample", ["resnet18-1gpu", "alexnet-dp2", "resnet18-ddp2", "vgg16-fp32", "late-rank", "resnet18-checkpoint"]
)
def test_breakdowns_of_samples_add_up(sample: str) -> None:
    folder = SAMPLES / sample
    for window in ("span", "step"):
        for row in ask(folder, "breakdown", params={"window": window}):
            parts = (row[f"{part}_ns"] for part in ("compute", "exposed_comm", "exposed_memcpy", "idle"))
            assert sum(parts) == row["span_ns"] > 0

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["run_id"], row["rank"], row["device"]

    idle_ns = {place(r): r["idle_ns"] for r in ask(folder, "breakdown")}
    assert idle_ns == {place(r): r["idle_ns"] for r in ask(folder, "gpu-busy")}
    causes: dict[tuple[Any, ...], int] = {}
    for row in ask(folder, "idle-causes"):
        causes[place(row)] = causes.get(place(row), 0) + row["idle_ns"]
    assert causes == idle_ns
    buckets = ask(folder, "timeline", params={"buckets": 7})
    for row in ask(folder, "gpu-busy"):
        own = [b for b in buckets if place(b) == place(row)]
        assert sum(b["span_ns"] for b in own) == row["span_ns"]
        assert sum(b["busy_pct"] * b["span_ns"] for b in own) / 100 == pytest.approx(row["busy_ns"])


def test_kernel_durations(tmp_path: Path) -> None:
    """Classes of 1, 2 and 5 times a power of ten: 1999 ns is under 2 us, 2000 ns is not; 0 ns has its own."""
    durations = [0, 0.9, 1, 1.999, 2, 4.999, 5, 12]  # us
    events = [kernel("gemm", 100 * i, d) for i, d in enumerate(durations)]
    rows = ask(write_trace(tmp_path / "t.json", events), "kernel-durations")
    assert [(r["min_duration_ns"], r["max_duration_ns"], r["kernels"], r["total_ns"]) for r in rows] == [
        (0, 1, 1, 0), (500, 1000, 1, 900), (1000, 2000, 2, 2999), (2000, 5000, 2, 6999), (5000, 10_000, 1, 5000),
        (10_000, 20_000, 1, 12_000),
    ]  # fmt: skip
    assert sum(r["kernel_time_pct"] for r in rows) == pytest.approx(100)
