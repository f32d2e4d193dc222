"""Groups, pairs, exposed communication, all_to_alls and pipelines of small traces. Times in the comments are us, in
the rows ns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from test_communication import collective
from traces import event, kernel, write_ranks, write_trace

import analyze
from analyze.query.engine import Engine

COMPUTE = "sm90_xmma_gemm"


def pair(kind: str, peer: int, ts: float, dur: float, elems: int = 1000, **args: Any) -> dict[str, Any]:
    """A send or receive as torch 2.11 writes it, on a stream of its own."""
    side = "Dst Rank" if kind == "send" else "Src Rank"
    return collective(kind, ts, dur, elems, members=4, **{side: peer} | args)


def group(name: str, description: str, ranks: list[int], **more: Any) -> dict[str, Any]:
    """An entry of pg_config."""
    said = {"pg_name": name, "pg_desc": description, "backend_config": "cuda:nccl", "pg_size": len(ranks)}
    return said | {"ranks": ranks} | more


def test_process_groups_of_a_trace(tmp_path: Path) -> None:
    listed = [group("0", "default_pg", [0, 1]), group("3", "mesh_tp", [], pg_size="2"), {"pg_name": 7}]
    path = write_ranks(tmp_path, [kernel("a", 0, 1)], [kernel("a", 0, 1)], groups=[listed, listed[:1]])
    rows = sql(path, "SELECT rank, group_name, description, ranks, size, backend FROM process_groups ORDER BY ALL")
    assert [tuple(r.values()) for r in rows] == [
        (0, "0", "default_pg", "[0, 1]", 2, "cuda:nccl"), (0, "3", "mesh_tp", None, 2, "cuda:nccl"),
        (0, "7", None, None, None, None), (1, "0", "default_pg", "[0, 1]", 2, "cuda:nccl"),
    ]  # fmt: skip


SAID = {
    # torch's meshes and torchtitan's dimensions.
    "mesh_dp": "dp", "mesh_tp": "tp", "mesh_dp_replicate": "dp", "mesh_dp_shard": "fsdp", "mesh_dp_shard_cp": "fsdp+cp",
    "mesh_pp": "pp", "mesh_ep": "ep", "mesh_fsdp": "fsdp",
    # Megatron-LM's parallel_state.
    "DATA_PARALLEL_GROUP": "dp", "DATA_PARALLEL_GROUP_WITH_CP": "dp+cp", "CONTEXT_PARALLEL_GROUP": "cp",
    "TENSOR_MODEL_PARALLEL_GROUP": "tp", "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "MODEL_PARALLEL_GROUP": None,
    # vLLM's and what says nothing.
    "tp:0": "tp", "default_pg": None, "undefined": None, "stepper": None,
}  # fmt: skip
"""Dimensions, by what a program calls a group."""


def test_dimension_declared_by_the_program(tmp_path: Path) -> None:
    events = [
        collective("broadcast", 20 * i, 5, 10, group=str(i), **{"Process Group Description": description})
        for i, description in enumerate(SAID)
    ]
    rows = ask(write_trace(tmp_path / "t.json", events), "collectives", params={"per": "group"})
    assert {row["process_group"]: (row["dimension"], row["inferred"]) for row in rows} == {
        f"{description} [0, 1]": (dimension, None if dimension is None else False)
        for description, dimension in SAID.items()
    }


def test_dimension_inferred_from_traffic(tmp_path: Path) -> None:
    """Groups without a description: neighbours that all_reduce, ranks two apart that gather and scatter."""

    def of(rank: int) -> list[dict[str, Any]]:
        near, far = f"[{rank // 2 * 2}, {rank // 2 * 2 + 1}]", f"[{rank % 2}, {rank % 2 + 2}]"
        return [
            collective("allreduce", 0, 5, 10, group="5", **{"Process Group Ranks": near}),
            collective("_allgather_base", 10, 5, 10, group="6", **{"Process Group Ranks": far}),
            collective("_allgather_base", 20, 5, 10, group="6",
                       **{"Process Group Ranks": far, "Collective name": "_reduce_scatter_base"}),
            collective("allreduce", 30, 5, 10, members=4),
        ]  # fmt: skip

    path = write_ranks(tmp_path, *map(of, range(4)))
    rows = ask(path, "collectives", params={"per": "group"})
    assert {(r["collective"], r["process_group"], r["dimension"], r["inferred"], r["calls"]) for r in rows} == {
        ("all_reduce", "5 [0, 1]", "tp", True, 1), ("all_reduce", "5 [2, 3]", "tp", True, 1),
        ("all_gather", "6 [0, 2]", "fsdp", True, 1), ("all_gather", "6 [1, 3]", "fsdp", True, 1),
        ("reduce_scatter", "6 [0, 2]", "fsdp", True, 1), ("reduce_scatter", "6 [1, 3]", "fsdp", True, 1),
        # An all_reduce of all ranks may be of anything.
        ("all_reduce", "0 [0, 1, 2, 3]", None, None, 1),
    }  # fmt: skip
    share = [(r["dimension"], r["collective"], r["total_ns"]) for r in ask(path, "nccl-share", by=["dimension"])]
    assert sorted(share, key=str) == [
        ("fsdp", "all_gather", 20_000), ("fsdp", "reduce_scatter", 20_000), ("tp", "all_reduce", 20_000),
        (None, "all_reduce", 20_000),
    ]  # fmt: skip


def test_rank_lists_truncated_by_kernels(tmp_path: Path) -> None:
    """The profiler writes long lists with dots; the trace's own list of groups has them all."""
    cut = {"Process Group Ranks": "[0, ..., 2]", "Group size": 2, "Process Group Name": "4"}
    first = [collective("send", 0, 10, 500, **cut, **{"Dst Rank": 1})]
    last = [collective("recv", 4, 6, 500, **cut, **{"Src Rank": 0})]
    groups = [[group("4", "mesh_pp", [0, 2])]] * 3
    path = write_ranks(tmp_path, first, [kernel("a", 0, 1)], last, groups=groups)
    [row] = ask(path, "collectives", params={"per": "group"})
    assert (row["status"], row["bytes"], row["total_ns"], row["process_group"]) == (
        "matched", 2_000, 6_000, "mesh_pp [0, 2]",
    )  # fmt: skip


