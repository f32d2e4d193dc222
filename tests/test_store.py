"""The store: the same again changes nothing, a killed ingest leaves the old store or the new one."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from support import ROOT, SAMPLES, ask, kernel, run_cli, sql, write_trace

from analyze.discover import discover
from analyze.errors import InputError
from analyze.ingest import ingest
from analyze.sources.json_events import TraceFile
from analyze.store import PARSER_VERSION, Store
from schemas.tables import TABLES, arrow_schema


def contents(store: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p): (p.stat().st_mtime_ns, p.stat().st_ino) for p in store.rglob("*") if p.suffix in (".parquet", ".json")
    }


def test_ingesting_again_changes_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    store = tmp_path / "store"
    assert ingest(discover([path]), Store(store)).ingested
    before = contents(store)
    result = ingest(discover([path]), Store(store))
    assert result.ingested == [] and len(result.unchanged) == 1
    assert contents(store) == before


def test_a_changed_rank_replaces_its_run(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for rank in range(2):
        write_trace(tmp_path / "job" / f"rank{rank}.json", [kernel("old", 0, 1)])
    ingest(discover([tmp_path / "job"]), Store(store))
    write_trace(tmp_path / "job" / "rank1.json", [kernel("new", 0, 1)])
    result = ingest(discover([tmp_path / "job"]), Store(store))
    assert len(result.ingested) == 1
    assert sql(store, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": 0, "name": "old"},
        {"rank": 1, "name": "new"},
    ]
    # Nothing of the old generation is left for other readers of the folder.
    assert len(list((store / "kernels").rglob("*.parquet"))) == 2


def test_files_are_plain_parquet_of_the_declared_schema(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(discover([write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])]), Store(store))
    [path] = (store / "kernels").glob("run_id=*/rank-0.parquet")
    assert pq.read_schema(path).equals(arrow_schema("kernels"))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    glob = f"{store}/kernels/*/*.parquet"
    assert duckdb.sql(f"SELECT name, dur_ns FROM read_parquet('{glob}', hive_partitioning = true)").fetchall() == [
        ("k", 1000)
    ]


def test_a_killed_ingest_leaves_the_old_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    folder = tmp_path / "job"
    write_trace(folder / "rank0.json", [kernel("old", 0, 1)])
    ingest(discover([folder]), Store(store))
    # Large enough that the ingest is still at work when it is killed.
    write_trace(folder / "rank1.json", [kernel(f"k{i % 7}", i, 1, grid=[1, 2, 3]) for i in range(150_000)])
    command = [sys.executable, "-m", "analyze", "ingest", str(folder), "--store", str(store)]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)
    while child.poll() is None and not list(store.glob(".part-*/*/kernels/rank-1.parquet")):
        time.sleep(0.005)
    assert child.poll() is None, "the ingest was over before it could be killed"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert [r["name"] for r in ask(store, "kernel-share")] == ["old"]
    assert run_cli("ingest", folder, "--store", store).returncode == 0
    assert sum(r["calls"] for r in ask(store, "kernel-share")) == 150_001
    assert not list(store.glob(".part-*"))


def test_two_ingests_at_a_time_wait_for_each_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = [write_trace(tmp_path / f"{n}" / "t.json", [kernel(n, 0, 1)]) for n in ("a", "b", "c")]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "analyze", "ingest", str(p), "--store", str(store)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
        )
        for p in paths
    ]
    assert [c.wait() for c in children] == [0, 0, 0]
    assert {r["name"] for r in ask(store, "kernel-share")} == {"a", "b", "c"}


def test_several_processes_read_a_large_file_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = SAMPLES / "resnet18-1gpu" / "torch" / "rank-0.trace.json.gz"
    for name in ("plain.json", "packed.json.gz"):
        path = tmp_path / name
        path.write_bytes(packed.read_bytes() if name.endswith(".gz") else gzip.decompress(packed.read_bytes()))
        ingest(discover([path]), Store(tmp_path / "one"), jobs=1)
        with monkeypatch.context() as small:
            small.setattr("analyze.ingest._BIG_FILE", 1)
            small.setattr(TraceFile.__init__, "__defaults__", (100_000,))
            assert len(list(TraceFile(path).chunks())) > 10
            ingest(discover([path]), Store(tmp_path / "two"), jobs=2)
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.parquet"))
    assert len(files) > 10
    for file in files:
        # In each chunk the events of a category come together, so where it is cut changes the order.
        one, two = (sorted(map(repr, pq.read_table(tmp_path / store / file).to_pylist())) for store in ("one", "two"))
        assert one == two, file


def test_the_cache_follows_size_and_time(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("one", 0, 1)])
    assert [r["name"] for r in ask(path, "kernel-share")] == ["one"]
    stat = path.stat()
    write_trace(path, [kernel("two", 0, 1)])  # the same size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert [r["name"] for r in ask(path, "kernel-share")] == ["two"]
    write_trace(path, [kernel("three", 0, 1)])
    assert [r["name"] for r in ask(path, "kernel-share")] == ["three"]


def test_a_newer_store_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"version": 99, "runs": {}}')
    with pytest.raises(InputError, match="store version 99 is newer"):
        ask(tmp_path, "runs")


def test_a_store_of_other_tables_is_a_sentence(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(discover([write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])]), Store(store))
    text = (store / "store.json").read_text()
    (store / "store.json").write_text(text.replace(f'"parser":{PARSER_VERSION}', '"parser":0'))
    with pytest.raises(InputError, match="ingested by another version of tracequarry; ingest it again"):
        ask(store, "runs")
    assert ingest(discover([tmp_path / "t.json"]), Store(store)).ingested
    assert len(ask(store, "kernel-share")) == 1


def test_names_are_classified_anew_when_the_rules_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    ingest(discover([write_trace(tmp_path / "t.json", [kernel("sm90_xmma_gemm_x", 0, 1)])]), Store(store))
    monkeypatch.setattr("analyze.kernel_names.rules_digest", lambda: "another")
    monkeypatch.setattr(
        "analyze.kernel_names.rows",
        lambda run_id, names: [
            {"run_id": run_id, "name": n, "short_name": n, "family": "renamed", "algorithm": None, "collective": None}
            for n in names
        ],
    )
    assert [r["family"] for r in ask(store, "kernel-share", params={"group": "family"})] == ["renamed"]


def test_every_table_is_declared_once() -> None:
    for name, table in TABLES.items():
        names = [c.name for c in table.columns]
        assert len(names) == len(set(names)) and table.name == name
        assert names[0] == "run_id"
        assert all(c.doc for c in table.columns)
