"""Comparisons of repeated runs: verdicts, conditions, and what makes them meaningless."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from scipy import stats
from support import ROOT
from traces import event, kernel, launched, op, step, write_run, write_trace

import analyze
from analyze.errors import InputError
from analyze.verdict.sides import Step
from analyze.verdict.step_checks import trend, two_kinds, unlike_rank, warm_up

REST = "(step_time less the recorded step)"
GPU = [{"index": 0, "name": "NVIDIA H100", "compute_capability": "9.0"}]
LOGS = (-0.003, 0.0, 0.003)
"""Logarithms of the runs of a side; their standard deviation is 0.003."""


def record(
    folder: Path, step_ms: float, gemm_us: float = 40, extra: str | None = None, clock_mhz: int = 1980, **fields: Any
) -> Path:
    """A run folder: five undisturbed steps, and two recorded ones with a gemm and a copy kernel each."""
    events = []
    for n in range(2):
        at = n * 1000.0
        events += [step(n, at, 900), kernel("gemm", at + 10, gemm_us), kernel("copy", at + 500, 20)]
        events += [kernel(extra, at + 600, 5)] if extra else []
    memory = {"Device Type": 1, "Device Id": 0, "Bytes": 0, "Total Allocated": round(step_ms * 2**20)}
    events.append(event("cpu_instant_event", "[memory]", 1, 0, **memory) | {"ph": "i"})
    write_trace(folder / "torch/rank-0.trace.json", events)
    rows = [f"0,{n},{n < 5},{n < 5},{step_ms / 1e3 * (1 if n < 5 else 2)},32" for n in range(7)]
    metrics = folder / "torch/rank-0.step_metrics.csv"
    metrics.write_text("\n".join(["rank,step,warmup,undisturbed,step_s,images", *rows]) + "\n")
    samples = folder / "torch/rank-0.gpu_samples.csv"
    lines = [f"0,0,{at},{clock_mhz},1600,300,50,0,0,90,0" for at in range(0, 2_000_000, 100_000)]
    header = "rank,device,start_ns,sm_clock_mhz,memory_clock_mhz,power_w,temperature_c,clock_limits"
    samples.write_text("\n".join([f"{header},memory_used_bytes,gpu_util_pct,processes", *lines]) + "\n")
    files = [
        ("torch/rank-0.trace.json", "chrome_trace", 0),
        ("torch/rank-0.step_metrics.csv", "step_metrics", 0),
        ("torch/rank-0.gpu_samples.csv", "gpu_samples", 0),
    ]
    return write_run(folder, files, **{"gpu_devices": GPU, "model": "m", "batch_size": 32, **fields})


def side(root: Path, name: str, scale: float = 1.0, logs: Sequence[float] = LOGS, **fields: Any) -> list[Path]:
    """Runs of a side; their steps take `scale` times 10 ms."""
    return [
        record(root / f"{name}-{i}", 10 * scale * math.exp(log), 40 * scale * math.exp(log), **fields)
        for i, log in enumerate(logs)
    ]


@pytest.fixture(scope="module")
def runs(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, analyze.Traces]:
    root = tmp_path_factory.mktemp("sides")
    sides = {
        "before": side(root, "before"),
        "again": side(root, "again", logs=[-x for x in LOGS]),
        "slow": side(root, "slow", 1.03, extra="extra"),
        "capped": side(root, "capped", 1.03, clock_mhz=1400),
        "one": side(root, "one", 1.03, logs=[0.0]),
    }
    return {name: analyze.open(*folders) for name, folders in sides.items()}


def rows(a: analyze.Traces, b: analyze.Traces, **options: Any) -> dict[str, dict[str, Any]]:
    found = analyze.compare(a, b, **options).answer.dicts()
    return {r.get("measure") or r["name"]: r for r in found}


def test_slower_by_hand(runs: dict[str, analyze.Traces]) -> None:
    # Both sides have the logarithms of LOGS: variance 0.000009, standard error sqrt(2 x 0.000009 / 3) = 0.00245, 4
    # degrees of freedom, whose 97.5 % quantile is 2.776.
    found = rows(runs["before"], runs["slow"])["step_time"]
    assert (found["a"], found["b"]) == (pytest.approx(10), pytest.approx(10.3))
    assert found["change_pct"] == pytest.approx(3, abs=1e-3) and found["verdict"] == "slower"
    low, high = (100 * math.expm1(math.log(1.03) + sign * 2.776 * 0.003 * math.sqrt(2 / 3)) for sign in (-1, 1))
    assert (found["low_pct"], found["high_pct"]) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
    assert found["between_a_pct"] == pytest.approx(0.3, rel=1e-3)
    # The steps of a run take equally long.
    assert found["within_a_pct"] == pytest.approx(0) and (found["runs_a"], found["runs_b"]) == (3, 3)


def test_other_way_round_and_itself(runs: dict[str, analyze.Traces]) -> None:
    measured = rows(runs["slow"], runs["before"])
    assert measured["step_time"]["verdict"] == "faster" and measured["throughput"]["verdict"] == "faster"
    # 32 images in 10 ms.
    assert measured["throughput"]["b"] == pytest.approx(3200, rel=1e-4)
    # The 90 % interval of equal sides is 0 +- 2.132 x 0.00245 = 0.52 %.
    assert rows(runs["before"], runs["again"])["step_time"]["verdict"] == "same"
    assert rows(runs["before"], runs["again"], margin=0.3)["step_time"]["verdict"] == "cannot tell"


def test_each_verdict_follows_from_the_stored_rows(runs: dict[str, analyze.Traces]) -> None:
    """The formula of docs/compare.md by scipy, over rows of `analyze sql`."""
    stored = (
        "SELECT run_id, avg(ns) / 1e6 AS step_ms FROM (SELECT run_id, step, avg(timed_step_ns) AS ns FROM step_times"
        " WHERE undisturbed GROUP BY ALL) GROUP BY ALL ORDER BY ALL"
    )
    assert stored in " ".join((ROOT / "docs/compare.md").read_text().split())
    x, y = ([math.log(r["step_ms"]) for r in runs[side].sql(stored).dicts()] for side in ("before", "slow"))
    assert len(x) == len(y) == 3
    found = rows(runs["before"], runs["slow"])["step_time"]
    test = stats.ttest_ind(y, x, equal_var=False)
    low, high = test.confidence_interval(0.95)
    expected = [100 * math.expm1(v) for v in (sum(y) / 3 - sum(x) / 3, low, high)]
    assert [found[c] for c in ("change_pct", "low_pct", "high_pct")] == pytest.approx(expected)
    assert found["p_change"] == pytest.approx(test.pvalue)
    # 32 images a step, and a peak of as many MiB as the step has ms: the same logarithms, of throughput negative.
    measured = rows(runs["before"], runs["slow"])
    columns = ("change_pct", "low_pct", "high_pct")
    assert [measured["peak_memory"][c] for c in columns] == pytest.approx(expected, rel=1e-4)
    assert measured["throughput"]["p_change"] == pytest.approx(test.pvalue, rel=1e-4)
    inverse = [100 * (1 / (1 + v / 100) - 1) for v in (expected[0], expected[2], expected[1])]
    assert [measured["throughput"][c] for c in columns] == pytest.approx(inverse, rel=1e-4)
    margin = math.log(1.01)
    one_sided = [
        stats.ttest_ind([v + margin for v in y], x, equal_var=False, alternative="greater").pvalue,
        stats.ttest_ind([v - margin for v in y], x, equal_var=False, alternative="less").pvalue,
    ]
    assert found["p_same"] == pytest.approx(max(one_sided))
    # The shift that is found in 80 % of experiments, with Welch's 4 degrees of freedom.
    shift = math.log1p(found["smallest_pct"] / 100) / (0.003 * math.sqrt(2 / 3))
    assert stats.nct.sf(stats.t.ppf(0.975, 4), 4, shift) == pytest.approx(0.8, abs=1e-3)


def test_verdicts_of_rows_follow_from_the_stored_rows(runs: dict[str, analyze.Traces]) -> None:
    """Each kernel's ns a step in each run, Welch's test, and the p values of the table by Benjamini and Hochberg."""
    stored = "SELECT run_id, name, sum(dur_ns) / 2 AS ns FROM kernels GROUP BY ALL ORDER BY ALL"
    p = {}
    for name in ("gemm", "copy"):
        of_sides = (runs[side].sql(stored).dicts() for side in ("before", "slow"))
        x, y = ([math.log(r["ns"]) for r in of_side if r["name"] == name] for of_side in of_sides)
        p[name] = 1.0 if len({*x, *y}) == 1 else stats.ttest_ind(y, x, equal_var=False).pvalue
    found = rows(runs["before"], runs["slow"], level="kernel")
    expected = stats.false_discovery_control([p["gemm"], p["copy"]])
    assert [found[name]["p_change"] for name in ("gemm", "copy")] == pytest.approx(list(expected))


def test_verdicts_of_parts_of_the_step_follow_from_the_stored_rows(runs: dict[str, analyze.Traces]) -> None:
    """A step of 950 us, the mean of 1000 and 900: by family, with idle time; the rest is up to the step time."""
    kernels = (
        "SELECT run_id, family, sum(dur_ns) / 2 AS ns FROM kernels JOIN kernel_names USING (run_id, name)"
        " GROUP BY ALL ORDER BY ALL"
    )
    steps = "SELECT run_id, avg(timed_step_ns) AS ns FROM step_times WHERE undisturbed GROUP BY ALL ORDER BY ALL"
    of_sides: list[dict[str, list[float]]] = []
    for name in ("before", "slow"):
        times: dict[str, list[float]] = {}
        for row in runs[name].sql(kernels).dicts():
            times.setdefault(row["family"], []).append(row["ns"])
        times["(idle)"] = [950_000 - sum(ns) for ns in zip(*times.values(), strict=True)]
        times[REST] = [row["ns"] - 950_000 for row in runs[name].sql(steps).dicts()]
        of_sides.append(times)
    found = {r["part"]: r for r in analyze.compare(runs["before"], runs["slow"], level="step").answer.dicts()}
    assert found.keys() == {"gemm", "copy_layout", "other", "(idle)", REST}
    p = {}
    for part in ("gemm", "copy_layout", "(idle)", REST):
        x, y = ([math.log(ns) for ns in times[part]] for times in of_sides)
        if len({*x, *y}) == 1:
            p[part] = 1.0
            continue
        test = stats.ttest_ind(y, x, equal_var=False)
        interval = [100 * math.expm1(v) for v in test.confidence_interval(0.95)]
        assert [found[part]["low_pct"], found[part]["high_pct"]] == pytest.approx(interval)
        p[part] = test.pvalue
    expected = stats.false_discovery_control(list(p.values()))
    assert [found[part]["p_change"] for part in p] == pytest.approx(list(expected))
    # The spread of LOGS with 3 runs a side: as of the step time itself in test_slower_by_hand.
    whole = rows(runs["before"], runs["slow"])["step_time"]
    for column in ("smallest_pct", "runs_needed"):
        assert found["gemm"][column] == pytest.approx(whole[column], rel=0.01)
    assert found["copy_layout"]["smallest_pct"] == 0 and found["other"]["smallest_pct"] is None


def test_rows_of_kernels(runs: dict[str, analyze.Traces]) -> None:
    found = rows(runs["before"], runs["slow"], level="kernel")
    assert (found["gemm"]["verdict"], found["copy"]["verdict"]) == ("slower", "same")
    assert found["extra"]["status"] == "added" and found["extra"]["verdict"] == "cannot tell"
    # Two calls of 5 us in two steps; shares add up to the change of the whole.
    assert found["extra"]["b_ns"] == 5000 and found["extra"]["low_pct"] is None
    whole = sum(r["a_ns"] for r in found.values())
    assert sum(r["share_pct"] for r in found.values()) == pytest.approx(
        100 * (sum(r["b_ns"] for r in found.values()) - whole) / whole
    )


def test_parts_explain_the_change_of_the_step(runs: dict[str, analyze.Traces]) -> None:
    found = analyze.compare(runs["before"], runs["slow"], level="step").answer.dicts()
    by_run = analyze.compare(runs["before"], runs["slow"], level="run").answer.dicts()
    for side, column in (("A", "a_ns"), ("B", "b_ns")):
        step_ms = [r["value"] for r in by_run if r["measure"] == "step_time" and r["side"] == side]
        assert sum(r[column] for r in found) == pytest.approx(1e6 * sum(step_ms) / 3)
    assert sum(r["explains_pct"] for r in found) == pytest.approx(100)
    parts = {r["part"]: r for r in found}
    # The mean recorded step, of 1000 and 900 us, has 40 us of gemm in A and 3 % more in B.
    assert parts["gemm"]["change_ns"] == pytest.approx(1200, rel=0.01) and parts["gemm"]["verdict"] == "slower"
    assert sum(r["a_ns"] for r in found if not r["part"].startswith("(step")) == pytest.approx(950_000)


def model(path: Path, inside: Sequence[dict[str, Any]], *after: dict[str, Any]) -> Path:
    """A step of 100 us whose forward calls a module for 60 us."""
    whole = event("python_function", "nn.Module: Model_0", 0, 60)
    return write_trace(path, [step(1, 0, 100), event("user_annotation", "forward", 0, 60), whole, *inside, *after])


# Two modules inside, which launch 10 and 20 us of work.
INNER = [
    *(event("python_function", f"nn.Module: Linear_{n}", 5 + 20 * n, 15) for n in range(2)),
    *(op("aten::addmm", 6, 5, 1), *launched(7, 1, 20, 10), op("aten::addmm", 26, 5, 2), *launched(27, 2, 40, 20)),
]


def test_compiled_code_is_aligned_by_the_modules_of_both_sides(tmp_path: Path) -> None:
    # Compiled: no call of an inner module, 12 us. Both: 5 us after it.
    fused = [op("CompiledFxGraph", 6, 5, 1), *launched(7, 1, 20, 12, "triton")]
    after = [op("other", 70, 5, 3), *launched(71, 3, 80, 5)]
    a, b = (model(tmp_path / n / "t.json", e, *after) for n, e in (("eager", INNER), ("compiled", fused)))
    compared = analyze.compare(a, b, level="step")
    found = {r["part"]: r["change_ns"] for r in compared.answer.dicts()}
    assert found == {"Model_0, forward": -18_000, "(idle)": 18_000, "(no module), (outside)": 0, REST: 0}
    assert "parts of the step of a GPU, by module (step-parts); hidden work runs behind other work" in compared.notes


def test_operators_in_common_do_not_align_compiled_code(tmp_path: Path) -> None:
    """One product of 28 us, and 3 us that are fused."""
    mm = [op("Torch-Compiled Region: 0/0", 5, 30, 9), op("aten::addmm", 6, 5, 1), *launched(7, 1, 20, 28)]
    fused = [op("triton_poi_fused_0", 20, 5, 2), *launched(21, 2, 50, 3, "triton_poi_fused_0")]
    a, b = (model(tmp_path / n / "t.json", e) for n, e in (("eager", INNER), ("compiled", mm + fused)))
    compared = analyze.compare(a, b, level="step")
    assert {r["part"]: r["change_ns"] for r in compared.answer.dicts()} == {
        "Model_0, forward": 1000, "(idle)": -1000, REST: 0,
    }  # fmt: skip
    assert "one side is compiled: its operators are not those of the other" in compared.notes


def test_parts_of_a_program_without_a_gpu(tmp_path: Path) -> None:
    def trace(name: str, dur: float) -> Path:
        return write_trace(tmp_path / name / "t.json", [step(1, 0, 100), op("aten::mm", 10, dur, 1)])

    found = {r["part"]: r for r in analyze.compare(trace("a", 20), trace("b", 50), level="step").answer.dicts()}
    assert found["cpu: aten::mm"]["change_ns"] == 30_000 and sum(r["change_ns"] for r in found.values()) == 0
    none = write_trace(tmp_path / "none" / "t.json", [op("aten::mm", 10, 5, 1)])
    with pytest.raises(InputError, match=r"B, run .* has no recorded training steps"):
        analyze.compare(trace("a", 20), none, level="step")


def test_conditions_hold_only_if_shown(runs: dict[str, analyze.Traces]) -> None:
    # +3 %, interval +2.30 to +3.70 %.
    def judged(b: str, *conditions: str, naive: bool = False) -> tuple[list[str], list[str]]:
        """The conditions that hold, and those that cannot be decided."""
        result = analyze.compare(runs["before"], runs[b], fail_if=conditions, naive=naive)
        assert len(result.failures) + len(result.unsure) <= len(conditions)
        failed, unsure = (
            [c for c in conditions if any(said.startswith(f"{c}: ") for said in sentences)]
            for sentences in (result.failures, result.unsure)
        )
        return failed, unsure

    # 40 us of gemm: 1.2 us more.
    held = ["step_time > 2%", "throughput < -2%", "step_time > 0.2 ms", "kernel:gemm > 0.8 us", "kernel_time > 4%"]
    unsure = ["step_time > 3%", "step_time < 3%"]
    others = ["step_time > 4%", "step_time < 0%", "step_time > 0.4 ms"]
    assert judged("slow", *held, *unsure, *others) == (held, unsure)
    # One run cannot tell; the means can, as if runs did not differ. Recorded steps take as long on both sides.
    assert judged("one", "step_time > 2%") == ([], ["step_time > 2%"])
    assert judged("one", "kernel:gemm > 2%", naive=True) == (["kernel:gemm > 2%"], [])


def test_machine_is_not_blamed_on_the_code(runs: dict[str, analyze.Traces], tmp_path: Path) -> None:
    result = analyze.compare(runs["before"], runs["capped"], fail_if="step_time > 2%")
    assert {r["verdict"] for r in result.answer.dicts() if r["measure"] == "step_time"} == {"cannot tell"}
    assert not result.failures and "clock of the SMs differs: A 1,980 MHz, B 1,400 MHz" in result.unsure[0]
    target = tmp_path / "verdict.md"
    analyze.compare(runs["before"], runs["capped"], comment=target)
    said = "- **not blamed on the code**: the mean clock of the SMs differs: A 1,980 MHz, B 1,400 MHz\n"
    assert target.read_text().startswith("### Performance: cannot tell\n") and said in target.read_text()


def test_exit_codes(tmp_path: Path) -> None:
    a, b = side(tmp_path, "a", logs=LOGS), side(tmp_path, "b", 1.05, logs=LOGS)

    def code(*options: str | Path) -> int:
        return run_cli("compare", *options).returncode

    shown = run_cli("compare", *a, "--with", *b, "--fail-if", "step_time > 2%")
    assert shown.returncode == 1 and "failed: step_time > 2%: step_time changed by +5 %" in shown.stderr
    assert code(*a, "--fail-if", "step_time > 10%", "--with", *b) == 0
    assert code(a[0], b[0], "--fail-if", "step_time > 2%") == 3
    assert code(a[0], b[0], "--fail-if", "step_time > 2%", "--unsure", "fail") == 1
    assert code(a[0], b[0], "--fail-if", "step_time > 2%", "--unsure", "pass") == 0
    one = run_cli("compare", a[0], b[0])
    assert "one run per side does not show how runs differ" in one.stderr and "cannot tell" in one.stdout
    for arguments, says in (
        ([*a, *b], "the runs of B follow --with"),
        ([a[0]], "not a folder of collect ab"),
        ([a[0], "--with"], "--with: expected the runs of B"),
        ([a[0], b[0], "--unsure", "maybe"], "--unsure maybe: must be pass or fail"),
        ([a[0], b[0], "--margin", "-1"], "greater than or equal"),
    ):
        result = run_cli("compare", *arguments)
        assert result.returncode == 2 and says in result.stderr, arguments


def test_comment_for_a_pull_request(runs: dict[str, analyze.Traces], tmp_path: Path) -> None:
    target = tmp_path / "verdict.md"
    analyze.compare(runs["before"], runs["slow"], fail_if=["step_time > 2%", "step_time > 3%"], comment=target)
    text = target.read_text()
    says = "A step takes 10 ms in A (before) and 10.3 ms in B (after): +3.00 %"
    says += ", with 95 % confidence from +2.30 to +3.70 %."
    failed = "- **failed**: step_time &gt; 2%: step_time changed by +3 %"
    assert text.startswith(f"### Performance: slower\n\n{says}\n\n{failed}")
    assert "- **cannot tell**: step_time &gt; 3%" in text and "| step\\_time | ms |" in text and "| gemm |" in text
    [line] = [line for line in text.splitlines() if line.startswith("step_time ")]
    # No change, and the interval of +2.3 to +3.7 %, above the margin of 1 %.
    assert line.endswith("+3.00 %") and re.search(r"\.\|\.+ +\[-+o-+\]", line)
    # One run a side has no interval, and no columns for it.
    analyze.compare(runs["one"], runs["one"], comment=target)
    text = target.read_text()
    assert "A step takes 10.3 ms in A (before) and 10.3 ms in B (after): +0.00 %.\n" in text and "low (%)" not in text


def test_other_work_is_meaningless(tmp_path: Path) -> None:
    a = record(tmp_path / "a", 10)
    b = record(tmp_path / "b", 10, batch_size=64, driver_version="580.1")
    result = run_cli("compare", a, b)
    assert (result.returncode, complaints(result)) == (
        2,
        [
            "analyze: a verdict needs runs of the same work, recorded alike: batch_size: A 32, B 64;"
            " --despite batch_size compares them"
        ],
    )
    notes = analyze.compare(a, b, despite="batch_size").notes
    assert "differs: batch_size: A 32, B 64" in notes and "differs: driver_version: A unknown, B 580.1" in notes
    with pytest.raises(InputError, match="--despite colour: must be one of gpu_name"):
        analyze.compare(a, b, despite="colour")
    # Rows of kernels are shown next to each other all the same.
    assert analyze.compare(a, b, level="kernel").answer.dicts()


def test_folder_of_collect_ab(tmp_path: Path) -> None:
    side(tmp_path, "a", logs=LOGS[:2]), side(tmp_path, "b", logs=LOGS[:2])
    cells = [
        {"values": {"side": s, "repetition": n}, "status": status, "run": f"{s}-{n}"}
        for s, n, status in (("a", 0, "done"), ("b", 0, "done"), ("b", 1, "failed"), ("a", 1, "done"))
    ]
    (tmp_path / "sweep.json").write_text(
        json.dumps({"version": 1, "plan": "collect ab", "options": {}, "cells": cells})
    )
    found = run_cli("compare", tmp_path, "--level", "run", "--format", "csv")
    listed = [(r["side"], r["run"]) for r in csv.DictReader(io.StringIO(found.stdout)) if r["measure"] == "step_time"]
    assert listed == [("A", "a-0"), ("A", "a-1"), ("B", "b-0")]
    # A run outside the folder is none.
    cells[1]["run"] = "../b-0"
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells}))
    assert "side b has no run that is done" in run_cli("compare", tmp_path).stderr


# --- Steps ---


def ms(*values: float) -> list[float]:
    return [v * 1e6 for v in values]


def test_steps_that_a_mean_suits() -> None:
    """Evenly spread, one outlier, and three ranks of four that do not differ."""
    flat = [10.0, 10.1] * 10
    assert warm_up(ms(*flat)) == 0 and trend(ms(*flat)) is None
    assert two_kinds(ms(*(10 + n / 10 for n in range(15)))) is None and two_kinds(ms(*flat, 30)) is None
    assert unlike_rank([Step(rank, n, 10e6) for rank in range(3) for n in range(3)]) is None


def timed(folder: Path, *ranks: Sequence[float]) -> Path:
    """A run without a profiler: the ms of the undisturbed steps of each rank."""
    files = []
    for rank, steps in enumerate(ranks):
        path = folder / f"none/rank-{rank}.step_metrics.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"{rank},{n},true,true,{ms / 1e3:.6f}" for n, ms in enumerate(steps)]
        path.write_text("\n".join(["rank,step,warmup,undisturbed,step_s", *rows]) + "\n")
        files.append((f"none/rank-{rank}.step_metrics.csv", "step_metrics", rank))
    return write_run(folder, files, profiler="none", world_size=len(ranks))


FLAT = (10.0, 10.1) * 10
INJECTED: dict[str, tuple[list[Sequence[float]], float, str | None]] = {
    # The steps of each rank, the mean of the run, and what is said.
    "nothing": ([FLAT], 10.05, None),
    # (13.5 + 12.5 + 20 x 10.05) / 22
    "warm-up": ([(13.5, 12.5, *FLAT)], 227 / 22, "the first 2 steps take longer than the others: warm-up"),
    # (13.5 + 20 x 10.05) / 21
    "a cold step": ([(13.5, *FLAT)], 214.5 / 21, "the first step takes longer than the others: warm-up"),
    # From 10 to 11.9 ms, by 19 x 0.1 ms: 17 % of the median, 10.95 ms.
    "trend": (
        [[10 + 0.1 * n for n in range(20)]], 10.95, "steps get longer by 17 % from the first to the last"
    ),
    # Of 20 steps each fourth takes 13 ms: (15 x 10 + 5 x 13) / 20
    "kinds": ([[13.0 if n % 4 == 3 else 10.0 + 0.01 * (n % 3) for n in range(20)]], 10.7575,
        "two kinds of steps: 15 of 10.010 ms and 5 of 13.000 ms"),
    # Ranks 0, 1 and 3 have 10.05 ms, rank 2 has 1 ms more: 10 % of the median of the ranks. (4 x 10.05 + 1) / 4
    "rank": (
        [FLAT, FLAT, [ms + 1 for ms in FLAT], FLAT], 10.3,
        "the mean step of rank 2 differs from the median of the ranks by +10 %",
    ),
    # Of two ranks, the median is the mean, 11.55 ms; the slower one is named.
    "one rank of two": (
        [FLAT, [ms + 3 for ms in FLAT]], 11.55, "the mean step of rank 1 differs from the median of the ranks by +13 %"
    ),
}  # fmt: skip


@pytest.mark.parametrize("injected", INJECTED)
def test_what_steps_say_against_a_mean(injected: str, tmp_path: Path) -> None:
    ranks, mean_ms, said = INJECTED[injected]
    usual = analyze.open(*(timed(tmp_path / f"a{n}", *([FLAT] * len(ranks))) for n in range(2)))
    other = analyze.open(*(timed(tmp_path / f"b{n}", *ranks) for n in range(2)))
    compared = analyze.compare(usual, other)
    [step_time] = [r for r in compared.answer.dicts() if r["measure"] == "step_time"]
    assert (step_time["a"], step_time["b"]) == (pytest.approx(10.05), pytest.approx(mean_ms))
    notes = [note for note in compared.notes if note.startswith(("A, run", "B, run"))]
    assert notes == ([f"B, run b0: {said} (1 more runs like it)"] if said else [])


def test_report_draws_runs_and_intervals(tmp_path: Path) -> None:
    a, b = (side(tmp_path, name, scale, logs=(-0.001, 0.001)) for name, scale in (("a", 1.0), ("b", 1.05)))
    written = run_cli("report", *a, "--compare", *b, "-o", tmp_path / "out.html")
    assert written.returncode == 0, written.stderr
    text = (tmp_path / "out.html").read_text()
    specs = [json.loads(s) for s in re.findall(r'class="spec">(.*?)</script>', text)]
    drawn = [v for spec in specs for d in spec["data"] for v in d.get("values", ())]
    assert all(title in text for title in ("How sure is the change?", "Run by run", "What explains the change"))
    # Two runs of each side, from the geometric mean of A, 10 ms.
    runs = sorted(v["x"] for v in drawn if v.get("name") == "step_time" and v.get("group") in ("A", "B"))
    assert runs == pytest.approx([100 * (s * math.exp(d) - 1) for s in (1, 1.05) for d in (-0.001, 0.001)], abs=1e-3)
    [interval] = [v for v in drawn if v.get("name") == "step_time" and v["low"] != v["high"]]
    assert interval["group"] == "slower" and interval["low"] < 5 < interval["high"]
