"""Answers per GPU and per stream: `--by device`, `--by stream`, `--where "device = 1"`."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask

import analyze
from analyze.errors import InputError
from analyze.query.query_files import catalog

SAMPLE = SAMPLES / "alexnet-dp2"
"""One process with two GPUs, under torch.profiler and Nsight Systems."""
OF_GPUS = [(q.name, column) for q in catalog().values() for column in q.gpu_columns]
NO_SUMS = ("gaps", "timeline", "queue-timeline")
"""Queries with the longest rows of each group, or of parts of its time."""


def trace_events(*kinds: str) -> list[dict[str, Any]]:
    """Events of the sample's trace, as its file has them."""
    events = json.loads(gzip.decompress((SAMPLE / "torch" / "rank-0.trace.json.gz").read_bytes()))["traceEvents"]
    return [e for e in events if e.get("cat") in kinds]


@pytest.mark.parametrize("column", ["device", "stream"])
def test_kernels_are_those_of_the_file(column: str) -> None:
    expected: Counter[int] = Counter()
    for e in trace_events("kernel"):
        expected[e["args"][column]] += 1
    assert len(expected) == 2
    found: Counter[int] = Counter()
    for row in ask(SAMPLE, "kernel-share", by=column):
        found[row[column]] += row["calls"]
    assert found == expected


def test_where_is_the_group_alone() -> None:
    """Shares are of what is selected."""
    rows = ask(SAMPLE, "kernel-share", where="device = 1 AND gpus = 2")
    times = [e["dur"] for e in trace_events("kernel") if e["args"]["device"] == 1]
    assert sum(r["total_ns"] for r in rows) == pytest.approx(1000 * sum(times), abs=len(times))
    assert sum(r["kernel_time_pct"] for r in rows) == pytest.approx(100)
    by_device = [r for r in ask(SAMPLE, "kernel-share", by="device") if r.pop("device") == 1]
    assert rows == by_device
    assert ask(SAMPLE, "kernel-share", where="device = 7") == []


@pytest.mark.parametrize(("name", "column"), OF_GPUS)
def test_groups_add_up_and_where_is_one_of_them(name: str, column: str) -> None:
    whole = ask(SAMPLE, name)
    groups = ask(SAMPLE, name, by=column)
    assert whole and all(r[column] is not None for r in groups)
    values = sorted({r[column] for r in groups})
    assert len(values) == 2
    # A group has the columns that the query lacks.
    own = [c for c in groups[0] if c in whole[0]]
    for value in values:
        chosen = ask(SAMPLE, name, where=f"{column} = {value}")
        assert chosen and [[r[c] for c in own if c != column] for r in groups if r[column] == value] == [
            [r[c] for c in own if c != column] for r in chosen
        ]
    if name not in NO_SUMS:
        counted = [c for c in ("calls", "kernels", "copies", "launches", "total_ns", "idle_ns", "span_ns") if c in own]
        for c in counted:
            assert sum(r[c] for r in groups) == sum(r[c] for r in whole)


def test_pivot_has_gpus_as_rows_or_columns() -> None:
    expected = Counter(e["args"]["device"] for e in trace_events("kernel"))
    arguments = ["pivot", "kernel-share", SAMPLE, "-p", "group=family", "--value", "calls", "--agg", "sum"]
    rows = json.loads(run_cli(*arguments, "--rows", "device", "-f", "json").stdout)
    assert {r["device"]: r["calls"] for r in rows} == expected
    rows = json.loads(run_cli(*arguments, "--rows", "family", "--columns", "device", "-f", "json").stdout)
    assert {d: sum(r[f"device={d}"] or 0 for r in rows) for d in (0, 1)} == expected
    refused = run_cli("pivot", "memory-by-category", SAMPLE, "--rows", "stream", "--value", "live_at_peak_bytes")
    assert refused.returncode == 2 and "--rows stream: no such column" in refused.stderr


def test_group_and_by_go_together() -> None:
    rows = ask(SAMPLE, "kernel-share", params={"group": "device"}, by="stream")
    assert {(r["device"], r["stream"]) for r in rows} == {("rank 0 GPU 0", 7), ("rank 0 GPU 1", 17)}


def test_rows_that_are_not_of_gpus_are_refused() -> None:
    for arguments in (
        ("query", "ops", SAMPLE, "--by", "device"),
        ("query", "ops", SAMPLE, "--where", "device = 1"),
        ("query", "breakdown", SAMPLE, "--by", "stream"),
        ("advise", SAMPLE, "--where", "device = 1"),
        ("sql", "SELECT 1", SAMPLE, "--where", "device = 1"),
    ):
        result = run_cli(*arguments)
        assert result.returncode == 2 and "--by and --where cannot use" in result.stderr
        assert "kernel-share" in result.stderr and "Traceback" not in result.stderr
    with analyze.open(SAMPLE) as traces, pytest.raises(InputError, match="device"):
        traces.where("device = 0").advise()
