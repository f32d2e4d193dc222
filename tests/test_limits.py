"""Resource limits of queries: threads, memory, open files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, SAMPLES
from traces import kernel, write_ranks

import analyze
from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.query.engine import Engine
from analyze.query.thread_limit import most_threads
from analyze.store.store import Store


@pytest.mark.parametrize(
    ("limit", "cpus", "threads"), [(100, 4, 1), (1024, 64, 8), (1024, 4, 4), (256, 64, 1), (65536, 64, 64)]
)
def test_threads_under_a_limit_of_open_files(limit: int, cpus: int, threads: int) -> None:
    assert most_threads(limit, cpus) == threads


def test_the_variable_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = analyze.open(SAMPLES / "matmuls").stores
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for asked, used in (("1", 1), ("1024", cpus), ("", cpus)):
        monkeypatch.setenv("TRACEQUARRY_THREADS", asked)
        assert Engine(stores).rows("SELECT current_setting('threads')") == [(used,)]
    for wrong in ("0", "-1", "two", "1.5", "1025", "²"):
        monkeypatch.setenv("TRACEQUARRY_THREADS", wrong)
        with pytest.raises(
            InputError, match=r"^\$TRACEQUARRY_THREADS: '.*' is not a number of threads from 1 to 1024$"
        ):
            Engine(stores)


def test_the_variable_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = analyze.open(SAMPLES / "matmuls").stores
    # 70 % of it; DuckDB shows 1024s: 1.4 GB are 1.304 x 2^30 bytes, 350 MB are 333.8 x 2^20.
    for asked, used in (("2GB", "1.3 GiB"), ("500MB", "333.7 MiB")):
        monkeypatch.setenv("TRACEQUARRY_MEMORY", asked)
        assert Engine(stores).rows("SELECT current_setting('memory_limit')") == [(used,)]
    for wrong in ("0GB", "8", "8 GB", "-1GB", "half", "8TB"):
        monkeypatch.setenv("TRACEQUARRY_MEMORY", wrong)
        with pytest.raises(InputError, match=r"^\$TRACEQUARRY_MEMORY: '.*' is not a size such as 8GB or 500MB$"):
            Engine(stores)


def test_many_ranks_under_a_low_limit_of_open_files(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(discover([write_ranks(tmp_path / "job", *([kernel(f"k{r}", 0, 1)] for r in range(120)))]), Store(store))
    result = subprocess.run(
        [sys.executable, "-m", "analyze", "query", "kernel-share", str(store), "-f", "csv"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1024)),
    )
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 121, result.stderr
