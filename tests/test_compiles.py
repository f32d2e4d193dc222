"""What torch.compile compiled, which guards failed, and who waited for it: logs and traces together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from compile_logs import STACK, STRINGS, artifact, metrics, record
from support import ask
from traces import event, kernel, launched, op, step, write_run, write_trace

GUARD = "tensor 'x' size mismatch at index 0. expected 64, actual 48"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GRAPH = """
        # File: /home/me/train.py:13 in forward, code: y = gelu(x)
        gelu: "f32[48]cuda:0" = gelu(l_x_);  l_x_ = None
        # File: /home/me/train.py:14 in forward, code: return y * 2
        mul: "f32[48]cuda:0" = gelu * 2;  gelu = None
"""
ZERO_US = 10_000
"""Where the recording begins."""
CODE = """# AOT ID: ['{}']
# Topologically Sorted Source Nodes: [{}], Original ATen: [{}]
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
''', device_str='cuda')
"""


def all_reduce(ts: float, dur: float, seq: int) -> dict[str, Any]:
    said = {
        "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8, "Out msg nelems": 8, "Seq": seq,
        "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2,
    }  # fmt: skip
    return kernel(NCCL, ts, dur, 0, 17, **said)


def compiled(frame: tuple[int, int], start_us: int, us: int, *inside: str, **more: Any) -> str:
    start = record(dynamo_start={"stack": STACK}, compile_id=frame)
    end = metrics(ZERO_US + start_us, us, compile_id=frame, co_name="forward", **more)
    return start + "".join(inside) + end


def shifted(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"ts": found["ts"] + ZERO_US}


def code(graph: str, nodes: str, ops: str) -> str:
    text = CODE.format(graph, nodes, ops)
    return record(text, compile_id=(0, 1), inductor_output_code={"filename": "/tmp/code.py"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks compile frame 0 long before the recording. In step 1, rank 1 compiles it anew, from 2,000 to 5,000 us;
    rank 0 waits in the second all_reduce from 1,500 us until rank 1 is there, at 6,000 us."""
    folder = tmp_path_factory.mktemp("compiles") / "run"
    steps = [step(0, 0, 1000), step(1, 1000, 7000)]
    region = [
        event("cpu_op", "Torch-Compiled Region: 0/1", 5100, 300),
        event("cpu_op", "CompiledFunction", 5110, 100, **{"Sequence number": 5, "Fwd thread id": 0}),
        op("triton_poi_fused_0", 5120, 5, 1), *launched(5121, 1, 5200, 30, "triton_poi_fused_0"),
        event("cpu_op", "CompiledFunctionBackward", 5500, 100, **{"Sequence number": 5, "Fwd thread id": 1}),
        op("triton_poi_fused_0", 5520, 5, 2), *launched(5521, 2, 5600, 10, "triton_poi_fused_0"),
    ]  # fmt: skip
    traces = [
        [*steps, all_reduce(100, 10, 1), all_reduce(1500, 4600, 2)],
        [*steps, all_reduce(100, 10, 1), all_reduce(6000, 100, 2), *region],
    ]
    before = STRINGS + compiled((0, 0), -900, 500, graph_op_count=2)
    again = (
        artifact("recompile_reasons", json.dumps([f"0/0: {GUARD}"]), compile_id=(0, 1))
        + compiled(
            (0, 1), 2000, 3000,
            record(GRAPH, compile_id=(0, 1), dynamo_output_graph={}),
            code("1_forward", "gelu", "aten.gelu"),
            aot_autograd_cumulative_compile_time_us=2000, inductor_cumulative_compile_time_us=1200,
            inductor_code_gen_cumulative_compile_time_us=1000, triton_compile_time_us=900,
        )
        + code("1_backward", "gelu, mul", "aten.gelu_backward")
    )  # fmt: skip
    files = []
    for rank, (events, log) in enumerate(zip(traces, (before, before + again), strict=True)):
        job = {"rank": rank, "world_size": 2}
        write_trace(folder / f"torch/rank-{rank}.trace.json", [shifted(e) for e in events], distributedInfo=job)
        (folder / f"torch/rank-{rank}.torch_trace.log").write_text(log)
        files += [(f"torch/rank-{rank}.trace.json", "chrome_trace", rank)]
        files += [(f"torch/rank-{rank}.torch_trace.log", "torch_trace", rank)]
    return write_run(folder, files, run_id="r", world_size=2)


def test_compilations_and_their_phases(run: Path) -> None:
    rows = ask(run, "compiles")
    assert [(r["rank"], r["compile_id"], r["step"], r["start_ns"], r["dur_ns"]) for r in rows] == [
        (0, "0/0", None, -900_000, 500_000), (1, "0/0", None, -900_000, 500_000), (1, "0/1", 1, 2_000_000, 3_000_000),
    ]  # fmt: skip
    names = ("dynamo_ns", "aot_ns", "inductor_ns", "codegen_ns", "triton_ns", "waited_ns", "why", "where")
    # 3000 us, 2000 of them in the backend, 1200 in Inductor, 1000 generating code, 900 waiting for Triton. Rank 0 waits
    # from 1500 to 6000 us, in all 3000 us of it.
    assert [rows[2][name] for name in names] == [
        1_000_000, 800_000, 200_000, 100_000, 900_000, 3_000_000, GUARD, "train.py:12 forward",
    ]  # fmt: skip


def test_recompilation_with_step_and_wait(run: Path) -> None:
    [row] = ask(run, "recompiles")
    names = ("rank", "compile_id", "failed_compile_id", "guard", "step", "dur_ns", "backward_ns", "waited_ns")
    assert [row[name] for name in names] == [1, "0/1", "0/0", GUARD, 1, 3_000_000, 0, 3_000_000]


def test_ranks_that_compile_differently(run: Path) -> None:
    rows = ask(run, "compile-skew")
    names = ("compile_id", "differs", "ranks", "missing", "max_ns", "waited_ns")
    assert [tuple(r[name] for name in names) for r in rows] == [
        ("0/1", "only on some ranks", "1", "0", 3_000_000, 3_000_000),
        ("0/0", None, "0, 1", None, 500_000, None),
    ]


def test_kernels_with_their_source(run: Path) -> None:
    """The kernels of the forward and of the backward have one name."""
    names = ("region", "pass", "kernel", "ops", "lines", "code", "launches", "gpu_ns")
    assert [tuple(r[name] for name in names) for r in ask(run, "compiled-kernels")] == [
        ("0/1", "forward", "triton_poi_fused_0", "gelu", "train.py:13 forward", "y = gelu(x)", 1, 30_000),
        ("0/1", "backward", "triton_poi_fused_0", "gelu_backward", "train.py:13 forward, train.py:14 forward",
            "y = gelu(x); return y * 2", 1, 10_000),
    ]  # fmt: skip
    # Rank 1 also runs its all_reduces: 10 and 100 us, beside 30 and 10 us of compiled kernels.
    rows = ask(run, "compiled-kernels")
    assert [r["gpu_time_pct"] for r in rows] == [100 * us / 150 for us in (30, 10)]
    assert {r["output_file"] for r in rows} == {"/tmp/code.py"}


def test_advice_says_who_waited_for_which_guard(run: Path) -> None:
    done = run_cli("advise", str(run))
    said = " ".join(done.stdout.split())
    expected = (
        "in step 1 region 0/1 (train.py:12 forward) was compiled again on rank 1: "
        f"{GUARD}; 1 other rank waited 3.0 ms for it"
    )
    assert expected in said


def test_trace_has_the_phases_of_the_compiler(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        "".join(
            record(json.dumps({"name": name, "ts": ts, "ph": ph}), chromium_event={}, compile_id=(3, 1))
            for name, ph, ts in (("dynamo", "B", 100), ("inner", "B", 120), ("inner", "E", 130), ("dynamo", "E", 150))
        )
    )
    done = run_cli("trace", str(log), "-o", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    found = [e for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"], e["args"]["compile id"]) for e in found] == [
        ("dynamo", 0, 50, "3/1"), ("inner", 20, 10, "3/1"),
    ]  # fmt: skip


def test_report_escapes_what_a_log_says(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(STRINGS + compiled((0, 0), 0, 500, fail_type="E", fail_reason="<script>alert(1)</script>"))
    done = run_cli("report", str(log), "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert done.returncode == 0 and "What did torch.compile compile" in page
    assert "&lt;script&gt;alert(1)" in page and "<script>alert(1)" not in page
