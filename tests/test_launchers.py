"""Shards that a cluster's engine runs: the rows of a local ingest, also when workers are lost."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, kernel, run_cli, sql, stored_rows, write_ranks, write_trace

import analyze
from analyze.errors import InputError, MachineError
from analyze.ingestion import launchers
from analyze.ingestion.discover import discover
from analyze.ingestion.launchers import ShardOutcome
from analyze.ingestion.shards import Share
from analyze.store.store import Store
from schemas.slurm import submitted


def job(folder: Path, ranks: int) -> Path:
    """Traces of a job with one kernel for each rank."""
    return write_ranks(folder, *([kernel(f"k{rank}", 0, 1)] for rank in range(ranks)))


@pytest.mark.parametrize(("launcher", "options"), [("local", {}), ("dask", {"n_workers": "1", "processes": "True"})])
def test_launcher_equals_local_ingest_after_losing_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, options: dict[str, str]
) -> None:
    pytest.importorskip("submitit" if launcher == "local" else "distributed")
    paths = [job(tmp_path / "job", 2), write_trace(tmp_path / "t.json", [kernel("alone", 0, 1)])]
    analyze.ingest(*paths, store=tmp_path / "one")
    store = tmp_path / "many"

    def deadly(runs: Any, place: str, share: Share, jobs: int | None, again: bool) -> str | None:
        told = Path(place) / "was-killed"
        if share.number == 1 and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        from analyze.ingestion.shards import ingest_shard

        ingest_shard(runs, Store(Path(place)), share, jobs, again=again)
        return None

    monkeypatch.setattr(launchers, "run_shard", deadly)  # a closure: it is sent as it is, not by its name
    result = launchers.launch(discover(paths), Store(store), launcher, 2, options, 1)
    assert (store / "was-killed").exists() and len(result.ingested) == 2
    assert stored_rows(store) == stored_rows(tmp_path / "one")
    assert not list(store.glob(".shards/*")) and not list(store.glob(".submitit*"))


@pytest.mark.skipif(sys.platform == "win32", reason="submitit needs POSIX")
def test_task_files_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pickles: who can write one runs code as this user. A store may come from anyone."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jobs = tmp_path / "cache" / "tracequarry" / "jobs"
    store, victim = tmp_path / "store", tmp_path / "victim"
    victim.mkdir()
    store.mkdir()
    (store / ".submitit").symlink_to(victim)
    with submitted("local", "x", {}) as tasks:
        [logs] = jobs.iterdir()
        assert [stat.S_IMODE(path.stat().st_mode) for path in (logs, jobs)] == [0o700, 0o700]
        [(_, found)] = tasks.outcomes(tasks.submit([(os.getcwd, ())]))
        assert found == str(Path.cwd()) and list(logs.iterdir())
    analyze.ingest(job(tmp_path / "job", 2), store=store, launcher="local")
    assert not list(jobs.iterdir()) and not list(victim.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.parametrize(("mode", "below"), [(0o777, ""), (0o777, "mine"), (0o757, "mine/too"), (0o775, "")])
def test_task_folder_writable_by_others_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, below: str
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setattr("schemas.slurm._is_own_group", lambda number: False)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    (shared / "x.pkl").touch()
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    said = rf"^--launcher local: {shared}: other users can change it, .*; choose a folder of your own"
    options = {"folder": str(shared / below)}
    with pytest.raises(InputError, match=said):
        analyze.ingest(path, store=tmp_path / "store", launcher="local", launcher_options=options)
    shared.chmod(mode | stat.S_ISVTX)  # as /tmp
    if below:
        assert analyze.ingest(path, store=tmp_path / "store", launcher="local", launcher_options=options).ingested


def test_unreadable_input_is_reported_and_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def engine(*_: Any) -> Any:
        return nullcontext(lambda shares: (started.append(shares), [ShardOutcome("t.json: is no trace")])[1])

    monkeypatch.setattr(launchers, "_submitit", engine)
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    with pytest.raises(InputError, match=r"^t\.json: is no trace$"):
        analyze.ingest(path, store=tmp_path / "store", launcher="local")
    assert started == [[Share(0, 1)]]


def test_machine_errors_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process that is killed, or a full disk, is not the input's fault."""
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    stopped = []

    def ingest_shard(*arguments: Any, **options: Any) -> Any:
        stopped.append(1)
        raise MachineError("the disk is full") if len(stopped) < 4 else InputError("no trace")

    monkeypatch.setattr(launchers, "ingest_shard", ingest_shard)
    with pytest.raises(MachineError):
        launchers.run_shard([], str(tmp_path), Share(0, 1), 1, False)

    def engine(*_: Any) -> Any:
        return nullcontext(
            lambda shares: [ShardOutcome(lost=f"lost {len(stopped)}") for _ in shares if not stopped.append(1)]
        )

    monkeypatch.setattr(launchers, "_submitit", engine)
    said = r"1 of 1 shards \(0\) were started 3 times and wrote nothing: lost 4; the same command continues"
    with pytest.raises(InputError, match=said):
        analyze.ingest(path, store=tmp_path / "store", launcher="local")
    assert launchers.run_shard([], str(tmp_path), Share(0, 1), 1, False) == f"no trace (on {socket.gethostname()})"


