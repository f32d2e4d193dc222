"""`analyze info`: what was found, what is missing, which queries can answer; and why an answer is empty."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from rich.cells import cell_len
from support import SAMPLES, sample_engine
from test_communication import collective
from traces import event, kernel, launch, write_trace

import analyze
from analyze.info import Info, commands, lines
from analyze.query.data_needs import DATA_KINDS, held, holdings, needs_of
from analyze.query.engine import Engine
from analyze.query.query_declaration import Query
from analyze.query.query_files import catalog
from analyze.query.selection import DEFAULT, Selection
from analyze.store.store import Store
from tests.nvprof_tables import BANNER, SUMMARY

ONE = SAMPLES / "resnet18-1gpu"

WORK = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
CALLS = {"cuda_runtime", "cuda_driver"}
PARTS: list[tuple[str, str, Callable[[dict[str, Any]], bool]]] = [
    ("the CPU alone", "resnet18-1gpu", lambda e: e["cat"] not in WORK | CALLS),
    ("the GPU alone, of FSDP", "fsdp-tp-4gpu", lambda e: e["cat"] in WORK),
    ("memory alone", "resnet18-1gpu", lambda e: e["name"] == "[memory]"),
]
"""What a profiler that was told to records less of a program: which events of a sample there are."""


@cache
def info_text(path: Path, width: str = "80") -> str:
    result = run_cli("info", path, COLUMNS=width)
    assert result.returncode == 0 and max(map(cell_len, result.stdout.splitlines())) <= max(int(width), 80)
    return result.stdout


def test_info_describes_the_recording() -> None:
    """Against what sample_traces/README.md says of the recording, and the options in its run.json."""
    said = info_text(SAMPLES / "resnet18-ddp2")
    for text in (
        "read as torch.profiler, 2 ranks of 2, 2 steps, shapes yes, stacks no, memory no",
        "lacks Python stacks, allocator events, GPU samples, FLOP metrics, hardware metrics",
        "GPU NVIDIA H200, compute capability 9.0",
        "model resnet18, batch 16, 2 GPUs, ddp, fp32",
        "memory-by-category, memory-by-op, memory-by-phase: allocator events "
        "(torch.profiler with profile_memory=True, or nsys with --cuda-memory-usage=true)",
        "memory-timeline, phase-ranges: allocator events or memory snapshots (torch.profiler with profile_memory=True, "
        "or nsys with --cuda-memory-usage=true; collect run --memory-history, or torch.cuda.memory._dump_snapshot())",
        "server-ranks, serving, throughput: there are steps of inference",
    ):
        assert text in " ".join(said.split()), text
    assert f"\n  analyze advise {shlex.quote(str(SAMPLES / 'resnet18-ddp2'))}\n" in said


def test_many_runs_are_a_table() -> None:
    said = info_text(SAMPLES, width="120")
    assert (
        said.startswith("46 runs\n")
        # No sample has logs of NCCL Inspector.
        and f"{len(catalog()) - 1} of {len(catalog())} queries can be answered" in said
        and said.count("NVIDIA H200") == 26
        and said.count("NVIDIA H100") == 17
    )


def test_path_or_query_name_without_a_command() -> None:
    assert run_cli(ONE, COLUMNS="80").stdout == info_text(ONE) != ""
    mistaken = run_cli("kernel-share", ONE, "--limit", "5")
    assert mistaken.returncode == 2 and complaints(mistaken) == [
        f"analyze: kernel-share is a query; run it with: analyze query kernel-share {shlex.quote(str(ONE))} --limit 5"
    ]


def test_every_need_has_a_plain_description() -> None:
    for query in catalog().values():
        if query.needs and "runs" not in query.needs:
            assert needs_of(query, {}).names, f"{query.name}: {query.needs}"
    assert needs_of(catalog()["memory-by-category"], {}).names == ("allocator events",)
    assert needs_of(catalog()["roofline"], {}).names == ("FLOP metrics",)
    assert needs_of(catalog()["flops-by-op"], {}).names == ("operators with input shapes",)
    assert needs_of(catalog()["memory-by-op"], {}).groups == (
        ("allocator events",), ("operators", "ranges", "CUDA calls"),
    )  # fmt: skip
    peak = needs_of(catalog()["memory-peak"], {})
    assert peak.lacking({"peaks of memory"}).groups == () and peak.lacking({"kernels"}) == peak != ()
    assert needs_of(catalog()["critical-path"], {"window": "step"}).groups[1:] == (("training steps",),)
    assert needs_of(catalog()["dataloader"], {"window": "step"}).groups == (("training steps", "step metrics"),)


@pytest.mark.parametrize(("sample", "kept"), [part[1:] for part in PARTS], ids=[what for what, *_ in PARTS])
def test_info_of_partial_recordings(sample: str, kept: Callable[[dict[str, Any]], bool], tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((SAMPLES / sample / "torch" / "rank-0.trace.json.gz").read_bytes()))
    events = [e for e in trace["traceEvents"] if (kept(e) if "cat" in e else e["ph"] == "M")]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace | {"traceEvents": events}))
    with analyze.open(path) as traces:
        compare(traces.info(), all_rows(traces))


def test_info_of_sums(tmp_path: Path) -> None:
    path = tmp_path / "out.123"
    path.write_text(BANNER + SUMMARY)
    with analyze.open(path) as traces:
        compare(traces.info(), all_rows(traces))


def all_rows(traces: analyze.Traces) -> Callable[[Query], Sequence[object]]:
    """Return what answers each query, all by one engine: to open one takes longer than most queries."""
    engine = Engine(traces.stores, DEFAULT)
    return lambda query: engine.query(query, {}).rows(1)


def compare(info: Info, rows: Callable[[Query], Sequence[object]]) -> None:
    """What cannot be answered has no rows, and what can be has some."""
    wrong = [f"{q.name} has none" for q in info.answered if q.needs and not rows(q)]
    wrong += [f"{q.name} has some" for q in [*(q for q, _ in info.unanswered), *info.empty] if rows(q)]
    assert wrong == []


def test_suggested_commands_run(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a name" / "t.json", [launch(0, 1), kernel("k", 5, 2, correlation=1)])
    info = analyze.open(path).info()
    asked = commands(info, [path])
    assert asked[0] == f"analyze advise '{path}'" and f"analyze query kernel-share '{path}'" in asked
    assert all(run_cli(*shlex.split(command)[1:]).returncode == 0 for command in asked)
    assert any("'" in line for line in lines(info, [path], 40))  # a command is not wrapped


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("steps", "--where", "model = 'x'"), "no run matched --where, --profiler or --block"),
        (("kernel-share", "--where", "batch_size > 99"), "no run matched --where, --profiler or --block"),
        (("flops",), "the recording has no FLOP metrics (needs collect run --profiler ncu --ncu-metrics flops)"),
        (("memory-peak",), "the recording has neither allocator events nor memory snapshots nor peaks of memory"),
        (("breakdown", "-p", "window=step"), "the recording has no training steps"),
        (("kernel-by-phase", "-p", "phase=forwrd"), "nothing in the recording matches --param phase=forwrd"),
    ],
)
def test_empty_answer_names_its_reason(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    events = [event("cpu_op", "aten::mm", 0, 3), launch(1, 1), kernel("k", 5, 2, correlation=1)]
    path = write_trace(tmp_path / "t.json", events)
    *_, said = complaints(run_cli("query", arguments[0], path, *arguments[1:]))
    assert said.startswith("note: no rows: ") and why in said


def test_missing_metric_is_named() -> None:
    [said] = complaints(run_cli("query", "metrics", SAMPLES / "matmuls", "-p", "metric=dram__byte_read"))
    assert (
        said.startswith("note: no rows: no metric matches 'dram__byte_read'; the recording has 398, such as ")
        and "dram__bytes_read" in said
    )


def test_every_kind_of_data_is_in_a_sample(tmp_path: Path) -> None:
    def of(store: Store) -> set[str]:
        return set().union(*holdings(Engine([store], Selection(profiler="all"))).values())

    apart = [collective("all_to_all", 0, 5), collective("send", 9, 5)]
    of_one = [of(*analyze.open(write_trace(tmp_path / f"{i}.json", [k])).stores) for i, k in enumerate(apart)]
    both = {"sends and receives", "sizes of all_to_alls"}
    # An all_to_all runs as a kernel of the name of a send, too.
    assert [found & both for found in of_one] == [{"sizes of all_to_alls"}, {"sends and receives"}]
    (tmp_path / "out.123").write_text(BANNER + SUMMARY)
    found = both.union(*map(of, (*analyze.open(SAMPLES).stores, *analyze.open(tmp_path / "out.123").stores)))
    # Recorded on no node so far.
    assert set(DATA_KINDS) - found == {"logs of NCCL Inspector", "counters"}


def test_unused_features_are_not_reported_as_missing() -> None:
    """resnet18-1gpu uses neither torch.compile nor CUDA graphs."""
    said = info_text(ONE)
    lacks = said[said.index("lacks") : said.index("  GPU")]
    assert not [name for name, h in DATA_KINDS.items() if h.optional and name in lacks]
    assert "compiled: compiled code (torch.profiler" in " ".join(said.split())


@pytest.mark.parametrize("sample", ["alexnet-ncu", "resnet18-1gpu"])
def test_contents_of_one_recording(sample: str) -> None:
    """One by one, which a report asks before it asks a query, as all together, which `info` tells."""
    engine = sample_engine(sample, Selection(profiler="all"))
    assert {name for name in DATA_KINDS if held(engine, name)} == set().union(*holdings(engine).values())
