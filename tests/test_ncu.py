"""Nsight Compute: every output format, units, damage, and FLOPs by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from support import SAMPLES, ask, sql

import analyze
from analyze.errors import InputError
from analyze.sources.interface import FileReport
from analyze.sources.ncu.metric_rows import parse_value
from analyze.sources.ncu.numbers import digits
from analyze.sources.ncu.reader import read
from schemas.ncu_units import scale

LAUNCH = '"{id}","{pid}","python","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(16, 2, 1)","0","9.0"'
COLUMNS = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC"
HEADER = ",".join(f'"{c}"' for c in COLUMNS.split(","))
LONG = HEADER + ',"Section Name","Metric Name","Metric Unit","Metric Value"'
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def wide(launches: list[tuple[str, dict[str, tuple[str, str]]]], pid: int = 5) -> str:
    """Wide CSV: name and metrics (unit, value) of each launch; all have the same metrics."""
    metrics = launches[0][1]
    lines = [HEADER + "".join(f',"{m}"' for m in metrics)]
    lines.append(",".join(['""'] * 11) + "".join(f',"{unit}"' for unit, _ in metrics.values()))
    for i, (kernel, values) in enumerate(launches):
        lines.append(LAUNCH.format(id=i, pid=pid, kernel=kernel) + "".join(f',"{v}"' for _, v in values.values()))
    return "\n".join(lines) + "\n"


def counts(**values: str) -> dict[str, tuple[str, str]]:
    """All that the flops of a launch are made of; 0 unless said."""
    found = {SASS.format(p + op): ("inst", "0") for p in "fdh" for op in ("add", "mul", "fma")}
    found |= {
        "gpu__time_duration.sum": ("us", "10.000000"),
        "dram__bytes_read.sum": ("Mbyte", "1.000000"),
        "dram__bytes_write.sum": ("Kbyte", "24.000000"),
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum": ("", "0"),
    }
    for name, value in values.items():
        metric = SASS.format(name) if SASS.format(name) in found else name.replace("___", ".")
        found[metric] = (found.get(metric, ("", ""))[0], value)
    return found


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rows(path: Path) -> tuple[list[dict[str, Any]], FileReport]:
    report = FileReport()
    found = [row for table, _, batch in read(path, report) for row in batch.to_pylist() if table == "ncu_metrics"]
    return found, report


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("us", "ns", "1e3"),
        ("usecond", "ns", "1e3"),
        ("second", "ns", "1e9"),
        ("Mbyte", "byte", "1e6"),
        ("Kbyte/block", "byte/block", "1e3"),
        ("Gbyte/s", "byte/s", "1e9"),
        ("Tbyte/second", "byte/s", "1e12"),
        ("byte/nsecond", "byte/s", "1e9"),
        ("cycle/nsecond", "hz", "1e9"),
        ("Ghz", "hz", "1e9"),
        ("Kbyte/cycle", "byte/cycle", "1e3"),
        ("inst/cycle", "inst/cycle", "1"),
        ("register/thread", "register/thread", "1"),
        ("Ksector", "sector", "1e3"),
        ("%", "%", "1"),
        ("", "", "1"),
        # No prefix: the word behind it is not one that ncu is known to use.
        ("Kelvin", "Kelvin", "1"),
    ],
)
def test_units(unit: str, base: str, factor: str) -> None:
    assert scale(unit) == (base, Decimal(factor))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234,567.8", (1234567.8, None)),
        ("0", (0.0, None)),
        ("-3.5e-2", (-0.035, None)),
        # --print-metric-instances
        ("12 (3; 4; 5)", (12.0, None)),
        ("n/a", (None, None)),
        ("(!) n/a", (None, None)),
        ("nan", (None, None)),
        ("", (None, None)),
        ("PolicySpread", (None, "PolicySpread")),
        ("1e400", (None, "1e400")),
        ("1e9999999", (None, "1e9999999")),
        ("²", (None, "²")),
        ("٣", (None, "٣")),
    ],
)
def test_values(text: str, expected: tuple[float | None, str | None]) -> None:
    assert parse_value(text, Decimal(1)) == expected


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("1,234.5", "1234.5", None),
        ("1.234,5", None, "1234.5"),
        ("65,77", None, "65.77"),
        ("65.77", "65.77", None),
        ("1\u202f073\u202f741,5", None, "1073741.5"),
        ("1\u00a0234", "1234", "1234"),
        ("1 234 567", "1234567", "1234567"),
        ("1\u2019234.5", "1234.5", None),
        ("1,07,37,41,824", "1073741824", None),
        ("12,34,567.8", "1234567.8", None),
        ("27.595.520", None, "27595520"),
        ("1.234", "1.234", "1234"),
        ("12,345", "12345", "12.345"),
        # Groups do not begin with 0, and 1234 is no group.
        ("0,123", None, "0.123"),
        ("1234.567", "1234.567", None),
        ("-1,5e-2", None, "-1.5e-2"),
        ("12,5 (3; 4)", None, "12.5"),
        ("1,234 567", None, None),
        ("1 23", None, None),
        ("1,2,3", None, None),
        ("535.104.05", None, None),
        ("", None, None),
    ],
)
def test_numbers_of_several_languages(text: str, point: str | None, comma: str | None) -> None:
    assert (digits(text, "."), digits(text, ",")) == (point, comma)


def long(*values: tuple[str, str, str]) -> str:
    """Long CSV of one launch: metric, unit and value of each row."""
    launch = LAUNCH.format(id=0, pid=5, kernel="k")
    return "\n".join([LONG, *(f'{launch},"s","{m}","{u}","{v}"' for m, u, v in values)]) + "\n"


TIME, BYTES, SHARE = ("gpu__time_duration.sum", "dram__bytes.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # German: the share alone can be read in one way; it stands behind, and decides.
        ([(TIME, "ns", "117.344"), (BYTES, "byte", "13.797"), (SHARE, "%", "65,77")], [117344, 13797, 65.77]),
        ([(TIME, "us", "117,34"), (TIME, "ms", "1,235"), (BYTES, "Mbyte", "1.024,50")], [117340, 1235000, 1024.5e6]),
        # French, Swiss, Indian.
        ([(TIME, "ns", "117\u202f344"), (SHARE, "%", "65,77"), (TIME, "us", "1,235")], [117344, 65.77, 1235]),
        ([(BYTES, "byte", "13\u2019797"), (SHARE, "%", "65.77"), (TIME, "us", "1.235")], [13797, 65.77, 1235]),
        ([(BYTES, "byte", "1,07,37,41,824"), (TIME, "us", "1.235")], [1073741824, 1235]),
        # Nothing but counts, which are whole.
        ([(TIME, "ns", "117,344"), (BYTES, "byte", "27,595"), (TIME, "us", "1.235")], [117344, 27595, 1235]),
        ([(BYTES, "byte", "27.595"), (TIME, "us", "1,235")], [27595, 1235]),
        ([("launch__grid_size", "", "4,096"), (TIME, "us", "1.235")], [4096, 1235]),
        # What has no unit is read as the others are.
        ([("device__attribute_l2_cache_size", "", "62.914.560"), (TIME, "us", "1,5")], [62914560, 1500]),
        # A text is no number, whatever it looks like.
        ([("numa__cpu_affinity", "", "0,1"), (TIME, "us", "1.5"), (BYTES, "byte", "27,595")], [None, 1500, 27595]),
    ],
)
def test_one_decimal_mark_for_the_file(
    tmp_path: Path, values: list[tuple[str, str, str]], expected: list[float | None]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(long(*values), encoding="utf-8")
    found, report = rows(path)
    assert [r["value"] for r in found] == expected and not report.warnings and report.lost == 0


def _grouped(digits: str, mark: str, indian: bool = False) -> str:
    head, tail = digits[:-3], digits[-3:]
    groups = [tail]
    while head:
        size = 2 if indian else 3
        head, groups = head[:-size], [head[-size:], *groups]
    return mark.join(groups)


@pytest.mark.parametrize(
    ("group", "decimal"), [(".", ","), ("\u202f", ","), ("\u00a0", ","), ("\u2019", "."), ("indian", ".")]
)
def test_a_real_file_in_another_language_has_the_same_values(tmp_path: Path, group: str, decimal: str) -> None:
    source = SAMPLES / "matmuls" / "ncu" / "rank-0.ncu.csv"

    def printed(match: re.Match[str]) -> str:
        whole, _, fraction = match.group(1).replace(",", "").partition(".")
        grouped = _grouped(whole, "," if group == "indian" else group, group == "indian")
        return f'"{grouped}{decimal}{fraction}"' if fraction else f'"{grouped}"'

    names = len(LAUNCH.split('","'))
    lines = source.read_text().splitlines()
    for at, line in enumerate(lines):
        if re.match(r'"\d+","\d+",', line):
            cells = line.split('","')
            values = '","'.join(cells[names:])
            lines[at] = '","'.join(cells[:names]) + re.sub(r'"(\d[\d,]*(?:\.\d+)?)"', printed, f'","{values}')
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert path.read_text("utf-8") != source.read_text()
    assert rows(path) == rows(source)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        # 117.344 or 117,344 us?
        ([(TIME, "us", "117.344")], "whether '117.344' (gpu__time_duration.sum of launch 0) has a decimal mark"),
        ([(BYTES, "byte", "1.235"), (BYTES, "byte", "1,235")], "no number in it shows whether '1.235'"),
        (
            [(SHARE, "%", "65,77"), (TIME, "us", "1,234.5")],
            "has numbers with both decimal marks, a comma in '65,77'",
        ),
        (
            [(TIME, "us", "1.5"), (TIME, "us", "1,5")],
            "the other one in '1,5' (gpu__time_duration.sum of launch 0)",
        ),
    ],
)
def test_ambiguous_numbers_are_rejected(tmp_path: Path, values: list[tuple[str, str, str]], sentence: str) -> None:
    with pytest.raises(InputError) as e:
        rows(write(tmp_path / "a.csv", long(*values)))
    assert sentence in str(e.value) and str(tmp_path / "a.csv") in str(e.value)


def test_rules_are_read_in_the_language_of_the_file(tmp_path: Path) -> None:
    header = LONG + ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'
    launch = LAUNCH.format(id=0, pid=5, kernel="k")
    text = f'{header}\n{launch},"s","","","","Bound","OPT","x","global","1,235"\n{launch},"s","a__b.sum","%","6,5",\n'
    found, _ = rows(write(tmp_path / "a.csv", text))
    assert [(r["metric"], r["unit"], r["value"]) for r in found] == [("rule:Bound", "%", 1.235), ("a__b.sum", "%", 6.5)]


def test_value_that_is_not_a_number_is_counted_as_lost(tmp_path: Path) -> None:
    values = [(TIME, "us", "1.5"), (BYTES, "byte", "2\ufffd3"), (SHARE, "", "x"), ("launch__policy", "", "Spread")]
    found, report = rows(write(tmp_path / "a.csv", long(*values)))
    assert [(r["value"], r["text"]) for r in found] == [(1500, None), (None, "2\ufffd3"), (None, "x"), (None, "Spread")]
    assert report.lost == 2
    assert report.warnings == ["a.csv: 2 values are not numbers, the first is '2\ufffd3' (dram__bytes.sum of launch 0)"]


def test_values_are_scaled_exactly() -> None:
    # 136.864 us as floats is 136863.99999999999 ns.
    assert parse_value("136.864000", scale("us").factor) == (136864.0, None)


def test_wide(tmp_path: Path) -> None:
    metrics = {"gpu__time_duration.sum": ("us", "1.5"), "dram__bytes_read.sum": ("Mbyte", "(!) n/a"), "a__b": ("", "x")}
    path = write(tmp_path / "a.csv", wide([('void f<int, ""q"">(int)', metrics)]))
    found, report = rows(path)
    common = {
        "launch_id": 0, "pid": 5, "kernel": 'void f<int, "q">(int)', "device": 0, "stream": 7, "grid": "(16, 2, 1)",
        "block": "(128, 1, 1)", "section": None,
    }  # fmt: skip
    assert found == [
        common | {"metric": "gpu__time_duration.sum", "unit": "ns", "value": 1500.0, "text": None},
        common | {"metric": "dram__bytes_read.sum", "unit": "byte", "value": None, "text": None},
        common | {"metric": "a__b", "unit": None, "value": None, "text": "x"},
    ]
    assert report.info == {"compute_capability": "9.0"} and not report.warnings


def test_a_log_of_several_documents_and_processes(tmp_path: Path) -> None:
    """Program output and ==PROF== lines around them; the launches of both processes are called 0."""
    line = LAUNCH + ',"Command line profiler metrics","smsp__inst_executed.sum","inst","{value}"\n'
    text = (
        'it says "hello\n==PROF== Connected to process 5 (/usr/bin/python)\n'
        + LONG + "\n"
        + line.format(id=0, pid=5, kernel="k", value="1,000")
        + line.format(id=0, pid=6, kernel="k", value="2,000")
        + line.format(id=1, pid=5, kernel="k", value="3,000")
        + "==PROF== Disconnected\ndone, with 5\n"
        + wide([("late", {"smsp__inst_executed.sum": ("Kinst", "4")})])
    )  # fmt: skip
    found, _ = rows(write(tmp_path / "log", text))
    assert [(r["launch_id"], r["pid"], r["kernel"], r["value"]) for r in found] == [
        (0, 5, "k", 1000), (1, 6, "k", 2000), (2, 5, "k", 3000), (3, 5, "late", 4000),
    ]  # fmt: skip


def test_the_details_page_with_rules_and_the_columns_of_2020(tmp_path: Path) -> None:
    details = (
        LONG + ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'
        + LAUNCH.format(id=0, pid=5, kernel="k") + ',"Speed Of Light","Duration","ns","49,504",\n'
        + LAUNCH.format(id=0, pid=5, kernel="k")
        + ',"SpeedOfLight","","","","Bottleneck","OPT","Two lines,\nof ""text""","global","12.5"\n'
    )  # fmt: skip
    old = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","Section Name",'
        '"Metric Name","Metric Unit","Metric Value"\n'
        '"0","9","cfd","127.0.0.1","step(int)","2020-May-29 12:02:46","1","7","Speed",'
        '"SM Frequency","cycle/nsecond","1.53"\n'
    )
    found, _ = rows(write(tmp_path / "log", details + "\n" + old))
    said = [(r["launch_id"], r["section"], r["metric"], r["unit"], r["value"], r["text"]) for r in found]
    assert said == [
        (0, "Speed Of Light", "Duration", "ns", 49504.0, None),
        (0, "SpeedOfLight", "rule:Bottleneck", "%", 12.5, 'OPT: Two lines,\nof "text"'),
        (1, "Speed", "SM Frequency", "hz", 1.53e9, None),
    ]


