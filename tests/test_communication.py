"""Collectives, stragglers and skew of small traces of several ranks. Times in the comments are us, in the rows ns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, event, kernel, write_trace

NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


def collective(
    name: str,
    ts: float,
    dur: float,
    elems: int = 0,
    out: int | None = None,
    device: int = 0,
    group: str = "0",
    **args: Any,
) -> dict[str, Any]:
    """A communication kernel with the arguments that Kineto writes."""
    said = {
        "Collective name": name, "dtype": "Float",
        "In msg nelems": elems, "Out msg nelems": elems if out is None else out,
        "Process Group Name": group, "Process Group Ranks": "[0, 1]", "Group size": 2,
    }  # fmt: skip
    return kernel(NAMES[name], ts, dur, device, 17, **said | args)


def bare(name: str, ts: float, dur: float, device: int = 0) -> dict[str, Any]:
    """A communication kernel of which the profiler says nothing but the name."""
    return kernel(NAMES[name], ts, dur, device, 17)


def write_ranks(folder: Path, *ranks: Sequence[dict[str, Any]]) -> Path:
    for rank, events in enumerate(ranks):
        write_trace(folder / f"rank-{rank}.json", events, distributedInfo={"rank": rank, "world_size": len(ranks)})
    return folder


def test_collectives(tmp_path: Path) -> None:
    # Two all_reduces of 1000 floats = 4000 B: durations 10 and 4 on the ranks, then 2 and 8: the shorter ones, 4 + 2
    # = 6. 8000 B / 6 us = 1.33 GB/s; for 2 ranks the bus factor 2 (n-1)/n is 1.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 10, 1000), collective("allreduce", 20, 2, 1000)],
        [collective("allreduce", 6, 4, 1000), collective("allreduce", 14, 8, 1000)],
    )
    [row] = ask(path, "collectives")
    assert (row["collective"], row["calls"], row["bytes"], row["total_ns"]) == ("all_reduce", 2, 8_000, 6_000)
    assert row["algbw_gb_per_s"] == row["busbw_gb_per_s"] == pytest.approx(8 / 6)
    assert (row["ranks"], row["kernel_ns"]) == (2, 24_000)


@pytest.mark.parametrize(
    ("name", "plain", "factor"),
    [
        ("allreduce", "all_reduce", 1.5),
        ("_allgather_base", "all_gather", 0.75),
        ("all_to_all", "all_to_all", 0.75),
        ("broadcast", "broadcast", 1),
    ],
)
def test_bus_bandwidth(tmp_path: Path, name: str, plain: str, factor: float) -> None:
    # A group of 4; 250 elements in, 1000 out: the larger side, 4000 B in 4 us = 1 GB/s. all_to_all runs as NCCL's
    # SendRecv kernel.
    path = write_trace(tmp_path / "t.json", [collective(name, 0, 4, 250, 1000, **{"Group size": 4})])
    [row] = ask(path, "collectives")
    assert (row["collective"], row["bytes"], row["algbw_gb_per_s"]) == (plain, 4_000, 1)
    assert row["busbw_gb_per_s"] == pytest.approx(factor)


@pytest.mark.parametrize(
    ("dtype", "size"), [("Float", 4), ("BFloat16", 2), ("Half", 2), ("Long", 8), ("Byte", 1), ("Float8_e4m3fn", 1)]
)
def test_bytes_of_an_element(tmp_path: Path, dtype: str, size: int) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [collective("allreduce", 0, 1, 10, dtype=dtype)]), "collectives")
    assert row["bytes"] == 10 * size


def test_a_type_of_unknown_size_has_no_bandwidth(tmp_path: Path) -> None:
    # One call of 4000 B in 4 us and one of an unknown type: the bandwidth is that of the first.
    events = [collective("allreduce", 0, 4, 1000), collective("allreduce", 10, 50, 1000, dtype="Posit")]
    [row] = ask(write_trace(tmp_path / "t.json", events), "collectives")
    assert (row["calls"], row["bytes"], row["total_ns"], row["algbw_gb_per_s"]) == (2, 4_000, 54_000, 1)


def test_matched_by_sequence_number(tmp_path: Path) -> None:
    # The recording of rank 1 began one call later: by number, its first call is rank 0's second; by order it would be
    # the first.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 9, 10, Seq=1), collective("allreduce", 20, 5, 10, Seq=2)],
        [collective("allreduce", 22, 3, 10, Seq=2)],
    )
    rows = ask(path, "collectives", params={"each": "yes"})
    assert [(r["start_ns"], r["ranks"], r["total_ns"]) for r in rows] == [(0, 1, 9_000), (20_000, 2, 3_000)]
    assert [(r["rank"], r["calls"], r["wait_ns"]) for r in ask(path, "stragglers")] == [(0, 1, 2_000), (1, 1, 0)]


def test_matched_by_order_within_group_and_collective(tmp_path: Path) -> None:
    # Without numbers: the broadcast of rank 1 between its all_reduces does not shift them, and neither does the other
    # group's.
    first = [collective("allreduce", 0, 5, 10), collective("allreduce", 20, 5, 10)]
    second = [
        collective("allreduce", 1, 4, 10), collective("broadcast", 8, 1, 10),
        collective("allreduce", 12, 1, 10, group="5"), collective("allreduce", 22, 3, 10),
    ]  # fmt: skip
    rows = ask(write_ranks(tmp_path, first, second), "collectives", params={"each": "yes"})
    found = [(r["collective"], r["group_name"], r["ranks"], r["total_ns"]) for r in rows]
    assert found == [
        ("all_reduce", "0", 2, 4_000),
        ("broadcast", "0", 1, 1_000),
        ("all_reduce", "5", 1, 1_000),
        ("all_reduce", "0", 2, 3_000),
    ]


def test_devices_of_a_process_without_metadata(tmp_path: Path) -> None:
    # DataParallel: a broadcast over the two GPUs of one process, twice. No bytes; the shorter durations 3 + 2.
    events = [
        bare("broadcast", 0, 5), bare("broadcast", 2, 3, device=1),
        bare("broadcast", 10, 2), bare("broadcast", 10, 4, device=1),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "collectives")
    assert (row["collective"], row["calls"], row["ranks"], row["total_ns"]) == ("broadcast", 2, 2, 5_000)
    assert (row["bytes"], row["algbw_gb_per_s"], row["busbw_gb_per_s"]) == (None, None, None)
    # Device 0 waits 2 for device 1 the first time; the second time they start together, so both are last.
    rows = [(r["device"], r["wait_ns"], r["times_last"], r["margin_ns"]) for r in ask(path, "stragglers")]
    assert rows == [(0, 2_000, 1, 0), (1, 0, 2, 2_000)]


def test_ranks_without_metadata_are_one_group(tmp_path: Path) -> None:
    path = write_ranks(tmp_path, [bare("allreduce", 0, 9)], [bare("allreduce", 6, 3)])
    [row] = ask(path, "collectives")
    assert (row["calls"], row["ranks"], row["total_ns"]) == (1, 2, 3_000)


def test_ranks_apart_are_not_matched(tmp_path: Path) -> None:
    path = write_ranks(tmp_path, [collective("allreduce", 0, 9, 10)], [collective("allreduce", 6, 3, 10)])
    assert [(r["rank"], r["total_ns"]) for r in ask(path, "collectives", by=["rank"])] == [(0, 9_000), (1, 3_000)]
    assert ask(path, "stragglers", by=["rank"]) == []


def test_stragglers(tmp_path: Path) -> None:
    # Starts of the ranks: 0, 3, 10: waits 10, 7, 0, rank 2 last by 7. Then 25, 20, 21: waits 0, 5, 4, rank 0 last by
    # 4.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 12), collective("allreduce", 25, 2)],
        [collective("allreduce", 3, 9), collective("allreduce", 20, 7)],
        [collective("allreduce", 10, 2), collective("allreduce", 21, 6)],
    )
    rows = ask(path, "stragglers")
    columns = (
        "rank",
        "calls",
        "wait_ns",
        "times_last",
        "last_pct",
        "margin_ns",
        "avg_wait_ns",
        "max_wait_ns",
        "shift_ns",
    )
    assert [tuple(r[c] for c in columns) for r in rows] == [
        (0, 2, 10_000, 1, 50, 4_000, 5_000, 10_000, 0),
        (1, 2, 12_000, 0, 0, 0, 6_000, 7_000, 0),
        (2, 2, 4_000, 1, 50, 7_000, 2_000, 4_000, 0),
    ]
    assert ask(path, "stragglers", params={"collective": "broadcast"}) == []


def test_stragglers_on_clocks_that_differ(tmp_path: Path) -> None:
    # Rank 1's clock is 1000 ahead. On one clock rank 0 starts at 0 and 20, rank 1 at 4 and 18, and both end at 10 and
    # 30. The ends differ by 1000, so half of it is taken off rank 1 and given to rank 0: waits 4 and 2 again, as on
    # one clock.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 10), collective("allreduce", 20, 10)],
        [collective("allreduce", 1004, 6), collective("allreduce", 1018, 12)],
    )
    assert [r["wait_ns"] for r in ask(path, "stragglers")] == [1_004_000 + 998_000, 0]
    rows = ask(path, "stragglers", params={"align": "ends"})
    assert [(r["wait_ns"], r["times_last"], r["shift_ns"]) for r in rows] == [(4_000, 1, -500_000), (2_000, 1, 500_000)]


def test_rank_skew(tmp_path: Path) -> None:
    # Compute 10, 20 and 60: mean 30, the largest twice that. Steps of 100, 100 and 130: mean 110.
    ranks = [
        [kernel("gemm", 0, dur), event("user_annotation", "ProfilerStep#1", 0, step)]
        for dur, step in ((10, 100), (20, 100), (60, 130))
    ]
    path = write_ranks(tmp_path, *ranks)
    rows = {r["metric"]: r for r in ask(path, "rank-skew")}
    assert list(rows) == ["busy", "comm", "compute", "exposed_comm", "idle", "memcpy", "span", "step"]
    compute = rows["compute"]
    assert (compute["ranks"], compute["min_ns"], compute["median_ns"], compute["max_ns"], compute["avg_ns"]) == (
        3, 10_000, 20_000, 60_000, 30_000,
    )  # fmt: skip
    assert (compute["imbalance_pct"], compute["min_rank"], compute["max_rank"], compute["max_device"]) == (
        pytest.approx(100),
        0,
        2,
        0,
    )
    assert rows["step"]["imbalance_pct"] == pytest.approx(100 * (130 / 110 - 1))
    assert rows["comm"]["imbalance_pct"] is None
    assert [r["metric"] for r in ask(path, "rank-skew", params={"metric": "idle"})] == ["idle"]


def test_skew_over_the_devices_of_a_process(tmp_path: Path) -> None:
    [row] = ask(
        write_trace(tmp_path / "t.json", [kernel("a", 0, 10), kernel("a", 0, 30, device=1)]),
        "rank-skew",
        params={"metric": "busy"},
    )
    assert (row["ranks"], row["min_ns"], row["max_ns"], row["max_rank"], row["max_device"]) == (2, 10_000, 30_000, 0, 1)


def test_on_the_ddp_sample(tmp_path: Path) -> None:
    # resnet18 has 11,689,512 parameters: what two steps reduce, in gradients of 4 B, and DDP's buckets are three.
    rows = {r["collective"]: r for r in ask(SAMPLES / "resnet18-ddp2", "collectives", where="profiler = 'torch'")}
    assert rows["all_reduce"]["calls"] == 6
    assert rows["all_reduce"]["bytes"] == 2 * 4 * 11_689_512
    assert rows["all_reduce"]["ranks"] == 2
    waits = ask(SAMPLES / "resnet18-ddp2", "stragglers", where="profiler = 'torch'")
    assert sum(r["times_last"] for r in waits) == waits[0]["calls"] == 10


def test_the_rank_that_is_late() -> None:
    """The last of four ranks sleeps 20 ms before each all-reduce of 1024 x 1024 floats (tests/data/late_rank.py)."""
    rows = ask(SAMPLES / "late-rank", "stragglers")
    assert [(r["rank"], r["calls"], r["times_last"]) for r in rows] == [(0, 3, 0), (1, 3, 0), (2, 3, 0), (3, 3, 3)]
    assert all(r["wait_ns"] >= 3 * 20_000_000 for r in rows[:3]) and rows[3]["wait_ns"] == 0
    [moved] = ask(SAMPLES / "late-rank", "collectives")
    assert (moved["collective"], moved["calls"], moved["ranks"]) == ("all_reduce", 3, 4)
    assert moved["bytes"] == 3 * 4 * 1024 * 1024
    # Bus bandwidth of an all-reduce over n ranks: 2 (n - 1) / n of the algorithm's (nccl-tests, PERFORMANCE.md).
    assert moved["busbw_gb_per_s"] == pytest.approx(1.5 * moved["algbw_gb_per_s"])
