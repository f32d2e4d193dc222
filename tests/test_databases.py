"""Engines of small recordings share a DuckDB: what they see of each other, what of it is left, and who has his own."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support import SAMPLES, kernel, run_python, write_trace

import analyze
from analyze.errors import InputError
from analyze.query import engine as engines
from analyze.query.databases import Own, Shared, empty_database
from analyze.query.engine import Engine
from analyze.query.query_files import find
from analyze.query.recordings import Recordings
from analyze.store.store import Store

KERNELS = "SELECT name FROM kernels ORDER BY ALL"


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    """One of the kernel a, one of b."""
    return [analyze.open(write_trace(tmp_path / f"{n}.json", [kernel(n, 0, 5)])).stores[0] for n in "ab"]


@pytest.fixture
def places() -> list[str]:
    """The places in the shared DuckDB that engines of other tests still hold."""
    gc.collect()
    return _places(Shared())


def _places(shared: Shared) -> list[str]:
    shared._process.let_go()
    names = "SELECT database_name FROM duckdb_databases() WHERE starts_with(database_name, 'engine_') ORDER BY ALL"
    return [name for (name,) in shared.connection.execute(names).fetchall() if name != shared._name]


def test_each_sees_its_own_runs(stores: list[Store]) -> None:
    engines = [Engine([store]) for store in (*stores, *stores)]
    assert [e.rows(KERNELS) for e in engines] == [[("a",)], [("b",)]] * 2
    # What one makes, the other makes for itself.
    works = [e.rows("SELECT name, kind FROM gpu_work", ["gpu_work"]) for e in engines]
    assert works == [[("a", "kernel")], [("b", "kernel")]] * 2
    assert len({id(e._database._process) for e in engines if isinstance(e._database, Shared)}) == 1


def test_threads_ask_side_by_side(stores: list[Store]) -> None:
    wrong: list[object] = []

    def ask(store: Store, name: str) -> None:
        for _ in range(10):
            try:
                rows = Engine([store]).query(find("kernel-share")).rows()
            except BaseException as e:
                wrong.append(e)
            else:
                wrong.extend(row for row in rows if name not in row)

    threads = [threading.Thread(target=ask, args=(store, name)) for store, name in zip(stores, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nothing_is_left_of_those_that_are_gone(stores: list[Store], places: list[str]) -> None:
    closed, dropped, beside = (Engine([stores[0]]) for _ in range(3))
    other = beside.beside()
    answer = dropped.query(find("kernel-share"))
    watch = Shared()
    assert len(_places(watch)) == len(places) + 3
    closed.close()
    del dropped, beside
    gc.collect()
    # One is needed until the rows are taken, and one as long as the engine beside it.
    assert len(_places(watch)) == len(places) + 2
    assert len(answer.rows()) == 1 and other.rows(KERNELS) == [("a",)]
    del answer, other
    gc.collect()
    assert _places(watch) == places


def test_sql_of_others_is_run_by_one_that_can_read_nothing_else(stores: list[Store], tmp_path: Path) -> None:
    """Here without the wall before it, `plain_sql`; tests/test_plain_sql.py asks much more."""
    engine, secret = Engine([stores[0]]), tmp_path / "secret.txt"
    secret.write_text("x")
    read = f"SELECT content FROM read_text('{secret}')"
    shared = engine.query(find("kernel-share"))
    assert engine.execute(read).fetchall()
    assert engine.sql(KERNELS).rows() == [("a",)]
    with pytest.raises(Exception, match="Permission Error"):
        engine.execute(read)
    # What was asked before can still be taken, and what the package asks is answered as before.
    assert shared.rows() == engine.query(find("kernel-share")).rows()


def test_where_is_asked_where_there_is_nothing_else(
    stores: list[Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here without the wall before it, too."""
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    engine = Engine([stores[0]], where="rank = 0 AND run_id LIKE 'a-%' AND profiler IN ('torch', 'nsys')")
    assert isinstance(engine._database, Shared) and engine.rows(KERNELS) == [("a",)]
    assert Engine([stores[0]], where=["rank = 0", "rank > 0"]).run_ids == []
    monkeypatch.setattr("analyze.query.recordings.check_expression", lambda *given: None)
    with pytest.raises(InputError, match=r"--where .*Permission Error"):
        Engine([stores[0]], where=f"(SELECT count(*) FROM read_text('{secret}')) = 1")
    for table in ("run_groups", "kernels"):
        with pytest.raises(InputError, match=rf"--where .*{table}.* does not exist"):
            Engine([stores[0]], where=f"(SELECT count(*) FROM {table}) = 1")


def test_a_query_of_ones_own_is_sql_of_others(stores: list[Store], tmp_path: Path) -> None:
    own = tmp_path / "queries" / "mine" / "all-kernels.sql"
    own.parent.mkdir(parents=True)
    header = "-- All kernels.\n-- @needs kernels\n-- @column name text  Name.\n"
    own.write_text(f"{header}SELECT run_group, name FROM kernels;\n")
    engine = Engine([stores[0]])
    assert isinstance(engine._database, Shared)
    assert engine.query(find("all-kernels", [tmp_path / "queries"])).rows() == [("a",)]
    assert not isinstance(engine._database, Shared)


