"""Which package may import which, and that documented packages exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support import ROOT

import analyze

FORBIDDEN = {
    "collect": {"analyze"},
    "analyze": {"collect", "torch", "torchvision"},
    "schemas": {"analyze", "collect", "torch"},
}
FILES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for package in FORBIDDEN
    for p in sorted((ROOT / package).rglob("*.py"))
}

LAYERS = (
    ("analyze.browser", "analyze.cpus", "analyze.errors", "analyze.shell", "analyze.atomic_output"),
    ("analyze.derive",),
    ("analyze.stored_tables",),
    ("analyze.sources",),
    ("analyze.store",),
    ("analyze.ingestion",),
    ("analyze.query",),
    ("analyze.verdict",),
    (
        "analyze.advise",
        "analyze.baseline_folder",
        "analyze.comment",
        "analyze.comparison",
        "analyze.finding_files",
        "analyze.flame",
        "analyze.health",
        "analyze.pivot",
        "analyze.plots",
        "analyze.render",
        "analyze.summary",
        "analyze.trace",
    ),
    ("analyze.info", "analyze.notebook", "analyze.query_functions", "analyze.report"),
    ("analyze.serve",),
    ("analyze.traces",),
    ("analyze",),
    ("analyze.agents", "analyze.demo", "analyze.doctor"),
    ("analyze.cli",),
    ("analyze.__main__",),
)
"""The packages of `analyze`, lowest layer first: a module imports only from its own layer and lower ones."""


def layer_of(module: str) -> int:
    """The layer of a module: that of its longest prefix."""
    found = [
        (len(package), number)
        for number, packages in enumerate(LAYERS)
        for package in packages
        if f"{module}.".startswith(f"{package}.")
    ]
    return max(found)[1]


@cache
def imports(path: Path) -> set[str]:
    """What a file imports, wherever it does: under TYPE_CHECKING and in functions, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = {f"{module}.{a.name}" for a in node.names}
            found |= {name if name in FILES else module for name in names}
    return found


@cache
def import_graph() -> dict[str, set[str]]:
    """What each module imports of the others."""
    return {module: imports(path) & FILES.keys() for module, path in FILES.items()}


@pytest.mark.parametrize("module", FILES)
def test_packages_import_only_what_they_may(module: str) -> None:
    assert not {n.split(".")[0] for n in imports(FILES[module])} & FORBIDDEN[module.split(".")[0]]


def test_injected_code_needs_the_standard_library_and_torch_only() -> None:
    """It runs in the user's program, whose Python may have nothing else, and imports torch only once that has."""
    files = sorted((ROOT / "collect/injected").rglob("*.py"))
    assert len(files) > 10
    for path in files:
        names = {n.split(".")[0] for n in imports(path) if not n.startswith("collect.injected.")}
        # cupti-python needs NumPy, and is used where it is installed.
        optional = {"cupti", "numpy"} if path.stem == "gpu_activities" else set()
        assert names - sys.stdlib_module_names <= {"torch"} | optional, path
        first = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)]
        names = {getattr(n, "module", None) or a.name for n in first if not getattr(n, "level", 0) for a in n.names}
        assert "torch" not in {n.split(".")[0] for n in names}, path


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next, and the last the first; empty if there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return list(e.args[1])
    return []


def test_no_import_cycles() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert cycle(import_graph()) == []


def test_nothing_is_imported_from_a_higher_layer() -> None:
    layers = {m: layer_of(m) for m in FILES if m.split(".")[0] == "analyze"}
    assert layers["analyze.sources.chrome.reader"] < layers["analyze.ingestion.ingest"] < layers["analyze.query.engine"]
    known = {package for layer in LAYERS for package in layer} - {"analyze"}
    assert [m for m in layers if m != "analyze" and ".".join(m.split(".")[:2]) not in known] == [], "in no layer"
    higher = [(m, n) for m in layers for n in sorted(import_graph()[m]) if n in layers and layers[n] > layers[m]]
    assert higher == []


def test_documented_packages_exist() -> None:
    """docs/architecture.md lists every folder, and each below those that it imports from."""
    listed = (ROOT / "docs/architecture.md").read_text().partition("```text\n")[2].partition("```")[0]
    listed_packages = re.findall(r"^(analyze/\w+)(?:/|\.py) ", listed, re.M)
    folders = {f"analyze/{p.name}" for p in (ROOT / "analyze").glob("[!_]*") if any(p.glob("[!_]*"))}
    assert folders - set(listed_packages) == set()
    layers = [layer_of(module) for package in listed_packages if (module := package.replace("/", ".")) in FILES]
    assert len(layers) > 10 and layers == sorted(layers)


def test_analyze_works_without_torch() -> None:
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'torchvision', 'collect'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import analyze; print(analyze.open('sample_traces/vgg16-fp32').query('winograd-share').arrow().num_rows)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout == "1\n", result.stderr


def test_only_notebooks_import_pandas() -> None:
    """Commands forbid its import. What asks pyarrow for anything of pandas fails then: before pyarrow 26 even the dtype
    of a column's type."""
    asks = {
        (module, node.attr)
        for module, path in FILES.items()
        if module.split(".")[0] == "analyze"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ("pandas" in node.attr or node.attr in ("df", "fetchdf", "fetch_df"))
    }
    assert {module for module, _ in asks} == {"analyze.notebook"}


def test_process_for_sql_does_not_import_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take a third of its time. pyarrow imports it where it turns Python lists into arrays."""
    (tmp_path / "pandas.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert analyze.open(ROOT / "sample_traces/vgg16-fp32").sql("SELECT 1 AS one").rows() == [(1,)]


def test_samples_stay_small() -> None:
    assert sum(p.stat().st_size for p in (ROOT / "sample_traces").rglob("*") if p.is_file()) < 9_000_000


def test_sql_lines_are_short() -> None:
    files = sorted((ROOT / "analyze").rglob("*.sql"))
    lines = [(p, number, line) for p in files for number, line in enumerate(p.read_text().splitlines(), 1)]
    assert lines
    assert [f"{p.relative_to(ROOT)}:{number}" for p, number, line in lines if len(line) > 120] == []
