"""Comparisons: two recordings side by side, conditions for CI, scaling over GPUs, and pivots."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import complaints, run_cli
from support import SAMPLES, ask, opened
from traces import event, kernel, launch, op, step, write_run, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.query_declaration import ResultColumn
from analyze.query.result import row_result
from analyze.verdict.conditions import Condition

CONV = "cudnn::winograd_nonfused::winogradForwardData4x4<float>"
GEMM = "ampere_sgemm_128x64_tn"
by_kernel = partial(analyze.compare, level="kernel", naive=True)


def before(path: Path) -> Path:
    # Two steps: a 2 x 10 us, b 2 x 4 us, c 1 us. In all 29 us, 14.5 a step.
    events = [step(1, 0, 50), step(2, 50, 50), kernel("c", 90, 1)]
    events += [k for t in (0, 50) for k in (kernel("a", t, 10), kernel("b", t + 20, 4))]
    return write_trace(path / "before" / "t.json", events)


def after(path: Path) -> Path:
    # One step: a 12 us, b 4 us, d 2 us. In all 18 us.
    return write_trace(
        path / "after" / "t.json", [step(1, 0, 60), kernel("a", 0, 12), kernel("b", 20, 4), kernel("d", 30, 2)]
    )


def test_compare_by_hand(tmp_path: Path) -> None:
    # Per step: a 10 -> 12 (+20 % of its own, +2/14.5 of the whole), b 4 -> 4, c 0.5 -> 0, d 0 -> 2.
    rows = by_kernel(before(tmp_path), after(tmp_path)).answer.dicts()
    assert [
        (r["status"], r["name"], r["calls_a"], r["calls_b"], r["a_ns"], r["b_ns"], r["change_ns"]) for r in rows
    ] == [
        ("changed", "a", 1, 1, 10_000, 12_000, 2_000),
        ("added", "d", 0, 1, 0, 2_000, 2_000),
        ("removed", "c", 0.5, 0, 500, 0, -500),
        ("same", "b", 1, 1, 4_000, 4_000, 0),
    ]
    assert [r["change_pct"] for r in rows] == [20.0, None, -100.0, 0.0]
    assert [r["share_pct"] for r in rows] == pytest.approx([100 * x / 14_500 for x in (2000, 2000, -500, 0)])
    # The shares add up to the change of the whole: 14.5 -> 18 us.
    assert sum(r["share_pct"] for r in rows) == pytest.approx(100 * 3.5 / 14.5)


def test_totals_are_exact_integers(tmp_path: Path) -> None:
    table = by_kernel(before(tmp_path), after(tmp_path), per_step=False).answer.arrow()
    rows = {r["name"]: r for r in table.to_pylist()}
    assert str(table.schema.field("a_ns").type) == "int64"
    assert (rows["a"]["a_ns"], rows["a"]["b_ns"], rows["a"]["calls_a"]) == (20_000, 12_000, 2)


def test_differences_below_the_tolerance_are_equal(tmp_path: Path) -> None:
    a = write_trace(tmp_path / "a.json", [kernel("k", 0, 1000), kernel("n", 2000, 10)])
    b = write_trace(tmp_path / "b.json", [kernel("k", 0, 1010), kernel("n", 2000, 5), kernel("n", 3000, 5)])
    # k: +1 %. n takes as long as before in twice as many calls.
    status = {r["name"]: r["status"] for r in by_kernel(a, b).answer.dicts()}
    assert status == {"k": "same", "n": "changed"}
    assert by_kernel(a, b, tolerance=0.9).answer.dicts()[0]["status"] == "changed"


def test_a_recording_equals_itself() -> None:
    one = SAMPLES / "resnet18-1gpu"
    for level in ("kernel", "family", "op", "phase"):
        rows = analyze.compare(one, one, level=level, tolerance=0).answer.dicts()
        assert rows and {r["status"] for r in rows} == {"same"}, level


@pytest.mark.parametrize("level", ["kernel", "family", "op"])
def test_levels_add_up_to_the_same_time(level: str) -> None:
    """Kernels, families: all kernel time; operators: all GPU time, work that no operator launched included."""
    one = SAMPLES / "alexnet-dp2"
    rows = analyze.compare(one, one, level=level, where="profiler = 'torch'", per_step=False).answer.dicts()
    tables = ("kernels", "memcpys", "memsets") if level == "op" else ("kernels",)
    sums = " + ".join(f"coalesce((SELECT sum(dur_ns) FROM {t}), 0)" for t in tables)
    [expected] = analyze.open(one).where("profiler = 'torch'").sql(f"SELECT ({sums})::BIGINT AS ns").dicts()
    assert sum(r["a_ns"] for r in rows) == expected["ns"]


def call_tree(path: Path, moved: bool) -> Path:
    # aten::mm under linear (10 us on the GPU) and under attention (6 us), which takes 9 in the second recording.
    second = 9 if moved else 6
    events = [
        op("linear", 0, 20, 1), op("aten::mm", 5, 10, 2), launch(6, 1, **{"External id": 2}),
        kernel(GEMM, 100, 10, correlation=1, **{"External id": 2}),
        op("attention", 30, 20, 3), op("aten::mm", 35, 12, 4), launch(36, 2, **{"External id": 4}),
        kernel(GEMM, 120, second, correlation=2, **{"External id": 4}),
    ]  # fmt: skip
    return write_trace(path, events)


def test_operators_are_aligned_by_the_call_tree(tmp_path: Path) -> None:
    a, b = call_tree(tmp_path / "a.json", False), call_tree(tmp_path / "b.json", True)
    rows = analyze.compare(a, b, level="op").answer.dicts()
    assert [(r["status"], r["path"], r["change_ns"]) for r in rows] == [
        ("changed", "attention > aten::mm", 3000),
        ("same", "linear > aten::mm", 0),
    ]
    # On the CPU: linear 20 - 10, attention 20 - 12, the rest in the two aten::mm (their CUDA calls included).
    rows = analyze.compare(a, b, level="op", time="cpu").answer.dicts()
    assert {r["path"]: r["a_ns"] for r in rows} == {
        "linear": 10_000, "linear > aten::mm": 10_000, "attention": 8_000, "attention > aten::mm": 12_000,
    }  # fmt: skip


def test_op_tree_counts_work_without_an_operator(tmp_path: Path) -> None:
    # Without an External id, what was launched after f belongs to none, and what was launched in it to f.
    events = [op("f", 0, 5, 1), launch(1, 8), kernel("k", 10, 4, correlation=8), launch(6, 9)]
    path = write_trace(tmp_path / "t.json", [*events, kernel("k", 20, 3, correlation=9)])
    assert {(r["path"], r["gpu_ops"], r["self_gpu_ns"]) for r in ask(path, "op-tree")} == {
        ("f", 1, 4000),
        ("(no operator)", 1, 3000),
    }


def fails(a: Path, b: Path, *conditions: str) -> tuple[int, str]:
    """The exit code of a comparison under conditions, and which of them hold."""
    failures = by_kernel(opened(a), opened(b), fail_if=conditions).failures
    return int(bool(failures)), "\n".join(f"failed: {failure}" for failure in failures)


def test_fail_if(tmp_path: Path) -> None:
    a, b = before(tmp_path), after(tmp_path)
    # Kernel time 14.5 -> 18 us a step: +24.1 %, +3.5 us.
    code, says = fails(a, b, "kernel_time > 5%")
    assert code == 1
    assert "failed: kernel_time > 5%: kernel_time went from 14.500 us to 18.000 us per step (+24.14 %)" in says
    # Steps of 50 and of 60 us. By name: 0.5 us of `c` went away, 2 us of `d` came, 300 % more.
    passed = ("kernel_time > 25%", "kernel_time>4us", "step_time > 20 %", "step_time < -10%", "kernel:^[cd]$ > 300%")
    assert fails(a, b, *passed) == (0, "")
    failed = ("kernel_time > 3us", "step_time > 19.9%", "kernel:^[cd]$ > 299%", "gpu_time > 1%", "kernel:a > 1us")
    code, says = fails(a, b, *failed, *passed)
    assert code == 1 and [line.split(": ")[1] for line in says.splitlines() if "kernel:" not in line] == [
        condition for condition in failed if "kernel:" not in condition
    ]
    assert says.count("failed: ") == len(failed)
    # The other way round it is a drop.
    assert fails(b, a, "step_time < -10%")[0] == 1


def test_fail_if_rejects_exponents(tmp_path: Path) -> None:
    # A step of 50 us, and of 60 ms: 59.95 ms more, 119,900 %. The limit's unit is not that of the numbers.
    a, b = (
        write_trace(tmp_path / n / "t.json", [step(1, 0, d), kernel("k", 0, d)]) for n, d in (("a", 50), ("b", 6e4))
    )
    told = "step_time went from 50.000 us to 60.000 ms per step"
    for condition, change in (
        ("> 0 ns", "+59.950 ms"),
        ("> 0.5 s", ""),
        ("> 1 ms", "+59.950 ms"),
        ("> 5%", "+119,900 %"),
    ):
        says = f"failed: step_time {condition}: {told} ({change})" if change else ""
        assert fails(a, b, f"step_time {condition}")[1] == says
    _, says = fails(b, a, "step_time < 0 ns", "step_time < -1%")
    assert "(-59.950 ms)" in says and "(-99.92 %)" in says


def test_fail_if_on_real_phases_and_operators() -> None:
    one, two = SAMPLES / "resnet18-1gpu", SAMPLES / "vgg16-fp32"
    result = run_cli(
        "compare", one, two, "--fail-if", "phase:backward > 10%", "--fail-if", "op_time < -1%", "-n", "1", "--naive"
    )
    assert result.returncode == 1 and "failed: phase:backward" in result.stderr
    assert (
        run_cli(
            "compare", one, one, "--fail-if", "phase_cpu:forward > 0%", "--fail-if", "op_time > 0ns", "--naive"
        ).returncode
        == 0
    )


@pytest.fixture(scope="module")
def two(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[analyze.Traces, analyze.Traces]:
    folder = tmp_path_factory.mktemp("two")
    return analyze.open(before(folder)), analyze.open(after(folder))


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("kernel_time", "expected a condition such as 'step_time > 5%'"),
        ("kernel_time > 5", "expected a condition such as 'step_time > 5%'"),
        ("colour > 5%", "there is no measure 'colour'"),
        ("kernel:( > 5%", "not a regular expression"),
        ("kernel:a{99999999999999999999} > 5%", "not a regular expression"),
        ("kernel_time > nan%", "expected a condition such as 'step_time > 5%'"),
        ("kernel_time > inf%", "expected a condition such as 'step_time > 5%'"),
        (f"kernel_time > {'9' * 400}%", "too large"),
        ("", "expected a condition such as 'step_time > 5%'"),
        ("phase:sleep > 5%", "A and B have no phase 'sleep'"),
        ("kernel:zzz > 5%", "A and B have no kernel whose name 'zzz' matches"),
        ("kernel:^c$ > 5%", "B has no kernel whose name '^c$' matches"),
        ("kernel:^d$ > 1us", "A has no kernel whose name '^d$' matches"),
        ("op_time > 5%", "A and B have no operators"),
    ],
)
def test_bad_conditions_are_a_sentence(two: tuple[analyze.Traces, analyze.Traces], condition: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        by_kernel(*two, fail_if=[condition])
    assert says in str(error.value) and len(str(error.value).splitlines()) == 1


def test_fail_if_fails_without_data(tmp_path: Path) -> None:
    """A recording without the thing measured is neither faster nor slower, on whichever side it is."""
    events = [
        step(1, 0, 50), event("user_annotation", "forward", 0, 20), op("f", 0, 5, 1),
        launch(1, 9, **{"External id": 1}), kernel("a", 10, 3, correlation=9, **{"External id": 1}),
    ]  # fmt: skip
    full = analyze.open(write_trace(tmp_path / "full" / "t.json", events))
    empty = analyze.open(write_trace(tmp_path / "empty" / "t.json", [event("cuda_runtime", "x", 0, 1)]))
    measures = (
        ("kernel_time", "kernels"),
        ("gpu_time", "GPU work"),
        ("step_time", "training steps"),
        ("op_time", "operators"),
        ("phase:forward", "phase 'forward'"),
        ("phase_cpu:forward", "phase 'forward'"),
        ("kernel:a", "kernel whose name 'a' matches"),
    )
    conditions = [f"{measure} {change}" for measure, _ in measures for change in ("> 5 ms", "< -1 s")]
    assert by_kernel(full, full, fail_if=conditions).failures == ()
    lacking = (((full, empty), "B", "> 5%"), ((empty, full), "A", "< 5 ms"))
    for (measure, lacks), (sides, label, change) in zip(measures, cycle(lacking), strict=False):
        condition = f"{measure} {change}"
        with pytest.raises(InputError) as error:
            by_kernel(*sides, fail_if=[condition])
        assert str(error.value) == f"--fail-if {condition!r}: {label} has no {lacks}"


def test_compare_names_the_side_without_data(tmp_path: Path) -> None:
    empty = write_trace(tmp_path / "empty" / "t.json", [event("cpu_op", "f", 0, 1)])
    result = run_cli("compare", before(tmp_path), empty, "--fail-if", "kernel_time > 5%", "--naive")
    assert (result.returncode, "\n".join(complaints(result))) == (
        2,
        "analyze: --fail-if 'kernel_time > 5%': B has no kernels",
    )
    assert (
        "note: B has nothing at level kernel" in run_cli("compare", before(tmp_path), empty, "--level", "kernel").stderr
    )


def test_share_of_zero_is_null(tmp_path: Path) -> None:
    a = analyze.open(write_trace(tmp_path / "a" / "t.json", [kernel("k", 0, 0)]))
    b = analyze.open(write_trace(tmp_path / "b" / "t.json", [kernel("k", 0, 7)]))
    for sides in ((a, b), (a, a)):
        for sign in "<>":
            with pytest.raises(InputError, match="kernel_time is 0 in A"):
                by_kernel(*sides, fail_if=[f"kernel_time {sign} 5%"])
    assert len(by_kernel(a, b, fail_if=["kernel_time > 6us", "kernel_time > 8us"]).failures) == 1


def test_different_settings_are_listed(tmp_path: Path) -> None:
    # One step on one GPU against two on two.
    a = analyze.open(after(tmp_path))
    two = [step(1, 0, 50), step(2, 50, 50), kernel("a", 0, 10), kernel("a", 0, 10, device=1)]
    b = analyze.open(write_trace(tmp_path / "two" / "t.json", two))
    assert by_kernel(a, b).notes == (
        "calls and times are per training step (A holds 1, B holds 2)",
        "differs: gpus: A 1, B 2",
    )
    assert by_kernel(a, b, per_step=False).notes[1:] == (
        "differs: gpus: A 1, B 2",
        "steps differ: A holds 1, B holds 2",
    )
    assert by_kernel(a, a, per_step=False).notes == ("calls and times are of the whole recordings",)
    sides = [analyze.open(SAMPLES / name) for name in ("resnet18-1gpu", "alexnet-dp2")]
    assert by_kernel(*sides, where_b="profiler = 'nsys'").notes[1:] == (
        "differs: gpus: A 1, B 2",
        "differs: model: A resnet18, B alexnet",
        "differs: batch_size: A 32, B 16",
        "differs: parallelism: A none, B dp",
        "differs: profiler: A torch, B nsys",
    )


def test_several_runs_on_one_side_are_a_note(tmp_path: Path) -> None:
    # Three runs of one GPU each are no run of three.
    folder = tmp_path / "three"
    for name in ("x", "y", "z"):
        write_trace(folder / f"{name}.json", [step(1, 0, 50), kernel(name, 0, 10)])
    a, b = analyze.open(folder), analyze.open(after(tmp_path))
    steps = "calls and times are per training step (A holds {}, B holds {})"
    told = "{}: means over 3 runs"
    assert by_kernel(a, b).notes == (steps.format(3, 1), told.format("A"))
    assert by_kernel(b, a).notes == (steps.format(1, 3), told.format("B"))
    assert by_kernel(a, a).notes == (steps.format(3, 3), told.format("A"), told.format("B"))
    assert by_kernel(a, b, where_a="run_id LIKE 'x%'").notes == (steps.format(1, 1),)
    assert f"note: {told.format('A')}\n" in run_cli("compare", folder, after(tmp_path), "--level", "kernel").stderr


def test_steps_are_counted(tmp_path: Path) -> None:
    """`steps` of the manifest of someone else's program is an option's default: its recording holds no steps."""
    folder = run_folder(tmp_path, 1, 8, 0.01, metrics=False, model=None, steps=5)
    write_trace(folder / "torch" / "rank-0.trace.json", [kernel("a", 0, 10)])
    with pytest.raises(InputError, match="A does not say how many"):
        by_kernel(folder, after(tmp_path), per_step=True)
    rows = {r["name"]: r for r in by_kernel(folder, after(tmp_path)).answer.dicts()}
    assert rows["a"]["a_ns"] == 10_000


def test_fail_if_name_may_contain_angle_brackets() -> None:
    condition = Condition.parse("kernel:reduce<512, 1> > -2.5 ms")
    assert (condition.measure, condition.above, condition.limit, condition.unit) == (
        "kernel:reduce<512, 1>", True, -2.5, "ms",
    )  # fmt: skip


def test_one_store_can_be_both_sides(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run_cli("ingest", before(tmp_path), after(tmp_path), "--store", store).returncode == 0
    sides = ["--where-a", "run_id LIKE 't-%' AND source LIKE '%before%'", "--where-b", "source LIKE '%after%'"]
    result = run_cli(
        "compare", store, store, *sides, "--level", "kernel", "--format", "csv", "--sort", "name", "--limit", "2"
    )
    assert [r["name"] for r in csv.DictReader(io.StringIO(result.stdout))] == ["a", "b"]
    assert "per training step (A holds 2, B holds 1)" in result.stderr


def test_formats(tmp_path: Path) -> None:
    a, b = before(tmp_path), after(tmp_path)
    rows = json.loads(run_cli("compare", a, b, "--level", "kernel", "--format", "json").stdout)
    target = tmp_path / "out.parquet"
    run_cli("compare", a, b, "--level", "kernel", "--format", "parquet", "-o", target)
    assert pq.read_table(target).to_pylist() == rows == by_kernel(a, b).answer.dicts()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"level": "line"}, "must be one of measure"),
        ({"time": "cpu"}, "level kernel has no CPU time"),
        ({"where_a": "model = 'none'"}, "A has no run"),
        ({"sort": "colour"}, "no such column"),
        ({"tolerance": float("nan")}, "must be a percentage"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        by_kernel(before(tmp_path), after(tmp_path), **options)  # type: ignore[arg-type]


def test_per_step_needs_steps(tmp_path: Path) -> None:
    bare = write_trace(tmp_path / "bare.json", [kernel("a", 0, 10)])
    with pytest.raises(InputError, match="B does not say how many"):
        by_kernel(before(tmp_path), bare, per_step=True)
    # Without steps on one side the totals stand side by side: 20 us and 10 us.
    row = by_kernel(before(tmp_path), bare).answer.dicts()[0]
    assert (row["name"], row["a_ns"], row["b_ns"]) == ("a", 20_000, 10_000)


def run_folder(
    root: Path, gpus: int, batch_size: int, step_s: float, parallelism: str = "dp", metrics: bool = True, **columns: Any
) -> Path:
    """A run folder with two profiled steps of `step_s` on every rank."""
    name = f"r{len(list(root.glob('*')))}"
    ranks = gpus if parallelism == "ddp" else 1
    images = batch_size
    files = []
    folder = root / name
    for rank in range(ranks):
        steps = [step(n, n * step_s * 1e6, step_s * 1e6) for n in range(2)]
        write_trace(folder / "torch" / f"rank-{rank}.trace.json", steps)
        files.append((f"torch/rank-{rank}.trace.json", "chrome_trace", rank))
        if metrics:
            path = folder / "torch" / f"rank-{rank}.step_metrics.csv"
            rows = [
                f"{rank},{n},{n == 0},0,0,0,0,0,0,{step_s * (10 if n == 0 else 1)},{images},1,0,0" for n in range(3)
            ]
            header = "rank,step,warmup,data_s,h2d_s,forward_s,loss_s,backward_s,optimizer_s,step_s,images,loss"
            path.write_text("\n".join([header + ",max_allocated_bytes,max_reserved_bytes", *rows]) + "\n")
            files.append((f"torch/{path.name}", "step_metrics", rank))
    workload = {
        "model": "m", "precision": "fp32", "dataset": "synthetic", "image_size": 224, "batch_size": batch_size,
        "gpus": gpus, "parallelism": parallelism, "steps": 2,
    }  # fmt: skip
    return write_run(folder, files, **workload | columns)


def test_strong_scaling_by_hand(tmp_path: Path) -> None:
    # 16 images in 10 ms on one GPU: 1600 images/s. On two in 8 ms: 2000, x1.25, 62.5 %. On four in 4 ms: 4000, x2.5.
    for gpus, step_s in ((1, 0.010), (2, 0.008), (4, 0.004)):
        run_folder(tmp_path, gpus, 16, step_s)
    rows = ask(tmp_path, "scaling", params={"kind": "strong"})
    assert [(r["gpus"], r["batch_size"]) for r in rows] == [(1, 16), (2, 16), (4, 16)]
    assert [r["images_per_s"] for r in rows] == pytest.approx([1600, 2000, 4000])
    assert [r["speedup"] for r in rows] == pytest.approx([1, 1.25, 2.5])
    assert [r["efficiency_pct"] for r in rows] == pytest.approx([100, 62.5, 62.5])
    assert [r["kind"] for r in ask(tmp_path, "scaling")] == ["strong"] * 3


def test_weak_scaling_under_ddp_by_hand(tmp_path: Path) -> None:
    # batch_size is per process: 8 a GPU. 8 in 10 ms = 800; two ranks of 8 in 12.5 ms = 1280 images/s: x1.6, 80 %.
    run_folder(tmp_path, 1, 8, 0.010, "none")
    run_folder(tmp_path, 2, 8, 0.0125, "ddp")
    for params in ({"kind": "weak"}, {}):
        one, two = ask(tmp_path, "scaling", params=params)
        assert (one["kind"], two["kind"], two["batch_size"]) == ("weak", "weak", 8)
        assert (two["images_per_s"], two["speedup"]) == (pytest.approx(1280), pytest.approx(1.6))
        assert two["efficiency_pct"] == pytest.approx(80)
    # As strong scaling, 16 images on two GPUs have nothing to be compared with.
    strong = ask(tmp_path, "scaling", params={"kind": "strong"})
    assert [(r["gpus"], r["batch_size"], r["speedup"]) for r in strong] == [(1, 8, pytest.approx(1)), (2, 16, None)]


def test_scaling_from_the_trace_alone(tmp_path: Path) -> None:
    # No step_metrics: ProfilerStep ranges and batch_size. 16 in 10 ms and in 8 ms.
    run_folder(tmp_path, 1, 16, 0.010, metrics=False)
    run_folder(tmp_path, 2, 16, 0.008, metrics=False)
    assert [r["speedup"] for r in ask(tmp_path, "scaling")] == pytest.approx([1, 1.25])


def test_scaling_does_not_invent_a_gpu_count(tmp_path: Path) -> None:
    # The manifest says no number; two GPUs were recorded. Without a recording of GPU work, it is not known.
    folder = run_folder(tmp_path, 1, 16, 0.010)
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"gpus": None}))
    assert [r["gpus"] for r in ask(tmp_path, "scaling")] == [None]
    steps = [step(n, n * 1e4, 1e4) for n in range(2)]
    write_trace(folder / "torch" / "rank-0.trace.json", [*steps, kernel("a", 0, 10), kernel("a", 0, 10, device=1)])
    assert [r["gpus"] for r in ask(tmp_path, "scaling")] == [2]


def test_scaling_keeps_workloads_apart(tmp_path: Path) -> None:
    run_folder(tmp_path, 1, 16, 0.010)
    run_folder(tmp_path, 2, 16, 0.008, precision="tf32")
    run_folder(tmp_path, 2, 16, 0.008, optimizer="adam")
    rows = ask(tmp_path, "scaling")
    assert [(r["kind"], r["speedup"]) for r in rows] == [(None, None)] * 3


def test_repeated_runs_are_averaged(tmp_path: Path) -> None:
    run_folder(tmp_path, 1, 16, 0.010)
    run_folder(tmp_path, 2, 16, 0.008)
    run_folder(tmp_path, 2, 16, 0.004)
    # (2000 + 4000) / 2 = 3000 images/s, against 1600.
    _, two = ask(tmp_path, "scaling")
    assert (two["runs"], two["speedup"]) == (2, pytest.approx(1.875))


def test_both_sides_are_recognised_in_one_line(tmp_path: Path) -> None:
    arguments = before(tmp_path), after(tmp_path)
    said = [line for line in run_cli("compare", *arguments).stderr.splitlines() if line.startswith("read as: ")]
    assert said == ["read as: A 1 run, one process; B 1 run, one process"]
    assert "read as" not in run_cli("compare", *arguments).stderr
    folders = [tmp_path / f"run-{n}" for n in range(3)]
    for n, folder in enumerate(folders):
        write_trace(folder / "torch/rank-0.trace.json", [kernel("k", 0, 1 + n)])
        write_run(folder, [("torch/rank-0.trace.json", "chrome_trace", 0)])
    several = run_cli("compare", folders[0], "--with", *folders[1:])
    assert "read as: A 1 run, one process; B 2 paths, each 1 run, one process" in several.stderr.splitlines()


def test_pivot_by_hand(tmp_path: Path) -> None:
    for model, precision, step_s in (("a", "fp32", 0.01), ("a", "tf32", 0.005), ("b", "fp32", 0.02)):
        run_folder(tmp_path, 1, 16, step_s, model=model, precision=precision)
    traces = analyze.open(tmp_path)
    table = traces.pivot("steps", rows=["model"], columns=["precision"], value="step_ns", agg="avg").arrow()
    assert table.to_pylist() == [
        {"model": "a", "precision=fp32": 10e6, "precision=tf32": 5e6},
        {"model": "b", "precision=fp32": 20e6, "precision=tf32": None},
    ]
    # A column of the query itself across, or a filter over its result: one value is left in each cell.
    table = traces.where("precision = 'fp32'").pivot("steps", rows=["model"], columns=["step"], value="step_ns").arrow()
    assert table.to_pylist()[1] == {"model": "b", "step=1": 20e6, "step=2": 20e6}
    table = traces.pivot("steps", rows=["model"], value="step_ns", columns=["precision"], filter="step = 1").arrow()
    assert table.to_pylist()[0] == {"model": "a", "precision=fp32": 10e6, "precision=tf32": 5e6}
    with pytest.raises(InputError, match="step_ns has 2 values at model=a, precision=fp32"):
        traces.pivot("steps", rows=["model"], columns=["precision"], value="step_ns").arrow()


def test_pivot_ignores_nulls_as_sql_does(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "known.sql").write_text(
        "-- How long, where it is known?\n-- @column name text   Kernel.\n-- @column dur_ns ns   NULL for 1 us.\n"
        "-- @order name\nSELECT run_group, name, nullif(dur_ns, 1000) AS dur_ns FROM kernels\n"
    )
    path = write_trace(
        tmp_path / "t.json", [kernel("a", 0, 1), kernel("a", 5, 3), kernel("a", 9, 5), kernel("b", 20, 1)]
    )
    traces = analyze.open(path, queries=[tmp_path / "q"])
    for agg, found in (("avg", 4000), ("sum", 8000), ("min", 3000), ("max", 5000)):
        assert traces.pivot("known", rows=["name"], value="dur_ns", agg=agg).dicts() == [
            {"name": "a", "dur_ns": found},
            {"name": "b", "dur_ns": None},
        ]


def test_pivot_from_the_command() -> None:
    arguments = ["pivot", "kernel-share", SAMPLES, "-p", "group=family", "--rows", "family", "--columns", "model,gpus"]
    result = run_cli(*arguments, "--value", "kernel_time_pct", "--where", "profiler = 'torch'", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert "model=alexnet, gpus=2" in rows[0] and {"gemm", "convolution"} <= {r["family"] for r in rows}
    for column in set(rows[0]) - {"family"}:
        assert sum(float(r[column] or 0) for r in rows) == pytest.approx(100)
    table = run_cli(*arguments, "--value", "kernel_time_pct", "--where", "profiler = 'torch'").stdout
    assert "model=alexnet, gpus=2 (%)" in table


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel-share", "--rows", "model", "--value", "colour"], "--value colour"),
        (
            ["kernel-share", "--rows", "colour", "--value", "calls"],
            "--rows colour: no such column; query kernel-share has name, calls,",
        ),
        (
            ["kernel-share", "--rows", "model", "--columns", "family", "--value", "calls"],
            "--columns family: query kernel-share has such a column with --param group=family",
        ),
        (["kernel-share", "--rows", "model", "--value", "calls", "--agg", "mode"], "--agg mode: must be one of sum"),
        (["kernel-share", "--rows", "model", "--value", "calls", "--filter", "colour = 1"], "--filter 'colour = 1'"),
        (["nope", "--rows", "model", "--value", "calls"], "there is no query 'nope'"),
        (["kernel-share", "--rows", "model", "--value", "name", "--agg", "sum"], "--agg sum: not possible for name"),
        (["kernel-share", "--rows", "model", "--value", "name", "--agg", "avg"], "--agg avg: not possible for name"),
        (["gpu-busy", "--rows", "rank", "--value", "rank"], "--value rank: already one of --rows"),
        (["kernel-share", "--rows", "model", "--value", "x"], "it has model, name, calls, total_ns, avg_ns"),
    ],
)
def test_bad_pivots_are_a_sentence(arguments: list[str], says: str) -> None:
    name, *options = arguments
    result = run_cli("pivot", name, SAMPLES / "vgg16-fp32", *options)
    assert result.returncode == 2 and says in result.stderr and len(complaints(result)) == 1


def test_pivot_of_labels_that_sql_compares_as_equal(tmp_path: Path) -> None:
    """`Gemm` and `gemm` are two kernels, and `name=Gemm` and `name=gemm` two columns."""
    trace = write_trace(tmp_path / "t.json", [kernel("Gemm", 0, 5), kernel("gemm", 10, 7), kernel('b"', 20, 3)])
    asked = ["pivot", "kernel-share", trace, "--rows", "run_id", "--columns", "name", "--value", "total_ns"]
    row = {"name=Gemm": 5000, 'name=b"': 3000, "name=gemm": 7000}
    with analyze.open(trace) as traces:
        pivoted = {"rows": "run_id", "columns": "name,name", "value": "total_ns"}
        [found] = traces.pivot("kernel-share", **pivoted).arrow().drop("run_id").to_pylist()
        assert found == row
        [found] = traces.pivot("kernel-share", **pivoted, filter="calls = 1 AND name <> 'Gemm'").dicts()
        assert found.keys() - {"run_id"} == row.keys() - {"name=Gemm"}
    [found] = json.loads(run_cli(*asked, "-f", "json").stdout)
    assert row.items() <= found.items()
    [found] = csv.DictReader(io.StringIO(run_cli(*asked, "-f", "csv").stdout))
    assert {name: int(found[name]) for name in row} == row
    assert "name=Gemm (µs)" in run_cli(*asked).stdout
    assert run_cli(*asked, "-o", tmp_path / "x.parquet").returncode == 0
    assert row.items() <= pq.read_table(tmp_path / "x.parquet").to_pylist()[0].items()


def test_pivot_by_one_column_twice() -> None:
    with analyze.open(SAMPLES / "resnet18-ddp2") as traces:
        once = traces.pivot("gpu-busy", rows="rank", value="busy_ns").arrow()
        assert once.num_rows == 2 and once.column_names == ["rank", "busy_ns"]
        assert traces.pivot("gpu-busy", rows="rank,rank", value="busy_ns").arrow().equals(once)
        assert traces.query("gpu-busy", by="model,model").arrow().equals(traces.query("gpu-busy", by="model").arrow())


def test_pivot_of_a_users_query(tmp_path: Path) -> None:
    """Rows by a list, decimals that are summed, and an aggregate that structs do not have."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.sql").write_text(
        "-- Mine?\n-- @column places text A list.\n-- @column cost number A decimal.\n-- @column part text A struct.\n"
        "SELECT NULL AS run_group, [1, 2] AS places, unnest([1.5, 2.25]) AS cost, {'a': 1} AS part"
    )
    with analyze.open(SAMPLES / "resnet18-1gpu", queries=tmp_path) as traces:
        [row] = traces.pivot("mine", rows="places", value="cost", agg="sum").dicts()
        assert row == {"places": "[1, 2]", "cost": 3.75}
        with pytest.raises(InputError, match="--agg max: not possible for part, which has values such as"):
            traces.pivot("mine", rows="places", value="part", agg="max").arrow()


def test_columns_that_differ_in_case() -> None:
    """To SQL such columns are one."""
    columns = [ResultColumn(name, "count", "") for name in ("a", "A", "_at")]
    for options in ({}, {"sort": "-A"}):
        assert row_result(columns, [(1, 2, 3)], "x", **options).arrow().to_pylist() == [{"a": 1, "A": 2, "_at": 3}]
