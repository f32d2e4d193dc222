"""Nsight Systems where it is installed; command lines and metrics of Nsight Compute."""

from __future__ import annotations

import sqlite3
import stat
import sys
from pathlib import Path

import pytest
from collect_support import CPU, Collect, refused

from collect.option_checks import make_options
from collect.profilers import ncu, ncu_metrics, nsys
from collect.profilers.base import list_files
from collect.profilers.cuda_range import CudaRangeRecorder
from collect.profilers.torch_profiler import TorchProfiler
from schemas import tools
from schemas.manifest import Manifest, Pass, RunFile, read_manifest, write_manifest
from schemas.phases import PHASES
from schemas.workload import RecordedWorkload

NSYS = tools.NSYS.find()


@pytest.mark.usefixtures("one_nsys")
@pytest.mark.skipif(NSYS is None, reason="needs nsys on PATH or in TRACEQUARRY_NSYS")
def test_nsys_report_holds_both_ranks(collect: Collect) -> None:
    asked = ["--parallel", "ddp", "--gpus", "2", "--profiler", "nsys"]
    ran = collect(*CPU, *asked, TRACEQUARRY_NSYS=str(NSYS))
    assert ran.code == 0, ran.stderr
    kinds = {f.kind for f in ran.manifest.passes[0].files}
    assert {"nsys_sqlite", "step_metrics", "log"} == kinds
    assert (ran.manifest.world_size, ran.manifest.workload.steps, ran.manifest.passes[0].counted_steps) == (2, 2, 2)
    with sqlite3.connect(ran.folder / "nsys/node-0.sqlite") as db:
        query = (
            "select coalesce(text, s.value), count(*), count(distinct globalTid) from NVTX_EVENTS e "
            "left join StringIds s on e.textId = s.id group by 1"
        )
        found = {name: (calls, threads) for name, calls, threads in db.execute(query)}
    # On the CPU all is captured: 1 warm-up and 2 profiled steps of each of 2 ranks.
    assert {name: found.get(name) for name in (*PHASES, "step")} == dict.fromkeys((*PHASES, "step"), (6, 2))


def test_missing_nsys_keeps_the_torch_pass(collect: Collect) -> None:
    program = ["--", sys.executable, "-c", "import torch; torch.ones(2) + 1"]
    ran = collect("--profiler", "nsys,torch", *program, TRACEQUARRY_NSYS="/nowhere/nsys")
    assert ran.code == 1
    by_name = {p.profiler: p for p in ran.manifest.passes}
    assert by_name["nsys"].status == "failed" and "install Nsight Systems" in (by_name["nsys"].reason or "")
    assert by_name["torch"].status == "done" and (ran.folder / "torch/rank-0.trace.json.gz").exists()
    assert ran.manifest.status == "failed" and "nsys: nsys is not installed" in (ran.manifest.reason or "")


# From `nsys profile --help` of 2023.4, cut to the lines that are read.
HELP = """
    -c, --capture-range=
       Possible values are none, cudaProfilerApi, nvtx, hotkey.
    --capture-range-end=
    --cpuctxsw=
    --cuda-graph-trace=<granularity>[:<launch origin>]
    --cuda-memory-usage=
    -f, --force-overwrite=
    -s, --sample=
    -t, --trace=

       Possible values are 'cuda', 'nvtx', 'cublas', 'cublas-verbose', 'mpi', 'osrt', 'cudnn', 'python-gil' or 'none'.
       Select the API(s) to trace. Multiple APIs can be selected, separated by commas only
       If '<api>-annotations' is selected, the corresponding API will also be traced.
    --trace-fork-before-exec=
    -w, --show-output=
"""


def test_nsys_arguments() -> None:
    known = nsys.known_traces(HELP)
    assert known == {"cuda", "nvtx", "cublas", "cublas-verbose", "mpi", "osrt", "cudnn", "python-gil", "none"}
    argv = nsys.profile_arguments("nsys", HELP, ["cuda", "nvtx"], "cudaProfilerApi", Path("out/node-0"))
    # This help does not name --resolve-symbols, so it is left out.
    assert argv == [
        "nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--force-overwrite=true",
        "--cuda-memory-usage=true",
        "--cuda-graph-trace=node",
        "--capture-range-end=stop",
        "--output=out/node-0",
    ]
    assert "--capture-range-end=stop" not in nsys.profile_arguments("nsys", HELP, ["nvtx"], "none", Path("x"))


