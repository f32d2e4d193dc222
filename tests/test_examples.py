"""The programs in examples/ that query. Those that train are in tests/collect/test_collect_examples.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import run_python
from support import ROOT, SAMPLES
from traces import kernel, write_trace

import analyze


def example(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_python(*arguments, cwd=ROOT / "examples")


def test_guard_example(tmp_path: Path) -> None:
    before, after = (write_trace(tmp_path / n / "t.json", [kernel("k", 0, dur)]) for n, dur in (("a", 10), ("b", 12)))
    slower = example("compare_two_runs.py", before, after)
    # 10 to 12 us: a fifth more.
    assert slower.returncode == 1 and slower.stderr.splitlines()[-1].startswith("slower: kernel_time > 5%: ")
    assert "(+20 %)" in slower.stderr and "changed" in slower.stdout
    assert example("compare_two_runs.py", after, before).returncode == 0
    assert example("compare_two_runs.py", before, after, "--fail-if", "kernel_time > 30%").returncode == 0
    missing = example("compare_two_runs.py", before, tmp_path / "none")
    assert missing.returncode == 1 and missing.stderr.startswith("error: ") and "Traceback" not in missing.stderr


@pytest.mark.parametrize("options", [[], ["--polars"]])
def test_study_example(options: list[str]) -> None:
    if options:
        pytest.importorskip("polars", reason="needs the package polars (the dev extra has it)")
    done = example("many_runs.py", SAMPLES, *options)
    assert done.returncode == 0, done.stderr
    # Of each model the recordings of one GPU and of two (sample_traces/README.md).
    assert [done.stdout.count(model) for model in ("alexnet", "resnet18", "vgg16")] == (
        [2, 2, 1] if options else [1] * 3
    )


def test_own_query_example(tmp_path: Path) -> None:
    rules = [("ampere_sgemm_a", 2), ("ampere_sgemm_b", 5), ("ampere_sgemm_c", 6)]
    trace = write_trace(tmp_path / "t.json", [kernel(n, 10 * i, dur) for i, (n, dur) in enumerate(rules)])
    with analyze.open(trace, queries=[ROOT / "examples" / "own_query"]) as traces:
        # Two of three take 5 us at most: 2 + 5.
        [row] = traces.queries.short_kernels().arrow().to_pylist()
        assert (row["family"], row["calls"], row["total_ns"]) == ("gemm", 2, 7000)
        assert row["short_pct"] == pytest.approx(200 / 3)
        assert traces.queries.short_kernels(limit_us=1).arrow().num_rows == 0
        assert "gemm" in traces.queries.short_kernels().plot().svg()