TEXT = """\
==PROF== Connected to process 1080 (/usr/bin/python3.12)
==PROF== Profiling "k" - 0 (1/2): 0%....50%....100% - 1 pass
[1080] python3.12@127.0.0.1
  void ns::k<int, 2>(T1 *, const T2 *) (16, 1, 8)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Warning: Data collection happened without fixed GPU frequencies. Profiling results may be inconsistent.
    Section: Command line profiler metrics
    --------------------------------------------------- ----------- ------------
    Metric Name                                         Metric Unit Metric Value
    --------------------------------------------------- ----------- ------------
    smsp__sass_thread_inst_executed_op_fadd_pred_on.sum        inst    4,194,304
    l2__nothing.sum                                                      (!) n/a
    --------------------------------------------------- ----------- ------------

  sgemm (8, 8, 4)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: Command line profiler metrics
    --------------------------------------------------- ----------- ------------
    Metric Name                                         Metric Unit Metric Value
    --------------------------------------------------- ----------- ------------
    smsp__sass_thread_inst_executed_op_fadd_pred_on.sum        inst           16
    --------------------------------------------------- ----------- ------------
"""


def test_text_of_a_list_of_metrics(tmp_path: Path) -> None:
    path = write(tmp_path / "profile.log", TEXT)
    found, report = rows(path)
    assert [(r["launch_id"], r["kernel"], r["grid"], r["unit"], r["value"]) for r in found] == [
        (0, "void ns::k<int, 2>(T1 *, const T2 *)", "(16, 1, 8)", "inst", 4194304.0),
        (0, "void ns::k<int, 2>(T1 *, const T2 *)", "(16, 1, 8)", None, None),
        (1, "sgemm", "(8, 8, 4)", "inst", 16.0),
    ]
    assert found[0]["pid"] == 1080 and report.info == {"compute_capability": "9.0"}
    # Nothing but additions was counted: the rest is unknown, not 0.
    (row,) = ask(path, "flops", params={"group": "all", "images": 2})
    assert (row["fadd_only_flops"], row["fadd_only_per_image"]) == (4194320, 2097160.0)
    assert row["fp32_flops"] is row["tensor_flops"] is row["total_flops"] is row["dram_bytes"] is None


