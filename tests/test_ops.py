"""`ops` equals torch.profiler's key_averages() of the same trace."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from support import SAMPLES, ask
from traces import event, kernel, launch, op, write_trace

from schemas.manifest import read_manifest

Row = tuple[int, int, int, int, int]
Key = tuple[str, str, bool]
COLUMNS = ("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns")


def summed(rows: Iterable[tuple[Key, Row]]) -> dict[Key, Row]:
    """Rows with the same key added: key_averages tells overloads apart, which a trace does not name."""
    out: dict[Key, Row] = {}
    for key, row in rows:
        out[key] = tuple(a + b for a, b in zip(out.get(key, (0,) * 5), row, strict=True))  # type: ignore[assignment]
    return out


def ours(path: Path, **options: object) -> dict[Key, Row]:
    return summed(
        ((r["name"], r["place"], r["kind"] in ("range", "async")), tuple(r[c] for c in COLUMNS))
        for r in ask(path, "ops", **options)
    )


def theirs(events: Iterable[object]) -> dict[Key, Row]:
    def ns(us: float) -> int:
        # Kineto's ns, divided by 1000 in double precision by torch: round brings the integer back.
        return round(us * 1000)

    return summed(
        (
            (e.key, "cpu", bool(e.is_user_annotation)),
            (
                e.count,
                ns(e.self_cpu_time_total),
                ns(e.cpu_time_total),
                ns(e.self_device_time_total),
                ns(e.device_time_total),
            ),
        )
        for e in events
        if e.key != "[memory]"
    )


@pytest.mark.parametrize("stacks", [False, True])
def test_equals_key_averages_on_the_cpu(tmp_path: Path, stacks: bool) -> None:
    import torch
    import torchvision
    from torch import profiler

    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=stacks) as p:
        for _ in range(2):
            with profiler.record_function("forward"):
                loss = torch.nn.functional.cross_entropy(model(torch.randn(2, 3, 32, 32)), torch.tensor([1, 2]))
            with profiler.record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            p.step()
    path = tmp_path / "t.json.gz"
    p.export_chrome_trace(str(path))
    expected = theirs(p.key_averages())
    assert len(expected) > 60
    # With stacks, recent versions let Python frames take self time from what is below them; earlier ones do not.
    listed = any(getattr(e, "is_python_function", False) for e in p.events())
    assert ours(path, params={"python": "yes" if listed else "no"}) == expected


def test_shares_equal_torchs_table(tmp_path: Path) -> None:
    import torch
    from torch import profiler

    with (
        profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as p,
        profiler.record_function("forward"),
    ):
        for _ in range(3):
            torch.nn.functional.conv2d(torch.ones(2, 3, 32, 32), torch.ones(4, 3, 3, 3))
    path = tmp_path / "t.json.gz"
    p.export_chrome_trace(str(path))
    printed = p.key_averages().table(row_limit=-1, max_name_column_width=200)
    # Name, Self CPU %, Self CPU, CPU total %, CPU total, CPU time avg, # of Calls.
    lines = [line.strip() for line in printed.splitlines()]
    rows = [re.split(r"  +", line) for line in lines if line and line[-1].isdigit()]
    expected = {r[0]: (r[1], r[3], int(r[-1])) for r in rows}
    assert "aten::conv2d" in expected
    found = {r["name"]: r for r in ask(path, "ops")}
    assert {
        name: (f"{r['self_cpu_pct']:.2f}%", f"{r['total_cpu_pct']:.2f}%", r["calls"]) for name, r in found.items()
    } == expected
    assert all(r["avg_cpu_ns"] == r["total_cpu_ns"] / r["calls"] for r in found.values())


def gpu_passes() -> list[tuple[Path, int, Path]]:
    found = []
    for run_json in sorted(SAMPLES.glob("*/run.json")):
        for one in read_manifest(run_json.parent).passes:
            found += [
                (run_json.parent, f.rank or 0, run_json.parent / f.path) for f in one.files if f.kind == "key_averages"
            ]
    return found


# torch 2.11 looks up an overhead event by a number that here is an operator's, too, and adds that operator's kernel
# (14,816 ns) to it and to all that it lies in (docs/definitions.md).
# On rank 1 of even-ddp, an overhead event adds 2,208 ns to a CUDA call in the same way.
COUNTED_TWICE: dict[tuple[str, int], list[tuple[Key, str, int]]] = {
    ("resnet18-checkpoint", 0): [
        (("Activity Buffer Request", "cpu", False), "self_device_ns", 14_816),
        (("Activity Buffer Request", "cpu", False), "total_device_ns", 14_816),
        (("aten::normal_", "cpu", False), "total_device_ns", 14_816),
        (("aten::randn", "cpu", False), "total_device_ns", 14_816),
        (("ProfilerStep*", "cpu", True), "total_device_ns", 14_816),
    ],
    ("even-ddp", 1): [
        (("cudaStreamWaitEvent", "cpu", False), "self_device_ns", 2_208),
        (("cudaStreamWaitEvent", "cpu", False), "total_device_ns", 2_208),
        (("ProfilerStep*", "cpu", True), "total_device_ns", 2_208),
    ],
}
OFTEN_COUNTED_TWICE = {"generate"}
"""Likewise, where the profiler says that kernels were loaded at their first launch: in too many calls to be listed."""


@pytest.mark.parametrize(
    ("folder", "rank", "table"), gpu_passes(), ids=lambda v: v.name if isinstance(v, Path) else str(v)
)
def test_equals_the_recorded_key_averages(folder: Path, rank: int, table: Path) -> None:
    """The CSV beside each committed trace is what torch printed on the GPU node."""
    with table.open() as f:
        expected = summed(
            (
                (
                    r["key"],
                    {"CPU": "cpu", "CUDA": "gpu"}[r["device_type"]],
                    r["is_user_annotation"] == "true" and r["device_type"] == "CPU",
                ),
                (
                    int(r["calls"]),
                    *(round(float(r[c.replace("_ns", "_us")]) * 1000) for c in COLUMNS[1:]),
                ),
            )
            for r in csv.DictReader(f)
        )  # fmt: skip
    assert len(expected) > 30
    for key, column, extra_ns in COUNTED_TWICE.get((folder.name, rank), ()):
        expected[key] = tuple(v - extra_ns * (c == column) for c, v in zip(COLUMNS, expected[key], strict=True))  # type: ignore[assignment]
    found = ours(folder, where=f"rank = {rank} AND profiler = 'torch'")
    if table.with_name(f"rank-{rank}.graphs.json.gz").exists():
        # Operators of a captured graph count at each replay. Torch's table does not have them.
        assert all(found[key][0] >= row[0] and found[key][1:3] == row[1:3] for key, row in expected.items())
        found, expected = ({k: v for k, v in s.items() if k[1] == "gpu"} for s in (found, expected))
    if folder.name in OFTEN_COUNTED_TWICE:
        total = COLUMNS.index("total_device_ns")
        assert all(found[key][total] <= expected[key][total] for key in expected)
        loading = {("Runtime Triggered Module Loading", "cpu", False), ("Lazy Function Loading", "cpu", False)}
        own = COLUMNS.index("self_device_ns")
        assert total == own + 1 == len(COLUMNS) - 1 and all(found[key][own] == 0 for key in loading)
        found, expected = ({k: v[: own if k in loading else total] for k, v in s.items()} for s in (found, expected))
    assert found == expected


def test_samples_have_tables() -> None:
    assert len(gpu_passes()) >= 5


def test_ops_by_hand(tmp_path: Path) -> None:
    # outer [0, 100) calls inner [10, 40), which launches a kernel of 50 us through a call of 5 us [20, 25).
    # outer: self 100 - 30 = 70; inner: self 30 - 5 = 25; device: inner 50 itself, outer 50 in total.
    # aten::div calls only aten::div: one call of 10 us, and the kernel of the inner one (3 us) is its own.
    events = [
        event("cpu_op", "outer", 0, 100, **{"External id": 1}),
        event("cpu_op", "inner", 10, 30, **{"External id": 2}),
        launch(20, 7, 5, **{"External id": 2}),
        kernel("k", 60, 50, correlation=7, **{"External id": 2}),
        event("cpu_op", "aten::div", 200, 10, **{"External id": 3}),
        event("cpu_op", "aten::div", 202, 6, **{"External id": 4}),
        kernel("d", 300, 3, correlation=8, **{"External id": 4}),
    ]
    path = write_trace(tmp_path / "t.json", events)
    rows = {k[:2]: v for k, v in ours(path).items()}
    assert rows == {
        ("outer", "cpu"): (1, 70000, 100000, 0, 50000),
        ("inner", "cpu"): (1, 25000, 30000, 50000, 50000),
        ("cudaLaunchKernel", "cpu"): (1, 5000, 5000, 0, 0),
        ("aten::div", "cpu"): (1, 10000, 10000, 3000, 3000),
        ("k", "gpu"): (1, 0, 0, 50000, 50000),
        ("d", "gpu"): (1, 0, 0, 3000, 3000),
    }
    # All self CPU time: 70 + 25 + 5 + 10 = 110 us; all GPU work 53 us.
    shares = {r["name"]: (r["self_cpu_pct"], r["total_cpu_pct"], r["self_device_pct"]) for r in ask(path, "ops")}
    assert shares["outer"] == pytest.approx((100 * 70 / 110, 100 * 100 / 110, 0))
    assert shares["inner"] == pytest.approx((100 * 25 / 110, 100 * 30 / 110, 100 * 50 / 53))


def test_overlapping_calls_leave_no_negative_self_time(tmp_path: Path) -> None:
    # Two of [0, 60) and [30, 90) below one of [0, 100), all under the number of one thread: they cover 90 of its us.
    names = {"outer": (0, 100), "first": (0, 60), "second": (30, 60)}
    calls = [event("cuda_runtime", name, ts, dur, correlation=ts) for name, (ts, dur) in names.items()]
    path = write_trace(tmp_path / "t.json", calls)
    own = {r["name"]: (r["self_cpu_ns"], r["total_cpu_ns"]) for r in ask(path, "ops")}
    assert own == {"outer": (10_000, 100_000), "first": (60_000, 60_000), "second": (60_000, 60_000)}


def test_gpu_range_is_not_counted_as_work(tmp_path: Path) -> None:
    """It lasts from its first kernel to its last, and no kernel need run in between."""
    step = event("gpu_user_annotation", "ProfilerStep#1", 0, 1000, 0, 7, device=0, stream=7)
    path = write_trace(tmp_path / "t.json", [step, kernel("k", 0, 10), kernel("k", 990, 10)])
    shares = {r["name"]: r["self_device_pct"] for r in ask(path, "ops")}
    assert shares == {"ProfilerStep*": None, "k": 100}


def test_threads_that_have_a_label_instead_of_a_number(tmp_path: Path) -> None:
    # Such a thread is NULL in the table: the two events of it nest all the same, and not into thread 0.
    path = write_trace(
        tmp_path / "t.json",
        [
            event("cpu_op", "numbered", 0, 1000, tid=0, **{"External id": 1}),
            event("cpu_op", "outer", 10, 100, tid="main", **{"External id": 2}),
            event("cpu_op", "inner", 20, 30, tid="main", **{"External id": 3}),
        ],
    )
    self_ns = {name: row[1] for (name, _, _), row in ours(path).items()}
    assert self_ns == {"numbered": 1_000_000, "outer": 70_000, "inner": 30_000}


def test_op_totals_counts_calls_as_ops_does(tmp_path: Path) -> None:
    """A call whose only child has its name is one: launches [0, 10) with [2, 6) inside, and [20, 24) alone."""
    path = write_trace(tmp_path / "t.json", [launch(0, 1, 10), launch(2, 2, 4), launch(20, 3, 4)])
    [row] = ask(path, "ops")
    [totals] = ask(path, "op-totals")
    assert row["calls"] == totals["cuda_calls"] == 2
    assert row["self_cpu_ns"] == totals["cpu_ns"] == 14_000


def test_sorted_tree_stays_a_tree(tmp_path: Path) -> None:
    """Each node is above its children, which are sorted by their time on the CPU."""
    events = [
        op("a", 0, 30, 1), op("a1", 1, 5, 2), op("a2", 10, 15, 3), op("a2x", 11, 2, 4),
        op("b", 100, 50, 5), op("b1", 101, 1, 6), op("c", 200, 40, 7),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events)
    names = ["b", "  b1", "c", "a", "  a2", "    a2x", "  a1"]
    assert [r["tree"] for r in ask(path, "module-tree", sort="-total_cpu_ns")] == names
    assert [r["tree"] for r in ask(path, "module-tree", sort="-total_cpu_ns", limit=3)] == names[:3]
    assert [r["tree"] for r in ask(path, "module-tree", sort="calls", select=["tree"], by="rank")] == [
        "a", "  a1", "  a2", "    a2x", "b", "  b1", "c"
    ]  # fmt: skip
