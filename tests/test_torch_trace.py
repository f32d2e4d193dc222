"""TORCH_TRACE logs: what torch.compile compiled, where its graphs break, and which guards fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_cli
from compile_logs import PREFIX, SECOND_US, STACK, STRINGS, artifact, metrics, phase, record
from support import ask, sql
from traces import write_run

GUARD = "tensor 'x' size mismatch at index 0. expected 64, actual 48"
BREAK = """Graph break in user code at /home/me/train.py:14
Graph Break Reason: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace `print`.
  Hint: Avoid calling `print`.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print

User code traceback:
  File "/home/me/train.py", line 40, in <module>
    loss = model(x)
    ~~~~~^^^
  File "/home/me/train.py", line 14, in forward
    print("<b>here</b>")

Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/torch/_dynamo/symbolic_convert.py", line 1123, in wrapper
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
"""
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[64, 256][256, 1]cuda:0"):
        l_x_ = L_x_

        # File: /home/me/train.py:13 in forward, code: x = torch.nn.functional.gelu(self.first(x))
        linear: "f32[64, 256][256, 1]cuda:0" = torch._C._nn.linear(l_x_);  l_x_ = None
        x: "f32[64, 256][256, 1]cuda:0" = torch._C._nn.gelu(linear);  linear = None
        # File: /home/me/train.py:15 in forward, code: return x.sum()
        sum_1: "f32[][]cuda:0" = x.sum();  x = None
        return (sum_1,)
"""
CODE = """# AOT ID: ['3_forward']
import torch
# kernel path: /tmp/torchinductor/vv/k.py
# Topologically Sorted Source Nodes: [linear, x], Original ATen: [aten.addmm, aten.gelu]
# Source node to ATen node mapping:
#   x => gelu
triton_poi_fused_addmm_gelu_0 = async_compile.triton('triton_poi_fused_addmm_gelu_0', '''
import triton
''', device_str='cuda')
def call(args):
        # Topologically Sorted Source Nodes: [sum_1], Original ATen: [aten.sum]
        extern_kernels.mm(arg0, arg1, out=buf0)
        # Topologically Sorted Source Nodes: [linear, x], Original ATen: [aten.addmm, aten.gelu]
        triton_poi_fused_addmm_gelu_0.run(buf0, stream=stream0)
"""
# Frame 0: the first attempt breaks at a print, the second is compiled; its backward, and a recompilation that fails.
LOG = (
    STRINGS
    + record(dynamo_start={"stack": STACK})
    + phase("dynamo", 1 * SECOND_US, 5 * SECOND_US,
        artifact("dynamo_graph_break_reason", BREAK),
        record(GRAPH, attempt=1, dynamo_output_graph={}),
        phase("backend_compile", 2 * SECOND_US, 4 * SECOND_US,
            record(CODE, attempt=1, inductor_output_code={"filename": "/tmp/torchinductor/ab/code.py"}), attempt=1),
        artifact("fx_graph_cache_miss", "{}", attempt=1), artifact("aotautograd_cache_miss", "{}", attempt=1),
        metrics(1 * SECOND_US, 4 * SECOND_US, attempt=1, co_name="forward", co_filename="/home/me/train.py",
            co_firstlineno=12, guard_count=7, graph_op_count=3, has_guarded_code=True,
            dynamo_compile_time_before_restart_us=500_000,
            aot_autograd_cumulative_compile_time_us=2_000_000, inductor_cumulative_compile_time_us=1_500_000,
            inductor_code_gen_cumulative_compile_time_us=900_000, triton_compile_time_us=600_000,
            restart_reasons=["Failed to trace builtin operator\n  Explanation: no"]))
    + artifact("fx_graph_cache_hit", "{}", attempt=1)
    + metrics(6 * SECOND_US, 1 * SECOND_US, "bwd_compilation_metrics", attempt=1,
        inductor_cumulative_compile_time_us=800_000)
    + artifact("recompile_reasons", f'[\n"0/0: {GUARD}"\n]',
        compile_id=(0, 1))
    + record(dynamo_start={"stack": STACK}, compile_id=(0, 1))
    + metrics(8 * SECOND_US, 2 * SECOND_US, compile_id=(0, 1), co_name="forward", fail_type="Unsupported",
        fail_reason="no <i>way</i>", recompile_reason=f"0/0: {GUARD}")
)  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "dedicated_log_torch_trace_rank_3_abc.log"
    path.write_text(LOG)
    return path