def test_flops_of_a_launch(tmp_path: Path) -> None:
    """One launch: fp32 1 + 2 + 2*4 = 11, fp64 10 + 20 + 2*40 = 110, fp16 2*100 + 2*200 + 4*400 = 2200, tensor 10000."""
    values = counts(
        fadd="1", fmul="2", ffma="4", dadd="10", dmul="20", dfma="40", hadd="100", hmul="200", hfma="400",
        sm__ops_path_tensor_src_tf32_dst_fp32___sum="10,000",
    )  # fmt: skip
    path = write(tmp_path / "a.ncu.csv", wide([("k", values), ("k", values)]))
    (row,) = ask(path, "flops", params={"images": 10})
    assert row == {
        "kernel": "k", "launches": 2, "dur_ns": 20000, "fp16_flops": 4400, "fp32_flops": 22, "fp64_flops": 220,
        "tensor_flops": 20000, "total_flops": 24642, "fadd_only_flops": 2, "dram_bytes": 2048000,
        "flops_per_image": 2464.2, "fadd_only_per_image": 0.2,
    }  # fmt: skip
    (row,) = ask(path, "arithmetic-intensity")
    assert row["flops_per_byte"] == 24642 / 2048000 and row["l2_bytes"] is None and row["l2_flops_per_byte"] is None
    assert ask(path, "flops", params={"group": "family"})[0]["kernel"] == "other"
    assert [r["kernel"] for r in ask(path, "flops", params={"group": "launch"})] == ["0 k", "1 k"]


