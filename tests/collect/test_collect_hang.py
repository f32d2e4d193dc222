"""A job that hangs: Ctrl-C leaves dumps of the flight recorder in its run folder."""

from __future__ import annotations

import sys
from pathlib import Path

from collect_support import ROOT, interrupt, start, wait_for

import analyze
from schemas.manifest import read_manifest

SAMPLE = ROOT / "sample_traces" / "hang-missing"
# NCCL needs GPUs: gloo hangs in its place, and the dumps are those of four GPUs that hang in the same way.
PROGRAM = f"""
import os, pathlib, subprocess, sys, time
if len(sys.argv) == 1:
    ranks = [subprocess.Popen([sys.executable, __file__, rank]) for rank in "01"]
    try:
        time.sleep(120)
    except KeyboardInterrupt:
        sys.exit(max(abs(child.wait()) for child in ranks))
import torch, torch.distributed as dist
rank, here = int(sys.argv[1]), pathlib.Path(__file__).parent
dist.init_process_group("gloo", init_method=f"file://{{here}}/store", rank=rank, world_size=2)
dump = pathlib.Path("{SAMPLE}", f"nccl_trace_rank_{{rank * 2}}")
torch._C._distributed_c10d._dump_nccl_trace = dump.read_bytes
torch.nn.Linear(2, 2)(torch.ones(2, 2))
(here / f"prefix-{{rank}}").write_text(os.environ["TORCH_FR_DUMP_TEMP_FILE"])
if rank == 0:
    dist.all_reduce(torch.ones(4))
time.sleep(120)
"""


def test_interrupted_job_leaves_dumps(tmp_path: Path) -> None:
    """Rank 0 waits in C++ for rank 1, which runs Python code."""
    script, runs = tmp_path / "train.py", tmp_path / "runs"
    script.write_text(PROGRAM)
    child = start("run", "-o", str(runs), "--", sys.executable, str(script))
    prefixes = [tmp_path / f"prefix-{rank}" for rank in (0, 1)]
    wait_for(lambda: all(p.exists() and p.read_text() for p in prefixes), "both ranks")
    code, _, stderr = interrupt(child)
    [folder] = runs.iterdir()
    assert {p.read_text() for p in prefixes} == {str(folder / "torch" / "nccl_trace_rank_")}
    assert code == 130 and "`analyze query hang` says which rank waits for which" in stderr
    files = [f for f in read_manifest(folder).passes[0].files if f.kind == "flight_recorder"]
    assert [(f.path, f.rank) for f in files] == [(f"torch/nccl_trace_rank_{rank}", rank) for rank in (0, 1)]
    # Rank 1 has the dump of the rank that did not call the third all_reduce; ranks 2 and 3 ran elsewhere.
    found = {(r["rank"], r["status"]) for r in analyze.open(folder).query("hang").dicts()}
    assert found == {(0, "waiting"), (1, "missing"), (2, "no dump"), (3, "no dump")}


def test_prefix_of_the_user_stays(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch\ntorch.nn.Linear(2, 2)(torch.ones(2, 2))\nprint(os.environ['TORCH_FR_DUMP_TEMP_FILE'])\n"
    )
    command = ["run", "-o", str(tmp_path / "runs"), "--", sys.executable, str(script)]
    child = start(*command, TORCH_FR_DUMP_TEMP_FILE="/mine/rank_")
    stdout, stderr = child.communicate(timeout=120)
    assert (child.returncode, stdout) == (0, "/mine/rank_\n"), stderr
