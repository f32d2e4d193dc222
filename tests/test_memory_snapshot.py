"""Memory snapshots of PyTorch's allocator: who holds what at the peak, fragmentation, and why memory ran out."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import tracemalloc
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import ROOT, SAMPLES, ask, sql

from analyze.sources import memory_snapshot, plain_pickle
from analyze.sources.interface import FileReport

MIB = 1 << 20


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


# Innermost frame first, as torch writes it.
MODEL = frames(
    ("torch/nn/linear.py", 5, "forward"), ("/home/me/model.py", 7, "forward"), ("/home/me/train.py", 9, "<module>")
)
MODEL[0]["filename"] = "/venv/lib/python3.12/site-packages/torch/nn/linear.py"
LOADER = frames(("/home/me/train.py", 3, "load"), ("/home/me/train.py", 8, "<module>"))
BACKWARD = frames(
    ("??", 0, "torch::unwind::unwind()"),
    ("??", 0, "at::_ops::div_Tensor::call(at::Tensor const&)"),
    ("??", 0, "torch::autograd::generated::MeanBackward0::apply(std::vector<at::Tensor>&&)"),
)


def event(action: str, addr: int | None, size: int, at_us: int, stack: object = None, **more: Any) -> dict[str, Any]:
    found = {"action": action, "size": size, "stream": 0, "time_us": at_us, "frames": stack or [], **more}
    return found if addr is None else {"addr": addr, **found}


def block(addr: int, size: int, requested: int, state: str, stack: object = None) -> dict[str, Any]:
    found: dict[str, Any] = {"address": addr, "size": size, "requested_size": requested, "state": state}
    return found | ({"frames": stack} if stack else {})


def segment(addr: int, size: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    kind = {"segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "stream": 0, "device": 0}
    return {**kind, "address": addr, "total_size": size, "blocks": blocks, **more}


# Held, in MiB: 4 before the history; 10 after the model's 6; 13 with the loader's 3 (peak); 9 when the 4 are freed;
# 10 with the 1 of the backward pass.
EVENTS = [
    event("alloc", 1000, 6 * MIB, 10, MODEL),
    event("alloc", 2000, 3 * MIB, 20, LOADER),
    event("free_requested", 500, 4 * MIB, 30, LOADER),
    event("free_completed", 500, 4 * MIB, 31, LOADER),
    event("alloc", 500, 1 * MIB, 40, BACKWARD),
    event("oom", None, 64 * MIB, 50, MODEL, device_free=2 * MIB),
]
SEGMENTS = [
    segment(
        500,
        20 * MIB,
        [
            block(500, 2 * MIB, 1 * MIB, "active_allocated", BACKWARD),
            block(1000, 6 * MIB, 6 * MIB, "active_allocated", MODEL),
            block(1500, 5 * MIB, 0, "inactive"),
            block(2000, 3 * MIB, 3 * MIB, "active_allocated", LOADER),
            block(2500, 4 * MIB, 0, "inactive"),
        ],
    ),
    segment(9000, 30 * MIB, [block(9000, 30 * MIB, 0, "inactive")], stream=7, is_expandable=True),
]


def write(path: Path, events: object = EVENTS, segments: object = SEGMENTS, stats: object = None) -> Path:
    snapshot = {"segments": segments, "device_traces": [events], "allocator_settings": {}, "external_annotations": []}
    path.write_bytes(pickle.dumps(snapshot | ({"memory_stats": stats} if stats else {}), protocol=4))
    return path


def test_live_at_the_peak_and_at_the_oom(tmp_path: Path) -> None:
    path = write(tmp_path / "snapshot.pickle")
    peak = ask(path, "memory-live")
    assert [(r["frame"], r["bytes"] / MIB, r["blocks"]) for r in peak] == [
        ("model.py:7 forward", 6, 1), ("(not recorded)", 4, 1), ("train.py:3 load", 3, 1),
    ]  # fmt: skip
    assert [r["at_ns"] for r in peak] == [10_000] * 3  # since the first event
    assert [r["oldest_ns"] for r in peak] == [0, None, 10_000]
    assert [r["share_pct"] for r in peak] == [pytest.approx(100 * mib / 13) for mib in (6, 4, 3)]
    at_oom = ask(path, "memory-live", params={"at": "oom", "group": "path"})
    assert [(r["path"], r["bytes"] / MIB) for r in at_oom] == [
        ("train.py:9 <module> > model.py:7 forward", 6), ("train.py:8 <module> > train.py:3 load", 3),
        ("(not recorded)", 1),
    ]  # fmt: skip
    at_end = ask(path, "memory-live", params={"at": "snapshot"})
    # Threads of the backward pass have no Python frames: the backward function says what they did.
    assert [r["frame"] for r in at_end] == ["model.py:7 forward", "train.py:3 load", "MeanBackward0"]


def test_history_that_lost_its_begin(tmp_path: Path) -> None:
    """Blocks whose allocation is not in the history come from the state at its end."""
    path = write(tmp_path / "snapshot.pickle", EVENTS[4:])
    peak = ask(path, "memory-live")
    assert {r["frame"]: r["bytes"] / MIB for r in peak} == {
        "model.py:7 forward": 6, "train.py:3 load": 3, "MeanBackward0": 1,
    }  # fmt: skip


def test_fragmentation(tmp_path: Path) -> None:
    used, free = sorted(
        ask(write(tmp_path / "s.pickle"), "memory-fragmentation"), key=lambda r: r["stream"]
    )  # streams 0 and 7
    mib = {k: v / MIB for k, v in used.items() if k.endswith("_bytes")}
    assert mib == {
        "reserved_bytes": 20, "allocated_bytes": 11, "requested_bytes": 10, "inactive_bytes": 9,
        "largest_free_bytes": 5, "free_segments_bytes": 0, "stuck_bytes": 9,
    }  # fmt: skip
    assert (free["free_segments_bytes"], free["stuck_bytes"], free["expandable_segments"]) == (30 * MIB, 0, 1)
    assert {(r["segment_kind"], r["pool"], r["segments"]) for r in (used, free)} == {("large", "(0, 0)", 1)}
    # Expandable segments grow instead.
    [fact] = [r for r in ask(tmp_path / "s.pickle", "health") if r["fact"] == "free GPU memory between live blocks"]
    assert (fact["verdict"], fact["value"]) == ("note", "GPU 0: 45.0 % of the 20.0 MiB reserved")


# 2 MiB are free on the device, 9 in the segment with live blocks, 30 in the one without.
@pytest.mark.parametrize(("size", "cause"), [(64, "too large"), (32, "cached"), (35, "fragmentation")])
def test_cause_of_an_oom(tmp_path: Path, size: int, cause: str) -> None:
    events = [*EVENTS[:-1], event("oom", None, size * MIB, 50, MODEL, device_free=2 * MIB)]
    (row,) = ask(write(tmp_path / "s.pickle", events), "memory-oom")
    assert (row["cause"], row["where"], row["start_ns"]) == (cause, "model.py:7 forward", 40_000)
    assert (row["held_bytes"], row["stuck_bytes"], row["largest_free_bytes"]) == (10 * MIB, 9 * MIB, 30 * MIB)
    assert (row["device_free_bytes"], row["free_blocks_bytes"]) == (2 * MIB, 39 * MIB)


def test_oom_without_a_history(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", EVENTS[-1:])
    (row,) = ask(path, "memory-oom")
    assert (row["held_bytes"], row["cause"]) == (10 * MIB, "too large")
    assert ask(path, "memory-live") == []
    blocks = [b | {"frames": []} for b in SEGMENTS[0]["blocks"]]
    checks = ask(write(path, EVENTS[-1:], [segment(500, 20 * MIB, blocks)]), "health")
    [said] = [r["value"] for r in checks if r["fact"] == "out of GPU memory"]
    assert said == "GPU 0: 10.0 MiB held; collect run --memory-history records by whom"


def test_sample_adds_up_to_what_torch_counted() -> None:
    """tests/data/out_of_memory.py prints torch.cuda.memory_stats() when memory runs out, on an H100."""
    sample = SAMPLES / "out-of-memory"
    words = (sample / "torch" / "log.txt").read_text().split()
    current, peak = int(words[1]), int(words[3])
    assert sum(r["bytes"] for r in ask(sample, "memory-live")) == peak
    live = ask(sample, "memory-live", params={"at": "oom"})
    assert sum(r["bytes"] for r in live) == current
    # 200 outputs of 2048 x 4096 floats are kept in each step.
    step = 200 * 2048 * 4096 * 4
    assert (live[0]["frame"], live[0]["bytes"] % step) == ("out_of_memory.py:15 <module>", 0)
    (row,) = ask(sample, "memory-oom")
    assert (row["requested_bytes"], row["held_bytes"], row["cause"]) == (step, current, "too large")
    assert row["where"] == "out_of_memory.py:15 <module>"
    [said] = [r["value"] for r in ask(sample, "health") if r["fact"] == "out of GPU memory"]
    owned_pct = 100 * (current // step * step) / current
    assert (
        said
        == f"GPU 0: {owned_pct:.1f} % of the {current / (MIB << 10):.1f} GiB held are of out_of_memory.py:15 <module>"
    )


def _peaks(path: Path) -> list[tuple[int | None, ...]]:
    """Peaks of allocated, requested and reserved bytes, and that of requested bytes by two other queries."""
    rows = ask(path, "memory-peak")
    assert [r["source"] for r in rows] == ["allocator_events", "allocator_stats"]
    timeline = ask(path, "memory-timeline")
    at_peak = sum(r["bytes"] for r in ask(path, "memory-live"))
    assert at_peak == max(r["peak_allocated_bytes"] for r in timeline)
    assert rows[0]["reserved_bytes"] == max(r["peak_reserved_bytes"] for r in timeline)
    return [(r["allocated_bytes"], r["requested_bytes"], r["reserved_bytes"], at_peak) for r in rows]


def test_peaks_are_those_that_torch_printed() -> None:
    """`collect run --memory-history` of tests/data/training_peak.py on an H100, with other line breaks."""
    folder = ROOT / "tests" / "data" / "memory-peaks"
    path = folder / "training.pickle.gz"
    allocated, reserved, requested, at_end = map(int, (folder / "training.txt").read_text().split())
    assert allocated > requested  # sizes are odd, so the allocator rounds up
    assert _peaks(path) == [(None, requested, reserved, requested), (allocated, requested, reserved, requested)]
    assert sum(r["allocated_bytes"] for r in ask(path, "memory-fragmentation")) == at_end


def test_an_oom_is_what_torch_printed() -> None:
    """`collect run --memory-history` of tests/data/out_of_memory.py on an H100, and the message of its error."""
    folder = ROOT / "tests" / "data" / "memory-peaks"
    path = folder / "out-of-memory.pickle.gz"
    stats, peaks, message = (folder / "out-of-memory.txt").read_text().splitlines()
    current, requested = map(int, stats.split()[1::2])
    allocated, reserved = map(int, peaks.split()[1::2])
    assert _peaks(path) == [(None, requested, reserved, requested), (allocated, requested, reserved, requested)]
    [row] = ask(path, "memory-oom")
    assert row["held_bytes"] == current == sum(r["bytes"] for r in ask(path, "memory-live", params={"at": "oom"}))
    gib = MIB << 10
    for said in (
        f"Tried to allocate {row['requested_bytes'] / gib:.2f} GiB",
        f"{row['device_free_bytes'] / gib:.2f} GiB is free",
        f"{row['held_bytes'] / gib:.2f} GiB is allocated by PyTorch",
        f"{row['free_blocks_bytes'] / 1024:.2f} KiB is reserved by PyTorch but unallocated",
    ):
        assert said in message
    [ooms] = sql(path, "SELECT value FROM allocator_stats WHERE name = 'num_ooms'")
    assert (ooms["value"], sql(path, "SELECT warnings FROM runs")) == (1, [{"warnings": None}])


def test_operators_of_a_failed_program_are_those_of_its_full_block() -> None:
    """The program failed in the full block, long after the GPU-only block had ended."""
    names = {r["name"] for r in ask(SAMPLES / "out-of-memory", "ops")}
    assert {"aten::addmm", "aten::cat"} <= names


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"segments": [], "device_traces": [_Attack()]}), "it refers to posix.mkdir"),
        (pickle.dumps({"segments": _Attack}), "it refers to test_memory_snapshot._Attack"),
        (pickle.dumps({"segments": []}), "it has no lists segments and device_traces"),
        (pickle.dumps({"segments": _Attack.__name__})[:2] + b"]\x94\x8c\x08segments\x94a.", "it holds no dict"),
        (pickle.dumps({"segments": [], "device_traces": [[EVENTS[0]]]})[:-20], "not a memory snapshot"),
        (b"\x80\x04}\x94(\x8c\x08segmentsP1\n.", "it refers to objects outside"),
        (b"\x80\x04}\x94(\x8c\x08segmentscos\x1b\nmkdir\n.", "it refers to os?.mkdir"),
        (b"\x80\x04}\x94(\x8c\x08segmentsI1\n.", "it has opcode 0x49, which no plain value has, at byte 16"),
        (b"\x80\x04}\x94(\x8c\x08segments]\x94h\x09", "damaged at byte 18"),
        (b"\x80\x04}\x94(\x8c\x08segments]\x94h\x01K\x01au.", "damaged at byte 22"),
    ],
    ids=[
        "code",
        "class",
        "incomplete",
        "list",
        "truncated",
        "persistent-id",
        "control-characters",
        "opcode",
        "reference",
        "growing",
    ],
)
def test_hostile_and_damaged_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    done = run_cli("query", "memory-live", str(path))
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_those_of_the_standard_library(tmp_path: Path, protocol: int) -> None:
    shared = {"name": "f", "line": 3}
    values = {
        "numbers": [0, 255, 256, 65535, 65536, -1, 2**31, -(2**31), 2**63, -(2**63) - 1, 2**2000, 1.5, float("inf")],
        "texts": ["", "a" * 255, "b" * 256, "c" * 5000, "\ud800", "é" * 2000],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (shared, shared)],
        "others": {"none": None, "true": True, "false": False, 5: [], (1, 2): {}, "one": [[["deep"]]]},
        "references": [[shared] * n for n in range(4)],
        "many": [{"at": n, "frames": [shared] * 2} for n in range(2500)],
        "keys": dict.fromkeys(range(2500)),
    }
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps(values, protocol))
    found = plain_pickle.read_plain_pickle(path, "dump")
    assert found == pickle.loads(path.read_bytes())
    assert found["references"][3][2] is found["tuples"][5][0]


def test_histories_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of twice the length takes little more memory, and its events are counted on each device."""
    monkeypatch.setattr(memory_snapshot, "BATCH_ROWS", 1000)

    def peak(events: int) -> tuple[int, int]:
        # Each event has an own list of the same frames, as torch writes them.
        histories = [[event("alloc", 1000 + n, n, n, list(MODEL)) for n in range(events)] for _ in range(2)]
        path = tmp_path / "s.pickle"
        snapshot = {"segments": SEGMENTS, "device_traces": histories}
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
        del histories, snapshot
        found, stacks = [(device, n) for device in range(2) for n in range(events)], set()
        tracemalloc.start()
        for table, _, batch in memory_snapshot.read(path, FileReport()):
            if table == "allocator_events":
                rows = batch.to_pylist()
                assert [(r["device"], r["event"]) for r in rows] == found[: len(rows)]
                stacks |= {r["stack"] for r in rows}
                del found[: len(rows)]
        assert not found and len(stacks) == 1
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, path.stat().st_size

    (small, small_file), (large, large_file) = peak(4000), peak(8000)
    assert large - small < 0.6 * (large_file - small_file)


