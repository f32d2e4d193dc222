"""When a recording of a user's program starts and ends, if not all training is in the main thread."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collect_support import Collect, Ran, environment, names, read_trace

from collect.injected import torch_internals
from collect.injected.torch_internals import INTERNALS

TRAIN = """
import sys, threading, torch
from torch.profiler import profile, ProfilerActivity
def own():
    return profile(activities=[ProfilerActivity.CPU])
def train(steps, at={}):
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        at.get(step, int)()
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
def counted(profiler, key="aten::addmm"):
    return sum(row.count for row in profiler.key_averages() if row.key == key)
"""
ASKED = ["--warmup", "3", "--steps", "3", "--undisturbed", "0"]
WATCHES = """
import os, torch
from collect.injected.first_use import FirstUse
said = []
"""


def python(text: str) -> str:
    """What a program prints; it sees no GPU, which to compile a function would begin to use."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_internal_that_torch_lacks_is_a_sentence() -> None:
    told = python(
        "import torch\n"
        "from collect.injected.torch_internals import find, missing\n"
        "del torch._C._current_graph_task_id, torch.optim.Optimizer.profile_hook_step\n"
        "print(find('torch._C._current_graph_task_id'), *missing(), sep='\\n')\n"
    )
    absent, *sentences = told.splitlines()
    assert (absent, len(sentences)) == ("None", 2)
    assert sentences[0].endswith("has no torch.optim.Optimizer.profile_hook_step: steps of optimizers are not counted")


def test_private_names_of_torch_are_listed() -> None:
    """What the recorder takes of torch that has no stable name is in INTERNALS; the other private names are its own."""
    listed = {path.rpartition(".")[2] for path in INTERNALS}
    used, own = set(), {"_exit"}  # os._exit
    for source in Path(torch_internals.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                used.add(node.attr)
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    own.add(node.attr)
            elif isinstance(node, ast.FunctionDef):
                own.add(node.name)
    assert {"_has_any_global_hook", "_lazy_init"} <= listed & used
    assert used <= listed | own


def test_first_use_of_cuda() -> None:
    """torch's own start of CUDA is replaced, since there may be no GPU; test_collect_gpu_programs needs one."""
    told = python(
        WATCHES
        + "def lazy_init():\n    torch.cuda._initialized = True\n"
        + "torch.cuda._lazy_init = lazy_init\n"
        + "FirstUse(lambda: said.append(torch.cuda.is_initialized()))\n"
        + "before = list(said)\n"
        + "torch.cuda.init()\ntorch.cuda.init()\n"
        + "print(before, said, torch.cuda._lazy_init is lazy_init)\n"
    )
    assert told == "[] [True] True"


def test_first_module_is_a_first_use() -> None:
    """Not one that torch.compile reads, whose graph stays whole; nor one of a child that was forked before."""
    told = python(
        WATCHES
        + "FirstUse(lambda: said.append(os.getpid())).watch_modules()\n"
        + "module = torch.nn.Linear(2, 2)\n"
        + "compiled = torch.compile(lambda x: module(x), fullgraph=True, backend='eager')\n"
        + "compiled(torch.ones(1, 2))\nprint(said)\n"
        + "child = os.fork()\n"
        + "if not child:\n    module(torch.ones(1, 2))\n    os._exit(len(said))\n"
        + "print(os.waitpid(child, 0)[1])\n"
        + "module(torch.ones(1, 2))\nmodule(torch.ones(1, 2))\nprint(said == [os.getpid()])\n"
        + "print(len(torch.nn.modules.module._global_forward_pre_hooks))\n"
    )
    assert told.splitlines() == ["[]", "0", "True", "0"]


def test_data_loader_is_not_a_first_use() -> None:
    told = python(
        WATCHES
        + "class Data(torch.utils.data.Dataset):\n"
        + "    def __len__(self): return 1\n"
        + "    def __getitem__(self, i):\n"
        + "        use.notify()\n"
        + "        return len(said)\n"
        + "use = FirstUse(lambda: said.append(1))\n"
        + "print([int(x) for x in torch.utils.data.DataLoader(Data(), num_workers=1)])\n"
        + "use.notify()\nprint(said)\n"
    )
    assert told.splitlines() == ["[0]", "[1]"]


def assert_recorded(ran: Ran) -> dict[str, Any]:
    """The steps that are ASKED for are in the trace, which is returned."""
    assert ran.code == 0, ran.stderr
    trace = read_trace(ran.folder / "torch/rank-0.trace.json.gz")
    steps = sorted(n for n in names(trace, "user_annotation") if n.startswith("ProfilerStep"))
    assert steps == ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]
    return trace


