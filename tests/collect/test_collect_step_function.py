"""Programs without an optimizer: calls of a function that the user names are steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from collect_support import Collect, names, read_trace

from collect.option_checks import make_options
from schemas.errors import InputError

INFERS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
def predict(x, again=True):
    if again:
        predict(x, again=False)
    return model(x)
for _ in range(9):
    predict(torch.ones(1, 8))
    torch.zeros(3)
"""


CASES = [("__main__:predict", 3 * 4, 3), ("torch.nn:Module.__call__", 3 * 2, 1)]
"""Functions, and the operators that three of their calls take."""


@pytest.mark.parametrize(("name", "linears", "zeros"), CASES)
def test_calls_of_a_function_are_steps(name: str, linears: int, zeros: int, collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INFERS)
    options = ["--warmup", "2", "--steps", "3", "--step-function", name]
    ran = collect(*options, "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    [rank] = ran.manifest.passes[0].ranks
    assert (rank.counted_steps, rank.warmed_up) == (3, True) and rank.undisturbed_step_ns and rank.recorded_step_ns
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    called = names(trace, "cpu_op")
    # A call inside another is no step of its own.
    assert (called.count("aten::linear"), called.count("aten::zeros")) == (linears, zeros)
    assert len([n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")]) == 3


def test_step_function_that_is_never_called(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INFERS)
    ran = collect("--step-function", "__main__:train", "--", sys.executable, str(program))
    assert ran.code == 1 and ran.manifest.passes[0].exit_code == 0
    assert (ran.manifest.reason or "").endswith("no process of the program called the function of --step-function")


COMPILED = """
import torch
from torch._inductor.async_compile import AsyncCompile, _pool_set
model = torch.compile(torch.nn.ReLU())
def step():
    return model(torch.ones(4))
for _ in range(7):
    step()
AsyncCompile.warm_pool()  # as for a GPU
AsyncCompile.wait_pool_ready()
print(len(_pool_set))
"""


def test_process_that_compiles_is_no_failure(collect: Collect, tmp_path: Path) -> None:
    """inductor's process of workers imports torch, and calls nothing."""
    (program := tmp_path / "program.py").write_text(COMPILED)
    options = ["--warmup", "2", "--steps", "2", "--step-function", "__main__:step"]
    ran = collect(*options, "--", sys.executable, str(program), TORCHINDUCTOR_COMPILE_THREADS="2")
    assert ran.code == 0 and ran.stdout == "1\n", ran.stderr
    [done] = ran.manifest.passes
    assert done.counted_steps == 2 and done.note is None


def test_a_note_if_no_optimizer_step_was_counted(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INFERS)
    ran = collect("--steps", "2", "--", sys.executable, str(program))
    assert ran.code == 0 and "--steps and --warmup did not apply, since no optimizer stepped" in ran.stderr
    ran = collect("--steps", "2", "--profiler", "none", "--", "true", output=tmp_path / "none")
    assert "none: no steps were timed" in ran.stderr


def test_bad_names_of_a_function() -> None:
    with pytest.raises(InputError, match="--step-function: invalid value 'train'; expected MODULE:FUNCTION"):
        make_options({"program": ("true",), "step_function": "train"})
    with pytest.raises(InputError, match="--step-function: needs a program of your own"):
        make_options({"model": "alexnet", "step_function": "a:b"})
