"""Segments of a GPU's timeline, by hand and against a count at every moment."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from analyze.derive.gpu_segments import gpu_segments
from analyze.sources.interface import batch_schema

Piece = tuple[int | None, str, int, int | None]
"""Device, what (gemm, nccl, memcpy or memset), start and length."""
Segment = tuple[int | None, int, int, int, int, int, int]
"""Device, start, length; how many compute kernels, communication kernels, memcpys and memsets."""
KIND_OF = {"gemm": "kernel", "nccl": "kernel", "memcpy": "memcpy", "memset": "memset"}
FAMILIES = [{"name": "nccl", "family": "communication"}, {"name": "gemm", "family": "gemm"}]


def segments(*pieces: Piece) -> list[Segment]:
    rows = [
        {"kind": KIND_OF[what], "device": device, "name": what, "start_ns": start, "dur_ns": dur}
        for device, what, start, dur in pieces
    ]
    return rows_of({"gpu_work": table("gpu_work", rows), "kernel_names": table("kernel_names", FAMILIES)})


def table(name: str, rows: list[dict[str, object]]) -> pa.Table:
    # In batches, as they are stored: each has a dictionary of its own.
    schema = batch_schema(name)
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([r], schema=schema) for r in rows], schema=schema)


def rows_of(tables: dict[str, pa.Table]) -> list[Segment]:
    return [tuple(row.values())[:7] for row in gpu_segments(tables).to_pylist()]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        ([(0, "gemm", 10, 5)], [(0, 10, 5, 1, 0, 0, 0)]),
        # Between two kernels the GPU is idle.
        (
            [(0, "gemm", 0, 10), (0, "gemm", 15, 5)],
            [(0, 0, 10, 1, 0, 0, 0), (0, 10, 5, 0, 0, 0, 0), (0, 15, 5, 1, 0, 0, 0)],
        ),
        # Kernels that touch are one segment.
        ([(0, "gemm", 0, 10), (0, "gemm", 10, 5)], [(0, 0, 15, 1, 0, 0, 0)]),
        # Communication under a compute kernel, whose end coincides with that of a copy.
        (
            [(0, "gemm", 0, 10), (0, "nccl", 4, 16), (0, "memcpy", 8, 2), (0, "memset", 12, 1)],
            [
                (0, 0, 4, 1, 0, 0, 0),
                (0, 4, 4, 1, 1, 0, 0),
                (0, 8, 2, 1, 1, 1, 0),
                (0, 10, 2, 0, 1, 0, 0),
                (0, 12, 1, 0, 1, 0, 1),
                (0, 13, 7, 0, 1, 0, 0),
            ],
        ),
        # Two kernels at once.
        (
            [(0, "gemm", 0, 10), (0, "gemm", 5, 10)],
            [(0, 0, 5, 1, 0, 0, 0), (0, 5, 5, 2, 0, 0, 0), (0, 10, 5, 1, 0, 0, 0)],
        ),
        # Work of 0 ns begins and ends the span, and changes nothing inside it.
        (
            [(0, "gemm", 0, 0), (0, "gemm", 10, 10), (0, "memset", 15, 0), (0, "gemm", 20, None), (0, "gemm", 25, 0)],
            [(0, 0, 10, 0, 0, 0, 0), (0, 10, 10, 1, 0, 0, 0), (0, 20, 5, 0, 0, 0, 0)],
        ),
        ([(0, "gemm", 7, 0), (0, "memcpy", 7, 0)], [(0, 7, 0, 0, 0, 0, 0)]),
        ([(0, "gemm", 0, 0), (0, "gemm", 5, 0)], [(0, 0, 5, 0, 0, 0, 0)]),
        # A length that is negative counts as 0.
        ([(0, "gemm", 0, 5), (0, "gemm", 3, -2)], [(0, 0, 5, 1, 0, 0, 0)]),
        # Devices by number; what is of no known device is by itself.
        (
            [(1, "gemm", 0, 5), (None, "gemm", 2, 5), (0, "nccl", 4, 2)],
            [(None, 2, 5, 1, 0, 0, 0), (0, 4, 2, 0, 1, 0, 0), (1, 0, 5, 1, 0, 0, 0)],
        ),
        # Rows in any order, and before time 0.
        (
            [(0, "memset", 5, 5), (0, "memset", -5, 5), (0, "memset", 0, 5)],
            [(0, -5, 15, 0, 0, 0, 1)],
        ),
    ],
)
def test_segments_by_hand(pieces: list[Piece], expected: list[Segment]) -> None:
    assert segments(*pieces) == expected


def test_kernels_without_a_known_name_compute() -> None:
    work = [{"kind": "kernel", "device": 0, "name": name, "start_ns": 0, "dur_ns": 1} for name in (None, "new")]
    tables = {"gpu_work": table("gpu_work", work), "kernel_names": table("kernel_names", FAMILIES)}
    assert rows_of(tables) == [(0, 0, 1, 2, 0, 0, 0)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # (start, length, correlation id) of kernels without launch calls; what follows each stretch of idle time.
        ([(0, 5, 1), (10, 5, 2)], [None, 2, None]),
        # Of those that start together, the lowest id, whatever the order of rows; 0 and NULL come last.
        ([(0, 5, 1), (10, 5, 7), (10, 9, 3), (10, 5, 0), (10, 5, None)], [None, 3, None, None]),
        ([(0, 5, 1), (10, 5, 0)], [None, 0, None]),
        ([(0, 5, 1), (10, 5, None)], [None, None, None]),
        # Work of 0 ns ends no idle time, but the last.
        ([(0, 5, 1), (7, 0, 2), (10, 0, 3), (10, 5, 4), (20, 0, 5)], [None, 4, None, 5]),
        # Nor does a kernel that begins while another one runs.
        ([(0, 5, 1), (3, 2, 2), (10, 5, 3)], [None, None, 3, None]),
    ],
)
def test_what_ends_idle_time(pieces: list[tuple[int, int, int | None]], expected: list[int | None]) -> None:
    columns = ("start_ns", "dur_ns", "correlation_id")
    kernels = [{"kind": "kernel", "device": 0, "name": "k", **dict(zip(columns, p, strict=True))} for p in pieces]
    assert next_ids(kernels) == expected


def test_the_earliest_launch_call_decides() -> None:
    first = {"kind": "kernel", "device": 0, "name": "k", "start_ns": 0, "dur_ns": 5, "correlation_id": 1}
    together = [
        first | {"start_ns": 10, "correlation_id": 2, "call_start_ns": 8},
        first | {"start_ns": 10, "correlation_id": 3, "call_start_ns": 7},
        first | {"start_ns": 10, "correlation_id": 4, "call_start_ns": None},
    ]
    assert next_ids([first, *together]) == next_ids([first, *reversed(together)]) == [None, 3, None]


def test_idle_time_has_the_launch_call_of_the_work_that_ends_it() -> None:
    kernel = {"kind": "kernel", "device": 0, "name": "k", "dur_ns": 5}
    call = {"call_tid": 7, "call_start_ns": 8, "call_dur_ns": 3}
    work = [kernel | {"start_ns": 0}, kernel | {"start_ns": 10} | call, kernel | {"start_ns": 20}]
    rows = gpu_segments({"gpu_work": table("gpu_work", work), "kernel_names": table("kernel_names", [])}).to_pylist()
    assert [{c: row[f"next_{c}"] for c in call} for row in rows] == [
        dict.fromkeys(call), call, dict.fromkeys(call), dict.fromkeys(call), dict.fromkeys(call)
    ]  # fmt: skip


def next_ids(work: list[dict[str, object]]) -> list[int | None]:
    tables = {"gpu_work": table("gpu_work", work), "kernel_names": table("kernel_names", [])}
    found: list[int | None] = gpu_segments(tables)["next_correlation_id"].to_pylist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_segments_equal_counts_at_every_moment(seed: int) -> None:
    rng = random.Random(seed)
    pieces: list[Piece] = [
        (rng.choice([0, 0, 1]), rng.choice([*KIND_OF]), rng.randrange(60), rng.choice([0, 1, 2, 5, 20]))
        for _ in range(rng.randrange(1, 40))
    ]
    found = segments(*pieces)
    for device in {p[0] for p in pieces}:
        own = [(what, start, start + (dur or 0)) for d, what, start, dur in pieces if d == device]
        mine = [s for s in found if s[0] == device]
        assert (mine[0][1], mine[-1][1] + mine[-1][2]) == (min(p[1] for p in own), max(p[2] for p in own))
        assert all(a[1] + a[2] == b[1] and a[3:] != b[3:] for a, b in itertools.pairwise(mine))
        for _, start, dur, *counts in mine:
            for at in range(start, start + dur):
                assert counts == [sum(w == what and s <= at < e for w, s, e in own) for what in KIND_OF]
