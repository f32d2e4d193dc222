"""How raw files are read: by which processes, and the same rows however it is done."""

from __future__ import annotations

import gzip
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, kernel, sql, write_trace

import analyze
from analyze.ingestion.discover import discover
from analyze.ingestion.distinct_texts import DistinctTexts
from analyze.ingestion.ingest import ingest
from analyze.ingestion.staging import pool_map, workers
from analyze.sources.base import SourceFile
from analyze.sources.chrome.json_events import TraceFile
from analyze.sources.remote import raw_path
from analyze.store.store import Store


def test_parallel_read_equals_sequential_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = SAMPLES / "resnet18-1gpu" / "torch" / "rank-0.trace.json.gz"
    for name in ("plain.json", "packed.json.gz"):
        path = tmp_path / name
        path.write_bytes(packed.read_bytes() if name.endswith(".gz") else gzip.decompress(packed.read_bytes()))
        ingest(discover([path]), Store(tmp_path / "one"), jobs=1)
        with monkeypatch.context() as small:
            small.setattr("analyze.ingestion.staging._BIG_FILE", 1)
            small.setattr("analyze.ingestion.ingest._NAMES", 7)
            small.setattr(TraceFile.__init__, "__defaults__", (100_000,))
            assert len(list(TraceFile(path).chunks())) > 10
            ingest(discover([path]), Store(tmp_path / "two"), jobs=2)
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.parquet"))
    assert len(files) > 10
    for file in files:
        # In each chunk the events of a category come together, so where it is cut changes the order.
        one, two = (sorted(map(repr, pq.read_table(tmp_path / store / file).to_pylist())) for store in ("one", "two"))
        assert one == two, file


def test_main_process_reads_too() -> None:
    """In the order of the chunks, whoever reads them, and never with more of them than the processes need."""
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


def test_at_most_jobs_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all files are large, this process is one of them; it only waits for those that read small files."""
    monkeypatch.setattr("analyze.ingestion.staging._BIG_FILE", 2 << 20)
    small = SourceFile(tmp_path / "small.json", "chrome_trace", 0), 1 << 20
    large = SourceFile(tmp_path / "large.json", "chrome_trace", 0), 40 << 20
    assert [workers([large], jobs) for jobs in (1, 2, 4, 64)] == [1, 1, 3, 5]
    assert [workers([large, small], jobs) for jobs in (1, 2, 64)] == [1, 2, 6]
    assert [workers([small] * n, 4) for n in (0, 1, 2, 9)] == [0, 1, 2, 4]
    at_url = SourceFile(raw_path("memory://bucket/large.json"), "chrome_trace", 0), 40 << 20
    assert [workers([at_url], 2), workers([at_url, large], 2)] == [1, 2]


def test_distinct_names_spill_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["sgemm", "a b", "\u00e9t\u00e9", "\U0001f600", "\uffee", "Z", "void f<int>(int)"]
    files = [
        write_trace(tmp_path / f"rank{n}.json", [kernel(k, i, 1) for i, k in enumerate(names[n:])]) for n in (0, 3)
    ]
    ask_names = "SELECT * FROM kernel_names ORDER BY ALL"
    stored: list[list[dict[str, Any]]] = []
    for most in (1 << 20, 600, 0):
        monkeypatch.setattr("analyze.ingestion.distinct_texts.MOST_BYTES", most)
        store = tmp_path / f"store{most}"
        ingest(discover(files), Store(store), jobs=1)
        stored.append(sql(store, ask_names))
        [path] = (store / "kernel_names").glob("run_id=rank0*/*.parquet")
        assert pq.read_table(path)["name"].to_pylist() == sorted(names)
        shards = tmp_path / f"shards{most}"
        for n in (0, 1):
            analyze.ingest(*files, store=shards, shard=f"{n}/2")
        analyze.commit(shards)
        assert sql(shards, ask_names) == stored[0]
    assert stored[0] == stored[1] == stored[2] and len(stored[0]) == len(names) + len(names[3:])


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=30), max_size=12),
    st.integers(0, 4000),
    st.integers(2, 4),
)
def test_distinct_texts_equal_a_set(parts: list[list[str]], most_bytes: int, most_files: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as small:
        small.setattr("analyze.ingestion.distinct_texts.MOST_BYTES", most_bytes)
        small.setattr("analyze.ingestion.distinct_texts.MOST_FILES", most_files)
        small.setattr("analyze.ingestion.distinct_texts._AT_ONCE", 4)
        every = DistinctTexts(Path(folder, "all"))
        for n, part in enumerate(parts):
            # Some come as they are, some as a set of another process.
            other = DistinctTexts(Path(folder, str(n)))
            other.add(part)
            every.add(part if n % 2 else pickle.loads(pickle.dumps(other)))
            assert list(other) == sorted(set(part))
        assert list(every) == sorted({text for part in parts for text in part})
        assert list(every) == list(every)
