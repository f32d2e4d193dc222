"""`summary`: the figures of a recording in a row, each from the block or pass that knows it best."""

from __future__ import annotations

import csv
import pickle
from itertools import accumulate
from pathlib import Path
from statistics import fmean

import pytest
from support import SAMPLES, ask
from test_nvprof import PLAIN
from traces import event, kernel, launch, op, step, write_ranks, write_trace

import analyze
from analyze.query.query_files import find
from analyze.report.first_screen import quality
from analyze.summary import measures

SUMMARY_COLUMNS = [c.name for c in find("summary").columns]


def test_shares_are_means_over_gpus_and_steps(tmp_path: Path) -> None:
    """Two ranks with two steps of 100 us each; the second rank also communicates."""
    compute = [kernel("gemm", ts, 40, correlation=ts) for ts in (10, 110)]
    calls = [launch(ts - 1, ts) for ts in (10, 110)]
    ends = [step(0, 0, 100), step(1, 100, 100)]
    nccl = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts, 20, stream=9) for ts in (50, 150)]
    [row] = ask(write_ranks(tmp_path, [*compute, *calls, *ends], [*compute, *nccl, *calls, *ends]), "summary")
    assert (row["ranks"], row["gpus"], row["steps"], row["avg_step_ns"]) == (2, 2, 2, 100_000)
    # Compute is 40 of 100 us on both; communication 20 of 100 us on one; nothing runs in 60 and 40 us.
    shares = ("compute_pct", "exposed_comm_pct", "exposed_memcpy_pct", "idle_pct")
    assert [row[name] for name in shares] == pytest.approx([40, 10, 0, 50])
    assert row["undisturbed_step_ns"] is row["mfu_pct"] is row["peak_bytes"] is None


def test_recording_of_the_cpu_alone(tmp_path: Path) -> None:
    allocated = {"Addr": 1, "Bytes": 64, "Device Type": 0, "Device Id": -1, "Total Allocated": 4096}
    memory = event("cpu_instant_event", "[memory]", 12, 0, **allocated) | {"ph": "i"}
    [row] = ask(write_trace(tmp_path / "t.json", [op("aten::mm", 10, 90, 1), memory]), "summary")
    assert (row["gpus"], row["compute_pct"], row["span_ns"], row["peak_cpu_bytes"]) == (None, None, 90_000, 4096)


def test_figures_of_two_blocks() -> None:
    """Times are those of the GPU-only block, which its own files have; MFU needs operators: the full block."""
    folder = SAMPLES / "late-ddp"
    [row] = ask(folder, "summary")
    timed = [
        [1e9 * float(r["step_s"]) for r in csv.DictReader(path.open()) if r["undisturbed"] == "true"]
        for path in sorted((folder / "gpu").glob("*.step_metrics.csv"))
    ]
    assert row["undisturbed_step_ns"] == pytest.approx(fmean(map(fmean, timed)), abs=1)
    recorded = [
        [1e9 * float(r["step_s"]) for r in csv.DictReader(path.open()) if r["warmup"] == "false"]
        for path in sorted((folder / "gpu").glob("*.step_metrics.csv"))
    ]
    assert row["avg_step_ns"] == pytest.approx(fmean(map(fmean, recorded)), rel=0.02)
    assert row["run_id"].endswith(".torch") and row["mfu_pct"] < row["undisturbed_mfu_pct"]


def test_images_per_second_are_those_of_all_ranks() -> None:
    [row] = ask(SAMPLES / "resnet18-ddp2", "summary")
    # --batch-size 16 for each of two ranks (run.json), which take about as long.
    assert row["images_per_s"] == pytest.approx(2 * 16 * 1e9 / row["avg_step_ns"], rel=0.05)


def test_counters_have_the_time_of_their_kernels_and_no_others() -> None:
    with (SAMPLES / "matmuls" / "ncu" / "rank-0.ncu.csv").open() as lines:
        _units, *launches = csv.DictReader(lines)
    [row] = ask(SAMPLES / "matmuls", "summary")
    assert row["avg_step_ns"] is row["idle_pct"] is None
    assert row["counted_kernels"] == len(launches) == 12
    assert row["counted_ns"] == sum(round(1e3 * float(r["gpu__time_duration.sum"])) for r in launches)
    assert [(m.name, m.detail) for m in measures(row)][-1] == ("ranks", "counters only")
    # A pass of torch.profiler of the same program has the times.
    [timed] = ask(SAMPLES / "alexnet-ncu", "summary")
    assert timed["counted_kernels"] is None and timed["gpus"] == 1


