"""nvprof logs: real ones of the study `nvprof-imagenet`, and every other table of the format by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from commands import run_cli
from support import ROOT, ask, sql

from analyze.sources.interface import FileReport
from analyze.sources.nvprof.reader import read
from tests.nvprof_tables import API_TRACE, BANNER, GPU_TRACE, METRICS, SUMMARY

LOGS = ROOT / "tests" / "data" / "nvprof"


def log(folder: Path, text: str, name: str = "out.123") -> Path:
    path = folder / name
    path.write_text(BANNER + "=> creating model\n" + text)
    return path


def test_summaries(tmp_path: Path) -> None:
    path = log(tmp_path, SUMMARY)
    shares = ask(path, "kernel-share")
    # Kernels 2 + 1 ms, and 1 ms of copies beside them.
    assert [(r["calls"], r["total_ns"], r["avg_ns"], r["min_ns"], r["max_ns"]) for r in shares] == [
        (4, 2_000_000, 500_000.0, 400_000, 600_000), (2, 1_000_000, 500_000.0, 500_000, 500_000),
    ]  # fmt: skip
    assert [(round(r["kernel_time_pct"], 2), r["gpu_time_pct"]) for r in shares] == [(66.67, 50.0), (33.33, 25.0)]
    (winograd,) = ask(path, "winograd-share")
    assert (winograd["winograd_ns"], winograd["kernel_ns"]) == (1_000_000, 3_000_000)
    (nccl,) = ask(path, "nccl-share")
    assert (nccl["collective"], nccl["calls"], nccl["gpu_time_pct"]) == ("broadcast", 4, 50.0)
    assert [(r["name"], r["total_ns"], r["api_time_pct"]) for r in ask(path, "cuda-api")] == [
        ("cudaMalloc", 3_000_000, 75.0), ("cuDeviceTotalMem", 1_000_000, 25.0),
    ]  # fmt: skip
    (run,) = sql(path, "SELECT profiler, model, batch_size, warnings FROM runs")
    assert (run["profiler"], run["model"], run["batch_size"]) == ("nvprof", "vgg16", 32)
    assert run["warnings"].splitlines() == [
        "out.123: line 11 is left out: rows of this kind are not read: OpenACC (excl)",
    ]


PLAIN = """\
==7== Profiling application: ./vecadd
==7== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   50.00%  2.0000ms         4  500.00us  400.00us  600.00us  vecadd(float*, float*, int)
                   30.00%  1.2000ms         2  600.00us  600.00us  600.00us  [CUDA memcpy HtoD]
                   20.00%  800.00us         1  800.00us  800.00us  800.00us  [CUDA memcpy DtoH]
      API calls:   90.00%  1.50000s         3  500.00ms     913ns  1.32762s  cudaMalloc
 OpenACC (excl):  100.00%  10.000us         1  10.000us  10.000us  10.000us  acc_enter_data
"""
PLAIN_2016 = """\
==7== Profiling result:
Time(%)      Time     Calls       Avg       Min       Max  Name
100.00%  93.471us         1  93.471us  93.471us  93.471us  add(int, float*, float*)

==7== API calls:
Time(%)      Time     Calls       Avg       Min       Max  Name
 97.93%  2.0000ms         2  1.0000ms  1.0000ms  1.0000ms  cudaMalloc
