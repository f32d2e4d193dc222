"""Profiler overhead: the same steps timed without the profiler, and how much each detail records."""

from __future__ import annotations

import itertools
import socket
import sys
import time
from pathlib import Path

import pytest
import torch
from collect_support import CPU, Collect, names, read_csv, read_trace

from collect.injected import cuda
from collect.injected.step_clock import StepClock
from collect.option_checks import make_options
from collect.profilers.torch_profiler import TorchOptions
from collect.run import overhead_note, unlike_note
from collect.workload.step_timer import median_step_ns
from schemas.errors import InputError
from schemas.manifest import Pass, RankRecording, RunFile

# Steps 1 and 2 of 6 sleep 50 ms, the recorded ones, 4 and 5, sleep 100 ms: stands for what a profiler costs.
SLEEPS = """
import time, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    time.sleep({1: 0.05, 2: 0.05, 4: 0.1, 5: 0.1}.get(step, 0))
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
"""


def test_timed_steps_follow_the_options() -> None:
    plain = make_options({"model": "alexnet"})
    # 3 warm-up steps, of which the last (7) is behind the 5 undisturbed ones: 0 1 | 2 3 4 5 6 | 7 | 8 ... 12.
    assert (plain.undisturbed_steps, plain.first_profiled) == (range(2, 7), 8)
    few = make_options({"model": "alexnet", "undisturbed": 1, "warmup": 2, "steps": 4})
    assert (few.undisturbed_steps, few.first_profiled) == (range(1, 2), 3)
    for warmup in (0, 1):
        cold = make_options({"model": "alexnet", "warmup": warmup})
        assert (len(cold.undisturbed_steps), cold.first_profiled) == (0, warmup)
    assert make_options({"model": "alexnet", "profiler": "none"}).first_profiled == 3
    assert make_options({"model": "alexnet", "profiler": "none,torch"}).first_profiled == 8
    with pytest.raises(InputError, match="--undisturbed: needs --warmup 2 or more"):
        make_options({"model": "alexnet", "warmup": 1, "undisturbed": 2})


def test_step_clock_measures_blocks() -> None:
    began, began_unix = time.perf_counter_ns(), time.time_ns()
    clock = StepClock()
    time.sleep(0.02)
    clock.step(1)
    time.sleep(0.01)
    clock.step(2)
    took = time.perf_counter_ns() - began
    # The block has not ended: its step time is unknown.
    assert clock.step_ns(on_gpu=False) is clock.step_ns(on_gpu=True) is None
    clock.end()
    [(one, first_ns), (two, second_ns)] = clock.steps
    assert (one, two) == (1, 2)
    assert first_ns >= 20_000_000 and second_ns >= 10_000_000 and first_ns + second_ns <= took
    for on_gpu in (False, True):
        assert clock.step_ns(on_gpu) == round((first_ns + second_ns) / 2)
    [(_, first_start, first_end), (_, second_start, second_end)] = clock.ranges()
    assert began_unix <= first_start and second_end <= time.time_ns() and first_end == second_start
    assert (first_end - first_start, second_end - second_start) == (first_ns, second_ns)


def test_step_time_of_a_block_that_began_before_its_clock_is_unknown() -> None:
    clock = StepClock(late=True)
    clock.step(0)
    clock.end()
    assert clock.step_ns(on_gpu=False) is None


class Event:
    """Stands for a CUDA event: each is 2 ms after the one before."""

    times_ms = itertools.count(0, 2)

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.ms = next(self.times_ms)

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return float(other.ms - self.ms)


