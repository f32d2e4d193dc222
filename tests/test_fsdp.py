"""Fully sharded data parallelism in small traces. Times in the comments are us, in the rows ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import ROOT, ask
from test_communication import collective
from traces import event, kernel, launch, write_ranks, write_trace

import analyze

COMPUTE = "sm90_xmma_gemm"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def span(name: str, ts: float, end: float, tid: int = 1) -> dict[str, Any]:
    """A range of torch on the CPU."""
    return event("user_annotation", name, ts, end - ts, tid=tid)


def launched(correlation: int, at: float, work: dict[str, Any], tid: int = 1, stream: int = 7) -> list[dict[str, Any]]:
    """GPU work and the call that launched it, 1 us long."""
    work["args"] |= {"correlation": correlation, "stream": stream}
    return [launch(at, correlation) | {"tid": tid}, work | {"tid": stream}]


def gather(ts: float, end: float) -> dict[str, Any]:
    """An all_gather of 500 floats of each of two ranks: 4000 B."""
    return collective("_allgather_base", ts, end - ts, 500, 1000)


def scatter(ts: float, end: float) -> dict[str, Any]:
    """A reduce_scatter of 1000 floats."""
    return collective("_allgather_base", ts, end - ts, 1000, 500, **{"Collective name": "_reduce_scatter_base"}) | {
        "name": SCATTER
    }


def second(begin: float) -> list[dict[str, Any]]:
    """A step of two modules under FSDP2, of a rank whose first all_gather begins at `begin`.

    Module a is gathered until 30, launched at 2; its copy out is launched at 12, behind work until 14 on stream 7: it
    needs the parameters at 14, and is 16 late. b is prefetched at 16 and gathered until 40; its copy out is launched at
    25, behind the forward of a until 60. In the backward pass b is still there; a is prefetched at 56 and gathered
    until 72; its copy out is launched at 85, behind the backward of b until 88. b is reduced [90, 100), beside the copy
    out of a until 92 and a's backward from then to 96.
    """
    return [
        span("ProfilerStep#3", 0, 120),
        *launched(1, 0, kernel(COMPUTE, 5, 9)),
        span("FSDP::pre_forward (a)", 0.5, 20),
        span("FSDP::all_gather (a)", 1, 8), *launched(2, 2, gather(begin, 30), stream=20),
        span("FSDP::all_gather_copy_out (a)", 9, 14), *launched(3, 12, kernel("split_with_sizes_copy", 31, 3)),
        span("FSDP::forward_prefetch for b", 14.5, 19), span("FSDP::all_gather (b)", 15, 18),
        *launched(4, 16, gather(32, 40), stream=20),
        *launched(5, 20, kernel(COMPUTE, 34, 26)),
        span("FSDP::pre_forward (b)", 22, 30), span("FSDP::all_gather_copy_out (b)", 23, 29),
        *launched(6, 25, kernel("split_with_sizes_copy", 60, 2)), *launched(7, 30, kernel(COMPUTE, 62, 8)),
        span("FSDP::pre_backward (b)", 50, 62, 2), span("FSDP::backward_prefetch for a", 55, 60, 2),
        span("FSDP::all_gather (a)", 55.5, 59, 2), *launched(8, 56, gather(64, 72), 2, stream=20),
        *launched(9, 63, kernel(COMPUTE, 80, 8), 2),
        span("FSDP::post_backward_reduce (b)", 72, 80, 2), *launched(10, 75, scatter(90, 100), 2, stream=24),
        span("FSDP::pre_backward (a)", 81, 90, 2), span("FSDP::all_gather_copy_out (a)", 82, 89, 2),
        *launched(11, 85, kernel("split_with_sizes_copy", 90, 2), 2), *launched(12, 91, kernel(COMPUTE, 92, 4), 2),
    ]  # fmt: skip


def test_modules_named_by_fsdp2(tmp_path: Path) -> None:
    """Rank 1 comes to the first all_gather at 18, rank 0 at 10: 8 of rank 0's 20 are waiting. Compute runs until 14.

    Exposed of it are [14, 30): waiting until 18, then transfer; on rank 1 [18, 30). Leads: 14 - 2, 60 - 16, 88 - 56.
    Beside b's [32, 40) something always runs; beside a's second one [64, 72) the forward of b until 70, so 2 are
    exposed; of the reduction [96, 100).
    """
    path = write_ranks(tmp_path, second(10), second(18))
    names = ("module", "pass", "collective", "calls", "bytes", "total_ns", "exposed_ns", "transfer_ns", "waiting_ns",
             "lead_ns", "slack_ns", "late", "stall_ns", "resharded")  # fmt: skip
    rows = ask(path, "fsdp")
    assert [tuple(r[n] for n in names) for r in rows] == [
        ("a", "forward", "all_gather", 2, 8_000, 32_000, 28_000, 24_000, 4_000, 12_000, -16_000, 2, 32_000, True),
        ("a", "backward", "all_gather", 2, 8_000, 16_000, 4_000, 4_000, 0, 32_000, 16_000, 0, 0, None),
        ("b", "forward", "all_gather", 2, 8_000, 16_000, 0, 0, 0, 44_000, 20_000, 0, 0, False),
        ("b", "backward", "reduce_scatter", 2, 8_000, 20_000, 8_000, 8_000, 0, None, None, None, None, None),
    ]
    assert {(r["place"], r["module"]) for r in rows} == {(0, "a"), (1, "b")} and not any(r["inferred"] for r in rows)
    # All communication is FSDP's: the same exposed time by collective, and by rank.
    whole = {r["collective"]: 0 for r in rows}
    for r in ask(path, "comm-exposed", params={"per": "collective"}):
        whole[r["collective"]] += r["exposed_ns"]
    assert whole == {"all_gather": 32_000, "reduce_scatter": 8_000}
    ranks = ask(path, "fsdp", params={"per": "rank"})
    assert [(r["rank"], r["exposed_ns"]) for r in ranks if r["module"] == "a" and r["pass"] == "forward"] == [
        (0, 16_000), (1, 12_000),
    ]  # fmt: skip
    each = ask(path, "fsdp", params={"each": "yes"})
    assert len(each) == 8 and {r["step"] for r in each} == {3} and all(r["calls"] == 1 for r in each)
    # Since the first event, 10 us before the first all_gather.
    assert [r["start_ns"] for r in each if r["rank"] == 0] == [10_000, 32_000, 64_000, 90_000]


def test_late_module_is_a_finding(tmp_path: Path) -> None:
    """Of the stalls [14, 30), 4 us of rank 0 are waiting: the straggler's. 12 + 12 are left, 12 a GPU.

    What is left of the exposed communication, 2 of a's second all_gather and 4 of the reduction, nobody waits for.
    """
    found = {r["finding"]: r for r in analyze.open(write_ranks(tmp_path, second(10), second(18))).advise(0).dicts()}
    assert found["late-unshards"]["saving_ns"] == 12_000
    assert found["late-unshards"]["evidence"] == (
        "2 of 6 all_gathers end after their module needs them; each GPU stalls for 0.016 ms, of which 0.012 ms"
        " is exposed transfer; most in the forward pass, for module a (0.012 ms)"
    )
    assert found["stragglers"]["saving_ns"] == 2_000 and found["exposed-communication"]["saving_ns"] == 6_000


def test_names_of_modules_and_groups(tmp_path: Path) -> None:
    """The outermost module has no name; of several groups of parameters each says its size behind it."""
    events = []
    for n, name in enumerate(("FSDP::all_gather", "FSDP::all_gather (layers.0) [pg=2]", "FSDP::all_gather (a (b))")):
        at = 10.0 * n
        events += [span(name, at, at + 5), *launched(n + 1, at + 1, gather(at + 2, at + 4), stream=20)]
    rows = ask(write_trace(tmp_path / "t.json", events), "fsdp")
    assert [r["module"] for r in rows] == ["(root)", "layers.0", "a (b)"]
    # No range says for which pass, none uses them, and no backward pass was recorded.
    assert {(r["pass"], r["slack_ns"], r["stall_ns"], r["resharded"], r["late"]) for r in rows} == {(None,) * 5}


FIRST = "FullyShardedDataParallel."


def first(reductions: int = 2) -> list[dict[str, Any]]:
    """A step of two modules under FSDP1, in a root without parameters of its own.

    The first is gathered [10, 25), and its first kernel launched at 22, with nothing before it: 3 late. The second is
    gathered until 52, and needed at 55. Backward: the second is gathered until 110 and needed at 116; the first,
    prefetched, until 120, and needed at 136.
    """
    reduced = [
        span(FIRST + "_post_backward_hook", 118, 125, 2), span(FIRST + "_post_backward_prefetch", 119, 119.5, 2),
        *launched(9, 120, scatter(131, 140), 2, 24),
        span(FIRST + "_post_backward_hook", 140, 148, 2), *launched(10, 145, scatter(151, 160), 2, 24),
    ]  # fmt: skip
    return [
        span(FIRST + "forward", 0, 100), span(FIRST + "_pre_forward", 1, 3),
        span(FIRST + "forward", 5, 40), span(FIRST + "_pre_forward", 6, 20),
        *launched(1, 8, gather(10, 25), stream=20), span(FIRST + "_pre_forward_prefetch", 15, 18),
        *launched(2, 22, kernel(COMPUTE, 26, 14)),
        span(FIRST + "forward", 45, 80), span(FIRST + "_pre_forward", 46, 54),
        *launched(3, 47, gather(48, 52), stream=20), span(FIRST + "_pre_forward_prefetch", 50, 51),
        *launched(4, 55, kernel(COMPUTE, 56, 14)),
        span(FIRST + "_pre_backward_hook", 100, 115, 2), *launched(5, 102, gather(104, 110), 2, 20),
        span(FIRST + "_pre_backward_prefetch", 111, 114, 2), *launched(6, 112, gather(114, 120), 2, 20),
        span(FIRST + "_pre_backward_hook", 115.2, 115.8, 2), *launched(7, 116, kernel(COMPUTE, 117, 13), 2),
        span(FIRST + "_pre_backward_hook", 131, 135, 2), span(FIRST + "_pre_backward_prefetch", 132, 133, 2),
        *launched(8, 136, kernel(COMPUTE, 137, 13), 2),
        *reduced[: 5 if reductions == 1 else len(reduced)],
    ]  # fmt: skip


def test_modules_of_fsdp1_are_numbered(tmp_path: Path) -> None:
    names = ("module", "pass", "collective", "lead_ns", "slack_ns", "stall_ns", "resharded", "unknown_ns")
    rows = ask(write_trace(tmp_path / "t.json", first()), "fsdp")
    # The other rank's trace is missing, so of the exposed time it is not known whether it is waiting. Compute runs
    # [26, 40), [56, 70), [117, 130) and [137, 150).
    assert [tuple(r[n] for n in names) for r in rows] == [
        ("#1", "forward", "all_gather", 14_000, -3_000, 3_000, True, 15_000),
        ("#1", "backward", "all_gather", 24_000, 16_000, 0, None, 3_000),
        ("#1", "backward", "reduce_scatter", None, None, None, None, 9_000),
        ("#2", "forward", "all_gather", 8_000, 3_000, 0, True, 4_000),
        ("#2", "backward", "all_gather", 14_000, 6_000, 0, None, 6_000),
        ("#2", "backward", "reduce_scatter", None, None, None, None, 6_000),
    ]
    assert all(r["inferred"] for r in rows)
    # One reduction for two modules: whose it is is not known.
    rows = ask(write_trace(tmp_path / "one.json", first(1)), "fsdp")
    assert [(r["module"], r["calls"]) for r in rows if r["collective"] == "reduce_scatter"] == [(None, 1)]


def test_a_recording_of_fsdp1() -> None:
    """Three steps of four modules on the first of two H200s, each of a layer of 2048 x 8192 and one back, in bf16."""
    rows = ask(ROOT / "tests" / "data" / "fsdp1", "fsdp")
    numbers = 2 * 2048 * 8192 + 8192 + 2048
    kinds = (("forward", "all_gather"), ("backward", "all_gather"), ("backward", "reduce_scatter"))
    assert [(r["module"], r["pass"], r["collective"]) for r in rows] == [
        (f"#{n}", *k) for n in range(1, 5) for k in kinds
    ]
    assert {(r["calls"], r["bytes"], r["inferred"]) for r in rows} == {(3, 3 * 2 * numbers, True)}
    assert all(r["resharded"] for r in rows if r["pass"] == "forward")


def test_other_collectives_are_not_of_fsdp(tmp_path: Path) -> None:
    """An all_gather outside of FSDP's ranges, and an all_reduce inside of a module's forward."""
    events = [
        *launched(1, 1, gather(2, 4)), span("FSDP::pre_forward (a)", 10, 20),
        *launched(2, 11, collective("allreduce", 12, 5, 10)),
    ]  # fmt: skip
    assert ask(write_trace(tmp_path / "t.json", events), "fsdp") == []