"""


def test_a_summary_without_csv(tmp_path: Path) -> None:
    path = log(tmp_path, PLAIN)
    statement = "SELECT name, calls, total_ns, avg_ns, min_ns, max_ns, share_pct FROM {} ORDER BY total_ns DESC"
    assert [tuple(r.values()) for r in sql(path, statement.format("gpu_summary"))] == [
        ("vecadd(float*, float*, int)", 4, 2_000_000, 500_000, 400_000, 600_000, 50.0),
        ("[CUDA memcpy HtoD]", 2, 1_200_000, 600_000, 600_000, 600_000, 30.0),
        ("[CUDA memcpy DtoH]", 1, 800_000, 800_000, 800_000, 800_000, 20.0),
    ]
    assert [tuple(r.values()) for r in sql(path, statement.format("api_summary"))] == [
        ("cudaMalloc", 3, 1_500_000_000, 500_000_000, 913, 1_327_620_000, 90.0)
    ]
    copied = [(r["kind"], r["calls"], r["total_ns"], r["avg_ns"], r["bytes"]) for r in ask(path, "memcpy")]
    assert copied == [("HtoD", 2, 1_200_000, 600_000, None), ("DtoH", 1, 800_000, 800_000, None)]
    (run,) = sql(path, "SELECT warnings FROM runs")
    assert run["warnings"] == "out.123: line 10 is left out: rows of this kind are not read: OpenACC (excl)"


def test_a_summary_of_2016_without_csv(tmp_path: Path) -> None:
    path = log(tmp_path, PLAIN_2016 + "done, it took 100% of 3 s\n", "old.log")
    for table, name, total in (("gpu_summary", "add(int, float*, float*)", 93_471), ("api_summary", "cudaMalloc", 2e6)):
        assert sql(path, f"SELECT name, total_ns FROM {table}") == [{"name": name, "total_ns": total}]
    # Without the lines before it, it is found in a folder, too.
    (tmp_path / "old.log").write_text(PLAIN_2016.partition("\n")[2])
    assert sql(tmp_path, "SELECT total_ns FROM gpu_summary") == [{"total_ns": 93_471}]


def test_incomplete_rows_without_csv_are_a_warning(tmp_path: Path) -> None:
    damaged = PLAIN.replace("2  600.00us", "2  600.0?us").rpartition(" OpenACC")[0].rstrip("\n")
    report = FileReport()
    found = [r["name"] for _, _, batch in read(log(tmp_path, damaged), report) for r in batch.to_pylist()]
    # The copy's mean is damaged; the last line has no end, so that its name may be cut.
    assert found == ["vecadd(float*, float*, int)", "[CUDA memcpy DtoH]"] and report.lost == 2


TRACE_WITHOUT_CSV = (
    "==7== Profiling result:\n   Start  Duration            Grid Size      Block Size     Regs*  Name\n"
    "1.00000s  2.0000ms              (1 1 1)       (256 1 1)        16  k(float*) [5]\n"
)
METRICS_WITHOUT_CSV = (
    "==7== Metric result:\nInvocations                Metric Name       Metric Description     Min     Max     Avg\n"
    'Device "TITAN Xp (0)"\n    Kernel: k(float*)\n'
    "          1                  flop_count_sp           FLOPs(Single)       5       5       5\n"
)


@pytest.mark.parametrize("text", [TRACE_WITHOUT_CSV, METRICS_WITHOUT_CSV])
def test_other_tables_without_csv_are_rejected_with_the_reason(tmp_path: Path, text: str) -> None:
    result = run_cli("query", "kernel-share", log(tmp_path, text))
    assert result.returncode == 2 and "record with nvprof --csv" in result.stderr
    # Beside a table that is read, a warning.
    report = FileReport()
    assert [batch.num_rows for _, _, batch in read(log(tmp_path, PLAIN + text), report)] == [3, 1]
    assert "out.123: a table that was printed without --csv is not read" in report.warnings


def test_pages_of_unified_memory(tmp_path: Path) -> None:
    """Their bytes stand in the column Unified Memory, in B; the copy's in Size, in MB of 1,048,576."""
    text = """\
==7== Profiling result:
"Start","Duration","Grid X","Size","Throughput","SrcMemType","DstMemType","Device","Stream","Unified Memory","Name"
s,ms,,MB,GB/s,,,,,B,
1.001,0.1,,1.0,9.7,"Pageable","Device","TITAN Xp (0)","7",,"[CUDA memcpy HtoD]"
1.002,0.05,,,,,,"TITAN Xp (0)",,65536.000000,"[Unified Memory Memcpy HtoD]"
1.003,0.05,,,,,,"TITAN Xp (0)",,131072.000000,"[Unified Memory Memcpy DtoH]"
1.004,0.05,,,,,,"TITAN Xp (0)",,5,"[Unified Memory GPU page faults]"
"""
    path = log(tmp_path, text)
    assert sql(path, "SELECT kind, bytes FROM memcpys ORDER BY start_ns") == [
        {"kind": "HtoD", "bytes": 1_048_576},
        {"kind": "Unified HtoD", "bytes": 65_536},
        {"kind": "Unified DtoH", "bytes": 131_072},
    ]
    (run,) = sql(path, "SELECT warnings FROM runs")
    assert run["warnings"] == (
        "out.123: line 9 is left out: rows of this kind are not read: [Unified Memory GPU page faults]"
    )