def test_peers_are_global_ranks(tmp_path: Path) -> None:
    """PyTorch writes groupRanks[peer]. Rank 4 of [0, 2, 4] sends to 2 at 0, which receives at 7: it waits 7 us.

    As a place in the group, 2 would be rank 4 itself. Rank 2 waits from 31 for what rank 4 sends at 40.
    """
    of: dict[str, Any] = {"Process Group Ranks": "[0, 2, 4]", "Group size": 3, "Process Group Name": "9"}
    idle = [kernel("a", 0, 1)]
    receiving = [pair("recv", 4, 7, 3, **of), pair("recv", 4, 31, 12, **of)]
    sending = [pair("send", 2, 0, 10, **of), pair("send", 2, 40, 3, **of)]
    path = write_ranks(tmp_path, idle, idle, receiving, idle, sending, idle)
    assert [(r["rank"], r["calls"], r["wait_ns"]) for r in ask(path, "stragglers")] == [(2, 2, 9_000), (4, 2, 7_000)]
    # The range around a send has places in the group: place 2 sends to place 1.
    plain: dict[str, Any] = of | {"Collective name": "nccl:send"}
    around = event("gpu_user_annotation", "nccl:send 2->1", 0, 10, 0, 17, device=0, stream=17)
    sends = [around, collective("send", 0, 10, 1000, **plain)]
    path = write_ranks(tmp_path / "range", idle, idle, receiving[:1], idle, sends, idle)
    assert [(r["rank"], r["calls"], r["wait_ns"]) for r in ask(path, "stragglers")] == [(2, 1, 0), (4, 1, 7_000)]


def test_peers_that_must_be_group_ranks(tmp_path: Path) -> None:
    """Rank 0 of [0, 2, 4] sends to 1: no rank of the group, but its place 1 is rank 2. So all peers are places.

    Then 2, which is also a rank of the group, is rank 4, which receives at 23 what rank 0 sends at 20.
    """
    of: dict[str, Any] = {"Process Group Ranks": "[0, 2, 4]", "Group size": 3, "Process Group Name": "9"}
    idle = [kernel("a", 0, 1)]
    sending = [pair("send", 1, 0, 10, **of), pair("send", 2, 20, 10, **of)]
    receiving = [[pair("recv", 0, 7, 3, **of)], [pair("recv", 0, 23, 7, **of)]]
    path = write_ranks(tmp_path, sending, idle, receiving[0], idle, receiving[1], idle)
    assert [(r["rank"], r["calls"], r["wait_ns"]) for r in ask(path, "stragglers")] == [
        (0, 2, 10_000), (2, 1, 0), (4, 1, 0),
    ]  # fmt: skip


