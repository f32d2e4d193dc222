"""What people ask of a recording, in one command each. `docs/asking.md` lists the questions.

The expected numbers are computed here, from the events of the sample's files.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES

NODE = "autograd::engine::evaluate_function"
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]
Span = tuple[int, int]


def answer(*arguments: object) -> list[dict[str, Any]]:
    done = run_cli(*arguments, "-f", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@cache
def trace(path: Path) -> list[Event]:
    """The complete events of a trace, with `start` and `end` in ns."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    found = [e for e in events if e.get("ph") == "X" and "ts" in e]
    for e in found:
        e["start"] = int(1000 * e["ts"])
        e["end"] = e["start"] + int(1000 * e["dur"])
    return found


def sample(name: str, block: str = "torch", rank: int = 0) -> list[Event]:
    return trace(SAMPLES / name / block / f"rank-{rank}.trace.json.gz")


def of(events: Iterable[Event], *categories: str) -> list[Event]:
    return sorted((e for e in events if e.get("cat") in categories), key=lambda e: (e["start"], -e["end"]))


def union(events: Iterable[Event]) -> list[Span]:
    found: list[Span] = []
    for e in sorted(events, key=lambda e: int(e["start"])):
        if found and e["start"] <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], e["end"]))
        elif e["end"] > e["start"]:
            found.append((e["start"], e["end"]))
    return found


def event(span: Span) -> Event:
    return {"start": span[0], "end": span[1]}


def without(spans: list[Span], others: list[Span]) -> int:
    """Length of some disjoint spans outside of others."""
    shared = sum(max(0, min(b, d) - max(a, c)) for a, b in spans for c, d in others)
    return sum(b - a for a, b in spans) - shared


def around(events: list[Event], tid: int, at: int) -> list[Event]:
    """Those of a thread that are open at a time, the outermost first."""
    return [e for e in events if e["tid"] == tid and e["start"] <= at < e["end"]]


@cache
def places() -> list[tuple[Event, str, str]]:
    """GPU work of the sample with Python stacks: each with the module and the line of its forward operator."""
    events = sample("train-stacks")
    ops, functions = of(events, "cpu_op"), of(events, "python_function")
    modules = [e for e in functions if e["name"].startswith("nn.Module: ")]
    program = [e for e in functions if "examples/train.py" in e["name"]]
    by_id = {e["args"]["External id"]: e for e in ops}
    found = []
    for work in of(events, *WORK):
        op = by_id[work["args"]["External id"]]
        outer = around(ops, op["tid"], op["start"])[0]
        if outer["name"].startswith(NODE):
            number = outer["args"]["Sequence number"]
            made = [o for o in ops if o["start"] < outer["start"] and o["args"].get("Sequence number") == number]
            forward = [o for o in made if not o["args"].get("Fwd thread id")]
            op = max(forward, key=lambda o: int(o["start"]), default=op)
        inside = around(modules, op["tid"], op["start"])
        lines = around(program, op["tid"], op["start"])
        found.append((work, inside[-1]["name"][11:] if inside else "(no module)", lines[-1]["name"]))
    return found


def test_why_is_my_step_slow() -> None:
    """The program sleeps 20 ms for each batch; of the three steps, the GPU has no work before the first."""
    first, *_ = answer("advise", SAMPLES / "slow-loader")
    assert first["finding"] == "data-wait" and 40_000_000 <= first["saving_ns"] <= 60_000_000


def test_which_module_costs_most_on_the_gpu() -> None:
    expected: dict[str, int] = defaultdict(int)
    fills = 0
    for work, module, _ in places():
        if work["cat"] == "kernel":
            expected[module] += work["end"] - work["start"]
        elif module == "Conv2d_1":
            fills += work["end"] - work["start"]
    rows = answer("query", "kernel-share", SAMPLES / "train-stacks", "--group", "module")
    assert {r["module"]: r["total_ns"] for r in rows} == expected
    assert rows[0]["module"] == max(expected, key=lambda m: expected[m]) == "Conv2d_1"
    # The tree has the same: forward and backward of a module.
    tree = answer("query", "module-tree", SAMPLES / "train-stacks", "-p", "kernels=no", "--filter", "kind = 'module'")
    [conv] = [r for r in tree if r["tree"].strip() == "Conv2d_1"]
    assert conv["total_device_ns"] + conv["backward_ns"] == expected["Conv2d_1"] + fills