def test_what_cannot_be_is_dropped_and_said(tmp_path: Path) -> None:
    events = [
        *EVENTS, event("alloc", -1, 5, 60), event("alloc", 1 << 70, 5, 60), event("dance", 1, 5, 60), "text",
        event("alloc", 3, True, 60),
    ]  # fmt: skip
    segments = [*SEGMENTS, {"blocks": None}, segment(1, 2, [{"size": "x", "state": "inactive"}])]
    path = write(tmp_path / "snapshot.pickle", events, segments)
    counts = sql(path, "SELECT (SELECT count(*) FROM allocator_events) e, (SELECT count(*) FROM allocator_blocks) b")
    assert counts == [{"e": 6, "b": 6}]
    ((warnings,),) = [tuple(r.values()) for r in sql(path, "SELECT warnings FROM runs")]
    assert "5 events of the allocator were dropped" in warnings and "2 blocks or segments were dropped" in warnings


def test_histories_that_are_no_lists_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": SEGMENTS, "device_traces": [EVENTS, None, {}]}))
    [run] = sql(path, "SELECT warnings FROM runs")
    assert "2 events of the allocator were dropped" in run["warnings"]


def test_one_history_of_two_devices_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": SEGMENTS, "device_traces": [EVENTS, EVENTS]}))
    [run] = sql(path, "SELECT warnings, (SELECT count(*) FROM allocator_events) AS events FROM runs")
    assert run["events"] == 6 and "6 events of the allocator were dropped" in run["warnings"]