def test_send_and_receive_are_one_call(tmp_path: Path) -> None:
    # Rank 0 sends to 1 at 0 (received at 4: waits 4) and at 40 (rank 1 has waited since 30: 10); rank 2 sends to 3
    # meanwhile, and rank 1 to 0: other calls. 1000 floats: 4000 B each.
    path = write_ranks(
        tmp_path,
        [pair("send", 1, 0, 10), pair("send", 1, 40, 5), pair("recv", 1, 60, 5)],
        [pair("recv", 0, 4, 6), pair("recv", 0, 30, 15), pair("send", 0, 62, 3)],
        [pair("send", 3, 20, 5)],
        [pair("recv", 2, 0, 25)],
    )
    [row] = ask(path, "collectives")
    assert (row["collective"], row["status"], row["calls"], row["bytes"], row["ranks"]) == (
        "send_recv", "matched", 4, 16_000, 2,
    )  # fmt: skip
    assert row["total_ns"] == 6_000 + 5_000 + 3_000 + 5_000
    waits = [(r["calls"], r["wait_ns"], r["times_last"], r["point_to_point"]) for r in ask(path, "stragglers")]
    assert waits == [(3, 6_000, 1, 0), (3, 10_000, 2, 0), (1, 0, 1, 0), (1, 20_000, 0, 0)]
    assert sum(r["waiting_ns"] for r in ask(path, "collective-waits")) == 36_000


def test_buffered_send_does_not_wait(tmp_path: Path) -> None:
    """NCCL buffers small sends: the sender does not wait for the receiver. Matched by order if all are recorded."""
    sent = [pair("send", 1, 0, 2), pair("send", 1, 20, 2)]
    received = [pair("recv", 0, 10, 3), pair("recv", 0, 30, 3)]
    for name, got, waits in (("whole", received, [0, 0]), ("part", received[1:], [None, None])):
        path = write_ranks(tmp_path / name, sent, got)
        rows = ask(path, "stragglers")
        assert [(r["wait_ns"], r["times_last"], r["blocked_ns"]) for r in rows] == [
            (w, 0, None if w is None else 0) for w in waits
        ]
    # One of no length within its receive went into no buffer: it was late.
    path = write_ranks(tmp_path / "none", [pair("send", 1, 40, 0)], [pair("recv", 0, 0, 100)])
    assert [r["wait_ns"] for r in ask(path, "stragglers")] == [0, 40_000]
    # A receive cannot end before its send begins: those are of different calls.
    path = write_ranks(tmp_path / "early", [pair("send", 1, 20, 2)], [pair("recv", 0, 0, 3)])
    assert [r["status"] for r in ask(path, "collectives")] == ["unmatched"]


def test_peers_from_the_ranges_around_them(tmp_path: Path) -> None:
    """Older traces: the kernels say neither peer nor direction; the range of the process group does."""

    def of(own: int, peer: int, direction: str, ts: float, dur: float) -> list[dict[str, Any]]:
        arrow = "->" if direction == "send" else "<-"
        name = f"nccl:{direction} {own}{arrow}{peer}"
        around = event("gpu_user_annotation", name, ts, dur, 0, 17, device=0, stream=17)
        return [around, collective(direction, ts, dur, 10, **{"Collective name": f"nccl:{direction}"})]

    path = write_ranks(tmp_path, of(0, 1, "send", 0, 10), of(1, 0, "recv", 7, 3))
    assert [(r["calls"], r["wait_ns"]) for r in ask(path, "stragglers")] == [(1, 7_000), (1, 0)]
    # A range that names another rank as its own is not believed.
    path = write_ranks(tmp_path / "odd", of(1, 0, "send", 0, 10), of(1, 0, "recv", 7, 3))
    assert ask(path, "stragglers")[0]["point_to_point"] == 1


def test_lateness_is_attributed_to_its_cause(tmp_path: Path) -> None:
    """A chain of four; rank 1 sleeps from 10 to 60 before it sends.

    Rank 0 sends at 1, rank 1 has waited since 0 and computes until 10. Rank 2 waits from 0 until 60, computes from 62
    to 72 and sends; rank 3 waits from 0 until 72. While others wait: for rank 0 1 us, for rank 1 [0, 60) without its
    own wait [0, 1), for rank 2 [0, 72) without [0, 60).
    """
    path = write_ranks(
        tmp_path,
        [pair("send", 1, 1, 1)],
        [pair("recv", 0, 0, 2), kernel(COMPUTE, 2, 8), pair("send", 2, 60, 2)],
        [pair("recv", 1, 0, 62), kernel(COMPUTE, 62, 10), pair("send", 3, 72, 2)],
        [pair("recv", 2, 0, 74)],
    )
    rows = ask(path, "stragglers")
    assert [(r["wait_ns"], r["blocked_ns"]) for r in rows] == [
        (0, 1_000), (1_000, 59_000), (60_000, 12_000), (72_000, 0),
    ]  # fmt: skip
    found = {r["finding"]: r for r in analyze.open(path).advise(min_pct=0).dicts()}
    assert "others wait longest for rank 1: 0.059 ms while it does not wait, " in found["pipeline-bubble"]["evidence"]
    # Nothing else runs then: (0 + 1 + 60 + 72) / 4 GPUs; no collective, and so no straggler.
    assert found["pipeline-bubble"]["saving_ns"] == 33_250 and "stragglers" not in found
    # What is left: 1 + 1 + 2 of rank 1 and the like, each transfer once: 1 + 3 + 4 + 2 = 10.
    assert found["exposed-communication"]["saving_ns"] == 2_500


