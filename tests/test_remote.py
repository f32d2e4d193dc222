"""Stores on object storage (moto's S3 server): the same rows, and no change is lost."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import pytest
from support import SAMPLES, sql, stored_rows
from traces import kernel, write_ranks, write_trace

import analyze
from analyze.errors import InputError, MachineError
from analyze.store.object_storage import RemoteStore, existing_store, store_at
from schemas.urls import is_remote

fsspec = pytest.importorskip("fsspec")

TOLD = ("runs", "kernels", "ranges", "kernel_names")
"""Tables that are compared; each answer of the server takes this process a hundredth of a second."""

_numbers = itertools.count()


@pytest.fixture
def url(bucket: str) -> str:
    """Where there is no store yet."""
    return f"{bucket}/a b/{next(_numbers)}"


def trace(folder: Path, name: str) -> Path:
    return write_trace(folder / f"{name}.json", [kernel(name, 0, 1)])


def job(folder: Path) -> Path:
    """Two ranks of a job."""
    return write_ranks(folder, *([kernel(f"k{rank}", i, 1) for i in range(3)] for rank in (0, 1)))


def names(url: str) -> set[str]:
    return {r["name"] for r in sql(url, "SELECT name FROM kernels")}  # type: ignore[arg-type]


def objects(url: str, end: str = ".parquet") -> list[str]:
    system, root = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return sorted(n[len(root) + 1 :] for n in system.find(root) if n.endswith(end))


def test_url_detection() -> None:
    assert is_remote("s3://b/x") and is_remote(Path("gs://b/x")) and is_remote("az://c/x")
    assert not any(map(is_remote, ("store", "/a/store", "C:/store", "c://store", "a:b", Path("x/s3:/y"))))
    with pytest.raises(InputError, match="nosuchthing"):
        store_at("nosuchthing://b/x")


def test_samples_have_the_same_rows_as_in_a_folder(tmp_path: Path, url: str) -> None:
    """By two shards and a commit, and put together."""
    paths = [job(tmp_path / "job")]
    analyze.ingest(*paths, store=tmp_path / "store")
    expected = stored_rows(tmp_path / "store", TOLD)
    for number in (0, 1):
        analyze.ingest(*paths, store=url, shard=f"{number}/2", jobs=1)
        with pytest.raises(InputError, match="the store has no runs"):
            analyze.open(url)
    with pytest.raises(InputError, match="not a store"):
        analyze.commit(f"{url}/elsewhere")
    analyze.commit(url)
    assert stored_rows(url, TOLD) == expected
    assert objects(url, ".json") == ["catalogue/00000001.json", "catalogue/00000002.json"]
    reader = analyze.open(url)
    analyze.compact(url)
    # Who opened it before still has its files.
    assert reader.sql("SELECT count(*) AS n FROM kernels").dicts() == [{"n": len(expected["kernels"])}]
    assert analyze.ingest(*paths, store=url).ingested == []
    assert stored_rows(url, TOLD) == expected
    with pytest.raises(InputError, match="contains no run folder and no file that a source reads"):
        analyze.ingest(url, store=tmp_path / "other")


def test_concurrent_writers_lose_no_run(tmp_path: Path, url: str) -> None:
    analyze.ingest(trace(tmp_path, "first"), store=url)
    others = ["second", "third", "fifth", "sixth"]
    together = threading.Barrier(len(others))

    def write(path: Path) -> None:
        together.wait(timeout=30)
        analyze.ingest(path, store=url, jobs=1)

    writers = [threading.Thread(target=write, args=(trace(tmp_path, name),)) for name in others]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert names(url) == {"first", *others}
    # Two stores of one storage can be queried together.
    analyze.ingest(trace(tmp_path, "fourth"), store=f"{url}-b")
    with analyze.open(url, f"{url}-b") as both_stores:
        assert both_stores.sql("SELECT count(*) AS n FROM kernels").dicts() == [{"n": len(others) + 2}]
        assert repr(both_stores) == f"analyze.open({url!r}, {url + '-b'!r})"


def test_replaced_files_stay_for_one_change(tmp_path: Path, url: str) -> None:
    path = trace(tmp_path, "k")
    analyze.ingest(path, store=url)
    [first] = [n for n in objects(url) if n.startswith("kernels/")]
    readers = [analyze.open(url)]
    for kept in (True, False):
        analyze.ingest(path, store=url, again=True)
        assert (first in objects(url)) == kept
        if kept:
            assert readers[0].sql("SELECT name FROM kernels").dicts() == [{"name": "k"}]
    assert len(objects(url, ".json")) == 2
    # A file that nothing names stays while its writer may live.
    system, root = fsspec.core.url_to_fs(url)
    system.pipe_file(f"{root}/kernels/run_id=x/rank-0.dead0000.parquet", b"half")
    analyze.ingest(path, store=url)
    assert any("dead0000" in n for n in objects(url))
    store = store_at(url)
    assert isinstance(store, RemoteStore)
    time.sleep(1)  # times of objects are whole seconds
    store.sweep(ttl_s=0)
    assert not any("dead0000" in n for n in objects(url)) and names(url) == {"k"}


def test_storage_errors_are_one_sentence(bucket: str) -> None:
    with pytest.raises(InputError, match=r"^s3://no-such-bucket-here/x: not a store"):
        existing_store("s3://no-such-bucket-here/x")
    with pytest.raises(MachineError, match=r"^s3://no-such-bucket-here/x"):
        analyze.ingest(SAMPLES / "late-rank", store="s3://no-such-bucket-here/x")


def test_any_storage_that_fsspec_knows(tmp_path: Path) -> None:
    url = f"memory://{os.getpid()}/store"
    analyze.ingest(trace(tmp_path, "k"), store=url)
    analyze.ingest(trace(tmp_path, "l"), store=url)
    assert names(url) == {"k", "l"}


def test_stores_on_disk_and_on_object_storage_answer_together(tmp_path: Path) -> None:
    url, folder = f"memory://{os.getpid()}/together", tmp_path / "store"
    analyze.ingest(trace(tmp_path, "k"), store=url)
    analyze.ingest(trace(tmp_path, "l"), store=folder)
    with analyze.open(url, folder) as traces:
        assert {row["name"] for row in traces.query("kernel-share").dicts()} == {"k", "l"}
