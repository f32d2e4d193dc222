"""Rooflines: roofs and points by hand, and the figure in each of its forms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask
from test_ncu import counts, wide, write

import analyze
from analyze.errors import InputError
from analyze.plots.figure import Rows, quantity, si
from analyze.plots.kinds import roofline
from analyze.plots.roofs import Roofline

PEAKS = {
    "sm__cycles_elapsed.avg.per_second": ("Ghz", "2"),
    "dram__cycles_elapsed.avg.per_second": ("Ghz", "3"),
    "lts__cycles_elapsed.avg.per_second": ("Ghz", "1"),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": ("inst/cycle", "1,000"),
    "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained": ("inst/cycle", "1,000"),
    "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": ("inst/cycle", "500"),
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum.peak_sustained": ("", "64,000"),
    "sm__ops_path_tensor_src_fp64.sum.peak_sustained": ("", "1,500"),
    "dram__bytes.sum.peak_sustained": ("Kbyte/cycle", "1"),
    "lts__t_bytes.sum.peak_sustained": ("Kbyte/cycle", "9"),
    "lts__t_bytes.sum": ("byte", "4,096,000"),
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Three kernels of 10 us and 1,024,000 bytes, at clocks of 2, 3 and 1 GHz (SM, DRAM, L2)."""
    launches = [
        ("left", counts(ffma="512,000") | PEAKS),
        ("right", counts(ffma="10,240,000") | PEAKS),
        ("tensor", counts(ffma="1", sm__ops_path_tensor_src_tf32_dst_fp32___sum="102,400,000") | PEAKS),
        ("none", counts() | PEAKS),
    ]
    return write(tmp_path / "a.ncu.csv", wide(launches))


def test_roofs_of_the_device(report: Path) -> None:
    """Per cycle times clock: 1000 * 2 * 2 GHz; fp16 has pairs; sparse tensor peaks count half, fp64's whole."""
    roofs = {r["roof"]: r for r in ask(report, "roofs")}
    assert {n: r["flops_per_s"] for n, r in roofs.items() if r["flops_per_s"]} == {
        "fp64": 2e12, "tensor_fp64": 3e12, "fp32": 4e12, "fp16": 8e12, "tensor_tf32": 64e12,
    }  # fmt: skip
    # 1000 bytes * 3 GHz, and 9000 * 1 GHz.
    assert {n: r["gb_per_s"] for n, r in roofs.items() if r["gb_per_s"]} == {"dram": 3000.0, "l2": 9000.0}
    assert {r["source"] for r in roofs.values()} == {"report"}


def test_points_and_their_bounds(report: Path) -> None:
    points = {r["kernel"]: r for r in ask(report, "roofline", params={"level": "dram"})}
    # 2 * 512,000 FLOPs / 1,024,000 B = 1 FLOP/B, left of the ridge of 4 TFLOP/s / 3 TB/s = 1.33: memory, 3 TFLOP/s.
    # Achieved: 1,024,000 FLOPs and bytes in 10 us = 102.4 G/s each, which is 3.413 % of 3 T/s.
    left = points["left"]
    assert (left["flops_per_byte"], left["bound"], left["attainable_flops_per_s"]) == (1.0, "memory", 3e12)
    assert (left["flops_per_s"], left["gb_per_s"]) == (102.4e9, 102.4)
    assert left["roof_pct"] == pytest.approx(100 * 102.4 / 3000)
    # 20 FLOP/B: the peak of 4 TFLOP/s, of which 2.048 are achieved.
    right = points["right"]
    assert (right["flops_per_byte"], right["bound"], right["attainable_flops_per_s"]) == (20.0, "compute", 4e12)
    assert right["roof_pct"] == pytest.approx(51.2) and right["peak_roof"] == "fp32"
    # Held to what it executes most of: 100 FLOP/B * 3 TB/s is more than 64 TFLOP/s of tf32.
    assert (points["tensor"]["peak_roof"], points["tensor"]["attainable_flops_per_s"]) == ("tensor_tf32", 64e12)
    # Without FLOPs the memory roof still says something.
    assert (points["none"]["flops_per_byte"], points["none"]["bound"]) == (0.0, "memory")
    assert points["none"]["roof_pct"] == pytest.approx(100 * 102.4 / 3000)