@pytest.mark.parametrize(
    "table",
    [
        'Device "TITAN Xp (0)"\n   Count  Avg Size  Min Size  Max Size  Total Size  Total Time  Name\n'
        "     141  116.20KB  4.0000KB  0.9922MB  16.00000MB  1.635900ms  Host To Device\n",
        '"Device","Count","Avg Size","Min Size","Max Size","Total Size","Total Time","Name"\n,,KB,KB,MB,MB,ms,\n'
        '"TITAN Xp (0)",141,116.2,4.0,0.9922,16.0,1.6359,"Host To Device"\n',
    ],
)
def test_a_summary_of_unified_memory_is_named(tmp_path: Path, table: str) -> None:
    report = FileReport()
    text = PLAIN.rpartition(" OpenACC")[0] + "\n==7== Unified Memory profiling result:\n" + table
    assert [batch.num_rows for _, _, batch in read(log(tmp_path, text), report)] == [3, 1]
    assert report.warnings == ["out.123: nvprof's summary of unified memory is not read"]


def test_gpu_trace(tmp_path: Path) -> None:
    path = log(tmp_path, GPU_TRACE)
    # Exact: 1.234567 ms is 1,234,567 ns; 0.5 MB of nvprof is 524,288 bytes, 0.001 MB is 1048.576.
    columns = "device, stream, kind, bytes, start_ns, dur_ns, src_memory, dst_memory, src_device, dst_device"
    assert sql(path, f"SELECT {columns}, correlation_id, pid FROM memcpys ORDER BY start_ns") == [
        {"device": 1, "stream": 7, "kind": "HtoD", "bytes": 524288, "start_ns": 1_234_567, "dur_ns": 1504,
         "src_memory": "Pageable", "dst_memory": "Device", "src_device": None, "dst_device": None,
         "correlation_id": 11, "pid": 7},
        {"device": 0, "stream": 7, "kind": "PtoP", "bytes": 1048576, "start_ns": 4_000_000, "dur_ns": 9000,
         "src_memory": "Device", "dst_memory": "Device", "src_device": 0, "dst_device": 1,
         "correlation_id": 14, "pid": 7},
    ]  # fmt: skip
    columns = "name, start_ns, dur_ns, grid_x, grid_y, block_x, registers, shared_mem_bytes, device"
    assert sql(path, f"SELECT {columns} FROM kernels") == [
        {"name": "void k<int, 2>(float*)", "start_ns": 2_000_001, "dur_ns": 0, "grid_x": 64, "grid_y": 2,
         "block_x": 256, "registers": 32, "shared_mem_bytes": 1040, "device": 1},
    ]  # fmt: skip
    assert sql(path, "SELECT bytes, dur_ns, dst_memory, device FROM memsets") == [
        {"bytes": 1049, "dur_ns": 2000, "dst_memory": "Device", "device": 0}
    ]
    (run,) = sql(path, "SELECT gpu_name, gpus, warnings FROM runs")
    assert (run["gpu_name"], run["gpus"]) == ("Tesla K80", 2)
    assert "Unified Memory GPU page faults" in run["warnings"]


def test_api_trace(tmp_path: Path) -> None:
    assert sql(log(tmp_path, API_TRACE), "SELECT api, name, start_ns, dur_ns, correlation_id FROM cuda_calls") == [
        {"api": "driver", "name": "cuDeviceGetPCIBusId", "start_ns": 1000, "dur_ns": 2866, "correlation_id": 1},
        {"api": "runtime", "name": "cudaLaunchKernel", "start_ns": 1_500_000_000, "dur_ns": 952, "correlation_id": 2},
    ]


