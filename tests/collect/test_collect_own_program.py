"""A user's unchanged program under torch.profiler."""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from collect_support import LAUNCHER, ROOT, Collect, environment, names, read_csv, read_trace, two_ranks

from collect.injected.packages import installed_packages
from schemas.manifest import RankRecording
from schemas.workload import RecordedWorkload

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
if __name__ == "__main__":  # from Python 3.14 on, a loader's process runs the rest
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(torch.randn(16, 8), batch_size=2, num_workers=1):
        model(x).sum().backward()
        optimizer.step()
    dist.destroy_process_group()
"""

APART = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(7):
    if rank == 1 and step == 2:
        time.sleep(3)
    model(torch.randn(2, 8)).sum().backward()
    if rank == 0 or sys.argv[1] == "late":
        optimizer.step()
# All gradients are there before anybody leaves: a rank that hung would keep the other here.
dist.barrier()
dist.destroy_process_group()
"""


ALONE = ["--undisturbed", "0"]
"""No steps but the warm-up before the recorded ones; the others are the subject of test_collect_undisturbed."""


HOST = socket.gethostname()


def untimed(ranks: list[RankRecording]) -> list[RankRecording]:
    """How ranks were recorded, without the times of their steps."""
    return [msgspec.structs.replace(r, undisturbed_step_ns=None, recorded_step_ns=None) for r in ranks]


