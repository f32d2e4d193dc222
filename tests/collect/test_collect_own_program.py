"""A program of the user's own, unchanged, under torch.profiler."""

from __future__ import annotations

import sys

import pytest
from collect_support import names, read_trace

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", sys.argv)
"""
INFER = "import torch\nprint(torch.randn(4, 4) @ torch.randn(4, 4))\n"
FAIL = INFER + "raise SystemExit(3)\n"
DISTRIBUTED = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(16, 8), batch_size=2, num_workers=1):
    model(x).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return str(path)

    return write


def test_optimizer_steps_are_counted(collect, script, tmp_path):
    # A sitecustomize of the user's own environment still runs, through a shell script that starts Python.
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('the user\\'s own sitecustomize')\n")
    shell = tmp_path / "go.sh"
    shell.write_text(f'PYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} {script(TRAIN)} "$@"\n')
    ran = collect("--steps", "2", "--warmup", "1", "--", "sh", str(shell), "6", "--epochs", "1")
    assert ran.code == 0, ran.stderr
    assert "the user's own sitecustomize" in ran.stderr
    # All arguments behind -- are the program's, options included.
    assert "'6', '--epochs', '1'" in ran.stderr
    assert ran.manifest.program == ["sh", str(shell), "6", "--epochs", "1"]
    assert (ran.manifest.model, ran.manifest.batch_size) == (None, None)
    assert ran.manifest.torch_version
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    # Of 6 steps the first is warm-up and the next two are recorded: two backward passes of one linear layer.
    assert {n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")} == {
        "ProfilerStep#1",
        "ProfilerStep#2",
    }
    assert names(trace, "cpu_op").count("aten::linear") == 2


def test_program_without_an_optimizer_is_recorded_whole(collect, script):
    ran = collect("--", sys.executable, script(INFER))
    assert ran.code == 0, ran.stderr
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    assert names(trace, "cpu_op").count("aten::mm") == 1


def test_failing_program_keeps_its_trace(collect, script):
    ran = collect("--", sys.executable, script(FAIL))
    assert ran.code == 1
    assert ran.manifest.status == "failed"
    assert "the program exited with code 3" in ran.manifest.reason
    assert ran.manifest.passes[0].exit_code == 3
    assert names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::mm") == 1


def test_program_that_ends_in_warm_up(collect, script):
    ran = collect("--warmup", "9", "--", sys.executable, script(TRAIN), "2")
    assert ran.code == 1
    assert "it took 2 optimizer steps, and --warmup is 9" in ran.manifest.reason


def test_program_without_torch(collect):
    ran = collect("--", sys.executable, "-c", "print('hello')")
    assert ran.code == 1 and "no trace was recorded" in ran.manifest.reason


def test_torchrun(collect, script):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    ran = collect("--steps", "2", "--warmup", "1", "--", *launcher, "--nproc-per-node=2", script(DISTRIBUTED))
    assert ran.code == 0, ran.stderr
    # One trace for each rank; none of the launcher, none of the data loaders' processes.
    traces = sorted(f.path for f in ran.manifest.passes[0].files if f.kind == "chrome_trace")
    assert traces == ["torch/rank-0.trace.json.gz", "torch/rank-1.trace.json.gz"]
    for path in traces:
        assert names(read_trace(ran.folder / path), "cpu_op").count("aten::linear") == 2