def test_metrics_of_nvprof(tmp_path: Path) -> None:
    path = log(tmp_path, METRICS)
    found = {r["metric"]: r for r in ask(path, "metrics", params={"metric": "."})}
    values = {m: (r["unit"], r["launches"], r["min"], r["avg"], r["max"]) for m, r in found.items()}
    assert values["sm_efficiency"] == ("%", 10, 90.0, 95.3, 99.5)
    assert values["dram_read_throughput"] == ("GB/s", 10, 1.0, 2.0, 3.0)
    assert values["tex_utilization"] == ("level", 10, 1.0, 5.0, 9.0)
    assert values["inst_per_warp"] == (None, 0, None, None, None)
    assert values["active_warps"] == (None, 4, 1.0, 2.0, 3.0) and found["active_warps"]["sum"] == 8
    # 10 launches of 200 on average; transactions of 32 bytes: 10 * (30 + 20) * 32.
    flops = next(r for r in ask(path, "flops") if r["launches"] == 10)
    assert (flops["fp32_flops"], flops["total_flops"], flops["fadd_only_flops"]) == (2000, 2000, 70)
    assert flops["dram_bytes"] == 16000 and flops["dur_ns"] is None and flops["tensor_flops"] is None


def test_summaries_of_older_versions_have_a_title_instead_of_a_column(tmp_path: Path) -> None:
    header = '"Time(%)","Time","Calls","Avg","Min","Max","Name"\n%,ms,,ms,ms,ms,\n100.0,2.0,1,2.0,2.0,2.0,'
    path = log(tmp_path, f'==7== Profiling result:\n{header}"k"\n\n==7== API calls:\n{header}"cudaMalloc"\n')
    assert [r["name"] for r in ask(path, "kernel-share")] == ["k"]
    assert [(r["name"], r["total_ns"]) for r in ask(path, "cuda-api")] == [("cudaMalloc", 2_000_000)]


def test_a_real_summary_log_of_api_calls_alone() -> None:
    """`No kernels were profiled` and a table of API calls; the shares are those that the log prints itself."""
    rows = ask(LOGS / "resnet18_k80_mem.log", "cuda-api")
    assert [(r["name"], r["calls"], round(r["api_time_pct"], 2)) for r in rows[:4]] == [
        ("cuDeviceGetAttribute", 756, 34.59), ("cudaGetDeviceProperties", 8, 32.87),
        ("cuDeviceTotalMem", 8, 29.40), ("cuDeviceGetName", 8, 2.86),
    ]  # fmt: skip
    assert (rows[0]["total_ns"], rows[0]["min_ns"], rows[0]["max_ns"]) == (8_593_199, 244, 437_755)
    printed = {
        r["name"]: r["share_pct"] for r in sql(LOGS / "resnet18_k80_mem.log", "SELECT name, share_pct FROM api_summary")
    }
    assert all(r["api_time_pct"] == pytest.approx(printed[r["name"]], abs=1e-4) for r in rows) and len(rows) == 11


def test_a_real_metric_log() -> None:
    rows = ask(LOGS / "vgg16_k80_conv.log", "metrics", params={"kernel": "^cudnn_convolve_sgemm_sm35"})
    # Four devices, 9 launches each, mean 43,173,660 as the log prints it.
    assert [(r["launches"], r["min"], r["avg"], r["max"]) for r in rows] == [(36, 3211264.0, 43173660.0, 102760448.0)]
    (run,) = sql(LOGS / "vgg16_k80_conv.log", "SELECT model, batch_size, gpu_name, gpus FROM runs")
    assert run == {"model": "vgg16", "batch_size": 64, "gpu_name": "Tesla K80", "gpus": 4}


