"""Collectives, stragglers and skew in small traces of several ranks. Times in the comments are us, in the rows ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, write_ranks, write_trace

import analyze

NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


def collective(
    name: str,
    ts: float,
    dur: float,
    elems: int = 0,
    out: int | None = None,
    device: int = 0,
    group: str = "0",
    members: int = 2,
    **args: Any,
) -> dict[str, Any]:
    """A communication kernel with the arguments that Kineto writes, in a group of the first `members` ranks."""
    said = {
        "Collective name": name, "dtype": "Float",
        "In msg nelems": elems, "Out msg nelems": elems if out is None else out,
        "Process Group Name": group, "Process Group Ranks": str(list(range(members))), "Group size": members,
    }  # fmt: skip
    return kernel(NAMES[name], ts, dur, device, 17, **said | args)


def bare(name: str, ts: float, dur: float, device: int = 0) -> dict[str, Any]:
    """A communication kernel of which the profiler says nothing but the name."""
    return kernel(NAMES[name], ts, dur, device, 17)


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
    path = write_ranks(tmp_path, *[[collective(name, 0, 4, 250, 1000, members=4)]] * 4)
    [row] = ask(path, "collectives")
    assert (row["collective"], row["bytes"], row["algbw_gb_per_s"]) == (plain, 4_000, 1)
    assert row["busbw_gb_per_s"] == pytest.approx(factor)


@pytest.mark.parametrize(
    ("dtype", "size"), [("Float", 4), ("BFloat16", 2), ("Half", 2), ("Long", 8), ("Byte", 1), ("Float8_e4m3fn", 1)]
)
def test_element_sizes(tmp_path: Path, dtype: str, size: int) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [collective("allreduce", 0, 1, 10, dtype=dtype)]), "collectives")
    assert row["bytes"] == 10 * size


def test_a_type_of_unknown_size_has_no_bandwidth(tmp_path: Path) -> None:
    # One call of 4000 B in 4 us and one of an unknown type: the bandwidth is that of the first.
    events = [collective("allreduce", 0, 4, 1000), collective("allreduce", 10, 50, 1000, dtype="Posit")]
    [row] = ask(write_ranks(tmp_path, events, events), "collectives")
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
    found = [(r["start_ns"], r["ranks"], r["status"], r["total_ns"], r["kernel_ns"]) for r in rows]
    assert found == [(0, 1, "incomplete", None, 9_000), (20_000, 2, "matched", 3_000, 8_000)]
    waits = [(r["rank"], r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")]
    assert waits == [(0, 1, 2_000, 1), (1, 1, 0, 0)]


def test_matched_by_order_within_group_and_collective(tmp_path: Path) -> None:
    # Without numbers: the broadcast of rank 1 between its all_reduces does not shift them, and neither does the other
    # group's.
    first = [collective("allreduce", 0, 5, 10), collective("allreduce", 20, 5, 10)]
    second = [
        collective("allreduce", 1, 4, 10), collective("broadcast", 8, 1, 10),
        collective("allreduce", 12, 1, 10, group="5"), collective("allreduce", 22, 3, 10),
    ]  # fmt: skip
    rows = ask(write_ranks(tmp_path, first, second), "collectives", params={"each": "yes"})
    found = [(r["collective"], r["group_name"], r["ranks"], r["total_ns"], r["kernel_ns"]) for r in rows]
    assert found == [
        ("all_reduce", "0", 2, 4_000, 9_000),
        ("broadcast", "0", 1, None, 1_000),
        ("all_reduce", "5", 1, None, 1_000),
        ("all_reduce", "0", 2, 3_000, 8_000),
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


def test_ranks_of_different_times_are_not_matched(tmp_path: Path) -> None:
    path = write_ranks(tmp_path, [collective("allreduce", 0, 9, 10)], [collective("allreduce", 6, 3, 10)])
    rows = ask(path, "collectives", by=["rank"])
    assert [(r["rank"], r["status"], r["total_ns"], r["kernel_ns"]) for r in rows] == [
        (0, "incomplete", None, 9_000),
        (1, "incomplete", None, 3_000),
    ]
    rows = ask(path, "stragglers", by=["rank"])
    assert [(r["calls"], r["wait_ns"], r["margin_ns"], r["unmatched"]) for r in rows] == [(0, None, None, 1)] * 2


@pytest.mark.parametrize("said", [True, False])
def test_partial_collective_is_not_matched(tmp_path: Path, said: bool) -> None:
    """A job of four, of which two ranks were recorded: how long its calls are is not known, nor who is late."""
    one, two = (
        (collective("allreduce", ts, 20 - ts, 1000, members=4) if said else bare("allreduce", ts, 20 - ts))
        for ts in (0, 6)
    )
    for rank, k in enumerate((one, two)):
        write_trace(tmp_path / f"rank-{rank}.json", [k], distributedInfo={"rank": rank, "world_size": 4})
    [row] = ask(tmp_path, "collectives")
    assert (row["status"], row["calls"], row["ranks"], row["kernel_ns"]) == ("incomplete", 1, 2, 34_000)
    assert (row["total_ns"], row["algbw_gb_per_s"], row["busbw_gb_per_s"]) == (None, None, None)
    assert [(r["wait_ns"], r["unmatched"]) for r in ask(tmp_path, "stragglers")] == [(None, 1), (None, 1)]


def test_single_trace_without_a_group_has_no_group_size(tmp_path: Path) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [bare("allreduce", 0, 9)]), "collectives")
    assert (row["status"], row["total_ns"], row["kernel_ns"]) == ("incomplete", None, 9_000)


def test_undeclared_group_is_unknown(tmp_path: Path) -> None:
    """Groups of four ranks may be {0, 1} and {2, 3}. 3 x 20 + 14 = 74 us of kernels, and no waiting."""
    path = write_ranks(tmp_path, *([bare("allreduce", ts, 20)] for ts in (0, 0, 0)), [bare("allreduce", 6, 14)])
    [row] = ask(path, "collectives")
    assert [row[c] for c in ("status", "calls", "ranks", "kernel_ns", "bytes", "total_ns")] == [
        "group not known", 1, 4, 74_000, None, None,
    ]  # fmt: skip
    assert [(r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")] == [(0, None, 1)] * 4
    assert {r["finding"] for r in analyze.open(path).advise(min_pct=0).dicts()}.isdisjoint({"stragglers"})
    [fact] = [r for r in ask(path, "health") if r["fact"] == "process groups"]
    assert (fact["verdict"], fact["value"]) == ("note", "not known for 4 of 4 communication kernels")
    # A size alone says it where it is that of the job.
    args = {"Collective name": "allreduce", "Group size": 4}
    said = [[bare("allreduce", ts, 20 - ts) | {"args": {"device": 0, **args}}] for ts in (0, 0, 0, 6)]
    [row] = ask(write_ranks(tmp_path / "size", *said), "collectives")
    assert (row["status"], row["total_ns"]) == ("matched", 14_000)


@pytest.mark.parametrize(
    ("starts", "ends", "calls", "known"),
    [
        ((0, 10, 20, 60), (100, 100, 101, 102), 8, True),  # 40 us between the last two starts, 2 us between the ends
        ((0, 10, 20, 60), (100, 100, 101, 102), 7, False),  # fewer calls
        ((0, 60, 0, 60), (100, 100, 101, 102), 8, False),  # the last ranks of two groups start together
        ((0, 10, 20, 60), (100, 100, 115, 115), 8, False),  # the ends differ as the starts of two groups do
        ((0, 10, 20, 60), (60, 100, 100, 100), 8, False),  # rank 0 has ended when rank 3 starts
        ((0, 10, 20, 360), (400, 400, 400, 455), 8, False),  # ends 55 us apart
    ],
)
def test_world_group_is_inferred_from_common_ends(
    tmp_path: Path, starts: tuple[int, ...], ends: tuple[int, ...], calls: int, known: bool
) -> None:
    of_ranks = [
        [bare("allreduce", 1000 * call + start, end - start) for call in range(calls)]
        for start, end in zip(starts, ends, strict=True)
    ]
    path = write_ranks(tmp_path, *of_ranks)
    [row] = ask(path, "collectives", params={"per": "group"})
    if known:
        assert (row["status"], row["process_group"]) == ("matched", "all ranks (inferred)")
        waits = [calls * 1000 * (60 - start) for start in starts]
        assert [r["wait_ns"] for r in ask(path, "stragglers")] == waits
    else:
        assert (row["status"], row["process_group"]) == ("group not known", None)


@pytest.mark.parametrize(
    ("name", "off", "args", "status"),
    [
        ("allreduce", 0, {}, "matched"),
        ("_allgather_base", 0, {}, "matched"),
        ("allreduce", 90, {}, "group not known"),  # one of ten calls ends 90 us later on the last rank
        ("broadcast", 0, {}, "group not known"),  # a rank may leave it early: common ends say nothing
        ("allreduce", 0, {"Collective name": "allreduce", "Group size": 2}, "group not known"),  # two of the four
    ],
)
def test_no_group_is_inferred_from_distinct_ends(
    tmp_path: Path, name: str, off: int, args: dict[str, Any], status: str
) -> None:
    def kernels(start: int) -> list[dict[str, Any]]:
        later = [off if call == 9 and start == 60 else 0 for call in range(10)]
        own = [bare(name, 1000 * call + start, 100 - start + later[call]) for call in range(10)]
        return [k | {"args": k["args"] | args} for k in own]

    [row] = ask(write_ranks(tmp_path, *map(kernels, (0, 10, 20, 60))), "collectives")
    assert row["status"] == status


def test_groups_of_equal_name_stay_apart(tmp_path: Path) -> None:
    """Every rank calls a group of its own "0": told apart by its ranks, or known to be too many for a group of one."""

    def calls(folder: Path, ranks_of: list[str | None]) -> list[tuple[Any, ...]]:
        said = [{"Process Group Ranks": ranks, "Group size": 1} for ranks in ranks_of]
        ranks = [[collective("allreduce", 5 * n, 10, 10, **args)] for n, args in enumerate(said)]
        rows = ask(write_ranks(folder, *ranks), "collectives")
        assert not any(r["wait_ns"] for r in ask(folder, "stragglers"))
        return [(r["status"], r["calls"], r["ranks"], r["total_ns"]) for r in rows]

    assert calls(tmp_path / "a", ["[0]", "[1]"]) == [("matched", 2, 1, 20_000)]
    assert calls(tmp_path / "b", [None, None]) == [("unmatched", 1, 2, None)]


def test_two_groups_of_equal_name_on_one_rank(tmp_path: Path) -> None:
    # Two pairs, each called "tp": ranks 0 and 1 start at 0 and 3, ranks 2 and 3 at 1 and 5. Waits of 3 and 4.
    ranks = [
        [collective("allreduce", ts, 10 - ts, 10, group="tp", **{"Process Group Ranks": pair})]
        for ts, pair in ((0, "[0, 1]"), (3, "[0, 1]"), (1, "[2, 3]"), (5, "[2, 3]"))
    ]
    path = write_ranks(tmp_path, *ranks)
    [row] = ask(path, "collectives")
    assert (row["calls"], row["ranks"], row["total_ns"]) == (2, 2, 7_000 + 5_000)
    assert [r["wait_ns"] for r in ask(path, "stragglers")] == [3_000, 0, 4_000, 0]


def test_stragglers(tmp_path: Path) -> None:
    # Starts of the ranks: 0, 3, 10: waits 10, 7, 0, rank 2 last by 7. Then 25, 20, 21: waits 0, 5, 4, rank 0 last by
    # 4.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 12, members=3), collective("allreduce", 25, 2, members=3)],
        [collective("allreduce", 3, 9, members=3), collective("allreduce", 20, 7, members=3)],
        [collective("allreduce", 10, 2, members=3), collective("allreduce", 21, 6, members=3)],
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


def test_stragglers_with_different_clocks(tmp_path: Path) -> None:
    # Rank 1's clock is 1000 ahead, so that no all_reduce is on both ranks at any time: nothing is believed. On one
    # clock rank 0 starts at 0 and 20, rank 1 at 4 and 18, and both end at 10 and 30. The ends differ by 1000: half of
    # it is taken off rank 1 and given to rank 0: waits 4 and 2 again, as on one clock.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 10), collective("allreduce", 20, 10)],
        [collective("allreduce", 1004, 6), collective("allreduce", 1018, 12)],
    )
    # Two calls without a number might be others.
    assert [(r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")] == [(0, None, 2)] * 2
    rows = ask(path, "stragglers", params={"align": "ends"})
    assert [(r["wait_ns"], r["times_last"], r["shift_ns"]) for r in rows] == [(4_000, 1, -500_000), (2_000, 1, 500_000)]


def test_wait_is_at_most_the_kernel(tmp_path: Path) -> None:
    # The root of a broadcast leaves after 2; rank 1 comes at 10, rank 2 at 15: waits of 2, 5 (not 10) and 0. Rank 2 was
    # 5 behind rank 1. Without numbers, kernels that were never all there at once are not known to be one call.
    def ranks(**seq: int) -> list[list[dict[str, Any]]]:
        return [[collective("broadcast", ts, dur, members=3, **seq)] for ts, dur in ((0, 2), (10, 6), (15, 1))]

    rows = ask(write_ranks(tmp_path / "numbered", *ranks(Seq=7)), "stragglers")
    assert [(r["wait_ns"], r["times_last"], r["margin_ns"]) for r in rows] == [
        (2_000, 0, 0),
        (5_000, 0, 0),
        (0, 1, 5_000),
    ]
    path = write_ranks(tmp_path / "by-order", *ranks())
    assert [(r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")] == [(0, None, 1)] * 3
    [row] = ask(path, "collectives")
    assert (row["status"], row["calls"], row["total_ns"], row["kernel_ns"]) == ("unmatched", 1, None, 9_000)


def test_kernel_without_an_end_has_no_wait(tmp_path: Path) -> None:
    """Nobody knows how long rank 0's first one ran, nor so whether it met rank 1's: not that it waited for 300 us."""
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, -1, 10), collective("allreduce", 400, 20, 10)],
        [collective("allreduce", 300, 10, 10), collective("allreduce", 405, 15, 10)],
    )
    [row] = ask(path, "collective-waits")
    assert (row["kernels"], row["transfer_ns"], row["waiting_ns"], row["unknown_ns"]) == (4, 30_000, 5_000, 10_000)
    assert row["waiting_pct"] == pytest.approx(100 * 5 / 35)
    assert {r["status"]: r["calls"] for r in ask(path, "collectives")} == {"matched": 1, "unmatched": 1}
    waits = [(r["rank"], r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")]
    assert waits == [(0, 1, 5_000, 1), (1, 1, 0, 1)]


def test_margin_is_at_most_the_wait(tmp_path: Path) -> None:
    # The root starts at 0 and leaves at 2; rank 1 starts at 30: it held nobody up for longer than those 2.
    path = write_ranks(
        tmp_path, [collective("broadcast", 0, 2, 10, Seq=1)], [collective("broadcast", 30, 2, 10, Seq=1)]
    )
    assert [(r["wait_ns"], r["margin_ns"]) for r in ask(path, "stragglers")] == [(2_000, 0), (0, 2_000)]


def test_matching_by_order_needs_overlap(tmp_path: Path) -> None:
    # Rank 1's recording began one all_reduce later and holds one more: by order 0 to 9 would be 20 to 25, and so on.
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 9, 10), collective("allreduce", 20, 5, 10)],
        [collective("allreduce", 21, 4, 10), collective("allreduce", 40, 5, 10)],
    )
    [row] = ask(path, "collectives")
    assert (row["status"], row["total_ns"], row["algbw_gb_per_s"]) == ("unmatched", None, None)
    assert [(r["calls"], r["wait_ns"], r["unmatched"]) for r in ask(path, "stragglers")] == [(0, None, 2)] * 2


@pytest.mark.parametrize("written", ["send", "nccl:recv 1<-0", "batch_isend_irecv", "coalesced", None])
def test_point_to_point_calls_are_excluded_with_a_note(tmp_path: Path, written: str | None) -> None:
    # A pipeline of two stages: what rank 0 sends at 0 and at 40, rank 1 has been waiting for since 20 and since 70. As
    # calls of both they would be matched (0 with 20) and make waits. The all_reduce at 100 and 104 is one.
    def stage(*times: tuple[float, float]) -> list[dict[str, Any]]:
        said: dict[str, Any] = {} if written is None else {"Collective name": written}
        pairs = [collective("send", ts, dur, 500, **said) for ts, dur in times]
        return [p | {"args": p["args"] if written else {"device": 0, "stream": 17}} for p in pairs]

    path = write_ranks(
        tmp_path,
        [*stage((0, 25), (40, 2)), collective("allreduce", 100, 10, 1000)],
        [*stage((20, 5), (70, 3)), collective("allreduce", 104, 6, 1000)],
    )
    rows = {r["collective"]: r for r in ask(path, "collectives")}
    assert sorted(rows) == ["all_reduce", "send_recv"]
    pairs = rows["send_recv"]
    assert (pairs["status"], pairs["calls"], pairs["ranks"], pairs["kernel_ns"]) == ("point_to_point", 4, 1, 35_000)
    assert [pairs[c] for c in ("bytes", "total_ns", "algbw_gb_per_s", "busbw_gb_per_s")] == [None] * 4
    waits = [(r["calls"], r["wait_ns"], r["unmatched"], r["point_to_point"]) for r in ask(path, "stragglers")]
    assert waits == [(1, 4_000, 0, 2), (1, 0, 0, 2)]


def test_collective_names_are_normalised(tmp_path: Path) -> None:
    # all_to_all runs as SendRecv: 4 us of it and 6 us of a send. Both queries take the name that was written.
    events = [collective("all_to_all", 0, 4, 10), collective("send", 10, 6, 10), bare("broadcast", 20, 1)]
    path = write_trace(tmp_path / "t.json", events)
    share = {r["collective"]: r["total_ns"] for r in ask(path, "nccl-share")}
    assert share == {"all_to_all": 4_000, "send_recv": 6_000, "broadcast": 1_000}
    assert {r["collective"]: r["kernel_ns"] for r in ask(path, "collectives")} == share


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_collective_called_by_the_program(tmp_path: Path, category: str) -> None:
    """Kernels without metadata are what they were launched as, until torch 2.1: HTA's traces have all_to_alls so."""
    spoken = {"nccl:all_to_all": (0, "send"), "nccl:_all_gather_base": (20, "send"), "nccl:coalesced": (40, "send")}
    events = [event(category, name, ts, 10) for name, (ts, _) in spoken.items()]
    for number, (ts, kind) in enumerate(spoken.values()):
        events += [launch(ts + 1, number + 1), bare(kind, ts + 100, 3 + number) | {"args": {"correlation": number + 1}}]
    events += [launch(60, 9), bare("allreduce", 160, 7) | {"args": {"correlation": 9}}]
    path = write_trace(tmp_path / "t.json", [e | {"args": {"device": 0, "stream": 17} | e["args"]} for e in events])
    share = {r["collective"]: r["total_ns"] for r in ask(path, "nccl-share")}
    # A batch may hold anything, and what no range is around has but its name.
    assert share == {"all_to_all": 3_000, "all_gather": 4_000, "send_recv": 5_000, "all_reduce": 7_000}
    assert {r["collective"]: r["kernel_ns"] for r in ask(path, "collectives")} == share


