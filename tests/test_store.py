"""The store: ingesting again changes nothing, readers keep a snapshot, and no path leaves the store."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_cli, run_cli_under
from support import ROOT, ask, forget, sql
from traces import kernel, write_ranks, write_run, write_trace

import analyze
from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.store.catalogue import PARSER_VERSION, STORE_VERSION, path_name
from analyze.store.store import Store
from analyze.stored_tables import TABLES
from schemas.recorded_tables import RECORDED_TABLES
from schemas.table_declaration import arrow_schema


def contents(store: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p): (p.stat().st_mtime_ns, p.stat().st_ino) for p in store.rglob("*") if p.suffix in (".parquet", ".json")
    }


def job(folder: Path, *names: str) -> Path:
    """Traces of the ranks of a job, each with one kernel of this name."""
    return write_ranks(folder, *([kernel(name, 0, 1)] for name in names))


def stored(tmp_path: Path, name: str = "k") -> tuple[Path, Path]:
    """A trace of one kernel, and a store of it."""
    path = write_trace(tmp_path / "t.json", [kernel(name, 0, 1)])
    ingest(discover([path]), Store(tmp_path / "store"), jobs=1)
    return path, tmp_path / "store"


def run_folder(folder: Path, run_id: str, name: str = "k") -> Path:
    """A run folder with a trace of one kernel."""
    write_trace(folder / "t.json", [kernel(name, 0, 1)])
    return write_run(folder, [("t.json", "chrome_trace", 0)], run_id=run_id)


def test_ingesting_again_changes_nothing(tmp_path: Path) -> None:
    path, store = stored(tmp_path)
    before = contents(store)
    result = ingest(discover([path]), Store(store), jobs=1)
    assert result.ingested == [] and len(result.unchanged) == 1 and result.read_as == "1 run, one process"
    assert contents(store) == before
    assert ingest(discover([path]), Store(store), jobs=1, again=True).ingested


def test_a_changed_rank_replaces_its_run(tmp_path: Path) -> None:
    store = tmp_path / "store"
    folder = job(tmp_path / "job", "old", "old 1")
    ingest(discover([folder]), Store(store))
    job(folder, "old", "new")
    result = ingest(discover([folder]), Store(store))
    assert len(result.ingested) == 1 and result.warnings == []
    assert sql(store, "SELECT rank, name FROM kernels ORDER BY rank") == [
        {"rank": 0, "name": "old"},
        {"rank": 1, "name": "new"},
    ]
    # Nothing of the old generation is left for other readers of the folder.
    assert len(list((store / "kernels").rglob("*.parquet"))) == 2


def test_a_reader_keeps_what_it_opened(tmp_path: Path) -> None:
    path, store = stored(tmp_path, "old")
    reader = analyze.open(store)
    for name in ("new", "newer"):
        write_trace(path, [kernel(name, 0, 1)])
        # As if it were the same run: an id with the content in it would be another.
        [run] = discover([path])
        [run.run_id] = reader.stores[0].snapshot.runs
        ingest([run], Store(store), jobs=1)
        assert reader.sql("SELECT name FROM kernels").dicts() == [{"name": "old"}]
        assert sql(store, "SELECT name FROM kernels") == [{"name": name}]
    assert len(list((store / "kernels").rglob("*.parquet"))) == 3
    del reader
    # The next ingest removes what nobody reads any more, also if it finds nothing to do.
    run.run_id = next(iter(Store(store).snapshot.runs))
    assert ingest([run], Store(store), jobs=1).unchanged
    assert len(list((store / "kernels").rglob("*.parquet"))) == 1


def test_files_of_killed_ingests_are_removed(tmp_path: Path) -> None:
    path, store = stored(tmp_path)
    [whole] = (store / "kernels").rglob("*.parquet")
    (whole.parent / "rank-0.g2.parquet").write_bytes(b"moved, and never named")
    (store / ".part-xyz" / "0").mkdir(parents=True)
    (store / "kernels" / "run_id=gone").mkdir()
    (store / "kernels" / "run_id=gone" / "rank-0.parquet").write_bytes(b"")
    assert ingest(discover([path]), Store(store)).unchanged
    assert list((store / "kernels").rglob("*")) == [whole.parent, whole]
    assert not list(store.glob(".part*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_after_the_catalogue_is_written_keeps_its_files(tmp_path: Path, number: signal.Signals) -> None:
    """The run is in the store then, and its files are named by the catalogue."""
    _, store = stored(tmp_path, "old")
    path = write_trace(tmp_path / "t.json", [kernel("new", 0, 1)])
    # The first event after the catalogue has its name.
    hook = (
        f"if 'new' in globals() or not os.path.exists({str(store / 'store.json')!r}): return\n"
        f"if open({str(store / 'store.json')!r}).read().count('t.json') == 2:\n"
        f"    globals()['new'] = True\n    signal.raise_signal({int(number)})"
    )
    hook = f"if event == 'open': return\n{hook}"
    done = run_cli_under(hook, "ingest", path, "--store", store, "--jobs", "1")
    assert done.returncode == 128 + number, done.stderr
    assert {r["name"] for r in ask(store, "kernel-share")} == {"old", "new"}
    assert ingest(discover([path]), Store(store), jobs=1).unchanged


def test_files_are_plain_parquet_of_the_declared_schema(tmp_path: Path) -> None:
    _, store = stored(tmp_path)
    [path] = (store / "kernels").glob("run_id=*/rank-0.parquet")
    assert pq.read_schema(path).equals(arrow_schema(TABLES["kernels"]))
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    assert "RLE_DICTIONARY" in columns["name"].encodings
    assert "DELTA_BINARY_PACKED" in columns["start_ns"].encodings
    assert "BYTE_STREAM_SPLIT" in columns["dur_ns"].encodings
    glob = f"{store}/kernels/*/*.parquet"
    assert duckdb.sql(f"SELECT name, dur_ns FROM read_parquet('{glob}', hive_partitioning = true)").fetchall() == [
        ("k", 1000)
    ]


@pytest.mark.parametrize(
    "run_id", ["../../x", "../run_id=other", "/tmp/x", "x" * 240, "ä" * 100, "a b'c\"%d", "~", "..", "a\\b", "*", "[a]"]
)
def test_run_ids_cannot_leave_the_store(tmp_path: Path, run_id: str) -> None:
    store = tmp_path / "a" / "b" / "store"
    ingest(discover([run_folder(tmp_path / "1", "other", "theirs")]), Store(store), jobs=1)
    ingest(discover([run_folder(tmp_path / "2", run_id, "mine")]), Store(store), jobs=1)
    rows = sql(store, "SELECT run_id, name FROM kernels")
    assert {(r["run_id"], r["name"]) for r in rows} == {("other", "theirs"), (run_id, "mine")}
    written = [p for p in tmp_path.rglob("*.parquet") if p.parent.parent.parent != store]
    assert written == []


def test_run_ids_are_not_glob_patterns(tmp_path: Path) -> None:
    store = tmp_path / "a*b[c]?" / "store"
    ids = ["a*b", "aXb", "a?b", "a[X]b", "A*B"]
    for n, run_id in enumerate(ids):
        ingest(discover([run_folder(tmp_path / f"{n}", run_id, run_id)]), Store(store), jobs=1)
    rows = sql(store, "SELECT run_id, name FROM kernels")
    assert sorted((r["run_id"], r["name"]) for r in rows) == sorted((i, i) for i in ids)
    assert len({path_name(i) for i in ids}) == len(ids)


def test_replacing_a_run_by_other_files_is_a_warning(tmp_path: Path) -> None:
    store = tmp_path / "store"
    a = run_folder(tmp_path / "a", "same", "a")
    assert ingest(discover([a]), Store(store), jobs=1).warnings == []
    b = run_folder(tmp_path / "b", "same", "b")
    assert ingest(discover([b]), Store(store), jobs=1).warnings == [
        f"{b}: replaces same, which was read from {a / 'run.json'}"
    ]


def test_second_report_of_a_rank_is_skipped(tmp_path: Path) -> None:
    """Which rank a report is of, it says itself: the manifest cannot tell beforehand."""
    folder = run_folder(tmp_path / "run", "r")
    write_trace(folder / "u.json", [kernel("u", 0, 1)])
    says = r"u.json: has kernels of rank 0, and so has .*t.json, of the same run"
    for jobs in (1, 2):
        [run] = discover([folder])
        run.files += [type(run.files[0])(folder / "u.json", "chrome_trace", 0)]
        store = Store(tmp_path / f"store-{jobs}")
        [warning] = ingest([run], store, jobs=jobs).warnings
        assert re.search(f"{says}; left out", warning)
        assert sql(store.folder, "SELECT name FROM kernels") == [{"name": "k"}]
    [run] = discover([folder])
    run.files += [type(run.files[0])(folder / "u.json", "chrome_trace", 0)]
    run.named = frozenset({folder / "u.json"})
    with pytest.raises(InputError, match=says):
        ingest([run], Store(tmp_path / "store"))
    assert Store(tmp_path / "store").snapshot.runs == {}


@pytest.mark.parametrize("how", ["missing", "short", "empty"])
def test_damaged_file_is_named_and_ingested_again(tmp_path: Path, how: str) -> None:
    path, store = stored(tmp_path)
    [damaged] = (store / "kernels").rglob("*.parquet")
    data = damaged.read_bytes()
    damaged.unlink()
    if how != "missing":
        damaged.write_bytes(data[: len(data) // 2] if how == "short" else b"")
    result = run_cli("query", "kernel-share", store)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert str(damaged) in result.stderr and "ingest" in result.stderr
    assert len(ingest(discover([path]), Store(store), jobs=1).ingested) == 1
    assert len(ask(store, "kernel-share")) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"a":1}',
        b'{"runs":{}}',
        b'{"version":1}',
        b'{"version":"x","runs":{}}',
        b"[",
        b'{"runs":{"\xff":1}}',
    ],
)
def test_invalid_catalogue_is_one_sentence(tmp_path: Path, text: bytes) -> None:
    path, store = stored(tmp_path)
    (store / "store.json").write_bytes(text)
    for command in (["query", "runs", store], ["ingest", path, "--store", store]):
        result = run_cli(*command)
        assert result.returncode == 2 and "store.json: not the catalogue of a tracequarry store" in result.stderr
    assert (store / "store.json").read_bytes() == text


def test_store_without_its_catalogue_is_not_deleted(tmp_path: Path) -> None:
    path, store = stored(tmp_path)
    (store / "store.json").unlink()
    before = contents(store)
    with pytest.raises(InputError, match=r"has runs, but store\.json, which lists them, is gone"):
        ingest(discover([path]), Store(store), jobs=1)
    assert contents(store) == before


def test_newer_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"version": 99, "runs": {}}')
    with pytest.raises(InputError, match="store version 99 is newer"):
        ask(tmp_path, "runs")


def catalogue(store: Path, **changes: Any) -> None:
    """Change what store.json says of its one run."""
    content = json.loads((store / "store.json").read_text())
    [run_id] = content["runs"]
    content["runs"][run_id] |= changes
    (store / "store.json").write_text(json.dumps(content))


def test_a_store_of_an_older_parser_is_read(tmp_path: Path) -> None:
    """Columns that it did not write are NULL."""
    path, store = stored(tmp_path)
    [file] = (store / "kernels").rglob("*.parquet")
    pq.write_table(pq.read_table(file).drop_columns(["graph_id", "registers"]), file)
    [run] = json.loads((store / "store.json").read_text())["runs"].values()
    run["tables"]["kernels"][0] |= {"bytes": file.stat().st_size, "crc32": None}
    catalogue(store, parser=PARSER_VERSION - 1, tables=run["tables"])
    result = run_cli("query", "kernel-share", store, "-f", "csv")
    assert result.returncode == 0 and result.stdout.splitlines()[1].startswith("k,1,")
    assert "1 run(s) were ingested by an older tracequarry" in result.stderr
    # Beside a run of today's.
    write_trace(tmp_path / "u.json", [kernel("l", 0, 1) | {"args": {"device": 0, "registers per thread": 7}}])
    ingest(discover([tmp_path / "u.json"]), Store(store), jobs=1)
    assert sql(store, "SELECT name, registers FROM kernels ORDER BY name") == [
        {"name": "k", "registers": None},
        {"name": "l", "registers": 7},
    ]
    # Where the raw file is at hand, the next ingest brings it up to date.
    assert len(ingest(discover([path]), Store(store), jobs=1).ingested) == 1
    assert "older" not in run_cli("query", "kernel-share", store, "-f", "csv").stderr


OLD = ROOT / "tests/data/store-1"
"""A store as the first version wrote it: three kernels of 1 us for rank 0 and of 2 us for rank 1 of a job, and one of
5 us of a file with a blank in its name, ingested twice."""


def test_store_of_the_first_version_can_be_extended(tmp_path: Path) -> None:
    kernels = "SELECT rank, name, count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM kernels GROUP BY ALL ORDER BY ALL"
    rows = [
        {"rank": 0, "name": "of rank 0", "n": 3, "ns": 3000},
        {"rank": 0, "name": "second reading", "n": 1, "ns": 5000},
        {"rank": 1, "name": "of rank 1", "n": 3, "ns": 6000},
    ]
    assert json.loads((OLD / "store.json").read_text())["version"] == 1
    assert sql(OLD, kernels) == rows
    store = tmp_path / "store"
    shutil.copytree(OLD, store)
    first = json.loads((store / "store.json").read_text())
    # At first names of runs were taken as they are, and no sizes were kept.
    [run] = [r for r in first["runs"].values() if r["world_size"] == 2]
    run |= {"encoded": False, "sizes": {}}
    (store / "store.json").write_text(json.dumps(first))
    assert sql(store, kernels) == rows
    ingest(discover([write_trace(tmp_path / "t.json", [kernel("today", 0, 7)])]), Store(store), jobs=1)
    assert json.loads((store / "store.json").read_text())["version"] == STORE_VERSION
    assert sql(store, kernels) == sorted([*rows, {"rank": 0, "name": "today", "n": 1, "ns": 7000}], key=repr)


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/etc/kernels.parquet"},
        {"path": "kernels/../../kernels.parquet"},
        {"path": "kernels/run_id=x/rank-0.csv"},
        {"ranks": [-1]},
        {"ranks": []},
        {"ranks": [1 << 31]},
    ],
)
def test_a_catalogue_names_parquet_files_of_its_store(tmp_path: Path, change: dict[str, Any]) -> None:
    _, store = stored(tmp_path)
    content = json.loads((store / "store.json").read_text())
    [run] = content["runs"].values()
    run["tables"]["kernels"][0] |= change
    (store / "store.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"store\.json: not the catalogue of a tracequarry store"):
        ask(store, "runs")


def test_a_version_of_the_parser_has_its_columns() -> None:
    """Stores of this version are read without a look at their columns. If this fails, raise PARSER_VERSION, too."""
    columns = [(t.name, c.name, c.type) for t in RECORDED_TABLES.values() for c in t.columns]
    assert (PARSER_VERSION, zlib.crc32(repr(columns).encode())) == (16, 1413860893)


def test_store_of_a_newer_parser(tmp_path: Path) -> None:
    _, store = stored(tmp_path)
    catalogue(store, parser=PARSER_VERSION + 1)
    with pytest.raises(InputError, match="was ingested by a newer tracequarry; upgrade this one"):
        ask(store, "runs")


def test_changed_rules_classify_stored_names_again(tmp_path: Path) -> None:
    _, store = stored(tmp_path, "sm90_xmma_gemm_x")
    [path] = (store / "kernel_names").rglob("*.parquet")
    names = pq.ParquetFile(path).read()
    at = names.schema.get_field_index("family")
    family = pa.array(["older"]).dictionary_encode().cast(names.schema.field(at).type)
    pq.write_table(names.set_column(at, names.schema.field(at), family), path)
    forget(store, "bytes", "crc32")
    families = {"group": "family"}
    assert [r["family"] for r in ask(store, "kernel-share", params=families)] == ["older"]
    content = json.loads((store / "store.json").read_text())
    for run in content["runs"].values():
        run |= {"rules": "of an older version", "derived": "by those"}
    (store / "store.json").write_text(json.dumps(content))
    assert [r["family"] for r in ask(store, "kernel-share", params=families)] == ["gemm"]


def test_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB: what a full disk does, for a process of its own."""
    _, store = stored(tmp_path, "old")
    before = contents(store)
    large = write_trace(tmp_path / "large.json", [kernel(f"k{i * 7919 % 10007}", i, 1) for i in range(20_000)])
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        f"sys.argv = ['analyze', 'ingest', {str(large)!r}, '--store', {str(store)!r}]\n"
        "from analyze.cli.main import main\nmain()"
    )
    # Of a module that has changed it would write a .pyc, which ends there, and the next process would read that.
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env)
    assert result.returncode == 2
    assert result.stderr == f"analyze: {store}: cannot be written: File too large\n"
    assert contents(store) == before and not list(store.glob(".part*"))
    assert [r["name"] for r in ask(store, "kernel-share")] == ["old"]


def test_every_table_is_declared_once() -> None:
    for name, table in TABLES.items():
        names = [c.name for c in table.columns]
        assert len(names) == len(set(names)) and table.name == name
        assert names[0] == "run_id"
        assert all(c.doc for c in table.columns)


def test_store_in_a_folder_of_recordings_is_refused(tmp_path: Path) -> None:
    """Queries of the folder would read the store alone."""
    one = write_trace(tmp_path / "one.json", [kernel("k", 0, 1)])
    write_trace(tmp_path / "runs" / "deep" / "two.json", [kernel("k", 0, 1)])
    done = run_cli("ingest", one, "-s", tmp_path / "runs")
    assert done.returncode == 2 and f"--store {tmp_path / 'runs'}: the folder has recordings" in done.stderr
    assert not (tmp_path / "runs" / "store.json").exists()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.md").touch()
    for _ in range(2):
        assert run_cli("ingest", one, "-s", tmp_path / "notes").returncode == 0
