"""The programs in examples/ run at sizes for a CPU, and queries answer from their recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from collect_support import GPUS, ROOT, Collect, environment, needs_gpu

import analyze
from analyze import Traces

EXAMPLES = ROOT / "examples"
TINY = "--layers 1 --width 16 --tokens 8"
RANKS = {
    "eager": f"1 language_model.py --steps 3 {TINY}",
    "compiled": f"1 language_model.py --steps 3 {TINY} --compile aot_eager",
    "ddp": "2 ddp.py --steps 3 --width 8 --slow-rank 1",
    "fsdp_tp": "4 parallel/fsdp_tp.py --steps 3 --tp 2 --layers 2 --width 8 --rows 4",
    "pipeline": "3 parallel/pipeline.py --steps 3 --microbatches 4 --layers 1 --width 8 --rows 4",
    "pipeline_2x2": "4 parallel/pipeline_2x2.py --steps 3 --microbatches 2 --layers 1 --width 8 --rows 4",
    "expert": "2 parallel/expert.py --steps 3 --blocks 2 --width 8 --tokens 8",
}
"""Ranks, program and arguments."""

CALLS: dict[str, dict[str, int]] = {
    # One activation of one block a step.
    "eager": {"aten::gelu": 3},
    "compiled": {"CompiledFunction": 3, "CompiledFunctionBackward": 3},
    # 2 ranks x 3 steps, one bucket of gradients.
    "ddp": {"c10d::allreduce_": 2 * 3},
    # 4 ranks x 3 steps x 2 blocks: parameters before each pass, gradients after the second.
    "fsdp_tp": {"c10d::_allgather_base_": 4 * 3 * 2 * 2, "c10d::_reduce_scatter_base_": 4 * 3 * 2},
    # 2 borders between 3 stages x 2 directions x 4 microbatches x 3 steps.
    "pipeline": {"c10d::send": 2 * 2 * 4 * 3, "c10d::recv_": 2 * 2 * 4 * 3},
    # 2 pipelines x 2 directions x 2 microbatches x 3 steps.
    "pipeline_2x2": {"c10d::send": 2 * 2 * 2 * 3, "c10d::recv_": 2 * 2 * 2 * 3},
    # 2 ranks x 3 steps x 2 blocks x 2 ways x 2 passes, but nothing goes back to the tokens of the first block.
    "expert": {"c10d::alltoall_base_": 2 * 3 * (2 * 2 * 2 - 1)},
}
"""Calls of operators over all ranks, counted by hand."""


def calls(traces: Traces) -> dict[str, int]:
    """How often each operator is called."""
    return {row["name"]: row["calls"] for row in traces.query("calls", params={"kind": "op"}).dicts()}


def python(*arguments: str | Path, **extra: str) -> None:
    """`python ARGUMENTS`, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment(**extra), timeout=400
    )
    assert done.returncode == 0, done.stderr


def test_every_example_has_a_test() -> None:
    programs = {p.relative_to(EXAMPLES).as_posix() for p in EXAMPLES.rglob("*.py")}
    forked = {command.split()[1] for command in RANKS.values()}
    alone = {"train.py", "generate.py", "own_profiler.py", "cuda_graph.py", "serving/loop.py"}
    alone |= {f"serving/{module}.py" for module in ("decoder", "paged_model", "request")}
    asking = {"compare_two_runs.py", "many_runs.py"}  # tests/test_examples.py
    assert programs == forked | alone | asking
    text = (EXAMPLES / "README.md").read_text("utf-8")
    assert [p for p in sorted(programs) if f"]({p})" not in text] == []
    assert [p for p in sorted(programs) if len((EXAMPLES / p).read_text("utf-8").splitlines()) > 80] == []


def test_training_loop(collect: Collect) -> None:
    program = [sys.executable, str(EXAMPLES / "train.py"), "--steps", "4", "--batch-size", "2", "--width", "4"]
    ran = collect("--steps", "2", "--warmup", "1", "--", *program)
    assert ran.code == 0, ran.stderr
    with analyze.open(ran.folder) as traces:
        assert traces.query("steps").arrow().num_rows == 2
        assert calls(traces)["aten::conv2d"] == 2 * 2  # two layers in two steps


def test_generation(collect: Collect) -> None:
    program = [sys.executable, str(EXAMPLES / "generate.py"), "--prompt", "8", *TINY.split()]
    ran = collect("--", *program)
    assert ran.code == 0, ran.stderr
    with analyze.open(ran.folder) as traces:
        ranges = {row["name"]: row["instances"] for row in traces.query("nvtx").dicts()}
    # 8 tokens, the first of which comes from the prompt.
    assert (ranges["prefill"], ranges["decode"]) == (1, 7)


def test_serving_loop(tmp_path: Path) -> None:
    clock = tmp_path / "clock.json"
    size = ["--requests", "3", "--batch", "2", "--prompt", "8", "--tokens", "6", "--layers", "1", "--width", "64"]
    program: list[str | Path] = [EXAMPLES / "serving" / "loop.py", *size, "--clock", clock]
    python(ROOT / "tests/data/forked_examples.py", tmp_path / "out", "1", *program)
    own = json.loads(clock.read_text("utf-8"))
    with analyze.open(tmp_path / "out" / "0") as traces:
        [row] = traces.query("throughput", params={"window": "all"}).dicts()
        assert {r["kind"] for r in traces.query("serving").dicts()} == {"prefill", "decode"}
    assert (row["prompt_tokens"], row["generated_tokens"]) == (own["prompt"], own["generated"])
    # Its clock starts before the first step and stops after the last one; the machine may do something else in between.
    assert 0 < row["span_ns"] <= 1e9 * own["seconds"]


def test_own_profiler(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    python(EXAMPLES / "own_profiler.py", "--width", "8", "-o", trace)
    with analyze.open(trace) as traces:
        assert traces.query("steps").arrow().num_rows == 3
        assert calls(traces)["aten::linear"] == 3 * 4


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of RANKS with its traces."""
    folder = tmp_path_factory.mktemp("examples")
    jobs: list[str | Path] = []
    for ranks, program, *arguments in map(str.split, RANKS.values()):
        jobs += [ranks, EXAMPLES / program, *arguments, "--"]
    python(ROOT / "tests/data/forked_examples.py", folder, *jobs)
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", RANKS)
def test_ranks_example(forked: Path, tmp_path: Path, name: str) -> None:
    folder = forked / str(list(RANKS).index(name))
    analyze.ingest(*sorted(folder.glob("*.json")), store=tmp_path / "store", as_one_run=True)
    with analyze.open(tmp_path / "store") as traces:
        found = calls(traces)
        [(ranks,)] = traces.query("runs", select="ranks").rows()
    assert ranks == int(RANKS[name].split()[0])
    assert {operator: found.get(operator) for operator in CALLS[name]} == CALLS[name]


@needs_gpu
def test_cuda_graph(tmp_path: Path) -> None:
    example: list[str | Path] = ["1", EXAMPLES / "cuda_graph.py", "--steps", "3"]
    python(ROOT / "tests/data/forked_examples.py", tmp_path / "out", *example, **GPUS)
    with analyze.open(tmp_path / "out" / "0") as traces:
        apis = {row["name"]: row["calls"] for row in traces.query("cuda-api").dicts()}
    assert apis["cudaGraphLaunch"] == 3
