"""No command runs code from the current directory: neither modules nor what a git configuration names."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from collect_support import CPU
from traces import kernel, write_ranks

from analyze.ingestion.staging import LITTLE
from collect.node_facts import git_state, program_folder
from collect.profilers.block_profiler import SITE_FOLDER
from schemas.isolation import isolated_children, run_tool
from schemas.tools import NSYS

SCRIPTS = Path(sys.executable).parent
ANALYZE = [
    ["sql", "SELECT count(*) FROM kernels", "."],
    ["report", ".", "-o", "report.html"],
    ["ingest", ".", "--store", "store", "--jobs", "2"],
    ["ingest", ".", "--store", "by-dask", "--launcher", "dask", "--launcher-option", "n_workers=1"],
]
COLLECT = [
    ["run", "-o", "runs", *CPU, "--profiler", "torch", "--parallel", "ddp", "--workers", "1"],
    ["sweep", "plan.toml", "-o", "swept", "--launcher", "local"],
]
PLAN = """[options]
device = "cpu"
model = "squeezenet1_1"
image_size = 32
batch_size = 2
steps = 1
warmup = 1
profiler = "none"
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("a\n")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "x")
    return folder


def touch_later(path: Path) -> None:
    """Give a file another time, so that git looks at its content."""
    os.utime(path, (1, 1))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with traces and a decoy of every module and in its repository, and where a decoy says that it ran."""
    root = tmp_path_factory.mktemp("current-directory")
    folder, ran = root / "hostile", root / "ran"
    ran.mkdir()
    repository(folder)
    decoy = ran.parent / "decoy"
    decoy.write_text(f"#!/bin/sh\ntouch {ran}/git\nexit 1\n")
    decoy.chmod(0o755)
    (folder / ".git/info/attributes").write_text("* filter=decoy diff=decoy\n")
    for key in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "diff.external", "diff.decoy.textconv", "diff.decoy.command",
        "filter.decoy.clean", "filter.decoy.smudge", "filter.decoy.process", "credential.helper",
    ):  # fmt: skip
        git(folder, "config", key, str(decoy))
    git(folder, "config", "core.hooksPath", str(ran.parent / "hooks"))
    (ran.parent / "hooks").mkdir()
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (ran.parent / "hooks" / hook).symlink_to(decoy)
    touch_later(folder / "file")
    # Enough to be read by several processes.
    ranks = [[kernel(f"k{rank}", 2 * i, 1) for i in range(4_000)] for rank in range(3)]
    assert sum(path.stat().st_size for path in write_ranks(folder / "traces", *ranks).iterdir()) > LITTLE
    (folder / "plan.toml").write_text(PLAN)
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    ours = {"analyze", "collect", "schemas", "sitecustomize", "usercustomize"}
    for name in {*sys.stdlib_module_names, *installed, *ours}:
        text = f"open({str(ran / name)!r}, 'w').close()\nraise RuntimeError('a decoy was imported')\n"
        (folder / f"{name}.py").write_text(text)
    for package in ours:
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text((folder / f"{package}.py").read_text())
    return folder, ran


def run(command: list[str], folder: Path, **variables: str) -> str:
    removed = ("PYTHONPATH", "PYTHONSAFEPATH")
    environment = {k: v for k, v in os.environ.items() if k not in removed} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("command", ANALYZE, ids=" ".join)
def test_analyze_does_not_import_from_the_current_directory(
    hostile: tuple[Path, Path], tmp_path: Path, command: list[str]
) -> None:
    """With a cache of its own, each command reads the traces."""
    folder, ran = hostile
    run([str(SCRIPTS / "analyze"), *command], folder, TRACEQUARRY_CACHE=str(tmp_path / "cache"))
    assert list(ran.iterdir()) == []


@pytest.mark.parametrize("command", COLLECT, ids=lambda command: command[0])
def test_collect_does_not_import_from_the_current_directory(hostile: tuple[Path, Path], command: list[str]) -> None:
    folder, ran = hostile
    run([str(SCRIPTS / "collect"), *command], folder)
    assert list(ran.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "query", "kernel-share", "."],
        ["collect", "run", "-o", "by-module", "--profiler", "none", "--", "true"],
    ],
    ids=lambda c: c[0],
)
def test_module_does_not_import_from_the_current_directory(
    hostile: tuple[Path, Path], tmp_path: Path, command: list[str]
) -> None:
    """`python -P -m` starts the packages in another way than the console scripts, and then goes the same way."""
    folder, ran = hostile
    run([sys.executable, "-P", "-m", *command], folder, TRACEQUARRY_CACHE=str(tmp_path / "cache"))
    assert list(ran.iterdir()) == []


def test_program_imports_from_its_own_folder(tmp_path: Path) -> None:
    """Isolation is for our own processes: the recorded program and its children find modules as without `collect`."""
    (tmp_path / "own_module.py").write_text("")
    code = "import os, sys, own_module; print(os.environ.get('PYTHONSAFEPATH'), os.environ.get('PYTHONPATH'))"
    (tmp_path / "own_program.py").write_text(
        f"import subprocess, sys\n{code}\nsubprocess.run([sys.executable, '-c', {code!r}], check=True)\n"
    )
    plan = tmp_path / "plan.toml"
    plan.write_text(f'[options]\nprofiler = "none"\nprogram = ["{sys.executable}", "-m", "own_program"]\n')
    for name, arguments in {
        "run": ["run", "-o", "run", "--profiler", "none", "--", sys.executable, "own_program.py"],
        "sweep": ["sweep", "plan.toml", "-o", "sweep"],
        "task": ["sweep", "plan.toml", "-o", "task", "--launcher", "local"],
    }.items():
        run([str(SCRIPTS / "collect"), *arguments], tmp_path)
        (log,) = (tmp_path / name).glob("*/none/log.txt")
        assert log.read_text() == f"None {SITE_FOLDER}\n" * 2, name  # through which `collect` times its steps


def test_commit_and_uncommitted_changes(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)
    folder = repository(tmp_path / "repository")
    commit = git(folder, "rev-parse", "HEAD")
    assert git_state(folder) == (commit, False)
    touch_later(folder / "file")
    assert git_state(folder) == (commit, False)
    (folder / "file").write_text("b\n")
    assert git_state(folder) == (commit, True)
    # A required filter would have to say whether the file differs; one that no changed file has does not matter.
    git(folder, "config", "filter.x.clean", "false")
    assert git_state(folder) == (commit, True)
    (folder / ".git/info/attributes").write_text("file filter=x\n")
    assert git_state(folder) == (commit, None)


def test_commit_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "repository")
    (script := folder / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert program_folder(["python", "-u", str(script), "other.py"]) == folder
    assert program_folder(["python", "missing.py"]) == program_folder(()) == tmp_path
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert program_folder(()) is None and git_state(None) == (None, None)


@pytest.mark.parametrize(
    "config",
    [
        "[core]\nfsmonitor = {decoy}\n",
        "[core]\nhooksPath = {hooks}\n",
        "[filter \"x\"]\nclean = {decoy}\n",
        "[filter \"x\"]\nprocess = {decoy}\n",
        "[filter \"x\"]\nclean = {decoy}\nrequired = false\n",
        "[filter \"a=b\"]\nclean = {decoy}\n",
        "[include]\npath = other\n",
        "[extensions]\npartialClone = origin\n[remote \"origin\"]\npromisor = true\nurl = ext::{decoy}\n"
        "[protocol]\nallow = always\n",
        "[extensions]\npartialClone = origin\n[remote \"origin\"]\npromisor = true\nurl = ssh://host/x\n"
        "[core]\nsshCommand = {decoy}\n",
    ],
)  # fmt: skip
def test_git_config_of_a_repository_runs_no_program(tmp_path: Path, config: str) -> None:
    folder, ran, decoy = repository(tmp_path / "repository"), tmp_path / "ran", tmp_path / "decoy"
    decoy.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    decoy.chmod(0o755)
    (hooks := tmp_path / "hooks").mkdir()
    (hooks / "post-index-change").symlink_to(decoy)
    driver = "a=b" if "a=b" in config else "x"
    (folder / ".git/info/attributes").write_text(f"* filter={driver}\n")
    (folder / ".git/other").write_text(f'[filter "x"]\nclean = {decoy}\n')
    commit = git(folder, "rev-parse", "HEAD")
    if "partialClone" in config:  # a missing tree would be fetched
        tree = git(folder, "rev-parse", "HEAD^{tree}")
        (folder / ".git/objects" / tree[:2] / tree[2:]).unlink()
        (folder / ".git/index").unlink()
    with (folder / ".git/config").open("a") as f:
        f.write(config.format(decoy=decoy, hooks=hooks))
    touch_later(folder / "file")
    assert git_state(folder)[0] == commit and not ran.exists()
    # The decoy is one that git runs without these precautions.
    subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, timeout=60)
    assert ran.exists()


def test_tools_run_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\npwd; ls -A\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NSYS.variable, "./nsys")
    found = NSYS.find()
    assert found == str(tool)
    said = run_tool([found], capture_output=True, text=True).stdout.split()
    assert len(said) == 1 and not Path(said[0]).exists()


def test_isolated_children_restores_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)

    def now() -> Mapping[str, str | None]:
        return {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}

    with isolated_children() as before, isolated_children() as again:
        assert now()["PYTHONSAFEPATH"] == "1"
        assert before == again and before["PYTHONSAFEPATH"] is None
    assert now() == {"PYTHONPATH": "mine", "PYTHONSAFEPATH": None}