def test_recordings_without_times_say_what_they_have(tmp_path: Path) -> None:
    # hang.py: rank 2 does not call the third all_reduce, or rank 1 calls it with another size.
    for sample, hang in (("missing", "rank 2 missing"), ("size", "rank 1 calling another")):
        first, ranks = measures(ask(SAMPLES / f"hang-{sample}", "summary")[0])
        assert (first.name, first.value, ranks.detail) == ("hung process groups", 1, "dumps of the flight recorder")
        assert first.detail == f"nccl:all_reduce (call 3): {hang}"
    (tmp_path / "nvprof.log").write_text(PLAIN)
    time, ranks = measures(ask(tmp_path / "nvprof.log", "summary")[0])
    assert (time.name, time.value, time.detail, ranks.detail) == ("kernel time", 2e6, "sum over 4 calls", "sums only")
    # out_of_memory.py ends with 12 buffers of 6400 MiB and smaller ones (test_memory_snapshot.py); segments that were
    # free were returned to the driver when memory ran out.
    path = SAMPLES / "out-of-memory" / "torch" / "rank-0.memory_snapshot.pickle"
    snapshot = pickle.loads(path.read_bytes())
    segments = {"segment_alloc": 1, "segment_free": -1}
    reserved = accumulate(segments.get(e["action"], 0) * e["size"] for e in snapshot["device_traces"][0])
    oom, peak, _ = measures(ask(path, "summary")[0])
    # torch/log.txt: 6.25 GiB more were requested. 12 of 6400 MiB are 98.9 % of 81437802496 bytes.
    assert (oom.name, oom.value) == ("out of memory", 6400 << 20)
    assert oom.detail == "requested: too large; GPU 0: 98.9 % of the 75.8 GiB held are of out_of_memory.py:15 <module>"
    assert (peak.name, peak.value, peak.detail) == ("peak memory", max(reserved), "reserved on a GPU")
    without_history = tmp_path / "snapshot.pickle"
    without_history.write_bytes(pickle.dumps(snapshot | {"device_traces": [[]]}))
    held, _ = measures(ask(without_history, "summary")[0])
    assert (held.name, held.text) == ("memory", "75.8 GiB")


def test_inference_has_tokens_and_no_mfu() -> None:
    [row] = ask(SAMPLES / "generate", "summary")
    with analyze.open(SAMPLES / "generate") as traces:
        rates = {r["kind"]: r["tokens_per_s"] for r in traces.query("serving").dicts()}
    assert (row["prefill_tokens_per_s"], row["decode_tokens_per_s"]) == (rates["prefill"], rates["decode"])
    assert row["mfu_pct"] is None


def test_measures_are_those_that_are_known() -> None:
    row = dict.fromkeys(SUMMARY_COLUMNS) | {
        "ranks": 4, "gpus": 4, "steps": 3, "undisturbed_step_ns": 8_000_000, "avg_step_ns": 10_000_000,
        "compute_pct": 60.0, "exposed_comm_pct": 30.0, "exposed_memcpy_pct": 0.0, "idle_pct": 10.0,
        "undisturbed_mfu_pct": 0.5507, "mfu_pct": 0.4113, "peak_bytes": 3 << 30,
    }  # fmt: skip
    found = {m.name: m for m in measures(row)}
    assert {name: m.text for name, m in found.items()} == {
        "step time": "8 ms", "GPU busy": "90.0 %", "MFU": "0.55 %", "peak memory": "3 GiB", "ranks": "4",
    }  # fmt: skip
    assert found["step time"].detail == "without the profiler; 10 ms recorded"
    assert found["GPU busy"].parts == (("compute", 60.0), ("exposed communication", 30.0), ("idle", 10.0))


def test_quality_lists_only_what_is_not_ok() -> None:
    checks = [{"fact": f, "verdict": v, "value": "", "impact": ""} for f, v in (
        ("reading", "ok"), ("hosts", "unknown"), ("ranks", "warning"), ("start skew", "note"))]  # fmt: skip
    sentence, listed = quality(checks)
    assert sentence == "1 warning, 1 note: ranks, start skew" and [c["fact"] for c in listed] == ["ranks", "start skew"]
    assert quality(checks[:2]) == ("no warnings in 2 checks (1 unknown)", checks[:2])
