"""nvprof logs: the real ones of seed 003, and every other table of the format by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT, ask, run_cli, sql

from analyze.sources.base import FileReport
from analyze.sources.nvprof import read

LOGS = ROOT / "tests" / "data" / "nvprof"
BANNER = "==7== NVPROF is profiling process 7, command: python main.py --arch vgg16 -b 32 --epochs 1 /data\n"

SUMMARY = """\
==7== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,us,
"GPU activities",50.000000,2.000000,4,500.000000,400.000000,600.000000,"ncclBroadcastKernel_copy_i8(ncclColl)"
"GPU activities",25.000000,1.000000,2,500.000000,500.000000,500.000000,"void winograd3x3Kernel<float, int=4>(float*)"
"GPU activities",25.000000,1.000000,1,1000.000000,1000.000000,1000.000000,"[CUDA memcpy HtoD]"
"API calls",75.000000,3.000000,3,1000.000000,1.000000,2000.000000,"cudaMalloc"
"API calls",25.000000,1.000000,1,1000.000000,1000.000000,1000.000000,"cuDeviceTotalMem"
"OpenACC (excl)",100.0,1.0,1,1.0,1.0,1.0,"acc_wait"
epoch 1, loss 2, done
==7== Generated result file
"""

GPU_TRACE = """\
==7== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",\
"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Src Dev","Src Ctx","Dst Dev",\
"Dst Ctx","Name","Correlation_ID"
ms,us,,,,,,,,KB,B,MB,GB/s,,,,,,,,,,,
1.234567,1.504000,,,,,,,,,,0.500000,10.0,"Pageable","Device","Tesla K80 (1)","1","7",,,,,"[CUDA memcpy HtoD]",11
2.000001,0.000000,64,2,1,256,1,1,32,1.000000,16,,,,,"Tesla K80 (1)","1","7",,,,,"void k<int, 2>(float*) [12]",12
3.000000,2.000000,,,,,,,,,,0.001000,1.0,"Device",,"Tesla K80 (0)","1","7",,,,,"[CUDA memset]",13
4.000000,9.000000,,,,,,,,,,1.000000,1.0,"Device","Device","Tesla K80 (0)","1","7","Tesla K80 (0)","1",\
"Tesla K80 (1)","1","[CUDA memcpy PtoP]",14
5.000000,9.000000,,,,,,,,,,,,,,"Tesla K80 (0)","1","7",,,,,"[Unified Memory GPU page faults]",15
"""

API_TRACE = """\
==7== Profiling result:
"Start","Duration","Name","Correlation_ID"
s,us,,
0.000001,2.866000,"cuDeviceGetPCIBusId",1
1.500000,0.952000,"cudaLaunchKernel_v7000",2
"""

METRICS = """\
==7== Profiling result:
==7== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"Tesla P40 (0)","void k(float*)",10,"flop_count_sp","Floating Point Operations(Single Precision)",100,300,200
"Tesla P40 (0)","void k(float*)",10,"flop_count_dp","Floating Point Operations(Double Precision)",0,0,0
"Tesla P40 (0)","void k(float*)",10,"flop_count_hp","Floating Point Operations(Half Precision)",0,0,0
"Tesla P40 (0)","void k(float*)",10,"flop_count_sp_add","Floating Point Operations(Single Precision Add)",7,7,7
"Tesla P40 (0)","void k(float*)",10,"dram_read_transactions","Device Memory Read Transactions",30,30,30
"Tesla P40 (0)","void k(float*)",10,"dram_write_transactions","Device Memory Write Transactions",20,20,20
"Tesla P40 (0)","void k(float*)",10,"sm_efficiency","Multiprocessor Activity",90.000000%,99.500000%,95.300000%
"Tesla P40 (0)","void k(float*)",10,"dram_read_throughput","Throughput",1.000000GB/s,3.000000GB/s,2.000000GB/s
"Tesla P40 (0)","void k(float*)",10,"tex_utilization","Texture Cache Utilization",Low (1),High (9),Mid (5)
"Tesla P40 (0)","void k(float*)",10,"inst_per_warp","Instructions per warp",<OVERFLOW>,<OVERFLOW>,<OVERFLOW>
==7== Event result:
"Device","Kernel","Invocations","Event Name","Min","Max","Avg","Total"
"Tesla P40 (1)","void k(float*)",4,"active_warps",1,3,2,8
"""


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
        "out.123: line 11 is of a kind that is not read: OpenACC (excl)",
        "out.123: line 12 is not whole and is left out",
    ]


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


def test_metrics(tmp_path: Path) -> None:
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


def test_a_real_summary_log_answers_the_memory_donut_of_seed_003() -> None:
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
def test_a_failed_run_is_what_nvprof_said(tmp_path: Path, name: str, said: str) -> None:
    result = run_cli("ingest", LOGS / name, "-s", tmp_path / "store")
    assert result.returncode == 2 and said in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "store" / "store.json").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a file that any source reads"),
        ("a,b\n1,2\n", "not a file that any source reads"),
        (BANNER, "holds no whole table"),
        (BANNER + SUMMARY[:110], "holds no whole table"),
        # Without the line of units, no time means anything.
        (BANNER + SUMMARY.replace(",%,ms,,us,us,us,\n", ""), "holds no whole table"),
        (BANNER + '"Type","Time(%)","Total","Runs"\n,%,ms,\n"GPU activities",1.0,2.0,3\n', "holds no whole table"),
        (BANNER + "======== Error: Application received signal 139\n", "Application received signal 139"),
    ],
)
def test_nothing_to_read_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    good, bad, store = log(tmp_path, SUMMARY), tmp_path / "bad.log", tmp_path / "store"
    assert run_cli("ingest", good, "-s", store).returncode == 0
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    bad.write_text(text)
    result = run_cli("ingest", bad, "-s", store)
    assert result.returncode == 2 and sentence in result.stderr and str(bad) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


def test_a_truncated_log_keeps_what_is_whole(tmp_path: Path) -> None:
    path = log(tmp_path, GPU_TRACE[: GPU_TRACE.index('"[CUDA memset]"') - 20])
    report = FileReport()
    assert sum(b.num_rows for _, _, b in read(path, report)) == 2
    assert report.warnings == ["out.123: line 8 is not whole and is left out"]