def test_collectives_by_run(tmp_path: Path) -> None:
    for name, dur in (("a", 9), ("b", 5)):
        write_trace(tmp_path / name / "t.json", [collective("allreduce", 0, dur, 10)], traceName=name)
    for by in ([], ["run_id"]):
        rows = ask(tmp_path, "collectives", by=by)
        assert sorted(r["kernel_ns"] for r in rows) == [5_000, 9_000] and len({r["run_id"] for r in rows}) == 2
        assert all(r["run_id"] for r in rows)


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


def test_skew_counts_overlapping_streams_once(tmp_path: Path) -> None:
    # Eight streams each: 10 and 30 us of all_reduces, not 80 and 240, in spans of as much.
    path = write_ranks(tmp_path, *([bare("allreduce", 0, dur) | {"tid": s} for s in range(8)] for dur in (10, 30)))
    rows = {r["metric"]: r for r in ask(path, "rank-skew")}
    assert all(r["max_ns"] <= rows["span"]["max_ns"] == 30_000 for r in rows.values())
    assert (rows["comm"]["min_ns"], rows["exposed_comm"]["max_ns"], rows["idle"]["max_ns"]) == (10_000, 30_000, 0)


def test_skew_over_the_devices_of_a_process(tmp_path: Path) -> None:
    [row] = ask(
        write_trace(tmp_path / "t.json", [kernel("a", 0, 10), kernel("a", 0, 30, device=1)]),
        "rank-skew",
        params={"metric": "busy"},
    )
    assert (row["ranks"], row["min_ns"], row["max_ns"], row["max_rank"], row["max_device"]) == (2, 10_000, 30_000, 0, 1)


