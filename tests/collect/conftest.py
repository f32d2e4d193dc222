"""Fixtures of the collector's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from collect_support import Collect, Ran, kill_started, start


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Ends what a test has started and not ended."""
    yield
    kill_started()


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    """Runs `collect run`; a `--` among the arguments keeps its place behind the output option."""

    def go(*arguments: str, output: Path | None = None, **extra: str) -> Ran:
        where = output or tmp_path / "runs"
        child = start("run", "-o", str(where), *arguments, **extra)
        stdout, stderr = child.communicate(timeout=280)
        assert "Traceback" not in stderr, stderr
        return Ran(child.wait(), stdout, stderr, where)

    return go
