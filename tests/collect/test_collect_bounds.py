"""Limits of events and seconds end a recording; the program continues."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from collect_support import CPU, Collect, names, read_csv, read_trace, wait_for

from collect.injected.bounds import Bounds
from collect.injected.trace_files import write_recording

MANY_CALLS = """
import time, torch
torch.zeros(3)
time.sleep(1.5)
torch.ones(3)  # after --seconds 1, before the first call of a module
model = torch.nn.Linear(8, 4)
x = torch.ones(1, 8)
for _ in range(8_000):
    model(x)
print("through")
"""
MANY_OPERATORS = """
import time, torch
model = torch.nn.Linear(8, 4)
x = torch.ones(1, 8)
for _ in range(10_000):
    model(x)
    for _ in range(50):
        x.add(x)
    time.sleep(1e-4)  # on a busy machine, the thread that ends the recording waits long for the GIL
print("through")
"""
LARGE_STEP = """
import time, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    for _ in range(500 if step == 2 else 1):
        y = model(torch.randn(2, 8))
    time.sleep(0.3 if step == 2 else 0)
    y.sum().backward()
    optimizer.step()
print("through")
"""


def test_recording_of_many_calls_ends(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MANY_CALLS)
    ran = collect("--seconds", "1", "--max-events", "24000", "--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "through\n", ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    # A slow machine may reach the other bound first.
    assert rank.ended_after in ("about 24,000 events (--max-events)", "1 s (--seconds)")
    assert f"the recording ended after {rank.ended_after}; the program went on" in ran.stderr
    called = names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op")
    # What was recorded before the first call of a module is dropped where a bound had ended it.
    assert not called.count("aten::zeros") and not called.count("aten::ones")
    assert 0 < called.count("aten::linear") < 8_000


def test_operators_outside_of_modules_count(collect: Collect, tmp_path: Path) -> None:
    """By the calls of modules alone, 40,000 events would be 6,667 calls with the 353,000 operators around them."""
    (program := tmp_path / "program.py").write_text(MANY_OPERATORS)
    ran = collect("--max-events", "40000", "--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "through\n", ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    assert rank.ended_after == "about 40,000 events (--max-events)"
    called = names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op")
    assert 40_000 < len(called) < 250_000


@pytest.mark.parametrize(("calls", "averaged"), [(1000, True), (20_000, False)])
def test_large_recordings_have_no_averages(calls: int, averaged: bool, tmp_path: Path) -> None:
    """A call is three operators. The trace has what 60,000 of them would take 4 s to add up."""
    x = torch.ones(2, 2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(calls):
            x.t()
    assert write_recording(profile, tmp_path, "rank-0")
    assert names(read_trace(tmp_path / "rank-0.trace.json.gz"), "cpu_op").count("aten::t") == calls
    assert (tmp_path / "rank-0.key_averages.csv").exists() == averaged


GROWS = """
import time, torch
kept = torch.ones(175_000_000)
time.sleep(7)
print("through")
"""


def test_recording_ends_when_the_program_grows(collect: Collect, tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(GROWS)
    ran = collect("--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "through\n", ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    # On a small machine, what the end of the recording may take is reached before.
    assert any(
        s in str(rank.ended_after) for s in ("in which the process grew by", "could take all memory that is left")
    )


def test_recording_ends_within_a_step(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LARGE_STEP)
    options = ["--warmup", "1", "--steps", "4", "--max-events", "600"]
    ran = collect(*options, "--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "through\n", ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    assert rank.ended_after == "about 600 events (--max-events)"
    # Step 2, in which the bound was reached, is not whole.
    assert rank.counted_steps == 1
    ranges = names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "user_annotation")
    assert [n for n in ranges if "tep" in n and not n.startswith("Optim")] == ["ProfilerStep#1", "unfinished step 2"]


def test_recording_of_a_model_ends_within_its_steps(collect: Collect) -> None:
    """A step of squeezenet1_1 calls 65 modules: it counts as at least 65 x 6 events, and at most 5 times as many."""
    ran = collect(*CPU, "--steps", "100", "--undisturbed", "0", "--max-events", "3000")
    assert ran.code == 0, ran.stderr
    assert "torch: the recording ended after about 3,000 events (--max-events); the program went on" in ran.stderr
    [done] = ran.manifest.passes
    [rank] = done.ranks
    assert rank.ended_after == "about 3,000 events (--max-events)" and done.options["max_events"] == 3000
    assert 0 < (rank.counted_steps or 0) < 100
    ranges = names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "user_annotation")
    assert sum(name.startswith("ProfilerStep#") for name in ranges) == rank.counted_steps
    # Only steps that were recorded have times, behind the step of the warm-up.
    rows = read_csv(ran.folder / "torch/rank-0.step_metrics.csv")
    assert [row["warmup"] for row in rows] == ["true", *["false"] * (rank.counted_steps or 0)]


def test_bounds_without_counting_are_those_of_time() -> None:
    said: list[str] = []
    bounds = Bounds(None, 1, False, lambda: said.append("pause"), None)
    wait_for(lambda: said, "the end of a second")
    assert bounds.reason == "1 s (--seconds)" and not bounds.called_modules
    bounds.stop()


def test_bounds_without_counting_begin_anew_at_the_first_module() -> None:
    said: list[str] = []
    bounds = Bounds(None, 1, False, lambda: said.append("pause"), lambda: said.append("resume"))
    wait_for(lambda: said, "the end of a second")
    torch.nn.Linear(2, 2)(torch.ones(1, 2))
    assert said == ["pause", "resume"] and bounds.reason is None and bounds.called_modules
    wait_for(lambda: said[2:], "the end of another second")
    bounds.stop()


COMPILED = """
import torch, torch._dynamo
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(16):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
print(torch._dynamo.utils.counters["stats"]["unique_graphs"] - compiled)
"""


BREAKS = """
import torch, torch._dynamo
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        x = self.layer(x)
        torch._dynamo.graph_break()
        return self.layer(x)
model = torch.nn.Sequential(Model(), torch.nn.Linear(8, 8))
torch.compile(model, backend="eager")(torch.ones(2, 8))
print(*{metrics.co_filename for metrics in torch._dynamo.utils.get_compilation_metrics()})
"""


def test_hooks_of_modules_are_not_compiled(collect: Collect, tmp_path: Path) -> None:
    """Around the break of a graph, torch.compile compiles each function that is called, so a hook of modules, too."""
    (program := tmp_path / "program.py").write_text(BREAKS)
    ran = collect("--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    compiled = ran.stdout.split()
    assert str(program) in compiled and not [path for path in compiled if "injected" in path]


def test_recording_steps_compiles_nothing_anew(collect: Collect, tmp_path: Path) -> None:
    """A hook of modules would: a recorded step of seconds."""
    program = tmp_path / "program.py"
    program.write_text(COMPILED)
    ran = collect("--steps", "3", "--warmup", "3", "--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "0\n", ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    assert rank.counted_steps == 3
