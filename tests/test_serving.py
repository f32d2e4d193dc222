"""Inference: prefill and decode steps by their ranges, or by lookups in the embedding table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, launched, write_ranks, write_trace

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


def steps(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of each step, in order."""
    return [tuple(r[c] for c in columns) for r in ask(path, "serving", params={"per": "step"})]


NAMES = {
    # vLLM: the examples of https://github.com/AMD-AGI/TraceLens' tests of annotations; 2,000 tokens in 3 caches.
    "execute_1027_context_1(sq1024sk1500sqsq1048576sqsk1536000)_generation_3(sq3sk500sqsq3sqsk500)": (
        "mixed", 4, 1027, 500, 476, None,
    ),
    "execute_128_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq128sk65536sqsq512sqsk262144)": (
        "verify", 32, 128, 2048, 0, None,
    ),
    "execute_context_2(14721)_generation_0(0)": ("prefill", 2, 14721, None, None, None),
    "execute_context_0(0)_generation_0(0)": ("idle", 0, 0, None, 0, 0),
    "execute_new_2_cached_6": ("mixed", 8, None, None, None, None),
    # SGLang: its test of build_step_span_name.
    "step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]": ("decode", 2, 2, 15, 0, 2),
    "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]": ("prefill", 2, 12, 10, 8, None),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]": (
        "mixed", 2, 6, 10, 3, None,
    ),
    "step[TARGET_VERIFY bs=23]": ("verify", 23, None, None, 0, None),
    "step[DRAFT_EXTEND bs=4]": ("draft", 4, None, None, 0, 0),
    "step[IDLE bs=0]": ("idle", 0, None, None, 0, 0),
    # TensorRT-LLM, with and without tokens.
    "[Executor] _forward_step 60: 0 ctx reqs, 0 ctx tokens, 32 gen reqs": ("decode", 32, 32, None, 0, 32),
    "[Executor] _forward_step: 2 ctx reqs, 3 gen reqs": ("mixed", 5, None, None, None, None),
    # ATOM: batches are padded to sizes of graphs, 117 of 128.
    "decode[bs=117/128 tok=117 d=117 sqsq=117 sqsk=239616 sk=239616]": ("decode", 117, 117, 2048, 0, 117),
    "decode[bs=32 tok=128 d=32 spec=3]": ("verify", 32, 128, None, 0, None),
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]": ("prefill", 2, 14721, None, None, None),
    "eager_decode[bs=128 tok=384 p=2 d=126]": ("mixed", 128, 384, None, None, None),
}  # fmt: skip
"""Kind, requests, tokens, mean context, cached tokens and generated tokens."""


def test_names_of_servers_tell_requests_and_tokens(tmp_path: Path) -> None:
    # Each is a rank of its own: what one step tells depends on the others of its rank.
    path = write_ranks(tmp_path / "ranks", *([event("user_annotation", name, 0, 10)] for name in NAMES))
    columns = ("kind", "requests", "tokens", "context_tokens", "cached_tokens", "generated_tokens")
    assert dict(zip(NAMES, steps(path, *columns), strict=True)) == NAMES


def test_a_whole_prompt_generates_a_token(tmp_path: Path) -> None:
    whole = "execute_8_context_2(sq8sk8sqsq34sqsk34)_generation_0(sq0sk0sqsq0sqsk0)"
    chunk = "execute_4_context_1(sq4sk9sqsq16sqsk36)_generation_0(sq0sk0sqsq0sqsk0)"
    events = [event("user_annotation", whole, 0, 10)]
    assert steps(write_trace(tmp_path / "w.json", events), "generated_tokens") == [(2,)]
    # With a chunk after it, whether the first one was complete is not known.
    events.append(event("user_annotation", chunk, 10, 10))
    assert steps(write_trace(tmp_path / "c.json", events), "generated_tokens") == [(None,), (None,)]


def test_caches_tell_how_many_drafts_were_accepted(tmp_path: Path) -> None:
    # 2 requests with 3 drafts each: 8 tokens a step. The caches grow by 5 (2 of 6 drafts and one token of each more),
    # then by 2, then another request joins.
    contexts = [100, 105, 107]
    name = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq8sk{0}sqsq32sqsk{0})"
    names = [name.format(n) for n in contexts]
    names.append("execute_12_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq12sk150sqsq48sqsk150)")
    events = [event("user_annotation", name, 10 * i, 9) for i, name in enumerate(names)]
    path = write_trace(tmp_path / "t.json", events)
    assert steps(path, "kind", "generated_tokens") == [("verify", 5), ("verify", 2), ("verify", None), ("verify", None)]


def test_the_draft_model_reads_the_prompt_again(tmp_path: Path) -> None:
    # SGLang names both passes alike. Two chunks of 8 tokens, each followed by that of the draft model.
    names = 4 * ["step[EXTEND bs=1 toks=8]"] + ["step[TARGET_VERIFY bs=1]"]
    events = [event("user_annotation", name, 10 * i, 9) for i, name in enumerate(names)]
    rows = {r["kind"]: r["tokens"] for r in ask(write_trace(tmp_path / "t.json", events), "serving")}
    assert rows == {"prefill": 16, "draft": 16, "verify": None}
    # Without speculative decoding, all are of the model.
    [row] = ask(write_trace(tmp_path / "p.json", events[:-1]), "serving")
    assert (row["kind"], row["tokens"]) == ("prefill", 32)


