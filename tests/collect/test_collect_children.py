"""Child processes of a recorded program, by fork and by multiprocessing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from collect_support import Collect, names, read_trace, wait_for

FORKS = """
import os, sys, time, torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
torch.ones(3) + 1
child = os.fork()
if not child:
    before = resident()
    for _ in range(30_000):
        torch.ones(3)
    sys.stdout.write(f"grown by {(resident() - before) >> 20} MB;")
    sys.exit(7)
for _ in range(300):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        print("ended with", os.waitstatus_to_exitcode(status))
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
"""
CHILD_PROFILES = """
import os, torch
torch.zeros(3)
child = os.fork()
if not child:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        torch.ones(3)
    print("theirs:", sum(row.count for row in p.key_averages() if row.key == "aten::ones"), flush=True)
    os._exit(0)
print("ended with", os.waitpid(child, 0)[1])
torch.zeros(3)
"""
SPAWNS = """
import json, multiprocessing, sys, torch
from torch.utils.data import DataLoader
def is_recorded(_):
    return torch._C._autograd._profiler_enabled()
def train(told):
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        told.put(is_recorded(None))
if __name__ == "__main__":
    loaders = [
        DataLoader(range(1), collate_fn=is_recorded, num_workers=1, multiprocessing_context=method)
        for method in ("spawn", "forkserver")
    ]
    context = multiprocessing.get_context("forkserver")
    told = context.Queue()
    trainer = context.Process(target=train, args=(told,))
    trainer.start()
    print(json.dumps([[*loaders[0], *loaders[1]], [told.get() for _ in range(4)]]))
    trainer.join()
"""


def test_forked_child_ends_and_does_not_grow(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    ran = collect("--warmup", "0", "--stacks", "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    log = (ran.folder / "torch/log.txt").read_text()
    assert "ended with 7" in log
    assert int(log.partition("grown by ")[2].partition(" ")[0]) < 30
    # One process was recorded: 30,000 operators of its child are not in the trace.
    assert [f.path for f in ran.manifest.passes[0].files if f.kind == "chrome_trace"] == ["torch/rank-0.trace.json.gz"]
    assert names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::ones") == 1


def test_workers_are_not_recorded_and_ranks_are(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNS)
    options = ["--warmup", "0", "--steps", "2", "--detail", "light"]
    ran = collect(*options, "--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    log = (ran.folder / "torch/log.txt").read_text()
    said = next(line for line in log.splitlines() if line.startswith("[["))
    assert json.loads(said) == [[False, False], [True, True, False, False]]
    assert [r.counted_steps for r in ran.manifest.passes[0].ranks if r.counted_steps] == [2]


def test_forked_child_with_its_own_profiler(collect: Collect, tmp_path: Path) -> None:
    """It is none of the recorded process's, whose recording goes on."""
    program = tmp_path / "program.py"
    program.write_text(CHILD_PROFILES)
    ran = collect("--warmup", "0", "--", sys.executable, str(program))
    assert ran.code == 0 and "theirs: 1" in ran.stdout and "ended with 0" in ran.stdout, ran.stderr
    assert names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op").count("aten::zeros") == 2


PICKLES = """
import cloudpickle, os, subprocess, sys, torch
class Mine(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
model = torch.nn.Linear(2, 2)
optimizer = Mine(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
# As in a worker of Ray, dask or submitit on a machine without collect.
variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRACEQUARRY_ATTACH")}
reads = "import pickle, sys; pickle.load(sys.stdin.buffer).step(); print('stepped elsewhere', flush=True)"
subprocess.run([sys.executable, "-c", reads], input=cloudpickle.dumps(optimizer), env=variables, check=True)
"""


def test_optimizer_of_main_can_be_pickled(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PICKLES)
    ran = collect("--warmup", "1", "--steps", "1", "--", sys.executable, str(program))
    assert ran.code == 0 and ran.stdout == "stepped elsewhere\n", ran.stderr
    assert ran.manifest.passes[0].counted_steps == 1


LEAVES = """
import subprocess, sys, torch
torch.ones(3)
text = "import sys, time, torch; torch.ones(3); open(sys.argv[1] + '/began', 'w')\\n"
wait = "import os\\nwhile not os.path.exists(sys.argv[1] + '/may end'): time.sleep(0.05)\\n"
subprocess.Popen([sys.executable, "-c", text + wait, sys.argv[1]])
import os, time
while not os.path.exists(sys.argv[1] + "/began"):
    time.sleep(0.05)
"""


def test_process_that_is_left_behind_is_named_and_writes_nothing(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LEAVES)
    ran = collect("--no-echo", "--", sys.executable, str(program), str(tmp_path))
    assert ran.code == 0 and "note: torch: processes that the program left behind run on, unrecorded: " in ran.stderr
    files = sorted(path.name for path in ran.folder.rglob("*"))
    command = Path("/proc") / ran.stderr.partition("unrecorded: ")[2].split()[0] / "cmdline"
    assert command.read_bytes()
    (tmp_path / "may end").touch()
    wait_for(lambda: not command.exists() or not command.read_bytes(), "the process")
    assert sorted(path.name for path in ran.folder.rglob("*")) == files
