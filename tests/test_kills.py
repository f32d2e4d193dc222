"""An ingest that is killed, or shares its store with others, leaves whole runs, no process and no rubbish.

`python tests/test_kills.py 100` kills it so often at random moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli, start_cli
from support import ROOT, alive, ask, children
from traces import kernel, write_run, write_trace

import analyze

KILLS = 5
RUNS, RANKS, KERNELS = 3, 2, 2_000


def start_ingest(folder: Path, store: Path) -> subprocess.Popen[str]:
    return start_cli("ingest", folder, "--store", store, "--jobs", "2")


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    return [q for p in children(pid) for q in (p, *descendants(p))]


def wait_for(condition: object, what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.005)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that takes seconds to ingest: nothing of it is there before both of its ranks have been read."""
    folder = tmp_path_factory.mktemp("large")
    kernels = [kernel(f"new{i % 7}", i, 1, grid=[1, 2, 3]) for i in range(150_000)]
    run_folder(folder, "large", [kernels] * RANKS)
    return folder


@pytest.fixture
def at_work(large: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    """An ingest of a large trace into a store that holds an old run, in the middle of it; and its processes."""
    store = tmp_path / "store"
    run_cli("ingest", write_trace(tmp_path / "old.json", [kernel("old", 0, 1)]), "--store", store)
    with start_ingest(large, store) as child:
        try:
            wait_for(lambda: child.poll() is not None or list(store.glob(".part-*/*/*/kernels/*")), "it does not begin")
            assert child.poll() is None, "the ingest was over before it could be killed"
            yield child, store, descendants(child.pid)
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_outlives_a_killed_ingest(
    at_work: tuple[subprocess.Popen[str], Path, list[int]], tmp_path: Path, number: signal.Signals
) -> None:
    child, store, processes = at_work
    assert len(processes) >= 2
    child.send_signal(number)
    assert child.wait() == (-9 if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not any(map(alive, processes)), "workers outlive the ingest")
    if number != signal.SIGKILL:
        assert not list(store.glob(".part-*"))
    assert [r["name"] for r in ask(store, "kernel-share")] == ["old"]
    # Nobody writes any more: what the next ingest removes stays away.
    assert run_cli("ingest", tmp_path / "old.json", "--store", store).returncode == 0
    time.sleep(0.2)
    assert not list(store.glob(".part-*"))


def test_ingest_under_nohup_survives_sighup(large: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = ["nohup", sys.executable, "-m", "analyze", "ingest", large, "--store", store, "--jobs", "2"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=variables, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            wait_for(lambda: child.poll() is not None or list(store.glob(".part-*/*/*/kernels/*")), "it does not begin")
            assert child.poll() is None, "the ingest was over before it was told"
            os.killpg(child.pid, signal.SIGHUP)
            said, _ = child.communicate(timeout=100)
        finally:
            child.kill()
    assert child.returncode == 0, said
    assert len(ask(store, "kernel-share")) == 7


def test_sighup_is_not_reported_as_a_killed_worker(at_work: tuple[subprocess.Popen[str], Path, list[int]]) -> None:
    """Which reaches the workers, too, and they first."""
    child, store, processes = at_work
    child.send_signal(signal.SIGSTOP)  # so that it neither ends nor hears of them meanwhile
    workers = [pid for pid in processes if "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text()]
    for pid in workers:
        os.kill(pid, signal.SIGHUP)
    time.sleep(0.2)
    assert workers and all(map(alive, workers))
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGCONT)
    _, said = child.communicate()
    assert child.returncode == 128 + signal.SIGHUP and "killed" not in said
    assert not list(store.glob(".part-*"))


def test_killed_worker_is_one_sentence(at_work: tuple[subprocess.Popen[str], Path, list[int]]) -> None:
    """As the kernel does when memory runs out."""
    child, store, processes = at_work
    for pid in processes:
        if "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
    _, said = child.communicate()
    assert child.returncode == 2
    assert (
        said == f"analyze: {store}: a process of the ingest was killed or ran out of memory; --jobs 1 needs the least\n"
    )
    assert [r["name"] for r in ask(store, "kernel-share")] == ["old"] and not list(store.glob(".part-*"))


def test_two_ingests_at_a_time_wait_for_each_other(tmp_path: Path) -> None:
    store = tmp_path / "store"
    names = ("a", "b", "c")
    found = [start_ingest(write_trace(tmp_path / n / "t.json", [kernel(n, 0, 1)]), store) for n in names]
    assert [c.wait() for c in found] == [0, 0, 0]
    assert {r["name"] for r in ask(store, "kernel-share")} == set(names)


def run_folder(folder: Path, run_id: str, ranks: list[list[dict[str, Any]]]) -> None:
    """A run folder with a trace of these events for each rank."""
    for rank, events in enumerate(ranks):
        write_trace(folder / f"rank-{rank}.trace.json", events)
    files = [(f"rank-{rank}.trace.json", "chrome_trace", rank) for rank in range(len(ranks))]
    write_run(folder, files, run_id=run_id)


def write_runs(folder: Path, version: int) -> None:
    """Run folders whose kernels are named after the run and the version."""
    for run in range(RUNS):
        kernels = [kernel(f"run{run} v{version}", i, 1) for i in range(KERNELS)]
        run_folder(folder / f"{run}", f"run{run}", [kernels] * RANKS)


def kill_often(folder: Path, kills: int, seed: int) -> int:
    """Ingest ever new versions of some runs, killing it at random; returns how often it was killed before its end."""
    moments = random.Random(seed)
    store = folder / "store"
    write_runs(folder / "runs", 0)
    began = time.monotonic()
    assert start_ingest(folder / "runs", store).wait() == 0
    takes = time.monotonic() - began
    killed = 0
    for version in range(1, kills + 1):
        write_runs(folder / "runs", version)
        began = time.monotonic()
        child = start_ingest(folder / "runs", store)
        try:
            child.wait(moments.uniform(0.3, 1) * takes)
        except subprocess.TimeoutExpired:
            child.send_signal(moments.choice((signal.SIGKILL, signal.SIGTERM)))
        else:
            takes = time.monotonic() - began  # faster than the first, which filled the caches of the disk
        killed += child.wait() != 0
        answer = analyze.open(store).sql("SELECT run_id, rank, name, count(*) AS n FROM kernels GROUP BY ALL").arrow()
        found: dict[str, set[tuple[str, int]]] = {}
        for row in answer.to_pylist():
            found.setdefault(row["run_id"], set()).add((row["name"], row["n"]))
        # Each run is whole: all ranks are of one version, with all their kernels.
        assert len(answer) == RUNS * RANKS, (version, found)
        assert all(len(rows) == 1 and {n for _, n in rows} == {KERNELS} for rows in found.values()), (version, found)
    assert start_ingest(folder / "runs", store).wait() == 0
    assert not list(store.glob(".part-*")) and not list(store.glob(".*.part"))
    assert len(list(store.glob("kernels/*/*.parquet"))) == RUNS * RANKS
    return killed


def test_runs_stay_whole_after_kills_at_random_moments(tmp_path: Path) -> None:
    assert kill_often(tmp_path, KILLS, seed=8) > KILLS // 4


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with tempfile.TemporaryDirectory() as scratch:
        killed = kill_often(Path(scratch), count, seed=random.randrange(1 << 30))
    print(f"{killed} of {count} ingests were killed before their end; every run was whole each time")