def test_captures_are_no_steps(tmp_path: Path) -> None:
    calls = [event("cuda_runtime", f"cudaStream{what}Capture", ts, 1) for what, ts in (("Begin", 10), ("End", 18))]
    events = [lookup(0, 2, 4), lookup(12, 2, 1), launch(13, 9), *calls, lookup(30, 2, 1), *launched(31, 2, 32, 2)]
    path = write_trace(tmp_path / "t.json", events)
    assert steps(path, "kind", "requests", "generated_tokens") == [("prefill", 2, 2), ("decode", 2, 2)]


def test_a_batch_without_its_sequences_has_no_kind(tmp_path: Path) -> None:
    # 8 tokens in a row are 8 sequences or one prompt.
    flat = event("cpu_op", "aten::embedding", 0, 1, **{"Input Dims": [[1000, 64], [8], []]})
    assert steps(write_trace(tmp_path / "t.json", [flat]), "kind", "tokens", "requests") == [(None, 8, None)]


def replays(lag: int, n: int = 8) -> list[dict[str, Any]]:
    """Decode steps of 10 us, each with a replay whose kernel runs `lag` us later."""
    events = []
    for i in range(n):
        events.append(event("user_annotation", "step[DECODE bs=4]", 10 * i, 9))
        events.append(launch(10 * i + 1, 100 + i, name="hipGraphLaunch"))
        events.append(kernel("k", 10 * i + 3 + lag, 5, correlation=100 + i))
    return events


def test_lost_times_of_graphs_have_no_figures(tmp_path: Path) -> None:
    # One step ahead is usual; kernels in a burst behind the last step are not (sgl-project/sglang issue 31545).
    [row] = ask(write_trace(tmp_path / "a.json", replays(lag=10)), "serving")
    assert (row["busy_ns"], row["tokens"], row["note"]) == (8 * 5000, 32, None)
    burst = [e for e in replays(lag=80) if e["cat"] != "kernel"]
    burst += [kernel("k", 200 + 5 * i, 5, correlation=100 + i) for i in range(8)]
    [row] = ask(write_trace(tmp_path / "b.json", burst), "serving")
    assert (row["steps"], row["tokens"], row["generated_tokens"]) == (8, 32, 32)
    assert {row[c] for c in ("time_ns", "median_step_ns", "tokens_per_s", "busy_ns", "idle_ns")} == {None}
    assert row["note"].startswith("the times of the kernels of CUDA graphs are lost")
    for query, figure in (("token-latency", "p50_ns"), ("throughput", "busy_pct"), ("server-ranks", "median_step_ns")):
        [row] = ask(tmp_path / "b.json", query)
        assert row[figure] is None and "of CUDA graphs are lost" in row["note"]
    # A driver call inside the runtime's has no work of its own.
    nested = [launch(10 * i + 1.2, 500 + i, 0.5, name="cuGraphLaunch") for i in range(8)]
    [row] = ask(write_trace(tmp_path / "d.json", replays(lag=10) + nested), "serving")
    assert (row["busy_ns"], row["note"]) == (8 * 5000, None)
    # The same if no kernel of a replay was recorded.
    none = [e for e in replays(lag=0) if e["cat"] != "kernel"] + [kernel("k", 3, 5, correlation=1)]
    [row] = ask(write_trace(tmp_path / "n.json", none), "serving")
    assert (row["time_ns"], row["tokens"]) == (None, 32)


def test_without_a_gpu_nothing_is_idle(tmp_path: Path) -> None:
    [row] = ask(write_trace(tmp_path / "t.json", [event("user_annotation", "decode", 0, 10)]), "serving")
    assert (row["time_ns"], row["idle_ns"], row["idle_pct"]) == (10_000, None, None)


def test_replays_and_eager_passes_are_steps_alike() -> None:
    """A decode step of 32 sequences, recorded three times without and three times as a CUDA graph."""
    for sample in ("decode-eager", "decode-graph"):
        [row] = ask(SAMPLES / sample, "serving")
        assert (row["steps"], row["tokens"]) == (3, 3 * 32)


def test_generate_with_a_static_cache() -> None:
    """Two calls of tests/data/generate_static.py: a prompt of 64 tokens, then 11 replays; 12 tokens for 4 requests.

    In the first call, torch compiles the decode step again and runs it twice without a graph.
    """
    steps = ask(SAMPLES / "generate-static", "serving", params={"per": "step"})
    call = [("prefill", 4, 256), *[("decode", 4, 4)] * 11]
    assert [(s["kind"], s["requests"], s["tokens"]) for s in steps] == call * 2
    # Each replay has the same work.
    assert {s["attention_ns"] // 1000 for s in steps[13:]} <= {24, 25, 26}


def test_compiled_code_looks_up_once(tmp_path: Path) -> None:
    """Inductor looks words up in each kernel that needs them; torch.compile also does while it traces."""
    kernels = [
        event(
            "cpu_op", f"triton_per_fused_embedding_mean_{i}", ts, 1, **{"External id": ts},
            **{"Input Dims": [[2, n], [1000, 64], [2, n, 64]], "Input type": ["long int", "float", "float"]},
        )
        for i, (ts, n) in enumerate([(11, 8), (13, 8), (31, 1), (33, 1)])
    ]  # fmt: skip
    calls = [event("user_annotation", "## Call CompiledFxGraph f123 ##", ts, 8) for ts in (10, 30)]
    tracing = [event("cpu_op", "_compile.compile_inner (dynamo_timed)", 0, 5), lookup(2, 2, 8)]
    path = write_trace(
        tmp_path / "t.json", [*kernels, *calls, *tracing, *launched(14, 1, 20, 4), *launched(34, 2, 36, 4)]
    )
    rows = ask(path, "serving", params={"per": "step"})
    assert [(r["kind"], r["requests"], r["tokens"]) for r in rows] == [("prefill", 2, 16), ("decode", 2, 2)]
