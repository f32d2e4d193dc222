"""The GPU-only block of a program: each kernel, copy and fill finds its twin in the full block."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SAMPLES, ask, sql
from traces import event, kernel, launched, op, step, write_run, write_trace
from two_blocks import Event, with_gpu_block

import analyze
from analyze.derive.twins import common_subsequence
from analyze.errors import InputError
from analyze.query.query_files import catalog

LM = SAMPLES / "lm-eager"
WORK = "SELECT * EXCLUDE (run_id, start_ns, {clock}) FROM gpu_work WHERE run_id LIKE '%{block}' ORDER BY ALL"


def longest(a: list[int], b: list[int]) -> int:
    """The length of a longest common subsequence, by the table that defines it."""
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if x == y else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


def test_longest_common_subsequence() -> None:
    """Pairs ascend on both sides, are equal, and are as many as can be."""
    draw = random.Random(1)
    for _ in range(300):
        a, b = ([draw.randrange(4) for _ in range(draw.randrange(14))] for _ in range(2))
        left, right = common_subsequence(np.array(a, np.int64), np.array(b, np.int64))
        assert [a[i] for i in left] == [b[j] for j in right]
        assert (np.diff(left) > 0).all() and (np.diff(right) > 0).all()
        assert len(left) == longest(a, b)


def test_long_sequences_with_few_differences() -> None:
    a = np.arange(300_000) % 977
    b = np.delete(np.insert(a, [7, 150_000], -1), [60_000, 299_990])
    left, right = common_subsequence(a, b)
    assert len(left) == len(a) - 2 and (a[left] == b[right]).all()


def test_too_many_differences_leave_the_common_start_and_end() -> None:
    same, a, b = np.arange(10), np.arange(100, 5000), np.arange(10_000, 15_000)
    left, right = common_subsequence(np.concatenate([same, a, same]), np.concatenate([same, b, same]))
    assert left.tolist() == [*range(10), *range(4910, 4920)] and right.tolist() == [*range(10), *range(5010, 5020)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample with a GPU-only block whose gaps are half as long."""
    return with_gpu_block(LM, tmp_path_factory.mktemp("pair") / "run", shorter=0.5)


def rows(folder: Path, statement: str) -> list[dict[str, Any]]:
    return sql(folder, statement, profiler="all")


def test_work_takes_what_launched_it_from_its_twin(pair: Path) -> None:
    # Columns of launch calls, which the GPU-only block does not have.
    clock = "call_start_ns, call_dur_ns, first_of_call, first_on_stream"
    gpu, full = (rows(pair, WORK.format(block=block, clock=clock)) for block in (".gpu", ".torch"))
    assert gpu == full and len(gpu) == 837
    [launches] = rows(pair, "SELECT count(call_start_ns) AS n FROM gpu_work WHERE run_id LIKE '%.gpu'")
    assert launches["n"] == 0  # the launch of the twin is in the other block


def test_twins_have_the_step_and_the_times_of_the_full_block(pair: Path) -> None:
    found = rows(
        pair,
        "SELECT count(*) AS n, count(DISTINCT turn) AS steps, sum(full_dur_ns) AS ns,"
        " count(DISTINCT (full_start_ns, stream)) AS twins FROM twins",
    )
    [full] = rows(pair, "SELECT sum(dur_ns) AS ns FROM gpu_work WHERE run_id LIKE '%.torch'")
    assert found == [{"n": 837, "steps": 3, "ns": full["ns"], "twins": 837}]


def test_work_without_a_twin(tmp_path: Path) -> None:
    """Two kernels of the GPU-only block are not in the full one, and one of the full one is not there."""

    def change(events: list[Event]) -> list[Event]:
        work = [e for e in events if e["cat"] == "kernel"]
        own = [work[5] | {"name": "own", "ts": work[5]["ts"] + work[5]["dur"]}, work[400] | {"name": "own"}]
        return [e for e in events if e is not work[300]] + own

    folder = with_gpu_block(LM, tmp_path / "run", change=change)
    [operators] = rows(folder, "SELECT count(op_name) AS n FROM gpu_work WHERE run_id LIKE '%.gpu' AND name = 'own'")
    assert operators == {"n": 0}
    [missing] = rows(folder, "SELECT count(*) - count(full_start_ns) AS n, count(*) AS work FROM twins")
    assert missing == {"n": 2, "work": 838}


