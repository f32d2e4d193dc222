"""Findings: each by hand, with the saving its file promises; real recordings; and that all are documented."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from threading import get_native_id
from typing import Any

import pytest
from commands import complaints, run_cli
from support import ROOT, SAMPLES
from traces import event, kernel, launch, write_trace

import analyze
from analyze.advise import advise, write_text
from analyze.errors import InputError
from analyze.finding_files import findings
from analyze.ingestion.opening import open_stores
from analyze.query.engine import Engine
from analyze.query.query_files import catalog
from analyze.query.selection import DEFAULT, Selection


def advice(path: Path, min_pct: float = 0.0, where: str | None = None) -> dict[str, dict[str, Any]]:
    """Findings by name, without the data-quality checks that `analyze advise` adds."""
    engine = Engine(open_stores([path])[0], DEFAULT.narrowed(where))
    return {a.finding: a._asdict() for a in advise(engine, min_pct)}


def trace(path: Path, *events: dict[str, Any], **header: Any) -> Path:
    return write_trace(path / "t.json", events, **header)


HOPPER = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}


def test_finding_waiting_for_data(tmp_path: Path) -> None:
    # Idle from 10 to 30; the loop waits for data from 5 to 25: 15 us of it on an idle GPU. The span is 40 us.
    path = trace(tmp_path, kernel("a", 0, 10), kernel("b", 30, 10), event("user_annotation", "data", 5, 20))
    row = advice(path)["data-wait"]
    assert (row["saving_ns"], row["saving_pct"]) == (15_000, 37.5)
    assert row["evidence"] == "1 wait for data, 0.020 ms in total on the CPU; each GPU is idle for 0.015 ms of it"


def test_finding_launch_bound(tmp_path: Path) -> None:
    # Gap 10 to 30, launched at 28: nothing was queued. Gap 40 to 45: queued since 29.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1), launch(29, 2),
        kernel("c", 45, 5, correlation=2),
    )  # fmt: skip
    row = advice(path)["host-wait"]
    assert row["saving_ns"] == 20_000 and row["saving_pct"] == 40.0
    assert row["query"] == "idle-causes" and row["evidence"] == (
        "1 gap, the longest 0.020 ms; 0.020 ms of 0.025 ms of idle time per GPU"
    )


def test_finding_profiler_overhead(tmp_path: Path) -> None:
    # Nothing is queued from 10 to 30 and from 40 to 60. The profiler works from 15 to 22 (7 us, in two threads) and
    # from 55 to 70, of which 5 are idle: 40 - 12 = 28 us are the host's own, the longest from 40 to 55.
    events = [
        kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1),
        launch(58, 2), kernel("c", 60, 10, correlation=2),
        event("overhead", "Activity Buffer Request", 15, 5, -1, 0), event("overhead", "Buffer Flush", 18, 4, -1, 3),
        event("overhead", "Activity Buffer Request", 55, 15, -1, 0),
    ]  # fmt: skip
    row = advice(trace(tmp_path / "a", *events))["host-wait"]
    assert row["saving_ns"] == 28_000 and row["evidence"] == (
        "3 gaps, the longest 0.015 ms (53.6 % of them); 0.028 ms of 0.040 ms of idle time per GPU;"
        " 0.012 ms of idle time is profiler time and not counted"
    )
    # A gap that is the profiler's from end to end is no finding.
    whole = event("overhead", "Activity Buffer Request", 9, 60, -1, 0)
    assert "host-wait" not in advice(trace(tmp_path / "b", *events, whole))


def test_python_stacks_inflate_host_time(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1)]
    assert "Python" not in advice(trace(tmp_path / "a", *events))["host-wait"]["evidence"]
    stack = event("python_function", "train.py(1): main", 0, 50, **{"Python id": 1})
    row = advice(trace(tmp_path / "b", *events, stack))["host-wait"]
    assert row["evidence"].endswith("; Python stacks were recorded, which inflates host time")


def python(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return event("python_function", name, ts, dur, 1, tid)


def test_findings_name_the_most_expensive_line(tmp_path: Path) -> None:
    # The GPU has nothing to do from 10 to 50. Meanwhile the main thread is in main (10 to 12 and 40 to 50: 12 us), in
    # train_step (12 to 30: 18 us, PyTorch's functions in it are not the program's) and in batches (10 us). Thread 2 is
    # in `log` all the time, for longer than the main thread, but its number is not the process's.
    program = [
        python("train.py(1): main", 0, 100), python("train.py(42): train_step", 12, 18),
        python("torch/nn/modules/module.py(1): _call_impl", 13, 16), python("nn.Module: Net_0", 13, 16),
        python("threading.py(9): wait", 14, 2), python("<built-in method linear>", 15, 1),
        python("data/batches.py(7): batches", 30, 10), python("log.py(3): log", 0, 1000, 2),
    ]  # fmt: skip
    # fp32 from 60 to 80 is launched in train_step and a Linear, at 20; from 80 to 90 in batches, at 35, by a thread
    # that has no Python functions. Steps: 0 to 55 and from there.
    work = [
        kernel("a", 0, 10), launch(48, 1), event("cpu_op", "aten::add", 47, 3, **{"External id": 3}),
        kernel("b", 50, 10, correlation=1, **{"External id": 3}),
        python("nn.Module: Linear_1", 19, 5), event("cpu_op", "aten::mm", 19, 3, **{"External id": 4}),
        launch(20, 2), kernel("sgemm", 60, 20, correlation=2, **{"External id": 4}),
        launch(35, 3, tid=9), kernel("sgemm", 80, 10, correlation=3),
        event("user_annotation", "ProfilerStep#3", 0, 55), event("user_annotation", "ProfilerStep#4", 55, 45),
    ]  # fmt: skip
    found = advice(trace(tmp_path / "a", *program, *work, **HOPPER))
    places = {n: [r[c] for c in ("rank", "device", "step", "operator", "module", "source")] for n, r in found.items()}
    assert places["host-wait"] == [0, 0, 3, "aten::add", None, "train.py:42 in train_step"]
    assert places["tf32"] == [0, 0, 4, "aten::mm", "Linear_1", "train.py:42 in train_step"]
    text = run_cli("advise", tmp_path / "a").stdout
    assert "where: rank 0, GPU 0, step 4, aten::mm in Linear_1, train.py:42 in train_step\n" in text
    # The same moments without stacks: what is not known is left out.
    found = advice(trace(tmp_path / "b", *work[:4], **HOPPER))
    assert [found["host-wait"][c] for c in ("step", "operator", "module", "source")] == [None, "aten::add", None, None]


def test_line_of_short_kernels_and_of_ties(tmp_path: Path) -> None:
    # The calls of 5 and 4 us launch kernels of 1 us: 4 us too long in `two`, 3 in `one`. The gaps 1 to 10 and 11 to 20:
    # 9 us each; in `one` until 10, in `two` from then on, and of equals the first is named.
    path = trace(
        tmp_path,
        python("a.py(1): one", 0, 10), python("a.py(2): two", 10, 20),
        kernel("k", 0, 1), launch(5, 1, 4), kernel("k", 10, 1, correlation=1), launch(12, 2, 5),
        kernel("k", 20, 1, correlation=2),
    )  # fmt: skip
    found = advice(path)
    assert found["short-kernels"]["source"] == "a.py:2 in two"
    assert found["host-wait"]["source"] == "a.py:1 in one"


def test_launcher_frames_are_not_named_as_program_lines(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1)]
    runner = [python("collect/own.py(5): run", 0, 100)]
    assert advice(trace(tmp_path / "a", *events, *runner))["host-wait"]["source"] == "collect/own.py:5 in run"
    events += [*runner, python("train.py(1): main", 5, 10), python("collect/own.py(9): phase", 6, 9)]
    assert advice(trace(tmp_path / "b", *events))["host-wait"]["source"] == "train.py:1 in main"


def test_program_line_in_a_real_recording(tmp_path: Path) -> None:
    """Of the Python functions that torch names, those of this file are the program's: their lines are Python's own."""
    from torch import nn, ones
    from torch.profiler import ProfilerActivity, profile

    from schemas.python_files import program_function

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def train_step() -> None:
        model(ones(2, 4)).sum().backward()

    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as p:
        train_step()
    p.export_chrome_trace(str(tmp_path / "t.json"))
    # torch records all threads; one that a package started in another test is no part of this program.
    names = {
        e["name"]
        for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if e.get("cat") == "python_function" and e["tid"] == get_native_id()
    }
    assert any(n.startswith("torch/") for n in names) and any(n.startswith("nn.Module: ") for n in names)
    own = {f.source.rpartition("/")[2] for n in names if (f := program_function(n))}
    # The function around it was there before the recording began, which is what its line says.
    around = {s for s in own if s.endswith(" in test_program_line_in_a_real_recording")}
    assert own - around == {f"test_advise.py:{train_step.__code__.co_firstlineno} in train_step"}
    assert all(s.startswith("test_advise.py:") for s in around)


def test_idle_time_has_one_owner(tmp_path: Path) -> None:
    # Idle from 10 to 50 with nothing queued: the profiler works from 12 to 16, the loop waits for data from 14 to 24 (2
    # of it the profiler's). Idle from 60 to 90 after a blocking call that returns at 61, waiting for data from 80 on
    # for 5.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), event("overhead", "Activity Buffer Request", 12, 4, -1, 0),
        event("user_annotation", "data", 14, 10), launch(48, 1), kernel("b", 50, 10, correlation=1),
        event("cuda_runtime", "cudaStreamSynchronize", 55, 6), event("user_annotation", "data", 80, 5),
        launch(88, 2), kernel("c", 90, 10, correlation=2),
    )  # fmt: skip
    found = advice(path)
    savings = {n: found[n]["saving_ns"] for n in ("data-wait", "blocking-calls", "host-wait")}
    assert savings == {"data-wait": 8_000 + 5_000, "blocking-calls": 25_000, "host-wait": 40_000 - 4_000 - 8_000}
    assert sum(savings.values()) + 4_000 == 70_000


def test_savings_are_per_gpu(tmp_path: Path) -> None:
    # GPU 0 idles for 20 us of 40, GPU 1 never: 10 us a GPU of a mean span of 40.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1), kernel("c", 0, 40, device=1),
    )  # fmt: skip
    row = advice(path)["host-wait"]
    assert (row["saving_ns"], row["saving_pct"]) == (10_000, 25.0)


def test_communication(tmp_path: Path) -> None:
    # all_reduce from 10 to 30, compute beside it from 20: 10 us are exposed.
    path = trace(
        tmp_path,
        kernel("a", 0, 10),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, stream=8),
        kernel("b", 20, 20),
    )
    found = advice(path)
    assert found["exposed-communication"]["saving_ns"] == 10_000 and "dataparallel" not in found


def test_dataparallel(tmp_path: Path) -> None:
    # One process, two GPUs, a broadcast of 6 us on each: 12 us, 6 a GPU, of 20 us of kernels.
    name = "ncclDevKernel_Broadcast_RING_LL"
    path = trace(tmp_path, *(k for d in (0, 1) for k in (kernel(name, 0, 6, d), kernel("a", 6, 4, d))))
    row = (found := advice(path))["dataparallel"]
    assert row["saving_ns"] == 6_000
    assert row["evidence"].startswith("2 broadcasts, 0.012 ms in total (60.0 % of kernel time)")
    assert "exposed-communication" not in found


def test_dataparallel_host_work(tmp_path: Path) -> None:
    # Both GPUs broadcast from 0 to 6 and wait for their next kernel until 26, in DataParallel's forward (until 20; 2 us
    # of it the profiler's); in the 20 us from 30 on, for Gather's backward (from 35 to 45). The 6 and 10 us that are
    # left are the host's.
    events = [event("user_annotation", "DataParallel.forward", 0, 20), event("cpu_op", "GatherBackward", 35, 10)]
    events += [event("overhead", "Activity Buffer Request", 10, 2, -1, 0)]
    for d in (0, 1):
        name = "ncclDevKernel_Broadcast_RING_LL"
        events += [kernel(name, 0, 6, d), launch(25, 3 * d + 1), kernel("a", 26, 4, d, correlation=3 * d + 1)]
        events += [launch(48, 3 * d + 2), kernel("b", 50, 1, d, correlation=3 * d + 2)]
    found = advice(trace(tmp_path, *events))
    assert found["dataparallel"]["saving_ns"] == 6_000 + 12_000 + 10_000
    assert "each GPU is idle for 0.022 ms while DataParallel runs" in found["dataparallel"]["evidence"]
    assert found["host-wait"]["saving_ns"] == 6_000 + 10_000


def test_fp32_matrix_work(tmp_path: Path) -> None:
    # 20 us in fp32, of which half; the tf32 kernel is what it should be.
    events = [kernel("ampere_sgemm_128x64_tn", 0, 20), kernel("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n", 20, 5)]
    assert advice(trace(tmp_path / "a", *events, **HOPPER))["tf32"]["saving_ns"] == 10_000
    old = {"deviceProperties": [HOPPER["deviceProperties"][0] | {"computeMajor": 7}]}
    assert "tf32" not in advice(trace(tmp_path / "b", *events, **old))


def test_layout_kernels(tmp_path: Path) -> None:
    path = trace(tmp_path, kernel("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", 0, 3), kernel("a", 3, 7))
    assert advice(path)["layout"]["saving_ns"] == 3_000


def test_optimizer_of_many_kernels(tmp_path: Path) -> None:
    # 12 kernels of 1 us every 3 us: 34 us from first to last, 22 of them between kernels. With 10 kernels, no finding.
    def step(n: int) -> list[dict[str, Any]]:
        launches = [launch(0.1 + i * 0.5, i + 1, 0.1) for i in range(n)]
        kernels = [kernel("add", 20 + 3 * i, 1, correlation=i + 1) for i in range(n)]
        return [event("user_annotation", "optimizer", 0, 10), *launches, *kernels]

    assert advice(trace(tmp_path / "a", *step(12)))["optimizer"]["saving_ns"] == 22_000
    assert "optimizer" not in advice(trace(tmp_path / "b", *step(10)))


def test_short_kernels(tmp_path: Path) -> None:
    # 1 us after a call of 5: 4 too short. 3 us after a call of 2: not short. The GPU idles for 6 us, more than 4.
    path = trace(
        tmp_path,
        launch(0, 1, 5), kernel("a", 10, 1, correlation=1), launch(6, 2, 2), kernel("b", 17, 3, correlation=2),
    )  # fmt: skip
    row = advice(path)["short-kernels"]
    assert row["saving_ns"] == 4_000 and "1 of 2 launches (50 %)" in row["evidence"]


def test_copies(tmp_path: Path) -> None:
    # Pageable, 10 us, the last 4 beside a kernel: 6 are exposed. A small one of 2 us at 30, and 3 us of another kind.
    def copy(ts: float, dur: float, memory: str, size: int) -> dict[str, Any]:
        name = f"Memcpy HtoD ({memory} -> Device)"
        return event("gpu_memcpy", name, ts, dur, 0, 7, device=0, stream=7, bytes=size)

    events = [copy(0, 10, "Pageable", 1_000_000), kernel("a", 6, 14, stream=8), copy(30, 2, "Pageable", 4)]
    found = advice(trace(tmp_path, *events, copy(40, 3, "Pinned", 1_000_000)))
    assert {n: r["saving_ns"] for n, r in found.items() if "copies" in n} == {
        "pageable-copies": 6_000, "small-copies": 2_000, "exposed-copies": 3_000,
    }  # fmt: skip
    evidence = {n: r["evidence"] for n, r in found.items()}
    assert evidence["pageable-copies"] == (
        "1 pageable copy, 1.0 MB and 0.010 ms in total, 100.0 GB/s; 0.006 ms of it exposed"
    )
    assert evidence["small-copies"] == "1 copy, 4 B on average, 0.002 ms in total without a concurrent kernel"
    assert evidence["exposed-copies"].endswith("0.008 ms of that is counted in small-copies or pageable-copies")


def test_copies_without_sizes_or_ends(tmp_path: Path) -> None:
    """A pageable copy of 4 us without a size, and one of which the end is not known."""
    events = [kernel("k", 30, 4), *(
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at, dur, 0, 7, device=0, stream=7, **size)
        for at, dur, size in ((0, 4, {}), (10, -1, {"bytes": 1_000_000}))
    )]  # fmt: skip
    found = advice(trace(tmp_path, *events))["pageable-copies"]
    assert (found["saving_ns"], found["start_ns"], found["end_ns"]) == (4_000, 0, 4_000)
    assert found["evidence"] == "2 pageable copies, 0.004 ms in total; 0.004 ms of it exposed"


def test_longest_interval_has_an_end(tmp_path: Path) -> None:
    """1 us after a call of 5, and a kernel and a call of which the ends are not known."""
    path = trace(
        tmp_path,
        launch(0, 1, 5), kernel("a", 10, 1, correlation=1), launch(6, 2, -1), kernel("b", 17, 3, correlation=2),
        launch(20, 3, 5), kernel("c", 30, -1, correlation=3),
    )  # fmt: skip
    row = advice(path)["short-kernels"]
    assert (row["saving_ns"], row["start_ns"], row["end_ns"]) == (4_000, 0, 5_000)


def test_blocking_calls(tmp_path: Path) -> None:
    # The call from 5 to 11 returns when the kernel ends at 10; the GPU then idles until 20. The gap from 25 to 28 is
    # nobody's.
    path = trace(
        tmp_path,
        kernel("a", 0, 10), event("cuda_runtime", "cudaStreamSynchronize", 5, 6),
        kernel("b", 20, 5), kernel("c", 28, 2),
    )  # fmt: skip
    row = advice(path)["blocking-calls"]
    assert row["saving_ns"] == 10_000
    assert row["evidence"] == (
        "1 blocking call, 0.006 ms in total on the CPU, the longest 0.006 ms (cudaStreamSynchronize);"
        " 1 GPU gap after them, 0.010 ms in total"
    )


def test_nested_blocking_calls_count_once(tmp_path: Path) -> None:
    # One thread waits from 5 to 25, another from 7 to 8: the gap from 10 to 20 begins in the first.
    waits = [
        event("cuda_runtime", "cudaDeviceSynchronize", ts, dur, 1, tid) for ts, dur, tid in ((5, 20, 1), (7, 1, 2))
    ]
    assert (
        advice(trace(tmp_path, kernel("a", 0, 10), kernel("b", 20, 5), *waits))["blocking-calls"]["saving_ns"] == 10_000
    )


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def ranks(folder: Path, *of_ranks: list[dict[str, Any]], world_size: int | None = None) -> Path:
    for rank, events in enumerate(of_ranks):
        job = {"rank": rank, "world_size": world_size or len(of_ranks)}
        write_trace(folder / f"rank-{rank}.json", events, distributedInfo=job, **HOPPER)
    return folder


def test_stragglers(tmp_path: Path) -> None:
    # Rank 0 starts its all_reduces at 0 and 40, rank 1 at 8 and 42, both end together: waits of 8 + 2 and 0 us, 5 on
    # average. 6 us of the first wait are beside compute, so 2 + 2 are lost on rank 0, 2 a GPU; what is left of the 34
    # us of communication with no compute beside it, 15 a GPU, is not the straggler's.
    first = [kernel(ALL_REDUCE, 0, 20), kernel("a", 2, 6, stream=8), kernel(ALL_REDUCE, 40, 10)]
    second = [kernel(ALL_REDUCE, 8, 12), kernel(ALL_REDUCE, 42, 8)]
    found = advice(ranks(tmp_path, first, second))
    assert found["stragglers"]["saving_ns"] == 2_000
    assert found["stragglers"]["evidence"] == (
        "in 2 collectives each rank waits 0.005 ms in total (mean over ranks; maximum 0.010 ms);"
        " rank 1 is last in 2 of 2; others wait 0.010 ms for it, while its GPU computes for 0.000 ms and is idle for"
        " 0.010 ms"
    )
    # The rank that is late, while the others wait for it first: 0 to 8.
    where = [found["stragglers"][c] for c in ("rank", "device", "start_ns", "end_ns")]
    assert where[:2] == [1, 0] and where[3] - where[2] == 8_000
    assert found["exposed-communication"]["saving_ns"] == (24_000 + 20_000) / 2 - 2_000
    assert (
        "0.002 ms of that is counted in stragglers, pipeline-bubble, dataparallel or late-unshards"
        in found["exposed-communication"]["evidence"]
    )


def test_point_to_point_calls_are_not_stragglers(tmp_path: Path) -> None:
    # Two stages of a pipeline: in the order of their kernels, rank 1 would wait for rank 0 for 500 us in a run of 90.
    path = ranks(tmp_path, [kernel(SEND_RECV, t, 4) for t in (0, 60)], [kernel(SEND_RECV, t, 5) for t in (30, 85)])
    found = advice(path)
    assert "stragglers" not in found and found["exposed-communication"]["saving_ns"] == 9_000
    assert found["exposed-communication"]["evidence"] == (
        "0.009 ms of 0.009 ms of communication per GPU are exposed; most of the transfer is send_recv (0.009 ms);"
        " waits in 4 point-to-point kernels are not known"
    )


def test_no_straggler_if_half_the_ranks_are_missing(tmp_path: Path) -> None:
    found = advice(ranks(tmp_path, [kernel(ALL_REDUCE, 0, 20)], [kernel(ALL_REDUCE, 8, 12)], world_size=4))
    assert "stragglers" not in found
    assert found["exposed-communication"]["evidence"].endswith("; waits in 2 kernels of unmatched calls are not known")


def busy_ranks(folder: Path) -> Path:
    """Two ranks on which every finding is true, each kind of work on eight streams at once, all through 500 us.

    Sums over streams would be several times the span: waits, layout and fp32 kernels, copies, calls of many threads,
    optimizer phases that lie over one another.
    """
    of_ranks = []
    for rank in (0, 1):
        events: list[dict[str, Any]] = []
        for n in range(8):

            def gpu(name: str, ts: float, dur: float, n: int = n, **args: Any) -> dict[str, Any]:
                return kernel(name, ts, dur, stream=10 + n, **args)

            group = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Group size": 2}
            events += [gpu(ALL_REDUCE, 80 * rank, 100 - 80 * rank, **group), gpu("ampere_sgemm_128x64_tn", 110, 50)]
            pair = {"Collective name": "recv", "Src Rank": 0} if rank else {"Collective name": "send", "Dst Rank": 1}
            events += [gpu(SEND_RECV, 545 + 20 * rank, 30 - 20 * rank, **group | pair)]
            events += [gpu("nchwToNhwcKernel<float>", 160, 50)]
            for ts, size, memory in ((220, 4, "Pageable"), (260, 10**6, "Pageable"), (302, 10**6, "Pinned")):
                args = {"device": 0, "stream": 10 + n, "bytes": size}
                dur = 5 if memory == "Pinned" else 30
                events += [event("gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)", ts, dur, 0, 10 + n, **args)]
            events += [event("cuda_runtime", "cudaDeviceSynchronize", 280, 15, 1, 20 + n)]
            events += [event("user_annotation", "data", 330, 15, 1, 20 + n)]
            events += [event("user_annotation", "optimizer", 400 + n, 0.9)]
            for i in range(12):
                number = 100 * n + i + 1
                events += [launch(400 + n + i * 0.05, number, 20, tid=30 + n)]
                events += [gpu("add", 420 + i * 8 + n, 0.5, correlation=number)]
            for what, at, number in (("", 440, 5000 + n), ("_copy_out", 452, 6000 + n)):
                events += [event("user_annotation", f"FSDP::all_gather{what} ({n})", at, 8, 1, 60 + n)]
                events += [launch(at + 1, number) | {"tid": 60 + n}]
            gathered = group | {"Collective name": "_allgather_base", "correlation": 5000 + n}
            events += [gpu("ncclDevKernel_AllGather_RING_LL", 580, 20, **gathered)]
            events += [kernel("split_with_sizes_copy", 601, 2, stream=40 + n, correlation=6000 + n)]
        events += [kernel("a", 310, 10), launch(349, 9999), kernel("a", 350, 5, correlation=9999)]
        of_ranks.append(events)
    # One process drives a second GPU as DataParallel does.
    of_ranks[0] += [kernel("ncclDevKernel_Broadcast_RING_LL", 520, 20, d, stream=s) for d in (0, 1) for s in range(8)]
    of_ranks[0] += [event("user_annotation", "DataParallel.forward", 355, 150)]
    return ranks(folder, *of_ranks)


def test_no_saving_exceeds_the_recorded_span(tmp_path: Path) -> None:
    """As each finding's own SQL has it, before anything is cut."""
    engine = Engine(open_stores([busy_ranks(tmp_path)])[0])
    [(run_id, span_ns)] = engine.sql("SELECT run_id, span_ns FROM run_gpus").rows()
    savings = {f.name: engine.query(f.query).rows() for f in findings()}
    # Managed memory and counters are in no Chrome trace; the rest is in tests of its own.
    elsewhere = {
        "managed-memory", "autotuning", "compilation", "lazy-loading", "lone-gap", "uneven-steps", "warm-up",
        "below-roof", "compute-bound", "memory-bound", "uncoalesced",
        "cpu-allocations", "cpu-data-wait", "cpu-idle", "cpu-operators",
    }  # fmt: skip
    assert {name for name, rows in savings.items() if not rows} == elsewhere
    assert all(run == run_id and 0 < ns <= span_ns for rows in savings.values() for run, ns, *_ in rows), savings
    assert all(row[5] < row[6] for rows in savings.values() for row in rows), "a stretch to look at"
    # What has an owner is there once: all but what overlaps adds up to the span or less.
    overlapping = {f.name for f in findings() if f.overlaps}
    assert sum(rows[0][1] for name, rows in savings.items() if rows and name not in overlapping) <= span_ns