def test_a_real_log_that_a_spreadsheet_saved_with_tabs() -> None:
    path = LOGS / "resnet18_k80_conv_tabs.log"
    (row,) = sql(
        path,
        "SELECT count(*) AS n, count(DISTINCT device) AS devices, max(invocations) AS most, max(avg) AS avg, "
        "bool_and(kernel NOT LIKE '\"%') AS bare FROM metric_summary",
    )
    # 24 lines below the header: six kernels on each of four K80; the largest mean is that of device 2.
    assert row == {"n": 24, "devices": 4, "most": 370, "avg": 1320395.0, "bare": True}
    (run,) = sql(path, "SELECT model, warnings FROM runs")
    assert run["model"] == "resnet18" and "nvprof said: Found 1 invalid records" in run["warnings"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alexnet_k80_failed.log", "Internal profiling error 4277:999; CUDA profiling error"),
        ("resnet18_k80_nothing.log", "No events/metrics were profiled"),
    ],
)
def test_failed_run_shows_nvprofs_error(tmp_path: Path, name: str, said: str) -> None:
    result = run_cli("ingest", LOGS / name, "-s", tmp_path / "store")
    assert result.returncode == 2 and said in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert json.loads((tmp_path / "store" / "store.json").read_text())["runs"] == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "unknown format"),
        ("a,b\n1,2\n", "unknown format"),
        (BANNER, "has no complete table"),
        (BANNER + SUMMARY[:110], "has no complete table"),
        # Without the line of units, no time means anything.
        (BANNER + SUMMARY.replace(",%,ms,,us,us,us,\n", ""), "has no complete table"),
        (BANNER + '"Type","Time(%)","Total","Runs"\n,%,ms,\n"GPU activities",1.0,2.0,3\n', "has no complete table"),
        (BANNER + "======== Error: Application received signal 139\n", "Application received signal 139"),
    ],
)
def test_file_without_nvprof_data_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    good, bad, store = log(tmp_path, SUMMARY), tmp_path / "bad.log", tmp_path / "store"
    assert run_cli("ingest", good, "-s", store).returncode == 0
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    bad.write_text(text)
    result = run_cli("ingest", bad, "-s", store)
    assert result.returncode == 2 and sentence in result.stderr and str(bad) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


def test_truncated_log_keeps_whole_rows(tmp_path: Path) -> None:
    path = log(tmp_path, GPU_TRACE[: GPU_TRACE.index('"[CUDA memset]"') - 20])
    report = FileReport()
    assert sum(b.num_rows for _, _, b in read(path, report)) == 2
    assert report.warnings == ["out.123: line 8 is left out: incomplete"] and report.lost == 1


def test_row_without_numbers_is_counted_as_lost(tmp_path: Path) -> None:
    start, end = SUMMARY.index("25.000000,1.000000,2"), SUMMARY.index('TotalMem"')
    path = log(tmp_path, SUMMARY[:start] + SUMMARY[end:])
    rows, report = read_log(path)
    # Of five rows one is whole; the others became one line, `"GPU activities",TotalMem"`. OpenACC is not read.
    assert rows == {"gpu_summary": 1} and report.lost == 2
    assert "out.123: line 7 is left out: incomplete" in report.warnings  # the banner is line 1


