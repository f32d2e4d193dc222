"""Data-quality checks: the facts of `health`, computed by hand, and where they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from support import SAMPLES, ask
from traces import event, kernel, launch, write_run, write_timed_run, write_trace

import analyze
from analyze import health

Events = list[dict[str, Any]]


def facts(path: Path, **params: str) -> dict[str, tuple[int | None, str, str, str | None]]:
    rows = ask(path, "health", params=params)
    return {r["fact"]: (r["rank"], r["verdict"], r["value"], r["impact"]) for r in rows}


def one(*more: dict[str, Any]) -> Events:
    return [event("user_annotation", "ProfilerStep#4", 0, 100), kernel("gemm", 0, 100), *more]


def test_profiler_overhead_per_step(tmp_path: Path) -> None:
    # Rank 0: 2 ms undisturbed (mean of 1 and 3), 3 ms recorded (mean of 2 and 4): 1.5 x. Rank 1: 2.0 and 2.1: 1.05 x.
    times = {
        0: [(True, 1.0), (True, 3.0), (False, 2.0), (False, 4.0)],
        1: [(True, 2.0), (True, 2.0), (False, 2.1), (False, 2.1)],
    }
    path = write_timed_run(tmp_path / "run", {0: one(), 1: one()}, times)
    rank, verdict, value, impact = facts(path)["profiler overhead per step"]
    assert (rank, verdict, value) == (0, "note", "1.50 x (3.000 ms with, 2.000 ms without profiler)")
    # Without shapes or stacks there is nothing that --detail light leaves out.
    assert impact and "--detail light" not in impact
    shapes = event("cpu_op", "aten::mm", 0, 10, **{"Input Dims": [[2, 2], [2, 2]]})
    shaped = write_timed_run(tmp_path / "shaped", {0: one(shapes)}, {0: times[0]})
    *_, impact = facts(shaped)["profiler overhead per step"]
    assert impact and "--detail light" in impact
    each = [r for r in ask(path, "health", params={"per": "rank"}) if r["fact"] == "profiler overhead per step"]
    assert [(r["rank"], r["verdict"], r["value"]) for r in each] == [
        (0, "note", "1.50 x (3.000 ms with, 2.000 ms without profiler)"),
        (1, "ok", "1.05 x (2.100 ms with, 2.000 ms without profiler)"),
    ]
    said = "a step takes 1.50 times as long as without the profiler (3.000 ms, 2.000 ms)"
    assert said in " ".join(run_cli("info", path).stdout.split())


def test_step_times_next_to_profiler_overhead(tmp_path: Path) -> None:
    times = {0: [(True, 1.0), (True, 3.0), (False, 2.5)]}
    path = write_timed_run(tmp_path / "run", {0: one()}, times)
    rows = ask(path, "steps", params={"warmup": "yes"})
    # The undisturbed steps have the collector's times; the recorded one, step 2 of its clock, the window of 100 us.
    assert [(r["step"], r["undisturbed"], r["step_ns"], r["timed_step_ns"]) for r in rows] == [
        (0, True, 1_000_000, 1_000_000),
        (1, True, 3_000_000, 3_000_000),
        (2, False, 100_000, 2_500_000),
    ]
    assert {(r["undisturbed_step_ns"], r["slowdown"]) for r in rows} == {(2_000_000, 1.25)}
    assert len(ask(path, "steps")) == 1


def test_pass_without_a_profiler_is_the_baseline(tmp_path: Path) -> None:
    path = write_timed_run(tmp_path / "run", {0: one()}, {0: [(False, 3.0)]})
    (path / "none").mkdir()
    (path / "none/rank-0.step_metrics.csv").write_text(
        "rank,step,warmup,undisturbed,step_s\n0,0,true,false,9\n0,1,false,false,0.0025\n"
    )
    manifest = json.loads((path / "run.json").read_text())
    file = {"path": "none/rank-0.step_metrics.csv", "kind": "step_metrics", "rank": 0}
    manifest["passes"].append({"profiler": "none", "status": "done", "files": [file]})
    (path / "run.json").write_text(json.dumps(manifest))
    told = [(r["run_id"], r["value"]) for r in ask(path, "health") if r["fact"] == "profiler overhead per step"]
    # 3 / 2.5 = 1.2; the pass itself was not recorded.
    assert told == [("r.torch", "1.20 x (3.000 ms with, 2.500 ms without profiler)")]


def test_profiler_time_by_phase(tmp_path: Path) -> None:
    # 8 us from 10 to 18 in aten::fill_ inside aten::zeros, 4 us from 16 to 20 on a thread that runs no operator, so on
    # the same, and 1 us at 90 outside of all: their union is 11 us of a span of 100.
    events = one(
        event("cpu_op", "aten::zeros", 5, 30), event("cpu_op", "aten::fill_", 8, 20),
        event("overhead", "Activity Buffer Request", 10, 8), event("overhead", "Buffer Flush", 16, 4, tid=-3),
        event("overhead", "Lazy Function Loading", 90, 1),
    )  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    assert facts(path)["time in the profiler"][1:3] == (
        "note",
        "11.0 % of the span: Activity Buffer Request 0.008 ms on aten::fill_; Buffer Flush 0.004 ms on aten::fill_; "
        "Lazy Function Loading 0.001 ms",
    )


@pytest.mark.parametrize("length", [0.5, 3.6e10])
def test_operators_of_any_length_contain_profiler_time(tmp_path: Path, length: float) -> None:
    # One operator, from 3 us on. A piece of 0.1 us at its very start and one at its very end lie in it, and so on it;
    # one that ends 0.1 us later than it does not.
    end = 3 + length
    events = one(
        event("cpu_op", "aten::long", 3, length), event("overhead", "First", 3, 0.1),
        event("overhead", "Last", round(end - 0.1, 3), 0.1), event("overhead", "Later", round(end - 0.2, 3), 0.3),
    )  # fmt: skip
    told = facts(write_trace(tmp_path / "t.json", events))["time in the profiler"][2]
    pieces = dict(piece.split(" 0.000 ms", 1) for piece in told.split(": ", 1)[1].split("; "))
    assert pieces == {"First": " on aten::long", "Last": " on aten::long", "Later": ""}


def test_launches_without_kernels(tmp_path: Path) -> None:
    # Launch 2 has no kernel; launch 4 stands in a stream capture, which records it only; kernel 9 has no launch.
    events = [
        launch(0, 1), kernel("a", 5, 10, correlation=1), launch(20, 2),
        launch(30, 3, name="cudaStreamBeginCapture"), launch(32, 4), launch(34, 5, name="cudaStreamEndCapture"),
        launch(40, 6), kernel("b", 45, 10, correlation=6), kernel("c", 60, 10, correlation=9),
    ]  # fmt: skip
    found = facts(write_trace(tmp_path / "t.json", events))
    assert found["launches without a kernel"][1:3] == ("warning", "1 of 4 launches")
    assert found["GPU work without a launch call"][1:3] == ("note", "1 of 3 kernels, copies and fills")


def ranked(rank: int, start: float, clock: float) -> Events:
    """A rank whose clock is `clock` us late; its step begins at `start`, and three all-reduces end at 200, 300, 400."""
    args = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 3}
    reduces = [
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", end - 20 + clock, 20, **args, Seq=n)
        for n, end in enumerate((200, 300, 400))
    ]
    return [event("user_annotation", "ProfilerStep#0", start + clock, 300), *reduces]


def test_start_skew_and_clocks_of_ranks(tmp_path: Path) -> None:
    # Rank 2's clock is 150 us ahead of the others'; in truth it began 30 us after rank 0, and rank 1 10 us.
    ranks = {0: ranked(0, 0, 0), 1: ranked(1, 10, 0), 2: ranked(2, 30, 150)}
    path = write_timed_run(tmp_path / "run", ranks, {})
    rows = ask(path, "health", params={"per": "rank"})
    clock = {r["rank"]: (r["verdict"], r["value"]) for r in rows if r["fact"] == "clock offset to the other ranks"}
    assert clock == {0: ("ok", "+0.000 ms"), 1: ("ok", "+0.000 ms"), 2: ("note", "+0.150 ms")}
    # The GPU spans of 220 us: more than 5 % of it, 11 us, is a note.
    begun = {r["rank"]: (r["verdict"], r["value"]) for r in rows if r["fact"] == "start skew"}
    assert begun == {0: ("ok", "0.000 ms"), 1: ("ok", "0.010 ms"), 2: ("note", "0.030 ms")}
    assert facts(path)["start skew"][0] == 2


def test_start_skew_to_the_nanosecond(tmp_path: Path) -> None:
    """Rank 2 ends its call 100 ns before rank 3: its clock is 50 ns behind and the other's 50 ns ahead.

    It begins 1.350 us after the others, so 1.400 us, and rank 3 50 ns before them: 1.450 us after the first. Times
    since 1970 are floats of 256 ns: to those, the ends are 256 ns apart, which made it 1.606 us.
    """
    base = 1_795_206_803_338_803_200  # 7012526575542200 * 256, as 128 us are 500 * 256
    ranks = {}
    for rank, group, end in ((0, [0, 1], 128), (1, [0, 1], 128), (2, [2, 3], 128.1), (3, [2, 3], 128.2)):
        args = {
            "Collective name": "allreduce", "Process Group Name": str(group[0]), "Process Group Ranks": str(group),
            "Group size": 2, "Seq": 1,
        }  # fmt: skip
        reduce = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", end - 20, 20, **args)
        ranks[rank] = [event("user_annotation", "ProfilerStep#0", 1.35 if rank == 2 else 0, 300), reduce]
    path = write_timed_run(tmp_path / "run", ranks, {}, baseTimeNanoseconds=base)
    rows = ask(path, "health", params={"per": "rank"})
    begun = {r["rank"]: r["value"] for r in rows if r["fact"] == "start skew"}
    assert begun == {0: "0.000 ms", 1: "0.000 ms", 2: "0.001 ms", 3: "0.000 ms"}


def test_more_ranks_than_the_job_has(tmp_path: Path) -> None:
    """A second attempt of rank 0, or a helper beside it, left a trace, too."""
    files = [(f"torch/rank-{n}.trace.json", "chrome_trace", n) for n in range(2)]
    for path, _, _ in files:
        write_trace(tmp_path / "r" / path, one(), distributedInfo={"rank": 0, "world_size": 1})
    folder = write_run(tmp_path / "r", files, world_size=1)
    assert facts(folder)["ranks"] == (
        None, "warning", "2 of 1", "some are not ranks of the job, but other processes or another attempt",
    )  # fmt: skip


def test_ranges_without_an_end(tmp_path: Path) -> None:
    whole = event("user_annotation", "forward", 0, 10)
    unclosed = {"ph": "X", "cat": "user_annotation", "name": "epoch", "pid": 1, "tid": 1, "ts": 1}
    for name, events, told in (("a", [whole], ("ok", "0")), ("b", [whole, unclosed], ("note", "1"))):
        assert facts(write_trace(tmp_path / f"{name}.json", one(*events)))["ranges without an end"][1:3] == told


def test_each_verdict_of_the_samples_has_a_reason() -> None:
    rows = analyze.open(SAMPLES).where(profiler="all").query("health").dicts()
    assert {r["verdict"] for r in rows} <= {"ok", "note", "warning", "unknown"}
    assert all(bool(r["impact"]) == (r["verdict"] in ("note", "warning")) for r in rows if r["fact"] != "status")


def test_cautions_of_several_runs() -> None:
    note = health.Fact("a", 3, "start", "note", "5 ms", "wait")
    same = note._replace(run_id="b", rank=1, value="6 ms")
    lost = health.Fact("b", None, "ranks", "warning", "1 of 2", "no waiting")
    fine = health.Fact("c", None, "status", "ok", "done", None)
    assert [f.text for f in health.cautions([note, fine])] == ["note: start: 5 ms (rank 3) in a; wait"]
    assert [f.text for f in health.cautions([note])] == ["note: start: 5 ms (rank 3); wait"]
    assert [f.text for f in health.cautions([note, same, lost, fine])] == [
        "warning: ranks: 1 of 2 in b; no waiting",
        "note: start: in 2 runs (a, b); wait",
    ]


@pytest.mark.parametrize(
    ("values", "impact", "said"),
    [
        (("12.5 % of kernel time", "100.0 % of kernel time"), "too low", "at most 100.0 % of kernel time"),
        (("-0.300 ms", "+0.150 ms"), "waits are wrong", "at most 0.300 ms"),
    ],
)
def test_note_about_several_runs_counts_them(values: tuple[str, str], impact: str, said: str) -> None:
    facts = [
        health.Fact(run, None, "f", "note", v, f"{impact} by up to that") for run, v in zip("ab", values, strict=True)
    ]
    assert [f.text for f in health.cautions(facts)] == [f"note: f: in 2 runs (a, b), {said}; {impact} by up to that"]


def test_largest_share_of_several_runs_is_shown(tmp_path: Path) -> None:
    # 10 of 30 us, and 30 of 50, are of no known family.
    for name, dur in (("a", 10), ("b", 30)):
        write_trace(tmp_path / f"{name}.json", [kernel("zz", 0, dur), kernel("sgemm", 50, 20)])
    said = "at most 60.0 % of kernel time; shares of the known families are too low by up to that"
    assert said in run_cli("advise", tmp_path, "-f", "csv").stderr


@pytest.mark.parametrize("form", ["table", "json"])
def test_advise_shows_data_quality_first(tmp_path: Path, form: str) -> None:
    path = write_trace(tmp_path / "t.json", one(), distributedInfo={"rank": 0, "world_size": 2})
    result = run_cli("advise", path, "-f", form)
    said = "warning: ranks: 1 of 2; collectives with missing ranks have no bandwidths and no waits"
    if form == "table":
        assert result.stdout.startswith(f"{said}\n") and "more: analyze query health " in result.stdout
    else:
        assert json.loads(result.stdout) == [] and complaints(result)[0] == said  # one prefix, that of the verdict


def test_implausible_work_is_a_warning(tmp_path: Path) -> None:
    # Three kernels 45, 2 and 0.5 s before the first step; in the steps, the GPU is 70 % busy.
    ms, first = 1000, 45_000_000
    # An operator says that the recording had begun.
    before = [event("cpu_op", "aten::mm", 0, 5), *(kernel("warm", first - s * 1e6, 300) for s in (45, 2, 0.5))]
    steps = [event("user_annotation", f"ProfilerStep#{i}", first + 10 * ms * i, 10 * ms) for i in range(3)]
    inside = [e for i in range(3) for e in (
        launch(first + 10 * ms * i, 1 + i), kernel("gemm", first + 10 * ms * i + 20, 7 * ms, correlation=1 + i),
    )]  # fmt: skip
    path = write_trace(tmp_path / "steps.json", [*before, *steps, *inside])
    _, verdict, value, impact = facts(path)["GPU work long before the first step"]
    assert (verdict, value) == ("warning", "2 of 6 pieces, up to 45.000 s") and "window=step" in (impact or "")
    shares = [r["compute_pct"] for r in ask(path, "breakdown", params={"window": "step"})]
    assert shares == [70.0, 70.0, 70.0]
    said = run_cli("advise", path).stdout.splitlines()
    assert said[0].startswith("warning: GPU work long before the first step: 2 of 6 pieces, up to 45.000 s")

    # Kernels 300 us and 0.5 us before their calls: the second is within rounding.
    early = [
        launch(1300, 1),
        kernel("a", 1000, 5, correlation=1),
        launch(2000.5, 2),
        kernel("a", 2000, 5, correlation=2),
    ]
    path = write_trace(tmp_path / "early.json", early)
    assert facts(path)["GPU work before its launch call"][1:3] == ("warning", "1 pieces, up to 0.300 ms")

    # Two graphs launched at 0 and 1 ms; the work of both is written at 500 ms, though the GPU had been idle since 2 ms.
    late = [
        kernel("k", 1 * ms, 1 * ms), launch(0, 7, name="cudaGraphLaunch"), launch(1000, 8, name="cudaGraphLaunch"),
        kernel("g", 500 * ms, 50, correlation=7), kernel("g", 500 * ms + 60, 50, correlation=8),
    ]  # fmt: skip
    path = write_trace(tmp_path / "late.json", late)
    found = facts(path)["CUDA graphs that start late on an idle GPU"]
    assert found[1:3] == ("warning", "1 times, up to 498.000 ms after the call")
