"""Ranks of a server: roles, loads, and which rank the others wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import ask
from traces import event, kernel, launch, write_ranks, write_trace

import analyze
from analyze.errors import InputError

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


@pytest.mark.parametrize(
    "places",
    [
        # As in vllm#18827; SGLang's --profile-prefix; several servers of a kind.
        ("prefiller_profiler/n_{}.170", "decoder_profiler/n_{}.170"),
        ("prefill-1700.5-TP-{}", "decode-1700.5-TP-{}"),
        ("prefill_0/rank{}", "prefill_1/rank{}", "decode_0/rank{}"),
    ],
)
def test_servers_for_prefill_and_decode_as_one_run(tmp_path: Path, places: tuple[str, ...]) -> None:
    """Each server has ranks 0 and 1 and a group [0, 1]; rank 1 of each is 10 us late in three all_reduces."""
    for place in places:
        name = "step[EXTEND bs=1 toks=9]" if place.startswith("prefill") else "step[DECODE bs=4]"
        for rank in range(2):
            events = [e for i in range(3) for e in step(name, 100 * i, i + 1, 100 * i + 30 + 10 * rank, 100 * i + 80)]
            groups = [{"pg_name": "1", "pg_desc": "tp", "ranks": [0, 1], "pg_size": 2}]
            said = {"rank": rank, "world_size": 2, "backend": "nccl", "pg_config": groups}
            write_trace(tmp_path / "servers" / f"{place.format(rank)}.pt.trace.json", events, distributedInfo=said)
    analyze.ingest(tmp_path / "servers", store=tmp_path / "store", as_one_run=True)
    rows = ask(tmp_path / "store", "server-ranks")
    kinds = ["prefill" if place.startswith("prefill") else "decode" for place in places for _ in range(2)]
    # Rank 0 of each server waits 10 us three times for rank 1.
    assert [(r["rank"], r["role"], r["wait_ns"], r["blocked_ns"]) for r in rows] == [
        (i, kind, *((0, 30_000) if i % 2 else (30_000, 0))) for i, kind in enumerate(kinds)
    ]
    groups = [f"[{i}, {i + 1}]" for i in range(0, len(kinds), 2)]
    with analyze.open(tmp_path / "store") as traces:
        assert {r["ranks"] for r in traces.sql("SELECT DISTINCT ranks FROM process_groups").dicts()} == set(groups)


def test_stages_of_one_server_are_no_servers(tmp_path: Path) -> None:
    for name in ("17-TP-0-DECODE", "17-TP-0-EXTEND"):
        write_trace(tmp_path / f"{name}.json", [], distributedInfo={"rank": 0, "world_size": 2})
    with pytest.raises(InputError, match="so they cannot be one run"):
        analyze.ingest(tmp_path, store=tmp_path / "store", as_one_run=True)
