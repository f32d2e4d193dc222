"""Run folders of one job on several nodes (`collect run --job`) are one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import sql
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError


def part(folder: Path, *ranks: int, **said: Any) -> Path:
    """What a node left: traces of some ranks of a job of four."""
    files = [{"path": f"torch/rank-{r}.trace.json", "kind": "chrome_trace", "rank": r} for r in ranks]
    for rank in ranks:
        write_trace(folder / f"torch/rank-{rank}.trace.json", [kernel(f"k{rank}", 0, 1)])
    own = {"status": said.pop("status", "done"), "reason": said.pop("reason", None)}
    recorded = [{"rank": r, "host": folder.name} for r in ranks]
    done = {"profiler": "torch", **own, "files": files, "ranks": recorded, "start": f"2026-01-01T00:00:0{ranks[0]}Z"}
    manifest = {
        "version": 2, "run_id": folder.name, "job": "job", **own, "start": "2026-01-01T00:00:00Z",
        "command": ["collect", folder.name], "passes": [done], "world_size": 4, "program": ["x"], "host": folder.name,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(manifest | said))
    return folder


def runs(path: Path) -> list[dict[str, Any]]:
    columns = "run_id, status, reason, ranks, world_size, host, command, start_time, torch_version"
    return sql(path, f"SELECT {columns} FROM runs")


def test_parts_of_a_job_are_one_run(tmp_path: Path) -> None:
    part(tmp_path / "job/b", 0, 1, torch_version="2.11")
    part(tmp_path / "job/a", 2, 3, torch_version="2.11")
    # What the nodes agree on is kept, the command is that of rank 0, and which node's host it was is not to be told.
    assert runs(tmp_path) == [{
        "run_id": "job", "status": "done", "reason": None, "ranks": 4, "world_size": 4, "host": None,
        "command": "collect b", "start_time": "2026-01-01T00:00:00Z", "torch_version": "2.11",
    }]  # fmt: skip
    hosts = sql(tmp_path, "SELECT rank, host FROM rank_hosts ORDER BY rank")
    assert [(r["rank"], r["host"]) for r in hosts] == [(0, "b"), (1, "b"), (2, "a"), (3, "a")]
    # One part alone is the same job, of which ranks are missing.
    assert [(r["run_id"], r["ranks"], r["world_size"]) for r in runs(tmp_path / "job/a")] == [("job", 2, 4)]


def test_parts_that_are_named_one_by_one_are_one_run(tmp_path: Path) -> None:
    part(tmp_path / "a", 0, 1)
    part(tmp_path / "b", 2, 3)
    with analyze.open(tmp_path / "a", tmp_path / "b") as traces:
        assert traces.sql("SELECT run_id, ranks FROM runs").rows() == [("job", 4)]
        assert traces.sql("SELECT name FROM kernels ORDER BY name").rows() == [("k0",), ("k1",), ("k2",), ("k3",)]


def test_contradicting_fields_of_nodes_are_null(tmp_path: Path) -> None:
    part(tmp_path / "a", 0, torch_version="2.11")
    part(tmp_path / "b", 1, torch_version="2.10", status="failed", reason="it broke", world_size=None)
    [run] = runs(tmp_path)
    assert (run["status"], run["reason"]) == ("failed", "b: it broke")
    assert (run["torch_version"], run["world_size"]) == (None, 4)


def test_a_rank_of_two_nodes_and_a_copy_of_a_part(tmp_path: Path) -> None:
    part(tmp_path / "a", 0, 1)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    result = analyze.ingest(tmp_path, store=tmp_path / "store")
    assert result.ingested == ["job"] and "was already found" in result.warnings[0]
    part(tmp_path / "b", 1, 2)
    with pytest.raises(InputError, match=r"a/run\.json and .*/b/run\.json: both have rank 1 of a job"):
        analyze.ingest(tmp_path, store=tmp_path / "store")


def test_a_part_that_changed_is_read_again(tmp_path: Path) -> None:
    part(tmp_path / "in/a", 0)
    part(tmp_path / "in/b", 1)
    store = tmp_path / "store"
    analyze.ingest(tmp_path / "in", store=store)
    assert analyze.ingest(tmp_path / "in", store=store).unchanged == ["job"]
    part(tmp_path / "in/b", 1, reason="interrupted", status="failed")
    assert analyze.ingest(tmp_path / "in", store=store).ingested == ["job"]
    # In shards, too, what both nodes left is one run.
    for number in (0, 1):
        analyze.ingest(tmp_path / "in", store=tmp_path / "sharded", shard=f"{number}/2")
    analyze.commit(tmp_path / "sharded")
    assert runs(tmp_path / "sharded") == runs(store)
