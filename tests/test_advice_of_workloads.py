"""Advice for each kind of workload: the first finding, its place, its size, and a remedy that fits."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import ROOT, SAMPLES
from test_ncu import wide
from traces import event, kernel, launch, launched, op, step, write_trace

import analyze

Events = list[dict[str, Any]]
CPU_TRAIN = ROOT / "tests" / "data" / "cpu_train"


def first(path: Path) -> dict[str, Any]:
    return analyze.open(path).advise().dicts()[0]


def advice(path: Path) -> dict[str, dict[str, Any]]:
    return {r["finding"]: r for r in analyze.open(path).advise(min_pct=0).dicts()}


def recorded(sample: str | Path, rank: int = 0) -> Events:
    raw = gzip.decompress((SAMPLES / sample / "torch" / f"rank-{rank}.trace.json.gz").read_bytes())
    return [e for e in json.loads(raw)["traceEvents"] if e.get("ph") == "X"]


def self_times_us(events: Events) -> dict[str, float]:
    """Return the time in each operator outside of the operators that it calls."""
    found: dict[str, float] = defaultdict(float)
    open_ops: dict[int, Events] = defaultdict(list)
    for e in sorted((e for e in events if e["cat"] == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        stack = open_ops[e["tid"]]
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= e["ts"]:
            stack.pop()
        if stack:
            found[stack[-1]["name"]] -= e["dur"]
        found[e["name"]] += e["dur"]
        stack.append(e)
    return found


def late_launch_gaps_us(events: Events) -> float:
    """Return how long the GPU has no work although nothing is queued: gaps whose next launch begins inside of them."""
    calls = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    work = sorted((e for e in events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"])
    idle, end = 0.0, work[0]["ts"]
    for e in work:
        if e["ts"] > end and calls.get(e["args"]["correlation"], end) > end:
            idle += e["ts"] - end
        end = max(end, e["ts"] + e["dur"])
    return idle


def test_training_that_waits_for_data() -> None:
    # slow_loader.py sleeps 8 x 2.5 ms for a batch. The first of three waits is before the first GPU work.
    row = first(SAMPLES / "slow-loader")
    assert (row["finding"], row["workload"], row["rank"]) == ("data-wait", "training", 0)
    assert 2 * 20e6 <= row["saving_ns"] < 2 * 22e6 and "DataLoader workers" in row["try"]


def test_training_with_cuda_graphs() -> None:
    row = first(SAMPLES / "cuda-graph")
    assert (row["finding"], row["workload"], row["rank"]) == ("host-wait", "training, CUDA graphs", 0)
    assert row["recorded_saving_ns"] == pytest.approx(1e3 * late_launch_gaps_us(recorded("cuda-graph")), abs=5_000)
    # They are in use: the remedy is not to use them.
    assert row["try"].startswith("less work between replays") and row["operator"] == "cudaGraphLaunch"


def test_compiled_training() -> None:
    row = first(SAMPLES / "lm-compiled")
    assert (row["finding"], row["workload"]) == ("host-wait", "training, compiled")
    assert row["recorded_saving_ns"] == pytest.approx(1e3 * late_launch_gaps_us(recorded("lm-compiled")), rel=0.01)
    # 3 steps, each of which has 5.422 ms of idle time without the profiler (`health`).
    assert row["saving_ns"] == pytest.approx(3 * 5.422e6, rel=0.01) and row["confidence"] == "measured"
    assert "torch.compile(mode='reduce-overhead') adds CUDA graphs" in row["try"]


def test_inference() -> None:
    found = advice(SAMPLES / "generate")
    row = next(iter(found.values()))
    assert (row["finding"], row["workload"]) == ("host-wait", "inference, prefill, decode")
    assert (row["rank"], row["device"]) == (0, 0)
    # Each ns of idle time has one cause.
    idle = sum(found[name]["saving_ns"] for name in ("host-wait", "lazy-loading", "blocking-calls"))
    assert idle == pytest.approx(1e3 * late_launch_gaps_us(recorded("generate")), rel=1e-5)
    assert "decode" in row["try"] and "loss" not in row["try"]
    # Nobody timed it without the profiler, and all launches find an empty queue.
    assert row["confidence"] == "artifact?"
    # CUDA loads kernels while the GPU is idle: Kineto's ranges of it, none of which overlaps GPU work or another one.
    loads = [e["dur"] for e in recorded("generate") if "Loading" in e["name"]]
    assert found["lazy-loading"]["saving_ns"] == pytest.approx(1e3 * sum(loads), rel=0.001)
    assert found["lazy-loading"]["evidence"].startswith(f"{len(loads)} loads, the longest {max(loads) / 1e3:.3f} ms")


def test_pipeline() -> None:
    found = advice(SAMPLES / "pipeline-4gpu")
    row = next(iter(found.values()))
    assert (row["finding"], row["workload"], row["confidence"]) == ("tf32", "training, pipeline", "estimated")
    # Half of the fp32 products of four GPUs; a stage has no others.
    work = [e for rank in range(4) for e in recorded("pipeline-4gpu", rank) if e["cat"] == "kernel"]
    products = [e for e in work if "f32f32_f32f32" in e["name"] or "sgemm" in e["name"]]
    assert row["saving_ns"] == pytest.approx(1e3 * sum(e["dur"] for e in products) / 2 / 4, rel=0.001)
    # Its place: the longest product of the operator with most of their time. One process, with one GPU, is a rank.
    ops = [
        {e["args"]["External id"]: e["name"] for e in recorded("pipeline-4gpu", rank) if e["cat"] == "cpu_op"}
        for rank in range(4)
    ]
    times: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for e in products:
        times[ops[e["args"]["device"]][e["args"]["External id"]]].append((e["dur"], e["args"]["device"]))
    operator = max(times, key=lambda name: sum(dur for dur, _ in times[name]))
    dur, rank = max(times[operator])
    assert (row["operator"], row["rank"], row["device"]) == (operator, rank, rank)
    assert row["end_ns"] - row["start_ns"] == pytest.approx(1e3 * dur, abs=1)
    # The rank that others wait for, and what it computes meanwhile.
    late = found["pipeline-bubble"]
    assert late["rank"] == late["device"] == 1 and "its GPU computes for" in late["evidence"]


def test_experts() -> None:
    found = advice(SAMPLES / "expert-4gpu")
    row = next(iter(found.values()))
    assert (row["finding"], row["workload"]) == ("exposed-communication", "training, experts")
    assert row["try"].startswith("overlap the exchange of tokens")
    # All communication of the four GPUs is exposed; part of it is waiting.
    sent = [[e for e in recorded("expert-4gpu", rank) if "ncclDevKernel" in e["name"]] for rank in range(4)]
    both = row["saving_ns"] + found["stragglers"]["saving_ns"]
    assert both == pytest.approx(1e3 * sum(e["dur"] for kernels in sent for e in kernels) / 4, rel=0.001)
    # Its place: the longest transfer. One group makes all calls, in one order; a transfer begins with its last rank.
    longest, rank = max(
        (e["ts"] + e["dur"] - max(other["ts"] for other in call), rank)
        for call in zip(*(sorted(kernels, key=lambda e: float(e["ts"])) for kernels in sent), strict=True)
        for rank, e in enumerate(call)
    )
    assert (row["rank"], row["device"], row["operator"]) == (rank, rank, "record_param_comms")
    assert row["end_ns"] - row["start_ns"] == pytest.approx(1e3 * longest, abs=2)


def test_tensor_parallelism() -> None:
    # fsdp_tp.py --tp 2: most of the exposed transfer is the all_reduces of the pairs, not of gradients.
    row = first(SAMPLES / "fsdp-tp-4gpu")
    assert row["finding"] == "exposed-communication" and "most of the transfer is all_reduce" in row["evidence"]
    assert row["try"].startswith("overlap it with products")


def test_counters_only(tmp_path: Path) -> None:
    # `f` moves 1,000,000 B in 10 us, 100 GB/s of a peak of 1000 B per cycle at 1 GHz: 10 %. It could save 90 %.
    # `g` moves 8,000,000 B, 80 %: of its 10 us half. Registers limit the blocks on an SM; they fill a fifth of the GPU.
    def counters(size: str, used: str) -> dict[str, tuple[str, str]]:
        operations = {f"smsp__sass_thread_inst_executed_op_{o}_pred_on.sum": ("inst", "0") for o in OPERATIONS}
        return {
            "gpu__time_duration.sum": ("ns", "10000"), "dram__bytes_read.sum": ("byte", size),
            "dram__bytes_write.sum": ("byte", "0"), "dram__bytes.sum.peak_sustained": ("byte/cycle", "1000"),
            "dram__cycles_elapsed.avg.per_second": ("hz", "1000000000"),
            "sm__maximum_warps_per_active_cycle_pct": ("%", "25"), "launch__waves_per_multiprocessor": ("", "0.2"),
            "launch__occupancy_limit_registers": ("block", "2"), "launch__occupancy_limit_warps": ("block", "8"),
            "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": ("%", used),
        } | operations  # fmt: skip

    (tmp_path / "a.csv").write_text(
        wide([("f(int)", counters("1000000", "25")), ("g(int)", counters("8000000", "100"))])
    )
    found = advice(tmp_path / "a.csv")
    assert {n: r["saving_ns"] for n, r in found.items()} == {
        "below-roof": 9_000, "uncoalesced": 7_500, "memory-bound": 5_000,
    }  # fmt: skip
    row = next(iter(found.values()))
    assert (row["workload"], row["confidence"], row["start_ns"]) == ("counters only", "estimated", None)
    assert "f (launch 0, 0.010 ms): memory 10 % of its peak" in found["below-roof"]["evidence"]
    assert found["below-roof"]["source"] == "launch 0, f"
    assert "occupancy 25 %, limited by registers; the grid fills 20 % of the GPU" in found["below-roof"]["evidence"]
    assert found["below-roof"]["try"].startswith("the grid does not fill the GPU")
    assert found["uncoalesced"]["evidence"].endswith("; 25 % of the bytes are used")


OPERATIONS = [f"{kind}{what}" for kind in "hfd" for what in ("add", "mul", "fma")]


def test_counters_of_products() -> None:
    """Each launch of the sample, by hand: what it does in its time, as a share of the peaks that the report has."""
    with (SAMPLES / "matmuls" / "ncu" / "rank-0.ncu.csv").open() as lines:
        _units, *launches = csv.DictReader(lines)
    lost: dict[str, float] = {}
    for launch_row in launches:
        value = {k: float(v.replace(",", "")) for k, v in launch_row.items() if re.fullmatch(r"[\d,]+(\.\d+)?", v)}
        seconds = value["gpu__time_duration.sum"] / 1e6
        # MB, kB and kB per cycle; GHz.
        moved = value["dram__bytes_read.sum"] * 1e6 + value["dram__bytes_write.sum"] * 1e3
        memory = moved / (value["dram__bytes.sum.peak_sustained"] * 1e3 * value["dram__cycles_elapsed.avg.per_second"])
        cycles = value["sm__cycles_elapsed.avg.per_second"] * 1e9 * seconds
        # The peak of tensor cores is with sparsity: twice that of dense products.
        tensor = [
            value[f"sm__ops_path_tensor_src_{kind}.sum"]
            / (value[f"sm__ops_path_tensor_src_{kind}.sum.peak_sustained"] / 2 * cycles)
            for kind in ("tf32_dst_fp32", "fp16", "bf16_dst_fp32")
        ]
        count = {o: value[f"smsp__sass_thread_inst_executed_op_{o}_pred_on.sum"] for o in ("fadd", "fmul", "ffma")}
        fp32 = (count["fadd"] + count["fmul"] + 2 * count["ffma"]) / (
            2 * value["sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"] * cycles
        )
        share = max(memory / 1e9 / seconds, fp32, *tensor)
        lost[launch_row["ID"]] = 1e9 * seconds * (1 - share) if share < 0.6 else 0
    assert sorted(i for i, ns in lost.items() if not ns) == ["2"]
    row = first(SAMPLES / "matmuls")
    assert (row["finding"], row["workload"]) == ("below-roof", "counters only")
    # The clock of the roofs is the mean over the launches.
    assert row["saving_ns"] == pytest.approx(sum(lost.values()), rel=0.01)
    [launch_id] = [i for i, ns in lost.items() if ns == max(lost.values())]
    assert (row["rank"], row["device"]) == (0, 0) and row["source"].startswith(f"launch {launch_id}, sm90_xmma_gemm")


def test_cpu_training() -> None:
    """`collect run --steps 2 --warmup 3 -- python3 examples/train.py --batch-size 16 --width 32` without a GPU."""
    times = self_times_us(recorded(CPU_TRAIN))
    row = first(CPU_TRAIN)
    assert (row["finding"], row["workload"], row["rank"]) == ("cpu-operators", "training, CPU only", 0)
    assert row["operator"] == max(times, key=lambda name: times[name]) == "aten::convolution_backward"
    assert row["saving_ns"] == pytest.approx(1e3 * times[row["operator"]], rel=1e-6)
    assert row["step"] in (5, 6) and row["try"].startswith("channels_last, bf16")


def test_cpu_only(tmp_path: Path) -> None:
    # 100 us: waiting for data to 30, products from 30 to 80 in 50 us, 4 of which are an allocation; nothing to 90; add.
    path = write_trace(
        tmp_path / "t.json",
        [
            event("user_annotation", "data", 0, 30), op("aten::empty", 0, 1, 9), op("aten::linear", 30, 50, 1),
            op("aten::empty", 32, 4, 2), op("aten::add", 90, 10, 3),
        ],
    )  # fmt: skip
    found = advice(path)
    assert {n: r["saving_ns"] for n, r in found.items()} == {
        "cpu-data-wait": 30_000, "cpu-idle": 10_000, "cpu-operators": 46_000, "cpu-allocations": 5_000,
    }  # fmt: skip
    assert found["cpu-operators"]["evidence"] == (
        "aten::linear: 1 call, 0.046 ms self time, 75.4 % of that of all operators; next aten::add (0.010 ms);"
        " 1 thread with operators"
    )
    assert found["cpu-operators"]["operator"] == "aten::linear" and "bf16" in found["cpu-operators"]["try"]
    assert found["cpu-operators"]["workload"] == "inference, CPU only" and found["cpu-idle"]["start_ns"] == 80_000


def test_alternating_decode_steps(tmp_path: Path) -> None:
    # Eight steps, of 7 and 33 us in turn; the slow ones spend 26 us more in an operator. Each launches 1 us of work.
    events: Events = []
    for n in range(8):
        ts, length = 100.0 * n, 33 if n % 2 else 7
        events += [event("user_annotation", "decode", ts, length), op("aten::attention", ts + 1, length - 3, n + 1)]
        events += launched(ts + length - 3, n + 1, ts + length - 1, 1)
    found = advice(write_trace(tmp_path / "t.json", events))
    row = found["uneven-steps"]
    assert row["saving_ns"] == 4 * 26_000
    assert row["evidence"] == (
        "4 of 8 decode steps take 0.033 ms on average, the others 0.007 ms; 0.026 ms more in aten::attention"
    )
    assert (row["operator"], row["start_ns"], row["end_ns"]) == ("aten::attention", 101_000, 131_000)


def test_warm_up_steps(tmp_path: Path) -> None:
    # The first step takes 50 us, the next four 10: the GPU works 1 us in each.
    events: Events = []
    for n, ts in enumerate((0, 50, 60, 70, 80)):
        events += [step(n, ts, 10 if n else 50), op("aten::add", ts, 5, n + 1), *launched(ts + 1, n + 1, ts + 3, 1)]
    found = advice(write_trace(tmp_path / "t.json", events))
    assert found["warm-up"]["saving_ns"] == 40_000 and "uneven-steps" not in found
    assert found["warm-up"]["evidence"] == "1 slow step at the start, the longest 0.050 ms; usual are 0.010 ms"


def test_set_up_work_has_one_owner(tmp_path: Path) -> None:
    # Idle from 10 to 100. A kernel is loaded from 20 to 30, in a compilation from 15 to 60 that tries out kernels from
    # 50 to 60. An operator that times kernels, as cuDNN does, from 70 to 80.
    path = write_trace(
        tmp_path / "t.json",
        [
            kernel("a", 0, 10), launch(98, 1), kernel("b", 100, 10, correlation=1),
            event("overhead", "Runtime Triggered Module Loading", 20, 10, -1, 0),
            op("compile_fx (dynamo_timed)", 15, 45, 1), op("CachingAutotuner.benchmark_all_configs", 50, 10, 2),
            op("aten::cudnn_convolution", 70, 10, 3), event("cuda_runtime", "cudaEventElapsedTime", 75, 1),
        ],
    )  # fmt: skip
    savings = {n: r["saving_ns"] for n, r in advice(path).items() if n != "short-kernels"}
    assert savings == {
        "lazy-loading": 10_000, "autotuning": 20_000, "compilation": 45_000 - 20_000, "host-wait": 90_000 - 55_000,
    }  # fmt: skip


def test_one_gap_with_nearly_all_idle_time(tmp_path: Path) -> None:
    # Ten gaps of 1 us, and one of 500 in which the CPU is in a copy for 490.
    events: Events = [kernel("a", 2.0 * n, 1) for n in range(11)]
    events += [event("cuda_runtime", "hipMemcpyWithStream", 30, 490, correlation=7), kernel("b", 521, 1)]
    row = first(write_trace(tmp_path / "t.json", events))
    assert (row["finding"], row["saving_ns"], row["operator"]) == ("lone-gap", 500_000, "hipMemcpyWithStream")
    assert row["evidence"] == (
        "0.500 ms of 0.510 ms of idle time (98.0 %) are one gap; the CPU is in hipMemcpyWithStream for 0.490 ms of it"
    )


def test_optimizer_that_uses_foreach(tmp_path: Path) -> None:
    def trace(name: str, operator: str) -> Path:
        events: Events = [event("user_annotation", "optimizer", 0, 40)]
        for n in range(12):
            events += [op(operator, 2 * n, 1.5, n + 1), *launched(2 * n + 0.2, n + 1, 20 + 3 * n, 1)]
        return write_trace(tmp_path / name / "t.json", events)

    assert "foreach=True" in advice(trace("a", "aten::add_"))["optimizer"]["try"]
    assert "foreach=True" not in advice(trace("b", "aten::_foreach_add_"))["optimizer"]["try"]


def test_loading_of_weights_is_no_matter_of_the_loader(tmp_path: Path) -> None:
    # Ten copies of weights, then a product.
    def copy(ts: float) -> dict[str, Any]:
        name, args = "Memcpy HtoD (Pageable -> Device)", {"device": 0, "stream": 7, "bytes": 1_000_000}
        return event("gpu_memcpy", name, ts, 5, 0, 7, **args)

    events = [*(copy(6.0 * n) for n in range(10)), kernel("ampere_sgemm", 60, 10)]
    assert "load the weights" in advice(write_trace(tmp_path / "a" / "t.json", events))["pageable-copies"]["try"]
    few = [copy(0), kernel("ampere_sgemm", 60, 10)]
    assert "DataLoader" in advice(write_trace(tmp_path / "b" / "t.json", few))["pageable-copies"]["try"]


def test_layout_names_the_operator_with_most_of_them(tmp_path: Path) -> None:
    # The longest one is of another operator, and communication runs beside all of them.
    events: Events = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 100, stream=9)]
    for n in range(4):
        operator = "aten::convolution_backward" if n < 3 else "aten::conv2d"
        events += [
            op(operator, 10.0 * n, 5, n + 1),
            *launched(10.0 * n, n + 1, 20.0 * n + 5, 4 + n, "nchwToNhwcKernel"),
        ]
    row = advice(write_trace(tmp_path / "t.json", events))["layout"]
    assert row["evidence"] == "4 layout kernels, 0.022 ms in total; 3 of them from aten::convolution_backward"
    assert (row["operator"], row["start_ns"]) == ("aten::convolution_backward", 45_000)


def test_commands_have_the_path_that_was_given(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "a name" / "t.json", [kernel("a", 0, 10), launch(28, 1), kernel("b", 30, 10, correlation=1)]
    )
    text = run_cli("advise", path).stdout
    assert f"     more: analyze query idle-causes '{path}'\n" in text
    assert f"     look: analyze trace '{path}' --open --at host-wait\n" in text