def test_is_the_loader_the_bottleneck() -> None:
    [row] = answer("query", "dataloader", SAMPLES / "slow-loader", "--block", "full")
    waits = [e for e in of(sample("slow-loader"), "user_annotation") if e["name"].startswith("enumerate(DataLoader)")]
    assert row["bound"] is True and row["steps"] == len(waits) == 3
    assert row["data_ns"] == sum(e["end"] - e["start"] for e in waits)


def test_which_communication_is_exposed_by_group() -> None:
    rows = answer("query", "comm-exposed", SAMPLES / "fsdp-tp-4gpu", "-p", "per=group")
    assert len(rows) == 8
    for rank in range(4):
        kernels = of(sample("fsdp-tp-4gpu", rank=rank), "kernel")
        groups = defaultdict(list)
        for k in kernels:
            if k["name"].startswith("nccl"):
                groups[k["args"]["Process Group Ranks"]].append(k)
        compute = union(k for k in kernels if not k["name"].startswith("nccl"))
        found = {str(r["process_group"]).split(" ", 1)[1]: r["exposed_ns"] for r in rows if r["rank"] == rank}
        assert len(groups) == len(found) == 2
        for ranks, own in groups.items():
            # While both groups communicate, the time is of one of them.
            others = union(k for other, of_other in groups.items() if other != ranks for k in of_other)
            alone = without(union(own), union([*map(event, compute), *map(event, others)]))
            assert alone <= found[ranks] <= without(union(own), compute)
        whole = without(union(k for own in groups.values() for k in own), compute)
        assert sum(found.values()) == whole


def test_which_line_launches_the_slowest_kernel() -> None:
    kernel, module, line = max(
        (p for p in places() if p[0]["cat"] == "kernel"), key=lambda p: int(p[0]["end"] - p[0]["start"])
    )
    [row] = answer("query", "slowest-kernels", SAMPLES / "train-stacks", "--limit", 1)
    assert (row["name"], row["dur_ns"]) == (kernel["name"], kernel["end"] - kernel["start"])
    assert row["module"] == module and row["backward"] is True
    # /tmp/w/examples/train.py(34): <module>
    path, _, function = line.partition("(")
    number, function = function.split("): ")
    assert row["line"] == f"{path}:{number} in {function}"


def test_what_is_live_at_the_memory_peak() -> None:
    events = json.loads(gzip.decompress((SAMPLES / "resnet18-1gpu/torch/rank-0.trace.json.gz").read_bytes()))
    memory = [e["args"] for e in events["traceEvents"] if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
    peak = max(e["Total Allocated"] for e in memory)
    path = SAMPLES / "resnet18-1gpu"
    rows = answer("query", "memory-by-category", path, "-p", "device_type=gpu", "--where", "profiler = 'torch'")
    assert rows[0]["category"] == "activation"
    assert sum(r["live_at_peak_bytes"] for r in rows) == peak


def test_tokens_per_second_of_prefill_and_decode() -> None:
    """The program has a range for each step; a step ends with its range or with the work launched in it."""
    events = sample("generate")
    last: dict[int, int] = defaultdict(int)
    for work in of(events, *WORK):
        last[work["args"]["correlation"]] = max(last[work["args"]["correlation"]], work["end"])
    calls = of(events, "cuda_runtime", "cuda_driver")
    times = {"prefill": 0, "decode": 0}
    for step in of(events, "user_annotation"):
        launched = [last[c["args"].get("correlation")] for c in calls if step["start"] <= c["start"] < step["end"]]
        times[step["name"]] += max(step["end"], *launched) - step["start"]
    prefill, decode = answer("query", "serving", SAMPLES / "generate")
    assert (prefill["kind"], prefill["tokens"], decode["kind"], decode["tokens"]) == ("prefill", 128, "decode", 11)
    assert prefill["tokens_per_s"] == pytest.approx(128e9 / times["prefill"])
    assert decode["tokens_per_s"] == pytest.approx(11e9 / times["decode"])


def test_show_the_longest_gap() -> None:
    busy = union(of(sample("host-bound", "gpu"), *WORK))
    gaps = [(after[0] - before[1], before[1]) for before, after in pairwise(busy)]
    longest, begins = max(gaps)
    [row] = answer("query", "gaps", SAMPLES / "host-bound", "--block", "gpu", "--limit", 1)
    zero = min(e["start"] for e in sample("host-bound", "gpu") if e["cat"] != "Trace")
    assert (row["gap_ns"], row["start_ns"]) == (longest, begins - zero)