def test_findings_without_data_have_no_rows() -> None:
    of_several = {"dataparallel", "exposed-communication", "late-unshards", "pipeline-bubble", "stragglers"}
    copies = {"managed-memory", "pageable-copies", "small-copies"}
    # What sample_traces/README.md says of them: one GPU; ranks, in a program that copies nothing.
    for sample, lacking in (("resnet18-1gpu", of_several), ("late-rank", {*copies, "pipeline-bubble"})):
        engine = Engine(open_stores([SAMPLES / sample])[0])
        assert lacking <= {f.name for f in findings()}
        assert [f.name for f in findings() if f.name in lacking and engine.query(f.query).rows()] == []
        assert lacking.isdisjoint(a.finding for a in advise(engine, min_pct=0))


def test_causes_come_first(tmp_path: Path) -> None:
    advised = advise(Engine(open_stores([busy_ranks(tmp_path)])[0]), min_pct=0)
    table = [one._asdict() for one in advised]
    assert [r["overlaps"] is None for r in table] == sorted((r["overlaps"] is None for r in table), reverse=True)
    for overlaps in (True, False):
        savings = [r["saving_ns"] for r in table if (r["overlaps"] is not None) == overlaps]
        assert savings and savings == sorted(savings, reverse=True)
    names = [r["finding"] for r in table]
    last = table[-1]
    numbers = sorted(names.index(n) + 1 for n in last["overlaps"].split(", "))
    file = io.StringIO()
    write_text(advised, file)
    overlaps = f"overlaps finding{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
    assert f" %), {overlaps}\n     evidence: {last['evidence']}" in file.getvalue()


