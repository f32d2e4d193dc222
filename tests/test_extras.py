"""An installation without extras: all that needs one says so in one line, and the rest works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from commands import run_cli
from support import ROOT, SAMPLES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUN = SAMPLES / "slow-loader"


def _names(requirements: list[str]) -> list[str]:
    """The packages that requirements without an extra name."""
    found = [re.match(r"[\w.-]+", r) for r in requirements if "extra ==" not in r and "extra==" not in r]
    return [match[0] for match in found if match]


def _link_packages(folder: Path) -> None:
    """Link what the dependencies of the package consist of, and their dependencies, into a folder of packages."""
    pending, seen = _names(PROJECT["dependencies"]), set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = distribution(name)
        except ModuleNotFoundError:  # of other systems, such as pywin32
            continue
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not os.path.lexists(folder / top):
                (folder / top).symlink_to(Path(str(package.locate_file(top))).resolve())
        pending += _names(package.requires or [])


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the dependencies of the package and no extra."""
    if os.name == "nt":
        pytest.skip("links need a privilege there")
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    _link_packages(packages)
    assert not (packages / "torch").exists() and (packages / "duckdb").exists()
    return folder / "bin/python"


def ran(python: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module in that environment, with these sources and no display."""
    clean = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    variables = {**clean, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    command = [python, "-m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120, cwd=python.parent)


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("serve", ["analyze", "serve", RUN]),
        ("mcp", ["analyze", "mcp", RUN]),
        ("xlsx", ["analyze", "query", "kernel-share", RUN, "-o", "x.xlsx"]),
        ("cloud", ["analyze", "info", "s3://bucket/run"]),
        ("cluster", ["analyze", "ingest", RUN, "--store", "store", "--launcher", "local"]),
        ("cluster", ["analyze", "ingest", RUN, "--store", "store", "--launcher", "dask"]),
        ("cluster", ["collect", "sweep", "plan.toml", "-o", "out", "--launcher", "local"]),
        ("collect", ["collect", "run", "--model", "resnet18", "-o", "runs"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value[:2])),
)
def test_a_missing_extra_is_one_line(python: Path, extra: str, command: list[object]) -> None:
    (python.parent / "plan.toml").write_text('[options]\nmodel = "resnet18"\n[grid]\nseed = [1]\n')
    result = ran(python, *command)
    [said] = [line for line in result.stderr.splitlines() if not line.startswith("read as:")]
    assert result.returncode == 2 and said.startswith(f"{command[0]}: ")
    assert f"needs `pip install 'tracequarry[{extra}]'`" in said
    assert not (python.parent / "runs").exists()


def test_the_demo_writes_a_report(python: Path) -> None:
    result = ran(python, "analyze", "demo", "-o", "demo.html")
    assert result.returncode == 0, result.stderr
    assert "note: no browser was found" in result.stderr and "next: analyze report YOUR_TRACE" in result.stderr
    # The sample was recorded to show this: sample_traces/README.md.
    assert "waits for data" in (python.parent / "demo.html").read_text()


def test_pages_open_in_the_browser_of_a_display(python: Path) -> None:
    """$BROWSER is the browser; it writes what it is to open."""
    browser, opened = python.parent / "browser", python.parent / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o755)
    code = "import sys; from analyze.browser import open_page; sys.exit(not open_page('file:///demo.html'))"
    variables = {"PYTHONPATH": str(ROOT), "PATH": os.defpath, "BROWSER": str(browser)}
    assert subprocess.run([python, "-c", code], env=variables).returncode == 1 and not opened.exists()
    assert subprocess.run([python, "-c", code], env={**variables, "DISPLAY": ":0"}).returncode == 0
    assert opened.read_text() == "file:///demo.html"


def test_the_doctor_names_all_missing_extras(python: Path) -> None:
    metadata = [f'Requires-Dist: {r}; extra == "{x}"' for x, rs in PROJECT["optional-dependencies"].items() for r in rs]
    folder = python.parent / "metadata/tracequarry-9.9.dist-info"
    folder.mkdir(parents=True)
    head = "Metadata-Version: 2.1\nName: tracequarry\nVersion: 9.9\n"
    (folder / "METADATA").write_text(head + "\n".join(metadata) + "\n")
    path = os.pathsep.join([str(folder.parent), str(ROOT)])
    result = ran(python, "analyze", "doctor", "--format", "json", PYTHONPATH=path, TRACEQUARRY_CACHE="cache")
    assert result.returncode == 0, result.stderr
    checks = {c["name"]: c for c in json.loads(result.stdout)}
    assert checks["tracequarry"]["found"] == "9.9" and checks["browser"]["status"] == "missing"
    expected = set(PROJECT["optional-dependencies"]) - {"collect", "dev", "docs"}
    missing = {name.removeprefix("extra "): c for name, c in checks.items() if name.startswith("extra ")}
    assert set(missing) == expected
    for extra, check in missing.items():
        assert (check["status"], check["fix"]) == ("missing", f"pip install 'tracequarry[{extra}]'")


def test_the_doctor_refuses_a_file_as_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "file"))
    ran = run_cli("doctor", "--format", "json")
    [cache] = [c for c in json.loads(ran.stdout) if c["name"] == "cache"]
    assert (ran.returncode, cache["found"]) == (1, f"cannot write to {tmp_path / 'file'}")


def test_the_doctor_names_folders_that_are_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEQUARRY_CACHE", f"{tmp_path}/\udcff")
    ran = run_cli("doctor", "--format", "json")
    [cache] = [c for c in json.loads(ran.stdout) if c["name"] == "cache"]
    assert ran.returncode == 0 and cache["found"].startswith(f"{tmp_path}/\\udcff: 0.0 of at most ")


def test_the_doctor_fails_without_a_cache(python: Path) -> None:
    result = ran(python, "analyze", "doctor", "--format", "json", TRACEQUARRY_CACHE="cache", TRACEQUARRY_CACHE_SIZE="x")
    [cache] = [c for c in json.loads(result.stdout) if c["name"] == "cache"]
    assert result.returncode == 1 and cache["status"] == "missing" and "TRACEQUARRY_CACHE_SIZE" in cache["found"]
