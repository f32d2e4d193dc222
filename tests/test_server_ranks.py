"""Ranks of a server: roles, loads, and which rank the others wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import ask
from traces import event, kernel, launch, write_ranks, write_trace

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def step(name: str, ts: float, number: int, start: float, end: float) -> list[dict[str, Any]]:
    """A step of 90 us with one all_reduce of two ranks; times in us."""
    said = {"Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "Group size": 2}
    said |= {"dtype": "BFloat16", "Process Group Name": "1", "Process Group Ranks": "[0, 1]"}
    call = launch(ts + 1, number)
    return [event("user_annotation", name, ts, 90), call, kernel(NCCL, start, end - start, correlation=number, **said)]


def test_the_rank_with_fewer_requests_waits(tmp_path: Path) -> None:
    # Rank 0 decodes 12 requests and enters its all_reduce 20 us after rank 1, which has 4 requests, then none.
    busy = [e for i in range(4) for e in step("step[DECODE bs=12]", 100 * i, i + 1, 100 * i + 30, 100 * i + 80)]
    names = ["step[DECODE bs=4]"] * 3 + ["step[IDLE bs=0]"]
    light = [e for i, n in enumerate(names) for e in step(n, 100 * i, i + 1, 100 * i + 10, 100 * i + 80)]
    rows = ask(write_ranks(tmp_path / "dp", busy, light), "server-ranks")
    columns = ("rank", "role", "steps", "idle_steps", "requests", "tokens", "load", "wait_ns", "blocked_ns")
    # 48 and 12 tokens: 30 on average.
    assert [tuple(r[c] for c in columns) for r in rows] == [
        (0, "decode", 4, 0, 12, 48, 1.6, 0, 4 * 20_000),
        (1, "decode", 4, 1, 3, 12, 0.4, 4 * 20_000, 0),
    ]


def test_servers_for_prefill_and_decode_have_roles(tmp_path: Path) -> None:
    names = {"p": ["step[EXTEND bs=2 toks=9]"], "d": ["step[DECODE bs=4]"]}
    names["both"] = names["p"] + names["d"]
    for server, steps in names.items():
        events = [event("user_annotation", name, 20 * i, 10) for i, name in enumerate(steps)]
        write_trace(tmp_path / server / "trace.json", events)
    roles = {(r["role"], r["tokens"], r["load"]) for r in ask(tmp_path, "server-ranks")}
    assert roles == {("prefill", 9, 1), ("decode", 4, 1), ("both", 13, 1)}