def test_owners_over_time(tmp_path: Path) -> None:
    """Changes are 0, 10, 20 and 30 us after the first: what is held then is in the comment of EVENTS."""
    path = write(tmp_path / "snapshot.pickle")
    rows = ask(path, "memory-owners", params={"buckets": 3})
    assert {(r["start_ns"], r["span_ns"]) for r in rows} == {(0, 10_001), (10_001, 10_001), (20_002, 9_999)}
    held = [{r["frame"]: r["bytes"] / MIB for r in rows if r["bucket"] == b} for b in range(3)]
    assert held == [
        {"model.py:7 forward": 6, "(not recorded)": 4, "train.py:3 load": 3},
        {"model.py:7 forward": 6, "train.py:3 load": 3},
        {"model.py:7 forward": 6, "train.py:3 load": 3, "MeanBackward0": 1},
    ]


def test_diff_of_two_snapshots(tmp_path: Path) -> None:
    """The first is compared with the begin of its history (4 MiB), the second, taken later, with the first."""
    write(tmp_path / "a.pickle")
    later = [event("alloc", 1500, 5 * MIB, 90, LOADER)]
    blocks = [
        block(1000, 6 * MIB, 6 * MIB, "active_allocated", MODEL),
        block(1500, 5 * MIB, 5 * MIB, "active_allocated", LOADER),
    ]
    write(tmp_path / "b.pickle", later, [segment(1000, 20 * MIB, blocks)])
    rows = ask(tmp_path, "memory-diff")
    found = {
        (r["run_id"][:1], (r["before_run_id"] or "-")[:1], r["frame"]): tuple(
            r[c] / scale
            for c, scale in (
                ("before_bytes", MIB),
                ("bytes", MIB),
                ("change_bytes", MIB),
                ("before_blocks", 1),
                ("blocks", 1),
            )
        )
        for r in rows
    }
    assert found == {
        ("a", "-", "(not recorded)"): (4, 0, -4, 1, 0), ("a", "-", "model.py:7 forward"): (0, 6, 6, 0, 1),
        ("a", "-", "train.py:3 load"): (0, 3, 3, 0, 1), ("a", "-", "MeanBackward0"): (0, 1, 1, 0, 1),
        ("b", "a", "train.py:3 load"): (3, 5, 2, 1, 1), ("b", "a", "model.py:7 forward"): (6, 6, 0, 1, 1),
        ("b", "a", "MeanBackward0"): (1, 0, -1, 1, 0),
    }  # fmt: skip


