"""The published package says the same as the repository."""

from __future__ import annotations

import re
import subprocess

import pytest
from commands import run_python
from support import ROOT

PACKAGES = {"analyze", "collect", "schemas"}
CODE = re.compile(r"^```.*?^```$", re.M | re.S)


def test_description_is_the_readme_without_repository_links() -> None:
    pytest.importorskip("setuptools")
    built = run_python("setup.py", "-q", "--long-description", cwd=ROOT)
    assert built.returncode == 0, built.stderr
    text, readme = built.stdout, (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", readme))
    assert any(link.startswith("docs/") for link in links)
    assert [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")] == []
    assert CODE.findall(text) == CODE.findall(readme)
    assert "Performance (`docs/performance.md`) has all measurements" in text


def test_the_source_distribution_has_all_folders() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs the repository")
    folders = {path.split("/")[0] for path in listed.stdout.split("\0") if "/" in path and not path.startswith(".")}
    grafted = re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text("utf-8"), re.M)
    assert "examples" in folders and folders - PACKAGES == set(grafted)
