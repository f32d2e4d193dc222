"""Cross-check and race against HolisticTraceAnalysis, TraceLens and TensorBoard's page on the same traces.

    uv venv peers
    uv pip install --python peers/bin/python HolisticTraceAnalysis git+https://github.com/AMD-AGI/TraceLens
    uv pip install --python peers/bin/python torch-tb-profiler tensorboard "setuptools<81"
    python benchmarks/peers.py sample_traces/* --peers peers/bin/python

(`tracelens` on PyPI is another project's.) For each run folder it prints every measure that both sides have, with the
difference, then the ratio of the CPU times of this run: from raw files to all answers, each in a process of its own;
TensorBoard's plugin loads a run for all its views at once, and is compared with `analyze report`.
docs/definitions.md explains the differences. HTA is asked not to round to microseconds (HTA_DISABLE_NS_ROUNDING=1);
with --rounded it may, as it does by default.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
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


def with_tensorboard(files: list[str]) -> Values:
    """What the plugin of TensorBoard says, in us."""
    from torch_tb_profiler.io import Cache
    from torch_tb_profiler.profiler import RunLoader

    values: Values = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        for rank, file in enumerate(files):
            suffix = ".pt.trace.json.gz" if file.endswith(".gz") else ".pt.trace.json"
            Path(folder, f"{rank}{suffix}").symlink_to(Path(file).resolve())
        run = RunLoader("run", folder, Cache(cache)).load()
    for profile in run.profiles.values():
        if not profile.worker.isdecimal():
            continue  # the view of all ranks
        names = [column["name"] for column in profile.kernel_table["data"]["columns"]]
        rows = [dict(zip(names, row, strict=True)) for row in profile.kernel_table["data"]["rows"]]
        values[f"kernels, rank {profile.worker}"] = sum(row["Calls"] for row in rows)
        values[f"kernel us, rank {profile.worker}"] = sum(row["Total Duration (us)"] for row in rows)
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
    for row in traces.sql("SELECT rank, count(*) AS n, sum(dur_ns) AS ns FROM kernels GROUP BY rank").dicts():
        values[f"kernels, rank {row['rank']}"] = row["n"]
        values[f"kernel us, rank {row['rank']}"] = row["ns"] / 1000
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


def run(arguments: list[str], environment: dict[str, str]) -> tuple[str, float]:
    """What a process prints, and the CPU time in s of it and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr[-2000:]}")
    return done.stdout, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def timed(arguments: list[str], environment: dict[str, str]) -> tuple[Values, float]:
    """The answer of this script in a process of its own, and its CPU time in s."""
    said, seconds = run(arguments, environment)
    return json.loads(said.splitlines()[-1]), seconds


def compare(folder: Path, python: str, peers: list[str], rounded: bool) -> None:
    files = sorted(str(p) for p in folder.rglob("*.trace.json*") if p.name.endswith((".json", ".json.gz")))
    if not files:
        print(f"\n## {folder.name}: no torch traces")
        return
    print(f"\n## {folder.name}: {len(files)} trace(s), {sum(Path(f).stat().st_size for f in files) / 1e6:.1f} MB")
    source = str(Path(files[0]).parent)
    with tempfile.TemporaryDirectory() as cache:
        arguments = [sys.executable, __file__, "--as", "tracequarry", source]
        first, cold = timed(arguments, {"TRACEQUARRY_CACHE": cache})
        _, warm = timed(arguments, {"TRACEQUARRY_CACHE": cache})
    for peer in peers:
        environment = {} if rounded else {"HTA_DISABLE_NS_ROUNDING": "1"}
        other, seconds = timed([python, __file__, "--as", peer, *files], environment)
        print(f"\n{'measure':46}{'tracequarry':>16}{peer:>16}{'difference':>14}")
        for name, theirs in other.items():
            ours = first.get(name)
            shown = f"{'-':>16}{theirs:16.3f}" if ours is None else f"{ours:16.3f}{theirs:16.3f}{theirs - ours:14.3f}"
            print(f"{name:46}{shown}")
        if peer == "tensorboard":
            with tempfile.TemporaryDirectory() as cache:
                report = [sys.executable, "-m", "analyze", "report", source, "-o", f"{cache}/report.html"]
                _, page = run(report, {"TRACEQUARRY_CACHE": cache})
            print(f"CPU time of {peer} {seconds:.1f} s, of `analyze report` {page:.1f} s: {seconds / page:.1f}")
        else:
            ratios = f"{seconds / cold:.1f} from raw files, {seconds / warm:.1f} once ingested"
            print(f"CPU time of {peer} / of tracequarry: {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", help="run folders with torch traces")
    parser.add_argument("--peers", help="Python of the environment that has the other tools")
    parser.add_argument("--peer", choices=PEERS, action="append", help="may be repeated; default: all")
    parser.add_argument("--rounded", action="store_true", help="let HTA round to microseconds")
    parser.add_argument("--as", dest="tool", choices=[*PEERS, "tracequarry"], help="only print its values, as JSON")
    options = parser.parse_args()
    if options.tool:
        answer = (
            with_tracequarry(options.paths[0]) if options.tool == "tracequarry" else PEERS[options.tool](options.paths)
        )
        print(json.dumps({name: float(value) for name, value in answer.items()}))
        return
    if not options.peers:
        parser.error("--peers PYTHON is needed")
    for path in options.paths:
        compare(Path(path), options.peers, options.peer or list(PEERS), options.rounded)


PEERS: dict[str, Callable[[list[str]], Values]] = {
    "hta": with_hta,
    "tracelens": with_tracelens,
    "tensorboard": with_tensorboard,
}

if __name__ == "__main__":
    main()