def test_diff_by_stream_and_pool(tmp_path: Path) -> None:
    """Stream 7 has 1 MiB in the pool of a CUDA graph, later 3 MiB; stream 0 holds 6 MiB in the default pool twice."""

    def snapshot(name: str, at_us: int, size: int) -> None:
        events = [event("alloc", 9000, size * MIB, at_us, MODEL, stream=7)]
        blocks = [block(9000, 4 * MIB, size * MIB, "active_allocated", MODEL)]
        graph = segment(9000, 30 * MIB, blocks, segment_pool_id=(0, 1), stream=7)
        default = segment(500, 20 * MIB, [block(1000, 6 * MIB, 6 * MIB, "active_allocated", MODEL)])
        write(tmp_path / name, events, [default, graph])

    snapshot("a.pickle", 10, 1)
    snapshot("b.pickle", 20, 3)
    for group, rows in (
        ("pool", {("(0, 0)", 6, 6), ("(0, 1)", 1, 3)}),
        ("stream", {("stream 0", 6, 6), ("stream 7", 1, 3)}),
    ):
        found = ask(tmp_path, "memory-diff", params={"group": group})
        assert {(r[group], r["before_bytes"] / MIB, r["bytes"] / MIB) for r in found if r["before_run_id"]} == rows


def test_timeline_of_a_snapshot(tmp_path: Path) -> None:
    """Held is what the comment of EVENTS says; at the end 50 MiB are reserved, 30 of them since 35 us.

    After the events, in MiB: held 10, 13, 9, 9, 10; reserved 20, 20, 20, 50, 50. Of three buckets of 10,001 ns (the
    last: 9,999) the first has two events, the second the free at 30 us, the third the last two.
    """
    events = [*EVENTS[:4], event("segment_alloc", 9000, 30 * MIB, 35), *EVENTS[4:]]
    path = write(tmp_path / "snapshot.pickle", events)
    columns = ("start_ns", "events", "change_bytes", "allocated_bytes", "peak_allocated_bytes", "peak_reserved_bytes")

    def rows(buckets: int) -> list[tuple[float, ...]]:
        found = ask(path, "memory-timeline", params={"buckets": buckets, "device_type": "cuda"})
        assert {(r["device_type"], r["device"], r["source"]) for r in found} == {("cuda", 0, "allocator_events")}
        scales = (1000, 1, MIB, MIB, MIB, MIB)
        return [tuple(r[c] / scale for c, scale in zip(columns, scales, strict=True)) for r in found]

    assert rows(0) == [
        (0, 1, 6, 10, 10, 20), (10, 1, 3, 13, 13, 20), (20, 1, -4, 9, 9, 20), (25, 1, 0, 9, 9, 50),
        (30, 1, 1, 10, 10, 50),
    ]  # fmt: skip
    assert rows(3) == [
        (0, 2, 9, 13, 13, 20), (10.001, 1, -4, 9, 13, 20), (20.002, 2, 1, 10, 10, 50),
    ]  # fmt: skip