def test_a_launch_without_a_counter_makes_the_sum_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ncu.csv", wide([("k", counts(ffma="4")), ("k", counts(ffma="n/a"))]))
    (row,) = ask(path, "flops")
    assert row["fp32_flops"] is None and row["total_flops"] is None and row["fp16_flops"] == 0


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        # The outermost counters alone; integers are no FLOPs, and the same work by instruction counts once.
        ({"src_fp16": 100, "src_fp16_dst_fp32": 60, "src_fp16_dst_fp32_sparsity_on": 1, "src_bf16_dst_fp32": 7}, 107),
        ({"src_fp8_sparsity_on": 2, "src_fp8_sparsity_off": 3, "src_int8": 50}, 5),
        ({"src_fp16": 10, "op_hmma_src_fp16": 4, "op_hgmma_src_fp16": 6}, 10),
        ({"op_hmma_src_fp16": 4, "op_hmma_src_fp16_dst_fp32": 4, "op_hgmma_src_fp16": 6}, 10),
        ({"src_int8": 50}, None),
    ],
)
def test_tensor_counters_count_once(tmp_path: Path, tensor: dict[str, int], expected: int | None) -> None:
    values = {k: v for k, v in counts().items() if "tensor" not in k}
    values |= {f"sm__ops_path_tensor_{name}.sum": ("", str(n)) for name, n in tensor.items()}
    (row,) = ask(write(tmp_path / "a.ncu.csv", wide([("k", values)])), "flops")
    assert row["tensor_flops"] == expected


@pytest.mark.parametrize(
    ("capability", "kernel", "expected"),
    [
        # 10 instructions; of 2 * 8 * 8 * 4 (a quarter of a warp's), 2 * 16 * 8 * 8 and 2 * 16 * 8 * 16 operations.
        ("7.0", "volta_fp16_s884gemm_fp16_128x128", 5120),
        ("7.0", "mine", 5120),
        ("7.5", "turing_fp16_s1688gemm", 20480),
        ("8.0", "ampere_fp16_s16816gemm", 40960),
        ("8.0", "cutlass_80_tensorop_s1688gemm_tf32", 20480),
        ("6.1", "maxwell_sgemm", 0),
        ("9.0", "sm90_xmma", None),
    ],
)
def test_tensor_instructions_of_older_chips(tmp_path: Path, capability: str, kernel: str, expected: int | None) -> None:
    values = {k: v for k, v in counts().items() if "tensor" not in k}
    values["sm__inst_executed_pipe_tensor_op_hmma.sum"] = ("inst", "12")
    # HFMA2 on the tensor pipe is no tensor core operation.
    values["sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"] = ("inst", "2")
    text = wide([(kernel, values)]).replace('"9.0"', f'"{capability}"')
    assert ask(write(tmp_path / "a.ncu.csv", text), "flops")[0]["tensor_flops"] == expected


NERSC = {
    "dram__bytes.sum": ("byte", "1000"),
    "lts__t_bytes.sum": ("byte", "2000"),
    "l1tex__t_bytes.sum": ("byte", "4000"),
    "sm__cycles_elapsed.avg": ("cycle", "3000.00"),
    "sm__cycles_elapsed.avg.per_second": ("cycle/second", "1500000000.00"),
    "sm__inst_executed_pipe_tensor.sum": ("inst", "0"),
    **{f"sm__sass_thread_inst_executed_op_{p}{op}_pred_on.sum": ("inst", str(n)) for p in "dhf"
       for op, n in (("add", 100 * (p == "f")), ("mul", 200 * (p == "f")), ("fma", 350 * (p == "f")))},
}  # fmt: skip
"""NERSC's metrics of a roofline, as ncu of 2020 prints them: no duration, no chip."""


def nersc(tmp_path: Path, **changes: tuple[str, str]) -> Path:
    columns = "ID,Process ID,Process Name,Host Name,Kernel Name,Kernel Time,Context,Stream,Section Name,Metric Name"
    lines = [",".join(f'"{c}"' for c in (*columns.split(","), "Metric Unit", "Metric Value"))]
    for metric, (unit, value) in (NERSC | {k.replace("___", "."): v for k, v in changes.items()}).items():
        lines.append(f'"0","7","app","h","k","2020-Oct-25 20:27:10","1","7","s","{metric}","{unit}","{value}"')
    return write(tmp_path / "nersc.csv", "\n".join(lines) + "\n")


def test_the_metrics_of_nersc_give_intensity_and_roofline(tmp_path: Path) -> None:
    """100 + 200 + 2*350 = 1000 FLOP; 3000 cycles at 1.5 GHz are 2000 ns."""
    path = nersc(tmp_path)
    (row,) = ask(path, "arithmetic-intensity")
    assert (row["dur_ns"], row["total_flops"], row["tensor_flops"]) == (2000, 1000, 0)
    assert (row["flops_per_byte"], row["l2_flops_per_byte"], row["l1_flops_per_byte"]) == (1, 0.5, 0.25)
    points = {r["level"]: r for r in ask(path, "roofline")}
    assert {level: r["flops_per_byte"] for level, r in points.items()} == {"dram": 1, "l2": 0.5, "l1": 0.25}
    assert all(r["flops_per_s"] == 5e8 and r["attainable_flops_per_s"] is None for r in points.values())