@pytest.mark.parametrize("has_context", [True, False])
def test_events_time_steps_on_a_gpu_that_the_process_uses(has_context: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event on another GPU would create a context there."""
    monkeypatch.setattr(cuda, "find", lambda path: lambda index: has_context and index == 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = StepClock(on_gpu=True)
    for number in (4, 5):
        clock.step(number)
    clock.end()
    assert [number for number, _ in clock.steps] == [4, 5]
    assert ([ns for _, ns in clock.steps] == [2_000_000, 2_000_000]) == has_context


def test_step_that_is_unlike_the_others_does_not_count() -> None:
    undisturbed, recorded = StepClock(), StepClock()
    undisturbed.steps = [(2, 20_000_000), (3, 21_000_000), (4, 900_000_000), (5, 22_000_000)]
    recorded.steps = [(7, 20_000_000), (8, 20_000_000), (9, 20_000_000), (10, 90_000_000)]
    undisturbed.end()
    recorded.end()
    said = "step 4 (undisturbed) took 900.0 ms and others 21.5 ms, perhaps the end of an epoch"
    for on_gpu, step_ns in ((False, 21_500_000), (True, None)):
        assert (undisturbed.unlike(on_gpu, "undisturbed"), undisturbed.step_ns(on_gpu)) == (said, step_ns)
    # With a GPU the last step waits for the work of all, and the mean is the step time.
    assert (recorded.unlike(True, "recorded"), recorded.step_ns(on_gpu=True)) == (None, 37_500_000)
    assert recorded.step_ns(on_gpu=False) == 20_000_000
    done = Pass(profiler="torch", ranks=[RankRecording(rank=0), RankRecording(rank=1, unlike_step=said)])
    assert unlike_note(done) == f"torch: rank 1: {said}; --warmup moves the blocks"


def test_program_has_undisturbed_steps(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLEEPS)
    ran = collect("--steps", "2", "--warmup", "2", "--detail", "light", "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    done = ran.manifest.passes[0]
    rows = read_csv(ran.folder / "torch/rank-0.step_metrics.csv")
    assert [(r["step"], r["warmup"], r["undisturbed"]) for r in rows] == [
        *[("1", "true", "true"), ("2", "true", "true")],
        *[("4", "false", "false"), ("5", "false", "false")],
    ]
    times = [float(r["step_s"]) for r in rows]
    assert min(times[:2]) >= 0.05 and min(times[2:]) >= 0.1
    [rank] = done.ranks
    assert rank.undisturbed_step_ns == pytest.approx(sum(times[:2]) / 2 * 1e9, abs=1)
    assert rank.recorded_step_ns == pytest.approx(sum(times[2:]) / 2 * 1e9, abs=1)
    assert done.counted_steps == 2 and rank.warmed_up
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    assert {n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")} == {
        "ProfilerStep#4",
        "ProfilerStep#5",
    }
    # light: no shapes. The same program with the default has them (test_collect_run).
    assert not any("Input Dims" in e.get("args", {}) for e in trace["traceEvents"])
    assert done.options["shapes"] is False and done.options["undisturbed"] == 2


def test_program_ending_within_undisturbed_steps(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLEEPS)
    ran = collect("--steps", "9", "--warmup", "2", "--", sys.executable, str(program))
    assert ran.code == 1
    assert "it took 6 optimizer steps, and --warmup is 2, --undisturbed 9" in (ran.manifest.reason or "")


def test_model_has_undisturbed_steps(collect: Collect) -> None:
    ran = collect(*CPU, "--warmup", "2", "--steps", "1", "--undisturbed", "2")
    assert ran.code == 0, ran.stderr
    rows = read_csv(ran.folder / "torch/rank-0.step_metrics.csv")
    assert [(r["warmup"], r["undisturbed"]) for r in rows] == [
        *[("true", "false"), ("true", "true"), ("true", "true"), ("true", "false"), ("false", "false")]
    ]
    times = [float(r["step_s"]) for r in rows]
    assert ran.manifest.passes[0].ranks == [
        RankRecording(
            rank=0,
            host=socket.gethostname(),
            counted_steps=1,
            undisturbed_step_ns=round((times[1] + times[2]) / 2 * 1e9),
            recorded_step_ns=round(times[4] * 1e9),
        )
    ]
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    assert {n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")} == {"ProfilerStep#4"}


def test_mean_of_no_steps_is_unknown() -> None:
    assert median_step_ns([{"warmup": "false", "undisturbed": "false", "step_s": "0.002"}], undisturbed=True) is None


def test_detail_decides_what_is_recorded() -> None:
    nothing = dict.fromkeys(("shapes", "memory", "stacks", "flops"), False)
    assert TorchOptions(detail="light").recorded() == nothing
    assert TorchOptions().recorded() == nothing | {"shapes": True}
    assert TorchOptions(detail="full").recorded() == dict.fromkeys(nothing, True)
    # What is asked for by name is what counts.
    assert TorchOptions(detail="full", stacks=False).recorded() == dict.fromkeys(nothing, True) | {"stacks": False}
    assert TorchOptions(detail="light", memory=True).recorded() == nothing | {"memory": True}
    with_timeline = {"shapes": True, "memory": True, "stacks": True, "flops": False}
    assert TorchOptions(detail="light", memory_timeline=True).recorded() == with_timeline


def test_profiler_overhead_is_reported() -> None:
    trace = RunFile(path="torch/rank-0.trace.json.gz", kind="chrome_trace", rank=0)
    ranks = [
        RankRecording(rank=0, undisturbed_step_ns=17_100_000, recorded_step_ns=22_230_000),
        RankRecording(rank=1, undisturbed_step_ns=17_100_000, recorded_step_ns=20_000_000),
        RankRecording(rank=2),
    ]
    done = Pass(profiler="torch", files=[trace], options={"shapes": True, "stacks": False}, ranks=ranks)
    # 22.23 / 17.1 = 1.3
    said = "profiler overhead per step: torch 1.30 (22.230 instead of 17.100 ms)"
    assert overhead_note([done]) == f"{said}; --detail light has less overhead"
    done.options = {"shapes": False}
    assert overhead_note([done]) == said
    # Both recordings of a run are in one line: 17.271 / 17.1 = 1.01.
    gpu_only = RankRecording(rank=1, undisturbed_step_ns=17_100_000, recorded_step_ns=17_271_000)
    gpu = Pass(profiler="gpu", files=[trace], ranks=[gpu_only])
    both = "GPU only 1.01 (17.271 instead of 17.100 ms), torch 1.30 (22.230 instead of 17.100 ms)"
    assert overhead_note([gpu, done]) == f"profiler overhead per step: {both}"
    assert overhead_note([gpu]) is None
    # 18.81 / 17.1 = 1.1, which is not more than 1.1; and a pass that records nothing has no cost.
    done.ranks = [RankRecording(rank=0, undisturbed_step_ns=17_100_000, recorded_step_ns=18_810_000)]
    assert overhead_note([done]) is None
    done.ranks, done.files = ranks, [RunFile(path="none/log.txt", kind="log")]
    assert overhead_note([done]) is None
