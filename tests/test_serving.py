"""Inference: prefill and decode steps by their ranges, or by lookups in the embedding table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, launched, write_trace

ATTENTION = "flash_fwd_kernel"


def lookup(ts: float, batch: int, tokens: int, words: int = 1000) -> dict[str, Any]:
    return event("cpu_op", "aten::embedding", ts, 1, **{"Input Dims": [[words, 64], [batch, tokens], []]})


@pytest.mark.parametrize(
    ("name", "kind", "tokens"),
    [
        ("execute_context_1(983)_generation_0(0)", "prefill", 983),  # vLLM
        ("execute_context_0(0)_generation_32(32)", "decode", 32),
        ("execute_context_1(512)_generation_3(3)", "mixed", 515),
        ("execute_1025_context_1(sq1024sk1024sqsq1048576sqsk1048576)_generation_1(sq1sk9sqsq1sqsk9)", "mixed", 1025),
        ("step[EXTEND bs=17 toks=8192]", "prefill", 8192),  # SGLang
        ("step[DECODE bs=63]", "decode", 63),
        ("step[MIXED bs=2 toks=40]", "mixed", 40),
        ("decode", "decode", None),
    ],
)
def test_inference_servers_are_recognised(tmp_path: Path, name: str, kind: str, tokens: int | None) -> None:
    # 10 us, of which 4 are busy; and a range inside that is not a step of its own.
    events = [event("user_annotation", name, 0, 10), event("user_annotation", "decode", 1, 5), *launched(2, 1, 4, 4)]
    [row] = ask(write_trace(tmp_path / "t.json", events), "serving")
    assert (row["kind"], row["tokens"], row["steps"], row["time_ns"]) == (kind, tokens, 1, 10_000)
    assert (row["busy_ns"], row["idle_ns"], row["idle_pct"], row["launches"]) == (4_000, 6_000, 60, 1)
    assert row["tokens_per_s"] == (tokens and pytest.approx(tokens / 10e-6))


def test_engine_steps_by_hand(tmp_path: Path) -> None:
    # Prefill of 2 x 8 tokens, done when its kernel is, at 30: 30 us, 12 busy, 10 of them attention. Two decode steps of
    # 10 us and 2 tokens, the first with a write of 2 us into the cache (a concatenation along the third dimension).
    cat = {"Input Dims": [[[2, 4, 8, 16], [2, 4, 1, 16]], []], "Concrete Inputs": ["", "2"], "External id": 3}
    halves = {"Input Dims": [[[2, 4, 8, 8], [2, 4, 8, 8]], []], "Concrete Inputs": ["", "-1"], "External id": 2}
    events = [
        event("user_annotation", "prefill", 0, 20), lookup(1, 2, 8), *launched(2, 1, 10, 10, ATTENTION),
        event("cpu_op", "aten::cat", 12, 4, **halves), *launched(13, 2, 28, 2),
        event("user_annotation", "decode 0", 40, 10), lookup(41, 2, 1), event("cpu_op", "aten::cat", 42, 4, **cat),
        *launched(43, 3, 46, 2), event("user_annotation", "decode 1", 60, 10), lookup(61, 2, 1),
        *launched(62, 4, 64, 3),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    columns = ("kind", "steps", "tokens", "time_ns", "busy_ns", "attention_ns", "kv_cache_ns")
    assert [tuple(r[c] for c in columns) for r in ask(path, "serving")] == [
        ("prefill", 1, 16, 30_000, 12_000, 10_000, 0),
        ("decode", 2, 4, 20_000, 5_000, 0, 2_000),
    ]
    assert [(r["step"], r["kind"]) for r in ask(path, "serving", params={"per": "step"})] == [
        (0, "prefill"), (1, "decode"), (2, "decode"),
    ]  # fmt: skip


def test_step_without_ranges_is_a_forward_pass(tmp_path: Path) -> None:
    # The same table begins each pass; that of positions, of another shape, does not.
    events = [
        lookup(0, 1, 8), lookup(2, 1, 8, 512), *launched(4, 1, 10, 6), lookup(20, 1, 1), lookup(22, 1, 1, 512),
        *launched(24, 2, 26, 4),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "serving")
    assert [(r["kind"], r["tokens"], r["time_ns"], r["busy_ns"]) for r in rows] == [
        ("prefill", 8, 16_000, 6_000),
        ("decode", 1, 10_000, 4_000),
    ]
    # Training looks words up, too.
    training = [*events, event("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 30, 2)]
    assert ask(write_trace(tmp_path / "b.json", training), "serving") == []


def ahead(n: int, every: float, work: float) -> list[dict[str, Any]]:
    """Steps of 16 tokens every 10 ms from 10 ms on, each launched in 2 ms; the GPU begins the work of the first at
    19 ms, and of the others every so often."""
    events = []
    for i in range(n):
        at = 10_000 + 10_000 * i
        events += [
            event("user_annotation", "execute_context_0(0)_generation_16(16)", at, 2000),
            *launched(at + 500, 1 + i, 19_000 + every * i, work, ATTENTION),
        ]
    return events


def test_overlapping_steps_use_gpu_time(tmp_path: Path) -> None:
    # The CPU is a step ahead, the GPU always busy: 320 tokens in 200 ms.
    [row] = ask(write_trace(tmp_path / "t.json", ahead(20, 10_000, 10_000)), "serving")
    assert (row["steps"], row["tokens"], row["time_ns"], row["busy_ns"]) == (20, 320, 200_000_000, 200_000_000)
    assert (row["avg_step_ns"], row["median_step_ns"]) == (10_000_000, 10_000_000)
    assert (row["tokens_per_s"], row["idle_ns"], row["idle_pct"]) == (1600, 0, 0)
    # Of each 10 ms the GPU is idle for 1 ms; after the last step nothing follows: 19 x 10 + 9 ms.
    path = write_trace(tmp_path / "gaps.json", ahead(20, 10_000, 9_000))
    [row] = ask(path, "serving")
    assert (row["time_ns"], row["busy_ns"], row["idle_ns"]) == (199_000_000, 180_000_000, 19_000_000)
    # Each step ends with its work: 9 ms, then 10 ms with the idle time before its work.
    assert [r["time_ns"] for r in ask(path, "serving", params={"per": "step"})] == [9_000_000] + 19 * [10_000_000]


def test_steps_of_several_threads_and_unassigned_work(tmp_path: Path) -> None:
    # Two threads decode at the same time: [0, 10) and [5, 15), 15 us in all. A copy of nobody's fills [12, 13).
    # Work: [2, 8) of the first, [8, 12) of the second. The second step overlaps the first, which begins with its work.
    second = [{**e, "tid": 2} if e["cat"] != "kernel" else e for e in launched(6, 2, 8, 4)]
    events = [
        event("user_annotation", "decode 0", 0, 10), *launched(1, 1, 2, 6),
        event("user_annotation", "decode 1", 5, 10, tid=2), *second,
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 12, 1, 0, 8, device=0, stream=8, bytes=8),
    ]  # fmt: skip
    rows = ask(write_trace(tmp_path / "t.json", events), "serving", params={"per": "step"})
    # [2, 10) with 2 us of the second one's work at its end, and [10, 15): busy until 13.
    assert [(r["time_ns"], r["busy_ns"], r["idle_ns"]) for r in rows] == [(8_000, 6_000, 0), (5_000, 4_000, 2_000)]


def test_engine_steps_of_the_sample() -> None:
    """examples/generate.py: a prompt of 128 tokens, then 11 of 12 tokens one at a time, in 2 layers."""
    path = SAMPLES / "generate"
    rows = {r["kind"]: r for r in ask(path, "serving")}
    assert {k: (r["steps"], r["tokens"]) for k, r in rows.items()} == {"prefill": (1, 128), "decode": (11, 11)}
    [attention] = sql(path, "SELECT sum(dur_ns)::BIGINT AS ns, count(*) AS n FROM kernels WHERE name LIKE 'fmha%'")
    assert attention["n"] == 2 * 12 and sum(r["attention_ns"] for r in rows.values()) == attention["ns"]
    # Keys and values of each layer are joined to the old ones in each decode step, the first time for all: 44 kernels.
    names = sql(path, "SELECT name, dur_ns FROM kernels WHERE name LIKE '%CatArray%'")
    assert len(names) == 2 * 2 * 11 and rows["decode"]["kv_cache_ns"] == sum(r["dur_ns"] for r in names)
    assert rows["prefill"]["kv_cache_ns"] == 0
    assert ask(SAMPLES / "lm-eager", "serving") == []