def test_late_rank_is_named_once() -> None:
    """The last of four ranks sleeps before each all-reduce: what the others wait is its finding, and no other's."""
    found = advice(SAMPLES / "late-rank")
    assert (
        "rank 3 is last in 3 of 3; others wait 66.289 ms for it, while its GPU computes for 0.046 ms and is idle for"
        " 66.243 ms"
    ) in found["stragglers"]["evidence"]
    # The program only sleeps: there is no operator to name.
    assert (found["stragglers"]["rank"], found["stragglers"]["operator"]) == (3, None)
    [exposed] = analyze.open(SAMPLES / "late-rank").sql("SELECT exposed_comm_ns FROM run_gpus").dicts()
    both = found["stragglers"]["saving_ns"] + found["exposed-communication"]["saving_ns"]
    assert both == pytest.approx(exposed["exposed_comm_ns"], abs=1)
    # The queries have every rank's waits, and nothing computes beside them.
    waits = [r["wait_ns"] for r in analyze.open(SAMPLES / "late-rank").query("stragglers").dicts()]
    assert found["stragglers"]["saving_ns"] == round(sum(waits) / 4)


def test_findings_name_the_line_of_the_program() -> None:
    """A recording with Python stacks: where examples/train.py calls what the findings are about."""
    path = SAMPLES / "train-stacks"
    # The line at which a function stood when the recording began is all that PyTorch writes; it began inside of this.
    at = 1 + (ROOT / "examples" / "train.py").read_text().splitlines().index("    optimizer.step()")
    sources = {r["source"] for r in advice(path, min_pct=0).values()}
    assert len(sources) == 1 and all(s.endswith(f"examples/train.py:{at} in <module>") for s in sources)


