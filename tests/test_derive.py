"""Derived tables: computed at ingest, and computed again where a store lacks them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from commands import run_cli
from support import SAMPLES, ask, outdated, sql
from traces import event, write_trace

from analyze.derive import DERIVED
from analyze.derive.interface import FULL, Derived
from analyze.derive.steps import steps
from analyze.ingestion.cached_stores import entries
from analyze.store.store import Store
from analyze.stored_tables import TABLES
from schemas.table_declaration import arrow_schema

STEPS = "SELECT * FROM recorded_steps ORDER BY ALL"


def ranges(*rows: tuple[str, str, int, int | None]) -> dict[str, pa.Table]:
    columns = ("origin", "name", "start_ns", "dur_ns")
    schema = pa.schema([arrow_schema(TABLES["ranges"]).field(c) for c in columns])
    return {"ranges": pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)}


def test_steps_are_the_outermost_ranges_in_order_of_time() -> None:
    found = steps(
        ranges(
            ("profiler_step", "ProfilerStep#4", 200, 90),
            ("profiler_step", "ProfilerStep#3", 100, 100),
            ("profiler_step", "ProfilerStep#9", 110, 20),  # inside of step 3
            ("profiler_step", "ProfilerStep#4", 200, 90),  # a duplicate
            ("profiler_step", "ProfilerStep#5", 300, None),  # did not end
            ("nvtx", "step", 0, 1000),  # the profiler's come first
        )
    )
    assert found.to_pylist() == [
        {"turn": 0, "number": 3, "start_ns": 100, "dur_ns": 100, "next_ns": 200},
        {"turn": 1, "number": 4, "start_ns": 200, "dur_ns": 90, "next_ns": None},
    ]


def test_steps_of_nvtx_ranges_have_no_number() -> None:
    found = steps(ranges(("nvtx", "step", 10, 5), ("nvtx", "stepping", 0, 100), ("record_function", "step", 20, 5)))
    assert found.to_pylist() == [{"turn": 0, "number": None, "start_ns": 10, "dur_ns": 5, "next_ns": None}]


def test_step_number_that_overflows_is_null() -> None:
    for name, number in (
        ("ProfilerStep#2147483647", 2**31 - 1),
        ("ProfilerStep#2147483648", None),
        ("x", None),
        ("#007", 7),
        ("s0", 0),
        ("a²", None),
    ):
        assert steps(ranges(("profiler_step", name, 0, 1)))["number"].to_pylist() == [number]


def test_no_steps_without_ranges() -> None:
    assert steps(ranges()).num_rows == 0


@pytest.mark.parametrize("derived", DERIVED, ids=lambda derived: derived.name)
def test_a_derived_table_has_its_declared_columns_without_rows(derived: Derived) -> None:
    empty = {
        t: pa.schema([arrow_schema(TABLES[t.removeprefix(FULL)]).field(c) for c in columns]).empty_table()
        for t, columns in derived.reads.items()
    }
    columns = [c.name for c in derived.table.columns if c.name not in ("run_id", "rank")]
    assert derived.compute(empty).column_names == columns


def test_a_store_without_derived_tables_answers_as_with_them(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run_cli("ingest", SAMPLES / "resnet18-ddp2", "--store", store).returncode == 0

    # Recordings of today have no call_ops, this one lost no kernel and has neither CUDA graphs nor checkpointing, and
    # only a GPU-only block has twins.
    empty = ("call_ops", "captured_tree", "graph_launches", "launches_without_work", "recomputed_ops")
    tables = [one.name for one in DERIVED if one.name not in empty and not one.of_gpu_block]

    def answers() -> list[object]:
        return [
            *(sql(store, f"SELECT * FROM {table} ORDER BY ALL") for table in tables),
            sql(store, STEPS, where="rank = 1"),
            ask(store, "steps", by=["rank"]),
        ]

    expected = answers()
    assert all(expected)
    outdated(store)
    assert answers() == expected


def test_a_query_derives_an_outdated_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the cache: the store does not change."""
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    store, other = tmp_path / "store", tmp_path / "other"
    pair = [SAMPLES / "resnet18-ddp2", SAMPLES / "even-ddp"]  # even-ddp has a GPU-only block
    assert run_cli("ingest", *pair, "--store", store).returncode == 0
    question = ["query", "launch", store, "--profiler", "all", "--by", "run_id", "--format", "csv"]
    expected = run_cli(*question)
    files = {f: f.read_bytes() for f in store.rglob("*") if f.is_file()}
    shutil.copytree(store, other)
    outdated(store)
    older = (store / "store.json").read_bytes()

    first, again = run_cli(*question), run_cli(*question)
    assert first.stdout == again.stdout == expected.stdout
    assert f"{store}: the derived tables of 3 run(s) are of another version" in first.stderr
    assert again.stderr == expected.stderr
    [entry] = entries()
    assert entry.source == str(store)
    derived = Store(entry.folder).snapshot.runs
    assert {r: run.tables.keys() for r, run in derived.items()} == {
        r: run.tables.keys() for r, run in Store(other).snapshot.runs.items()
    }
    assert {f: f.read_bytes() for f in files} == files | {store / "store.json": older}

    # Only outdated runs are read from the cache; a run that changed in the store is derived again.
    result = run_cli("ingest", pair[0], "--store", store)
    assert result.returncode == 0
    partly = run_cli(*question)
    assert partly.stdout == expected.stdout and "of 2 run(s)" in partly.stderr
    assert Store(entry.folder).snapshot.runs.keys() == {r for r in derived if "even_ddp" in r}
    assert run_cli("compact", store).returncode == 0
    assert run_cli(*question).stderr == expected.stderr


def test_next_ingest_derives_missing_tables(tmp_path: Path) -> None:
    store = tmp_path / "store"
    trace = write_trace(tmp_path / "t.json", [event("user_annotation", "ProfilerStep#1", 0, 10)])
    for _ in range(2):
        assert run_cli("ingest", trace, "--store", store).returncode == 0
        [run] = json.loads((store / "store.json").read_text())["runs"].values()
        assert run["derived"] and run["tables"]["recorded_steps"]
        outdated(store)
