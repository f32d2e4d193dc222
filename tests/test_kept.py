"""What questions computed of large runs and later ones take from the cache; tests/test_kept_answers.py has answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES

import analyze
from analyze.query import engine
from analyze.query.computed import call_tree, path_events, path_totals
from analyze.store import cache, kept

QUERIES = ("op-totals", "op-tree", "ops", "module-tree", "critical-path")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, of which no question takes its answer, and no recording is small."""
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "_SMALL", 0)
    monkeypatch.setattr(kept.Kept, "answer", lambda *given: None)
    monkeypatch.setattr(kept.Kept, "keep_answer", lambda *given: None)
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    analyze.ingest(SAMPLES / "pipeline-4gpu", store=tmp_path / "store")
    return tmp_path / "store"


def answers(store: Path, queries: Iterable[str] = QUERIES, **options: Any) -> list[list[dict[str, Any]]]:
    with analyze.open(store) as traces:
        return [traces.query(name, **options).to_pylist() for name in queries]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed: a name for each batch of a tree, and for each rank's critical path."""
    found: list[str] = []

    def told(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (found.append(name), work(*given))[1]

    monkeypatch.setattr(call_tree, "_nested", told("tree", call_tree._nested))
    monkeypatch.setattr(path_events, "Rank", told("path", path_events.Rank))
    return found


def test_the_second_question_computes_nothing(store: Path, made: list[str]) -> None:
    first = answers(store)
    assert set(made) == {"tree", "path"}
    made.clear()
    assert answers(store) == first
    assert made == []


def test_names_on_the_path_are_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a run of which they are not, too."""
    asked: list[int] = []
    times = path_totals.times
    monkeypatch.setattr(path_totals, "times", lambda *given: (asked.append(1), times(*given))[1])

    def by_name(**options: Any) -> list[dict[str, Any]]:
        with analyze.open(store) as traces:
            return traces.query("critical-path", params={"group": "name"}, **options).to_pylist()

    first = by_name()
    assert asked
    asked.clear()
    assert by_name() == first
    assert by_name(where="rank IN (1, 2)") == [r for r in first if r["rank"] in (1, 2)]
    assert asked == []
    analyze.ingest(SAMPLES / "resnet18-1gpu", store=store)
    both = by_name()
    assert asked and [r for r in both if r["run_id"] == first[0]["run_id"]] == first
    assert {r["run_id"] for r in both} - {first[0]["run_id"]}
    asked.clear()
    assert by_name() == both
    assert asked == []


def test_trees_with_the_same_python_functions_are_kept_once(store: Path, made: list[str]) -> None:
    """pipeline-4gpu has no Python stacks."""
    for name, params in (("op-tree", {}), ("ops", {}), ("module-tree", {"tree": "stack"}), ("ops", {"python": "yes"})):
        with analyze.open(store) as traces:
            traces.query(name, params=params)
    assert made == ["tree"] * 2


def test_what_is_kept_serves_groups_and_ranks(store: Path, made: list[str]) -> None:
    some: list[dict[str, Any]] = [{"where": "rank IN (1, 2)"}, {"by": ["model"], "where": "rank = 3"}, {"by": ["rank"]}]
    first = []
    for options in some:
        made.clear()
        first.append(answers(store, **options))
        assert set(made) == {"tree", "path"}
    analyze.cache(clear=True)
    answers(store)
    made.clear()
    for options, expected in zip(some, first, strict=True):
        assert answers(store, **options) == expected
    assert made == []


def test_of_some_ranks_nothing_is_kept(store: Path, own_cache: Path) -> None:
    answers(store, where="rank = 1")
    assert not list(own_cache.rglob("*.parquet"))


def test_runs_beside_one_that_is_kept(store: Path, tmp_path: Path, made: list[str]) -> None:
    """Numbers of paths are a run's own."""
    answers(store)
    analyze.ingest(SAMPLES / "resnet18-1gpu", store=store)
    analyze.ingest(SAMPLES / "train-stacks", store=store)
    made.clear()
    mixed = answers(store, by=["run_id"])
    assert set(made) == {"tree", "path"}
    made.clear()
    assert answers(store, by=["run_id"]) == mixed
    assert made == []
    analyze.cache(clear=True)
    assert answers(store, by=["run_id"]) == mixed
    assert made != []


def test_a_run_that_was_ingested_again_is_computed_again(store: Path, made: list[str]) -> None:
    answers(store)
    made.clear()
    path = min((store / "cpu_ops").rglob("*.parquet"))
    os.utime(path, ns=(1, 1))
    answers(store)
    assert set(made) == {"tree", "path"}


def test_damaged_files_are_made_again(store: Path, own_cache: Path, made: list[str]) -> None:
    each = ("op-totals", "op-tree", "critical-path")  # one for each kind of file
    first = answers(store, each)
    for damage in (b"", b"PAR1", None):
        files = list((own_cache / "kept").iterdir())
        assert len(files) == 4  # sums by name, paths and their work, critical paths
        for path in files:
            data = path.read_bytes()
            at = len(data) // 4
            path.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :] if damage is None else damage)
        made.clear()
        assert answers(store, each) == first
        assert made != []
        made.clear()
        assert answers(store, each) == first
        assert made == []


def test_a_cache_that_cannot_be_written(store: Path, own_cache: Path) -> None:
    first = answers(store)
    analyze.cache(clear=True)
    (own_cache / "kept").write_text("in the way")
    assert answers(store) == first


def test_what_was_not_used_for_longest_goes(store: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(store)
    files = {p: p.stat().st_size for p in (own_cache / "kept").iterdir()}
    oldest = min(files, key=lambda p: files[p])
    os.utime(oldest, (1, 1))
    total = sum(files.values())
    monkeypatch.setattr(kept, "MOST_BYTES", total)
    with analyze.open(store) as traces:
        traces.query("critical-path", params={"window": "step"})
    left = set((own_cache / "kept").iterdir())
    assert oldest not in left and len(left - files.keys()) == 1
    assert sum(p.stat().st_size for p in left) <= total


def test_small_recordings_are_computed(store: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SMALL", 1 << 40)
    answers(store)
    assert not (own_cache / "kept").exists()


def test_the_cache_is_cleared_of_it(store: Path, own_cache: Path) -> None:
    answers(store)
    cache.contents(clear=True)
    assert not (own_cache / "kept").exists()


def test_blocks_of_a_users_own_are_not_taken_for_the_built_in_ones(store: Path, tmp_path: Path) -> None:
    """A block that hides one on which a call tree rests: its sums are nobody else's."""
    mine = tmp_path / "mine"
    (mine / "blocks").mkdir(parents=True)
    (mine / "group").mkdir()
    built_in = (Path(engine.__file__).parents[1] / "queries" / "blocks" / "cpu_events.sql").read_text()
    half = built_in.replace("FROM cpu_ops\n", "FROM cpu_ops WHERE rank = 0\n")
    assert half != built_in
    (mine / "blocks" / "cpu_events.sql").write_text(half)
    (mine / "group" / "own.sql").write_text(
        "-- How many?\n-- @column n count  Calls.\n-- @use torch_sums_no\n"
        "SELECT NULL AS run_group, sum(calls)::BIGINT AS n FROM torch_sums_no WHERE kind = 'op'\n"
    )
    for _ in range(2):
        with analyze.open(store, queries=[mine]) as traces:
            own = traces.query("own").to_pylist()[0]["n"]
            every = traces.sql("SELECT sum(calls)::BIGINT AS n FROM torch_sums_no WHERE kind = 'op'").to_pylist()[0][
                "n"
            ]
            assert 0 < own < every
