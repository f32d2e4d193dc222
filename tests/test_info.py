"""`analyze info`: what was found, what it lacks, what it can answer; and why an answer has no rows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from rich.cells import cell_len
from support import SAMPLES, complaints, default_answer, event, kernel, launch, run_cli, sample_engines, write_trace
from test_communication import collective

import analyze
from analyze.info import commands, lines
from analyze.query.needs import HOLDINGS, held, holdings, needs_of
from analyze.query.query_files import catalog

ONE = SAMPLES / "resnet18-1gpu"
NAMES = [
    "alexnet-dp2", "alexnet-ncu", "late-rank", "matmuls", "resnet18-1gpu", "resnet18-checkpoint", "train-stacks",
]  # fmt: skip

CONDITIONS = {
    "memcpy-sync", "recompute", "frequent-sequences", "scaling", "phases", "dataloader", "overlap", "launch", "serving",
    "fsdp",
}  # fmt: skip
"""Queries whose need is more than that a thing is there (copies that block, checkpointing, ...)."""


def told(*paths: Path, width: str = "80") -> str:
    result = run_cli("info", *paths, COLUMNS=width)
    assert result.returncode == 0 and max(map(cell_len, result.stdout.splitlines())) <= max(int(width), 80)
    return result.stdout


def test_it_says_how_a_recording_was_read() -> None:
    """Against what sample_traces/README.md says of the recording, and the options in its run.json."""
    said = " ".join(told(SAMPLES / "resnet18-ddp2").split())
    for text in (
        "read as torch.profiler, 2 ranks of 2, 2 steps, shapes yes, stacks no, memory no",
        "lacks Python stacks, allocator events, FLOP metrics, hardware metrics",
        "GPU NVIDIA H200, compute capability 9.0",
        "model resnet18, batch 16, 2 GPUs, ddp, fp32",
        "without allocator events: memory-by-category, memory-by-op, memory-by-phase, memory-timeline",
        "allocator events: torch.profiler with profile_memory=True",
    ):
        assert text in said, text
    assert f"\n  analyze advise {SAMPLES / 'resnet18-ddp2'}\n" in told(SAMPLES / "resnet18-ddp2")


def test_many_runs_are_a_table() -> None:
    said = told(SAMPLES, width="120")
    assert (
        said.startswith("22 runs\n")
        and f"{len(catalog())} of {len(catalog())} queries can be answered" in said
        and said.count("NVIDIA H200") == 22
    )


def test_a_path_alone_is_told_of_and_a_query_alone_says_what_to_type() -> None:
    assert run_cli(ONE).stdout == run_cli("info", ONE).stdout != ""
    mistaken = run_cli("kernel-share", ONE, "--limit", "5")
    assert mistaken.returncode == 2 and complaints(mistaken) == [
        f"analyze: kernel-share is a query; ask it with: analyze query kernel-share {ONE} --limit 5"
    ]


def test_every_need_is_in_words_that_are_understood() -> None:
    for query in catalog().values():
        if query.needs and "runs" not in query.needs:
            assert needs_of(query, {}).names, f"{query.name}: {query.needs}"
    assert needs_of(catalog()["memory-by-category"], {}).names == ("allocator events", "operators")
    assert needs_of(catalog()["roofline"], {}).names == ("FLOP metrics",)
    assert needs_of(catalog()["flops-by-op"], {}).names == ("operators with input shapes",)
    peak = needs_of(catalog()["memory-peak"], {})
    assert peak.any and peak.lacking({"step metrics"}) == () and len(peak.lacking({"kernels"})) == 2
    assert "training steps" in needs_of(catalog()["breakdown"], {"window": "step"}).names


@pytest.mark.parametrize("sample", NAMES)
def test_what_it_says_of_the_queries_is_true(sample: str) -> None:
    """What cannot be answered has no rows, and what can be has some."""
    info = analyze.open(SAMPLES / sample).info()
    for query in [*info.answered, *(q for q, _ in info.unanswered)]:
        rows = default_answer(sample, query).rows
        if query in info.answered and query.needs and query.name not in CONDITIONS:
            assert rows, f"{query.name} has no rows"
        if query not in info.answered:
            assert not rows, f"{query.name} has rows"


def test_the_commands_can_be_typed(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a name" / "t.json", [launch(0, 1), kernel("k", 5, 2, correlation=1)])
    info = analyze.open(path).info()
    asked = commands(info, [path])
    assert asked[0] == f"analyze advise '{path}'" and f"analyze query kernel-share '{path}'" in asked
    assert all(run_cli(*shlex.split(command)[1:]).returncode == 0 for command in asked)
    assert any("'" in line for line in lines(info, [path], 40))  # a command is not wrapped


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("steps", "--where", "model = 'x'"), "no run matched --where or --profiler"),
        (("kernel-share", "--where", "batch_size > 99"), "no run matched --where or --profiler"),
        (("flops",), "the recording has no FLOP metrics (recorded by: collect run --profiler ncu --ncu-metrics flops)"),
        (("memory-peak",), "the recording has neither allocator events nor step metrics (recorded by: "),
        (("breakdown", "-p", "window=step"), "the recording has no training steps"),
        (("kernel-by-phase", "-p", "phase=forwrd"), "nothing in the recording matches --param phase=forwrd"),
    ],
)
def test_no_rows_say_why(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    events = [event("cpu_op", "aten::mm", 0, 3), launch(1, 1), kernel("k", 5, 2, correlation=1)]
    path = write_trace(tmp_path / "t.json", events)
    [said] = complaints(run_cli("query", arguments[0], path, *arguments[1:]))
    assert said.startswith("note: no rows: ") and why in said


def test_a_metric_that_is_not_there_is_named() -> None:
    [said] = complaints(run_cli("query", "metrics", SAMPLES / "matmuls", "-p", "metric=dram__byte_read"))
    assert (
        said.startswith("note: no rows: no metric matches 'dram__byte_read'; the recording has 398, such as ")
        and "dram__bytes_read" in said
    )


def test_every_holding_is_found_somewhere(tmp_path: Path) -> None:
    apart = [collective("all_to_all", 0, 5), collective("send", 9, 5)]
    of_one = [analyze.open(write_trace(tmp_path / f"{i}.json", [k])).info().runs[0] for i, k in enumerate(apart)]
    both = {"sends and receives", "sizes of all_to_alls"}
    # An all_to_all runs as a kernel of that name.
    assert [run.held & both for run in of_one] == [both, both - {"sizes of all_to_alls"}]
    held = set().union(both, *(run.held for run in analyze.open(SAMPLES).info().runs))
    assert set(HOLDINGS) == held


def test_what_a_program_does_not_do_is_not_lacking() -> None:
    """resnet18-1gpu is compiled by nobody and replays no graph: its recording is none the worse for it."""
    said = told(ONE)
    lacks = said[said.index("lacks") : said.index("  GPU")]
    assert not [name for name, h in HOLDINGS.items() if h.done and name in lacks]
    assert "without compiled code: compiled" in " ".join(said.split())


@pytest.mark.parametrize("sample", ["alexnet-ncu", "resnet18-1gpu"])
def test_what_one_recording_holds(sample: str) -> None:
    """One by one, which a report asks before it asks a query, as all together, which `info` tells."""
    engine = sample_engines(sample).get(profiler="all")
    assert {name for name in HOLDINGS if held(engine, name)} == set().union(*holdings(engine).values())