BEGINS = (0, 300, 700, 1800, 2000, 2900, 3300, 4700, 5000)


def test_nodes_with_different_clocks(tmp_path: Path) -> None:
    """Rank 1 comes 4 us after rank 0, and its clock is 10 ms ahead: half of that is taken off each.

    Of its own 6 us in each of the first eight calls compute runs beside 2: on its own clock.
    """
    ahead = 10_000
    path = write_ranks(
        tmp_path,
        [collective("allreduce", ts, 10) for ts in BEGINS[:8]],
        [e for ts in BEGINS[:8]
         for e in (collective("allreduce", ts + 4 + ahead, 6), kernel(COMPUTE, ts + 4 + ahead, 2))],
    )  # fmt: skip
    rows = ask(path, "stragglers")
    assert [(r["calls"], r["wait_ns"], r["times_last"], r["shift_ns"], r["residual_ns"]) for r in rows] == [
        (8, 32_000, 0, -5_000_000, 0), (8, 0, 8, 5_000_000, 0),
    ]  # fmt: skip
    assert [r["blocked_ns"] for r in rows] == [0, 32_000]
    [row] = ask(path, "collectives")
    assert (row["status"], row["total_ns"]) == ("matched", 48_000)
    found = exposed(path, per="collective")
    assert [v[1:] for v in found.values()] == [(80_000, 48_000, 32_000, 0), (32_000, 32_000, 0, 0)]
    # As recorded there is no call.
    assert [r["unmatched"] for r in ask(path, "stragglers", params={"align": "none"})] == [8, 8]


def test_late_recording_is_not_a_clock_difference(tmp_path: Path) -> None:
    """By order the n-th call of rank 0 is the n-th of rank 1, whose recording begins one later: the ends do not fit."""
    path = write_ranks(
        tmp_path,
        [collective("allreduce", ts, 10) for ts in BEGINS[:8]],
        [collective("allreduce", ts, 10) for ts in BEGINS[1:]],
    )
    assert [(r["calls"], r["shift_ns"], r["unmatched"]) for r in ask(path, "stragglers")] == [(0, 0, 8)] * 2


def exposed(path: Path, **params: str) -> dict[tuple[int, Any], tuple[int, ...]]:
    names = ("comm_ns", "exposed_ns", "transfer_ns", "waiting_ns", "unknown_ns")
    rows = ask(path, "comm-exposed", params=params)
    return {(r["rank"], r["dimension"] or r["collective"]): tuple(r[n] for n in names) for r in rows}


def test_exposed_communication_by_dimension(tmp_path: Path) -> None:
    """Of rank 0: tp [0, 20), waiting until 8; dp [4, 30), waiting until 16; compute [10, 12) and [25, 40).

    Exposed are [0, 10) and [12, 25). tp waits in [0, 8), dp in [4, 8) too: that is the wait that began last, dp's.
    [8, 10) and [12, 20) is tp's transfer beside dp's wait, then, from 16 on, beside dp's transfer, which began later.
    tp: wait [0, 4), transfer [8, 10) + [12, 16) = 6. dp: wait [4, 8), transfer [16, 25) = 9. 23 in all.
    """
    tp = {"Process Group Description": "mesh_tp", "Process Group Name": "1"}
    dp = {"Process Group Description": "mesh_dp", "Process Group Name": "2"}
    path = write_ranks(
        tmp_path,
        [
            collective("allreduce", 0, 20, 10, **tp), collective("allreduce", 4, 26, 10, **dp),
            kernel(COMPUTE, 10, 2), kernel(COMPUTE, 25, 15),
        ],
        [collective("allreduce", 8, 12, 10, **tp), collective("allreduce", 16, 14, 10, **dp)],
    )  # fmt: skip
    found = exposed(path)
    assert found[0, "tp"] == (20_000, 10_000, 6_000, 4_000, 0)
    assert found[0, "dp"] == (26_000, 13_000, 9_000, 4_000, 0)
    # Rank 1: tp alone [8, 16), then dp's transfer, which began later.
    assert found[1, "tp"] == (12_000, 8_000, 8_000, 0, 0) and found[1, "dp"] == (14_000, 14_000, 14_000, 0, 0)
    for row in ask(path, "breakdown"):
        parts = [v for (rank, _), v in found.items() if rank == row["rank"]]
        assert sum(v[1] for v in parts) == row["exposed_comm_ns"]
        assert all(v[1] == sum(v[2:]) for v in parts)
    # Of tp's 20 on rank 0, compute is beside [10, 12); of dp's 26 beside [10, 12) and [25, 30).
    rows = ask(path, "overlap", by=["dimension"])
    assert {(r["rank"], r["dimension"]): r["overlapped_ns"] for r in rows} == {
        (0, "tp"): 2_000, (0, "dp"): 7_000, (1, "tp"): 0, (1, "dp"): 0,
    }  # fmt: skip


