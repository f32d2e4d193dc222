"""Cross-check and race against HolisticTraceAnalysis and TraceLens on the same traces.

    uv venv peers
    uv pip install --python peers/bin/python HolisticTraceAnalysis git+https://github.com/AMD-AGI/TraceLens
    python benchmarks/peers.py sample_traces/* --peers peers/bin/python

(`tracelens` on PyPI is another project's.) For each run folder it prints every measure that both sides have, with the
difference, then the ratio of the times of this run: from raw files to all answers, each in a process of its own.
docs/definitions.md explains the differences. HTA is asked not to round to microseconds (HTA_DISABLE_NS_ROUNDING=1);
with --rounded it may, as it does by default.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Values = dict[str, float]
"""Measure, as `what rank 0`, and its value."""


def with_hta(files: list[str]) -> Values:
    """What HolisticTraceAnalysis says, in us and %."""
    import logging

    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    hta = TraceAnalysis(trace_files=dict(enumerate(files)), trace_dir="", include_last_profiler_step=True)
    values: Values = {}
    for row in hta.get_temporal_breakdown(visualize=False).to_dict("records"):
        for ours, theirs in (("span", "kernel_time"), ("compute", "compute_time"), ("idle", "idle_time")):
            values[f"{ours} us, rank {row['rank']}"] = row[f"{theirs}(us)"]
    for row in hta.get_comm_comp_overlap(visualize=False).to_dict("records"):
        values[f"overlap %, rank {row['rank']}"] = row["comp_comm_overlap_pctg"]
    for rank in range(len(files)):
        idle = hta.get_idle_time_breakdown(ranks=[rank], visualize=False)
        idle = idle[0] if isinstance(idle, tuple) else idle
        for cause, us in idle.groupby("idle_category")["idle_time"].sum().items():
            values[f"idle of streams: {cause} us, rank {rank}"] = us
        launches = hta.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False, include_memory_events=False)[rank]
        values[f"launch calls, rank {rank}"] = len(launches)
        values[f"launch call us, rank {rank}"] = launches["cpu_duration"].sum()
        values[f"queue delay us, rank {rank}"] = launches["launch_delay"].sum()
        values[f"short kernels, rank {rank}"] = int((launches["gpu_duration"] < launches["cpu_duration"]).sum())
        queues = hta.get_queue_length_summary(ranks=[rank])
        for (_, stream), row in queues["queue_length"].iterrows():
            values[f"queue depth, largest, stream {stream}, rank {rank}"] = row["max"]
            values[f"queue depth, mean, stream {stream}, rank {rank}"] = row["mean"]
    return values


def with_tracelens(files: list[str]) -> Values:
    """What TraceLens says, in us and GB/s."""
    from TraceLens import NcclAnalyser, TreePerfAnalyzer

    values: Values = {}
    names = {
        "computation_time": "compute",
        "exposed_comm_time": "exposed comm",
        "exposed_memcpy_time": "exposed memcpy",
        "busy_time": "busy",
        "idle_time": "idle",
        "total_time": "span",
        "total_comm_time": "comm",
    }
    with contextlib.redirect_stdout(None):
        for rank, file in enumerate(files):
            for row in TreePerfAnalyzer.from_file(file).get_df_gpu_timeline().to_dict("records"):
                if row["type"] in names:
                    values[f"{names[row['type']]} us, rank {rank}"] = row["time ms"] * 1000
        if len(files) > 1:
            calls = NcclAnalyser(files, len(files)).build_df_nccl_implicit_sync_cat()
            values["all_reduce calls"] = len(calls)
            values["all_reduce us"] = calls["comm_latency"].sum()
            gib = calls["Full msg size (MB)"].sum() / 1024
            values["all_reduce algbw GB/s"] = gib / (calls["comm_latency"].sum() / 1e6)
            values["start skew us"] = calls["skew in start time"].sum()
    return values


def with_tracequarry(folder: str) -> Values:
    """What this project says, under the names that the others' values have."""
    import analyze

    traces = analyze.open(folder)
    values: Values = {}

    busy = traces.query("gpu-busy").dicts()
    several = len({row["device"] for row in busy}) > len({row["rank"] for row in busy})

    def place(row: dict[str, Any]) -> str:
        return f"rank {row['rank']}" + (f", device {row['device']}" if several else "")

    for row in busy:
        values[f"busy us, {place(row)}"] = row["busy_ns"] / 1000
    for row in traces.query("breakdown").dicts():
        for column in ("span", "compute", "exposed_comm", "exposed_memcpy", "idle"):
            values[f"{column.replace('_', ' ')} us, {place(row)}"] = row[f"{column}_ns"] / 1000
    for row in traces.query("overlap").dicts():
        values[f"comm us, {place(row)}"] = row["comm_ns"] / 1000
        if row["overlap_pct"] is not None:
            values[f"overlap %, {place(row)}"] = row["overlap_pct"]
    for row in traces.query("idle-causes", params={"per": "stream"}).dicts():
        key = f"idle of streams: {row['cause']} us, {place(row)}"
        values[key] = values.get(key, 0) + row["idle_ns"] / 1000
    sums = {
        "calls": "launch calls",
        "call_ns": "launch call us",
        "queue_delay_ns": "queue delay us",
        "short_kernels": "short kernels",
    }
    for row in traces.query("launch").dicts():
        for column, name in sums.items() if row["name"] in ("cudaLaunchKernel", "cudaLaunchKernelExC") else ():
            key = f"{name}, {place(row)}"
            values[key] = values.get(key, 0) + row[column] / (1000 if column.endswith("_ns") else 1)
    for row in traces.query("queue-depth").dicts():
        values[f"queue depth, largest, stream {row['stream']}, {place(row)}"] = row["max_depth"]
        values[f"queue depth, mean, stream {row['stream']}, {place(row)}"] = row["avg_depth"]
    for row in traces.query("collectives").dicts():
        if row["collective"] == "all_reduce" and row["status"] == "matched" and row["bytes"]:
            values["all_reduce calls"] = row["calls"]
            values["all_reduce us"] = row["total_ns"] / 1000
            values["all_reduce algbw GB/s"] = row["algbw_gb_per_s"]
    waits = traces.query("stragglers", params={"collective": "all_reduce"}).dicts()
    if len({row["rank"] for row in waits}) == 2:
        values["start skew us"] = sum(row["wait_ns"] or 0 for row in waits) / 1000
    return values


