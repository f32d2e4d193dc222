"""Answers about large recordings: the cache has them for who asks again, and a prepared store for everybody."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, event, kernel, sample_engines, write_trace
from typer.testing import CliRunner

import analyze
import analyze.prepare as ahead
from analyze.cli import app
from analyze.commands import terminal
from analyze.errors import InputError
from analyze.query import engine
from analyze.query.computed import call_tree
from analyze.query.engine import Engine
from analyze.query.query_files import catalog
from analyze.report import build
from analyze.report.build import page_toml
from analyze.store.ingest import IngestResult

SOME: list[dict[str, Any]] = [
    {}, {"where": "rank = 1"}, {"by": ["rank"]}, {"params": {"group": "name"}}, {"params": {"window": "step"}},
    {"sort": "total_ns"}, {"limit": 2}, {"select": ["kind", "total_ns"]}, {"profiler": "torch"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no recording is small."""
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "_SMALL", 0)
    return tmp_path / "cache"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """SQL whose tables and blocks were made."""
    found: list[str] = []
    make = Engine._make_read

    def told(self: Engine, sql: str, *rest: Any) -> None:
        found.append(sql)
        make(self, sql, *rest)

    monkeypatch.setattr(Engine, "_make_read", told)
    yield found


def rows(store: Path, query: str, **options: Any) -> list[tuple[Any, ...]]:
    with analyze.open(store) as traces:
        return traces.answer(query, **options).rows()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    analyze.ingest(SAMPLES / "resnet18-ddp2", store=tmp_path / "store")
    return tmp_path / "store"


def test_whoever_asks_the_same_computes_nothing(store: Path, made: list[str]) -> None:
    """Whatever else was asked before: each way to ask has an answer of its own."""
    first = [rows(store, "critical-path", **options) for options in SOME]
    assert (
        len({str(found) for found in first}) >= len(SOME) - 2
    )  # (of these, two are nothing but names for the default)
    made.clear()
    assert [rows(store, "critical-path", **options) for options in SOME] == first
    assert made == []
    with analyze.open(store) as traces:
        answer = traces.answer("critical-path")
        assert [tuple(row.values()) for row in answer.arrow().to_pylist()] == first[0]
        assert answer.count == len(first[0])
    assert made == []


CHOSEN: list[dict[str, Any]] = [
    {"sort": "-rank,calls"}, {"sort": "-kernel_time_pct,+name", "limit": 7}, {"sort": "min_ns"}, {"limit": 0}, {},
    {"select": ["total_ns", "name"]}, {"select": ["calls"], "sort": "calls", "limit": 5},
    {"only": {"calls": "6", "rank": "1"}}, {"only": {"avg_ns": "96786.75"}},
    {"only": {"name": "none has it'"}, "select": ["max_ns"]},
]  # fmt: skip