@pytest.mark.parametrize(
    ("fp16", "expected"),
    [
        # The largest launch is of TF32, most operations are of fp16: 3 * 40 against 100.
        ([40, 40, 40], "tensor_fp16"),
        # As many of both: the last by name.
        ([60, 40], "tensor_tf32"), ([40, 60], "tensor_tf32"), ([100], "tensor_tf32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_tensor_cores_by_the_type_of_most_operations(
    tmp_path: Path, fp16: list[int], expected: str, first: bool
) -> None:
    def launch(tf32: int, half: int) -> tuple[str, dict[str, tuple[str, str]]]:
        types = {
            "sm__ops_path_tensor_src_tf32_dst_fp32___sum": tf32,
            "sm__ops_path_tensor_src_fp16_dst_fp32___sum": half,
        }
        return "sm90_xmma_gemm_f32f32", counts(**{name: f"{n},000,000" if n else "0" for name, n in types.items()})

    launches = [launch(0, n) for n in fp16]
    launches.insert(0 if first else len(launches), launch(100, 0))
    path = write(tmp_path / "a.ncu.csv", wide(launches))
    [row] = ask(path, "roofline", params={"level": "dram", "group": "family"})
    assert (row["peak_roof"], row["flops"]) == (expected, (100 + sum(fp16)) * 10**6)


def test_roofline_of_other_memory_levels(report: Path) -> None:
    rows = [r for r in ask(report, "roofline") if r["kernel"] == "right"]
    # 20,480,000 FLOPs / 4,096,000 bytes through L2; no L1 bytes were counted.
    assert {r["level"]: r["flops_per_byte"] for r in rows} == {"dram": 20.0, "l2": 5.0}


def test_published_roofs_where_the_report_has_none(tmp_path: Path) -> None:
    values = counts(ffma="512,000") | {"device__attribute_display_name": ("", "NVIDIA H200")}
    path = write(tmp_path / "a.ncu.csv", wide([("k", values)]))
    (row,) = ask(path, "roofline")
    # schemas/devices.toml: 67 TFLOP/s of fp32, 4.8 TB/s.
    assert (row["attainable_flops_per_s"], row["bound"], row["roof_source"]) == (4.8e12, "memory", "published")
    unknown = write(tmp_path / "b.ncu.csv", wide([("k", counts(ffma="512,000"))]))
    (row,) = ask(unknown, "roofline")
    assert row["bound"] is row["attainable_flops_per_s"] is row["roof_pct"] is None and row["flops_per_byte"] == 1.0


def test_missing_roof_makes_the_bound_unknown(tmp_path: Path) -> None:
    """The H200's data sheet has no peak of fp16 outside of tensor cores, and no bandwidth of its L2 cache."""
    values = {"device__attribute_display_name": ("", "NVIDIA H200"), "lts__t_bytes.sum": ("byte", "4,096,000")}
    launches = [
        ("half", counts(hfma="512,000") | values),
        ("single", counts(ffma="512,000") | values),
        ("none", counts() | values),
        ("hit", counts(ffma="512,000") | values | {"lts__t_bytes.sum": ("byte", "0")}),
        ("idle", counts() | values | {"lts__t_bytes.sum": ("byte", "0")}),
    ]
    columns = ("attainable_flops_per_s", "bound", "roof_pct")
    rows = ask(write(tmp_path / "a.ncu.csv", wide(launches)), "roofline")
    found = {(r["kernel"], r["level"]): tuple(r[c] for c in columns) for r in rows}
    # 1,024,000 B of device memory in 10 us are 102.4 GB/s, of 4800; 1,024,000 FLOPs 102.4 GFLOP/s, of 67,000 of fp32.
    of_dram, of_fp32 = pytest.approx(100 * 102.4 / 4800), pytest.approx(100 * 102.4 / 67_000)
    assert found == {
        ("half", "dram"): (None, None, None), ("half", "l2"): (None, None, None),
        ("single", "dram"): (4.8e12, "memory", of_dram), ("single", "l2"): (None, None, None),
        ("none", "dram"): (0, "memory", of_dram), ("none", "l2"): (None, None, None),
        ("hit", "dram"): (4.8e12, "memory", of_dram), ("hit", "l2"): (67e12, "compute", of_fp32),
        ("idle", "dram"): (0, "memory", of_dram), ("idle", "l2"): (None, None, None),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["alexnet-roofline", "resnet18-roofline"])
def test_recorded_roofs_are_close_to_published_ones(name: str) -> None:
    """The data sheet of the H200 at its boost clock; ncu's peaks at the clock while the kernels ran."""
    roofs = {r["roof"]: r["flops_per_s"] or r["gb_per_s"] for r in ask(SAMPLES / name, "roofs")}
    assert roofs["fp32"] == pytest.approx(67e12, rel=0.1) and roofs["dram"] == pytest.approx(4800, rel=0.05)
    assert roofs["tensor_tf32"] == pytest.approx(494.5e12, rel=0.1)
    assert roofs["dram"] < roofs["l2"] < roofs["l1"]
    points = ask(SAMPLES / name, "roofline")
    assert len(points) == 3 * len(ask(SAMPLES / name, "flops"))
    assert {p["bound"] for p in points if p["flops"] or p["bytes"]} == {"memory", "compute"}
    for p in points:
        # A fill computes nothing, and nothing of it goes through L1.
        assert p["roof_pct"] is None if not p["flops"] and not p["bytes"] else 0 <= p["roof_pct"] <= 110
        if p["flops"]:
            at = min(roofs[p["peak_roof"]], p["flops_per_byte"] * roofs[p["level"]] * 1e9)
            assert p["attainable_flops_per_s"] == pytest.approx(at)
            assert p["roof_pct"] == pytest.approx(100 * p["flops_per_s"] / at)


def read(*paths: Path, **params: str) -> Roofline:
    """What the figure shows, at DRAM."""
    traces = analyze.open(*paths)

    def rows(query: str, **asked: str) -> Rows:
        return Rows.of(traces.query(query, params=asked))

    return roofline.read(rows("roofline", **({"level": "dram"} | params)), rows)


def test_launches_of_several_runs_stay_apart(tmp_path: Path) -> None:
    """Launch 0 of two reports of the same kernel: 1 and 4 additions, 1,024,000 bytes and 10 us each."""
    for name, fadd in (("a", "1"), ("b", "4")):
        write(tmp_path / f"{name}.ncu.csv", wide([("k", counts(fadd=fadd) | PEAKS)]))
    both = analyze.open(tmp_path / "a.ncu.csv", tmp_path / "b.ncu.csv")

    def asked(query: str, column: str, **params: str) -> dict[str, Any]:
        rows = both.query(query, params={"group": "launch", **params}).dicts()
        named = {r["kernel"]: r[column] for r in rows}
        assert len(named) == len(rows) == 2
        return {name.split(".")[0]: value for name, value in named.items()}

    assert asked("flops", "total_flops") == {"0 k (a": 1, "0 k (b": 4}
    assert asked("arithmetic-intensity", "total_flops") == {"0 k (a": 1, "0 k (b": 4}
    assert asked("roofline", "flops", level="dram") == {"0 k (a": 1, "0 k (b": 4}
    fadd_metric = r"op_fadd_pred_on\.sum$"
    assert asked("metrics", "sum", metric=fadd_metric) == {"0 k (a": 1, "0 k (b": 4}
    # Of one run, a launch is its number and name.
    assert [r["kernel"] for r in ask(tmp_path / "a.ncu.csv", "flops", params={"group": "launch"})] == ["0 k"]
    # A kernel has its launches of all runs; on the roofline a point for each run, as each has roofs of its own.
    [row] = both.query("flops").dicts()
    assert (row["kernel"], row["launches"], row["total_flops"]) == ("k", 2, 5)
    points = both.query("roofline", params={"level": "dram"}).dicts()
    assert [(r["kernel"], r["run_id"][0], r["flops"]) for r in points] == [("k", "a", 1), ("k", "b", 4)]
    files = (tmp_path / "a.ncu.csv", tmp_path / "b.ncu.csv")
    drawn = read(*files)
    assert sorted(p.kernel[:4] for p in drawn.points) == ["k (a", "k (b"]
    drawn = read(*files, group="launch")
    assert sorted(p.kernel[:6] for p in drawn.points) == ["0 k (a", "0 k (b"]


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_roofline_figure(tmp_path: Path, report: Path, suffix: str) -> None:
    output, again = tmp_path / f"roofline.{suffix}", tmp_path / f"again.{suffix}"
    for file in (output, again):
        analyze.open(report).plot("roofline", file, params={"level": "dram"})
    assert output.read_bytes() == again.read_bytes(), "the same data gives the same file"
    if suffix == "png":
        assert output.read_bytes().startswith(b"\x89PNG") and output.stat().st_size > 20_000
        return
    text = output.read_text()
    for label in ("DRAM 3 TB/s", "fp32 4 TFLOP/s", "tensor tf32 64 TFLOP/s", "Not shown: 1 kernel without FLOPs"):
        assert label in text
    # Of longest time, first by name: what the numbers stand for, with FLOP/s and the share of the roof.
    assert "102 GFLOP/s, 3.41 % of roof (memory)" in text and "51.2 % of roof (compute)" in text
    if suffix == "svg":
        assert "fp16" not in text, "a roof that holds no kernel is not drawn"
    else:
        [spec] = re.findall(r'<script type="application/json" class="spec">(.*?)</script>', text)
        assert "fp16" not in spec
        points = [d for d in json.loads(spec)["data"] if "area" in (d.get("values") or [{}])[0]]
        assert [len(d["values"]) for d in points] == [3]


def test_roofline_figure_of_a_hundred_launches(tmp_path: Path) -> None:
    data = read(SAMPLES / "resnet18-ncu", group="launch")
    assert len(data.points) + data.unplaced == 146 and len(data.points) > 90
    assert sum(p.dur_ns for p in data.points) + data.unplaced_ns == data.total_ns
    assert data.title == "Roofline: resnet18 batch 64 tf32 on NVIDIA H200"
    assert [p.dur_ns for p in data.numbered] == sorted((p.dur_ns for p in data.points), reverse=True)[:10]


def test_roofline_without_data_is_one_sentence(tmp_path: Path, report: Path) -> None:
    for arguments, sentence in (
        ([report, "-o", tmp_path / "a.pdf"], "the name of a figure must end in .svg, .png, .html"),
        ([report, "-o", tmp_path / "a.svg", "-p", "level=l3"], "level must be one of all, dram, l2, l1"),
        ([SAMPLES / "vgg16-fp32", "-o", tmp_path / "a.svg"], "no data for a figure; it needs FLOP and memory metrics"),
        ([report, "-o", tmp_path / "no" / "a.html"], "cannot be written"),
    ):
        result = run_cli("plot", "roofline", *arguments)
        assert result.returncode == 2 and sentence in result.stderr and "Traceback" not in result.stderr
    copies = write(tmp_path / "b.ncu.csv", wide([("copy", counts() | PEAKS)]))
    with pytest.raises(InputError, match="no kernel has both FLOPs and bytes"):
        read(copies)


def test_roofline_text() -> None:
    assert [si(v, "B/s") for v in (4.8088e12, 999, 1.5e3, 2.5e18)] == ["4.81 TB/s", "999 B/s", "1.5 kB/s", "2500 PB/s"]
    assert [quantity(v, "ns") for v in (12, 136864, 2.5e6, 3e9)] == ["12 ns", "137 µs", "2.5 ms", "3 s"]