def test_exposed_communication_without_a_launch_call(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [collective("allreduce", 0, 9, 10), kernel(COMPUTE, 3, 2)])
    assert exposed(path, per="collective") == {(0, "all_reduce"): (9_000, 7_000, 0, 0, 7_000)}


def test_by_accepts_one_grouping_column_of_the_query(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [collective("allreduce", 0, 9, 10)])
    assert ask(path, "collectives", by=["rank", "group"])[0]["process_group"] == "0 [0, 1]"
    with pytest.raises(analyze.InputError, match="--by dimension,group: collectives can group by one of them only"):
        ask(path, "collectives", by=["dimension", "group"])
    with pytest.raises(analyze.InputError, match="--by dimension: runs has no such column"):
        ask(path, "kernel-share", by=["dimension"])


def test_bytes_of_an_all_to_all(tmp_path: Path) -> None:
    """Rank 0 sends 1, 3 and 0 rows of 5 floats, rank 1 none, then as many to each (6 of them); rank 2 likewise."""
    op = {"Input Dims": [[6, 5], []]}

    def call(ts: float, rows: int, sent: list[int], received: list[int], number: int) -> dict[str, Any]:
        return collective(
            "all_to_all", ts, 5, 5 * rows, 5 * sum(received) if received else 30, members=3,
            **{"In split size": str(sent), "Out split size": str(received), "Collective name": "all_to_allv"},
            **{"External id": number},
        )  # fmt: skip

    even = [call(20, 6, [], [], 9), event("cpu_op", "record_param_comms", 0, 1, **op, **{"External id": 9})]
    path = write_ranks(
        tmp_path,
        [call(0, 4, [1, 3, 0], [1, 0, 0], 1), *even],
        [call(0, 0, [0, 0, 0], [3, 0, 2], 1), *even],
        [call(0, 2, [0, 2, 0], [0, 0, 0], 1), *even],
    )
    rows = ask(path, "moe-balance")
    # Two rows of 5 floats to each in the second call: 40 B.
    assert [[r["bytes"] for r in rows if r["source"] == s] for s in range(3)] == [
        [20 + 40, 60 + 40, 40], [40, 40, 40], [40, 40 + 40, 40],
    ]  # fmt: skip
    assert [r["received_bytes"] for r in rows] == [r["bytes"] for r in rows]
    assert [r["rows"] for r in rows] == [1 + 2, 3 + 2, 2, 2, 2, 2, 2, 2 + 2, 2]
    # 140, 220 and 120 B arrive; 160 is the mean.
    assert [r["load_bytes"] for r in rows[:3]] == [140, 220, 120]
    assert [r["load_ratio"] for r in rows[:3]] == pytest.approx([140 / 160, 220 / 160, 120 / 160])
    assert [r["source_pct"] for r in rows[:3]] == [30, 50, 20]
    assert all(r["calls"] == 2 for r in rows)


def test_truncated_splits_are_unknown(tmp_path: Path) -> None:
    said = {"In split size": "[1, 2, ...]", "Out split size": "[1, 2, ...]"}
    path = write_trace(tmp_path / "t.json", [collective("all_to_all", 0, 5, 30, **said)])
    assert [(r["destination"], r["calls"], r["bytes"], r["load_ratio"]) for r in ask(path, "moe-balance")] == [
        (0, 1, None, None), (1, 1, None, None),
    ]  # fmt: skip


STAGES, MICRO, STEP = 4, 4, 146


