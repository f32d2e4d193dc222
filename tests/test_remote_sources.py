"""Raw files at URLs (moto's S3 server): the rows of local files, and each is fetched once."""

from __future__ import annotations

import functools
import gc
import gzip
import http.server
import itertools
import logging
import os
import pickle
import re
import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import ROOT, SAMPLES, stored_rows
from traces import kernel, write_ranks, write_trace

import analyze
from analyze.errors import InputError, StorageError
from analyze.ingestion.discover import discover
from analyze.ingestion.ingest import ingest
from analyze.ingestion.raw_files import given_paths
from analyze.ingestion.shard_launchers import run_shard
from analyze.ingestion.shards import Share, files_of, planned_run
from analyze.sources.remote import raw_path
from analyze.store.store import Store
from tests.test_nsys_damage import KERNEL, folder_export
from tests.test_nsys_layouts import OLD, write_export

fsspec = pytest.importorskip("fsspec")

_numbers = itertools.count()


@pytest.fixture
def url(bucket: str) -> str:
    """Where there is nothing yet."""
    return f"{bucket}/raw files/{next(_numbers)}"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files are made, which must be gone when the runs are."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    left = [path for path in folder.glob("tracequarry-*/*") if "-spill-" not in path.parent.name]  # that is DuckDB's
    assert not left


@pytest.fixture
def fetched(bucket: str, caplog: pytest.LogCaptureFixture) -> Callable[[], Counter[str]]:
    """The names of the objects that the server gave since this was asked last, and how often."""
    caplog.set_level(logging.INFO, "werkzeug")

    def asked() -> Counter[str]:
        found = re.findall(r"GET /stores/\S*?([^/\s]+) HTTP", caplog.text)
        caplog.clear()
        return Counter(found)

    return asked


def put(folder: Path, url: str) -> str:
    """Upload a folder, or a file."""
    system, root = fsspec.core.url_to_fs(url)
    for path in [folder] if folder.is_file() else folder.rglob("*"):
        if path.is_file():
            system.pipe_file(f"{root}/{path.relative_to(folder)}" if path != folder else root, path.read_bytes())
    return url


def forget(scratch: Path) -> None:
    """Remove what was fetched when it was looked into."""
    shutil.rmtree(scratch)
    scratch.mkdir()


def job(folder: Path) -> Path:
    """Two ranks of a job."""
    return write_ranks(folder, *([kernel(f"k{rank}", i, 1) for i in range(3)] for rank in (0, 1)))


def rows(store: Path | str) -> dict[str, list[dict[str, Any]]]:
    """All tables that hold rows, but for where these came from."""
    found = {table: held for table, held in stored_rows(store).items() if held}
    for run in found["runs"]:
        del run["source"]
    return found


def names(traces: analyze.Traces) -> set[str]:
    return {row["name"] for row in traces.sql("SELECT name FROM kernels").dicts()}


def test_every_format_has_the_rows_of_local_files(
    tmp_path: Path, url: str, scratch: Path, fetched: Callable[[], Counter[str]]
) -> None:
    """A run folder of four ranks, and bare files beside it."""
    folder = tmp_path / "study"
    shutil.copytree(SAMPLES / "late-rank", folder / "late-rank")
    shutil.copy(SAMPLES / "cuda-graph" / "torch" / "rank-0.trace.json.gz", folder / "alone.trace.json.gz")
    shutil.copy(SAMPLES / "resnet18-roofline" / "ncu" / "rank-0.ncu.csv", folder / "k.ncu.csv")
    shutil.copy(ROOT / "tests" / "data" / "nvprof" / "vgg16_k80_conv.log", folder / "out.757751")
    write_export(folder / "deep" / "node 0.sqlite", OLD)
    with gzip.open(folder / "deep" / "node 1.sqlite.gz", "wb") as f:
        f.write((folder / "deep" / "node 0.sqlite").read_bytes())
    (folder / ".hidden.json").write_text("{}")
    local = analyze.ingest(folder, store=tmp_path / "local")
    put(folder, f"{url}/study")
    put(tmp_path / "local" / "store.json", f"{url}/study/catalogue/00000001.json")  # as of a store there
    fetched()
    found = discover(given_paths([f"{url}/study"]))
    result = ingest(found, Store(tmp_path / "remote"))
    assert result.read_as == "6 runs: 5 of one process, 1 of ranks 0–3 of 4"
    assert found.warnings + result.warnings == local.warnings and len(local.warnings) == 2  # one of each node
    read = {f.path.name for run in found for f in run.files} | {"run.json"}
    assert fetched() == Counter({name.replace(" ", "%20"): 1 for name in read})
    assert rows(tmp_path / "remote") == rows(tmp_path / "local") and len(rows(tmp_path / "local")) > 10
    files = [f.path for run in Store(tmp_path / "remote").snapshot.runs.values() for f in run.files]
    assert {f"{url}/study/late-rank/run.json", f"{url}/study/out.757751"} <= set(files)
    with analyze.open(tmp_path / "remote") as traces:
        sources = {row["source"] for row in traces.where(profiler="all").sql("SELECT source FROM runs").dicts()}
    assert {f"{url}/study/late-rank", f"{url}/study/deep/node 0.sqlite"} <= sources


def test_companion_files_are_fetched(tmp_path: Path, scratch: Path) -> None:
    """The write-ahead log of an SQLite file, and all tables of a folder; in any storage that fsspec knows."""
    folder = tmp_path / "exports"
    db = sqlite3.connect(write_export(folder / "logged.sqlite", OLD))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}")
    db.execute(f'UPDATE {KERNEL} SET start = start + 1000000, "end" = "end" + 1000000 WHERE rowid = 1')  # no duplicate
    db.commit()
    folder_export(folder / "tables", ".parquet")
    url = put(folder, f"memory://{os.getpid()}/exports")
    db.close()
    analyze.ingest(url, store=tmp_path / "found")
    given = given_paths([f"{url}/logged.sqlite", f"{url}/tables/META_DATA_EXPORT.parquet"])
    named = pickle.loads(pickle.dumps(discover(given)))
    ingest(named, Store(tmp_path / "named"))
    for store in ("found", "named"):
        with analyze.open(tmp_path / store) as traces:
            found = traces.sql("SELECT run_id, count(*) AS n FROM kernels GROUP BY ALL ORDER BY ALL").dicts()
        assert [(r["run_id"].rpartition("-")[0], r["n"]) for r in found] == [("logged", 2), ("tables", 4)]


def test_remote_files_are_fetched_again_only_if_changed(
    tmp_path: Path, url: str, scratch: Path, fetched: Callable[[], Counter[str]]
) -> None:
    path = write_trace(tmp_path / "bare" / "t.json", [kernel("first", 0, 1)])
    write_trace(tmp_path / "bare" / "u.json", [kernel("other", 0, 1)])  # as long
    write_export(tmp_path / "bare" / "node.sqlite", OLD)
    put(tmp_path / "bare", f"{url}/bare")
    put(SAMPLES / "late-rank", f"{url}/run")
    given = [f"{url}/bare", f"{url}/run", path]
    fetched()
    with analyze.open(*given) as traces:
        assert {"first", "other"} < names(traces) and len(traces.read_as) == 2
        assert repr(traces) == f"analyze.open({', '.join(repr(str(g)) for g in given)})"
    once = fetched()
    assert {"t.json", "u.json", "node.sqlite", "run.json", "rank-3.trace.json.gz"} < set(once) and max(
        once.values()
    ) == 1
    with analyze.open(*given) as traces:
        assert {"first", "other"} < names(traces) and not traces.read_as
    assert not fetched()
    put(write_trace(path, [kernel("later", 0, 1)]), f"{url}/bare/t.json")  # as long as before
    with analyze.open(*given) as traces:
        assert {"later", "other"} < names(traces) and "first" not in names(traces)
    assert fetched() == {"t.json": 1}


def test_shards_read_remote_files_once(
    tmp_path: Path, url: str, scratch: Path, fetched: Callable[[], Counter[str]]
) -> None:
    """Rank 0 lies here and rank 1 at a URL; both are of one run. Who reads gets the runs as a launcher sends them."""
    job(tmp_path / "job")
    put(tmp_path / "job", f"{url}/job")
    given = [tmp_path / "job" / "rank-0.json", f"{url}/job/rank-1.json"]
    runs = discover(given_paths(given))
    assert [sorted(f.rank for f in run.files) for run in runs] == [[0, 1]] and not runs.warnings
    assert [source for _, source in files_of(planned_run(runs[0]), (0, 1))] == runs[0].files
    sent = pickle.dumps(list(runs))
    del runs
    fetched()
    for number in (0, 1):
        assert run_shard(pickle.loads(sent), str(tmp_path / "shards"), Share(number, 2), 1, False) is None
    assert fetched() == {"rank-1.json": 1}
    analyze.commit(tmp_path / "shards")
    analyze.ingest(tmp_path / "job", store=tmp_path / "local")
    assert rows(tmp_path / "shards") == rows(tmp_path / "local")
    assert f"analyze ingest '{url}/job' --store" in analyze.slurm_script(f"{url}/job", store=tmp_path / "x")
    for number in (0, 1):
        analyze.ingest(f"{url}/job", store=tmp_path / "own", shard=f"{number}/2", jobs=1)
    analyze.commit(tmp_path / "own")
    assert rows(tmp_path / "own") == rows(tmp_path / "local")


def test_large_files_are_fetched_with_progress(tmp_path: Path, url: str, scratch: Path) -> None:
    """Files that several processes read."""
    for rank in (0, 1):
        events = [kernel(f"k{i % 9}", i, 1, note="x" * 20_000) for i in range(2500)]
        write_trace(tmp_path / "job" / f"{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    for name in ("a", "b"):
        write_trace(tmp_path / "job" / f"{name}.json", [kernel(name * 5, 0, 1)])
    put(tmp_path / "job", f"{url}/job")
    runs = discover(given_paths([f"{url}/job"]))
    assert [f.rank for run in runs for f in run.files] == [0, 0, 0, 1]
    assert (tmp_path / "job" / "0.json").stat().st_size > 48 << 20
    done: list[int] = []

    class Seen:
        def start(self, total_bytes: int) -> None:
            done.append(-total_bytes)

        def advance(self, done_bytes: int, name: str) -> None:
            done.append(done_bytes)

    ingest(runs, Store(tmp_path / "store"), jobs=3, progress=Seen())
    assert sum(done) == 0 and len(done) > 4
    analyze.ingest(tmp_path / "job", store=tmp_path / "local", jobs=1)
    assert rows(tmp_path / "store") == rows(tmp_path / "local")


def test_damaged_remote_files_are_reported(tmp_path: Path, url: str, scratch: Path) -> None:
    """The same sentences as of local files, with the URL; what is gone or changed meanwhile is left out, or named."""
    folder = job(tmp_path / "job")
    write_trace(folder / "cut.json", [kernel(f"k{i}", i, 1) for i in range(99)])
    (folder / "cut.json").write_bytes((folder / "cut.json").read_bytes()[:-200])
    (folder / "empty.json.gz").write_bytes(b"")
    (folder / "empty.json").write_bytes(b"")
    (folder / "half.sqlite").write_bytes((write_export(tmp_path / "x.sqlite", OLD)).read_bytes()[:-5000])
    local = analyze.ingest(folder, store=tmp_path / "local")
    put(folder, url)
    gc.disable()
    remote = analyze.ingest(url, store=tmp_path / "remote")
    left = list(scratch.iterdir())
    gc.enable()
    assert not left, "what is not read waits for no garbage collection"
    assert remote.warnings == [w.replace(str(folder), url) for w in local.warnings] and len(remote.warnings) == 4
    for name in ("empty.json.gz", "half.sqlite"):
        with pytest.raises(InputError) as here:
            analyze.open(folder / name)
        with pytest.raises(InputError) as there:
            analyze.open(f"{url}/{name}")
        assert str(there.value) == str(here.value).replace(str(folder), url)
    found = [discover(given_paths([given])) for given in (url, f"{url}/rank-0.json")]
    system, root = fsspec.core.url_to_fs(url)
    system.rm_file(f"{root}/rank-1.json")
    system.pipe_file(f"{root}/rank-0.json", (folder / "rank-0.json").read_bytes()[:-9])
    size = (folder / "rank-0.json").stat().st_size
    forget(scratch)
    told = f"{url}/rank-0.json: changed while it was read: {size - 9} of {size} bytes arrived"
    gone = f"{url}/rank-1.json: cannot be read: no such file"
    left = ingest(found[0], Store(tmp_path / "left")).warnings[-2:]
    assert left == [f"{told}; left out", f"{gone}; left out"]
    with pytest.raises(InputError, match=f"^{re.escape(told)}$"):
        ingest(found[1], Store(tmp_path / "named"))


def test_storage_error_stops_the_ingest(tmp_path: Path, scratch: Path) -> None:
    """No file is skipped because a key expires during the ingest."""
    write_trace(tmp_path / "www" / "a.json", [kernel("k", 0, 1)])
    expired = threading.Event()

    class Expiring(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if expired.is_set():
                self.send_error(403, "ExpiredToken")
            else:
                super().do_GET()

        def log_message(self, *_: Any) -> None: ...

    handler = functools.partial(Expiring, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.json"
        runs = discover(given_paths([url]))
        forget(scratch)
        expired.set()
        with pytest.raises(StorageError, match=f"^{url}: ClientResponseError: 403, message='ExpiredToken'"):
            ingest(runs, Store(tmp_path / "store"))
        assert not Store(tmp_path / "store").snapshot.runs
        with pytest.raises(StorageError, match="ExpiredToken"):
            discover(given_paths([url]))
        server.shutdown()


def test_missing_bucket_and_credentials_are_one_sentence(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    put(job(tmp_path / "job"), url)
    for nothing in (f"{url}/elsewhere", "s3://no-such-bucket-here/x"):
        with pytest.raises(InputError, match=f"^{nothing}: no such file or folder$"):
            analyze.open(nothing)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StorageError, match=f"^{re.escape(url)}.*: NoCredentialsError: Unable to locate credentials$"):
        discover(given_paths([url]))
    s3fs.S3FileSystem.clear_instance_cache()


def test_files_of_a_web_server(tmp_path: Path, scratch: Path) -> None:
    """It lists nothing, and gives no entity tag."""
    path = write_trace(tmp_path / "www" / "a.json", [kernel("k", 0, 1)])

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    handler = functools.partial(Quiet, directory=str(path.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with analyze.open(f"http://127.0.0.1:{server.server_port}/a.json") as traces:
            assert names(traces) == {"k"}
        server.shutdown()


def test_unreachable_web_server_is_not_a_missing_file(tmp_path: Path, scratch: Path) -> None:
    class Answering(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            if self.path == "/hangs-up.json":
                return
            self.send_error({"/fails.json": 503}.get(self.path, 404))

        do_GET = do_HEAD

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(InputError, match=f"^{url}/none.json: no such file or folder$"):
            analyze.open(f"{url}/none.json")
        with pytest.raises(InputError, match=f"^{url}/none: not a store; "):
            analyze.compact(f"{url}/none")
        with pytest.raises(StorageError, match=f"^{url}/fails.json: ClientResponseError: 503, "):
            raw_path(f"{url}/fails.json").is_file()
        with pytest.raises(StorageError, match=f"^{url}/hangs-up.json: ServerDisconnectedError: "):
            raw_path(f"{url}/hangs-up.json").is_file()
        server.shutdown()
    refused = f"^{url}/none.json: ClientConnectorError: Cannot connect to host 127.0.0.1:{server.server_port} "
    with pytest.raises(StorageError, match=refused):
        analyze.open(f"{url}/none.json")
    with pytest.raises(StorageError, match=refused):
        analyze.compact(f"{url}/none.json")
    with pytest.raises(StorageError, match=refused):
        analyze.commit(f"{url}/none.json")


def test_commands_take_urls(tmp_path: Path) -> None:
    url = f"file://{write_trace(tmp_path / 't.json', [kernel('k', 0, 1)])}"
    for command in (["info", url], [url]):
        found = run_cli(*command)
        assert found.returncode == 0
    assert f"\n  analyze query kernel-share {url}\n" in found.stdout


def test_a_url_of_this_machine_is_a_path(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a b" / "t.json", [kernel("k", 0, 1)])
    store = (tmp_path / "the store").as_uri()
    assert "%20" in store
    for path in (trace.as_uri(), f"file:{trace}", trace.parent.as_uri()):
        with analyze.open(path) as traces:
            assert traces.query("kernel-share").arrow()["calls"].to_pylist() == [1]
    assert run_cli("ingest", trace.as_uri(), "--store", store).returncode == 0
    assert (tmp_path / "the store" / "store.json").is_file()
    asked = run_cli("query", "kernel-share", store, "-f", "csv", "--select", "calls")
    assert (asked.returncode, asked.stdout.split()) == (0, ["calls", "1"])
    assert run_cli("compact", store).returncode == 0