def read_log(path: Path) -> tuple[dict[str, int], FileReport]:
    """Rows by table, and the report."""
    report, found = FileReport(), Counter[str]()
    for table, _, batch in read(path, report):
        found[table] += batch.num_rows
    return dict(found), report


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize(
    "foreign", ["", "==7== Warning: 1 record may be wrong", "epoch 1, loss 2, done", "== progress ==", '"hello" said']
)
def test_other_output_does_not_end_a_table(tmp_path: Path, end: str, foreign: str) -> None:
    """Between any two lines: kinds of rows that no table holds are the only ones reported."""
    path = tmp_path / "out.123"
    for text, kept, lost in (
        (SUMMARY, {"gpu_summary": 3, "api_summary": 2}, 1),
        (GPU_TRACE, {"memcpys": 2, "kernels": 1, "memsets": 1}, 1),
        (METRICS, {"metric_summary": 11}, 0),
    ):
        lines = [line for each in text.splitlines() for line in (each, foreign)]
        path.write_bytes((BANNER + end.join(lines)).replace("\n", end if "\r" in end else "\n").encode())
        assert read_log(path)[0] == kept and read_log(path)[1].lost == lost


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (SUMMARY, "4,500.000000", "99999999999999999999,500.000000"),
        (SUMMARY, "4,500.000000", "²,500.000000"),
        (SUMMARY, "4,500.000000", "-4,500.000000"),
        (SUMMARY, "2.000000,4", "1e30,4"),
        (SUMMARY, "2.000000,4", "1e999999999,4"),
        (SUMMARY, "2.000000,4", "NaN,4"),
        (SUMMARY, "2.000000,4", "inf,4"),
        (SUMMARY, "2.000000,4", "-2.000000,4"),
        (SUMMARY, "50.000000,2.0", "nan,2.0"),
        (SUMMARY, "4,500.000000,", "500.000000,"),
        (SUMMARY, '"ncclBroadcast', '"' + "x" * 200_000),
        (SUMMARY, '"ncclBroadcast', '"nccl"Broadcast'),
        (GPU_TRACE, "Tesla K80 (1)", "Tesla K80 (99999999999)"),
        (GPU_TRACE, "64,2,1", "99999999999,2,1"),
        (GPU_TRACE, '(float*) [12]",12', '(float*) [12]",99999999999999999999'),
        (GPU_TRACE, "0.500000,10.0", "1e30,10.0"),
        (GPU_TRACE, "32,1.000000,16,", "32,8e15,8e18,"),
        (METRICS, "1.000000GB/s,3.000000GB/s,2.000000GB/s", "1e308TB/s,1B/s,2B/s"),
        (METRICS, "100,300,200", "100,300,1.2.3"),
        (METRICS, "100,300,200", "100,300,1e999"),
        (METRICS, "100,300,200", "100,300,x"),
        (METRICS, "1.000000GB/s,3", "1.000000parsec,3"),
        (METRICS, '",10,"flop_count_sp",', '",1_0,"flop_count_sp",'),
    ],
)
def test_unreadable_row_is_counted_and_loses_no_other(tmp_path: Path, text: str, old: str, new: str) -> None:
    kept, before = read_log(log(tmp_path, text, "before"))
    assert old in text
    fewer, report = read_log(log(tmp_path, text.replace(old, new, 1)))
    assert sum(fewer.values()) == sum(kept.values()) - 1 and report.lost == before.lost + 1


def test_a_table_without_a_column_is_lost_row_by_row(tmp_path: Path) -> None:
    kept, report = read_log(log(tmp_path, METRICS.replace('"Min","Max","Avg"\n', '"Min","Max","Mean"\n')))
    assert kept == {"metric_summary": 1} and report.lost == 10
    assert report.warnings == [
        "out.123: 10 lines, the first of them 6, are left out: its table has no column Avg",
    ]


def test_rows_after_a_damaged_header_are_not_added_to_the_table_above(tmp_path: Path) -> None:
    damaged = METRICS.replace('"Kernel","Invocations","Event Name"', '"Kernal","Invocations","Event Name"')
    kept, report = read_log(log(tmp_path, damaged))
    assert kept == {"metric_summary": 10} and report.lost == 1
    api = API_TRACE.replace('"Start","Duration"', '"Start""Duration"')
    kept, report = read_log(log(tmp_path, GPU_TRACE + api))
    assert "cuda_calls" not in kept and report.lost == 3


def test_number_cut_off_by_the_end_of_the_file_is_null(tmp_path: Path) -> None:
    # The mean was 200.
    cut = METRICS[: METRICS.index("100,300,200") + len("100,300,2")]
    kept, report = read_log(log(tmp_path, SUMMARY + cut))
    assert "metric_summary" not in kept and report.lost == 2


def test_a_size_without_a_unit_is_not_bytes(tmp_path: Path) -> None:
    kept, report = read_log(log(tmp_path, GPU_TRACE.replace("KB,B,MB,GB/s", "KB,B,,GB/s")))
    # The kernel has no size; both copies and the fill have one.
    assert kept == {"kernels": 1} and report.lost == 4


def test_values_of_a_metric_come_in_one_unit(tmp_path: Path) -> None:
    text = METRICS.replace("1.000000GB/s,3.000000GB/s,2.000000GB/s", "512.000000MB/s,3.000000GB/s,2.000000GB/s")
    (row,) = ask(log(tmp_path, text), "metrics", params={"metric": "^dram_read_throughput$"})
    # nvprof's MB are 2^20 bytes: 512 of them are half a GB.
    assert (row["unit"], row["min"], row["max"], row["avg"]) == ("GB/s", 0.5, 3.0, 2.0)
