"""What the collector and both sides' declarations can be extended by costs one field, one module or one table.

Each case adds one to a copy of the packages and asks everything that derives from it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collect_support import ROOT, environment

from collect.option_checks import all_options
from collect.options import RunOptions
from collect.profilers import PROFILERS
from collect.workload.model import OPTIMIZERS
from schemas.option_declaration import declared


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages, to change."""
    for package in ("analyze", "collect", "schemas"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def ask(copy: Path, code: str) -> list[str]:
    """Lines that a program prints that imports the copy."""
    extra = {"PYTHONPATH": str(copy), "COLUMNS": "200", "TRACEQUARRY_CACHE": str(copy / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=copy, env=environment() | extra, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def insert(file: Path, before: str, text: str) -> None:
    old = file.read_text()
    assert old.count(before) == 1
    file.write_text(old.replace(before, text + before))


def test_declarations_are_consistent() -> None:
    structs: list[type[Any]] = [RunOptions, *(p.Options for p in PROFILERS.values())]
    names = [name for struct in structs for name in declared(struct)]
    assert sorted(names) == sorted(all_options()), "an option's name is taken twice"
    assert set(all_options()["optimizer"].choices) == set(OPTIMIZERS)


OPTION = """\
    ghost_batch: Annotated[
        int, Option("Images normalized together.", WORKLOAD, least=2, column=RunColumn("images normalized together"))
    ] = 32
"""
ASK_OPTION = """
import json
from pathlib import Path
from typing import Any
from typer.testing import CliRunner
import analyze
from collect.option_checks import make_options
from collect.cli import app
from schemas.errors import InputError
from schemas.manifest import Manifest, Pass, RunFile, read_manifest, write_manifest
from schemas.workload import recorded

print("help:", "--ghost-batch" in CliRunner().invoke(app, ["run", "--help"]).output)
for label, value in (("plan: ", "two"), ("plan: ", 1)):
    try:
        make_options({"model": "alexnet", "ghost_batch": value}, lambda key: label + key)
    except InputError as e:
        print(e)
files = [RunFile(path="t.json", kind="chrome_trace", rank=0)]
step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
for name, more in (("a", {}), ("b", {"ghost_batch": 16}), ("c", {"seed": 7})):
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [step]}))
    workload = recorded(make_options({"model": "alexnet", **more}))
    one = Pass(profiler="torch", status="done", files=files)
    write_manifest(folder, Manifest(run_id=name, start="", command=[], passes=[one], workload=workload))
print(json.loads(Path("runs/b/run.json").read_text())["workload"]["ghost_batch"])
traces = analyze.open("runs")
print(traces.sql("SELECT ghost_batch FROM runs ORDER BY run_id").arrow().column(0).to_pylist())
# Runs that differ in their seed are of one workload, runs that differ in the new option are not.
print(sorted(traces.query("scaling").arrow().column("runs").to_pylist()))
"""


def test_workload_option_needs_one_field(copy: Path) -> None:
    insert(copy / "schemas" / "workload.py", "    seed: Annotated[", OPTION)
    assert ask(copy, ASK_OPTION) == [
        "help: True",
        "plan: ghost_batch: invalid value 'two'; expected a whole number",
        "plan: ghost_batch: 1 is below the minimum of 2",
        "16",
        "[32, 16, 32]",
        "[1, 2]",
    ]


PROFILER = """
from typing import Annotated
import msgspec
from collect.profilers.base import Profiler
from schemas.option_declaration import Option
from schemas.tools import Tool

class StraceOptions(msgspec.Struct, frozen=True, kw_only=True):
    strace_calls: Annotated[str, Option("System calls.", "strace")] = "all"

class StraceProfiler(Profiler[StraceOptions]):
    name = "strace"
    Options = StraceOptions
    tool = Tool("strace-of-a-test", "strace", "https://strace.io", "STRACE")
    kinds = {".strace": "strace_log"}

    def wrap(self, argv, folder):
        (folder / "all.strace").write_text(self.own.strace_calls)
        return argv

PROFILER = StraceProfiler
"""
ASK_PROFILER = """
import sys
from pathlib import Path
from typing import Any
from typer.testing import CliRunner
from collect.cli import app
from collect.doctor import run_checks
from schemas.manifest import read_manifest

text = CliRunner().invoke(app, ["run", "--help"]).output
print("help:", "--strace-calls" in text, "nsys, strace or torch; several" in text)
asked = ["run", "-o", "runs", "--profiler", "strace", "--strace-calls", "open", "--", sys.executable, "-c", ""]
assert CliRunner().invoke(app, asked).exit_code == 0
[folder] = Path("runs").iterdir()
(done,) = read_manifest(folder).passes
print(done.profiler, done.status, [(f.path, f.kind) for f in done.files], (folder / "strace/all.strace").read_text())
sys.modules |= dict.fromkeys(("torch", "torchvision"))  # as if they were not there: to import them takes 4 s of CPU
print([(c.status, c.fix) for c in run_checks(Path()) if c.name == "strace-of-a-test"])
"""


def test_profiler_needs_one_module(copy: Path) -> None:
    (copy / "collect" / "profilers" / "strace.py").write_text(PROFILER)
    assert ask(copy, ASK_PROFILER) == [
        "help: True True",
        "strace done [('strace/all.strace', 'strace_log'), ('strace/log.txt', 'log')] open",
        "[('missing', 'install strace: https://strace.io')]",
    ]


def test_device_and_kernel_family_need_one_toml_table_each(copy: Path) -> None:
    for name, table in (
        (
            "devices.toml",
            '[[device]]\nname = "Abacus"\nmatch = "Abacus 1"\nsource = "its box"\ncompute_capability = "1.0"\n'
            "sm_count = 10\nmemory_gb = 1\ndram_gb_per_s = 2\nfp32_tflops = 3\n\n",
        ),
        ("kernel_rules.toml", "[[family]]\nfamily = 'tea'\nmatch = ['^brew_']\nexample = ['brew_oolong']\n\n"),
    ):
        file = copy / "schemas" / name
        head, mark, rest = file.read_text().partition("[[")
        file.write_text(head + table + mark + rest)
    code = (
        "from analyze.plots.theme import colours\nfrom schemas.devices import lookup\n"
        "from schemas.kernel_rules import classify\n"
        "print(lookup('NVIDIA Abacus 1').fp32_tflops, classify('brew_oolong(int)').family)\n"
        "print(len(set(colours(['gemm', 'tea', 'other'])['range'])))"
    )
    assert ask(copy, code) == ["3 tea", "3"]


def test_documented_profiler_and_option_are_in_the_help(copy: Path) -> None:
    """CONTRIBUTING.md shows them; the imports of the profiler are left out there."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    profiler, option = (
        re.findall(rf"^## {heading}\n.*?^```python\n(.*?)^```$", text, re.M | re.S)[0]
        for heading in ("Add a profiler to collect with", "Add a workload option")
    )
    imports = PROFILER.partition("class ")[0] + "from pathlib import Path\n\n"
    (copy / "collect" / "profilers" / "strace.py").write_text(imports + profiler)
    insert(copy / "schemas" / "workload.py", "    seed: Annotated[", option)
    code = (
        "from typer.testing import CliRunner\nfrom collect.cli import app\n"
        "text = CliRunner().invoke(app, ['run', '--help']).output\n"
        "print('--strace-calls' in text, '--label-smoothing' in text)\n"
    )
    assert ask(copy, code) == ["True True"]