def gpipe(folder: Path) -> Path:
    """Two steps of a GPipe of 4 stages and 4 micro-batches: 10 us each of forward and backward, 1 us a transfer.

    Stage s runs forward j at 11 s + 10 j and backward k at 73 + 11 (3 - s) + 10 k: nothing waits but to fill, to turn
    and to drain. What a stage receives behind compute is asked for while the one before computes; a stage that has
    nothing to do asks at once. A step is 73 + 33 + 40 = 146 long on stage 0, and on all by their ranges.
    """
    ranks: list[list[dict[str, Any]]] = [[] for _ in range(STAGES)]
    for step in range(2):
        at = step * STEP
        for s, events in enumerate(ranks):
            events.append(event("user_annotation", f"ProfilerStep#{step}", at, STEP))
            free = 0 if step == 0 else at - 11 * s  # The end of its last backward.
            for j in range(MICRO):
                begin = at + 11 * s + 10 * j
                if s > 0:
                    asked = free if j == 0 else begin - 10
                    events.append(pair("recv", s - 1, asked, begin - asked) | {"tid": 20})
                events.append(kernel(COMPUTE, begin, 10))
                if s < STAGES - 1:
                    events.append(pair("send", s + 1, begin + 10, 1) | {"tid": 21})
            free = at + 11 * s + 10 * MICRO
            for k in range(MICRO):
                begin = at + 73 + 11 * (STAGES - 1 - s) + 10 * k
                if s < STAGES - 1:
                    asked = free if k == 0 else begin - 10
                    events.append(pair("recv", s + 1, asked, begin - asked) | {"tid": 22})
                events.append(kernel(COMPUTE, begin, 10))
                if s > 0:
                    events.append(pair("send", s - 1, begin + 10, 1) | {"tid": 23})
    return write_ranks(folder, *ranks)


