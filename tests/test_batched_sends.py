"""Batched sends and receives. Times in the comments are us, in the rows ns."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, ask, sql
from test_communication import NAMES
from test_parallel import pair
from traces import event, kernel, launch, write_ranks

COMPUTE = "sm90_xmma_gemm"
_numbers = count(1)


def asked(direction: str, peer: int, at: float, elems: int, group: str = "0", members: int = 2) -> dict[str, Any]:
    """What NCCL's process group writes where a send or receive is asked for."""
    said = {
        "Collective name": direction, "Dst Rank" if direction == "send" else "Src Rank": peer, "dtype": "Float",
        "In msg nelems": elems, "Out msg nelems": elems, "Process Group Name": group,
        "Process Group Ranks": str(list(range(members))),
    }  # fmt: skip
    return event("cpu_op", "record_param_comms", at, 0.5, **{"External id": next(_numbers)}, **said)


def batch(at: float, ts: float, dur: float, *of: tuple[str, int, int], members: int = 2) -> list[dict[str, Any]]:
    """A batch that is launched together at `at`; its kernel says nothing. `of`: direction, peer and elements."""
    number = 1000 + next(_numbers)
    return [
        *(asked(direction, peer, at - len(of) + n, elems, members=members)
          for n, (direction, peer, elems) in enumerate(of)),
        event("user_annotation", "nccl:coalesced", at, 3), launch(at + 1, number),
        kernel(NAMES["send"], ts, dur, 0, 17, correlation=number),
    ]  # fmt: skip


def test_batches_are_matched_between_peers(tmp_path: Path) -> None:
    """Both send and receive: 1000 floats there and 500 back, begun at 20 and 28, both until 40: rank 0 waits 8.

    Then rank 0 sends alone in its batch, and rank 1 receives without one, 3 later; both until 70.
    """
    path = write_ranks(
        tmp_path,
        [*batch(10, 20, 20, ("send", 1, 1000), ("recv", 1, 500)), *batch(50, 60, 10, ("send", 1, 250))],
        [*batch(12, 28, 12, ("recv", 0, 1000), ("send", 0, 500)), pair("recv", 0, 63, 7, 250, **GROUP)],
    )
    rows = ask(path, "collectives", params={"each": "yes"})
    assert [(r["status"], r["bytes"], r["total_ns"], r["ranks"], r["process_group"]) for r in rows] == [
        ("matched", 4_000, 12_000, 2, "0 [0, 1]"), ("matched", 1_000, 7_000, 2, "0 [0, 1]"),
    ]  # fmt: skip
    assert [(r["calls"], r["wait_ns"], r["times_last"], r["point_to_point"]) for r in ask(path, "stragglers")] == [
        (2, 11_000, 0, 0), (2, 0, 2, 0),
    ]  # fmt: skip
    # 20 + 10 on rank 0, 12 + 7 on rank 1.
    share = ask(path, "nccl-share", params={"per": "group"})
    assert [(r["process_group"], r["dimension"], r["calls"], r["total_ns"]) for r in share] == [
        ("0 [0, 1]", "pp", 4, 49_000)
    ]
    assert [f for f in facts(path) if f[0] == "sends and receives"] == [("sends and receives", "ok", "all paired")]


GROUP = {"Process Group Ranks": "[0, 1]", "Group size": 2}


def facts(path: Path) -> list[tuple[str, str, str]]:
    return [(r["fact"], r["verdict"], r["value"]) for r in ask(path, "health")]


def test_unmatched_batches_are_counted(tmp_path: Path) -> None:
    """Of rank 0 a batch with two others, of rank 1 a kernel of which nothing was asked for, of rank 2 a batch that its
    peer has none for.
    """
    path = write_ranks(
        tmp_path,
        batch(10, 20, 20, ("send", 1, 1000), ("recv", 2, 500), members=3),
        [launch(9, 1), kernel(NAMES["send"], 20, 20, 0, 17, correlation=1)],
        batch(10, 20, 20, ("send", 0, 500), members=3),
    )
    rows = ask(path, "collectives", params={"per": "group"})
    assert {(r["process_group"], r["status"], r["calls"]) for r in rows} == {
        ("0 [0, 1, 2]", "point_to_point", 1), (None, "point_to_point", 1), ("0 [0, 1, 2]", "incomplete", 1),
    }  # fmt: skip
    assert [f[1:] for f in facts(path) if f[0] == "sends and receives"] == [
        ("note", "2 of 3 kernels are not paired: 1 is a batch with several ranks, 1 without a recorded peer"),
    ]


def test_batches_of_different_content_do_not_match(tmp_path: Path) -> None:
    """Rank 0 sends two and receives one, rank 1 receives one and sends one: not each other's."""
    path = write_ranks(
        tmp_path,
        batch(10, 20, 20, ("send", 1, 10), ("send", 1, 10), ("recv", 1, 10)),
        batch(10, 20, 20, ("recv", 0, 10), ("send", 0, 10)),
    )
    assert [(r["status"], r["calls"]) for r in ask(path, "collectives")] == [("incomplete", 2)]


def test_pipeline_stages_that_send_in_batches(tmp_path: Path) -> None:
    """1F1B of two stages and three micro-batches: the second and third activation go with a gradient back.

    (2 - 1) / (3 + 1) of the time. Each waits 2 us for the other in each of the four, or not: rank 0 begins at 0, 10, 20
    and 30, rank 1 two later, both until 5 behind the tens: 2 waiting, 3 transfer; of 40 us.
    """

    def stage(own: int) -> list[dict[str, Any]]:
        there, back = ("send", "recv") if own == 0 else ("recv", "send")
        kinds = [[there], [there, back], [there, back], [back]]
        events = [event("user_annotation", "ProfilerStep#0", 0, 40)]
        for n, kind in enumerate(kinds):
            begin = 10 * n + 2 * own
            events += batch(10 * n + 0.1, begin, 10 * n + 5 - begin, *((way, 1 - own, 10) for way in kind))
        return events

    rows = ask(write_ranks(tmp_path, stage(0), stage(1)), "pipeline-bubbles")
    names = ("stage", "micro_batches", "chunks", "ideal_pct", "span_ns", "transfer_ns", "wait_next_ns", "idle_ns")
    assert [tuple(r[n] for n in names) for r in rows] == [
        (0, 3, 1, pytest.approx(25), 40_000, 12_000, 8_000, 20_000),
        (1, 3, 1, pytest.approx(25), 40_000, 12_000, 0, 28_000),
    ]  # fmt: skip
    # Warm until the first gradient has come: of stage 0 the second batch, of stage 1 the first, an activation.
    assert [(r["warmup_ns"], r["steady_ns"], r["drain_ns"]) for r in rows] == [(4_000, 2_000, 2_000), (0, 0, 0)]


def test_batches_of_a_real_nccl_recording() -> None:
    """Two H200s, three steps: 2^20 floats both ways in a batch, twice as many in another, then one send from 0 to 1.

    Rank 1's recording has kernels of the steps before it, too: what was asked for then was not recorded.
    """
    path = ROOT / "tests" / "data" / "batched-sends"
    rows = ask(path, "collectives")
    assert [(r["status"], r["calls"], r["bytes"], r["ranks"]) for r in rows] == [
        ("matched", 9, 3 * (4 + 8 + 4) << 20, 2), ("point_to_point", 4, None, 1),
    ]  # fmt: skip
    said = sql(path, "SELECT collective, peer, count(*) AS n FROM cpu_ops WHERE peer = 1 GROUP BY ALL")
    assert sorted((r["collective"], r["peer"], r["n"]) for r in said) == [("recv", 1, 9), ("send", 1, 12)]