# The form of `ncu --query-metrics`: a metric's base name, its type, its unit, what it is.
LISTING = """
Device NVIDIA H200 (GH100)
-------------------------------------------------- ----------- ------------ -----------------
Metric Name                                        Metric Type Metric Unit  Metric Description
-------------------------------------------------- ----------- ------------ -----------------
dram__bytes                                        Counter     byte         # of bytes accessed in DRAM
dram__bytes_read                                   Counter     byte         # of bytes read from DRAM
dram__bytes_write                                  Counter     byte         # of bytes written to DRAM
dram__cycles_elapsed                               Counter     cycle        # of cycles elapsed in DRAM
gpu__time_duration                                 Counter     ns           incremental duration
sm__cycles_elapsed                                 Counter     cycle        # of cycles elapsed on SM
sm__inst_executed_pipe_tensor_op_hmma              Counter     inst         # of warp instructions
sm__ops_path_tensor_src_bf16_dst_fp32              Counter                  # of math ops
sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off Counter                  # of math ops
sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on  Counter                  # of math ops
sm__ops_path_tensor_src_fp16                       Counter                  # of math ops
sm__ops_path_tensor_src_fp16_dst_fp32              Counter                  # of math ops
sm__ops_path_tensor_src_int8                       Counter                  # of math ops
sm__ops_path_tensor_src_tf32_dst_fp32              Counter                  # of math ops
"""


