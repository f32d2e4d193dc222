"""Training steps and their phases in small traces. Times in the comments are us, in the rows ns."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launch, step, write_run, write_trace

import analyze

SAMPLE_NAMES = sorted(p.name for p in SAMPLES.iterdir() if p.is_dir())


def annotated(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return event("user_annotation", name, ts, dur, tid=tid)


def two_steps() -> list[dict[str, Any]]:
    """Steps [0, 40) and [50, 80); a kernel launched at 75, in the second, that ends at 120; one launched behind all."""
    return [
        step(1, 0, 40), step(2, 50, 30),
        event("cpu_op", "aten::mm", 70, 8, **{"External id": 1}),
        launch(75, 3, **{"External id": 1}), kernel("k", 100, 20, correlation=3, **{"External id": 1}),
        launch(190, 4), kernel("late", 200, 10, correlation=4),
    ]  # fmt: skip


def test_a_step_is_one_window_in_every_query(tmp_path: Path) -> None:
    # The first window is [0, 50): it goes on to where the second begins. The second is [50, 120): to the end of the
    # work launched in it. Their mean is 60.
    path = write_trace(tmp_path / "t.json", two_steps())
    expected = {1: 50_000, 2: 70_000}
    assert {r["step"]: r["step_ns"] for r in ask(path, "steps")} == expected
    for query in ("breakdown", "utilization"):
        assert {r["step"]: r["span_ns"] for r in ask(path, query, params={"window": "step"})} == expected
    paths = ask(path, "critical-path", params={"window": "step"})
    assert {r["step"]: r["window_ns"] for r in paths} == expected
    assert {r["step"]: r["step_ns"] for r in ask(path, "dataloader", params={"window": "step"})} == expected
    [skew] = ask(path, "rank-skew", params={"metric": "step"})
    assert skew["avg_ns"] == 60_000
    # The second ends on the GPU: its path does, too.
    assert {r["kind"]: r["total_ns"] for r in paths if r["step"] == 2} == {
        "kernel": 20_000, "launch": 24_000, "cpu": 26_000,
    }  # fmt: skip


def test_nsys_export_steps_equal_its_breakdown(tmp_path: Path) -> None:
    # Its two NVTX ranges `step`, as SQLite has them: the first window ends where the second range begins.
    path = tmp_path / "node-0.sqlite"
    shutil.copyfile(SAMPLES / "alexnet-dp2" / "nsys" / "node-0.sqlite", path)
    with closing(sqlite3.connect(path)) as file:
        ranges = file.execute(
            "SELECT e.start, e.end FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId"
            " WHERE coalesce(e.text, s.value) = 'step' ORDER BY e.start"
        ).fetchall()
    steps = {r["step"]: r["step_ns"] for r in ask(path, "steps")}
    (first, _), (second, end) = ranges
    assert steps.keys() == {0, 1} and steps[0] == second - first and steps[1] >= end - second
    spans = {(r["device"], r["step"]): r["span_ns"] for r in ask(path, "breakdown", params={"window": "step"})}
    assert spans == {(device, number): ns for device in (0, 1) for number, ns in steps.items()}


def test_nested_and_doubled_step_ranges_are_one_step(tmp_path: Path) -> None:
    events = [step(1, 0, 40), step(1, 0, 40), step(7, 10, 5), step(2, 40, 20)]
    rows = ask(write_trace(tmp_path / "t.json", events), "steps")
    assert [(r["step"], r["step_ns"]) for r in rows] == [(1, 40_000), (2, 20_000)]


HEADER = (
    "rank,step,warmup,data_s,h2d_s,forward_s,loss_s,backward_s,optimizer_s,step_s,images,loss,max_allocated_bytes,"
    "max_reserved_bytes"
)


def run_folder(root: Path, events: list[dict[str, Any]] | None, metrics: list[str], **columns: Any) -> Path:
    """A run folder with a trace of these events (None for no trace) and these lines of step metrics."""
    files = []
    if events is not None:
        write_trace(root / "torch" / "rank-0.trace.json", events)
        files.append(("torch/rank-0.trace.json", "chrome_trace", 0))
    if metrics:
        (root / "torch").mkdir(parents=True, exist_ok=True)
        (root / "torch" / "rank-0.step_metrics.csv").write_text("\n".join([HEADER, *metrics]) + "\n")
        files.append(("torch/rank-0.step_metrics.csv", "step_metrics", 0))
    return write_run(root, files, **{"model": "m", "batch_size": 8, "gpus": 1, "steps": 5} | columns)


def metrics_line(number: int, warmup: bool, data_us: int, step_us: int) -> str:
    return f"0,{number},{warmup},{data_us / 1e6},0,0,0,0,0,{step_us / 1e6},8,1,0,0"


def test_recorded_and_undisturbed_steps_are_shown_together(tmp_path: Path) -> None:
    # Recorded: windows of 100 and 60, that wait 10 and 0. Timed: steps 2 and 3 of 90 and 50, waits of 9 and 1; step 0
    # and 1 were warm-up, which was not recorded. 8 images in 100 us are 80,000 a second.
    events = [step(2, 0, 95), step(3, 100, 60), annotated("data", 5, 10)]
    lines = [metrics_line(n, n < 2, *t) for n, t in enumerate([(70, 900), (7, 95), (9, 90), (1, 50)])]
    path = run_folder(tmp_path / "r", events, lines)
    columns = ("step", "step_ns", "data_ns", "timed_step_ns", "timed_data_ns", "images_per_s")
    assert [tuple(r[c] for c in columns) for r in ask(path, "steps")] == [
        (2, 100_000, 10_000, 90_000, 9_000, 80_000), (3, 60_000, 0, 50_000, 1_000, pytest.approx(8 / 60e-6)),
    ]  # fmt: skip
    warm = ask(path, "steps", params={"warmup": "yes"})
    assert [(r["step"], r["step_ns"], r["timed_step_ns"]) for r in warm][:2] == [
        (0, 900_000, 900_000),
        (1, 95_000, 95_000),
    ]
    [row] = ask(path, "dataloader")
    assert (row["steps"], row["step_ns"], row["data_ns"], row["data_pct"]) == (2, 160_000, 10_000, 6.25)
    # Two steps of 8 images in 160 us.
    [row] = ask(path, "scaling")
    assert row["images_per_s"] == pytest.approx(16 / 160e-6)


def test_steps_without_a_trace_come_from_step_metrics(tmp_path: Path) -> None:
    path = run_folder(tmp_path / "r", None, [metrics_line(0, True, 70, 900), metrics_line(1, False, 10, 100)])
    [row] = ask(path, "steps")
    assert (row["step"], row["step_ns"], row["data_ns"], row["data_pct"]) == (1, 100_000, 10_000, 10)
    assert row["profiler_ns"] is None
    [row] = ask(path, "dataloader")
    assert (row["step_ns"], row["data_ns"], row["idle_wait_pct"], row["bound"]) == (100_000, 10_000, None, True)


def test_step_number_comes_from_step_metrics(tmp_path: Path) -> None:
    # As many were recorded as were profiled: they are those, whatever the profiler calls them.
    lines = [metrics_line(n, n < 2, 0, 50) for n in range(4)]
    path = run_folder(tmp_path / "r", [step(0, 0, 50), step(1, 50, 50)], lines)
    assert [(r["step"], r["timed_step_ns"]) for r in ask(path, "steps")] == [(2, 50_000), (3, 50_000)]
    # Neither as many as profiled nor as all: the numbers in the trace.
    path = run_folder(tmp_path / "s", [step(n, 50 * n, 50) for n in (1, 2, 3)], lines)
    assert [(r["step"], r["timed_step_ns"]) for r in ask(path, "steps")] == [(2, 50_000), (3, 50_000)]


def test_uncounted_steps_are_not_divided_by(tmp_path: Path) -> None:
    # Another program: its manifest has the option's default, 5, of which nothing is known.
    other = run_folder(tmp_path / "other", [kernel("k", 0, 1)], [], model=None)
    assert sql(other, "SELECT * FROM step_counts") == []
    counted = run_folder(tmp_path / "counted", [step(0, 0, 5), step(1, 5, 5), kernel("k", 0, 1)], [], model=None)
    assert sql(counted, "SELECT steps FROM step_counts") == [{"steps": 2}]
    timed = run_folder(tmp_path / "timed", None, [metrics_line(n, n < 1, 0, 9) for n in range(4)], model=None)
    assert sql(timed, "SELECT steps FROM step_counts") == [{"steps": 3}]
    # The collector's own training loop runs what it was asked for, if it comes to its end.
    own = run_folder(tmp_path / "own", [kernel("k", 0, 1)], [])
    assert sql(own, "SELECT steps FROM step_counts") == [{"steps": 5}]
    failed = run_folder(tmp_path / "failed", [kernel("k", 0, 1)], [])
    manifest = json.loads((failed / "run.json").read_text())
    manifest["passes"][0]["status"] = "failed"
    (failed / "run.json").write_text(json.dumps(manifest))
    assert sql(failed, "SELECT steps FROM step_counts") == []


def test_flops_per_image_divide_by_counted_steps(tmp_path: Path) -> None:
    """A user's own program, of which run.json has the default of 5 steps, and the same as the collector's loop."""
    for model, command, images in ((None, [], None), ("m", [], 40), ("m", ["--ncu-launches", "9"], None)):
        folder = tmp_path / f"{model}{len(command)}"
        shutil.copytree(SAMPLES / "matmuls", folder)
        manifest = json.loads((folder / "run.json").read_text())
        manifest |= {"batch_size": 8, "model": model, "command": [*manifest["command"], *command]}
        manifest |= {"program": None} if model else {}
        (folder / "run.json").write_text(json.dumps(manifest))
        [row] = ask(folder, "flops", params={"group": "all"})
        # 8 images in each of 5 steps; not known of another program, nor of a part of the launches.
        assert row["flops_per_image"] == (None if images is None else row["total_flops"] / images)
        assert row["total_flops"] > 0


def test_nested_loader_ranges_count_once(tmp_path: Path) -> None:
    # [5, 65) holds [10, 60): 60 of 100, not 110.
    events = [
        step(1, 0, 100), annotated("enumerate(DataLoader)#A.__next__", 5, 60),
        annotated("enumerate(DataLoader)#B.__next__", 10, 50),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "steps")
    assert (row["data_ns"], row["train_ns"], row["data_pct"]) == (60_000, 40_000, 60)
    [row] = ask(path, "dataloader")
    assert (row["data_ns"], row["data_pct"], row["wait_max_ns"]) == (60_000, 60, 60_000)
    [row] = ask(path, "phases")
    assert (row["phase"], row["calls"], row["cpu_ns"]) == ("data", 1, 60_000)


def test_wait_is_cut_at_the_step_boundary(tmp_path: Path) -> None:
    events = [step(1, 0, 50), step(2, 50, 50), annotated("data", 40, 30)]
    rows = ask(write_trace(tmp_path / "t.json", events), "steps")
    assert [r["data_ns"] for r in rows] == [10_000, 20_000]


def test_waits_are_unknown_without_loader_ranges(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [step(1, 0, 50), kernel("k", 0, 5)])
    [row] = ask(path, "steps")
    assert row["data_ns"] is row["train_ns"] is row["data_pct"] is None and row["step_ns"] == 50_000
    [row] = ask(path, "dataloader")
    assert row["data_ns"] is row["bound"] is row["idle_wait_pct"] is None


def test_waits_of_some_steps_are_not_extrapolated(tmp_path: Path) -> None:
    """A warm-up step of 100 us waits 70, as the collector timed it; of the recorded one of 100 us nothing says it."""
    path = run_folder(
        tmp_path / "r", [step(1, 0, 100)], [metrics_line(0, True, 70, 100), metrics_line(1, False, 0, 90)]
    )
    [row] = ask(path, "dataloader", params={"warmup": "yes"})
    # 16 images in 200 us.
    assert (row["steps"], row["step_ns"], row["images_per_s"]) == (2, 200_000, 80_000)
    assert row["data_ns"] is row["unbound_images_per_s"] is None
    assert (row["data_pct"], row["wait_max_ns"], row["bound"]) == (70, 70_000, True)


def test_images_per_second_without_waits(tmp_path: Path) -> None:
    """A step of 100 us waits 30, and a kernel works in 20 of them: without the wait it would take 90 us."""
    events = [step(1, 0, 100), annotated("data", 10, 30), kernel("k", 20, 20)]
    times = metrics_line(1, False, 30, 100)
    [row] = ask(run_folder(tmp_path / "recorded", events, [times]), "dataloader")
    assert (row["idle_wait_pct"], row["unbound_images_per_s"]) == (pytest.approx(100 / 3), pytest.approx(8 / 90e-6))
    # Without a trace nothing says what the GPU did in the wait. A CPU does nothing else.
    for device, expected in (("cuda", None), ("cpu", pytest.approx(8 / 70e-6))):
        [row] = ask(run_folder(tmp_path / device, None, [times], device_type=device), "dataloader")
        assert (row["data_ns"], row["unbound_images_per_s"]) == (30_000, expected)


def test_profiler_overhead_in_steps_and_waits(tmp_path: Path) -> None:
    # Overhead [5, 15) and [10, 20) on two threads is 15 long; 5 of it, [15, 20), in the wait. [90, 130) is cut at 100.
    events = [
        step(1, 0, 100), annotated("data", 15, 10),
        event("overhead", "Activity Buffer Request", 5, 10, tid=0), event("overhead", "Buffer Flush", 10, 10, tid=9),
        event("overhead", "Buffer Flush", 90, 40, tid=9),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    [row] = ask(path, "steps")
    assert (row["step_ns"], row["profiler_ns"]) == (100_000, 25_000)
    [row] = ask(path, "dataloader")
    assert (row["data_ns"], row["profiler_ns"]) == (10_000, 5_000)


def test_nested_optimizers_count_once(tmp_path: Path) -> None:
    # ZeRO [0, 100) holds Adam [10, 30). Kernels launched at 15 (5 long, at 20) and 50 (30 long, at 60): all in the
    # optimizer, from 20 to 90.
    events = [
        annotated("Optimizer.step#ZeRO.step", 0, 100), annotated("Optimizer.step#Adam.step", 10, 20),
        launch(15, 1), kernel("k", 20, 5, correlation=1), launch(50, 2), kernel("k", 60, 30, correlation=2),
    ]  # fmt: skip
    [row] = ask(write_trace(tmp_path / "t.json", events), "phases")
    columns = ("phase", "calls", "cpu_ns", "gpu_ops", "gpu_ns", "gpu_span_ns", "gpu_time_pct")
    assert tuple(row[c] for c in columns) == ("optimizer", 1, 100_000, 2, 35_000, 70_000, 100)


def test_work_belongs_to_the_innermost_phase(tmp_path: Path) -> None:
    # backward [0, 100) holds optimizer [20, 60), which holds forward [30, 40). Launches at 10, 25, 35, 50, 80, 110 of
    # kernels of 1, 2, 4, 8, 16 and 32.
    events = [annotated("backward", 0, 100), annotated("optimizer", 20, 40), annotated("forward", 30, 10)]
    for i, at in enumerate((10, 25, 35, 50, 80, 110)):
        events += [launch(at, i + 1), kernel(f"k{i}", 200 + 50 * i, 2**i, correlation=i + 1)]
    path = write_trace(tmp_path / "t.json", events)
    rows = {r["phase"]: (r["cpu_ns"], r["gpu_ns"]) for r in ask(path, "phases")}
    assert rows == {
        "backward": (100_000, 17_000), "optimizer": (40_000, 10_000), "forward": (10_000, 4_000),
        "(outside)": (0, 32_000),
    }  # fmt: skip
    kernels = {r["name"]: r["phase"] for r in ask(path, "kernel-by-phase")}
    assert [kernels[f"k{i}"] for i in range(6)] == [
        "backward", "optimizer", "forward", "optimizer", "backward", "(outside)",
    ]  # fmt: skip


def test_phases_of_several_threads_and_devices(tmp_path: Path) -> None:
    # Main thread: forward [0, 40), backward [40, 100). A replica's thread has a forward of its own, [10, 50). A launch
    # at 45 on the main thread is in its backward, though the other forward is open; on the replica's thread in its
    # forward; at 60 on it, and on the autograd thread at 45 (the last begun) and 70, in backward. Device 1 as device 0.
    events = [annotated("forward", 0, 40), annotated("backward", 40, 60), annotated("forward", 10, 40, tid=2)]
    for i, (at, tid) in enumerate(((45, 1), (45, 2), (60, 2), (45, 3), (70, 3))):
        events += [launch(at, i + 1) | {"tid": tid}, kernel("k", 200 + 50 * i, 2**i, device=i % 2, correlation=i + 1)]
    rows = {
        r["phase"]: (r["calls"], r["cpu_ns"], r["gpu_ns"])
        for r in ask(write_trace(tmp_path / "t.json", events), "phases")
    }
    # forward: 2; backward: 1 + 4 + 8 + 16. On the CPU forward is [0, 50).
    assert rows == {"forward": (2, 50_000, 2_000), "backward": (1, 60_000, 29_000)}


@pytest.fixture(scope="module")
def samples() -> analyze.Traces:
    return analyze.open(*(SAMPLES / name for name in SAMPLE_NAMES))


def test_step_windows_of_samples_do_not_overlap(samples: analyze.Traces) -> None:
    samples = samples.where(block="full")
    rows = samples.sql("SELECT * FROM step_windows ORDER BY run_id, rank, start_ns").dicts()
    ranges = samples.sql(
        "SELECT run_id, rank, min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM step_ranges GROUP BY ALL"
    ).dicts()
    assert len(ranges) == 45  # of alexnet-dp2, the torch pass
    for r in ranges:
        own = [w for w in rows if (w["run_id"], w["rank"]) == (r["run_id"], r["rank"])]
        assert own[0]["start_ns"] == r["first_ns"] and own[-1]["end_ns"] >= r["last_ns"]
        assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(own))
    lengths = {(w["run_id"], w["rank"], w["step"]): w["end_ns"] - w["start_ns"] for w in rows}
    steps = samples.query("steps").dicts()
    assert {(r["run_id"], r["rank"], r["step"]): r["step_ns"] for r in steps} == lengths
    for r in steps:
        assert r["data_ns"] is None or r["data_ns"] + r["train_ns"] == r["step_ns"] >= r["data_ns"] >= 0
        assert 0 <= r["profiler_ns"] <= r["step_ns"]
    windows = samples.query("breakdown", params={"window": "step"}).dicts()
    # What only some ranks recorded is left out.
    excluded = {(r["run_id"], r["rank"], r["step"]): r["excluded_ns"] for r in windows}
    for r in [*windows, *samples.query("utilization", params={"window": "step"}).dicts()]:
        of = (r["run_id"], r["rank"], r["step"])
        assert r["span_ns"] + excluded[of] == lengths[of]
    for r in samples.query("critical-path", params={"window": "step"}).dicts():
        assert r["window_ns"] == lengths[r["run_id"], r["rank"], r["step"]]


def test_phases_of_samples_add_up_to_all_gpu_work(samples: analyze.Traces) -> None:
    samples = samples.where(block="full")
    of_runs = "FROM gpu_work WHERE run_id IN (SELECT run_id FROM phase_ranges)"
    [work] = samples.sql(f"SELECT count(*) AS n, sum(dur_ns)::BIGINT AS ns {of_runs}").dicts()
    phases = samples.query("phases").dicts()
    assert (sum(r["gpu_ops"] for r in phases), sum(r["gpu_ns"] for r in phases)) == (work["n"], work["ns"])
    [kernels] = samples.sql("SELECT count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM kernels").dicts()
    by_phase = samples.query("kernel-by-phase", params={"group": "family"}).dicts()
    assert (sum(r["calls"] for r in by_phase), sum(r["total_ns"] for r in by_phase)) == (kernels["n"], kernels["ns"])
    for r in phases:
        assert r["gpu_time_pct"] <= 100
