"""DuckDB instances of engines: what each sees, their settings, and the instance for expressions."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import duckdb
import pytest
from commands import run_python
from support import SAMPLES, children
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError, MachineError
from analyze.query.databases import Database, empty_database
from analyze.query.engine import Engine
from analyze.query.query_files import find
from analyze.query.selection import Selection
from analyze.store.store import Store

KERNELS = "SELECT name FROM kernels ORDER BY ALL"


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    """One of the kernel a, one of b."""
    return [analyze.open(write_trace(tmp_path / f"{n}.json", [kernel(n, 0, 5)])).stores[0] for n in "ab"]


def test_each_engine_sees_only_its_runs(stores: list[Store]) -> None:
    engines = [Engine([store]) for store in (*stores, *stores)]
    assert [e.rows(KERNELS) for e in engines] == [[("a",)], [("b",)]] * 2
    # What one makes, the other makes for itself.
    works = [e.rows("SELECT name, kind FROM gpu_work") for e in engines]
    assert works == [[("a", "kernel")], [("b", "kernel")]] * 2


def test_threads_query_in_parallel(stores: list[Store]) -> None:
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


def test_spill_folder_is_removed_with_the_last_engine(stores: list[Store]) -> None:
    engine = Engine([stores[0]])
    [(folder,)] = engine.rows("SELECT current_setting('temp_directory')")
    answer = engine.query(find("kernel-share"))
    del engine
    gc.collect()
    assert Path(folder).is_dir() and len(answer.rows()) == 1
    del answer
    gc.collect()
    assert not Path(folder).exists()


def test_sql_cannot_read_other_files(stores: list[Store], tmp_path: Path) -> None:
    """Here without the wall before it, `plain_sql`; tests/test_sql_checks.py asks much more."""
    engine, secret = Engine([stores[0]], read_only=True), tmp_path / "secret.txt"
    secret.write_text("x")
    assert engine.sql(KERNELS).rows() == [("a",)]
    for database in (engine, Engine([stores[0]])):
        with pytest.raises(Exception, match="Permission Error"):
            database.execute(f"SELECT content FROM read_text('{secret}')").fetchall()


def test_where_selects_runs(stores: list[Store]) -> None:
    engine = Engine([stores[0]], Selection(where=("rank = 0 AND run_id LIKE 'a-%' AND profiler IN ('torch', 'nsys')",)))
    assert engine.rows(KERNELS) == [("a",)]
    assert Engine([stores[0]], Selection(where=("rank = 0", "rank > 0"))).run_ids == []


def test_user_queries_run_in_a_process(stores: list[Store], tmp_path: Path) -> None:
    own = tmp_path / "queries" / "mine" / "all-kernels.sql"
    own.parent.mkdir(parents=True)
    header = "-- All kernels.\n-- @needs kernels\n-- @column name text  Name.\n-- @column ns count  Sum.\n"
    own.write_text(f"{header}SELECT run_group, name, sum(dur_ns) AS ns FROM kernels GROUP BY ALL;\n")
    query = find("all-kernels", [tmp_path / "queries"])
    engine = Engine([stores[0]])
    assert engine.query(query).rows() == [("a", 5000)]
    assert engine.query(query, select=["ns"], only={"name": "a"}).rows() == [(5000,)]
    assert engine.query(query, only={"name": "b"}).rows() == []


def test_built_in_queries_start_no_sql_process(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "def no_process(event, arguments):\n"
        "    assert event != 'subprocess.Popen' or 'sql_worker' not in str(arguments), arguments\n"
        "sys.addaudithook(no_process)\n"
        "import analyze\nfrom pathlib import Path\n"
        f"folder, traces = Path({str(tmp_path)!r}), analyze.open({str(SAMPLES / 'resnet18-1gpu')!r})\n"
        "for name in ('ops', 'critical-path', 'health', 'runs'): assert traces.query(name).rows()\n"
        "assert traces.advise().rows() and traces.info()\n"
        "traces.report(folder / 'report.html')\n"
        "traces.trace(folder / 'trace.json', critical_path=True)\n"
        "traces.flame(folder / 'flame.folded')\n"
        "traces.plot('kernel-share', folder / 'plot.svg')\n"
        "traces.pivot('kernel-share', rows=['name'], value='calls')\n"
        "analyze.compare(traces, traces)\n"
        "try: traces.sql('SELECT 1')\n"
        "except AssertionError: print('sql starts one')\n"
    )
    result = run_python("-c", code)
    assert (result.returncode, result.stdout) == (0, "sql starts one\n"), result.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds its processes in /proc")
def test_killed_query_process_is_one_sentence(stores: list[Store]) -> None:
    engine, before = Engine([stores[0]]), children(os.getpid())
    answer = engine.sql("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range + b.range) = 1")
    [own] = children(os.getpid()) - before
    os.kill(own, signal.SIGKILL)
    with pytest.raises(MachineError, match=r"^SQL: its process was ended by signal 9"):
        answer.rows()
    assert engine.sql(KERNELS).rows() == [("a",)]


def test_progress_bar_does_not_mix_with_rows(stores: list[Store]) -> None:
    """DuckDB draws a progress bar on stdout, which carries the rows, once a statement has run for two seconds."""
    rows, took = 2_000, 0.0
    while took < 2.5:
        rows *= 2
        began = time.monotonic()
        answer = Engine([stores[0]]).sql(
            f"SELECT count(*) AS n FROM range({rows}) a(i), range(20000) b(j) WHERE hash(i * 20000 + j) % 2 < 2"
        )
        assert answer.rows() == [(rows * 20_000,)]
        took = time.monotonic() - began


def test_query_process_returns_python_values(stores: list[Store]) -> None:
    """As DuckDB gives them: Arrow has no HUGEINT, which a sum of integers is."""
    sql = (
        "SELECT sum(dur_ns) AS s, [sum(dur_ns)] AS l, {'a': sum(dur_ns)} AS d, 1.5 AS n, TIMESTAMP '2026-01-02' AS t,"
        " 'x' AS text, NULL AS nothing, true AS b FROM kernels"
    )
    engine, here = Engine([stores[0]]), Engine([stores[0]], read_only=True)
    [row] = engine.sql(sql).rows()
    assert row == here.sql(sql).rows()[0] and [type(v) for v in row] == [type(v) for v in here.sql(sql).rows()[0]]
    assert engine.sql(sql).columns == here.sql(sql).columns
    many = engine.sql("SELECT i FROM range(250000) t(i)")
    assert len(many.rows(3)) == 3 and len(many.arrow()) == len(many.rows()) == 250_000, "rows can be taken again"
    many.cut(5)
    assert many.arrow().num_rows == 5 and len(many.rows(2)) == 2
    assert engine.sql("SELECT i FROM range(250000) t(i) ORDER BY i").arrow()["i"][-1].as_py() == 249_999


@pytest.mark.parametrize(
    ("condition", "joined"),
    [
        ("a.odd = b.odd AND a.start_ns >= b.start_ns", "ASOF_JOIN"),
        ("a.end_ns > b.start_ns AND b.end_ns > a.start_ns", "IE_JOIN"),
    ],
)
def test_engines_use_no_nested_loop_join(condition: str, joined: str) -> None:
    """DuckDB uses it where it expects few rows: too few, of a query over ten million kernels."""
    asof = "ASOF" if joined == "ASOF_JOIN" else ""
    rows = "(SELECT range AS start_ns, range + 5 AS end_ns, range % 2 AS odd FROM range(1000) LIMIT 3)"
    asked = f"EXPLAIN (FORMAT json) SELECT * FROM {rows} a {asof} JOIN {rows} b ON {condition}"
    plans = []
    for connection in (Database([], None).connection, duckdb.connect()):
        plans += connection.execute(asked).fetchall()
    assert [f'"{joined}"' in plan for _, plan in plans] == [True, False]
    assert ['"NESTED_LOOP_JOIN"' in plan for _, plan in plans] == [False, True]


def test_thread_and_memory_settings_apply(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_empty_databases_are_isolated(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n")
    one, other = empty_database(), empty_database()
    one.execute("CREATE TEMP TABLE mine AS SELECT 1 AS x")
    assert one.execute("SELECT x FROM mine").fetchall() == [(1,)]
    with pytest.raises(duckdb.CatalogException, match="mine does not exist"):
        other.execute("SELECT x FROM mine")
    with pytest.raises(duckdb.PermissionException, match="disabled"):
        one.execute(f"SELECT * FROM read_csv('{tmp_path}/t.csv')")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_forked_process_has_its_own_database() -> None:
    """Threads of DuckDB are not in it: one that waited for them would wait for ever."""
    code = (
        "import os, analyze\n"
        "from analyze.query.databases import empty_database\n"
        "def ask():\n"
        f"    traces = analyze.open({str(SAMPLES / 'resnet18-1gpu')!r})\n"
        "    many = empty_database().execute('SELECT count(*) FROM range(1000000) WHERE range % 2 = 0').fetchall()\n"
        "    return traces.query('kernel-share').dicts() + many\n"
        "rows = ask()\n"
        "if not (child := os.fork()):\n"
        "    os._exit(0 if ask() == rows else 1)\n"
        "print(len(rows), os.waitpid(child, 0)[1])\n"
    )
    result = run_python("-c", code, TRACEQUARRY_THREADS="2")
    rows, ended = result.stdout.split()
    assert int(rows) > 5 and ended == "0", result.stderr
