"""Memory over time, by phase and by category: by hand, on the recorded sample, and against torch on a CPU recording."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, ask, sql
from traces import event, write_trace


def memory(ts: float, addr: int, size: int, allocated: int, device: int = 0, reserved: int = 1000) -> dict[str, Any]:
    """An allocator event of a GPU."""
    args = {
        "Device Type": 1, "Device Id": device, "Addr": addr, "Bytes": size, "Total Allocated": allocated,
        "Total Reserved": reserved,
    }  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}


def annotations(*ranges: tuple[str, float, float]) -> Iterator[dict[str, Any]]:
    for name, start, end in ranges:
        yield event("user_annotation", name, start, end - start)


# 100 B are there before the trace. h2d [0, 10): +10 at 1 (freed at 95, outside). forward [10, 30): +40 at 12 and +20 at
# 14, the latter freed at 16; the 40 are freed at 52. backward [40, 60): +30 at 45, +50 at 50 (freed at 55).
# optimizer [60, 80): +5 at 65; the gradient of 30 is freed at 70. Allocated, in order:
#   1: 110  12: 150  14: 170  16: 150  45: 180  50: 230 (the peak)  52: 190  55: 140  65: 145  70: 115  95: 105
STEP = [
    *annotations(("h2d", 0, 10), ("forward", 10, 30), ("backward", 40, 60), ("optimizer", 60, 80)),
    event("cpu_op", "aten::conv2d", 11, 8), event("cpu_op", "aten::empty", 11.5, 1),
    event("cpu_op", "evaluate_function: ConvolutionBackward0", 44, 12, tid=2),
    event("cpu_op", "aten::other", 49, 4),
    memory(1, 1, 10, 110), memory(12, 2, 40, 150), memory(14, 3, 20, 170), memory(16, 3, -20, 150),
    memory(45, 3, 30, 180), memory(50, 4, 50, 230), memory(52, 2, -40, 190), memory(55, 4, -50, 140),
    memory(65, 5, 5, 145), memory(70, 3, -30, 115), memory(95, 1, -10, 105),
]  # fmt: skip


def test_by_phase_by_hand(tmp_path: Path) -> None:
    rows = ask(write_trace(tmp_path / "t.json", STEP), "memory-by-phase")
    columns = ("phase", "allocations", "allocated_bytes", "freed_bytes", "net_bytes", "survived_bytes", "peak_bytes")
    assert [tuple(r[c] for c in columns) for r in rows] == [
        ("(before the trace)", 0, 0, 0, 0, None, None),
        ("h2d", 1, 10, 0, 10, 10, 110),
        ("forward", 2, 60, 20, 40, 40, 170),
        ("backward", 2, 80, 90, -10, 30, 230),
        # It begins with the 140 that backward left.
        ("optimizer", 1, 5, 30, -25, 5, 145),
        ("(outside)", 0, 0, 10, -10, None, 105),
    ]
    # At 50 there are: 100 from before, h2d's 10, forward's 40, backward's 30 + 50.
    assert {r["phase"]: r["live_at_peak_bytes"] for r in rows if r["live_at_peak_bytes"]} == {
        "(before the trace)": 100, "h2d": 10, "forward": 40, "backward": 80,
    }  # fmt: skip
    assert sum(r["peak_pct"] for r in rows) == pytest.approx(100)


def test_by_category_by_hand(tmp_path: Path) -> None:
    rows = ask(write_trace(tmp_path / "t.json", STEP), "memory-by-category")
    columns = ("category", "allocations", "allocated_bytes", "live_at_peak_bytes", "live_at_end_bytes")
    assert {tuple(r[c] for c in columns) for r in rows} == {
        ("before_trace", 0, 0, 100, 100),
        ("input", 1, 10, 10, 0),
        ("activation", 1, 40, 40, 0),
        ("temporary", 2, 70, 50, 0),
        ("gradient", 1, 30, 30, 0),
        ("optimizer_state", 1, 5, 0, 5),
    }


def test_the_peak_may_be_before_the_first_event(tmp_path: Path) -> None:
    """1000 B are there when the recording begins; 400 are freed, 100 allocated: 1000, 600, 700."""
    events = [memory(1, 64, -400, 600), memory(2, 128, 100, 700), *annotations(("forward", 0, 5))]
    path = write_trace(tmp_path / "t.json", events)
    assert [r["allocated_bytes"] for r in ask(path, "memory-peak")] == [1000]
    assert max(r["peak_allocated_bytes"] for r in ask(path, "memory-timeline")) == 1000
    columns = ("peak_bytes", "live_at_peak_bytes", "peak_pct")
    assert {r["phase"]: tuple(r[c] for c in columns) for r in ask(path, "memory-by-phase")} == {
        "(before the trace)": (None, 1000, 100), "forward": (1000, 0, 0),
    }  # fmt: skip
    columns = ("live_at_peak_bytes", "peak_pct", "live_at_end_bytes")
    assert {r["category"]: tuple(r[c] for c in columns) for r in ask(path, "memory-by-category")} == {
        "before_trace": (1000, 100, 600), "activation": (0, 0, 100),
    }  # fmt: skip


def test_by_operator_by_hand(tmp_path: Path) -> None:
    """The outermost operator; unknown without one, and at 50, when two threads run one."""
    rows = ask(write_trace(tmp_path / "t.json", STEP), "memory-by-category", params={"group": "operator"})
    assert {(r["operator"], r["allocated_bytes"]) for r in rows} == {
        ("before_trace", 0),
        ("aten::conv2d", 60),
        ("evaluate_function: ConvolutionBackward0", 30),
        ("unknown", 10 + 50 + 5),
    }


def test_category_without_a_clear_lifetime_is_unknown(tmp_path: Path) -> None:
    # Three steps. Allocated in the first forward and never freed: it outlives two more forwards, so no activation.
    # Outside of all phases: unknown. Optimizer memory that is freed in the next step is no state.
    steps = [
        a
        for n in range(3)
        for a in annotations(("forward", 100 * n, 100 * n + 10), ("optimizer", 100 * n + 20, 100 * n + 30))
    ]
    events = [
        memory(1, 1, 7, 7),
        memory(15, 2, 9, 16),
        memory(25, 3, 11, 27),
        memory(105, 3, -11, 16),
        memory(206, 4, 1, 17),
    ]
    rows = ask(write_trace(tmp_path / "t.json", [*steps, *events]), "memory-by-category")
    assert {(r["category"], r["allocated_bytes"]) for r in rows} == {
        ("unknown", 7 + 9 + 11),
        ("activation", 1),
        ("before_trace", 0),
    }


def test_timeline_by_hand(tmp_path: Path) -> None:
    # Events at 0, 10, 10.5 and 39.999 us: 40,000 ns in four buckets of 10,000. The third is empty: it keeps the 30 of
    # the second, whose peak is the 80 in it; the fourth inherits 30 and ends with 20.
    events = [memory(0, 1, 30, 30), memory(10, 2, 50, 80), memory(10.5, 2, -50, 30), memory(39.999, 1, -10, 20)]
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "memory-timeline", params={"buckets": 4})
    columns = ("start_ns", "span_ns", "events", "change_bytes", "allocated_bytes", "peak_allocated_bytes")
    assert [tuple(r[c] for c in columns) for r in rows] == [
        (0, 10000, 1, 30, 30, 30),
        (10000, 10000, 2, 0, 30, 80),
        (20000, 10000, 0, 0, 30, 30),
        (30000, 10000, 1, -10, 20, 30),
    ]
    rows = ask(path, "memory-timeline", params={"buckets": 0})
    assert [(r["start_ns"], r["span_ns"], r["allocated_bytes"]) for r in rows] == [
        (0, 10000, 30), (10000, 500, 80), (10500, 29499, 30), (39999, 0, 20),
    ]  # fmt: skip


# Whole us, in which much falls together. 500 B are there before the trace; allocated, in the order of the file:
#   5: 550 (+50)  10: 650 (+100, the peak), 550 (-100)  20: 580 (+30, which lives on), 610 (+30), 580 (-30)
#   30: 530 (-50)  40: 540 (+10), 530 (-10)
TIES = [
    *annotations(("forward", 0, 60), ("backward", 60, 100)),
    memory(5, 1, 50, 550),
    memory(10, 2, 100, 650), memory(10, 2, -100, 550),
    memory(20, 3, 30, 580), memory(20, 4, 30, 610), memory(20, 4, -30, 580),
    memory(30, 1, -50, 530),
    memory(40, 5, 10, 540), memory(40, 5, -10, 530),
]  # fmt: skip


@pytest.mark.parametrize("chosen", [{}, {"by": ["rank"]}, {"where": "rank = 0"}])
def test_events_of_one_time_are_in_the_order_of_the_file(tmp_path: Path, chosen: dict[str, Any]) -> None:
    path = write_trace(tmp_path / "t.json", TIES)
    columns = ("allocations", "live_at_peak_bytes", "live_at_end_bytes")
    rows = ask(path, "memory-by-category", **chosen)
    assert {r["category"]: tuple(r[c] for c in columns) for r in rows} == {
        "before_trace": (0, 500, 500), "temporary": (4, 50 + 100, 0), "activation": (1, 0, 30),
    }  # fmt: skip
    rows = ask(path, "memory-by-phase", **chosen)
    # backward begins with the 530 that forward left.
    assert {r["phase"]: (r["survived_bytes"], r["peak_bytes"], r["live_at_peak_bytes"]) for r in rows} == {
        "(before the trace)": (None, None, 500), "forward": (30, 650, 150), "backward": (0, 530, 0),
    }  # fmt: skip
    rows = ask(path, "memory-timeline", params={"buckets": 0}, **chosen)
    assert [r["allocated_bytes"] for r in rows] == [550, 650, 550, 580, 610, 580, 530, 540, 530]
    # 35,001 ns in buckets of 17,501: up to 20 us, and from 30 us on, which inherits 580.
    rows = ask(path, "memory-timeline", params={"buckets": 2}, **chosen)
    assert [(r["allocated_bytes"], r["peak_allocated_bytes"]) for r in rows] == [(580, 650), (530, 580)]


def test_last_event_of_equal_times_is_the_last_in_the_file(tmp_path: Path) -> None:
    # Before the trace 500; in the last us 600 - 50 + 100, + 50, + 25.
    events = [
        memory(5, 9, 50, 550), memory(5, 2, 50, 600), memory(10, 9, -50, 550),
        memory(20, 30, 100, 650), memory(20, 20, 50, 700), memory(20, 25, 25, 725),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", [*annotations(("forward", 0, 60)), *events])
    [row] = ask(path, "memory-timeline", params={"buckets": 1})
    assert (row["allocated_bytes"], row["peak_allocated_bytes"]) == (725, 725)
    rows = {r["category"]: r["live_at_end_bytes"] for r in ask(path, "memory-by-category")}
    assert rows == {"before_trace": 500, "activation": 50 + 100 + 50 + 25, "temporary": 0}


def test_a_block_freed_as_its_phase_ends_outlives_it(tmp_path: Path) -> None:
    """What happens at the end of a phase is no longer in it: the free is the next one's."""
    events = [*annotations(("forward", 0, 10), ("backward", 10, 20)), memory(1, 1, 5, 5), memory(10, 1, -5, 0)]
    path = write_trace(tmp_path / "t.json", events)
    by_phase = {r["phase"]: (r["survived_bytes"], r["freed_bytes"]) for r in ask(path, "memory-by-phase")}
    assert by_phase == {"(before the trace)": (None, 0), "forward": (5, 0), "backward": (0, 5)}
    assert {r["category"] for r in ask(path, "memory-by-category")} == {"activation", "before_trace"}