def test_skew_notes_the_missing_ranks(tmp_path: Path) -> None:
    # Ranks 0 and 1 work on a GPU, 2 has steps of 130 alone, 3 neither, and 1 no steps.
    step, operator = event("user_annotation", "ProfilerStep#1", 0, 100), event("cpu_op", "aten::mm", 0, 5)
    ranks = [[kernel("gemm", 0, 10), step], [kernel("gemm", 0, 30)], [operator, step | {"dur": 130}], [operator]]
    path = write_ranks(tmp_path, *ranks)
    rows = {r["metric"]: r for r in ask(path, "rank-skew")}
    assert {r["ranks_without"] for m, r in rows.items() if m != "step"} == {"2, 3"}
    assert (rows["busy"]["ranks"], rows["busy"]["avg_ns"], rows["busy"]["max_device"]) == (2, 20_000, 0)
    step_row = rows["step"]
    assert (step_row["ranks"], step_row["avg_ns"], step_row["ranks_without"]) == (2, 115_000, "1, 3")
    assert (step_row["max_rank"], step_row["max_device"]) == (2, None)
    assert [r["metric"] for r in ask(path, "rank-skew", where="rank >= 2")] == ["step"]
    assert ask(path, "rank-skew", where="rank = 3") == []


def test_collectives_of_the_ddp_sample(tmp_path: Path) -> None:
    # resnet18 has 11,689,512 parameters: what two steps reduce, in gradients of 4 B, and DDP's buckets are three.
    rows = {r["collective"]: r for r in ask(SAMPLES / "resnet18-ddp2", "collectives", where="profiler = 'torch'")}
    assert rows["all_reduce"]["calls"] == 6
    assert rows["all_reduce"]["bytes"] == 2 * 4 * 11_689_512
    assert rows["all_reduce"]["ranks"] == 2
    waits = ask(SAMPLES / "resnet18-ddp2", "stragglers", where="profiler = 'torch'")
    assert sum(r["times_last"] for r in waits) == waits[0]["calls"] == 10


