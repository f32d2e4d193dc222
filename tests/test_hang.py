"""Dumps of PyTorch's flight recorder: which rank did not reach which collective, or called another one."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask, sql

Row = dict[str, Any]


def statuses(path: Path) -> dict[tuple[str, int, int], str]:
    return {(r["process_group"], r["seq"], r["rank"]): r["status"] for r in ask(path, "hang")}


# tests/data/hang.py on four H200s: the third all_reduce is not called by rank 2, or with another size by rank 1.
@pytest.mark.parametrize(("kind", "rank", "status"), [("missing", 2, "missing"), ("size", 1, "differs")])
def test_recorded_hangs_as_torchfrtrace_sees_them(kind: str, rank: int, status: str) -> None:
    folder = SAMPLES / f"hang-{kind}"
    expected = {("0 default_pg", 3, r): status if r == rank else "waiting" for r in range(4)}
    assert statuses(folder) == expected
    rows = {r["rank"]: r for r in ask(folder, "hang")}
    assert {r["where"] for r in rows.values()} == {"hang.py:21 average"}
    assert rows[0]["path"] == "hang.py:34 <module> > hang.py:30 train > hang.py:21 average"
    assert [rows[r]["last_seq"] for r in range(4)] == [2 if kind == "missing" and r == 2 else 3 for r in range(4)]
    # PyTorch's own analysis of the same files.
    module = "torch.distributed.flight_recorder.fr_trace"
    command = [sys.executable, "-m", module, "-p", "nccl_trace_rank_", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert re.search(r"sequence number: 3\b", said)
    assert (f"missing ranks: {{{rank}}}" if status == "missing" else f"Culprit rank {rank};") in said


def test_report_shows_the_hang(tmp_path: Path) -> None:
    done = run_cli("report", str(SAMPLES / "hang-size"), "-o", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    assert "Why does the job hang" in (tmp_path / "report.html").read_text()


def record(seq: int, state: str = "completed", operation: str = "nccl:all_reduce", **more: Any) -> Row:
    return {
        "frames": [{"name": "f", "filename": "/me/train.py", "line": seq}], "process_group": ("0", "default_pg"),
        "collective_seq_id": seq, "p2p_seq_id": 0, "profiling_name": operation, "state": state, "is_p2p": False,
        "input_sizes": [[8]], "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"],
        "time_created_ns": 1000 + seq, "timeout_ms": 8000, **more,
    }  # fmt: skip


def write(folder: Path, ranks: dict[int, list[Any]], size: int = 2) -> Path:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(size)))}}
    for rank, entries in ranks.items():
        # Files with the same content are copies of one file.
        dump = {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries, "rank": rank}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    return folder


def test_job_that_does_not_hang_has_no_rows(tmp_path: Path) -> None:
    assert statuses(write(tmp_path, {0: [record(1), record(2)], 1: [record(1), record(2)]})) == {}


def test_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {0: [record(1), record(2, "started")], 2: [record(1), record(2, "started")]}, size=3)
    found = {rank: status for (_, seq, rank), status in statuses(path).items() if seq == 2}
    assert found == {0: "waiting", 1: "no dump", 2: "waiting"}


def test_buffers_that_begin_at_different_collectives(tmp_path: Path) -> None:
    """Collective 1 has left the buffer of rank 1: that is no hang. Rank 1 has not called collective 4."""
    path = write(
        tmp_path,
        {0: [record(1), record(2), record(3), record(4, "started")], 1: [record(2), record(3)]},
    )
    assert statuses(path) == {("0 default_pg", 4, 0): "waiting", ("0 default_pg", 4, 1): "missing"}


def test_who_called_what_when(tmp_path: Path) -> None:
    """Ranks 0 and 1 call collective 2, 5 ns apart; rank 2 calls it with another type; rank 3 is at collective 1."""
    done = [record(1)]
    path = write(
        tmp_path,
        {
            0: [*done, record(2, "started", time_created_ns=2000)],
            1: [*done, record(2, "started", time_created_ns=2005)],
            2: [*done, record(2, "started", time_created_ns=2009, input_dtypes=["Half"], input_sizes=[[4], [2, 2]])],
            3: done,
        },
        size=4,
    )
    columns = ("rank", "seq", "status", "in_sizes", "dtypes", "where", "last_seq", "called_ns")
    assert [tuple(r[c] for c in columns) for r in ask(path, "hang")] == [
        (0, 2, "waiting", "[[8]]", '["Float"]', "train.py:2 f", 2, 0),
        (1, 2, "waiting", "[[8]]", '["Float"]', "train.py:2 f", 2, 5),
        (2, 2, "differs", "[[4], [2, 2]]", '["Half"]', "train.py:2 f", 2, 9),
        # Where it was last: what it called there, not what the others wait in.
        (3, 2, "missing", "[[8]]", '["Float"]', "train.py:1 f", 1, None),
    ]  # fmt: skip


def test_trace_shows_who_waits(tmp_path: Path) -> None:
    """Rank 0 calls two collectives, of which the second does not end; rank 1 only the first, 3 us later."""
    call = {"time_discovered_started_ns": 5_000, "time_discovered_completed_ns": 9_000}
    path = write(
        tmp_path,
        {
            0: [record(1, time_created_ns=2_000, **call), record(2, "started", time_created_ns=10_000)],
            1: [record(1, time_created_ns=5_000, **call)],
        },
    )
    out = tmp_path / "out.json"
    done = run_cli("trace", str(path), "-o", str(out))
    assert done.returncode == 0, done.stderr
    events = json.loads(out.read_text())["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [(threads[e["tid"]], e["ph"], e["ts"], e.get("dur"), e["args"]) for e in events if e["ph"] in "XB"]
    sizes = {"input sizes": "[[8]]", "input types": '["Float"]'}
    assert slices == [
        ("rank 0 group 0 default_pg", "X", 0, 7, {"seq": 1, "state": "completed", **sizes}),
        ("rank 0 group 0 default_pg", "B", 8, None, {"seq": 2, "state": "started", **sizes}),
        ("rank 1 group 0 default_pg", "X", 3, 4, {"seq": 1, "state": "completed", **sizes}),
    ]


def test_rank_that_called_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, {0: [record(1, "scheduled")], 1: []})
    assert statuses(path) == {("0 default_pg", 1, 0): "waiting", ("0 default_pg", 1, 1): "missing"}


@pytest.mark.parametrize(
    ("operation", "other", "differs"),
    [
        ("nccl:all_reduce", {"profiling_name": "nccl:broadcast"}, True),
        ("nccl:all_reduce", {"input_dtypes": ["Half"]}, True),
        ("nccl:all_to_all", {"input_sizes": [[9]], "output_sizes": [[7]]}, False),
        ("nccl:gather", {"output_sizes": [[16]]}, False),
        ("nccl:gather", {"input_sizes": [[16]]}, True),
        ("nccl:scatter", {"input_sizes": [[16]]}, False),
    ],
)
def test_what_makes_collectives_differ(tmp_path: Path, operation: str, other: Row, differs: bool) -> None:
    calls = [record(1, operation=operation), record(1, operation=operation), record(1, operation=operation) | other]
    path = write(tmp_path, {rank: [call] for rank, call in enumerate(calls)}, size=3)
    expected = {("0 default_pg", 1, rank): "differs" if rank == 2 else "completed" for rank in range(3)}
    assert statuses(path) == (expected if differs else {})


@pytest.mark.parametrize("sizes", [[8, 9], [8, 8, 9, 9], [7, 8, 9]])
def test_ranks_without_a_majority_all_differ(tmp_path: Path, sizes: list[int]) -> None:
    calls = {rank: [record(1, input_sizes=[[size]])] for rank, size in enumerate(sizes)}
    path = write(tmp_path, calls, size=len(sizes))
    assert statuses(path) == {("0 default_pg", 1, rank): "differs" for rank in calls}
    ranks = ", ".join(map(str, calls))
    assert [r["hang"] for r in ask(path, "summary")] == [
        f"nccl:all_reduce (call 1): ranks {ranks} calling different ones"
    ]


def test_sends_that_wait(tmp_path: Path) -> None:
    send = record(0, "scheduled", "nccl:send 0->1", is_p2p=True, p2p_seq_id=5)
    (row,) = ask(write(tmp_path, {0: [send], 1: []}), "hang")
    assert (row["rank"], row["seq"], row["status"], row["operation"]) == (0, 5, "waiting", "nccl:send 0->1")


def test_damaged_records_are_dropped_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {0: [record(1), {}, "text", record(2) | {"state": 7}]}, size=1)
    assert sql(tmp_path, "SELECT count(*) n FROM flight_records") == [{"n": 1}]
    ((warnings,),) = [tuple(r.values()) for r in sql(tmp_path, "SELECT warnings FROM runs")]
    assert "3 records were dropped" in warnings


def test_pickle_that_could_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [print]}))
    done = run_cli("query", "hang", str(path))
    assert done.returncode == 2 and "it refers to builtins.print" in done.stderr


def as_json(folder: Path) -> Path:
    """Write the dumps of a recorded hang as torch's _dump_nccl_trace_json does: no stacks, 0 for never, numbers of
    pg_status as text."""
    for path in (SAMPLES / "hang-missing").iterdir():
        dump = pickle.loads(path.read_bytes())
        for entry in dump["entries"]:
            del entry["frames"]
            entry |= {k: v or 0 for k, v in entry.items() if k.startswith("time_discovered")}
        dump["pg_status"] = {k: {n: str(v) for n, v in s.items()} for k, s in dump["pg_status"].items()}
        (folder / f"{path.name}.json").write_text(json.dumps(dump, sort_keys=True, separators=(",", ":")))
    return folder


def test_json_dumps_give_the_same_rows_as_pickles(tmp_path: Path) -> None:
    assert statuses(as_json(tmp_path)) == statuses(SAMPLES / "hang-missing")
    rows = sql(tmp_path, "SELECT rank, last_enqueued, last_completed FROM flight_groups ORDER BY rank")
    assert [tuple(r.values()) for r in rows] == [(0, 3, 2), (1, 3, 2), (2, 2, 2), (3, 3, 2)]
    rows = sql(tmp_path, "SELECT rank, count(*) n, count(completed_ns) c FROM flight_records GROUP BY 1 ORDER BY 1")
    assert [tuple(r.values()) for r in rows] == [(0, 3, 2), (1, 3, 2), (2, 2, 2), (3, 3, 2)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"pg_config":{}, "entries":' + "[" * 100_000, "not a flight recorder dump"),
        ('{"pg_config":{},"entries":7}', "it has no list entries"),
    ],
    ids=["nested", "number"],
)
def test_hostile_json_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "rank_0.json"
    path.write_text(content)
    done = run_cli("query", "hang", str(path))
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1
