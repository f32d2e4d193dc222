"""Paths that cannot be accessed: errors are the same on every Python version."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import complaints, run_cli
from support import ROOT, SAMPLES
from test_discover import one, run_folder

import analyze
from analyze.ingestion.discover import discover
from analyze.query.query_files import find
from analyze.report.study_files import find_file
from collect.failure import os_sentence
from schemas.files import is_dir, is_file, os_error_sentence

ONE = SAMPLES / "resnet18-1gpu"
COMMANDS: dict[str, Callable[[str], list[str | Path]]] = {
    "query": lambda path: ["query", "kernel-share", path],
    "info": lambda path: ["info", path],
    "advise": lambda path: ["advise", path],
    "sql": lambda path: ["sql", "select 1", path],
    "compare": lambda path: ["compare", path, ONE],
    "report": lambda path: ["report", path, "-o", "x.html"],
    "trace": lambda path: ["trace", path, "-o", "x.json"],
    "ingest": lambda path: ["ingest", path, "--store", "store"],
    "study": lambda path: ["study", path, ONE],
    "queries": lambda path: ["query", "kernel-share", ONE, "--queries", path],
}
"""Everything that takes a path to read."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "says"), [("loop", "Too many levels of symbolic links"), ("x" * 300, "File name too long")]
)
def test_symlink_loop_and_overlong_name_are_one_sentence(command: str, name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = run_cli(*COMMANDS[command](name), cwd=tmp_path)
    assert (done.returncode, complaints(done)) == (2, [f"analyze: {name}: cannot be read: {says}"])
    assert not (tmp_path / "store").exists()


def test_folder_without_permission_is_one_sentence(unprivileged: Path) -> None:
    closed = unprivileged / "closed"
    one(closed / "t.json")
    closed.chmod(0)
    says = r"(t\.json|closed|none): cannot be read: Permission denied"
    for path in (closed / "t.json", closed / "none", closed):
        for read in (analyze.open, lambda path: discover([path]), find_file):
            with pytest.raises(analyze.InputError, match=says):
                read(path)
    with pytest.raises(analyze.InputError, match=says):
        find("kernel-share", [closed / "none"])
    for look in (is_file, is_dir):
        assert not look(unprivileged / "none") and not look(unprivileged / "none" / "t.json")
        with pytest.raises(PermissionError):
            look(closed / "t.json")


def test_manifest_naming_an_inaccessible_file(unprivileged: Path) -> None:
    folder = run_folder(unprivileged / "run", [("closed/t.json", "chrome_trace", 0)])
    one(folder / "closed" / "t.json")
    (folder / "closed").chmod(0)
    with pytest.raises(analyze.InputError, match=r"run\.json: .*t\.json: Permission denied"):
        discover([folder])


def test_manifest_naming_a_symlink_loop(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [("loop.json", "chrome_trace", 0)])
    (folder / "loop.json").symlink_to("loop.json")
    with pytest.raises(analyze.InputError, match=r"run\.json: .*loop\.json: Too many levels of symbolic links"):
        discover([folder])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a folder that somebody is in")
def test_deleted_current_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    gone = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, "-m", "analyze", "info", "x"],
        cwd=tmp_path / "gone", env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    says = "analyze: the current directory was deleted\n"
    assert (gone.returncode, gone.stderr) == (2, says)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has words of its own, and no /dev/full")
def test_os_errors_are_shown_without_errno(tmp_path: Path) -> None:
    """With the file, where it names one; by `collect` and `analyze` alike."""
    missing = tmp_path / "missing"
    with pytest.raises(OSError, match="No such file") as of_file:
        missing.read_bytes()
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError, match="Broken pipe") as of_none:
        os.write(writing, b"x")
    os.close(writing)
    for says in (os_error_sentence, os_sentence):
        assert says(of_file.value) == f"{missing}: No such file or directory"
        assert says(of_none.value) == "Broken pipe"
    with pytest.raises(OSError, match="No space") as full:
        Path("/dev/full").write_bytes(b"x")
    assert os_error_sentence(full.value) == "No space left on device"
    assert os_sentence(full.value).startswith("the disk is full; ")