def test_tensor_instructions_of_an_unknown_chip_have_no_known_size(tmp_path: Path) -> None:
    (row,) = ask(nersc(tmp_path, sm__inst_executed_pipe_tensor___sum=("inst", "8")), "flops")
    assert row["tensor_flops"] is None and row["total_flops"] is None


def test_no_hmma_on_hopper_does_not_mean_no_tensor_operations(tmp_path: Path) -> None:
    values = {k: v for k, v in counts().items() if "tensor" not in k}
    values["sm__inst_executed_pipe_tensor_op_hmma.sum"] = ("inst", "0")
    (row,) = ask(write(tmp_path / "a.ncu.csv", wide([("k", values)])), "flops")
    assert row["tensor_flops"] is None


@pytest.mark.parametrize("rate", ["0", "n/a"])
def test_no_duration_without_a_rate(tmp_path: Path, rate: str) -> None:
    path = nersc(tmp_path, sm__cycles_elapsed___avg___per_second=("cycle/second", rate))
    assert ask(path, "flops")[0]["dur_ns"] is None


def test_rates_of_the_full_set(tmp_path: Path) -> None:
    """2 a cycle at 1.5 GHz for 10 us is 30,000; 3 GB/s for 10 us is 30,000 bytes."""
    values = {k.replace("_on.sum", "_on.sum.per_cycle_elapsed"): ("inst/cycle", "2") for k in counts() if "sass" in k}
    values |= {
        "smsp__cycles_elapsed.avg.per_second": ("Ghz", "1.5"),
        "gpu__time_duration.sum": ("us", "10"),
        "dram__bytes.sum.per_second": ("Gbyte/s", "3"),
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum.per_second": ("", "100,000,000"),
        "lts__t_sectors.sum": ("sector", "4"),
    }
    path = write(tmp_path / "a.ncu.csv", wide([("k", values)]))
    (row,) = ask(path, "arithmetic-intensity")
    assert row["fp32_flops"] == 4 * 30000 and row["fp16_flops"] == 8 * 30000 and row["fadd_only_flops"] == 30000
    assert row["dram_bytes"] == 30000 and row["tensor_flops"] == 1000 and row["l2_bytes"] == 128


def test_metrics(tmp_path: Path) -> None:
    launches = [("k", {"a__b.sum": ("Kbyte", v), "c__d": ("", "on")}) for v in ("1", "3", "n/a")]
    path = write(tmp_path / "a.ncu.csv", wide(launches))
    (row,) = ask(path, "metrics", params={"metric": "^a__"})
    assert row == {
        "kernel": "k", "metric": "a__b.sum", "section": None, "unit": "byte", "launches": 2, "min": 1000.0,
        "avg": 2000.0, "max": 3000.0, "sum": 4000.0, "text": None,
    }  # fmt: skip
    (row,) = ask(path, "metrics", params={"metric": "^c__", "kernel": "^k$"})
    assert (row["text"], row["launches"], row["avg"]) == ("on", 3, None)
    assert ask(path, "metrics", params={"metric": "^a__", "kernel": "^no"}) == []


def test_profiled_launches_are_in_no_time_share(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ncu.csv", wide([("k", counts())]))
    assert ask(path, "kernel-share") == [] and sql(path, "SELECT * FROM kernels") == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "unknown format"),
        ("a,b\n1,2\n", "unknown format"),
        (HEADER[:60], "not output of ncu"),
        (LONG + "\n", "has no complete launch"),
        (LONG + "\n" + LAUNCH.format(id=0, pid=5, kernel="k")[:40], "has no complete launch"),
        # A header of a version to come, without what a launch is called by.
        ('"ID","Process ID","Function","Metric Name"\n"0","5","k","m"\n', "not output of ncu"),
        (
            "==PROF== Connected to process 5\n==ERROR== ERR_NVGPUCTRPERM - no permission\n",
            "ERR_NVGPUCTRPERM - no permission",
        ),
        ("==PROF== Connected to process 5\n==WARNING== No kernels were profiled.\n", "no kernels were profiled"),
        ("==PROF== Connected to process 5\n", "not output of ncu"),
    ],
)
def test_file_without_ncu_data_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    good = write(tmp_path / "good.ncu.csv", wide([("k", counts())]))
    store = tmp_path / "store"
    assert run_cli("ingest", good, "-s", store).returncode == 0
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    path = write(tmp_path / "bad.csv", text)
    result = run_cli("ingest", path, "-s", store)
    assert result.returncode == 2 and sentence in result.stderr and str(path) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("form", ["wide", "long"])
def test_truncated_file_keeps_whole_rows(tmp_path: Path, form: str) -> None:
    line = LAUNCH + ',"s","m.sum","inst","1,000"\n'
    text = {
        "wide": wide([("k", counts()), ("k", counts())]),
        "long": LONG + "\n" + line.format(id=0, pid=5, kernel="k") + line.format(id=1, pid=5, kernel="k"),
    }[form]
    found, report = rows(write(tmp_path / "a.csv", text[:-4]))
    assert {r["launch_id"] for r in found} == {0}
    assert report.warnings == [f"a.csv: line {4 if form == 'wide' else 3} is left out: incomplete"] and report.lost == 1


