"""Flame graphs: stacks by hand, totals equal to queries, and both file formats."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from support import SAMPLES, ask, opened
from traces import event, kernel, launch, write_trace

import analyze
from analyze.errors import InputError
from analyze.flame import TIMES, TREES

TRACES = ("resnet18-1gpu", "resnet18-ddp2", "resnet18-checkpoint", "late-rank")


def hand_made(path: Path) -> Path:
    # A module [0, 100) calls a function [10, 60), that an operator [20, 50), that another one [30, 40). Each operator
    # launches a kernel, of 7 and 5 us; one of 3 us is nobody's. A `;` is what collapsed stacks cannot hold.
    return write_trace(
        path,
        [
            event("python_function", "nn.Module: Net_0", 0, 100, **{"Python id": 1}),
            event("python_function", "helper.py(1): f", 10, 50, **{"Python id": 2}),
            event("cpu_op", "aten::a;b", 20, 30, **{"External id": 2}),
            launch(22, 1, **{"External id": 2}),
            event("cpu_op", "aten::c", 30, 10, **{"External id": 3}),
            launch(31, 2, **{"External id": 3}),
            kernel("k", 200, 7, correlation=1, **{"External id": 2}),
            kernel("void k2<int>(float*)", 210, 5, correlation=2, **{"External id": 3}),
            kernel("lone", 220, 3),
        ],
    )


def written(source: Path, target: Path, profiler: str | None = None, **options: Any) -> str:
    opened(source).where(profiler=profiler).flame(target, **options)
    return target.read_text()


def counts(text: str) -> dict[str, int]:
    """The lines of collapsed stacks: the count is behind the last blank."""
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in text.splitlines()}


CPU = {
    "op": {"aten::a:b": 20_000, "aten::a:b;aten::c": 10_000},
    "module": {"Net_0": 70_000, "Net_0;aten::a:b": 20_000, "Net_0;aten::a:b;aten::c": 10_000},
    "python": {
        "Net_0": 50_000,
        "Net_0;helper.py(1): f": 20_000,
        "Net_0;helper.py(1): f;aten::a:b": 20_000,
        "Net_0;helper.py(1): f;aten::a:b;aten::c": 10_000,
    },
}
GPU = {"op": "", "module": "Net_0;", "python": "Net_0;helper.py(1): f;"}


@pytest.mark.parametrize("tree", TREES)
def test_collapsed_stacks_by_hand(tmp_path: Path, tree: str) -> None:
    source = hand_made(tmp_path / "t.json")
    assert counts(written(source, tmp_path / "cpu.folded", tree=tree, time="cpu")) == CPU[tree]
    assert counts(written(source, tmp_path / "gpu.txt", tree=tree)) == {
        f"{GPU[tree]}aten::a:b;k": 7000,
        f"{GPU[tree]}aten::a:b;aten::c;k2": 5000,
        "(no operator);lone": 3000,
    }


def check_speedscope(file: dict[str, Any]) -> None:
    """What speedscope's file-format-schema.json (1.25) asks of a file of sampled profiles, and its importer of them."""
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]
    assert all(isinstance(f["name"], str) for f in frames)
    assert 0 <= file["activeProfileIndex"] < len(file["profiles"])
    for p in file["profiles"]:
        assert set(p) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (p["type"], p["unit"], p["startValue"]) == ("sampled", "nanoseconds", 0)
        assert len(p["samples"]) == len(p["weights"]) and sum(p["weights"]) == p["endValue"]
        assert all(0 <= i < len(frames) for stack in p["samples"] for i in stack)
        assert all(isinstance(w, int) and w > 0 for w in p["weights"])


def test_speedscope_by_hand(tmp_path: Path) -> None:
    file = json.loads(written(hand_made(tmp_path / "t.json"), tmp_path / "out.speedscope.json", time="cpu"))
    check_speedscope(file)
    [profile] = file["profiles"]
    names = [[file["shared"]["frames"][i]["name"] for i in stack] for stack in profile["samples"]]
    assert names == [["aten::a;b"], ["aten::a;b", "aten::c"]] and profile["weights"] == [20_000, 10_000]
    assert profile["name"] == "rank 0: CPU time, op tree"


@pytest.mark.parametrize("sample", TRACES)
def test_every_rank_adds_up_to_the_queries(tmp_path: Path, sample: str) -> None:
    rows = ask(SAMPLES / sample, "op-tree", by=["rank"])
    for time, tree in product(TIMES, TREES):
        measure = {"cpu": "self_cpu_ns", "gpu": "self_gpu_ns"}[time]
        expected: Counter[int] = Counter()
        for row in rows:
            expected[row["rank"]] += row[measure]
        assert min(expected.values()) > 0
        file = json.loads(written(SAMPLES / sample, tmp_path / "o.speedscope.json", tree=tree, time=time))
        check_speedscope(file)
        # These samples have no Python stacks, so the trees are one.
        assert {p["name"].split(":")[0]: p["endValue"] for p in file["profiles"]} == {
            f"rank {rank}": ns for rank, ns in expected.items()
        }
        folded = counts(written(SAMPLES / sample, tmp_path / "o.folded", tree=tree, time=time))
        assert sum(folded.values()) == sum(expected.values())
        roots = {line.split(";")[0] for line in folded}
        assert len(expected) == 1 or roots == {f"rank {rank}" for rank in expected}