def test_findings_are_ranked_and_small_ones_hidden(tmp_path: Path) -> None:
    traces = analyze.open(SAMPLES).where("profiler = 'torch'")
    table = traces.advise(min_pct=0).dicts()
    # The recordings of torch.profiler in sample_traces/README.md.
    assert len({r["run_id"] for r in table}) == 28
    for run_id in {r["run_id"] for r in table}:
        for overlaps in (True, False):
            rows = [r for r in table if r["run_id"] == run_id and (r["overlaps"] is not None) == overlaps]
            savings = [r["saving_ns"] for r in rows]
            assert savings == sorted(savings, reverse=True)
    assert {r["finding"] for r in table} >= {"host-wait", "tf32", "exposed-communication"}
    assert all(0 < r["saving_pct"] <= 100 and re.search(r"\d", r["evidence"]) for r in table)
    assert all(r["query"] in catalog() for r in table)
    one = table[0]["run_id"]
    shown = {r["finding"] for r in traces.where(f"run_id = '{one}'").advise().dicts()}
    large = {r["finding"] for r in table if r["run_id"] == one and r["saving_pct"] >= 1}
    assert shown == large < {r["finding"] for r in table if r["run_id"] == one}


def test_savings_agree_with_the_queries() -> None:
    """The evidence is what the named query says: over the GPUs of the run."""
    path, torch = SAMPLES / "alexnet-dp2", "profiler = 'torch'"
    found, traces = advice(path, where=torch), analyze.open(path)
    breakdown = traces.where(torch).query("breakdown").dicts()
    # No compute runs beside a broadcast there, and no copy but the small ones is of pageable memory.
    [broadcast] = [r for r in traces.where(torch).query("nccl-share").dicts() if r["collective"] == "broadcast"]
    exposed_ns = sum(r["exposed_comm_ns"] for r in breakdown) - broadcast["total_ns"]
    assert found["exposed-communication"]["saving_ns"] == round(exposed_ns / 2)
    copies = found["exposed-copies"]["saving_ns"] + found["small-copies"]["saving_ns"]
    assert copies == pytest.approx(sum(r["exposed_memcpy_ns"] for r in breakdown) / 2, abs=1)
    # The host's waits are host-wait's, DataParallel's, the data loader's or the profiler's.
    # A gap is the profiler's cause where it works in the larger part; the host had queued nothing there, either.
    rows = traces.where(torch).query("idle-causes").dicts()
    causes = [r for r in rows if r["cause"] in ("host_wait", "profiler")]
    host = found["host-wait"]["saving_ns"] + found["dataparallel"]["saving_ns"] + found["data-wait"]["saving_ns"]
    profiler_ns = 1e6 * float(
        re.search(r"([\d.]+) ms of idle time is profiler time", found["host-wait"]["evidence"])[1]
    )
    idle_ns = sum(r["idle_ns"] for r in causes) / 2
    assert host - broadcast["total_ns"] / 2 + profiler_ns == pytest.approx(idle_ns, abs=1_000)