def test_summary_is_rejected_by_name(tmp_path: Path) -> None:
    summary = (
        '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC","Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
        '"5","app","h","k","(256, 1, 1)","(4096, 1, 1)","0","9.0","14","s","Duration","us","100.00","120.00","110.00"\n'
    )
    text = (
        "[5] app@127.0.0.1\n  k (256, 1, 1)x(4096, 1, 1), Device 0, CC 9.0, Invocations 14\n    Section: s\n"
        "    ----------- ----------- ------- ------- -------\n"
        "    Metric Name Metric Unit Minimum Maximum Average\n"
        "    ----------- ----------- ------- ------- -------\n"
        "    Duration             us  100.00  120.00  110.00\n"
    )
    for printed in (summary, "==PROF== Connected to process 5\n" + summary, text):
        with pytest.raises(InputError, match=r"has a summary of launches .--print-summary., which is not read"):
            analyze.open(write(tmp_path / "a.csv", printed)).query("metrics").arrow()
    # Beside launches, its rows are lost.
    found, report = rows(write(tmp_path / "b.csv", long((TIME, "us", "1.5")) + summary + long((TIME, "us", "2.5"))))
    assert [(r["launch_id"], r["value"]) for r in found] == [(0, 1500), (1, 2500)] and report.lost == 1
    assert report.warnings == ["b.csv: line 4 is left out: rows of --print-summary are not read"]


def test_an_unquoted_last_row_is_read(tmp_path: Path) -> None:
    header = LONG.replace('"', "")
    row = "{id},5,python,h,k,1,7,16,16,0,9.0,s,m.sum,inst,{value}"
    bare = [header, row.format(id=0, value=10), row.format(id=1, value=200)]
    found, report = rows(write(tmp_path / "a.csv", "\n".join(bare)))
    assert [(r["launch_id"], r["value"]) for r in found] == [(0, 10), (1, 200)] and report.lost == 0
    assert report.warnings == ["a.csv: the last line has no line end; its last value may be truncated"]
    # Behind its last comma, the value is not there.
    found, report = rows(write(tmp_path / "b.csv", "\n".join(bare)[:-3]))
    assert [r["launch_id"] for r in found] == [0] and report.lost == 1
    # A row without quotes in a table with quotes.
    lines = [LONG, LAUNCH.format(id=0, pid=5, kernel="k") + LONG_ROW, row.format(id=1, value=200)]
    found, report = rows(write(tmp_path / "c.csv", "\n".join(lines) + "\n"))
    assert [(r["launch_id"], r["value"]) for r in found] == [(0, 1000), (1, 200)] and not report.warnings


TWO_METRICS = {"gpu__time_duration.sum": ("us", "1.5"), "a__b.sum": ("inst", "1,000")}
LONG_ROW = ',"s","m.sum","inst","1,000"'
FOREIGN = [
    "", "   ", "==WARNING== Note: Running with unmodified GPU clocks.", "==PROF== Disconnected from process 5",
    "epoch 1, loss 2, done", 'it says "hello"', '["a", "b", "c"]',
]  # fmt: skip