def test_stacks_are_the_paths_of_the_operator_tree(tmp_path: Path) -> None:
    source = SAMPLES / "resnet18-1gpu"
    expected = {r["path"].replace(" > ", ";"): r["self_cpu_ns"] for r in ask(source, "op-tree") if r["self_cpu_ns"]}
    assert counts(written(source, tmp_path / "o.folded", time="cpu")) == expected


def test_stacks_of_an_nsys_recording(tmp_path: Path) -> None:
    text = written(SAMPLES / "alexnet-dp2", tmp_path / "o.folded", profiler="nsys")
    [row] = (
        analyze.open(SAMPLES / "alexnet-dp2")
        .where(profiler="nsys")
        .sql("SELECT sum(dur_ns)::BIGINT AS ns FROM gpu_work")
        .arrow()["ns"]
        .to_pylist()
    )
    assert sum(counts(text).values()) == row
    assert {line.split(";")[-2] for line in text.splitlines()} == {"(no operator)"}


def test_no_self_time_is_negative(tmp_path: Path) -> None:
    # In a root of 100 us, calls of 60 and of 90 us that overlap in part: together they are all of it.
    events = [event("cpu_op", "r", 0, 100), event("cpu_op", "a", 0, 60), event("cpu_op", "b", 10, 90)]
    path = write_trace(tmp_path / "t.json", events)
    assert counts(written(path, tmp_path / "o.folded", time="cpu")) == {"r;a": 60_000, "r;b": 90_000}


def test_names_cannot_break_the_line_format(tmp_path: Path) -> None:
    events = [event("cpu_op", "a;b\nc 1\u2028d", 0, 1), event("cpu_op", "a:b c 1 d", 5, 1), event("cpu_op", "", 8, 1)]
    path = write_trace(tmp_path / "t.json", events)
    assert written(path, tmp_path / "o.folded", time="cpu") == "a:b c 1 d 2000\n(no name) 1000\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "o.svg"], "o.svg: a flame graph is .speedscope.json"),
        (["-o", "o.folded", "--tree", "kernel"], "--tree kernel: must be one of op, module, python"),
        (["-o", "o.folded", "--time", "tpu"], "--time tpu: must be one of gpu, cpu"),
        (["-o", "o.folded", "--where", "rank = 7"], "there is nothing to draw"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], says: str) -> None:
    result = run_cli("flame", SAMPLES / "resnet18-1gpu", *arguments)
    assert result.returncode == 2 and len(complaints(result)) == 1 and says in complaints(result)[0]


def test_flame_command_reports_what_it_wrote(tmp_path: Path) -> None:
    result = run_cli("flame", SAMPLES / "resnet18-ddp2", "-o", tmp_path / "o.speedscope.json", "--where", "rank = 1")
    # 35,076,425 ns: the sum of the durations of rank 1's GPU work.
    assert result.stdout == f"{tmp_path}/o.speedscope.json: 35.076 ms of GPU time, 1 profile(s)\n"


def test_difference_of_two_recordings(tmp_path: Path) -> None:
    a = write_trace(tmp_path / "a.json", [kernel("k", 0, 10), kernel("gone", 20, 2)])
    b = write_trace(tmp_path / "b.json", [kernel("k", 0, 7), kernel("new", 20, 1)])
    target = tmp_path / "o.folded"
    assert run_cli("compare", a, b, "--flame", target).returncode == 0
    assert target.read_text().splitlines() == [
        "(no operator);k 10000 7000",
        "(no operator);gone 2000 0",
        "(no operator);new 0 1000",
    ]


def test_difference_per_step(tmp_path: Path) -> None:
    sides = SAMPLES / "resnet18-1gpu", SAMPLES / "resnet18-ddp2"
    for option, divisors in (("--per-step", (2, 2)), ("--total", (1, 1))):
        target = tmp_path / "o.folded"
        result = run_cli("compare", *sides, "--flame", target, option, "--where-b", "rank = 0", "--level", "op")
        assert result.returncode == 0, result.stderr
        sums = [0, 0]
        for line in target.read_text().splitlines():
            for side, count in enumerate(line.split(" ")[-2:]):
                sums[side] += int(count)
        # The GPU time of each side by its steps; every line is rounded to the nearest ns.
        lines = len(target.read_text().splitlines())
        for side, (total, divisor) in enumerate(zip((28_243_415, 17_790_200), divisors, strict=True)):
            assert abs(sums[side] - total / divisor) <= (lines / 2 if divisor > 1 else 0)


def test_flame_from_python(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"o\.csv: a flame graph is"):
        analyze.open(SAMPLES / "resnet18-1gpu").flame(tmp_path / "o.csv")