def timed(arguments: list[str], environment: dict[str, str]) -> tuple[Values, float]:
    """The answer of this script in a process of its own, and its wall time in s."""
    began = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **environment})
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), seconds


def compare(folder: Path, peers: str, rounded: bool) -> None:
    files = sorted(str(p) for p in folder.rglob("*.trace.json*") if p.name.endswith((".json", ".json.gz")))
    if not files:
        print(f"\n## {folder.name}: no torch traces")
        return
    print(f"\n## {folder.name}: {len(files)} trace(s), {sum(Path(f).stat().st_size for f in files) / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as cache:
        arguments = [sys.executable, __file__, "--as", "tracequarry", str(Path(files[0]).parent)]
        first, cold = timed(arguments, {"TRACEQUARRY_CACHE": cache})
        _, warm = timed(arguments, {"TRACEQUARRY_CACHE": cache})
    for peer in ("hta", "tracelens"):
        environment = {} if rounded else {"HTA_DISABLE_NS_ROUNDING": "1"}
        other, seconds = timed([peers, __file__, "--as", peer, *files], environment)
        print(f"\n{'measure':46}{'tracequarry':>16}{peer:>16}{'difference':>14}")
        for name, theirs in other.items():
            ours = first.get(name)
            shown = f"{'-':>16}{theirs:16.3f}" if ours is None else f"{ours:16.3f}{theirs:16.3f}{theirs - ours:14.3f}"
            print(f"{name:46}{shown}")
        print(
            f"time of {peer} / of tracequarry: {seconds / cold:.1f} from raw files, {seconds / warm:.1f} once ingested"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", help="run folders with torch traces")
    parser.add_argument("--peers", help="Python of the environment that has HolisticTraceAnalysis and TraceLens")
    parser.add_argument("--rounded", action="store_true", help="let HTA round to microseconds")
    parser.add_argument(
        "--as", dest="tool", choices=["hta", "tracelens", "tracequarry"], help="only print its values, as JSON"
    )
    options = parser.parse_args()
    single: dict[str, Callable[[], Values]] = {
        "hta": lambda: with_hta(options.paths),
        "tracelens": lambda: with_tracelens(options.paths),
        "tracequarry": lambda: with_tracequarry(options.paths[0]),
    }
    if options.tool:
        print(json.dumps({name: float(value) for name, value in single[options.tool]().items()}))
        return
    if not options.peers:
        parser.error("--peers PYTHON is needed")
    for path in options.paths:
        compare(Path(path), options.peers, options.rounded)


if __name__ == "__main__":
    main()