def test_late_rank_is_found() -> None:
    """The last of four ranks sleeps 20 ms before each all-reduce of 1024 x 1024 floats (tests/data/late_rank.py)."""
    rows = ask(SAMPLES / "late-rank", "stragglers")
    assert [(r["rank"], r["calls"], r["times_last"]) for r in rows] == [(0, 3, 0), (1, 3, 0), (2, 3, 0), (3, 3, 3)]
    assert all(r["wait_ns"] >= 3 * 20_000_000 for r in rows[:3]) and rows[3]["wait_ns"] == 0
    [moved] = ask(SAMPLES / "late-rank", "collectives")
    assert (moved["collective"], moved["calls"], moved["ranks"]) == ("all_reduce", 3, 4)
    assert moved["bytes"] == 3 * 4 * 1024 * 1024
    # Bus bandwidth of an all-reduce over n ranks: 2 (n - 1) / n of the algorithm's (nccl-tests, PERFORMANCE.md).
    assert moved["busbw_gb_per_s"] == pytest.approx(1.5 * moved["algbw_gb_per_s"])


def test_waiting_and_transfer(tmp_path: Path) -> None:
    """Rank 0 [0, 10) and [20, 22), rank 1 [6, 10) and [14, 22): 6 of waiting on each, the rest is transfer."""
    path = write_ranks(
        tmp_path,
        [collective("allreduce", 0, 10, 1000), collective("allreduce", 20, 2, 1000), collective("send", 30, 5)],
        [collective("allreduce", 6, 4, 1000), collective("allreduce", 14, 8, 1000)],
    )
    parts = ("kernels", "transfer_ns", "waiting_ns", "unknown_ns", "waiting_pct")
    assert [(r["collective"], *(r[p] for p in parts)) for r in ask(path, "collective-waits")] == [
        ("all_reduce", 4, 12_000, 12_000, 0, 50), ("send_recv", 1, 0, 0, 5_000, None),
    ]  # fmt: skip
    assert [(r["rank"], *(r[p] for p in parts)) for r in ask(path, "collective-waits", params={"group": "rank"})] == [
        ("0", 3, 6_000, 6_000, 5_000, 50), ("1", 2, 6_000, 6_000, 0, 50),
    ]  # fmt: skip
    # In two halves of the span of each: [0, 17.5) and [17.5, 35) of rank 0, [6, 14) and [14, 22) of rank 1.
    rows = ask(path, "timeline", params={"buckets": 2})
    assert [(r["rank"], r["bucket"], round(r["waiting_pct"] * r["span_ns"] / 100)) for r in rows] == [
        (0, 0, 6_000), (0, 1, 0), (1, 0, 0), (1, 1, 6_000),
    ]  # fmt: skip


def test_waiting_of_a_single_rank_is_unknown(tmp_path: Path) -> None:
    rows = ask(write_trace(tmp_path / "t.json", [kernel("gemm", 0, 10)]), "timeline", params={"buckets": 1})
    assert [r["waiting_pct"] for r in rows] == [None]