def test_ncu_metrics_follow_the_chip() -> None:
    known = ncu_metrics.known_metrics(LISTING)
    assert "dram__bytes_read" in known and "Metric" not in known
    # Each operation once (fp16 holds fp16_dst_fp32, bf16 its two sparsities), integers not at all.
    tensor = [f"sm__ops_path_tensor_src_{t}.sum" for t in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32")]
    assert ncu_metrics.tensor_metrics(known) == tensor
    # Without operation counters, the instructions.
    old = {m for m in known if "ops_path" not in m}
    assert ncu_metrics.tensor_metrics(old) == ["sm__inst_executed_pipe_tensor_op_hmma.sum"]

    flops, missing = ncu_metrics.choose_metrics("flops", known)
    # 3 for time and DRAM, 9 instructions (which this listing does not have, as a family, and ncu takes), 3 tensor.
    assert len(flops) == 15 and missing == []
    roofline, missing = ncu_metrics.choose_metrics("roofline", known)
    assert set(flops) < set(roofline) and "dram__bytes.sum.peak_sustained" in roofline
    assert "sm__cycles_elapsed.avg.per_second" in roofline and tensor[0] + ".peak_sustained" in roofline
    # Unknown ones are left out, by name.
    assert "lts__t_bytes.sum" in missing and "lts__t_bytes.sum" not in roofline
    # Where ncu could not be asked, everything but the chip's own names is tried.
    assert ncu_metrics.choose_metrics("flops", set()) == ([*flops[:12]], [])


def test_ncu_arguments() -> None:
    own = ncu.NcuOptions(ncu_kernel="gemm|conv", ncu_launches=7, ncu_phase="forward")
    assert ncu.profile_arguments("ncu", own, False, ["a.sum", "b.sum"], Path("out/rank-0")) == [
        "ncu",
        *["--clock-control", "none", "--target-processes", "all", "--force-overwrite"],
        *["--profile-from-start", "off", "--metrics", "a.sum,b.sum"],
        *["--kernel-name", "regex:gemm|conv", "--launch-count", "7", "--export", "out/rank-0"],
    ]
    argv = ncu.profile_arguments("ncu", ncu.NcuOptions(ncu_metrics="full"), True, [], Path("r"))
    assert argv[argv.index("--set") + 1] == "full" and argv[argv.index("--profile-from-start") + 1] == "on"


def test_capture_range_is_the_profiled_steps_or_a_phase_of_each() -> None:
    def switched(phase: str | None) -> list[bool]:
        calls: list[bool] = []
        options = make_options({"model": "alexnet", "warmup": 1})
        recorder = CudaRangeRecorder(options, phase, switch=calls.append)
        for index in range(3):
            recorder.before_step(index)
            for name in PHASES:
                recorder.phase(name, True)
                recorder.phase(name, False)
        recorder.after_steps()
        recorder.stop()
        return calls

    assert switched(None) == [True, False]
    assert switched("forward") == [True, False] * 2


FAKE_NCU = """#!{python}
import subprocess, sys
args = sys.argv[1:]
if "--query-metrics" in args:
    print({listing!r})
elif args == ["--help"]:
    print("  --config-file arg (=on)   Use config.ncu-cfg config file to set parameters.")
elif "--import" in args:
    print('"ID","Process ID"\\n"","",\\n"0","1"')
else:
    {refuse}
    program = args[args.index("--export") + 2:]
    print('==PROF== Profiling "gemm" - 0: 0%....50%....100% - 9 passes')
    code = subprocess.run(program).returncode
    open(args[args.index("--export") + 1] + ".ncu-rep", "wb").write(b"report")
    sys.exit(code)
"""


def fake_ncu(folder: Path, refuse: str = "pass") -> str:
    """A stand-in with ncu's way of being called; there is no GPU here to count on."""
    path = folder / "ncu"
    path.write_text(FAKE_NCU.format(python=sys.executable, listing=LISTING, refuse=refuse))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_ncu_pass_from_call_to_csv(collect: Collect, tmp_path: Path) -> None:
    ran = collect("--profiler", "ncu", "--", sys.executable, "-c", "print(1)", TRACEQUARRY_NCU=fake_ncu(tmp_path))
    assert ran.code == 0, ran.stderr
    done = ran.manifest.passes[0]
    assert {f.kind: f.rank for f in done.files} == {"ncu_csv": 0, "log": None}
    assert done.command[1:3] == ["--config-file", "off"], "a file of the current directory would set options"
    # ncu counts kernels, not steps; what the default of --steps is says nothing of the program.
    assert (done.counted_steps, ran.manifest.world_size) == (None, None)
    assert ran.manifest.workload == RecordedWorkload(device=ran.manifest.workload.device)
    assert (ran.folder / "ncu/rank-0.ncu.csv").read_text().startswith('"ID"')
    # What the pass costs is said before it starts, as an estimate: 15 metrics, about 4 in a replay.
    assert "about 4 replays of each kernel" in ran.stderr and "an estimate" in ran.stderr
    assert done.options["replays"] == 9


def test_refused_counters_name_the_fix(collect: Collect, tmp_path: Path) -> None:
    # What ncu 2025.3 prints, and the exit code it ends with.
    refuse = (
        'print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance '
        'Counters"); sys.exit(1)'
    )
    tool = fake_ncu(tmp_path, refuse)
    program = ["--", sys.executable, "-c", "import torch; torch.ones(2) + 1"]
    ran = collect("--profiler", "ncu,torch", *program, TRACEQUARRY_NCU=tool)
    assert ran.code == 1
    first, second = ran.manifest.passes
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (first.reason or "") and second.status == "done"


def test_ncu_is_refused_where_it_would_hang() -> None:
    code, stderr = refused("run", "--model", "resnet18", "--profiler", "ncu", "--gpus", "2", "--parallel", "dp")
    assert code == 2 and "use it with --gpus 1" in stderr


def test_tool_lookup_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("asked", "bin", "opt/1.9", "opt/2.0"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "tool").touch(mode=0o755)
    tool = tools.Tool("tool", "Tool", "https://tool", "A_TOOL", (f"{tmp_path.relative_to('/')}/opt/*/tool",))
    monkeypatch.setenv("PATH", "/nowhere")
    assert tool.find() == str(tmp_path / "opt/2.0/tool")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert tool.find() == str(tmp_path / "bin/tool")
    monkeypatch.setenv("A_TOOL", str(tmp_path / "asked/tool"))
    assert tool.find() == str(tmp_path / "asked/tool")
    # One that was asked for and is not there is not replaced by another.
    monkeypatch.setenv("A_TOOL", "/nowhere/tool")
    assert tool.find() is None


def test_file_kinds_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    for name in ("rank-12.trace.json.gz", "rank-0.step_metrics.csv", "rank-0.trace.json.part", "log.txt", "core"):
        (folder / name).touch()
    listed = [(f.path, f.kind, f.rank) for f in list_files(tmp_path, folder, TorchProfiler.kinds)]
    assert listed == [
        ("torch/log.txt", "log", None),
        ("torch/rank-0.step_metrics.csv", "step_metrics", 0),
        ("torch/rank-12.trace.json.gz", "chrome_trace", 12),
    ]


def test_manifest_round_trip(tmp_path: Path) -> None:
    files = [RunFile(path="torch/rank-0.trace.json.gz", kind="chrome_trace", rank=0)]
    passes = [Pass(profiler="torch", status="done", files=files, options={"shapes": True})]
    manifest = Manifest(run_id="x", start="2026-01-01T00:00:00+00:00", command=["collect"], passes=passes)
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
