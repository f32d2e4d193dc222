"""`collect run` keeps what torch logs of torch.compile (TORCH_TRACE), without secrets."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest
from collect_support import Collect
from support import sql

from collect.option_checks import make_options
from collect.profilers.torch_profiler import TorchProfiler

PROGRAM = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(backend="eager", dynamic=False)
def net(x):
    return model(x)
for step in range(6):
    net(torch.ones(5 if step == 4 else 4, 8)).sum().backward()  # %s
    optimizer.step()
"""
SECRET = "hunter2-hunter2"


def test_log_of_a_compiled_program(collect: Collect, tmp_path: Path) -> None:
    """One batch of another size: the frame is compiled twice. A token in the source of the program is in the log."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("%s", SECRET))
    asked = ["--steps", "2", "--warmup", "1", "--undisturbed", "0"]
    ran = collect(*asked, "--", sys.executable, str(program), MY_TOKEN=SECRET)
    assert ran.code == 0, ran.stderr
    [done] = ran.manifest.passes
    assert [(f.path, f.rank) for f in done.files if f.kind == "torch_trace"] == [("torch/rank-0.torch_trace.log.gz", 0)]
    log = gzip.decompress((ran.folder / "torch/rank-0.torch_trace.log.gz").read_bytes()).decode()
    assert '"dynamo_start"' in log and SECRET not in log
    found = sql(ran.folder, "SELECT compile_id, pass, outcome FROM compilations WHERE function = 'net' ORDER BY 1")
    assert [tuple(row.values()) for row in found] == [("0/0", "forward", "compiled"), ("0/1", "forward", "compiled")]
    [guard] = sql(ran.folder, "SELECT compile_id, failed_compile_id, guard FROM recompiles")
    assert tuple(guard.values())[:2] == ("0/1", "0/0") and guard["guard"].endswith("expected 4, actual 5")
    assert not [p for p in ran.folder.rglob("*") if p.name.startswith("process-")]


def test_when_the_log_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, but not in a job of days, nor where the user has the log elsewhere."""

    def is_on(**options: object) -> object:
        return TorchProfiler(make_options({"program": ["python", "x.py"], **options})).settings()["compile_log"]

    monkeypatch.delenv("TORCH_TRACE", raising=False)
    assert is_on() and not is_on(compile_log=False) and not is_on(on_demand=True)
    monkeypatch.setenv("TORCH_TRACE", "/elsewhere")
    assert not is_on()
