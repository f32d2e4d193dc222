"""Who may import whom, and that nothing is declared that is not there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

FORBIDDEN = {
    "collect": {"analyze"},
    "analyze": {"collect", "torch", "torchvision"},
    "schemas": {"analyze", "collect", "torch"},
}
FILES = [p for package in FORBIDDEN for p in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports(path: Path) -> None:
    forbidden = FORBIDDEN[path.relative_to(ROOT).parts[0]]
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        assert not {n.split(".")[0] for n in names} & forbidden


def test_analyze_works_without_torch() -> None:
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'torchvision', 'collect'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import analyze; print(analyze.open('sample_traces/vgg16-fp32').query('winograd-share').num_rows)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout == "1\n", result.stderr


def test_samples_stay_small() -> None:
    assert sum(p.stat().st_size for p in (ROOT / "sample_traces").rglob("*")) < 6_000_000


def test_sql_lines_are_short() -> None:
    files = sorted((ROOT / "analyze").rglob("*.sql"))
    lines = [(p, number, line) for p in files for number, line in enumerate(p.read_text().splitlines(), 1)]
    assert lines
    assert [f"{p.relative_to(ROOT)}:{number}" for p, number, line in lines if len(line) > 120] == []