def test_training_in_a_thread(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TRAIN + "t = threading.Thread(target=train, args=(7,))\nt.start()\nt.join()\nprint('through')\n")
    ran = collect(*ASKED, "--", sys.executable, str(program))
    assert_recorded(ran)
    # Memory is recorded of one thread alone, and steps are: torch crashes when it stops in another, or not at all. The
    # second program ends within its recorded steps, the third one before the first of them has ended.
    for steps, *option in ((7, "--memory"), (5, "--stacks"), (3,)):
        cut = tmp_path / f"{steps}.py"
        cut.write_text(program.read_text().replace("(7,)", f"({steps},)"))
        output = tmp_path / f"{steps} steps"
        ran = collect(*ASKED, *map(str, option), "--", sys.executable, str(cut), output=output)
        assert ran.code == 1 and "through" in ran.stdout and ran.manifest.passes[0].exit_code == 0
        assert "steps its optimizer outside its main thread" in (ran.manifest.reason or "")


def test_operators_of_all_threads(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    text = "t = threading.Thread(target=lambda: torch.ones(3))\nt.start()\nt.join()\ntorch.zeros(3)\n"
    program.write_text(TRAIN + text)
    ran = collect("--", sys.executable, str(program))
    assert ran.code == 0, ran.stderr
    called = names(read_trace(ran.folder / "torch/rank-0.trace.json.gz"), "cpu_op")
    assert called.count("aten::ones") == called.count("aten::zeros") == 1


def test_steps_are_counted_across_trainings(collect: Collect, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TRAIN + "for fold in range(4):\n    train(2)\n")
    ran = collect(*ASKED, "--", sys.executable, str(program))
    assert_recorded(ran)


def test_optimizers_that_step_in_the_backward_pass(collect: Collect, tmp_path: Path) -> None:
    """As in https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html; the last step
    to record is the program's last."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))\n"
        "optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}\n"
        "for p in optimizers:\n"
        "    p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step() or optimizers[p].zero_grad())\n"
        "for step in range(6):\n"
        "    model(torch.randn(2, 8)).sum().backward()\n"
    )
    ran = collect(*ASKED, "--", sys.executable, str(program))
    trace = assert_recorded(ran)
    assert ran.manifest.passes[0].counted_steps == 3
    called = names(trace, "cpu_op")
    assert called.count("aten::addmm") == 3 * 2 and called.count("AddmmBackward0") == 3 * 2
    ranges = names(trace, "user_annotation")
    assert ranges.count("Optimizer.step#SGD.step") == 3 * 4


OWN_PROFILERS = {
    "before and after the training": (
        "with own() as p:\n    train(1)\ntrain(7)\nwith own() as q:\n    train(2)\n"
        "print('theirs:', counted(p) + counted(q))", 3, True,
    ),
    "around the first step": (
        "p = own()\ntrain(7, {0: p.start, 1: p.stop})\nprint('theirs:', counted(p))", 1, True,
    ),
    "in the recorded steps": (
        "p = own()\ntrain(8, {4: p.start, 6: p.stop})\nprint('theirs:', counted(p))", 2, False,
    ),
}  # fmt: skip
"""What a program does, how many products its own profiler has to see, and whether there is room for ours."""


@pytest.mark.parametrize("case", OWN_PROFILERS)
def test_program_with_its_own_profiler(case: str, collect: Collect, tmp_path: Path) -> None:
    text, theirs, is_recorded = OWN_PROFILERS[case]
    program = tmp_path / "program.py"
    program.write_text(TRAIN + text + "\n")
    ran = collect(*ASKED, "--", sys.executable, str(program))
    # The program never notices: its own profiler sees what it would see alone, and it ends well.
    assert f"theirs: {theirs}" in ran.stdout and ran.manifest.passes[0].exit_code == 0
    if is_recorded:
        assert_recorded(ran)
    else:
        assert ran.code == 1
        assert "the program runs a torch.profiler of its own" in (ran.manifest.reason or "")