def test_what_the_package_asks_itself_is_not_sql_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine has made would be made again in the other DuckDB."""
    monkeypatch.setattr(Own, "__init__", lambda *given: pytest.fail("an engine left the shared DuckDB"))
    with analyze.open(SAMPLES / "resnet18-1gpu") as traces:
        for name in ("ops", "critical-path", "health", "runs"):
            assert traces.query(name).num_rows
        assert traces.advise().num_rows and traces.info()
        traces.report(tmp_path / "report.html")
        traces.trace(tmp_path / "trace.json", critical_path=True)
        traces.flame(tmp_path / "flame.folded")
        traces.plot("kernel-share", tmp_path / "plot.svg")
        traces.pivot("kernel-share", rows=["name"], value="calls")
        analyze.compare(traces, traces)


def test_an_engine_that_could_not_leave_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = analyze.open(write_trace(tmp_path / "t.json", [kernel("a", 0, 5)]))
    before = traces.query("kernel-share")
    select = Recordings.select
    for fails in (InputError("of the environment"), duckdb.IOException("no more files"), KeyboardInterrupt()):

        def failing(*given: Any, fails: BaseException = fails) -> None:
            raise fails

        monkeypatch.setattr(Recordings, "select", failing)
        with pytest.raises((InputError, duckdb.Error, KeyboardInterrupt)):
            traces.sql(KERNELS)
        monkeypatch.setattr(Recordings, "select", select)
        assert traces.query("kernel-share").equals(before)
        assert traces.sql(KERNELS).to_pylist() == [{"name": "a"}]
        traces = analyze.open(tmp_path / "t.json")
        traces.query("kernel-share")


def test_large_recordings_have_their_own(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_SMALL", 0)
    engine = Engine([stores[0]])
    assert not isinstance(engine._database, Shared) and engine.rows(KERNELS) == [("a",)]


@pytest.mark.parametrize(
    ("condition", "joined"),
    [
        ("a.odd = b.odd AND a.start_ns >= b.start_ns", "ASOF_JOIN"),
        ("a.end_ns > b.start_ns AND b.end_ns > a.start_ns", "IE_JOIN"),
    ],
)
def test_large_recordings_are_not_joined_row_with_row(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch, condition: str, joined: str
) -> None:
    """As DuckDB does where it expects few rows: too few, of a question about ten million kernels."""
    asof = "ASOF" if joined == "ASOF_JOIN" else ""
    rows = "(SELECT range AS start_ns, range + 5 AS end_ns, range % 2 AS odd FROM range(1000) LIMIT 3)"
    asked = f"EXPLAIN (FORMAT json) SELECT * FROM {rows} a {asof} JOIN {rows} b ON {condition}"
    plans = []
    for small in (0, 1 << 40):
        monkeypatch.setattr(engines, "_SMALL", small)
        plans += Engine([stores[0]]).rows(asked)
    assert [f'"{joined}"' in plan for _, plan in plans] == [True, False]
    assert ['"NESTED_LOOP_JOIN"' in plan for _, plan in plans] == [False, True]


def test_settings_hold_for_it(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "SELECT current_setting('threads'), current_setting('memory_limit'), current_setting('TimeZone')"
    monkeypatch.setenv("TRACEQUARRY_THREADS", "1")
    monkeypatch.setenv("TRACEQUARRY_MEMORY", "1GB")
    assert Engine([stores[0]]).rows(asked) == [(1, "667.5 MiB", "UTC")]
    monkeypatch.setenv("TRACEQUARRY_MEMORY", "2GB")
    assert Engine([stores[0]]).rows(asked) == [(1, "1.3 GiB", "UTC")]
    assert empty_database().execute(asked).fetchall() == [(1, "1.3 GiB", "UTC")]
    for connection in (Engine([stores[0]]).connection, empty_database()):
        with pytest.raises(Exception, match="locked"):
            connection.execute("SET threads = 4")
    monkeypatch.setenv("TRACEQUARRY_THREADS", "many")
    for make in (lambda: Engine([stores[0]]), empty_database):
        with pytest.raises(InputError, match="not a number of threads"):
            make()


def test_one_for_rows_opens_nothing_and_shows_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n")
    one, other = empty_database(), empty_database()
    one.execute("CREATE TEMP TABLE mine AS SELECT 1 AS x")
    assert one.execute("SELECT x FROM mine").fetchall() == [(1,)]
    with pytest.raises(duckdb.CatalogException, match="mine does not exist"):
        other.execute("SELECT x FROM mine")
    with pytest.raises(duckdb.PermissionException, match="disabled"):
        one.execute(f"SELECT * FROM read_csv('{tmp_path}/t.csv')")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_forked_process_has_its_own() -> None:
    """Threads of DuckDB are not in it: one that waited for them would wait for ever."""
    code = (
        "import os, analyze\n"
        "from analyze.query.databases import empty_database\n"
        "def ask():\n"
        f"    traces = analyze.open({str(SAMPLES / 'resnet18-1gpu')!r})\n"
        "    many = empty_database().execute('SELECT count(*) FROM range(1000000) WHERE range % 2 = 0').fetchall()\n"
        "    return traces.query('kernel-share').to_pylist() + many\n"
        "rows = ask()\n"
        "if not (child := os.fork()):\n"
        "    os._exit(0 if ask() == rows else 1)\n"
        "print(len(rows), os.waitpid(child, 0)[1])\n"
    )
    result = run_python("-c", code, TRACEQUARRY_THREADS="2")
    rows, ended = result.stdout.split()
    assert int(rows) > 5 and ended == "0", result.stderr