def test_compilations_by_hand(log: Path) -> None:
    names = "compile_id, attempt, pass, outcome, function, line, start_ns, dur_ns, rank"
    found = [tuple(r.values()) for r in sql(log, f"SELECT {names} FROM compilations ORDER BY compilation")]
    second = 1_000_000_000
    assert found == [
        # No record before it has a time.
        ("0/0", 0, "forward", "restarted", "forward", 12, None, None, 3),
        ("0/0", 1, "forward", "compiled", "forward", 12, second, 4 * second, 3),
        ("0/0", 1, "backward", "compiled", "forward", 12, 6 * second, second, 3),
        ("0/1", 0, "forward", "failed", "forward", 12, 8 * second, 2 * second, 3),
    ]
    phases = (
        "backend_ns, inductor_ns, codegen_ns, triton_ns, restarted_ns, guards, fx_cache, aot_cache, restart_reasons"
    )
    [forward] = sql(log, f"SELECT {phases} FROM compilations WHERE attempt = 1 AND pass = 'forward'")
    assert tuple(forward.values()) == (
        2 * second, 1_500_000_000, 900_000_000, 600_000_000, 500_000_000, 7, "miss", "miss",
        "Failed to trace builtin operator",
    )  # fmt: skip
    [backward] = sql(log, "SELECT inductor_ns, fx_cache, aot_cache FROM compilations WHERE pass = 'backward'")
    assert tuple(backward.values()) == (800_000_000, "hit", None)
    assert [tuple(r.values()) for r in sql(log, "SELECT name, start_ns, dur_ns FROM compile_phases ORDER BY 2")] == [
        ("dynamo", second, 4 * second), ("backend_compile", 2 * second, 2 * second),
    ]  # fmt: skip


def test_graph_breaks_recompiles_and_kernels_by_hand(log: Path) -> None:
    [row] = sql(log, "SELECT reason, explanation, hint, file, line, function FROM graph_breaks")
    assert tuple(row.values()) == (
        "Failed to trace builtin operator", "Dynamo does not know how to trace `print`.", "Avoid calling `print`.",
        "/home/me/train.py", 14, "forward",
    )  # fmt: skip
    [row] = sql(log, "SELECT compile_id, failed_compile_id, guard FROM recompiles")
    assert tuple(row.values()) == ("0/1", "0/0", GUARD)
    kernels = sql(
        log,
        "SELECT kernel, kind, pass, graph, ops, list(line ORDER BY line) AS lines FROM compiled_kernels k"
        " JOIN compiled_lines l ON l.kernel_number = k.number GROUP BY ALL ORDER BY kernel DESC",
    )
    assert [tuple(row.values()) for row in kernels] == [
        ("triton_poi_fused_addmm_gelu_0", "triton", "forward", 3, "aten.addmm, aten.gelu", [13]),
        ("extern_kernels.mm", "library", "forward", 3, "aten.sum", [15]),
    ]


def test_attempts_and_recompilations_as_queries_show_them(log: Path) -> None:
    """The attempt that is compiled takes 4 s: 2 in the backend, of them 1.5 in Inductor, of them 0.9 for code, of them
    0.6 in Triton."""
    names = ("compile_id", "attempt", "pass", "outcome", "fx_cache", "aot_cache", "guards", "graph_ops", "graph_breaks")
    assert [tuple(r[name] for name in names) for r in ask(log, "compiles")] == [
        ("0/0", 0, "forward", "restarted", None, None, None, None, 1),
        ("0/0", 1, "forward", "compiled", "miss", "miss", 7, 3, 0),
        ("0/0", 1, "backward", "compiled", "hit", None, None, None, 0),
        ("0/1", 0, "forward", "failed", None, None, None, None, 0),
    ]  # fmt: skip
    [compiled] = [r for r in ask(log, "compiles") if r["attempt"] == 1 and r["pass"] == "forward"]
    phases = ("dur_ns", "dynamo_ns", "aot_ns", "inductor_ns", "codegen_ns", "triton_ns")
    assert [compiled[name] / 1e9 for name in phases] == [4, 2, 0.5, 0.6, 0.3, 0.6]
    [row] = ask(log, "recompiles")
    names = ("compile_id", "failed_compile_id", "guard", "guards_failed", "function", "where", "dur_ns", "backward_ns")
    assert [row[name] for name in names] == [
        "0/1", "0/0", GUARD, 1, "forward", "train.py:12 forward", 2_000_000_000, 0,
    ]  # fmt: skip


def test_a_frame_whose_versions_all_fail_a_guard(tmp_path: Path) -> None:
    """The third version of frame 0: torch says the guard of each, the latest first."""
    reasons = '["0/1: second guard", "0/0: first guard"]'
    path = tmp_path / "x.log"
    first, second, third = (
        record(dynamo_start={"stack": STACK}, compile_id=(0, n)) + metrics(n, 1, compile_id=(0, n)) for n in range(3)
    )
    path.write_text(STRINGS + first + second + artifact("recompile_reasons", reasons, compile_id=(0, 2)) + third)
    [row] = ask(path, "recompiles")
    names = ("compile_id", "failed_compile_id", "guard", "guards_failed")
    assert [row[name] for name in names] == ["0/2", "0/1", "second guard", 2]


