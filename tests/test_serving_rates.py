"""Tokens per second of a server, and how long requests wait for tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask
from traces import event, launched, write_trace

STEADY = [event("user_annotation", f"step[DECODE bs={n}]", 12 * i, 10) for i, n in enumerate([1, 4, 4, 4, 4, 4, 4, 2])]
"""Steps of 10 us with 2 us between them: the batch fills, is full for six steps, and drains."""


def vllm(ts: float, dur: float, prompts: list[int], decodes: int) -> dict[str, Any]:
    """A step of vLLM with whole prompts of so many tokens, and requests of 9 tokens that generate."""
    squares = sum(n * n for n in prompts)
    context = f"context_{len(prompts)}(sq{sum(prompts)}sk{sum(prompts)}sqsq{squares}sqsk{squares})"
    generation = f"generation_{decodes}(sq{decodes}sk{9 * decodes}sqsq{decodes}sqsk{9 * decodes})"
    return event("user_annotation", f"execute_{sum(prompts) + decodes}_{context}_{generation}", ts, dur)


def test_steady_state_is_while_the_batch_is_full(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", STEADY)
    [row] = ask(path, "throughput")
    # From the end of the first full step, 22 us, to that of the last, 82 us: 5 steps of 4 tokens.
    assert (row["window"], row["steps"], row["left_out"], row["span_ns"]) == ("steady", 5, 3, 60_000)
    assert (row["generated_tokens"], row["prompt_tokens"], row["requests"]) == (20, 0, 4)
    assert row["generated_per_s"] == pytest.approx(20 / 60e-6)
    assert row["between_pct"] == pytest.approx(100 * 5 * 2 / 60)
    assert row["busy_pct"] is None
    # All steps: 1 + 6 x 4 + 2 tokens in 7 x 12 + 10 us.
    [row] = ask(path, "throughput", params={"window": "all"})
    assert (row["window"], row["generated_tokens"], row["span_ns"], row["note"]) == ("all", 27, 94_000, None)
    # 4 full steps are no steady state.
    [row] = ask(write_trace(tmp_path / "s.json", STEADY[:5]), "throughput")
    assert (row["window"], row["generated_tokens"]) == ("all", 17) and row["note"].startswith("no steady state")


def test_steps_that_warm_up_are_not_served(tmp_path: Path) -> None:
    """The first of six steps of 4 requests takes 90 us, the others 10; a slow one among the others is no warm-up."""

    def steps(*lengths: int) -> Path:
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        events = [event("user_annotation", "step[DECODE bs=4]", *at) for at in zip(starts, lengths, strict=True)]
        return write_trace(tmp_path / f"{lengths}.json", events)

    warming = steps(30, 90, 10, 10, 10, 10, 10, 10)
    [row] = ask(warming, "throughput")
    # From the end of the second step on: 6 x 4 tokens in 60 us.
    assert (row["steps"], row["left_out"], row["span_ns"], row["generated_tokens"]) == (6, 2, 60_000, 24)
    [row] = ask(warming, "token-latency")
    assert (row["tokens"], row["max_ns"]) == (24, 10_000)
    later = steps(10, 10, 10, 90, 10, 10, 10)
    [row] = ask(later, "throughput")
    assert (row["steps"], row["span_ns"]) == (6, 140_000)
    assert ask(later, "token-latency")[0]["max_ns"] == 90_000


def test_throughput_of_a_cpu_ahead(tmp_path: Path) -> None:
    # Steps launched each 10 us; the GPU begins at 25 and works for 10 us on each: 6 x 4 tokens in 60 us.
    events = [event("user_annotation", "step[DECODE bs=4]", 10 * i, 4) for i in range(6)]
    events += [e for i in range(6) for e in launched(10 * i + 1, 1 + i, 25 + 10 * i, 10)]
    [row] = ask(write_trace(tmp_path / "t.json", events), "throughput", params={"window": "all"})
    assert (row["span_ns"], row["generated_tokens"], row["busy_pct"], row["between_pct"]) == (60_000, 24, 100, 0)


def test_prompts_make_others_wait(tmp_path: Path) -> None:
    # Two requests generate; a third one's prompt takes 20 us, in which they wait.
    events = [vllm(0, 10, [], 2), vllm(10, 20, [8], 0), vllm(30, 10, [], 3), vllm(42, 10, [], 3)]
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "token-latency")
    # At 40 us: two tokens after 30 us, and one 10 us after the prompt; at 52 us three after 12 us.
    waits = [30_000, 30_000, 10_000, 12_000, 12_000, 12_000]
    assert (row["tokens"], row["avg_ns"]) == (6, sum(waits) / 6)
    assert (row["p50_ns"], row["p90_ns"], row["p99_ns"], row["max_ns"]) == (12_000, 30_000, 30_000, 30_000)
    assert row["prompts_pct"] == pytest.approx(100 * 2 * 20_000 / sum(waits))
    assert row["between_pct"] == pytest.approx(100 * 3 * 2_000 / sum(waits))
    [row] = ask(path, "throughput", params={"window": "all"})
    # 2 + 3 + 3 tokens, and the first one of the prompt.
    assert (row["generated_tokens"], row["prompt_tokens"]) == (9, 8)


def test_tokens_by_the_number_of_requests(tmp_path: Path) -> None:
    rows = ask(write_trace(tmp_path / "t.json", STEADY), "token-latency", params={"per": "requests"})
    # The first of the four full steps has one request that has waited; three are new, from before the recording.
    assert [(r["requests"], r["tokens"], r["max_ns"]) for r in rows] == [(2, 2, 12_000), (4, 1 + 5 * 4, 12_000)]


def test_accepted_drafts_come_at_once(tmp_path: Path) -> None:
    # Steps of 10 us check 3 drafts of each of 2 requests; the caches grow by 4: each accepts one of three.
    name = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq8sk{0}sqsq32sqsk{0})"
    events = [event("user_annotation", name.format(100 + 4 * i), 10 * i, 10) for i in range(3)]
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "token-latency")
    # The second step's 4 tokens: two waited; of the last step only the two that are certain are known.
    assert (row["tokens"], row["avg_ns"], row["max_ns"]) == (6, 4 * 10_000 / 6, 10_000)
    [row] = ask(path, "throughput", params={"window": "all"})
    assert (row["accepted"], row["generated_tokens"]) == (2, None)
    assert row["note"] == "names of steps do not tell how many tokens they generate"


def test_throughput_of_the_sample_is_that_of_the_loops_own_clock() -> None:
    """The server of examples/serving wrote clock.json: its own count of tokens, and the seconds of its loop."""
    own = json.loads((SAMPLES / "serving" / "clock.json").read_text("utf-8"))
    [row] = ask(SAMPLES / "serving", "throughput", params={"window": "all"})
    assert (row["prompt_tokens"], row["generated_tokens"]) == (own["prompt"], own["generated"])
    assert row["generated_per_s"] == pytest.approx(own["generated"] / own["seconds"], rel=0.01)
    assert row["prompt_per_s"] == pytest.approx(own["prompt"] / own["seconds"], rel=0.01)