Script = Callable[[str], str]
"""Writes a program and returns its path."""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(text: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(text)
        return str(path)

    return write


def test_optimizer_steps_are_counted(collect: Collect, script: Script, tmp_path: Path) -> None:
    # A sitecustomize of the user's own environment still runs, through a shell script that starts Python.
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("print('the user\\'s own sitecustomize')\n")
    (site / "Only_Here-1.2.dist-info").mkdir()
    (site / "Only_Here-1.2.dist-info/METADATA").write_text("Name: Only_Here\nVersion: 1.2\n")
    shell = tmp_path / "go.sh"
    command = shlex.join([sys.executable, script(TRAIN)])
    shell.write_text(f'PYTHONPATH="$PYTHONPATH:{site}" exec {command} "$@"\n')
    ran = collect("--steps", "2", "--warmup", "1", "--", "sh", str(shell), "6", "--epochs", "1")
    assert ran.code == 0, ran.stderr
    assert "the user's own sitecustomize" in ran.stdout
    # All arguments behind -- are the program's, options included.
    assert "'6', '--epochs', '1'" in ran.stdout
    assert ran.manifest.program == ["sh", str(shell), "6", "--epochs", "1"]
    assert ran.manifest.workload == RecordedWorkload(device=ran.manifest.workload.device)
    assert ran.manifest.torch_version
    assert ran.manifest.packages["only_here"] == "1.2" and "torch" in ran.manifest.packages
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    # What was asked is beside what was counted; a model's own fields stay empty.
    done = ran.manifest.passes[0]
    assert ran.manifest.world_size is None
    assert (done.options["steps"], done.options["warmup"], done.counted_steps) == (2, 1, 2)
    # One step before: the profiler was first turned on with the recorded ones.
    assert untimed(done.ranks) == [RankRecording(host=HOST, rank=0, counted_steps=2, warmed_up=False)]
    # Of 6 steps the first is warm-up and the next two are recorded: two backward passes of one linear layer.
    assert {n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")} == {
        "ProfilerStep#1",
        "ProfilerStep#2",
    }
    assert names(trace, "cpu_op").count("aten::linear") == 2


def test_installed_packages_are_those_of_importlib() -> None:
    expected: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        expected.setdefault(distribution.metadata["Name"].lower(), distribution.version)
    assert expected and installed_packages() == expected


def test_program_without_an_optimizer_is_recorded_whole(collect: Collect, script: Script) -> None:
    # It may look for torch before it imports it.
    text = "import importlib.util as u\nassert u.find_spec('torch')\n" + INFER
    ran = collect("--", sys.executable, script(text))
    assert ran.code == 0, ran.stderr
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    assert names(trace, "cpu_op").count("aten::mm") == 1
    # No steps were counted, and none are made up: neither in run.json nor as a range of the trace.
    assert ran.manifest.workload.steps is None and ran.manifest.passes[0].counted_steps is None
    assert ran.manifest.passes[0].ranks == [RankRecording(host=HOST, rank=0)]
    assert not [n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep")]


@pytest.mark.parametrize(
    ("command", "is_launcher"),
    [
        (["-m", "torch.distributed.run", "train.py"], True),
        (["-um", "torch.distributed.run", "--nproc-per-node=2", "train.py", "-m"], True),
        (["-mtorch.distributed.launch"], True),
        (["-X", "dev", "-W", "ignore", "{bin}/torchrun", "train.py"], True),
        (["train.py", "--launcher", "torchrun"], False),
        (["-m", "train", "torch.distributed.run"], False),
        (["-c", "pass", "torchrun"], False),
    ],
)
def test_launcher_detection(tmp_path: Path, command: list[str], is_launcher: bool) -> None:
    """As Python itself says it where sitecustomize is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfrom collect.injected.attach import is_launcher\nprint(is_launcher(), flush=True)\nos._exit(0)\n"
    )
    arguments = [a.format(bin=tmp_path) for a in command]
    variables = environment(PYTHONPATH=f"{tmp_path}:{ROOT}")
    said = subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, text=True)
    assert said.stdout == f"{is_launcher}\n", said.stderr


def test_optimizer_is_freed_with_its_model(collect: Collect, script: Script) -> None:
    text = TRAIN + "import gc, weakref\nleft = weakref.ref(model.weight)\ndel model, optimizer\ngc.collect()\n"
    program = script(text + "print('left:', left())\n")
    for steps in ("2", "6"):  # the recording is under way, and is written
        ran = collect("--steps", "2", "--warmup", "1", "--", sys.executable, program, steps)
        assert "left: None" in ran.stdout
        shutil.rmtree(ran.folder)


def test_captured_step_does_not_count(collect: Collect, script: Script) -> None:
    """Nothing runs while a CUDA graph is captured, and to wait for the GPU would end the capture."""
    captured = """
import torch
captures = False
torch.cuda.is_initialized = torch.cuda.is_current_stream_capturing = lambda: captures
weight = torch.ones(2, requires_grad=True)
weight.grad = torch.ones(2)
optimizer = torch.optim.SGD([weight], lr=0.1)
for captures in (False, True, True, False):
    optimizer.step()
captures = False
"""
    ran = collect("--warmup", "1", "--steps", "2", *ALONE, "--", sys.executable, script(captured))
    assert ran.code == 0, ran.stderr
    # Two steps run: the warm-up, and one that is recorded.
    assert ran.manifest.passes[0].counted_steps == 1


def test_failing_program_keeps_its_trace(collect: Collect, script: Script) -> None:
    ran = collect("--", sys.executable, script(FAIL))
    assert ran.code == 3
    assert ran.manifest.status == "failed"
    assert "the program exited with code 3" in (ran.manifest.reason or "")
    assert ran.manifest.passes[0].exit_code == 3
    assert names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::mm") == 1


def test_program_ending_in_warm_up_is_reported(collect: Collect, script: Script) -> None:
    # After 2 steps the profiler is about to record.
    ran = collect("--warmup", "2", *ALONE, "--", sys.executable, script(TRAIN), "2")
    assert ran.code == 1
    assert "it took 2 optimizer steps, and --warmup is 2" in (ran.manifest.reason or "")


def test_program_ending_within_recorded_steps_keeps_its_trace(collect: Collect, script: Script) -> None:
    ran = collect("--warmup", "2", "--steps", "5", *ALONE, "--", sys.executable, script(TRAIN), "4")
    assert ran.code == 0, ran.stderr
    assert ran.manifest.passes[0].ranks == [RankRecording(host=HOST, rank=0, counted_steps=2, warmed_up=True)]
    # What came behind the last step, up to the end of the program, is recorded, and is no step.
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    assert [name for _, name in step_ranges(trace)] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert names(trace, "user_annotation").count("unfinished step 4") == 1
    rows = {row["key"]: row["calls"] for row in read_csv(ran.folder / "torch/rank-0.key_averages.csv")}
    assert (rows["ProfilerStep*"], rows["unfinished step 4"]) == ("2", "1")


FORKS = """
import os, torch
child = os.fork()
if not child:
    torch.ones(3)
    os._exit(0)
os.waitpid(child, 0)
"""
KILLED = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import os, torch; torch.ones(3); os.kill(os.getpid(), 9)"])
"""
IDLE = """
import torch
optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
for _ in range(20):
    optimizer.step()
"""
SIGNALLED = """
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
def interrupt(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "prepare_trace":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(interrupt)
import torch
"""
CAUSES = {
    "a signal ended the program while its recording started": SIGNALLED,
    "no Python process of the program imported torch": "print(1)",
    "the program imported torch, but called no operator of it": "import torch",
    "a process that imported torch was killed": KILLED,
    "processes forked from a recorded one are not recorded": FORKS,
    "no operator was recorded in its steps": IDLE,
}


@pytest.mark.parametrize("cause", CAUSES)
def test_why_nothing_was_recorded(cause: str, collect: Collect, script: Script) -> None:
    ran = collect("--", sys.executable, script(CAUSES[cause]))
    assert ran.code == 1 and ran.manifest.passes[0].exit_code == 0
    assert cause in (ran.manifest.reason or "")


def test_program_without_the_recorder(collect: Collect) -> None:
    ran = collect("--", "env", "-u", "PYTHONPATH", "true")
    assert ran.code == 1 and "a script replaces or clears PYTHONPATH" in (ran.manifest.reason or "")


def test_torchrun(collect: Collect, script: Script) -> None:
    ran = collect("--steps", "2", "--warmup", "1", "--", *LAUNCHER, "--nproc-per-node=2", script(DISTRIBUTED))
    assert ran.code == 0, ran.stderr
    # One trace for each rank; none of the launcher, none of the data loaders' processes.
    traces = sorted(f.path for f in ran.manifest.passes[0].files if f.kind == "chrome_trace")
    assert traces == ["torch/rank-0.trace.json.gz", "torch/rank-1.trace.json.gz"]
    for path in traces:
        assert names(read_trace(ran.folder / path), "cpu_op").count("aten::linear") == 2
    assert ran.manifest.world_size == 2 and ran.manifest.passes[0].counted_steps == 2


def step_ranges(trace: dict[str, Any]) -> list[tuple[float, str]]:
    """(start in us since the epoch, name) of the steps, in order."""
    base = trace["baseTimeNanoseconds"] / 1e3
    return sorted(
        (base + e["ts"], e["name"])
        for e in trace["traceEvents"]
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")
    )


def test_ranks_start_together_after_warm_up(collect: Collect, script: Script) -> None:
    # Nothing in the program makes rank 0 wait for rank 1, which is 3 s late in the last warm-up step.
    ran = collect("--steps", "3", "--warmup", "3", *ALONE, "--", *two_ranks(script(APART), "late"))
    assert ran.code == 0, ran.stderr
    traces = [read_trace(ran.folder / f"torch/rank-{rank}.trace.json.gz") for rank in (0, 1)]
    steps = [step_ranges(trace) for trace in traces]
    assert [[name for _, name in its] for its in steps] == [["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]] * 2
    assert abs(steps[0][0][0] - steps[1][0][0]) < 0.5e6
    for trace, its in zip(traces, steps, strict=True):
        # The warm-up step and the wait are not in the recording, and nothing of the program before its first step.
        assert names(trace, "cpu_op").count("aten::linear") == 3
        first = min(e["ts"] for e in trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation"))
        assert first + trace["baseTimeNanoseconds"] / 1e3 == its[0][0]
        assert not any("barrier" in e.get("name", "") for e in trace["traceEvents"])
    recorded = untimed(ran.manifest.passes[0].ranks)
    assert recorded == [RankRecording(host=HOST, rank=r, counted_steps=3, warmed_up=True, aligned=True) for r in (0, 1)]
    assert ran.manifest.passes[0].counted_steps == 3


def test_rank_that_never_steps_does_not_block_others(collect: Collect, script: Script) -> None:
    ran = collect("--steps", "3", "--warmup", "3", *ALONE, "--", *two_ranks(script(APART), "never"))
    assert ran.code == 0, ran.stderr
    stepping, whole = ran.manifest.passes[0].ranks
    assert (stepping.counted_steps, stepping.warmed_up, stepping.aligned) == (3, True, False)
    assert stepping.note == "1 of 2 ranks arrived within 10 s"
    assert whole == RankRecording(host=HOST, rank=1)
    # Rank 0 holds 3 steps, rank 1 all 7: no number is right for both.
    assert ran.manifest.passes[0].counted_steps is None and ran.manifest.world_size == 2
    assert len(step_ranges(read_trace(ran.folder / "torch/rank-0.trace.json.gz"))) == 3
    assert names(read_trace(ran.folder / "torch/rank-1.trace.json.gz"), "cpu_op").count("aten::linear") == 7