def two_ranks(folder: Path, *logs: str) -> Path:
    """Write the logs of the ranks of a job."""
    (folder / "torch").mkdir()
    names = [f"torch/rank-{rank}.torch_trace.log" for rank in range(len(logs))]
    for name, log in zip(names, logs, strict=True):
        (folder / name).write_text(log)
    files = [(name, "torch_trace", rank) for rank, name in enumerate(names)]
    return write_run(folder, files, run_id="r", world_size=len(logs))


def test_graph_breaks_of_two_ranks(tmp_path: Path) -> None:
    """Both ranks break at train.py:14, rank 1 twice: in 0/0 and in 0/1."""

    def broken(*frames: tuple[int, int]) -> str:
        return STRINGS + "".join(
            record(dynamo_start={"stack": STACK}, compile_id=frame)
            + artifact("dynamo_graph_break_reason", BREAK, compile_id=frame) + metrics(1, 1, compile_id=frame)
            for frame in frames
        )  # fmt: skip

    [row] = ask(two_ranks(tmp_path, broken((0, 0)), broken((0, 0), (0, 1))), "graph-breaks")
    row.pop("run_id")
    assert row == {
        "where": "train.py:14 forward", "reason": "Failed to trace builtin operator",
        "explanation": "Dynamo does not know how to trace `print`.", "hint": "Avoid calling `print`.",
        "path": "train.py:40 <module> > train.py:14 forward", "breaks": 3, "ranks": 2, "compile_ids": "0/0, 0/1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({}, None),
        ({"co_name": "backward"}, "other frames"),
        ({"graph_op_count": 4}, "other graphs"),
        ({"fail_type": "Unsupported"}, "other outcomes"),
    ],
)
def test_what_two_ranks_compile_differently(tmp_path: Path, other: dict[str, Any], differs: str | None) -> None:
    """Rank 0 takes 5 us, rank 1 takes 9 us."""
    said: dict[str, Any] = {"co_name": "forward", "graph_op_count": 3, "has_guarded_code": True}
    start = STRINGS + record(dynamo_start={"stack": STACK})
    path = two_ranks(tmp_path, start + metrics(1, 5, **said), start + metrics(1, 9, **(said | other)))
    [row] = ask(path, "compile-skew")
    names = ("differs", "ranks", "missing", "min_ns", "max_ns", "slowest_rank")
    assert [row[name] for name in names] == [differs, "0, 1", None, 5000, 9000, 1]


def test_ids_that_begin_anew_are_other_compilations(tmp_path: Path) -> None:
    """After torch.compiler.reset(); and a program that is killed while it compiles."""
    once = record(dynamo_start={"stack": STACK}) + metrics(1, 1)
    path = tmp_path / "x.log"
    path.write_text(STRINGS + once + once + record(dynamo_start={"stack": STACK}, compile_id=(1, 0)))
    found = sql(path, "SELECT compilation, compile_id, outcome FROM compilations ORDER BY compilation")
    assert [tuple(r.values()) for r in found] == [
        (0, "0/0", "compiled"),
        (1, "0/0", "compiled"),
        (2, "1/0", "unfinished"),
    ]


@pytest.mark.parametrize(
    ("damage", "compilations", "lost"),
    [
        (LOG.replace('"compilation_metrics": {', '"compilation_metrics": ', 1), 4, "its JSON is damaged"),
        (LOG + "Segmentation fault\n", 4, "no record of torch's log"),
        (
            LOG + PREFIX + '{"compilation_metrics": 7}\n',
            4,
            "dropped records, in which a value is missing or cannot be: 1",
        ),
        (LOG + PREFIX + '{"a": ' + "[" * 200_000 + "\n", 4, "its JSON is damaged"),
        (LOG + artifact("recompile_reasons", "[7]"), 4, "dropped records, in which a value is missing or cannot be: 1"),
        (
            LOG.replace("builtin print", "builtin ***"),
            4,
            "not what torch wrote (their MD5 differs), but edited or damaged: 1;",
        ),
        (LOG.replace("\n", "\r\n"), 4, None),
        (LOG[: len(LOG) // 2], 2, "no record of torch's log|not what torch wrote"),
    ],
    ids=["json", "other text", "no metrics", "nested", "no reason", "edited", "CRLF", "cut"],
)
def test_damage_gives_a_warning(tmp_path: Path, damage: str, compilations: int, lost: str | None) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(damage.encode())
    found = len(sql(path, "SELECT 1 FROM compilations"))
    [(warnings,)] = [tuple(r.values()) for r in sql(path, "SELECT warnings FROM runs")]
    assert found == compilations
    if lost is None:
        assert not warnings
    else:
        assert any(text in warnings for text in lost.split("|"))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("V1126 some other log] {}\n")
    done = run_cli("query", "compiled", str(path))
    assert done.returncode == 2 and "unknown format" in done.stderr
