"""Shards that a cluster's engine runs: the rows of a local ingest, also when workers are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support import kernel, run_cli, sql, stored_rows, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.store import launchers
from analyze.store.discover import discover
from analyze.store.shards import Share
from analyze.store.store import Store


def job(folder: Path, ranks: int) -> Path:
    """Traces of a job with one kernel for each rank."""
    return write_ranks(folder, *([kernel(f"k{rank}", 0, 1)] for rank in range(ranks)))


@pytest.mark.parametrize(("launcher", "options"), [("local", {}), ("dask", {"n_workers": "1", "processes": "True"})])
def test_the_rows_of_a_local_ingest_though_a_worker_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, options: dict[str, str]
) -> None:
    engine = pytest.importorskip("submitit" if launcher == "local" else "distributed")
    if launcher == "local":
        monkeypatch.setattr(engine.Job, "_results_timeout_s", 1)  # for what was killed it waits 15 s to see a result
    paths = [job(tmp_path / "job", 2), write_trace(tmp_path / "t.json", [kernel("alone", 0, 1)])]
    analyze.ingest(*paths, store=tmp_path / "one")
    store = tmp_path / "many"

    def deadly(runs: Any, place: str, share: Share, jobs: int | None, again: bool) -> str | None:
        told = Path(place) / "was-killed"
        if share.number == 1 and not told.exists():
            told.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        from analyze.store.shards import ingest_shard

        ingest_shard(runs, Store(Path(place)), share, jobs, again=again)
        return None

    monkeypatch.setattr(launchers, "run_shard", deadly)  # a closure: it is sent as it is, not by its name
    result = launchers.launch(discover(paths), Store(store), launcher, 2, options, 1)
    assert (store / "was-killed").exists() and len(result.ingested) == 2
    assert stored_rows(store) == stored_rows(tmp_path / "one")
    assert not list(store.glob(".shards/*")) and not (store / ".submitit").exists()


def test_what_cannot_be_read_is_told_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def engine(*_: Any) -> Any:
        return nullcontext(lambda shares: (started.append(shares), ["t.json: is no trace"])[1])

    monkeypatch.setattr(launchers, "_submitit", engine)
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    with pytest.raises(InputError, match=r"^t\.json: is no trace$"):
        analyze.ingest(path, store=tmp_path / "store", launcher="local")
    assert started == [[Share(0, 1)]]


def test_the_script(tmp_path: Path) -> None:
    """What it would submit, run here as Slurm does, task by task."""
    store = tmp_path / "store"
    asked = ["ingest", job(tmp_path / "a b", 3), "-s", store, "--launcher", "slurm", "--shards", "2", "--print"]
    options = ["--launcher-option", "slurm_partition=long", "--launcher-option", "mem_gb=8"]
    text = run_cli(*asked, *options).stdout
    assert text.startswith("#!/bin/bash\n#SBATCH --array=0-1\n") and "#SBATCH --partition=long\n" in text
    assert "#SBATCH --mem=8G\n" in text and not store.exists()
    text = text.replace("\nanalyze ", f"\n{sys.executable} -m analyze ")
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
        ({"launcher": "slurm"}, "--launcher slurm: Could not detect"),
        ({"launcher": "local", "launcher_options": {"colour": "red"}}, "--launcher local: .*colour"),
    ],
)
def test_what_is_no_launcher(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    pytest.importorskip("submitit")
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    with pytest.raises(InputError, match=said):
        analyze.ingest(path, store=tmp_path / "store", **options)
