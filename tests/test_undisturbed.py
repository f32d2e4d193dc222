"""What answers say of the program without the profiler: from the undisturbed steps that the collector timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import ask
from traces import event, kernel, launch, launched, step, write_timed_run

import analyze

# Two steps of 100 us, each with 70 us of work: the GPU is idle from 40 to 70 and from 140 to 170, as nothing is queued.
LOOP = [
    step(2, 0, 100), step(3, 100, 100), launch(1, 1), kernel("k", 0, 40, correlation=1), launch(65, 2),
    kernel("k", 70, 30, correlation=2), launch(98, 3), kernel("k", 100, 40, correlation=3), launch(165, 4),
    kernel("k", 170, 30, correlation=4),
]  # fmt: skip


def loop(path: Path, *undisturbed_us: float, events: list[dict[str, Any]] = LOOP, **header: Any) -> Path:
    """A run of the loop with undisturbed steps of these lengths and two recorded ones."""
    times = [*((True, us / 1e3) for us in undisturbed_us), (False, 0.1), (False, 0.1)]
    return write_timed_run(path, {0: events}, {0: times}, **header)


def test_idle_time_of_undisturbed_steps(tmp_path: Path) -> None:
    # 90 us (mean of 80 and 100) less 70 of work: 20 us idle, of 30 as recorded.
    path = loop(tmp_path / "run", 80, 100)
    [row] = ask(path, "breakdown")
    assert (row["undisturbed_ns"], row["undisturbed_idle_ns"]) == (180_000, 40_000)
    assert row["undisturbed_idle_pct"] == pytest.approx(100 * 40 / 180)
    assert (row["span_ns"], row["idle_ns"], row["idle_pct"]) == (200_000, 60_000, 30)
    steps = ask(path, "breakdown", params={"window": "step"})
    assert [(r["undisturbed_ns"], r["undisturbed_idle_ns"], r["idle_ns"]) for r in steps] == [
        (90_000, 20_000, 30_000)
    ] * 2
    [said] = [r for r in ask(path, "health") if r["fact"] == "GPU idle time per step"]
    assert said["value"] == "undisturbed 22.2 % (0.020 of 0.090 ms), recorded 30.0 % (0.030 of 0.100 ms)"
    assert (said["verdict"], said["impact"]) == ("note", "the profiler causes the difference")


def test_idle_time_is_never_below_0(tmp_path: Path) -> None:
    # Undisturbed steps of 60 us: the GPU works for longer, since recorded work takes longer, too.
    path = loop(tmp_path / "run", 60)
    [row] = ask(path, "breakdown")
    assert (row["undisturbed_ns"], row["undisturbed_idle_ns"], row["undisturbed_idle_pct"]) == (120_000, 0, 0)
    assert "host-wait" not in {r["finding"] for r in analyze.open(path).advise().dicts()}


def test_without_undisturbed_steps_nothing_is_guessed(tmp_path: Path) -> None:
    path = loop(tmp_path / "run")
    for window in ("span", "step"):
        row = ask(path, "breakdown", params={"window": window})[0]
        assert [v for c, v in row.items() if c.startswith("undisturbed")] == [None] * 3
    assert "GPU idle time per step" not in {r["fact"] for r in ask(path, "health")}


def test_work_outside_of_steps_is_not_in_undisturbed_time(tmp_path: Path) -> None:
    # 50 us of work before the first step and 30 after the last count in the span alone.
    more = [kernel("k", -60, 50), kernel("k", 210, 30)]
    path = loop(tmp_path / "run", 90, events=[*LOOP, *more])
    [row] = ask(path, "breakdown")
    assert (row["span_ns"], row["undisturbed_ns"], row["undisturbed_idle_ns"]) == (300_000, 180_000, 40_000)


def test_savings_of_idle_time_are_at_most_undisturbed_idle_time(tmp_path: Path) -> None:
    # Gaps of 60 us in all that wait for the host; undisturbed, the GPU is idle for 40.
    path = loop(tmp_path / "run", 80, 100)
    [row] = [r for r in analyze.open(path).advise().dicts() if r["finding"] == "host-wait"]
    assert (row["saving_ns"], row["recorded_saving_ns"], row["saving_pct"]) == (40_000, 60_000, 20)
    assert "up to 0.040 ms (20.0 %), 0.060 ms with the profiler\n" in run_cli("advise", path).stdout
    # Undisturbed steps that leave more idle time change nothing, and neither do unknown ones.
    for name, times in (("slow", (170,)), ("unknown", ())):
        [row] = [r for r in analyze.open(loop(tmp_path / name, *times)).advise().dicts() if r["finding"] == "host-wait"]
        assert (row["saving_ns"], row["recorded_saving_ns"]) == (60_000, 60_000)


def test_busy_time_is_no_idle_time_to_cap(tmp_path: Path) -> None:
    # 40 us of copies without a kernel, and no idle time undisturbed: the saving is time of copies, not of idle GPUs.
    copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 20, 0, 7, device=0, stream=7, bytes=1 << 20)
    path = loop(tmp_path / "run", 60, events=[*LOOP, copy])
    assert {r["finding"]: r["saving_ns"] for r in analyze.open(path).advise().dicts()}["exposed-copies"] == 20_000


def test_mfu_of_undisturbed_steps(tmp_path: Path) -> None:
    # A product of 2e9 FLOPs in each of two steps of 100 us; 80 us undisturbed. The peak given is 100 TFLOP/s.
    dims = {"Input Dims": [[1000, 2000], [2000, 500]], "Input type": ["float"] * 2}
    events = [step(2, 0, 100), step(3, 100, 100)]
    for n in range(2):
        at = 100 * n
        events += [event("cpu_op", "aten::mm", at + 10, 10, **{"External id": n + 1}, **dims)]
        events += launched(at + 12, n + 1, at + 20, 5)
    path = loop(tmp_path / "run", 80, events=events)
    for per in ("run", "rank", "step"):
        row = ask(path, "mfu", params={"per": per, "peak_tflops": 100})[0]
        assert (row["undisturbed_step_ns"], row["avg_step_ns"]) == (80_000, 100_000)
        assert (row["undisturbed_mfu_pct"], row["mfu_pct"]) == (pytest.approx(25), pytest.approx(20))
        assert (row["undisturbed_hfu_pct"], row["hfu_pct"]) == (pytest.approx(25), pytest.approx(20))
    [row] = ask(loop(tmp_path / "untimed", events=events), "mfu", params={"peak_tflops": 100})
    assert (row["undisturbed_step_ns"], row["undisturbed_mfu_pct"], row["mfu_pct"]) == (None, None, pytest.approx(20))


UNKNOWN = (
    "the profiler's share of {} is not known: no undisturbed steps were timed (`health` estimates whether it is large)"
)
ANOTHER = (
    "most launches find an empty queue, so the CPU is the limit and the profiler slows it down:"
    " without it, another rank may be the slowest"
)


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("breakdown", "idle time"), ("gpu-busy", "idle time"), ("idle-causes", "idle time"), ("gaps", "idle time"),
        ("mfu", "step time"), ("stragglers", "waits and the slowest rank"), ("collective-waits", "waits"),
        ("comm-exposed", "waits"), ("pipeline-bubbles", "waits and idle time"),
    ],
)  # fmt: skip
def test_answers_say_that_the_share_of_the_profiler_is_not_known(tmp_path: Path, query: str, what: str) -> None:
    assert analyze.open(loop(tmp_path / "untimed")).query(query).note == UNKNOWN.format(what)
    assert analyze.open(loop(tmp_path / "timed", 90)).query(query).note == ""


def test_answers_without_host_time_say_nothing_of_the_profiler(tmp_path: Path) -> None:
    assert analyze.open(loop(tmp_path / "run")).query("kernel-share").note == ""


def ranks(path: Path, delay: float, *undisturbed_us: float) -> Path:
    """Two ranks; each of their kernels starts so long after its launch call returned (us)."""
    events = [step(2, 0, 500)]
    for n in range(5):
        events += [launch(90 * n, n + 1), kernel("k", 90 * n + 1 + delay, 40, correlation=n + 1)]
    times = [*((True, us / 1e3) for us in undisturbed_us), (False, 0.5)]
    return write_timed_run(path, {0: events, 1: events}, {0: times, 1: times})


def test_stragglers_of_a_host_bound_recording_may_name_the_wrong_rank(tmp_path: Path) -> None:
    unknown = UNKNOWN.format("waits and the slowest rank")
    # Not timed; 1.25 x as long with the profiler; 1.0 x.
    for name, delay, times, note in (
        ("a", 4, (), f"{unknown}; {ANOTHER}"), ("b", 25, (), unknown), ("c", 4, (400,), ANOTHER), ("d", 25, (400,), ""),
        ("e", 4, (500,), ""),
    ):  # fmt: skip
        assert analyze.open(ranks(tmp_path / name, delay, *times)).query("stragglers").note == note


def test_overhead_is_estimated_from_the_launches(tmp_path: Path) -> None:
    # 5 launches on each rank. Queues are empty (work starts 4 us after its call), or not (25 us).
    found = {}
    for name, delay in (("empty", 4), ("full", 25)):
        [row] = [r for r in ask(ranks(tmp_path / name, delay), "health") if r["fact"] == "profiler overhead per step"]
        found[name] = (row["verdict"], row["value"])
        assert (row["impact"] is None) == (name == "full")
    assert found == {
        "empty": ("note", "not timed; estimate: likely large (the queue is empty at 100 % of the launches)"),
        "full": ("unknown", "not timed; estimate: likely small (the queue is empty at 0 % of the launches)"),
    }
    # 3 operators in the 200 us of the loop: 15 in a ms. Its four kernels start within 5 us after their call.
    ops = [event("cpu_op", "aten::mm", 10 * n, 5, **{"External id": n}) for n in range(1, 4)]
    [row] = [r for r in ask(loop(tmp_path / "ops", events=[*LOOP, *ops]), "health") if "overhead" in r["fact"]]
    assert row["value"].endswith("the queue is empty at 100 % of the launches, 15.0 operators per ms)")
