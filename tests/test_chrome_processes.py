"""Chrome traces with several processes in a file, and begin and end events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ask, sql
from traces import event, kernel, launch, op, write_trace

JOB = {"rank": 0, "world_size": 2}


def process(n: int, gpu_us: float, device: int = 0) -> list[dict[str, Any]]:
    """An operator of a process, with the same ids as in any other, and its kernel of so many us."""
    own: dict[str, Any] = {"External id": 1}
    gemm = kernel("gemm", 30, gpu_us, device=device, correlation=7, **own)
    return [op(f"aten::mm{n}", 0, 20, 1), launch(5, 7, **own), gemm]


def labelled(label: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events as SGLang's merger writes them."""
    return [e | {"pid": f"[{label}] {e['pid']}"} for e in events]


def device_time(path: Path) -> list[tuple[str, int]]:
    """GPU time by operator."""
    rows = ask(path, "ops")
    return sorted((r["name"], r["total_device_ns"]) for r in rows if r["name"].startswith("aten"))


def warnings(path: Path) -> Any:
    """What was lost or odd."""
    [row] = sql(path, "SELECT warnings FROM runs")
    return row["warnings"]


@pytest.mark.parametrize("device", [0, 1])
def test_pid_labels_are_ranks(tmp_path: Path, device: int) -> None:
    """Two processes, which see one GPU each or one and the same number: 10 us and 40 us, and ids that both have."""
    events = labelled("TP01-DP00", process(1, 40, device)) + labelled("TP00-DP00", process(0, 10))
    path = write_trace(tmp_path / "merged.json", events, distributedInfo=JOB)
    assert device_time(path) == [("aten::mm0", 10_000), ("aten::mm1", 40_000)]
    rows = [(r["rank"], r["device"], r["compute_ns"], r["span_ns"]) for r in ask(path, "breakdown")]
    assert rows == [(0, 0, 10_000, 10_000), (1, device, 40_000, 40_000)]
    assert sql(path, "SELECT DISTINCT rank, pid FROM cpu_ops ORDER BY rank") == [
        {"rank": 0, "pid": 1}, {"rank": 1, "pid": 1},
    ]  # fmt: skip
    assert warnings(path) is None


def test_labels_without_distinct_numbers(tmp_path: Path) -> None:
    """TP and PP: neighbours are tensor parallel, so [TP00-PP01] is rank 2 of four. That is a guess, and is said."""
    labels = ["TP00-PP01", "TP01-PP01", "TP00-PP00", "TP01-PP00"]
    events = [e for n, label in enumerate(labels) for e in labelled(label, process(n, 10 + n))]
    path = write_trace(tmp_path / "merged.json", events)
    assert sql(path, "SELECT rank, name FROM cpu_ops ORDER BY rank") == [
        {"rank": 0, "name": "aten::mm2"}, {"rank": 1, "name": "aten::mm3"},
        {"rank": 2, "name": "aten::mm0"}, {"rank": 3, "name": "aten::mm1"},
    ]  # fmt: skip
    assert "the ranks of its 4 processes are guessed from the order of their labels" in warnings(path)
    assert [r["verdict"] for r in ask(path, "health") if r["fact"] == "ranks"] == ["note"]


def test_rank_argument_of_events_is_the_rank(tmp_path: Path) -> None:
    """As TraceFusion writes them: `args.rank`."""
    events = [e | {"args": e["args"] | {"rank": n}} for n in (3, 5) for e in process(n, 10 * n)]
    path = write_trace(tmp_path / "merged.json", events)
    assert device_time(path) == [("aten::mm3", 30_000), ("aten::mm5", 50_000)]
    assert [r["rank"] for r in ask(path, "breakdown")] == [3, 5]


def test_single_event_with_a_rank_does_not_split_a_file(tmp_path: Path) -> None:
    """A program's own arguments of that name do not split a file."""
    own = [event("user_annotation", "mine", 0, 1, rank=n) for n in (1, 2)]
    path = write_trace(tmp_path / "t.json", [*own, *process(0, 10), op("aten::a", 50, 1, 2), op("aten::b", 60, 1, 3)])
    assert [r["rank"] for r in ask(path, "breakdown")] == [0]


def test_begins_and_ends_are_read(tmp_path: Path) -> None:
    """a [10.5, 30) contains b [12, 20.25): 19.5 and 8.25 us; c has no end, and the last end no begin."""

    def half(ph: str, ts: float, name: str = "", **args: Any) -> dict[str, Any]:
        said: dict[str, Any] = {"cat": "cpu_op", "name": name} if name else {}
        return {"ph": ph, "pid": 1, "tid": 1, "ts": ts, "args": args} | said

    events = [
        half("B", 10.5, "a", **{"External id": 4}), half("B", 12, "b"), half("E", 20.25), half("E", 30, "a"),
        half("E", 31), half("B", 40, "c"),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", [*events, *process(0, 10)])
    rows = sql(path, "SELECT name, start_ns, dur_ns, op_id FROM cpu_ops WHERE length(name) = 1 ORDER BY name")
    assert [tuple(r.values()) for r in rows] == [
        ("a", 10_500, 19_500, 4), ("b", 12_000, 8_250, None),
    ]  # fmt: skip
    warning = warnings(path)
    assert "1 cpu_op, phase B" in warning and "1 no category, phase E" in warning and "7 events kept" in warning
