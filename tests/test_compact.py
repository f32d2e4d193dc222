"""Compaction merges small files: the same rows, sorted by rank, and open readers keep their files."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import run_cli
from support import SAMPLES, forget, sql, stored_rows
from traces import kernel, write_ranks

import analyze
from analyze.errors import InputError
from analyze.ingestion.file_merging import groups
from analyze.stored_tables import DERIVED_TABLES

MB = 1 << 20
ROWS = 17_000
"""Rows of a rank that get a row group of their own."""


def job(folder: Path, ranks: int, devices: Sequence[int] = (0,), kernels: int = 1) -> Path:
    """Traces of a job, with kernels of every device by turns, named after their rank."""
    return write_ranks(
        folder,
        *(
            [kernel(f"k{rank}", i, 1 + rank, devices[i % len(devices)]) for i in range(kernels)]
            for rank in range(ranks)
        ),
    )


def row_groups(path: Path, column: str) -> list[tuple[Any, Any]]:
    """Least and greatest value of a column in each row group of a file."""
    file = pq.ParquetFile(path)
    at = file.schema_arrow.names.index(column)
    found = (file.metadata.row_group(g).column(at).statistics for g in range(file.num_row_groups))
    return [(s.min, s.max) for s in found]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([200 * MB, 300 * MB], []),
        ([1, 1, 1], [[0, 1, 2]]),
        ([1, 200 * MB, 1], [[0, 2]]),
        # 256 MB are full; the 100 MB that are left over join them.
        ([100 * MB] * 4, [[0, 1, 2, 3]]),
        ([100 * MB] * 5, [[0, 1, 2], [3, 4]]),
    ],
)
def test_small_files_are_grouped(sizes: list[int], expected: list[list[int]]) -> None:
    assert groups(sizes) == expected


def test_samples_keep_every_row(tmp_path: Path) -> None:
    store = tmp_path / "store"
    analyze.ingest(SAMPLES / "resnet18-ddp2", SAMPLES / "late-rank", store=store)
    before = stored_rows(store)
    reader = analyze.open(store)
    result = run_cli("compact", store)
    assert result.returncode == 0 and "2 run(s) compacted" in result.stderr
    assert stored_rows(store) == before
    # Who opened it before reads the files that were there.
    assert reader.sql("SELECT count(*) AS n FROM kernels").dicts() == [{"n": len(before["kernels"])}]
    reader.close()
    again = analyze.compact(store)
    assert again.runs == [] and again.files_before == again.files_after
    assert {len(list(p.parent.glob("*"))) for p in store.glob("kernels/*/*.parquet")} == {1}


def test_tables_of_an_older_version_are_derived_again(tmp_path: Path) -> None:
    """The result is what the ingest of the raw files stored; a GPU-only block and merged ranks are among them."""
    store = tmp_path / "store"
    analyze.ingest(SAMPLES / "even-ddp", store=store)
    before, catalogue = stored_rows(store), json.loads((store / "store.json").read_text())
    assert {run_id.endswith(".gpu") for run_id in catalogue["runs"]} == {True, False} and before["twins"]
    analyze.compact(store)  # several ranks in a file
    merged = json.loads((store / "store.json").read_text())
    older = copy.deepcopy(merged)
    for run in older["runs"].values():
        run |= {"derived": "", "rules": ""}
        run["tables"] = {t: files for t, files in run["tables"].items() if t not in DERIVED_TABLES}
    (store / "store.json").write_text(json.dumps(older))
    result = run_cli("compact", store)
    assert result.returncode == 0 and f"{len(merged['runs'])} run(s) derived again; 0 run(s) compacted" in result.stderr
    assert stored_rows(store) == before
    for run_id, run in json.loads((store / "store.json").read_text())["runs"].items():
        for same in ("derived", "rules", "files", "full"):
            assert run.get(same) == catalogue["runs"][run_id].get(same)
        assert run["tables"].keys() == catalogue["runs"][run_id]["tables"].keys()
    assert analyze.compact(store).derived == []


def test_row_groups_are_sorted_by_rank_and_device(tmp_path: Path) -> None:
    """Row groups hold one rank and one device if these have enough rows."""
    store = tmp_path / "store"
    analyze.ingest(job(tmp_path / "job", 3, devices=(1, 0), kernels=2 * ROWS), store=store, jobs=1)
    before = stored_rows(store, ["kernels"])
    analyze.compact(store, jobs=1)
    [path] = store.glob("kernels/*/*.parquet")
    assert path.name == "ranks-0-2.g2.parquet"
    assert row_groups(path, "rank") == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (2, 2)]
    assert row_groups(path, "device") == [(0, 0), (1, 1)] * 3
    assert stored_rows(store, ["kernels"]) == before
    assert sql(store, "SELECT DISTINCT name, dur_ns FROM kernels", where="rank = 1") == [{"name": "k1", "dur_ns": 2000}]


def test_ingest_of_many_ranks_writes_few_files(tmp_path: Path) -> None:
    for ranks, files in ((4, 4), (65, 1)):
        store = tmp_path / f"store-{ranks}"
        analyze.ingest(job(tmp_path / f"job-{ranks}", ranks), store=store, jobs=1)
        assert len(list(store.glob("kernels/*/*.parquet"))) == files
        assert len(sql(store, "SELECT DISTINCT rank, name FROM kernels")) == ranks


def test_rank_filter_opens_only_its_files(tmp_path: Path) -> None:
    """A file of another rank may be anything that is as long."""
    store = tmp_path / "store"
    analyze.ingest(job(tmp_path / "job", 3), store=store, jobs=1)
    for rank in (0, 2):
        [path] = store.glob(f"kernels/*/rank-{rank}.parquet")
        path.write_bytes(b"x" * path.stat().st_size)
    assert sql(store, "SELECT name FROM kernels", where="rank = 1") == [{"name": "k1"}]
    with pytest.raises(InputError):
        analyze.open(store).sql("SELECT name FROM kernels").arrow()


def test_rank_filter_reads_only_its_row_groups(tmp_path: Path) -> None:
    """Pages of other ranks may be anything."""
    store = tmp_path / "store"
    analyze.ingest(job(tmp_path / "job", 3, kernels=ROWS), store=store, jobs=1)
    analyze.compact(store, jobs=1)
    [path] = store.glob("kernels/*/*.parquet")
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    for group in (0, 2):
        columns = [metadata.row_group(group).column(c) for c in range(metadata.num_columns)]
        start = min(c.dictionary_page_offset or c.data_page_offset for c in columns)
        size = sum(c.total_compressed_size for c in columns)
        data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    forget(store, "crc32")
    found = sql(store, "SELECT name, count(*) AS n FROM kernels GROUP BY name", where="rank = 1")
    assert found == [{"name": "k1", "n": ROWS}]
    with pytest.raises(InputError):
        analyze.open(store).sql("SELECT name FROM kernels").arrow()


def test_compact_rejects_a_damaged_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    analyze.ingest(job(tmp_path / "job", 2), store=store, jobs=1)
    [path] = store.glob("kernels/*/rank-1.parquet")
    path.write_bytes(b"x" * path.stat().st_size)
    before = (store / "store.json").read_bytes()
    result = run_cli("compact", store)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1 and str(path) in result.stderr
    assert (store / "store.json").read_bytes() == before
    result = run_cli("compact", tmp_path / "job")
    assert result.returncode == 2 and "not a store" in result.stderr and not (tmp_path / "job" / "store.json").exists()