def test_advise_without_findings(tmp_path: Path) -> None:
    path = trace(tmp_path, kernel("a", 0, 10))
    assert advice(path) == {}
    result = run_cli("advise", path)
    assert result.returncode == 0 and result.stdout.endswith("\n\nno findings\n")
    with pytest.raises(InputError, match="--min-pct nan"):
        advice(path, min_pct=float("nan"))
    none = run_cli("advise", write_trace(tmp_path / "none" / "t.json", []))
    assert none.returncode == 2 and "no run has GPU work, operators or counters of kernels" in none.stderr
    # Recordings without times say what is wrong and name the query that has the answer.
    snapshot = SAMPLES / "out-of-memory" / "torch" / "rank-0.memory_snapshot.pickle"
    hang = "warning: hang: nccl:all_reduce (call 3): rank 1 calling another; the query hang says where each rank is\n"
    oom = "out_of_memory.py:15 <module>; too large: smaller batches, activation checkpointing, sharding; "
    log = SAMPLES / "recompile-ddp" / "torch" / "rank-0.torch_trace.log.gz"
    cases = ((SAMPLES / "hang-size", hang, "hang"), (snapshot, oom, "memory-live"), (log, "no findings\n", "compiles"))
    for path, said, name in cases:
        found = run_cli("advise", path)
        assert found.returncode == 0 and said in found.stdout and f"; the query {name} says " in found.stderr


