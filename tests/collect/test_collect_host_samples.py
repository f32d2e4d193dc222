"""Samples of the host: what `collect` writes of its CPUs and memory, and the counters that `analyze` reads."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from pathlib import Path

import pytest
from collect_support import wait_for
from support import ask
from traces import kernel, write_run, write_trace

from collect.host_state import HostState
from collect.rank_reports import RankReport
from collect.sampler import sampling, write_rank_samples


def test_a_node_without_gpus_has_samples_of_the_host(tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    with sampling(samples, 20, tmp_path):
        wait_for(lambda: samples.exists() and samples.read_text(), "a sample")
    write_rank_samples(samples, [RankReport(ok=True)], tmp_path)
    assert [p.name for p in tmp_path.glob("rank-*")] == ["rank-0.host_samples.csv"]
    write_rank_samples(tmp_path / "none.csv", [RankReport(ok=True)], tmp_path / "none")


def test_the_lowest_rank_of_this_host_has_its_samples(tmp_path: Path) -> None:
    node = tmp_path / "samples.csv"
    node.with_suffix(".old").write_text("host,1,cpu_busy_pct,10.0\nhost,2,cpu_busy_pct,20.0\n")
    # The older file may have been this one a moment ago. Its last line is cut off.
    node.write_text("host,2,cpu_busy_pct,20.0\nhost,10,cpu_busy_pct,30.0\nhost,11,cpu_busy_pct,4")
    reports = [RankReport(rank=n, ok=True, host=host) for n, host in ((0, "elsewhere"), (2, None), (3, None))]
    write_rank_samples(node, [*reports, RankReport(rank=1)], tmp_path, since_ns=2)
    [path] = tmp_path.glob("rank-*")
    assert path.read_text() == "rank,start_ns,name,value\n2,2,cpu_busy_pct,20.0\n2,10,cpu_busy_pct,30.0\n"
    write_trace(tmp_path / "run/torch/rank-2.trace.json", [kernel("k", 0, 1)])
    path.rename(tmp_path / "run/torch" / path.name)
    files = [("torch/rank-2.trace.json", "chrome_trace", 2), (f"torch/{path.name}", "host_samples", 2)]
    [row] = ask(write_run(tmp_path / "run", files), "counters")
    assert [row[c] for c in ("rank", "device", "name", "samples", "avg_value")] == [2, None, "cpu_busy_pct", 2, 25]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_state_of_the_host() -> None:
    """One thread that spins keeps one CPU busy; vmstat and free of procps count the same."""
    host = HostState()
    time.sleep(0.1)
    first = {name for name, _, _ in host.sample()}
    begin = time.monotonic()
    while time.monotonic() < begin + 1:
        pass
    values = {name: value for name, _, value in host.sample()}
    assert set(values) == first | {"cpu_busy_pct", "cpu_stolen_pct"}
    assert 0.8 * 100 / (os.cpu_count() or 1) < values["cpu_busy_pct"] <= 100 and values["runnable_threads"] >= 1
    assert 0 <= values["cpu_stolen_pct"] <= 100 and values["swap_bytes_per_s"] >= 0
    free = subprocess.run(["free", "-b"], stdout=subprocess.PIPE, text=True, check=True, env={"LC_ALL": "C"}).stdout
    assert values["available_memory_bytes"] == pytest.approx(int(free.splitlines()[1].split()[6]), rel=0.3)


def test_a_long_job_keeps_the_last_samples(tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    with sampling(samples, 20, tmp_path, last_s=1):
        wait_for(samples.with_suffix(".old").exists, "the samples of a second")
        first = int(samples.with_suffix(".old").read_text().split(",")[1])
        wait_for(lambda: int(samples.with_suffix(".old").read_text().split(",")[1]) > first, "the next second")
    write_rank_samples(samples, [RankReport(ok=True)], tmp_path)
    with (tmp_path / "rank-0.host_samples.csv").open(newline="") as f:
        times = [int(row["start_ns"]) for row in csv.DictReader(f)]
    assert times == sorted(times) and times[0] > first and times[-1] - times[0] > 0.5e9
