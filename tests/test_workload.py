"""The query `workload`: what a recording is of, and what shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES
from traces import event, kernel, launch, write_trace

import analyze


def kinds(path: Path) -> dict[str, str]:
    return {r["kind"]: r["evidence"] for r in analyze.open(path).query("workload").dicts()}


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        # sample_traces/README.md says what each program does.
        ("resnet18-1gpu", {"training"}),
        ("lm-compiled", {"training", "compiled"}),
        ("cuda-graph", {"training", "CUDA graphs"}),
        ("generate", {"inference", "prefill", "decode"}),
        ("pipeline-4gpu", {"training", "pipeline"}),
        ("expert-4gpu", {"training", "experts"}),
        ("matmuls", {"counters only"}),
    ],
)
def test_kinds_of_samples(sample: str, expected: set[str]) -> None:
    assert set(kinds(SAMPLES / sample)) == expected


def test_evidence_counts() -> None:
    # examples/generate.py --tokens 12: one pass over the prompt of 128 tokens makes the first, 11 passes the others.
    found = kinds(SAMPLES / "generate")
    assert (found["prefill"], found["decode"]) == ("steps: 1, tokens: 128", "steps: 11, tokens: 11")
    # examples/cuda_graph.py replays once a step, of which 3 were recorded.
    assert kinds(SAMPLES / "cuda-graph")["CUDA graphs"].startswith("replays: 3,")
    # The collector profiled 12 launches (--ncu-launches 12).
    assert kinds(SAMPLES / "alexnet-roofline") == {"counters only": "kernels with counters: 12; no timeline"}


def test_recordings_without_gpu_work(tmp_path: Path) -> None:
    linear = event("cpu_op", "aten::linear", 0, 10)
    write_trace(tmp_path / "a" / "t.json", [linear])
    assert kinds(tmp_path / "a") == {
        "inference": "operators of a forward pass: 1; no backward pass",
        "CPU only": "operators: 1; no GPU work",
    }
    # Launches without kernels: the GPU worked, though its work is not there.
    write_trace(tmp_path / "b" / "t.json", [linear, launch(2, 1)])
    assert set(kinds(tmp_path / "b")) == {"inference"}


def test_kernels_of_recordings_without_operators(tmp_path: Path) -> None:
    write_trace(tmp_path / "a" / "t.json", [kernel("layer_norm_grad_input_kernel_backward", 0, 10)])
    assert set(kinds(tmp_path / "a")) == {"training"}
    write_trace(tmp_path / "b" / "t.json", [kernel("vllm::reshape_and_cache_flash_kernel<bf16>", 0, 10)])
    assert set(kinds(tmp_path / "b")) == {"inference"}
    # A product alone says nothing.
    write_trace(tmp_path / "c" / "t.json", [kernel("sm90_gemm", 0, 10), event("cpu_op", "aten::mm", 0, 5)])
    assert kinds(tmp_path / "c") == {}