def test_advise_command(tmp_path: Path) -> None:
    path = SAMPLES / "resnet18-1gpu"
    text = run_cli("advise", path)
    assert text.returncode == 0 and complaints(text) == []
    assert (
        "\n  1. Matrix kernels in fp32" in text.stdout
        and f"\n     more: analyze query kernel-share {path}\n" in text.stdout
    )
    rows = json.loads(run_cli("advise", path, "-f", "json").stdout)
    assert rows == analyze.open(path).advise().dicts()
    target = tmp_path / "advice.txt"
    run_cli("advise", path, "-o", target)
    assert target.read_text() == text.stdout


def test_findings_are_grouped_by_run() -> None:
    file = io.StringIO()
    write_text(advise(Engine(open_stores([SAMPLES])[0], Selection(where=("profiler = 'torch' AND gpus = 2",)))), file)
    assert file.getvalue().count("\n  1. ") == 2


@pytest.mark.parametrize("finding", findings(), ids=lambda f: f.name)
def test_every_finding_is_documented(finding: Any) -> None:
    page = (ROOT / "docs" / "advise.md").read_text()
    assert f"`{finding.name}`" in page and finding.see in catalog()
    columns = ["run_id", "saving_ns", "evidence", "rank", "device", "start_ns", "end_ns", "source"]
    assert [c.name for c in finding.query.columns if c.name != "situation"] == columns
