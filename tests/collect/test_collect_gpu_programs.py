"""Programs that use a GPU in less usual ways: they run as without `collect`, and are recorded."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest
from collect_support import GPUS, TINY, Collect, Ran, names, needs_gpu, read_csv, read_trace

from schemas.manifest import read_manifest

pytestmark = needs_gpu

WORK = """
import multiprocessing, os, sys, threading, torch
def infer(times=3):
    model = torch.nn.Linear(64, 64, device="cuda")
    with torch.no_grad():
        for _ in range(times):
            model(torch.ones(8, 64, device="cuda"))
    torch.cuda.synchronize()
    print("inferred", flush=True)
def train(steps=7):
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        optimizer.step()
    print("trained", flush=True)
def train_in_backward(steps=7):
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in optimizers:
        p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step() or optimizers[p].zero_grad())
    for _ in range(steps):
        model(torch.ones(8, 64, device="cuda")).sum().backward()
    print("trained", flush=True)
def join(rank, store):
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(rank % gpus)
    backend = "nccl" if gpus > 1 else "gloo"
    torch.distributed.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=2)
    torch.distributed.all_reduce(torch.ones(1, device="cuda"))
    train()
    torch.distributed.destroy_process_group()
def processes(method, target, *arguments):
    context = multiprocessing.get_context(method)
    started = [context.Process(target=target, args=(*a,)) for a in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert not any(process.exitcode for process in started)
"""
MAIN = "if __name__ == '__main__':\n    "
FORK = """
child = os.fork()
if not child:
    infer()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
STEPS = ["--warmup", "2", "--steps", "3", "--undisturbed", "0", "--gpu-steps", "0", "--detail", "light"]
PRODUCT = "aten::addmm"
CASES = {
    # What the program does, and the products that each recording has.
    "inference": ("infer()", [3]),
    "inference of a child that was forked": (FORK, [3]),
    "inference of processes that were forked": (MAIN + "processes('fork', infer, [1], [2])", [1, 2]),
    "inference of processes that were spawned": (MAIN + "processes('spawn', infer, [1], [2])", [1, 2]),
    "inference in a thread": ("t = threading.Thread(target=infer)\nt.start()\nt.join()", [3]),
    "inference on the CPU": ("torch.nn.Linear(8, 4)(torch.ones(2, 8))", [1]),
    "training": ("train()", [3]),
    "training with optimizers that step in the backward pass": ("train_in_backward()", [3]),
    "training in a thread": ("t = threading.Thread(target=train)\nt.start()\nt.join()", [3]),
    "ranks that were forked": (MAIN + "processes('fork', join, [0, sys.argv[1]], [1, sys.argv[1]])", [3, 3]),
    "ranks that were spawned": (MAIN + "processes('spawn', join, [0, sys.argv[1]], [1, sys.argv[1]])", [3, 3]),
}


@pytest.fixture
def collect(collect: Collect) -> Collect:
    """Runs `collect run` where GPUs are visible."""
    return functools.partial(collect, **GPUS)


@pytest.mark.parametrize("case", CASES)
def test_recorded(case: str, collect: Collect, tmp_path: Path) -> None:
    text, products = CASES[case]
    program = tmp_path / "program.py"
    program.write_text(WORK + text + "\n")
    ran = collect(*STEPS, "--", sys.executable, str(program), str(tmp_path / "store"))
    assert ran.code == 0, ran.stderr
    # Processes that say nothing of each other are runs of their own.
    runs = sorted(p for p in ran.output.iterdir() if p.is_dir())
    passes = [(run, read_manifest(run).passes[0]) for run in runs]
    traces = [read_trace(run / f.path) for run, done in passes for f in done.files if f.kind == "chrome_trace"]
    assert sorted(names(trace, "cpu_op").count(PRODUCT) for trace in traces) == products
    if "CPU" not in case:
        assert all(names(trace, "kernel") for trace in traces)
    assert len(runs) == (2 if case.startswith("inference of processes") else 1)
    assert all(done.note is None for _, done in passes)


def test_operators_of_the_cpu_alone(collect: Collect) -> None:
    """Nothing tells that they begin."""
    ran = collect("--", sys.executable, "-c", "import torch; torch.ones(3) + 1")
    assert ran.code == 1 and "no process used CUDA, a process group, a module or an optimizer" in (
        ran.manifest.reason or ""
    )


def test_steps_without_a_warm_up(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORK + "train()\n")
    ran = collect("--warmup", "0", "--steps", "3", "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    steps = sorted(name for name in names(trace, "user_annotation") if name.startswith("ProfilerStep"))
    assert steps == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert names(trace, "cpu_op").count(PRODUCT) == 3


def test_program_with_its_own_profiler(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        WORK + "with torch.profiler.profile() as p:\n    infer()\n"
        "print('theirs:', sum(e.count for e in p.key_averages() if e.key == 'aten::addmm'))\n"
    )
    ran = collect(*STEPS, "--", sys.executable, str(program))
    assert ran.code == 1 and "theirs: 3" in ran.stdout and ran.manifest.passes[0].exit_code == 0
    assert "the program runs a torch.profiler of its own" in (ran.manifest.reason or "")


def kernels(trace: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """Name and grid of the kernels, in order."""
    found = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    return [(e["name"], e["args"]["grid"]) for e in sorted(found, key=lambda e: float(e["ts"]))]


def steps_of(trace: dict[str, Any]) -> list[str]:
    return sorted(name for name in names(trace, "user_annotation") if name.startswith("ProfilerStep"))


def check_both_blocks(ran: Ran, gpu_steps: list[str], steps: list[str]) -> None:
    """Two steps GPU only, then two of all, have the same kernels."""
    assert ran.code == 0, ran.stderr
    gpu, full = ran.manifest.passes
    assert (gpu.profiler, gpu.status, full.profiler, full.status) == ("gpu", "done", "torch", "done")
    assert gpu.options["recorder"].startswith(("cupti-python", "torch.profiler"))
    for done in (gpu, full):
        [rank] = done.ranks
        assert done.counted_steps == 2 and rank.undisturbed_step_ns and rank.recorded_step_ns
    gpu_trace, trace = (read_trace(ran.folder / f"{name}/rank-0.trace.json.gz") for name in ("gpu", "torch"))
    assert (steps_of(gpu_trace), steps_of(trace)) == (gpu_steps, steps)
    assert not names(gpu_trace, "cpu_op") and kernels(gpu_trace) == kernels(trace) != []


def test_blocks_of_a_training(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORK + "train(12)\n")
    ran = collect("--warmup", "2", "--steps", "2", "--", sys.executable, str(program))
    check_both_blocks(ran, ["ProfilerStep#4", "ProfilerStep#5"], ["ProfilerStep#7", "ProfilerStep#8"])


def test_blocks_of_a_model(collect: Collect) -> None:
    ran = collect(*TINY[:-2], "--warmup", "2")
    check_both_blocks(ran, ["ProfilerStep#4", "ProfilerStep#5"], ["ProfilerStep#7", "ProfilerStep#8"])


@pytest.mark.parametrize("text", ["infer()", "train(12)"])
def test_gpu_only_pass(text: str, collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORK + text + "\n")
    ran = collect("--profiler", "gpu,torch", "--warmup", "2", "--steps", "2", "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    gpu_trace, trace = (read_trace(ran.folder / f"{name}/rank-0.trace.json.gz") for name in ("gpu", "torch"))
    assert not names(gpu_trace, "cpu_op") and kernels(gpu_trace) == kernels(trace) != []
    assert steps_of(gpu_trace) == steps_of(trace) == (["ProfilerStep#4", "ProfilerStep#5"] if "train" in text else [])


RUNS_AHEAD = """
import torch
weight = torch.zeros(4096, 4096, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
factor = torch.randn(4096, 4096, device="cuda")
for step in range(12):
    for _ in range(10 if step < 7 else 30):
        factor @ factor
    weight.grad = factor
    optimizer.step()
"""


def test_undisturbed_step_is_timed_by_the_gpu(collect: Collect, tmp_path: Path) -> None:
    """The host is ahead: it issues a step in a fraction of the time. Of ten steps the last five have three times the
    work.
    """
    program = tmp_path / "program.py"
    program.write_text(RUNS_AHEAD)
    ran = collect("--profiler", "none", "--warmup", "3", "--undisturbed", "10", "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    rows = [r for r in read_csv(ran.folder / "none/rank-0.step_metrics.csv") if r["undisturbed"] == "true"]
    steps = [float(r["step_s"]) for r in rows]
    assert len(steps) == 10
    little, much = sorted(steps[:5])[2], sorted(steps[5:])[2]
    assert 2.5 < much / little < 3.5
    assert max(steps) < 2 * much
    [rank] = ran.manifest.passes[0].ranks
    assert rank.undisturbed_step_ns == pytest.approx(1e9 * sum(steps) / 10, rel=1e-3)