def test_pipeline_bubble_by_hand(tmp_path: Path) -> None:
    """First step. Stage s waits 11 s - 1 for its first activation, and again at the end for that of the next step, less
    1 us in which it sends its last gradient; it waits 65 - 22 s for its first gradient (3: not at all), less 1 us in
    which it sends its last activation.
    """
    rows = ask(gpipe(tmp_path), "pipeline-bubbles")
    names = ("span_ns", "compute_ns", "transfer_ns", "wait_previous_ns", "wait_next_ns", "bubble_ns", "warmup_ns",
             "steady_ns", "drain_ns", "other_comm_ns", "exposed_memcpy_ns", "idle_ns")  # fmt: skip
    parts = (*names[3:5], *names[-3:])
    first = [tuple(r[n] // 1000 for n in names) for r in rows if r["step"] == 0]
    assert first == [
        (146, 80, 2, 0, 64, 64, 64, 0, 0, 0, 0, 0),
        (146, 80, 4, 20, 42, 62, 52, 0, 10, 0, 0, 0),
        (146, 80, 4, 42, 20, 62, 41, 0, 21, 0, 0, 0),
        (146, 80, 2, 64, 0, 64, 32, 0, 32, 0, 0, 0),
    ]
    for r in rows:
        assert r["bubble_ns"] == r["span_ns"] - r["compute_ns"] - r["transfer_ns"] == sum(r[n] for n in parts)
        assert r["wait_previous_ns"] + r["wait_next_ns"] == r["warmup_ns"] + r["steady_ns"] + r["drain_ns"]
        # 3 / (4 + 3).
        assert (r["stages"], r["micro_batches"], r["chunks"], r["ideal_pct"]) == (4, 4, 1, pytest.approx(300 / 7))
    assert [r["stage"] for r in rows] == [0, 1, 2, 3] * 2
    # Nothing is asked for behind the last step: what was waiting for the next one is idle, and in the bubble as before.
    assert [r["idle_ns"] for r in rows if r["step"] == 1] == [0, 10_000, 21_000, 32_000]
    assert [r["bubble_ns"] for r in rows if r["step"] == 1] == [64_000, 62_000, 62_000, 64_000]
    whole = ask(tmp_path, "pipeline-bubbles", params={"window": "span"})
    # From the first kernel to the last, less 80 of compute and 2 of transfer in each step.
    assert [r["step"] for r in whole] == [None] * 4 and whole[0]["bubble_ns"] == 292_000 - 2 * 82_000


def test_bubble_excludes_compute_and_transfer(tmp_path: Path) -> None:
    """A step of 100 us. Stage 0 computes [0, 20), sends [20, 30) (asked for at 25: 5 waiting, 5 transfer), all_reduces
    [30, 50) with stage 1, which comes at 42 (12 waiting, 8 transfer), copies [60, 64); 46 are idle.

    Stage 1 asks for it at 25, all_reduces [42, 50) and does nothing else.
    """
    step = event("user_annotation", "ProfilerStep#0", 0, 100)
    copied = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 4, 0, 7, device=0, stream=7, bytes=8)
    path = write_ranks(
        tmp_path,
        [step, kernel(COMPUTE, 0, 20), pair("send", 1, 20, 10), collective("allreduce", 30, 20, 10), copied],
        [step, pair("recv", 0, 25, 5), collective("allreduce", 42, 8, 10)],
    )
    names = ("compute_ns", "transfer_ns", "bubble_ns", "wait_previous_ns", "wait_next_ns", "other_comm_ns",
             "exposed_memcpy_ns", "idle_ns", "bubble_pct")  # fmt: skip
    rows = ask(path, "pipeline-bubbles")
    assert [tuple(r[n] for n in names) for r in rows] == [
        (20_000, 13_000, 67_000, 0, 5_000, 12_000, 4_000, 46_000, 67), (0, 13_000, 87_000, 0, 0, 0, 0, 87_000, 87),
    ]  # fmt: skip


def test_pipeline_by_micro_batch(tmp_path: Path) -> None:
    rows = ask(gpipe(tmp_path), "pipeline-bubbles", params={"each": "yes"})
    # Three links, both ways, 4 micro-batches, 2 steps, both ends of each.
    assert len(rows) == 3 * 2 * 4 * 2 * 2
    columns = ("micro_batch", "moves", "peer", "wait_previous_ns", "wait_next_ns", "transfer_ns")
    received = {tuple(r[c] for c in columns) for r in rows if (r["stage"], r["sends"], r["step"]) == (1, False, 0)}
    # Of those that are asked for 10 before they come, 9 are waiting.
    assert received == {
        (0, "activation", "previous", 10_000, None, 1_000), (0, "gradient", "next", None, 43_000, 1_000),
        *((j, "activation", "previous", 9_000, None, 1_000) for j in (1, 2, 3)),
        *((k, "gradient", "next", None, 9_000, 1_000) for k in (1, 2, 3)),
    }  # fmt: skip
    assert {r["part"] for r in rows if r["stage"] == 3} == {"warmup", "steady", "drain"}


def test_interleaved_schedule_has_a_smaller_bubble(tmp_path: Path) -> None:
    """Three stages of two chunks: 2 micro-batches go from 0 over 1 to 2, around to 0, and on to 2 again: 4 on a link,
    2 around. 2 / (2 * 2 + 2) of the time.
    """
    on = [(0, 1), (1, 2)] * 4 + [(2, 0)] * 2
    ranks: list[list[dict[str, Any]]] = [[event("user_annotation", "ProfilerStep#0", 0, 500)] for _ in range(3)]
    for n, (a, b) in enumerate(on):
        ranks[a].append(pair("send", b, 10 * n, 5))
        ranks[b].append(pair("recv", a, 10 * n, 5))
    rows = ask(write_ranks(tmp_path, *ranks), "pipeline-bubbles")
    assert [(r["micro_batches"], r["chunks"], r["ideal_pct"]) for r in rows] == [(2, 2, pytest.approx(200 / 6))] * 3


def test_dimensions_of_a_store_without_groups() -> None:
    """Recordings of one process, of DataParallel and of Nsight Systems have none, and that is no error."""
    engine = Engine(analyze.open(SAMPLES / "alexnet-dp2").stores)
    assert engine.rows("SELECT count(*) FROM comm_groups", ["comm_groups"]) == [(0,)]


def run_on_hosts(folder: Path, hosts: list[str | None], ranks: list[list[dict[str, Any]]]) -> Path:
    """A run folder of a program, whose ranks the collector saw on these hosts."""
    files, recorded = [], []
    for rank, (host, events) in enumerate(zip(hosts, ranks, strict=True)):
        job = {"rank": rank, "world_size": len(ranks)}
        write_trace(folder / f"torch/rank-{rank}.trace.json", events, distributedInfo=job)
        files.append({"path": f"torch/rank-{rank}.trace.json", "kind": "chrome_trace", "rank": rank})
        recorded.append({"rank": rank, "host": host})
    one = {"profiler": "torch", "status": "done", "files": files, "ranks": recorded}
    said = {"version": 2, "run_id": "job", "start": "2026-11-22T05:00:00+00:00", "command": [], "program": ["x"],
            "host": "head", "world_size": len(ranks), "passes": [one]}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(said))
    return folder