def _table(form: str) -> list[str]:
    """Lines of a table of four launches."""
    if form == "wide":
        return wide([("k", TWO_METRICS)] * 4).splitlines()
    return [LONG, *(LAUNCH.format(id=i, pid=5, kernel="k") + LONG_ROW for i in range(4))]


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
def test_other_output_does_not_end_a_table(tmp_path: Path, form: str, foreign: str, end: str) -> None:
    lines = _table(form)
    lines[-2:-2] = [foreign, foreign]
    path = tmp_path / "a.csv"
    path.write_bytes((end.join(lines) + end).encode())
    found, report = rows(path)
    assert {r["launch_id"] for r in found} == {0, 1, 2, 3} and not report.warnings and report.lost == 0


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"python","', '"python,"'),  # a quote is gone: what follows is inside out
        ('"python",', '"python"'),  # a field less
        ('"python",', '"python","x",'),  # a field more
        ('"python"', '"' + "x" * 200_000 + '"'),  # beyond what csv takes
        ('"2","5"', '"","5"'),
        ('"2","5"', '"²","5"'),
        ('"2","5"', '"99999999999999999999","5"'),
        ('"2","5"', '"2","9999999999999999999"'),
        ('"7","(128', '"7.5","(128'),
        ('"0","9.0"', '"4294967296","9.0"'),
        ('"2","5"', "2,5"),
    ],
)
def test_unreadable_row_is_counted_and_loses_no_other(tmp_path: Path, form: str, old: str, new: str) -> None:
    lines = _table(form)
    at = next(i for i, line in enumerate(lines) if line.startswith('"2","5"'))
    assert old in lines[at]
    lines[at] = lines[at].replace(old, new)
    found, report = rows(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert {r["launch_id"] for r in found} == {0, 1, 2} and report.lost == 1
    (warning,) = report.warnings
    assert warning.startswith(f"a.csv: line {at + 1} is left out: ")


def test_each_problem_is_reported_once(tmp_path: Path) -> None:
    lines = [line.replace('"python",', '"python"') if line[1] in "13" else line for line in _table("long")]
    _, report = rows(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert report.warnings == ["a.csv: 2 lines, the first of them 3, are left out: incomplete"] and report.lost == 2


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        # Without units, 1.5 us is not 1.5 of anything.
        (lambda wide: wide[:1] + wide[2:], "no line of units, or a damaged one"),
        (lambda wide: [wide[0], wide[1] + ',"x"', *wide[2:]], "no line of units, or a damaged one"),
        # The rows of the second table must not be read as rows of the first.
        (lambda wide: wide[1:], "it has no header"),
        (lambda wide: [wide[0].replace('"ID"', '"IE"'), *wide[1:]], "it has no header"),
        (lambda wide: [wide[0].replace("Kernel Name", "Kernel"), *wide[1:]], "it has no header"),
    ],
)
def test_rows_without_a_header_are_counted_as_lost(tmp_path: Path, damage: Any, why: str) -> None:
    second = wide([("late", {"a__b.sum": ("inst", "1"), "gpu__time_duration.sum": ("ms", "9")})] * 2).splitlines()
    lines = [*_table("wide"), "==PROF== Connected to process 6", *damage(second)]
    found, report = rows(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert {r["kernel"] for r in found} == {"k"} and len(found) == 8
    assert report.lost == 2 and why in report.warnings[-1]


def test_row_after_an_unterminated_line_is_read(tmp_path: Path) -> None:
    lines = _table("wide")
    lines[0], lines[4] = "step 3 of 9 " + lines[0], "done" + lines[4]
    found, report = rows(write(tmp_path / "a.csv", "\n".join(lines) + "\n"))
    assert {r["launch_id"] for r in found} == {0, 1, 2, 3} and report.lost == 0


def test_a_launch_that_is_printed_twice_counts_once(tmp_path: Path) -> None:
    lines = _table("wide")
    found, report = rows(write(tmp_path / "a.csv", "\n".join([*lines, lines[-1]]) + "\n"))
    assert len(found) == 8 and report.lost == 1 and "its launch already has a row" in report.warnings[0]


@pytest.mark.parametrize(
    ("old", "new", "kept", "lost"),
    [
        # A line between two rows, one without the header's dashes, and none of these a row.
        ("    l2__nothing", "loss 0.5\n\n==PROF== x\n    l2__nothing", 3, 0),
        # A letter more moves the unit into the name's gap.
        ("add_pred_on.sum        inst    4,194,304", "add_pred_on.summ        inst    4,194,304", 2, 1),
        # A damaged heading: the metrics below it are of no launch, least of all of the one above.
        ("  sgemm (8, 8, 4)x(128, 1, 1), Context 1", "  sgemm (8, 8, 4)x(128, 1, 1), Contxt 1", 2, 1),
        ("  sgemm (8, 8, 4)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n", "", 2, 1),
        ("Device 0, CC 9.0\n    Warning", "Device 9999999999, CC 9.0\n    Warning", 1, 2),
    ],
)
def test_incomplete_text_is_a_warning(tmp_path: Path, old: str, new: str, kept: int, lost: int) -> None:
    assert old in TEXT
    found, report = rows(write(tmp_path / "a.log", TEXT.replace(old, new, 1)))
    assert (len(found), report.lost) == (kept, lost)
    assert all(r["kernel"] != "sgemm" or r["value"] == 16 for r in found)


@pytest.mark.parametrize("filler", [" ", "x", "(", ", Context 1", "@", "-", "9,"])
def test_line_of_a_million_characters(tmp_path: Path, filler: str) -> None:
    """In place of a name, a heading, a row and a line of output: found wherever it may stand, and in no time."""
    million = filler * (1_000_000 // len(filler))
    for old in ("sgemm", "(8, 8, 4)", "l2__nothing", "\n\n", "Section: ", "[1080]"):
        found, report = rows(write(tmp_path / "a.log", TEXT.replace(old, f"{old}{million} ", 1)))
        assert len(found) + report.lost >= 2


def test_text_cut_inside_a_number(tmp_path: Path) -> None:
    found, report = rows(write(tmp_path / "a.log", TEXT[: TEXT.index("4,194,304") + 5]))
    # 4,194 is a number, too.
    assert not found and report.lost == 1


def test_report_file_needs_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.ncu-rep", "NVR binary")
    result = run_cli("query", "flops", path, TRACEQUARRY_NCU="/nowhere/ncu")
    assert result.returncode == 2 and "ncu --import x.ncu-rep --csv --page raw > x.ncu.csv" in result.stderr
    tool = write(tmp_path / "fake-ncu", "#!/bin/sh\ncat <<'END'\n" + wide([("k", counts(ffma="8"))]) + "END\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRACEQUARRY_NCU", str(tool))
    assert ask(path, "flops")[0]["fp32_flops"] == 16
    write(tmp_path / "fake-ncu", "#!/bin/sh\necho '==ERROR== Not a report'\nexit 1\n")
    with pytest.raises(InputError, match="ncu could not read it: Not a report"):
        analyze.open(write(tmp_path / "y.ncu-rep", "NVR binar")).query("flops").arrow()


def test_the_csv_next_to_a_report_is_read_instead(tmp_path: Path) -> None:
    write(tmp_path / "rank-0.ncu-rep", "NVR binary")
    write(tmp_path / "rank-0.ncu.csv", wide([("k", counts(ffma="8"))]))
    assert ask(tmp_path, "flops", params={"group": "all"})[0]["launches"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_folder_names_both_and_may_have_lost_the_report(tmp_path: Path, kept: bool) -> None:
    folder = tmp_path / "run"
    shutil.copytree(SAMPLES / "alexnet-roofline", folder)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["passes"][0]["files"].append({"path": "ncu/rank-0.ncu-rep", "kind": "ncu_report", "rank": 0})
    (folder / "run.json").write_text(json.dumps(manifest))
    if kept:
        write(folder / "ncu" / "rank-0.ncu-rep", "NVR binary")
    assert sql(folder, "SELECT warnings FROM runs") == [{"warnings": None}]
    assert ask(folder, "flops", params={"group": "all"})[0]["launches"] == 12


def ncu_runs() -> list[Path]:
    """Run folders with an ncu pass: the samples, and those below $TRACEQUARRY_RECORDINGS."""
    places = [SAMPLES, *filter(None, [os.environ.get("TRACEQUARRY_RECORDINGS")])]
    manifests = [m for place in places for m in sorted(Path(place).rglob("run.json"))]
    return [m.parent for m in manifests if any(p["profiler"] == "ncu" for p in json.loads(m.read_text())["passes"])]


@pytest.mark.parametrize("folder", ncu_runs(), ids=lambda p: p.name)
def test_recordings(folder: Path) -> None:
    """Every launch that ncu's log announces is there, has a time, and all of its FLOPs are known."""
    announced = (folder / "ncu" / "log.txt").read_text().count("==PROF== Profiling ")
    launches = ask(folder, "flops", params={"group": "launch"}, where="profiler = 'ncu'")
    assert len(launches) == announced > 0
    assert all(r["dur_ns"] > 0 and r["total_flops"] is not None and r["dram_bytes"] is not None for r in launches)
    total = ask(folder, "flops", params={"group": "all"}, where="profiler = 'ncu'")[0]
    # Sums of the full set are rates times time: each is rounded to an integer.
    assert total["total_flops"] == pytest.approx(sum(r["total_flops"] for r in launches), abs=len(launches))
    assert sql(folder, "SELECT gpu_name, compute_capability FROM runs WHERE profiler = 'ncu'") == [
        {"gpu_name": "NVIDIA H200", "compute_capability": "9.0"}
    ]


def test_a_matrix_product_is_2mnk() -> None:
    """tests/data/matmuls.py: 1024 x 512 by 512 x 2048, so 2,147,483,648 each; fp32 runs no tensor core."""
    expected = 2 * 1024 * 2048 * 512
    products = [r for r in ask(SAMPLES / "matmuls", "flops", params={"group": "launch"}) if r["total_flops"] > 0]
    in_order = sorted(products, key=lambda r: int(r["kernel"].split()[0]))
    assert [r["tensor_flops"] for r in in_order] == [0, expected, expected, expected]
    assert all(expected <= r["total_flops"] < 1.005 * expected for r in in_order)


@pytest.mark.parametrize(
    ("name", "model_gflop", "executed_gflop", "additions"),
    [
        # Model: 2 * multiply-adds per image, as torch.utils.flop_counter gives them (1.43 and 3.63 GFLOP). Executed and
        # additions: the columns of the raw CSV weighted as docs/flops.md says and summed by a script of its own, / 64.
        ("alexnet", 1.4283, 2.8823, 50176.0),
        ("resnet18", 3.6281, 3.7482, 10053281.0),
    ],
)
def test_forward_passes_per_image(name: str, model_gflop: float, executed_gflop: float, additions: float) -> None:
    folder = SAMPLES / f"{name}-ncu"
    (executed,) = ask(folder, "flops", params={"group": "all"}, where="profiler = 'ncu'")
    assert executed["flops_per_image"] / 1e9 == pytest.approx(executed_gflop, abs=1e-4)
    assert executed["fadd_only_per_image"] == additions
    (useful,) = ask(folder, "useful-flops", params={"group": "all"})
    assert useful["model_flops"] / 64 / 1e9 == pytest.approx(model_gflop, abs=1e-4)
    assert useful["executed_flops"] == executed["total_flops"] and useful["launches"] == executed["launches"]
    assert useful["useful_pct"] == pytest.approx(100 * useful["model_flops"] / executed["total_flops"])


def test_the_first_convolution_of_alexnet_is_padded() -> None:
    calls = {r["call"]: r for r in ask(SAMPLES / "alexnet-ncu", "useful-flops")}
    first = calls["aten::convolution 64x3x224x224, 64x3x11x11"]
    # 2 * 64 images * 64 channels * 3 * 11 * 11 * 55 * 55 outputs; 3 channels are padded to 32.
    assert first["model_flops"] == 2 * 64 * 64 * 3 * 11 * 11 * 55 * 55
    assert first["executed_per_model"] == pytest.approx(32 / 3, rel=0.005)
    assert first["useful_pct"] == pytest.approx(9.35, abs=0.01)
    assert "(unmatched)" not in calls


def test_executed_flops_join_the_trace_of_another_folder(tmp_path: Path) -> None:
    """A bare CSV says nothing of its workload: it joins the trace it is given with, launch by launch."""
    bare = tmp_path / "alexnet.csv"
    bare.write_bytes((SAMPLES / "alexnet-ncu" / "ncu" / "rank-0.ncu.csv").read_bytes())
    trace = SAMPLES / "alexnet-ncu" / "torch" / "rank-0.trace.json.gz"
    both = {r["call"]: r for r in analyze.open(bare, trace).query("useful-flops").dicts()}
    first = both["aten::convolution 64x3x224x224, 64x3x11x11"]
    assert first["executed_per_model"] == pytest.approx(32 / 3, rel=0.005)


def test_a_program_under_ncu_is_paired_with_the_same_program_alone(tmp_path: Path) -> None:
    """A program of the user's own has no settings that could differ from those of other runs."""
    pairs = "SELECT ncu_run::VARCHAR AS ncu, torch_run::VARCHAR AS torch FROM run_pairs"
    assert analyze.open(SAMPLES / "matmuls", SAMPLES / "resnet18-1gpu").sql(pairs).dicts() == []
    # Recorded once more under torch.profiler: the trace of another sample stands for that of the program.
    again = tmp_path / "again"
    shutil.copytree(SAMPLES / "resnet18-1gpu", again)
    manifest = json.loads((again / "run.json").read_text())
    command = ["collect", "run", "--profiler", "torch", "--", "python3", "matmuls.py"]
    (again / "run.json").write_text(json.dumps(manifest | {"run_id": "again", "command": command}))
    found = analyze.open(SAMPLES / "matmuls", SAMPLES / "resnet18-1gpu", again).sql(pairs).dicts()
    assert [(pair["ncu"].endswith("matmuls-063d"), pair["torch"]) for pair in found] == [(True, "again")]


def test_a_run_alone_is_not_compared_with_another_workload() -> None:
    """alexnet-roofline has no torch pass of its own: by run it has no rows, beside alexnet-ncu as alone."""
    paths = [SAMPLES / "alexnet-ncu", SAMPLES / "alexnet-roofline"]
    with analyze.open(*paths) as traces:
        rows = traces.where(profiler="all").query("useful-flops", by=["run_id"]).dicts()
        assert {r["run_id"] for r in rows} == {"20261120-172016-alexnet-b64-g1-tf32-6acb.ncu"}
        # All together, the torch pass of the same settings stands in.
        assert len(traces.where(profiler="all").query("useful-flops").dicts()) > 0
