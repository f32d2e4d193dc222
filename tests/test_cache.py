"""The cache of ingested raw files: it follows the files, has a size limit, and lists its contents."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.ingestion import cached_stores


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(folder))
    return folder


def ask(path: Path, query: str) -> list[dict[str, Any]]:
    """Rows of a query of what is opened for it alone: what is open stays in the cache."""
    return analyze.open(path).query(query).dicts()


def traces(folder: Path, *names: str) -> list[Path]:
    """A trace of one kernel for each name."""
    return [write_trace(folder / f"{n}.json", [kernel(n, 0, 1)]) for n in names]


def test_changed_file_is_ingested_again(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("one", 0, 1)])
    assert [r["name"] for r in ask(path, "kernel-share")] == ["one"]
    stat = path.stat()
    write_trace(path, [kernel("two", 0, 1)])  # the same size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert [r["name"] for r in ask(path, "kernel-share")] == ["two"]
    write_trace(path, [kernel("three", 0, 1)])
    assert [r["name"] for r in ask(path, "kernel-share")] == ["three"]


def test_added_and_removed_files_are_noticed(own: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    traces(folder, "a", "b")
    assert {r["name"] for r in ask(folder, "kernel-share")} == {"a", "b"}
    traces(folder, "c")
    (folder / "a.json").unlink()
    assert {r["name"] for r in ask(folder, "kernel-share")} == {"b", "c"}
    assert len(cached_stores.entries()) == 1


def test_reading_summary_is_printed_once(own: Path, tmp_path: Path) -> None:
    for rank in range(2):
        told = {"rank": rank, "world_size": 2}
        write_trace(tmp_path / "job" / f"{rank}.json", [kernel("k", 0, 1 + rank)], distributedInfo=told)
    files = [tmp_path / "job" / f"{rank}.json" for rank in range(2)]
    first = run_cli("query", "kernel-share", *files, "-f", "csv")
    assert first.stderr == "read as: 1 run, ranks 0–1 of 2\n"
    again = run_cli("query", "kernel-share", *files, "-f", "csv")
    assert again.stderr == "" and again.stdout == first.stdout


def test_one_entry_for_all_spellings_of_a_path(own: Path, tmp_path: Path) -> None:
    traces(tmp_path / "job", "a")
    assert run_cli("query", "kernel-share", "job", cwd=tmp_path).stderr.startswith("read as: ")
    (tmp_path / "link").symlink_to("job")
    for path in ("job", "./job", "link", tmp_path / "job"):
        assert run_cli("query", "kernel-share", path, cwd=tmp_path).stderr == ""
    assert len(cached_stores.entries()) == 1


def test_damaged_entry_is_rebuilt(own: Path, tmp_path: Path) -> None:
    [path] = traces(tmp_path, "a")
    assert len(ask(path, "kernel-share")) == 1
    for file in own.rglob("kernels/*/*.parquet"):
        file.unlink()
    assert len(ask(path, "kernel-share")) == 1


def test_least_recently_used_entry_is_evicted_first(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, d = traces(tmp_path, "a", "b", "c", "d")
    for path in (a, b, c):
        ask(path, "kernel-share")
    size = cached_stores.entries()[0].bytes
    past = time.time() - 1000
    for entry in cached_stores.entries():
        os.utime(entry.folder / "source.json", (past, past))
    reader = analyze.open(a)  # is used again, and in use
    left = {Path(e.source).stem: e.folder for e in cached_stores.entries()}
    os.utime(left["b"] / "source.json", (past - 1000, past - 1000))
    monkeypatch.setenv("TRACEQUARRY_CACHE_SIZE", f"{int(3.5 * size)}B")
    ask(d, "kernel-share")
    assert {Path(e.source).stem for e in cached_stores.entries()} == {"a", "c", "d"}
    removed = run_cli("cache", "--max-size", "0")
    assert removed.returncode == 0 and ": 2 removed" in removed.stdout
    assert [Path(e.source).stem for e in cached_stores.entries()] == ["a"]
    assert reader.sql("SELECT name FROM kernels").dicts() == [{"name": "a"}]
    del reader
    assert ": 1 removed" in run_cli("cache", "--clear").stdout
    assert cached_stores.entries() == [] and [p for p in own.iterdir() if p.is_dir()] == []


def test_clear_and_max_size_exclude_each_other(own: Path, tmp_path: Path) -> None:
    ask(*traces(tmp_path, "a"), "kernel-share")
    done = run_cli("cache", "--clear", "--max-size", "5GB")
    assert (done.returncode, done.stderr) == (2, "analyze: cache: either --clear or --max-size\n")
    assert len(cached_stores.entries()) == 1


@pytest.mark.parametrize("size", ["5", "1.5", "many", "5 bytes", "-1GB"])
def test_size_needs_a_unit(own: Path, tmp_path: Path, size: str) -> None:
    ask(*traces(tmp_path, "a"), "kernel-share")
    done = run_cli("cache", "--max-size", size)
    assert done.returncode == 2 and f"{size!r} is not a size with a unit, such as 500MB or 20GB" in done.stderr
    assert len(cached_stores.entries()) == 1
    for kept in ("1GB", "1gib", "1 G"):
        assert ": 0 removed" in run_cli("cache", "--max-size", kept).stdout


def test_cache_is_kept_below_its_size(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *others, last = traces(tmp_path, *"abcdef")
    for path in others:
        ask(path, "kernel-share")
    # One of them may take a byte more than another.
    monkeypatch.setenv("TRACEQUARRY_CACHE_SIZE", f"{sum(e.bytes for e in cached_stores.entries()) + 1000}B")
    ask(last, "kernel-share")
    assert len(cached_stores.entries()) == 5


def test_size_of_an_entry_is_that_of_its_files(own: Path, tmp_path: Path) -> None:
    ask(*traces(tmp_path, "a"), "kernel-share")
    [entry] = cached_stores.entries()
    source = entry.folder / "source.json"
    stored = sum(file.stat().st_size for file in entry.folder.rglob("*") if file.is_file() and file != source)
    assert entry.bytes == stored > 0
    # An entry of an older version does not say its size.
    source.write_text(json.dumps({k: v for k, v in json.loads(source.read_text()).items() if k != "bytes"}))
    assert [e.bytes for e in cached_stores.entries()] == [stored + source.stat().st_size]


def test_cache_list_names_the_source_of_each_entry(own: Path, tmp_path: Path) -> None:
    assert "0.0 of at most 20,000.0 MB" in run_cli("cache").stdout
    [path] = traces(tmp_path, "a")
    ask(path, "kernel-share")
    listed = run_cli("cache").stdout.replace("\n", "")
    assert cached_stores.entries()[0].folder.name in listed and "a.json" in listed


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("500MB", 500_000_000), ("1.5 GiB", 3 << 29), ("2k", 2000), ("7B", 7)]
)
def test_valid_sizes(text: str, size: int) -> None:
    assert cached_stores.parse_size(text, "x") == size


@pytest.mark.parametrize("text", ["", "-1", "5", "1XB", "nan", "1e9", "GB"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(InputError, match="is not a size with a unit, such as"):
        cached_stores.parse_size(text, "x")


def test_search_of_a_large_folder_is_announced(own: Path, tmp_path: Path) -> None:
    traces(tmp_path / "few", "a")
    assert "looking for" not in run_cli("query", "kernel-share", tmp_path / "few").stderr
    (tmp_path / "many").mkdir()
    traces(tmp_path / "many", "a")
    for number in range(10_001):
        (tmp_path / "many" / f"{number}.bin").touch()
    found = run_cli("query", "kernel-share", tmp_path / "many")
    assert found.returncode == 0
    assert found.stderr.splitlines()[0] == (
        f"looking for recordings in {tmp_path / 'many'}, which has many files; Ctrl-C stops it"
    )
