"""CONTRIBUTING.md is true: what it shows for each kind of addition is added to a copy of the package, and works.

Options of the workload, profilers, devices and kernel families are added in tests/collect/test_collect_one_place.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from traces import kernel, write_trace

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def shown(heading: str) -> list[str]:
    """The code that a section shows."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    assert section, heading
    return re.findall(r"^```\w+\n(.*?)^```$", section[1], re.M | re.S)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("analyze", "schemas"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def analyze(copy: Path, *commands: list[str]) -> list[tuple[str, str, int]]:
    """What the copy's `analyze` prints, says on stderr and ends with, of each command; one process does all."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import contextlib, io, json\nfrom analyze.cli.main import main\n"
        "done = []\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    sys.argv, out, err, code = ['analyze', *arguments], io.StringIO(), io.StringIO(), 0\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n"
        "        try: main()\n        except SystemExit as e: code = e.code or 0\n"
        "    done.append((out.getvalue(), err.getvalue(), code))\n"
        "print(json.dumps(done))"
    )
    asked = [sys.executable, "-P", "-c", code, json.dumps(commands)]
    ran = subprocess.run(asked, cwd=copy, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [(out, err, code) for out, err, code in json.loads(ran.stdout)]


def test_examples_have_fewer_than_20_lines() -> None:
    headings = re.findall(r"^## (Add .*)$", TEXT, re.M)
    assert headings == [
        "Add a query", "Add an SQL module", "Add a source", "Add a derived table", "Add a kernel family",
        "Add a device", "Add a profiler to collect with", "Add a workload option", "Add a figure",
    ]  # fmt: skip
    for heading in headings:
        blocks = shown(heading)
        assert blocks and all(block.count("\n") < 20 for block in blocks), heading


def test_query_module_and_figure_need_one_file_each(copy: Path) -> None:
    queries = copy / "analyze/queries"
    (queries / "gpu/longest-kernel.sql").write_text(shown("Add a query")[0])
    (queries / "modules/longest_runs.sql").write_text(shown("Add an SQL module")[0])
    head = (
        "from __future__ import annotations\n\nfrom collections.abc import Mapping\n\n"
        "from analyze.plots.figure import Figure, Rows, RunQuery\n\n"
    )
    (copy / "analyze/plots/kinds/stems.py").write_text(head + shown("Add a figure")[0])
    trace = str(write_trace(copy / "t.json", [kernel("a", 0, 3), kernel("a", 10, 7), kernel("b", 20, 5)]))
    done = analyze(
        copy,
        ["query", "longest-kernel", trace, "--format", "json"],
        ["query"],
        ["tables", "--modules"],
        ["plot", "longest-kernel", trace, "-o", "stems.svg"],
    )
    assert [code for _, _, code in done] == [0] * 4, done
    answered, queries, blocks, _ = (out for out, _, _ in done)
    assert json.loads(answered) == [{"name": "a", "longest_ns": 7000}, {"name": "b", "longest_ns": 5000}]
    assert "How long is the longest kernel?" in queries and "longest_runs" in blocks
    assert (copy / "stems.svg").read_text().count('aria-roledescription="rule mark"') == 2


def test_source_needs_one_module(copy: Path) -> None:
    [module] = shown("Add a source")
    imports = (
        "from __future__ import annotations\n\n"
        "import re\nfrom collections.abc import Iterator\nfrom pathlib import Path\n\n"
        "from analyze.errors import InputError\n"
        "from analyze.sources.interface import FileReport, Source, TableBatch, row_batches\n\n"
    )
    (copy / "analyze/sources/kernel_log.py").write_text(imports + module)
    (copy / "a.kernels").write_text("gemm,100,20\nrelu,150,5\n")
    (copy / "b.kernels").write_text("gemm,100\n")
    (answered, said, code), (_, failed, failed_code) = analyze(
        copy,
        ["query", "kernel-share", "a.kernels", "--format", "json", "--select", "name,total_ns"],
        ["query", "kernel-share", "b.kernels"],
    )
    assert code == 0, said
    assert json.loads(answered) == [{"name": "gemm", "total_ns": 20}, {"name": "relu", "total_ns": 5}]
    assert failed_code == 2 and "b.kernels: not a log of kernels" in failed


def test_derived_table_needs_one_module(copy: Path) -> None:
    [module] = shown("Add a derived table")
    imports = (
        "from __future__ import annotations\n\nfrom collections.abc import Mapping\n\nimport pyarrow as pa\n\n"
        "from analyze.derive.interface import Derived\nfrom schemas.table_declaration import declare_table\n\n"
    )
    (copy / "analyze/derive/stream_work.py").write_text(imports + module)
    (copy / "analyze/queries/gpu/stream-work.sql").write_text(
        "-- How many kernels has each stream?\n--\n"
        "-- @column stream index  Stream.\n-- @column kernels count  Kernels.\n"
        "-- @order stream\nSELECT run_group, stream, kernels FROM stream_work\n"
    )
    events = [kernel("a", 0, 3, stream=7), kernel("b", 10, 7, stream=7), kernel("c", 20, 5, stream=9)]
    trace = str(write_trace(copy / "t.json", events))
    [(answered, said, code)] = analyze(copy, ["query", "stream-work", trace, "--format", "json"])
    assert code == 0, said
    assert json.loads(answered) == [{"stream": 7, "kernels": 2}, {"stream": 9, "kernels": 1}]