def blocks(folder: Path, gpu_steps: int, full_steps: int) -> Path:
    """Two blocks of steps of three kernels: the one with the name of the step is launched by the operator of it."""
    gpu: list[Event] = []
    full: list[Event] = []
    for number in range(gpu_steps):
        at = 100.0 * number
        gpu += [step(number, at, 90), *(kernel(f"k{i}", at + 10 * i, 5, correlation=10 * number + i) for i in range(3))]
    for number in range(full_steps):
        at = 10_000 + 1000.0 * number
        full += [step(number, at, 900)]
        for i in range(3):
            own = 10 * number + i + 1
            full += [
                op(f"op{number}", at + 100 * i, 50, own),
                *launched(at + 100 * i + 1, own, at + 100 * i + 9, 5, f"k{i}"),
            ]
    return write_blocks(folder, gpu, full)


def write_blocks(folder: Path, gpu: list[Event], full: list[Event]) -> Path:
    """Write a run folder with these events of both blocks."""
    write_trace(folder / "gpu" / "rank-0.trace.json", gpu)
    write_trace(folder / "torch" / "rank-0.trace.json", full)
    passes = [
        {
            "profiler": p,
            "status": "done",
            "files": [{"path": f"{p}/rank-0.trace.json", "kind": "chrome_trace", "rank": 0}],
        }
        for p in ("gpu", "torch")
    ]
    start = "2026-01-01T00:00:00+00:00"
    manifest = {"run_id": "run", "status": "done", "start": start, "command": ["collect"], "passes": passes}
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


def test_steps_follow_each_other_again_where_the_full_block_has_fewer(tmp_path: Path) -> None:
    found = rows(
        blocks(tmp_path / "run", 5, 2),
        "SELECT turn, list(DISTINCT op_name) AS ops, count(*) AS n"
        " FROM twins JOIN gpu_work USING (run_id, rank, start_ns) GROUP BY turn ORDER BY turn",
    )
    assert found == [{"turn": turn, "ops": [f"op{turn % 2}"], "n": 3} for turn in range(5)]


