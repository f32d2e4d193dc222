"""Shards run by a cluster launcher: the rows of a local ingest, also after losing workers."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli, run_python
from support import ROOT, sql, stored_rows
from traces import kernel, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.ingestion.discover import discover
from analyze.ingestion.shard_launchers import launch
from analyze.store.store import Store
from schemas.slurm import submitted


def job(folder: Path, ranks: int) -> Path:
    """Traces of a job with one kernel for each rank."""
    return write_ranks(folder, *([kernel(f"k{rank}", 0, 1)] for rank in range(ranks)))


InWorkers = Callable[..., Path]


@pytest.fixture
def in_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InWorkers:
    """Run code in all Python processes that start from now on: the body of an audit hook, `def hook(event, args)`, and
    what comes before it. Returns a folder, FOLDER in the code, in which the processes may leave something."""

    def install(hook: str, before: str = "") -> Path:
        code, left = tmp_path / "code", tmp_path / "left by workers"
        code.mkdir()
        left.mkdir()
        text = f"import os, resource, signal, sys, time\nFOLDER = {str(left)!r}\n{before}\n"
        text += f"def hook(event, args):\n{textwrap.indent(hook, '    ')}\nsys.addaudithook(hook)\n"
        (code / "sitecustomize.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(code), str(ROOT))))
        return left

    return install


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


KILL_ONCE = """
if event == 'open' and str(args[0]).endswith('rank-1.json') and not os.listdir(FOLDER):
    os.mkdir(f'{FOLDER}/killed')
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""Kills the first worker that reads rank 1."""


@pytest.mark.parametrize(("launcher", "options"), [("local", {}), ("dask", {"n_workers": "1", "processes": "True"})])
def test_launcher_equals_local_ingest_after_losing_a_worker(
    tmp_path: Path, in_workers: InWorkers, launcher: str, options: dict[str, str]
) -> None:
    pytest.importorskip("submitit" if launcher == "local" else "distributed")
    paths = [job(tmp_path / "job", 2), write_trace(tmp_path / "t.json", [kernel("alone", 0, 1)])]
    analyze.ingest(*paths, store=tmp_path / "one")
    store = tmp_path / "many"
    left = in_workers(KILL_ONCE)
    result = launch(discover(paths), Store(store), launcher, 2, options, 1)
    assert names(left) == ["killed"] and len(result.ingested) == 2
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
def test_task_folder_writable_by_others_is_rejected(tmp_path: Path, mode: int, below: str) -> None:
    pytest.importorskip("submitit")
    shared = tmp_path / "shared"
    shared.mkdir()
    if mode == 0o775:
        try:
            os.chown(shared, -1, 65534)  # a group with other members; mine may be this user's alone
        except PermissionError:
            pytest.skip("only root can give a folder to another group")
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


COUNT = """
if event == 'open' and str(args[0]).endswith('t.json'):
    os.makedirs(f'{FOLDER}/{os.getpid()}', exist_ok=True)
"""
"""Counts the processes that read a file."""


@pytest.mark.skipif(sys.platform == "win32", reason="submitit needs POSIX")
def test_unreadable_input_is_reported_and_not_retried(tmp_path: Path, in_workers: InWorkers) -> None:
    pytest.importorskip("submitit")
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [1]}')
    left = in_workers(COUNT)
    with pytest.raises(InputError, match=rf"t\.json: .*no event could be read.* \(on {socket.gethostname()}\)$"):
        analyze.ingest(path, store=tmp_path / "store", launcher="local")
    assert len(names(left)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="submitit needs POSIX")
def test_machine_errors_are_retried(tmp_path: Path, in_workers: InWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of a worker may grow beyond 20 kB, as on a full disk: the input is not to blame."""
    pytest.importorskip("submitit")
    path = write_trace(tmp_path / "t.json", [kernel(f"k{i * 7919 % 10007}", i, 1) for i in range(20_000)])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with monkeypatch.context() as limited:
        left = in_workers(COUNT, "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))")
        said = r"1 of 1 shards \(0\) were started 3 times and wrote nothing: .*File too large.*; the same command"
        with pytest.raises(InputError, match=said):
            analyze.ingest(path, store=tmp_path / "store", launcher="local")
        assert len(names(left)) == 3
        limited.setenv("PYTHONPATH", str(ROOT))
        assert analyze.ingest(path, store=tmp_path / "store", launcher="local").ingested


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
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""), str(ROOT))),
            },
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


def test_dask_workers_in_another_directory(
    tmp_path: Path, in_workers: InWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is killed."""
    pytest.importorskip("distributed")
    job(tmp_path / "job", 3)
    monkeypatch.chdir(tmp_path)
    analyze.ingest("job", store="one")
    left = in_workers(KILL_ONCE)
    with dask(tmp_path / "elsewhere", 2) as address:
        analyze.ingest("job", store="many", launcher=f"dask:{address}")
        assert names(left) == ["killed"] and stored_rows(Path("many")) == stored_rows(Path("one"))


TELL_ADDRESS = """
if event == 'open' and str(args[0]).endswith('t.json') and not os.path.exists(f'{FOLDER}/told'):
    os.mkdir(f'{FOLDER}/told')
    from distributed import get_worker
    with open(f'{FOLDER}/part', 'w') as file:
        file.write(get_worker().scheduler.address)
    os.rename(f'{FOLDER}/part', f'{FOLDER}/address')
    while not os.path.exists(f'{FOLDER}/end'):
        time.sleep(0.1)
"""
"""Writes the address of a worker's scheduler, and waits."""


def test_dask_on_this_machine_is_closed_to_other_users(tmp_path: Path, in_workers: InWorkers) -> None:
    """A task runs code as this user, and web pages would show what it does."""
    pytest.importorskip("distributed")
    psutil = pytest.importorskip("psutil")
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    left = in_workers(TELL_ADDRESS)
    options = {"n_workers": "1", "processes": "True"}
    with ThreadPoolExecutor(1) as beside:
        try:
            done = beside.submit(analyze.ingest, path, store=tmp_path / "s", launcher="dask", launcher_options=options)
            while not (left / "address").exists():
                assert not done.done(), done.result()
                time.sleep(0.1)
            place = (left / "address").read_text()
            assert place.startswith("tls://127.0.0.1:")
            code = (
                "import asyncio\nfrom distributed.comm import connect\nfrom distributed.security import Security\n"
                "own = Security.temporary().get_connection_args('client')\n"
                f"for url, given in (({place!r}, {{}}), ({place.replace('tls:', 'tcp:')!r}, {{}}), ({place!r}, own)):\n"
                "    try: asyncio.run(connect(url, timeout=2, **given))\n"
                "    except (OSError, TypeError, RuntimeError): print('refused')\n"
                "    else: print('connected')\n"
            )
            other = run_python("-c", code, PYTHONPATH=str(ROOT))
            assert other.stdout.split() == ["refused"] * 3, other.stderr
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
                for page in ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "health"):
                    with pytest.raises(OSError):  # HTTPError 404, or what is not HTTP
                        urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=2)
        finally:
            (left / "end").touch()
        assert done.result().ingested


def test_dask_without_workers_or_package_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from dask import config

    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    with (
        dask(tmp_path / "none", 0) as address,
        config.set({"distributed.comm.timeouts.connect": "2s"}),
        pytest.raises(InputError, match=f"^--launcher dask: {address} has no"),
    ):
        analyze.ingest(path, store=tmp_path / "store", launcher=f"dask:{address}")
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
