"""The workflows of GitHub: they run what is in the repository, on the Pythons that the package names."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml
from support import ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in WORKFLOWS[name]["jobs"].values() for step in job.get("steps", ())]


def test_programs_of_the_repository_exist() -> None:
    named = {word for name in WORKFLOWS for s in steps(name) for word in re.findall(r"\.ci/\w+", s.get("run", ""))}
    assert named >= {".ci/run", ".ci/compat", ".ci/dist"}
    for program in named:
        assert (ROOT / program).stat().st_mode & 0o100, program


def test_lowest_and_newest_python_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    expected = [versions[0], versions[-1]]
    assert f">={expected[0]}" == project["requires-python"]
    for name, job in (("tests", "analyze"), ("wheels", "use")):
        matrix = WORKFLOWS[name]["jobs"][job]["strategy"]["matrix"]
        assert matrix["python"] == expected
        assert {system.partition("-")[0] for system in matrix["os"]} >= {"macos", "windows"}


def test_only_a_release_may_publish() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        publishes = [s for s in steps(name) if "pypi-publish" in s.get("uses", "")]
        assert bool(publishes) == (name == "release")
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads the key `on` as true
    assert WORKFLOWS["release"]["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert not any("secrets." in path.read_text() for path in (ROOT / ".github").rglob("*.yml"))