def test_peaks_that_torch_counted(tmp_path: Path) -> None:
    """The history has requested bytes, 13 MiB at most. What torch counts may be more: blocks, and an earlier peak."""
    names = ("allocated_bytes.all.peak", "requested_bytes.all.peak", "reserved_bytes.all.peak", "num_ooms")
    stats = dict(zip(names, (15 * MIB, 14 * MIB, 60 * MIB, 1), strict=True)) | {"max_split_size": -1}  # no limit
    path = write(tmp_path / "snapshot.pickle", stats=[stats, dict.fromkeys(names, 0)])
    found = [tuple(r.values())[3:] for r in ask(path, "memory-peak")]
    assert found == [
        (0, None, 13 * MIB, 50 * MIB, "allocator_events"), (0, 15 * MIB, 14 * MIB, 60 * MIB, "allocator_stats"),
    ]  # fmt: skip
    found = sql(path, "SELECT value FROM allocator_stats WHERE name IN ('max_split_size', 'num_ooms') ORDER BY value")
    assert [r["value"] for r in found] == [-1, 0, 1]
    assert sql(path, "SELECT warnings FROM runs") == [{"warnings": None}]


@pytest.mark.parametrize(("stats", "lost"), [({"a": 1}, 1), ([None, {"a": 1, 2: 3, "b": "x", "c": 1 << 70}], 4)])
def test_statistics_that_cannot_be_are_dropped_and_said(tmp_path: Path, stats: object, lost: int) -> None:
    [run] = sql(write(tmp_path / "snapshot.pickle", stats=stats), "SELECT warnings FROM runs")
    assert f"{lost} statistics of the allocator were dropped" in run["warnings"]