def on_two_hosts(rank: int) -> list[dict[str, Any]]:
    """Two hosts of two ranks: tp in each (10 us, all waited for by none), dp over both (20), a send 1 -> 2 (5)."""
    near, far = f"[{rank // 2 * 2}, {rank // 2 * 2 + 1}]", f"[{rank % 2}, {rank % 2 + 2}]"
    events = [
        collective("allreduce", 0, 10, 10, group="5", **{"Process Group Ranks": near}),
        collective("allreduce", 20, 20, 10, group="6", **{"Process Group Ranks": far}),
    ]
    if rank in (1, 2):
        events.append(pair("send", 2, 50, 5) if rank == 1 else pair("recv", 1, 50, 5))
    return events


def test_within_a_host_and_between_hosts(tmp_path: Path) -> None:
    path = run_on_hosts(tmp_path / "known", ["a", "a", "b", "b"], [on_two_hosts(r) for r in range(4)])
    assert sql(path, "SELECT rank, host FROM rank_hosts ORDER BY rank") == [
        {"rank": r, "host": "aabb"[r]} for r in range(4)
    ]
    # Calls: two of tp, two of dp, and the pair, on whichever hosts its two ranks are.
    rows = ask(path, "collectives", params={"per": "scope"})
    assert [(r["scope"], r["collective"], r["calls"], r["total_ns"]) for r in rows] == [
        ("inter", "all_reduce", 2, 40_000), ("intra", "all_reduce", 2, 20_000), ("inter", "send_recv", 1, 5_000),
    ]  # fmt: skip
    by_group = {r["process_group"]: r["scope"] for r in ask(path, "collectives", params={"per": "group"})}
    assert by_group == {"5 [0, 1]": "intra", "5 [2, 3]": "intra", "6 [0, 2]": "inter", "6 [1, 3]": "inter",
                        "0 [0, 1, 2, 3]": "inter"}  # fmt: skip
    # Time of kernels: four ranks of each, two of the pair.
    share = ask(path, "nccl-share", by=["scope"])
    assert [(r["scope"], r["collective"], r["total_ns"]) for r in share] == [
        ("inter", "all_reduce", 80_000), ("intra", "all_reduce", 40_000), ("inter", "send_recv", 10_000),
    ]  # fmt: skip
    exposed_rows = ask(path, "comm-exposed", params={"per": "scope"})
    assert {(r["rank"], r["scope"]): r["exposed_ns"] for r in exposed_rows} == {
        (r, s): 10_000 if s == "intra" else 25_000 if r in (1, 2) else 20_000
        for r in range(4) for s in ("intra", "inter")
    }  # fmt: skip
    overlap = ask(path, "overlap", by=["scope"], where="rank = 0")
    # Of one rank the group is not known to be on one host, nor on several.
    assert [(r["scope"], r["comm_ns"]) for r in overlap] == [(None, 30_000)]
    assert [r["node"] for r in ask(path, "runs", by=["node"])] == ["a", "b"]
    share = ask(path, "kernel-share", by=["node"], params={"group": "family"})
    assert [(r["node"], r["total_ns"]) for r in share] == [("a", 65_000), ("b", 65_000)]


def test_unknown_hosts_are_null(tmp_path: Path) -> None:
    """Rank 3's host is not known: its groups are between hosts only where two others already are."""
    ranks = [on_two_hosts(r) for r in range(4)]
    path = run_on_hosts(tmp_path / "part", ["a", "a", "b", None], ranks)
    scopes = {r["process_group"]: r["scope"] for r in ask(path, "collectives", params={"per": "group"})}
    assert scopes == {"5 [0, 1]": "intra", "5 [2, 3]": None, "6 [0, 2]": "inter", "6 [1, 3]": None,
                      "0 [0, 1, 2, 3]": "inter"}  # fmt: skip
    # Where the collector ran says nothing of where a program's ranks did; nor do bare traces.
    for none in (run_on_hosts(tmp_path / "none", [None] * 4, ranks), write_ranks(tmp_path / "bare", *ranks)):
        assert {r["scope"] for r in ask(none, "collectives", params={"each": "yes"})} == {None}
        assert sql(none, "SELECT * FROM rank_hosts") == []


def test_reports_name_their_hosts() -> None:
    """The collector's own workers run on its node, and a report of Nsight Systems says its own."""
    hosts = analyze.open(SAMPLES / "alexnet-dp2").sql("SELECT DISTINCT host FROM rank_hosts").dicts()
    manifest = json.loads((SAMPLES / "alexnet-dp2" / "run.json").read_text())
    assert hosts == [{"host": manifest["host"]}]
