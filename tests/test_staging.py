"""Reading raw files in parallel gives the same rows as in one process."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import SAMPLES, sql
from traces import kernel, write_trace

import analyze
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.ingestion.staging import pool_map, workers
from analyze.sources.interface import SourceFile
from analyze.sources.remote import raw_path
from analyze.store.store import Store

LARGE = 48 << 20
"""Bytes of a file from which several processes read it."""


@pytest.mark.parametrize("name", ["plain.json", "packed.json.gz"])
def test_parallel_read_equals_sequential_read(tmp_path: Path, name: str) -> None:
    """Of a file that is large enough for several processes. No table has a column for the notes that fill it."""
    trace = json.loads(gzip.decompress((SAMPLES / "late-rank/torch/rank-0.trace.json.gz").read_bytes()))
    note = "x" * (LARGE // len(trace["traceEvents"]))
    for e in trace["traceEvents"]:
        e.setdefault("args", {})["note"] = note
    path = tmp_path / name
    with gzip.open(path, "wt", 0) if name.endswith(".gz") else path.open("w") as f:
        json.dump(trace, f)
    for jobs in (1, 2):
        ingest(discover([path]), Store(tmp_path / str(jobs)), jobs=jobs)
    files = sorted(p.relative_to(tmp_path / "1") for p in (tmp_path / "1").rglob("*.parquet"))
    assert len(files) > 10
    for file in files:
        # In each chunk the events of a category come together, so chunk boundaries change the order.
        one, two = (sorted(map(repr, pq.read_table(tmp_path / store / file).to_pylist())) for store in ("1", "2"))
        assert one == two, file


def test_main_process_reads_too() -> None:
    """Results are in the order of the chunks, and few chunks are in memory."""
    here, begun = threading.get_ident(), 0

    def read(chunk: int) -> tuple[int, bool]:
        time.sleep(0.001 * (chunk % 3))
        return chunk, threading.get_ident() == here

    def chunks() -> Iterator[tuple[int]]:
        nonlocal begun
        for begun in range(200):
            yield (begun,)

    with ThreadPoolExecutor(2) as pool:
        found = []
        for result in pool_map(pool, 3)(read, chunks()):
            found.append(result)
            assert begun - result[0] <= 2 * 3 + 1
    assert [chunk for chunk, _ in found] == list(range(200))
    assert 20 < sum(own for _, own in found) < 180


def test_at_most_jobs_processes(tmp_path: Path) -> None:
    """Where all files are large, this process is one of them; it only waits for those that read small files."""
    small = SourceFile(tmp_path / "small.json", "chrome_trace", 0), 1 << 20
    large = SourceFile(tmp_path / "large.json", "chrome_trace", 0), LARGE
    assert [workers([large], jobs) for jobs in (1, 2, 4, 64)] == [1, 1, 3, 6]
    assert [workers([large, small], jobs) for jobs in (1, 2, 64)] == [1, 2, 7]
    assert [workers([small] * n, 4) for n in (0, 1, 2, 9)] == [0, 1, 2, 4]
    at_url = SourceFile(raw_path("memory://bucket/large.json"), "chrome_trace", 0), LARGE
    assert [workers([at_url], 2), workers([at_url, large], 2)] == [1, 2]


def test_kernel_names_are_stored_once(tmp_path: Path) -> None:
    names = ["sgemm", "a b", "\u00e9t\u00e9", "\U0001f600", "\uffee", "Z", "void f<int>(int)"]
    files = [
        write_trace(tmp_path / f"rank{n}.json", [kernel(k, i, 1) for i, k in enumerate(names[n:])]) for n in (0, 3)
    ]
    ask_names = "SELECT * FROM kernel_names ORDER BY ALL"
    store, shards = tmp_path / "store", tmp_path / "shards"
    ingest(discover(files), Store(store), jobs=1)
    [path] = (store / "kernel_names").glob("run_id=rank0*/*.parquet")
    assert pq.read_table(path)["name"].to_pylist() == sorted(names)
    for n in (0, 1):
        analyze.ingest(*files, store=shards, shard=f"{n}/2")
    analyze.commit(shards)
    stored = sql(store, ask_names)
    assert sql(shards, ask_names) == stored and len(stored) == len(names) + len(names[3:])