def test_flame_graph_of_the_peak(tmp_path: Path) -> None:
    path, out = write(tmp_path / "snapshot.pickle"), tmp_path / "out.folded"
    done = run_cli("flame", str(path), "--tree", "memory", "-o", str(out))
    assert done.returncode == 0 and "13.00 MiB at the peak" in done.stdout, done.stderr
    assert sorted(out.read_text().splitlines()) == [
        f"(not recorded) {4 * MIB}", f"train.py:8 <module>;train.py:3 load {3 * MIB}",
        f"train.py:9 <module>;model.py:7 forward {6 * MIB}",
    ]  # fmt: skip
    assert json.loads(written_speedscope(path, tmp_path))["profiles"][0]["unit"] == "bytes"


def written_speedscope(path: Path, folder: Path) -> str:
    out = folder / "out.speedscope.json"
    assert run_cli("flame", str(path), "--tree", "memory", "-o", str(out)).returncode == 0
    return out.read_text()


PACKAGES = "/venv/lib/python3.12/site-packages/torch/"


def called(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Frames, innermost first; files that begin with `torch/` are of the package."""
    return frames(*((file.replace("torch/", PACKAGES), line, name) for file, line, name in places))


CALL = ("torch/nn/modules/module.py", 1787, "_call_impl")
MODEL_CALL = [("/home/me/model.py", 7, "forward"), CALL, ("/home/me/train.py", 9, "<module>")]
ENGINE = ("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)")
# Stacks as torch 2.11 writes them, with the rest of Python's frames behind those of C++; bytes, category.
STACKS = [
    (called(("torch/nn/modules/linear.py", 134, "forward"), CALL, *MODEL_CALL), 1, "activation"),
    (called(("torch/optim/adam.py", 9, "adam"), ("torch/optim/optimizer.py", 5, "wrapper")), 2, "optimizer_state"),
    (called(("torch/nn/modules/module.py", 965, "_apply"), ("/home/me/train.py", 2, "<module>")), 4, "parameter"),
    (called(ENGINE), 8, "gradient"),
    (called(("torch/autograd/__init__.py", 50, "_make_grads"), *MODEL_CALL), 16, "gradient"),
    # Checkpointing runs the forward pass again in a thread of the backward pass.
    (called(ENGINE, ("torch/nn/modules/linear.py", 134, "forward"), CALL), 32, "activation"),
    (called(("/home/me/train.py", 3, "load")), 64, "other"),
]  # fmt: skip


def test_what_the_bytes_are_for(tmp_path: Path) -> None:
    events = [event("alloc", 100 + i, size, i, stack) for i, (stack, size, _) in enumerate(STACKS)]
    path = write(tmp_path / "s.pickle", events, [])
    found = {r["category"]: r["bytes"] for r in ask(path, "memory-live", params={"group": "category"})}
    assert found == {"activation": 33, "optimizer_state": 2, "parameter": 4, "gradient": 24, "other": 64}
    modules = {r["module"]: r["bytes"] for r in ask(path, "memory-live", params={"group": "module"})}
    assert modules == {
        "model.py:7 forward > linear.py:134 forward": 1, "model.py:7 forward": 16, "linear.py:134 forward": 32,
        "(no module)": 2 + 4 + 8 + 64,
    }  # fmt: skip


def test_modules_that_the_history_names(tmp_path: Path) -> None:
    """At the end 6 of 10 MiB are activations of GPT.layers, of which model.py:7 allocated 4."""
    inner = called(("/home/me/block.py", 5, "forward"), CALL, *MODEL_CALL)
    events = [
        event("alloc", 1, 4 * MIB, 10, called(*MODEL_CALL), user_metadata="GPT.layers.0"),
        event("alloc", 2, 2 * MIB, 20, inner, user_metadata="GPT.layers.11.norm"),
        event("alloc", 3, 1 * MIB, 30, called(*MODEL_CALL), user_metadata="GPT"),
        event("alloc", 4, 3 * MIB, 40, LOADER, user_metadata=""),
        event("oom", None, 64 * MIB, 50, MODEL, device_free=2 * MIB),
    ]
    path = write(tmp_path / "s.pickle", events, [])
    live = ask(path, "memory-live", params={"group": "module", "at": "oom"})
    assert [(r["module"], r["bytes"] // MIB) for r in live] == [
        ("GPT.layers.0", 4), ("(no module)", 3), ("GPT.layers.11.norm", 2), ("GPT", 1),
    ]  # fmt: skip
    layers = ask(path, "memory-live", params={"group": "layers"})
    assert {r["layers"]: r["bytes"] // MIB for r in layers} == {"GPT.layers": 6, "(no module)": 3, "GPT": 1}
    owned = ask(path, "memory-owners", params={"group": "layers", "buckets": 1})
    assert {r["layers"]: r["bytes"] // MIB for r in owned} == {"GPT.layers": 6, "(no module)": 3, "GPT": 1}
    [said] = [r["value"] for r in ask(path, "health") if r["fact"] == "out of GPU memory"]
    assert said == "GPU 0: 60.0 % of the 10.0 MiB held are activations of GPT.layers, model.py:7 forward"


def test_pools_of_what_the_snapshot_still_has(tmp_path: Path) -> None:
    """Held at the peak: 4 MiB that were freed before the snapshot, and 6 + 3 MiB in the segment of pool (0, 0)."""
    graph = segment(9000, 30 * MIB, [block(9000, 5 * MIB, 5 * MIB, "active_allocated")], segment_pool_id=(0, 1))
    path = write(tmp_path / "s.pickle", EVENTS, [SEGMENTS[0], graph])
    found = {r["pool"]: r["bytes"] // MIB for r in ask(path, "memory-live", params={"group": "pool"})}
    assert found == {"(0, 0)": 9, "(0, 1)": 5, "(not recorded)": 4}


def test_categories_of_the_sample() -> None:
    """Two linear layers of 4096 x 8192 with biases, and AdamW's two moments of each parameter, without its counters."""
    parameters = (2 * 4096 * 8192 + 8192 + 4096) * 4
    live = ask(SAMPLES / "out-of-memory", "memory-live", params={"group": "category", "at": "oom"})
    found = {r["category"]: r["bytes"] for r in live}
    assert (found["parameter"], found["optimizer_state"]) == (parameters, 2 * parameters)


def test_layers_of_a_recording_add_up() -> None:
    """tests/data/encoder_oom.py on an H100: the sums of a walk through the history, and what torch counted."""
    folder = ROOT / "tests" / "data" / "encoder-oom"
    path = folder / "snapshot.pickle.gz"
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
    held: dict[int, tuple[int, str]] = {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            held[entry["addr"]] = entry["size"], entry["user_metadata"]
        elif entry["action"] == "free_requested":
            held.pop(entry["addr"])
        elif entry["action"] == "oom":
            break
    layers = sum(size for size, module in held.values() if module.startswith("Model.encoder.layers."))
    found = {r["layers"]: r["bytes"] for r in ask(path, "memory-live", params={"at": "oom", "group": "layers"})}
    everything = sum(size for size, _ in held.values())
    assert found == {"Model.encoder.layers": layers, "(no module)": everything - layers}
    # When torch was asked, dropout had failed and freed its mask: a byte for each of 512 x 512 x 4096 values.
    words = (folder / "printed.txt").read_text().split()
    assert everything == int(words[words.index("held") + 1]) + 512 * 512 * 4096
    peak = int(words[words.index("requested_bytes.all.peak") + 1])
    assert sum(r["bytes"] for r in ask(path, "memory-live")) == peak
    segments = {"segment_alloc": 1, "segment_free": -1}
    reserved = accumulate(segments.get(e["action"], 0) * e["size"] for e in snapshot["device_traces"][0])
    [peaks] = ask(path, "memory-peak")
    assert (peaks["requested_bytes"], peaks["reserved_bytes"]) == (peak, max(reserved))
    timeline = ask(path, "memory-timeline")
    columns = ("peak_allocated_bytes", "peak_reserved_bytes")
    assert [max(r[c] for r in timeline) for c in columns] == [peak, peaks["reserved_bytes"]]
    [said] = [r["value"] for r in ask(path, "health") if r["fact"] == "out of GPU memory"]
    assert said == (
        f"GPU 0: {100 * layers / everything:.1f} % of the {everything / (MIB << 10):.1f} GiB held are activations of "
        "Model.encoder.layers, encoder_oom.py:21 forward"
    )