def test_outer_phase_continues_after_a_nested_one(tmp_path: Path) -> None:
    # 500 B before the trace. forward [0, 100) holds loss [40, 50): 50 B at 5 (freed in backward) and 100 B at 70 (freed
    # at 80) are forward's, 20 B at 45 loss's. Behind loss, forward has 570, and at 70 the peak of 670.
    nested = [
        *annotations(("forward", 0, 100), ("loss", 40, 50), ("backward", 100, 150)),
        memory(5, 1, 50, 550), memory(45, 2, 20, 570), memory(70, 3, 100, 670), memory(80, 3, -100, 570),
        memory(120, 1, -50, 520),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", nested)
    columns = ("allocated_bytes", "freed_bytes", "survived_bytes", "peak_bytes", "live_at_peak_bytes")
    assert {r["phase"]: tuple(r[c] for c in columns) for r in ask(path, "memory-by-phase")} == {
        "(before the trace)": (0, 0, None, None, 500),
        "forward": (150, 100, 50, 670, 150), "loss": (20, 0, 20, 570, 20), "backward": (0, 50, 0, 570, 0),
    }  # fmt: skip
    rows = ask(path, "memory-by-category")
    assert {(r["category"], r["allocated_bytes"], r["live_at_end_bytes"]) for r in rows} == {
        ("before_trace", 0, 500), ("temporary", 100, 0), ("activation", 70, 20),
    }  # fmt: skip
    # What loss left counts for forward, which goes on with it: 30 B at 45, freed at 47, and 20 B at 48, at 60.
    nested[4:-1] = [memory(45, 2, 30, 580), memory(47, 2, -30, 550), memory(48, 3, 20, 570), memory(60, 3, -20, 550)]
    nested[-1] = memory(120, 1, -50, 500)
    rows = ask(write_trace(tmp_path / "u.json", nested), "memory-by-phase")
    assert {r["phase"]: r["peak_bytes"] for r in rows if r["peak_bytes"]} == {
        "forward": 570, "loss": 580, "backward": 550,
    }  # fmt: skip


def test_devices_stay_apart(tmp_path: Path) -> None:
    """The same address on two devices is two blocks."""
    events = [
        *annotations(("forward", 0, 10)),
        memory(1, 1, 5, 5),
        memory(2, 1, 7, 7, 1),
        memory(3, 1, -5, 0),
        memory(4, 1, -7, 0, 1),
    ]
    path = write_trace(tmp_path / "t.json", events)
    rows = ask(path, "memory-by-phase")
    assert [(r["device"], r["phase"], r["peak_bytes"], r["live_at_peak_bytes"]) for r in rows if r["allocations"]] == [
        (0, "forward", 5, 5),
        (1, "forward", 7, 7),
    ]


def test_sample_agrees_with_torch() -> None:
    """Peaks equal what torch.cuda.max_memory_allocated said, and each cut of the peak adds up to it."""
    path = SAMPLES / "resnet18-1gpu"
    [said] = sql(path, "SELECT max(max_allocated_bytes) AS b, max(max_reserved_bytes) AS r FROM step_metrics")
    options = {"params": {"device_type": "cuda"}}
    timeline = ask(path, "memory-timeline", **options)
    peak = max(r["peak_allocated_bytes"] for r in timeline)
    # The peak of the whole run, warm-up steps included, which take cuDNN's benchmarks for one.
    assert peak <= said["b"] and max(r["peak_reserved_bytes"] for r in timeline) <= said["r"]
    [direct] = sql(path, "SELECT max(allocated_bytes) AS b FROM memory_events WHERE device_type = 'cuda'")
    assert peak == direct["b"]
    for query, params in (
        ("memory-by-phase", {}),
        ("memory-by-category", {}),
        ("memory-by-category", {"group": "operator"}),
    ):
        rows = ask(path, query, params={"device_type": "cuda", **params})
        assert sum(r["live_at_peak_bytes"] for r in rows) == peak
    gradients = {r["category"]: r for r in ask(path, "memory-by-category", **options)}["gradient"]
    # resnet18 has 62 parameters, and two steps were recorded.
    assert gradients["allocations"] == 2 * 62


def test_gradients_and_optimizer_state_against_torch(tmp_path: Path) -> None:
    """On the CPU, where every allocation is of the size that was asked for."""
    import torch
    from torch import profiler

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(16, 64)
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as p:
        for _ in range(2):
            with profiler.record_function("forward"):
                loss = model(x).sum()
            with profiler.record_function("backward"):
                loss.backward()
            with profiler.record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    path = tmp_path / "t.json.gz"
    p.export_chrome_trace(str(path))
    size = sum(v.numel() * 4 for v in model.parameters())
    rows = {r["category"]: r for r in ask(path, "memory-by-category")}
    assert rows["gradient"]["allocated_bytes"] == 2 * size
    # Momentum: made in the first step (a clone of the gradient), kept.
    assert rows["optimizer_state"]["live_at_end_bytes"] == size
    by_phase = {r["phase"]: r for r in ask(path, "memory-by-phase")}
    assert by_phase["backward"]["survived_bytes"] == 2 * size
    changes = sum(e.cpu_memory_usage for e in p.events() if e.name == "[memory]") or sum(
        e.self_cpu_memory_usage for e in p.key_averages()
    )
    assert sum(r["net_bytes"] for r in by_phase.values()) == changes


def test_memory_of_operators_equals_the_recorded_key_averages() -> None:
    """The CSV beside the trace is what torch printed on the GPU node: self memory of each name, on GPU and CPU."""
    folder = SAMPLES / "resnet18-1gpu"
    with (folder / "torch/rank-0.key_averages.csv").open() as f:
        rows = [r for r in csv.DictReader(f) if r["device_type"] == "CPU"]
    expected: Counter[tuple[str, str]] = Counter()
    for r in rows:
        for place in ("device", "cpu"):
            expected[r["key"], place] += int(r[f"self_{place}_mem_bytes"])
    assert expected["aten::empty", "device"] > 10**9
    found: Counter[tuple[str, str]] = Counter()
    for row in ask(folder, "memory-by-op", profiler="torch"):
        for place in ("device", "cpu"):
            found[row["name"], place] += row[f"self_{place}_bytes"]
    assert found == expected


def test_memory_of_operators_by_hand(tmp_path: Path) -> None:
    # forward [10, 30) has +40, +20 and -20, all within conv2d [11, 19); the +40 at 12 is within empty [11.5, 12.5).
    # backward [40, 60) has +30, +50, -40 and -50, of which other [49, 53), below it on its thread, has +50 and -40. On
    # thread 2, the range of autograd [44, 56) has all four: it ran while they were allocated and freed.
    rows = {r["name"]: r for r in ask(write_trace(tmp_path / "t.json", STEP), "memory-by-op")}
    both = {name: (r["self_device_bytes"], r["total_device_bytes"]) for name, r in rows.items()}
    assert both == {
        "h2d": (10, 10), "forward": (0, 40), "aten::conv2d": (0, 40), "aten::empty": (40, 40),
        "backward": (-10 - 10, -10), "aten::other": (10, 10), "optimizer": (5 - 30, 5 - 30),
        "evaluate_function: ConvolutionBackward0": (-10, -10),
    }  # fmt: skip
    assert {(r["self_cpu_bytes"], r["total_cpu_bytes"]) for r in rows.values()} == {(0, 0)}


@pytest.mark.parametrize("query", ["memory-timeline", "memory-by-phase", "memory-by-category"])
def test_allocators_of_other_gpus(tmp_path: Path, query: str) -> None:
    # c10::DeviceType of an AMD GPU is 6, which torch calls cuda all the same; of an Intel GPU 12; of the CPU 0.
    def of(kind: int, ts: float) -> dict[str, Any]:
        one = memory(ts, kind + 1, 10, 10, device=-1 if kind == 0 else 0)
        return one | {"args": one["args"] | {"Device Type": kind}}

    amd = write_trace(tmp_path / "amd.json", [of(6, 1), of(0, 2)])
    intel = write_trace(tmp_path / "intel.json", [of(12, 1), of(0, 2)])
    found = {
        (path.stem, chosen): {r["device_type"] for r in ask(path, query, params={"device_type": chosen})}
        for path in (amd, intel)
        for chosen in ("all", "gpu", "cuda", "hip", "xpu", "cpu")
    }
    assert found == {
        ("amd", "all"): {"hip", "cpu"}, ("amd", "gpu"): {"hip"}, ("amd", "cuda"): {"hip"}, ("amd", "hip"): {"hip"},
        ("amd", "xpu"): set(), ("amd", "cpu"): {"cpu"},
        ("intel", "all"): {"xpu", "cpu"}, ("intel", "gpu"): {"xpu"}, ("intel", "cuda"): set(), ("intel", "hip"): set(),
        ("intel", "xpu"): {"xpu"}, ("intel", "cpu"): {"cpu"},
    }  # fmt: skip
