"""GPU work with impossible times is removed and reported; valid work is in all sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import ask, sql
from traces import event, kernel, launch, write_ranks, write_trace

from analyze.ingestion.drop_impossible_work import drop_impossible_work
from analyze.ingestion.table_files import TableWriter
from analyze.sources.interface import FileReport, SourceFile, batch_schema

Events = list[dict[str, Any]]
HOUR = 3_600e6
"""In us."""


def pair(correlation: int, at: float, dur: float, name: str = "k", **own: Any) -> Events:
    """A launch call 10 us before its kernel; times in us."""
    return [launch(at - 10, correlation), kernel(name, at, dur, correlation=correlation, **own)]


def line(n: int, first: float = 100, every: float = 100, dur: float = 90) -> Events:
    """A stream of kernels, one every 100 us for 90 us."""
    return [e for i in range(n) for e in pair(1 + i, first + i * every, dur)]


def read(tmp_path: Path, events: Events, **header: Any) -> tuple[int, int, str]:
    """Kernels and their total length in us, and the warning."""
    path = write_trace(tmp_path / "t.json", events, **header)
    [row] = sql(path, "SELECT count(*) AS n, coalesce(sum(dur_ns), 0)::BIGINT AS ns FROM kernels")
    [run] = sql(path, "SELECT warnings FROM runs")
    return row["n"], row["ns"] // 1000, run["warnings"] or ""


def staged(folder: Path, **tables: Events) -> tuple[dict[tuple[str, int], Path], FileReport]:
    """What is left of the rows of a report of Nsight Systems, and the report on them."""
    written, report = {}, FileReport()
    for table, rows in tables.items():
        path = folder / f"{table}.parquet"
        with TableWriter(path, table, "r") as writer:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=batch_schema(table)))
        written[table, 0] = path
    drop_impossible_work(SourceFile(folder / "x.sqlite", "nsys_sqlite", 0), written, report)
    return written, report


# Ten right kernels of 90 us, one every 100 us from 100 us on, and one that is false.
@pytest.mark.parametrize(
    ("false", "reason"),
    [
        (pair(99, 195, 3_400_000), "last past the next work on their stream"),
        (pair(99, 195, 400), "last past the next work on their stream"),  # until 595; the next are over at 290, 390
        (pair(99, 1200, 1_300_000), "last longer than the recording"),  # the last of its stream, calls cover 1.2 ms
        ([launch(1200, 99), kernel("k", 95, 1, correlation=99)], "start more than 1 ms before their launch call"),
        ([kernel("k", 500, 90, correlation=5)], "are exact duplicates"),
    ],
)
def test_false_events_are_in_no_sum(tmp_path: Path, false: Events, reason: str) -> None:
    n, us, warning = read(tmp_path, [*line(10), *false])
    assert (n, us) == (10, 900)
    assert "1 of 11 pieces of GPU work cannot have run as torch.profiler wrote them" in warning
    assert f"1 {reason} (such as k: " in warning and "in no sum" in warning


def test_work_that_ended_before_the_recording_is_false(tmp_path: Path) -> None:
    # Three kernels of the warm-up, 45, 2 and 0.5 s before the first step, with which the recording began.
    first = 45_000_000
    warm = [kernel("warm", first - s * 1e6, 300) for s in (45, 2, 0.5)]
    step = event("user_annotation", "ProfilerStep#3", first, 5000)
    n, us, warning = read(tmp_path, [*warm, step, *line(10, first=first + 100)])
    assert (n, us) == (11, 1200)
    assert "2 ended before the recording began, which launched none of them (such as warm: 0.300 ms" in warning
    # It may have begun long before: without steps, or with a call, an operator or a range that early.
    assert read(tmp_path, [*warm, *line(10, first=first + 100)]) == (13, 1800, "")
    for early in (launch(10, 99), event("cpu_op", "aten::mm", 10, 5), event("user_annotation", "load", 10, 5)):
        assert read(tmp_path, [*warm, early, step, *line(10, first=first + 100)]) == (13, 1800, "")
    # What the program does on the GPU says nothing of when it was recorded.
    on_gpu = event("gpu_user_annotation", "load", 10, 5)
    assert read(tmp_path, [*warm, on_gpu, step, *line(10, first=first + 100)])[0] == 11


def test_time_0_is_false_where_all_else_is_far_from_it(tmp_path: Path) -> None:
    zeros = [kernel("k", 0, 0, correlation=100 + i) for i in range(20)]
    n, us, warning = read(tmp_path, [*zeros, *line(10, first=2 * HOUR)], baseTimeNanoseconds=1_700_000_000_000_000_000)
    assert (n, us) == (10, 900) and "20 start at time 0 of the file" in warning
    # A clock that begins with the recording: 0 is a time like others.
    n, us, warning = read(tmp_path, [kernel("k", 0, 50), *line(10)])
    assert (n, us, warning) == (11, 950, "")


def test_cpu_events_at_time_0(tmp_path: Path) -> None:
    def ops(path: Path) -> tuple[int, str]:
        [row] = sql(path, "SELECT count(*) AS n FROM cpu_ops")
        [run] = sql(path, "SELECT warnings FROM runs")
        return row["n"], run["warnings"] or ""

    zeros = [event("cpu_op", "aten::mm", 0, 0), launch(0, 99)]
    far = [event("cpu_op", "aten::mm", 2 * HOUR, 50), *line(3, first=2 * HOUR + 100)]
    n, warning = ops(write_trace(tmp_path / "far.json", [*zeros, *far], baseTimeNanoseconds=1_700_000_000_000_000_000))
    assert n == 1 and "2 CPU events of rank 0 start at time 0 of the file" in warning
    assert ops(write_trace(tmp_path / "near.json", [*zeros, *line(3)])) == (1, "")


@pytest.mark.parametrize(
    "right",
    [
        # Programmatic dependent launch: each kernel of 100 us starts 10 us before the one before it ends.
        line(10, every=90, dur=100),
        # ... or just after that has started, and waits for it.
        [*pair(1, 100, 2000), *pair(2, 105, 2000)],
        # Other streams, other GPUs.
        [*pair(1, 100, 2000), *pair(2, 200, 10, stream=8), *pair(3, 300, 10, device=1)],
        # Lengths of 0, also inside another kernel by rounding to whole microseconds.
        [*pair(1, 100, 0), *pair(2, 100, 500), *pair(3, 300, 0)],
        # The branches of a CUDA graph, of one launch.
        [launch(50, 7, name="cudaGraphLaunch"),
         *(kernel(f"k{i}", 100 + i, 500 - 100 * i, correlation=7) for i in range(4)), *pair(8, 700, 10)],
        # Equal kernels of one launch at different places, and pieces without a correlation id.
        [kernel("k", 100, 5), kernel("k", 105, 5), kernel("k", 110, 0), kernel("k", 110, 0)],
        # A start slightly before the launch call, and clocks that are 5 ms apart throughout.
        [launch(300, 1), kernel("k", 290, 10, correlation=1)],
        [e for i in range(9) for e in (launch(6000 + 50 * i, 1 + i), kernel("k", 1000 + 50 * i, 9, correlation=1 + i))],
        # No device, no stream, and clocks before 1970.
        [kernel("k", -100, 50), event("kernel", "k", -90, 10, "?", "?")],
        # A kernel that is longer than all calls: nothing waited for it.
        [launch(0, 1), kernel("k", 10, 900_000, correlation=1)],
    ],
)  # fmt: skip
def test_valid_work_is_kept(tmp_path: Path, right: Events) -> None:
    kernels = [e for e in right if e["cat"] == "kernel"]
    assert read(tmp_path, right) == (len(kernels), sum(e["dur"] for e in kernels), "")


def test_streams_of_several_processes_are_not_compared(tmp_path: Path) -> None:
    # Both processes call their streams 7; the file does not say whose a kernel is.
    two = [{**e, "pid": 2} if e["cat"] == "cuda_runtime" else e for e in pair(2, 200, 10)]
    assert read(tmp_path, [*pair(1, 100, 500), *two]) == (2, 510, "")
    # Nor does it say that equal work of equal correlation ids is one piece.
    both = [{**launch(90, 1), "pid": 2}, *pair(1, 100, 500), kernel("k", 100, 500, correlation=1)]
    assert read(tmp_path, both) == (2, 1000, "")


def test_copies_of_managed_memory_run_during_their_kernel(tmp_path: Path) -> None:
    written, report = staged(
        tmp_path,
        kernels=[{"device": 0, "stream": 7, "name": "touch", "start_ns": 2_000_000, "dur_ns": 10_000_000}],
        memcpys=[{"device": 0, "stream": 7, "kind": kind, "start_ns": 3_000_000, "dur_ns": 500_000}
                 for kind in ("Unified HtoD", "Unified DtoH")],
    )  # fmt: skip
    assert (written.keys(), report.lost) == ({("kernels", 0), ("memcpys", 0)}, 0)
    written, report = staged(
        tmp_path,
        kernels=[{"device": 0, "stream": 7, "name": "touch", "start_ns": 2_000_000, "dur_ns": 10_000_000}],
        memcpys=[{"device": 0, "stream": 7, "kind": "HtoD", "start_ns": 3_000_000, "dur_ns": 500_000}],
    )
    assert (written.keys(), report.lost) == ({("memcpys", 0)}, 1)


def test_graph_work_that_lasts_past_the_next_launch(tmp_path: Path) -> None:
    graph = [launch(50, 7, name="cudaGraphLaunch"), kernel("a", 100, 50, correlation=7)]
    assert read(tmp_path, [*graph, kernel("b", 150, 5000, correlation=7), *pair(8, 700, 10)])[:2] == (2, 60)


def test_copies_and_fills_are_checked_with_kernels(tmp_path: Path) -> None:
    place = {"device": 0, "stream": 7}
    events = [
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 100, 9_000, 0, 7, **place, correlation=1, bytes=8),
        *pair(2, 200, 50),
        event("gpu_memset", "Memset (Device)", 300, 5, 0, 7, **place, correlation=3, bytes=8),
        event("gpu_memset", "Memset (Device)", 300, 5, 0, 7, **place, correlation=3, bytes=8),
    ]
    path = write_trace(tmp_path / "t.json", events)
    assert sql(path, "SELECT * FROM memcpys") == []
    assert len(sql(path, "SELECT * FROM memsets")) == 1 and len(sql(path, "SELECT * FROM kernels")) == 1
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "2 of 4 pieces" in run["warnings"]
    assert "Memcpy HtoD: 9.000 ms, GPU 0, stream 7, ts 100.000 us" in run["warnings"]


def test_each_rank_is_checked_alone_and_health_says_what_was_lost(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "job", line(10), [*line(10), *pair(99, 195, 400_000)])
    lengths = sql(path, "SELECT sum(dur_ns)::BIGINT AS ns FROM kernels GROUP BY rank ORDER BY rank")
    assert [r["ns"] for r in lengths] == [900_000, 900_000]
    [reading] = [r for r in ask(path, "health") if r["fact"] == "reading"]
    assert reading["verdict"] == "warning" and reading["impact"].startswith("rank-1.json: 1 of 11 pieces")
    assert [r["span_ns"] for r in ask(path, "breakdown")] == [990_000, 990_000]