@contextmanager
def dask(folder: Path, workers: int) -> Iterator[str]:
    """A scheduler and workers that run in a folder of their own; its address."""
    folder.mkdir()
    at = folder / "scheduler.json"
    asked = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show"],
        *[["worker", "--nthreads", "1", "--no-nanny"]] * workers,
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *more, "--no-dashboard", "--scheduler-file", at],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))},
            stderr=subprocess.DEVNULL,
        )
        for kind, *more in asked
    ]
    try:
        for _ in range(600):
            with suppress(OSError, ValueError):
                yield json.loads(at.read_text())["address"]
                return
            time.sleep(0.1)
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_dask_workers_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers have another working directory; one is killed, and later all lack the package."""
    pytest.importorskip("distributed")
    job(tmp_path / "job", 3)
    monkeypatch.chdir(tmp_path)
    analyze.ingest("job", store="one")
    run_shard = launchers.run_shard

    def deadly(runs: Any, place: str, share: Share, jobs: int | None, again: bool) -> str | None:
        told = Path(place) / "was-killed"
        if share.number == 1 and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_shard(runs, place, share, jobs, again)

    monkeypatch.setattr(launchers, "run_shard", deadly)
    with dask(tmp_path / "elsewhere", 2) as address:
        analyze.ingest("job", store="many", launcher=f"dask:{address}")
        assert Path("many/was-killed").exists() and stored_rows(Path("many")) == stored_rows(Path("one"))


def test_dask_on_this_machine_is_closed_to_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can send it a task runs code as this user; and its web pages show what it does."""
    distributed = pytest.importorskip("distributed")
    psutil = pytest.importorskip("psutil")

    def address(*_: Any) -> str:
        from distributed import get_worker

        return str(get_worker().scheduler.address)

    monkeypatch.setattr(launchers, "run_shard", address)
    with launchers._dask("dask", {"n_workers": "1"}, ([], str(tmp_path)), (1, False)) as start:
        [told] = start([Share(0, 1)])
        place = str(told.problem)
        assert place.startswith("tls://127.0.0.1:")
        for url, security in (
            (place, None),
            (place.replace("tls:", "tcp:"), None),
            (place, distributed.security.Security.temporary()),
        ):
            with pytest.raises((OSError, TypeError, RuntimeError)):
                distributed.Client(url, timeout=2, security=security)
        this = psutil.Process()
        ports = {
            connection.laddr.port
            for process in (this, *this.children(recursive=True))
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert len(ports) >= 3
        # distributed always listens for HTTP; without routes there is nothing to see.
        for port in ports:
            for path in ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "health"):
                with pytest.raises(OSError):  # HTTPError 404, or what is not HTTP
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=2)


def test_dask_without_workers_or_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that lack the package, and none at all."""
    pytest.importorskip("distributed")
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    monkeypatch.setattr(launchers, "_ALONE_S", 2)
    with dask(tmp_path / "none", 0) as address, pytest.raises(InputError, match=f"^--launcher dask: {address} has no"):
        analyze.ingest(path, store=tmp_path / "store", launcher=f"dask:{address}")
    monkeypatch.setattr(launchers, "_ALONE_S", 30)
    with dask(tmp_path / "bare", 1) as address:
        (tmp_path / "bare" / "analyze.py").write_text("raise ModuleNotFoundError('No module named analyze')")
        with pytest.raises(InputError, match=r"^--launcher dask: its workers need tracequarry, too: No module named"):
            analyze.ingest(path, store=tmp_path / "store", launcher=f"dask:{address}")


def test_slurm_script(tmp_path: Path) -> None:
    """What it would submit, run here as Slurm does, task by task."""
    store = tmp_path / "store"
    asked = ["ingest", job(tmp_path / "a b", 3), "-s", store, "--launcher", "slurm", "--shards", "2", "--print"]
    options = ["--launcher-option", "slurm_partition=long", "--launcher-option", "mem_gb=8"]
    text = run_cli(*asked, *options).stdout
    assert text.startswith("#!/bin/bash\n#SBATCH --array=0-1\n") and "#SBATCH --partition=long\n" in text
    assert "#SBATCH --mem=8G\n" in text and not store.exists()
    text = text.replace("\nanalyze ", f"\n{shlex.quote(sys.executable)} -m analyze ")
    for task in ("0", "1"):
        subprocess.run(["bash", "-c", text], check=True, env={**os.environ, "SLURM_ARRAY_TASK_ID": task})
    last = text.splitlines()[-1]
    assert last == f"# When all are done: analyze commit {store}"
    analyze.commit(store)
    assert [r["name"] for r in sql(store, "SELECT name FROM kernels ORDER BY rank")] == ["k0", "k1", "k2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"launcher": "pbs"}, "--launcher pbs: must be slurm, local, dask or dask:ADDRESS"),
        ({"launcher": "slurm:x"}, "--launcher slurm:x: must be"),
        ({"shards": 2}, "go with --launcher"),
        ({"launcher": "local", "shard": "0/2"}, "either --shard or --launcher"),
        ({"launcher": "slurm"}, "--launcher slurm: Could not detect"),  # with no Slurm on PATH
        ({"launcher": "local", "launcher_options": {"colour": "red"}}, "--launcher local: .*colour"),
    ],
)
def test_invalid_launcher_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    with pytest.raises(InputError, match=said):
        analyze.ingest(path, store=tmp_path / "store", **options)
