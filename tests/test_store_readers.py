"""A store read without tracequarry: what docs/stores.md says, by polars and pandas, is what it answers itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import ROOT, SAMPLES, sql

import analyze

PAGE = ROOT / "docs/stores.md"


@pytest.mark.parametrize("how", ["ingested", "compacted", "first version"])
def test_the_recipe_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Time of kernels by rank, in whichever form a store of today is."""
    monkeypatch.chdir(tmp_path)
    if how == "first version":
        shutil.copytree(ROOT / "tests/data/store-1", "study")
        analyze.compact("study")  # by its next change it is of today's form
    else:
        analyze.ingest(SAMPLES / "resnet18-ddp2", store="study")
    if how == "compacted":
        analyze.compact("study")
    # Beside what is named may lie what is not.
    [named, *_] = Path("study").glob("kernels/*/*.parquet")
    shutil.copy(named, named.with_name("rank-9.dead0000.parquet"))
    [recipe] = re.findall(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    made: dict[str, object] = {}
    lines = recipe.splitlines()
    [by_polars] = [n for n, line in enumerate(lines) if line.startswith("polars.scan_parquet")]
    [by_pandas] = [n for n, line in enumerate(lines) if line.startswith("pandas.concat")]
    lines[by_polars], lines[by_pandas] = f"by_polars = {lines[by_polars]}", f"by_pandas = {lines[by_pandas]}"
    exec("\n".join(lines), made)
    rows = sql(tmp_path / "study", "SELECT rank, sum(dur_ns)::BIGINT AS ns FROM kernels GROUP BY rank", profiler="all")
    ours = {r["rank"]: r["ns"] for r in rows}
    assert len(ours) == 2 and sum(ours.values()) > 0
    assert dict(made["by_polars"].rows()) == ours  # type: ignore[attr-defined]
    assert made["by_pandas"].to_dict() == ours  # type: ignore[attr-defined]
