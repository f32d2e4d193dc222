"""A store read without tracequarry: the recipe in docs/stores.md with polars, pandas and Spark."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES, sql

import analyze

PAGE = ROOT / "docs/stores.md"


FORMS = pytest.mark.parametrize("how", ["ingested", "compacted", "first version"])
"""In whichever a store of today is."""


def make_study(how: str) -> dict[int, int]:
    """A store here, in one of the FORMS, with files beside it that it does not name; time of kernels by rank in it."""
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
    rows = sql(Path("study"), "SELECT rank, sum(dur_ns)::BIGINT AS ns FROM kernels GROUP BY rank", profiler="all")
    ours = {r["rank"]: r["ns"] for r in rows}
    assert len(ours) == 2 and sum(ours.values()) > 0
    return ours


@FORMS
def test_documented_recipe_for_other_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.chdir(tmp_path)
    ours = make_study(how)
    [recipe] = re.findall(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    made: dict[str, object] = {}
    lines = recipe.splitlines()
    [by_polars] = [n for n, line in enumerate(lines) if line.startswith("polars.scan_parquet")]
    [by_pandas] = [n for n, line in enumerate(lines) if line.startswith("pandas.concat")]
    lines[by_polars], lines[by_pandas] = f"by_polars = {lines[by_polars]}", f"by_pandas = {lines[by_pandas]}"
    exec("\n".join(lines), made)
    assert dict(made["by_polars"].rows()) == ours  # type: ignore[attr-defined]
    assert made["by_pandas"].to_dict() == ours  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Spark in this process, on one core."""
    pyspark = pytest.importorskip("pyspark.sql", reason="needs pyspark and Java: .ci/cluster installs them")
    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    builder = pyspark.SparkSession.builder.master("local[1]")
    for name, value in local.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@FORMS
def test_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, spark: Any) -> None:
    monkeypatch.chdir(tmp_path)
    ours = make_study(how)
    page = PAGE.read_text()
    [listing] = re.findall(r"^files = .*", page, re.MULTILINE)
    [recipe] = re.findall(r"`(spark\.read.*?)`", page)
    runs = json.loads(Path("study/store.json").read_text())["runs"]
    made: dict[str, Any] = {"store": tmp_path / "study", "runs": runs, "spark": spark}
    exec(f"{listing}\nrows = {recipe}.collect()", made)
    assert {row[0]: row[1] for row in made["rows"]} == ours