def test_a_whole_answer_serves_all_that_is_asked_of_it(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    """The expected rows are those that are computed with the same in SQL, nothing being kept."""
    asked, query = sample_engines("resnet18-ddp2").get(["rank"]), catalog()["kernel-share"]
    monkeypatch.setattr(asked, "_small", True)
    expected = [asked.query(query, {"group": "name"}, **options) for options in CHOSEN]
    plain = [(answer.rows(), answer.columns, answer.main) for answer in expected]
    assert len({str(found) for found, _, _ in plain}) == len(CHOSEN) - 1  # (two have none)
    monkeypatch.setattr(asked, "_small", False)
    whole = asked.query(query, {"group": "name"}).rows()
    made.clear()
    for options, (found, columns, main) in zip(CHOSEN, plain, strict=True):
        answer = asked.query(query, {"group": "name"}, **options)
        assert (answer.rows(), answer.columns, answer.main) == (found, columns, main), options
        for most in (3, 0):
            assert asked.query(query, {"group": "name"}, **options).rows(most) == found[:most]
    assert made == [] and len(whole) > 20


def test_columns_that_are_not_there_are_told_of_kept_answers_too(store: Path) -> None:
    for _ in range(2):
        for options in ({"sort": "nine"}, {"select": ["nine"]}):
            with pytest.raises(InputError, match="nine: no such column; the result has"):
                rows(store, "kernel-share", **options)
        rows(store, "kernel-share")


def test_the_same_runs_in_other_words_are_the_same_question(store: Path, made: list[str]) -> None:
    one = rows(store, "kernel-share", where="rank = 1")
    every = rows(store, "kernel-share")
    made.clear()
    assert rows(store, "kernel-share", where="rank > 0 AND gpus = 2", profiler="torch") == one != every
    assert rows(store, "kernel-share", where="rank >= 0", profiler="all") == every
    assert made == []


def test_every_query_keeps_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Arrow and a file: sums of 128 bits, lists, times."""
    asked = sample_engines("resnet18-ddp2").get()
    for query in catalog().values():
        monkeypatch.setattr(asked, "_small", True)
        plain = asked.query(query).rows()
        monkeypatch.setattr(asked, "_small", False)
        for _ in range(2):
            found = asked.query(query).rows()
            # (What is added up in floating point has an order of its own each time.)
            assert [[v for v in row if type(v) is not float] for row in found] == [
                [v for v in row if type(v) is not float] for row in plain
            ], query.name
            for a, b in zip(found, plain, strict=True):
                floats = [v for v in b if type(v) is float]
                assert [v for v in a if type(v) is float] == pytest.approx(floats, rel=1e-12), query.name
            assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in plain], query.name


def test_a_run_that_changed_is_asked_again(tmp_path: Path, made: list[str]) -> None:
    trace = write_trace(tmp_path / "t.json", [event("cpu_op", "aten::mm", 0, 10), kernel("k", 20, 5)])
    before = rows(trace, "kernel-share")
    made.clear()
    assert rows(trace, "kernel-share") == before
    assert made == []
    write_trace(trace, [event("cpu_op", "aten::mm", 0, 10), kernel("k", 20, 5), kernel("k", 30, 7)])
    after = rows(trace, "kernel-share")
    assert made != [] and after != before


def test_another_run_beside_it_is_another_question(store: Path, made: list[str]) -> None:
    one = rows(store, "kernel-share")
    analyze.ingest(SAMPLES / "resnet18-1gpu", store=store)
    made.clear()
    both = rows(store, "kernel-share")
    assert made != [] and len(both) > len(one)
    made.clear()
    assert rows(store, "kernel-share") == both
    assert made == []


def test_first_rows_are_kept_if_they_are_all(store: Path, made: list[str]) -> None:
    """What a page shows of an answer: of one that is cut off, no more is known."""
    for most in (2, 1000):
        with analyze.open(store) as traces:
            few = traces.answer("kernel-share").rows(most)
        made.clear()
        every = rows(store, "kernel-share")
        assert every[:most] == few
        assert (made == []) == (most > len(every))
        analyze.cache(clear=True)
    rows(store, "kernel-share")
    made.clear()
    with analyze.open(store) as traces:
        assert traces.answer("kernel-share").rows(2) == every[:2]
    assert made == []


def test_a_file_that_cannot_be_read_is_made_again(store: Path, own_cache: Path, made: list[str]) -> None:
    first = rows(store, "kernel-share")
    kept = list(own_cache.rglob("*.parquet"))
    assert len(kept) == 1
    kept[0].write_bytes(kept[0].read_bytes()[:-9])
    made.clear()
    assert rows(store, "kernel-share") == first
    assert made != []
    os.truncate(kept[0], 0)
    assert rows(store, "kernel-share") == first


def test_of_small_recordings_no_answer_is_kept(store: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SMALL", 1 << 40)
    rows(store, "kernel-share")
    assert not list(own_cache.rglob("*.parquet"))


def test_what_rests_on_a_users_own_sql_is_not_kept(store: Path, tmp_path: Path, own_cache: Path) -> None:
    """Blocks of theirs may stand in the place of built-in ones, and change between questions."""
    mine = tmp_path / "mine" / "own"
    mine.mkdir(parents=True)
    (mine / "count.sql").write_text(
        "-- How many?\n-- @column n count  Kernels.\nSELECT run_group, count(*) AS n FROM kernels GROUP BY ALL\n"
    )
    with analyze.open(store, queries=[tmp_path / "mine"]) as traces:
        [(count,)] = traces.answer("count").rows()
    assert count > 0 and not list(own_cache.rglob("*.parquet"))


# --- Answered ahead ---

AHEAD = ("kernel-share", "op-totals", "ops", "critical-path", "steps")


def moved(store: Path, to: Path) -> Path:
    """The store at another place, its files written at another time."""
    shutil.copytree(store, to, copy_function=shutil.copyfile)
    return to


def test_what_was_prepared_is_there_for_all_who_have_the_store(
    store: Path, tmp_path: Path, own_cache: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected rows are those of the same store before anything was kept in it."""
    monkeypatch.setattr(engine, "_SMALL", 1 << 40)
    expected = [rows(store, query) for query in AHEAD]
    monkeypatch.setattr(engine, "_SMALL", 0)
    with analyze.open(store) as traces:
        assert traces.prepare(AHEAD) == (list(AHEAD), {})
    assert not list(own_cache.rglob("*.parquet"))
    made.clear()
    for place in (store, moved(store, tmp_path / "elsewhere")):
        assert [rows(place, query) for query in AHEAD] == expected
        assert rows(place, "kernel-share", limit=1) == expected[0][:1]
    assert made == []
    monkeypatch.setattr(call_tree, "_nested", None)
    assert rows(store, "ops", where="rank = 1") and made != []  # the sums of the call tree were kept, too


def test_a_report_computes_nothing_of_a_prepared_store(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page with two of its sections, so that fewer questions are asked."""
    page = page_toml()
    page["section"] = [s for s in page["section"] if s["id"] in ("gpus", "kernels")]
    parts = [part for section in page["section"] for part in section["part"]]
    assert len(page["section"]) == 2 and any("params" in part for part in parts)
    of_page = {
        name: q for name, q in catalog().items() if name in ("runs", "health", "steps", *(p["query"] for p in parts))
    }
    for module in (build, ahead):
        monkeypatch.setattr(module, "page_toml", lambda: page)
    monkeypatch.setattr(ahead, "catalog", lambda: of_page)
    trace = write_trace(tmp_path / "t.json", [event("cpu_op", "aten::mm", 0, 10), kernel("k", 20, 5)])
    analyze.ingest(trace, store=tmp_path / "store")
    with analyze.open(tmp_path / "store") as traces:
        assert traces.prepare() == (list(of_page), {})
    with analyze.open(tmp_path / "store") as traces:
        made.clear()
        traces.report(tmp_path / "report.html")
        traces.advise(min_pct=0)
    assert [sql for sql in made if "_answer" in sql or "run_gpus" in sql or "step_windows" in sql] == []


def test_what_was_prepared_goes_with_what_it_was_computed_of(store: Path, made: list[str]) -> None:
    for more in ("resnet18-1gpu", "alexnet-dp2"):
        with analyze.open(store) as traces:
            traces.prepare(["kernel-share"])
        [state] = (store / ".kept").iterdir()
        before = rows(store, "kernel-share")
        analyze.ingest(SAMPLES / more, store=store)
        assert not state.exists()
        made.clear()
        assert rows(store, "kernel-share") != before
        assert made != []


def test_answers_in_the_cache_come_into_the_store(store: Path, own_cache: Path, made: list[str]) -> None:
    first = rows(store, "critical-path")
    made.clear()
    with analyze.open(store) as traces:
        traces.prepare(["critical-path"])
    assert made == []
    shutil.rmtree(own_cache)
    assert rows(store, "critical-path") == first
    assert made == []


def test_groups_and_ranks_are_prepared_for_themselves(store: Path, made: list[str]) -> None:
    with analyze.open(store) as traces:
        traces.prepare(["kernel-share"], by="rank", where="rank = 1")
    made.clear()
    assert {row[0] for row in rows(store, "kernel-share", by="rank", where="rank > 0")} == {1}
    assert made == []
    assert rows(store, "kernel-share") and made != []


def test_several_stores_are_prepared_in_the_cache(
    store: Path, tmp_path: Path, own_cache: Path, made: list[str]
) -> None:
    analyze.ingest(SAMPLES / "resnet18-1gpu", store=tmp_path / "other")
    with analyze.open(store, tmp_path / "other") as traces:
        traces.prepare(["kernel-share"])
        made.clear()
        traces.query("kernel-share")
    assert made == [] and len(list(own_cache.rglob("*.parquet"))) == 1
    assert not (store / ".kept").exists()


def test_what_cannot_be_answered_is_told_and_the_rest_is_there(store: Path) -> None:
    for damaged in sorted((store / "kernels").rglob("*.parquet")):
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:100] + bytes(len(whole) - 200) + whole[-100:])
        with analyze.open(store) as traces:
            done = traces.prepare(["kernel-share", "cuda-api"])
        assert done.queries == ["cuda-api"] and list(done.failed) == ["kernel-share"]
        assert done.failed["kernel-share"].startswith(f"{damaged}: damaged: ")
        damaged.write_bytes(whole)


def test_the_command_says_where_it_is_kept(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(terminal, "say", told.append)

    def prepare(*options: str) -> str:
        told.clear()
        assert CliRunner().invoke(app, ["prepare", *options]).exit_code == 0
        return told[-1]

    assert re.fullmatch(
        rf"2 question\(s\) answered in \d+\.\d s; kept in {store}", prepare(str(store), "-q", "calls", "-q", "roofs")
    )
    monkeypatch.setattr(engine, "_SMALL", 1 << 40)
    assert "recordings this small" in prepare(str(store))
    assert not (tmp_path / "cache").exists()


def test_a_store_that_cannot_be_written_is_named(store: Path) -> None:
    (store / ".kept").write_text("in the way")
    with analyze.open(store) as traces, pytest.raises(InputError, match=f"^{store}: cannot be written: "):
        traces.prepare(["calls"])
    (store / ".kept").unlink()
    with analyze.open(store) as traces, pytest.raises(InputError, match="no query 'kernel'"):
        traces.prepare(["calls", "kernel"])
    assert not (store / ".kept").exists()


@pytest.mark.parametrize("rows", [terminal.MANY_ROWS - 1, terminal.MANY_ROWS])
def test_a_large_ingest_names_what_answers_ahead(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.ingested(Path("my study"), IngestResult(rows=rows), 1.0)
    said = capsys.readouterr().err
    assert ("next: analyze prepare 'my study' answers ahead" in said) == (rows >= terminal.MANY_ROWS)