def test_a_store_without_derived_tables_finds_the_twins(pair: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    analyze.ingest(pair, store=store)
    statement = "SELECT * FROM gpu_work WHERE run_id LIKE '%.gpu' ORDER BY ALL"
    stored = rows(store, statement)
    catalogue = json.loads((store / "store.json").read_text())
    for run in catalogue["runs"].values():
        run["derived"] = ""
    (store / "store.json").write_text(json.dumps(catalogue))
    assert rows(store, statement) == stored != []
    with analyze.open(store) as traces:
        assert "using gpu only" in traces.query("gpu-busy").note


def test_time_is_asked_of_the_gpu_only_block(pair: Path) -> None:
    """Gaps are half as long there; what launched the work is asked of the full block."""
    with analyze.open(pair) as traces:
        [gpu], [full] = (traces.where(block=b).query("gpu-busy").dicts() for b in ("gpu", "full"))
        answer = traces.query("gpu-busy")
        assert answer.dicts() == [gpu] and "using gpu only (--block chooses" in answer.note
        assert gpu["busy_ns"] == full["busy_ns"]
        assert 2 * (gpu["span_ns"] - gpu["busy_ns"]) == pytest.approx(full["span_ns"] - full["busy_ns"], abs=1000)
        both = traces.where(block="both").query("gpu-busy").dicts()
        assert [(r["profiler"], r["span_ns"]) for r in both] == [("gpu", gpu["span_ns"]), ("torch", full["span_ns"])]
        ops = traces.query("ops")
        assert "using torch only" in ops.note and ops.dicts() == traces.where(block="full").query("ops").dicts()


def test_too_few_twins_leave_time_to_the_full_block(tmp_path: Path) -> None:
    def change(events: list[Event]) -> list[Event]:
        return [e | {"name": f"{e['name']} of another program"} if n % 20 == 0 else e for n, e in enumerate(events)]

    with analyze.open(with_gpu_block(LM, tmp_path / "run", change=change)) as traces:
        answer = traces.query("gpu-busy")
        assert "using torch only" in answer.note and "kernels, copies and fills" in answer.note
        assert answer.dicts() == traces.where(block="full").query("gpu-busy").dicts()
        assert traces.where(block="gpu").query("gpu-busy").arrow().num_rows == 1


def test_a_gpu_only_block_that_is_slower_leaves_time_to_the_full_block(tmp_path: Path) -> None:
    """CUPTI takes a buffer for each thread: DataParallel's step took 68.7 ms GPU only and 27.8 in full (H100)."""
    folder = with_gpu_block(LM, tmp_path / "run")
    manifest = json.loads((folder / "run.json").read_text())
    for one in manifest["passes"]:
        own = f"{one['profiler']}/rank-0.step_metrics.csv"
        one["files"] = [f for f in one["files"] if f["kind"] != "step_metrics"]
        one["files"].append({"path": own, "kind": "step_metrics", "rank": 0})
    (folder / "run.json").write_text(json.dumps(manifest))

    def answers(gpu_s: float, full_s: float) -> tuple[bool, str]:
        for name, step_s in (("gpu", gpu_s), ("torch", full_s)):
            steps = ["0,0,true,true,9.0", *(f"0,{n},false,false,{step_s}" for n in (1, 2))]
            (folder / name / "rank-0.step_metrics.csv").write_text(
                "\n".join(["rank,step,warmup,undisturbed,step_s", *steps]) + "\n"
            )
        with analyze.open(folder) as traces:
            answer = traces.query("gpu-busy")
            [fact] = [r for r in traces.query("health").dicts() if r["fact"] == "step time of the blocks"]
            full = traces.where(block="full").query("gpu-busy")
            return answer.dicts() == full.dicts(), f"{answer.note} {fact['impact']}"

    by_full, note = answers(0.0687, 0.0278)
    assert by_full and "takes 68.7 ms, one of the full block 27.8 ms" in note
    assert "queries about time use the full block" in note
    by_full, note = answers(0.0278, 0.0278 / 1.19)
    assert not by_full and "full block" not in note


def test_a_gpu_only_block_alone(tmp_path: Path) -> None:
    """Without a full block its work has no operators, and no twins."""
    folder = with_gpu_block(LM, tmp_path / "run")
    manifest = json.loads((folder / "run.json").read_text())
    manifest["passes"] = manifest["passes"][:1]
    (folder / "run.json").write_text(json.dumps(manifest))
    assert rows(folder, "SELECT count(*) AS n, count(op_name) AS ops FROM gpu_work") == [{"n": 837, "ops": 0}]
    with analyze.open(folder) as traces:
        assert traces.query("kernel-share").arrow().num_rows > 0


def test_collectives_of_a_gpu_only_block(tmp_path: Path) -> None:
    """PyTorch's metadata of a collective comes from the twin: waits are the same as in the full block."""
    folder = with_gpu_block(SAMPLES / "late-rank", tmp_path / "run")
    with analyze.open(folder) as traces:
        for name in ("collectives", "collective-waits", "stragglers"):
            gpu, full = (traces.where(block=b).query(name).dicts() for b in ("gpu", "full"))
            assert [r | {"run_id": None} for r in gpu] == [r | {"run_id": None} for r in full] != []


def test_unknown_block(pair: Path) -> None:
    with pytest.raises(InputError, match="--block first: must be one of gpu, full, both"):
        analyze.open(pair).where(block="first").query("gpu-busy").dicts()


def test_steps_end_with_the_work_that_their_twins_launched(tmp_path: Path) -> None:
    """The last step ends with its last GPU work, though a GPU-only block has no launch calls."""
    with analyze.open(with_gpu_block(SAMPLES / "fsdp-tp-4gpu", tmp_path / "run")) as traces:
        for name in ("rank-skew", "steps", "kernel-pace"):
            gpu, full = (traces.where(block=b).query(name).dicts() for b in ("gpu", "full"))
            timed = {"run_id", "timed_step_ns", "undisturbed_step_ns", "slowdown", "profiler_ns"}
            assert [{k: v for k, v in r.items() if k not in timed} for r in gpu] == [
                {k: v for k, v in r.items() if k not in timed} for r in full
            ]


def test_gaps_of_a_gpu_only_block(tmp_path: Path) -> None:
    """A gap of 10 us is the host's where nothing else can hold the work back: the GPU is the only one."""

    def gpu(devices: int) -> Path:
        folder = tmp_path / str(devices)
        work = [kernel("k", ts, 10) for ts in (0, 15, 35, 145)]  # gaps of 5, 10 and 100 us
        work += [kernel("k", 0, 1, device=1)] * (devices - 1)
        write_trace(folder / "gpu" / "rank-0.trace.json", work)
        return write_run(folder, [("gpu/rank-0.trace.json", "chrome_trace", 0)], profiler="gpu")

    def causes(folder: Path, **params: str) -> dict[str, int]:
        return {r["cause"]: r["idle_ns"] for r in ask(folder, "idle-causes", params=params) if r["device"] == 0}

    assert causes(gpu(1)) == {"host_wait": 110_000, "other": 5_000}
    assert causes(gpu(2)) == causes(gpu(1), per="stream") == {"other": 115_000}


def test_what_the_cpu_did_in_a_gap_is_the_operator_of_the_twin(tmp_path: Path) -> None:
    [gap] = ask(blocks(tmp_path / "run", 2, 2), "gaps", params={"top": "1"})
    # Work ends at 25 us of a step of 100 us; the first kernel of the next step follows, which its operator launched.
    assert (gap["run_id"], gap["gap_ns"], gap["cause"]) == ("run.gpu", 75_000, "host_wait")
    assert gap["cpu"] == gap["after_op"] == "op1" and gap["cpu_ns"] is None


def test_advice_of_time_is_of_the_gpu_only_block(tmp_path: Path) -> None:
    """Each finding is of the block that its run names; waits for a late rank are those of the GPU-only block."""
    folder = with_gpu_block(SAMPLES / "late-rank", tmp_path / "run")
    with analyze.open(folder) as traces:
        found = {a["finding"]: a for a in traces.advise().dicts()}
        assert found["stragglers"]["run_id"].endswith(".gpu") and found["host-wait"]["run_id"].endswith(".torch")
        for block, suffix in (("gpu", ".gpu"), ("full", ".torch")):
            [own] = [a for a in traces.where(block=block).advise().dicts() if a["finding"] == "stragglers"]
            assert own["run_id"].endswith(suffix) and own["saving_ns"] == found["stragglers"]["saving_ns"]
            assert own["rank"] == found["stragglers"]["rank"] is not None


def health(folder: Path) -> dict[str, tuple[str, str]]:
    """Verdict and value of each check of the GPU-only block."""
    return {r["fact"]: (r["verdict"], r["value"]) for r in ask(folder, "health") if r["run_id"].endswith("gpu")}


def test_health_compares_the_blocks(tmp_path: Path) -> None:
    facts = health(blocks(tmp_path / "run", 2, 2))
    assert facts["twins in the full block"] == ("ok", "100.00 % of 6 kernels, copies and fills")
    assert facts["kernels against their twins"][0] == "ok"
    assert facts["steps of the twins"] == (
        "ok", "0 of 6 kernels, copies and fills begin before the step that launched them"
    )  # fmt: skip
    # Steps of 100 and 90 us, the last one until its range ends; and of 1000 and 900 us.
    assert facts["step time of the blocks"] == ("unknown", "GPU only 0.095 ms, full 0.950 ms, undisturbed not timed")


def test_health_reports_wrong_times_and_missing_twins(tmp_path: Path) -> None:
    def change(events: list[Event]) -> list[Event]:
        kernels = [e for e in events if e["cat"] == "kernel"]
        dropped = {id(e) for e in kernels[:100]}
        return [e | {"dur": 2 * e["dur"], "name": "x" if id(e) in dropped else e["name"]} for e in events]

    facts = health(with_gpu_block(LM, tmp_path / "run", change=change))
    assert facts["twins in the full block"] == ("warning", "88.05 % of 837 kernels, copies and fills")
    verdict, value = facts["kernels against their twins"]
    assert verdict == "warning" and value.startswith("a kernel takes 2.0")


def test_no_answer_mixes_the_blocks(pair: Path, tmp_path: Path) -> None:
    with analyze.open(pair) as traces:
        with pytest.raises(InputError, match="--block both: the two blocks need profiler among --rows or --columns"):
            traces.where(block="both").pivot("kernel-share", rows=["name"], value="total_ns", agg="sum")
        assert "times are those of the GPU-only block" in traces.advise().note
        assert all("using gpu only" in note for note in analyze.compare(traces, traces).notes if "using" in note)
        traces.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "times are those of the GPU-only block" in page and "(GPU-only block)</h3>" in page


def test_a_sharded_ingest_finds_the_twins(pair: Path, tmp_path: Path) -> None:
    """A shard does not read the full block of its GPU-only block: the twins are found when they are asked for."""
    whole, store = tmp_path / "whole", tmp_path / "store"
    analyze.ingest(pair, store=whole)
    for shard in ("0/2", "1/2"):
        analyze.ingest(pair, store=store, shard=shard)
    analyze.commit(store)
    statement = "SELECT * FROM gpu_work WHERE run_id LIKE '%.gpu' ORDER BY ALL"
    assert rows(store, statement) == rows(whole, statement) != []


def test_late_rank_of_a_recorded_program() -> None:
    """Two ranks on H100s, of which rank 1 slept 5 ms in each of 5 steps; only collectives and steps are left of it."""
    folder = Path(__file__).parent / "data" / "late-rank-blocks"
    statement = "SELECT count(*) AS n, count(full_start_ns) AS twins, count(collective) AS known FROM twins"
    assert rows(folder, statement) == [{"n": 100, "twins": 100, "known": 100}]
    found = ask(folder, "stragglers")
    assert [(r["run_id"], r["rank"], r["times_last"], r["calls"]) for r in found] == [
        ("late-rank.gpu", 0, 0, 50),
        ("late-rank.gpu", 1, 50, 50),
    ]
    assert found[0]["wait_ns"] > 5 * 5e6 and found[1]["wait_ns"] == 0


BLOCK_OF = {"gpu": "GPU only", "all": "both"}
NO_TIMES_OF_PASSES = {"arithmetic-intensity", "flops", "metrics", "roofline", "roofs", "useful-flops"}
"""Queries over passes of Nsight Compute."""


def test_the_documented_block_of_each_query_is_that_of_its_file() -> None:
    """docs/blocks.md lists each query once; the reason is what its file says that a GPU-only block has not."""
    page = (Path(__file__).parent.parent / "docs" / "blocks.md").read_text()
    listed = re.findall(r"^\| (`.*?) \| (GPU only|both|full) \| (.*?) ?\|$", page, re.MULTILINE)
    documented = sorted((name, block, why) for names, block, why in listed for name in re.findall(r"`(.+?)`", names))
    declared = [
        (q.name, BLOCK_OF.get(q.prefer or "", "full"), q.full and f"a GPU-only block has no {q.full}")
        for q in catalog().values()
        if q.name not in NO_TIMES_OF_PASSES
    ]
    assert documented == sorted(declared)


def test_times_of_the_full_block_have_a_reason() -> None:
    for query in catalog().values():
        timed = any(column.unit == "ns" for column in query.columns)
        if timed and query.prefer not in ("gpu", "all") and query.name not in NO_TIMES_OF_PASSES:
            assert query.full, query.name
        assert not (query.full and query.prefer in ("gpu", "all")), query.name


def test_times_that_need_the_full_block_are_marked(pair: Path) -> None:
    said = "times are those of the full block: a GPU-only block has no launch calls"
    with analyze.open(pair) as traces:
        assert traces.query("queue-depth").note.endswith(f"; {said}")
        assert said not in traces.where(block="full").query("queue-depth").note
        assert said not in traces.query("gpu-busy").note
        empty = traces.where(block="gpu").query("queue-depth")
        assert empty.dicts() == [] and empty.why() == "a GPU-only block has no launch calls (--block full)"
    with analyze.open(LM) as traces:
        assert said not in traces.query("queue-depth").note


def test_utilization_of_models_is_that_of_the_gpu_only_block(pair: Path) -> None:
    """FLOPs of the full block over steps of the GPU-only block, whose gaps are half as long."""
    with analyze.open(pair) as traces:
        [gpu], [full] = (traces.where(block=b).query("mfu").dicts() for b in ("gpu", "full"))
        assert traces.query("mfu").dicts() == [gpu]
        steps = [r["step_ns"] for r in traces.where(block="gpu").query("steps").dicts()]
    assert gpu["avg_step_ns"] == pytest.approx(sum(steps) / len(steps)) and gpu["avg_step_ns"] < full["avg_step_ns"]
    assert gpu["model_flops"] == full["model_flops"] > 0
    assert gpu["mfu_pct"] / full["mfu_pct"] == pytest.approx(full["gpu_time_ns"] / gpu["gpu_time_ns"])


def test_flops_repeat_with_the_steps(tmp_path: Path) -> None:
    """Five steps GPU only, two in full, of an operator with a kernel: 2e9 FLOPs in even steps, 4e9 in odd ones."""
    gpu: list[Event] = []
    full: list[Event] = []
    for number in range(5):
        gpu += [step(number, 100.0 * number, 90), kernel(f"k{number % 2}", 100.0 * number, 5, correlation=number + 1)]
    for number in range(2):
        at, rows = 10_000 + 1000.0 * number, 1000 * (number + 1)
        shapes = {"Input Dims": [[rows, 2000], [2000, 500]], "Input type": ["float"] * 2}
        full += [step(number, at, 900), event("cpu_op", "aten::mm", at, 50, **{"External id": number + 1}, **shapes)]
        full += launched(at + 1, number + 1, at + 9, 5, f"k{number}")
    folder = write_blocks(tmp_path / "run", gpu, full)
    found = ask(folder, "mfu", params={"per": "step", "peak_tflops": "100"})
    assert [(r["run_id"], r["model_flops"]) for r in found] == [
        ("run.gpu", flops) for flops in (2e9, 4e9, 2e9, 4e9, 2e9)
    ]
    # Steps of 100 us; the last one ends with its range after 90.
    assert [r["mfu_pct"] for r in found[3:]] == [pytest.approx(100 * 4 / 10), pytest.approx(100 * 2 / 9)]


SAME: dict[str, list[tuple[str, dict[str, str]]]] = {
    "train-stacks": [
        ("kernel-share", {"group": "op"}), ("kernel-share", {"group": "module"}), ("kernel-share", {"group": "line"}),
        ("op-roofline", {}), ("utilization", {}), ("slowest-kernels", {"top": "50"}),
        ("frequent-sequences", {"operator": "aten::linear"}),
    ],
    "pipeline-4gpu": [("pipeline-bubbles", {}), ("pipeline-bubbles", {"each": "yes"})],
}  # fmt: skip


@pytest.mark.parametrize("sample", SAME)
def test_same_work_has_the_same_answer_in_both_blocks(tmp_path: Path, sample: str) -> None:
    """The GPU-only block is the full one without what launched the work, which comes from the twins."""
    with analyze.open(with_gpu_block(SAMPLES / sample, tmp_path / "run")) as traces:
        for query, params in SAME[sample]:
            gpu, full = (traces.where(block=b).query(query, params=params).dicts() for b in ("gpu", "full"))
            # Times since the first event of the run differ: the first of the full block is an operator.
            own = dict.fromkeys({"run_id", "start_ns"} & gpu[0].keys())
            assert [r | own for r in gpu] == [r | own for r in full] != [], query
            assert "using gpu only" in traces.query(query, params=params).note


def test_streams_that_were_created_anew(tmp_path: Path) -> None:
    """In the full block, the streams 7 and 9 have the ids 9 and 21: each is found by what it runs."""
    gpu: list[Event] = [step(0, 0, 100)]
    full: list[Event] = [step(0, 1000, 900)]
    for n in range(4):
        gpu += [
            kernel("a", 20 * n, 5, stream=7, correlation=2 * n + 1),
            kernel("b", 20 * n, 9, stream=9, correlation=2 * n + 2),
        ]
        for name, stream, at in (("a", 9, 1000 + 200 * n), ("b", 21, 1100 + 200 * n)):
            own = 2 * n + 1 + (name == "b")
            full += [op(f"op_{name}", at, 50, own), *launched(at + 1, own, at + 9, 5, name)]
            full[-1]["args"]["stream"] = stream
    found = rows(
        write_blocks(tmp_path / "run", gpu, full),
        "SELECT stream, full_stream, list(DISTINCT op_name) AS ops, count(*) AS n"
        " FROM twins JOIN gpu_work USING (run_id, rank, stream, start_ns) GROUP BY ALL ORDER BY stream",
    )
    assert found == [
        {"stream": 7, "full_stream": 9, "ops": ["op_a"], "n": 4},
        {"stream": 9, "full_stream": 21, "ops": ["op_b"], "n": 4},
    ]
