"""What queries are built on: declared, documented, and named by one convention. The truth is DuckDB's own parse tree
and its DESCRIBE."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from commands import run_cli
from support import SAMPLES
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.finding_files import findings
from analyze.query.engine import Engine
from analyze.query.modules import Definition, Module, built_in, columns_of, defining, home, modules, parse_module
from analyze.query.query_declaration import Query
from analyze.query.query_files import catalog, parse
from analyze.query.sql_checks import names_in, names_in_module
from analyze.stored_tables import TABLES
from analyze.trace import critical_path_events
from analyze.trace.counters import counter_tracks

QUERIES = [*catalog().values(), *(f.query for f in findings())]
OF_SQL = [b for b in built_in().values() if b.sql]
DUCKDB = duckdb.connect()


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = Engine(analyze.open(SAMPLES / "late-rank").stores)
    made.execute(f"SELECT 1 -- {' '.join([*home(), *TABLES])}", built_in())
    return made


def variants(query: Query) -> Iterator[tuple[str, dict[str, str]]]:
    """SQL of a query with the defaults and with each choice, and the choices."""
    for chosen in [{}, *({p.name: c} for p in query.params for c in p.choices)]:
        sql, _, choices = query.bind(chosen)
        yield sql, choices


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_a_query_declares_what_it_reads(query: Query) -> None:
    """It declares all modules that its SQL names with any choice, and no others."""
    read: set[str] = set()
    declared: set[str] = set()
    for sql, choices in variants(query):
        found = defining(names_in(DUCKDB, sql, query.name))
        assert set(found) <= set(query.used(choices)), choices
        read |= set(found)
        declared |= set(query.used(choices))
    assert declared == read


@pytest.mark.parametrize("module", OF_SQL, ids=lambda b: b.name)
def test_a_module_declares_what_it_reads(module: Module) -> None:
    assert sorted(module.uses) == defining(names_in_module(DUCKDB, module.sql, module.name))


def test_sql_of_exported_traces_declares_what_it_reads() -> None:
    assert not defining(names_in(DUCKDB, critical_path_events.SQL.format(condition="true"), "own"))
    for counter in counter_tracks("device", "rank"):
        assert defining(names_in(DUCKDB, counter.sql, "own")) == [*counter.uses]


FITTING = {
    "text": r"VARCHAR|ENUM\(.*",
    "id": r"VARCHAR|ENUM\(.*|BIGINT|INTEGER|TUPLE\(.*",
    "index": r"SMALLINT|INTEGER|BIGINT",
    "count": r"BIGINT|INTEGER|HUGEINT",
    "bool": "BOOLEAN",
    "ns": r"BIGINT|HUGEINT|DOUBLE",
    "row": r"STRUCT\(.*|MAP\(.*|.*\[\]",
}
"""Types of DuckDB that the values of a unit have; of the others, numbers."""


def assert_documented(found: list[tuple[str, str]], documented: list[tuple[str, str]]) -> None:
    assert [name for name, _ in found] == [name for name, _ in documented]
    for (name, kind), (_, unit) in zip(found, documented, strict=True):
        fitting = FITTING.get(unit, r"BIGINT|HUGEINT|DOUBLE|INTEGER")
        assert unit == "" or re.fullmatch(fitting, kind, re.DOTALL), (name, kind, unit)


def described(engine: Engine, what: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in engine.connection.execute(f"DESCRIBE {what}").fetchall()]


VIEWS = [d for _, d in home().values() if d.params is None]
MACROS = [d for _, d in home().values() if d.params is not None]


@pytest.mark.parametrize("view", VIEWS, ids=lambda d: d.name)
def test_a_views_columns_are_the_documented_ones(engine: Engine, view: Definition) -> None:
    # What stored tables document is their own unit; those of modules fit the types.
    stored = {c.name for t in TABLES.values() for c in t.columns if any(s.doc in TABLES for s in view.columns)}
    documented = [(c.name, "" if c.name in stored else c.unit) for c in columns_of(view)]
    assert_documented(described(engine, view.name), documented)


def test_everything_a_module_defines_is_documented() -> None:
    """Views as @view, tables as @table, macros as @macro."""
    for module in OF_SQL:
        created = re.findall(r"^CREATE (VIEW|TABLE|MACRO) (\w+)", module.sql, re.MULTILINE)
        documented = re.findall(r"^-- @(view|table|macro) (\w+)", module.sql, re.MULTILINE)
        assert [(kind.lower(), name) for kind, name in created] == documented, module.name
        assert [d.name for d in module.definitions] == [name for _, name in documented], module.name


def test_no_two_modules_define_one_name() -> None:
    """A report reads several modules in one DuckDB, where the first would hide the second."""
    names = [d.name for module in built_in().values() for d in module.definitions]
    assert sorted(names) == sorted({*names})


def test_macros_have_the_documented_parameters(engine: Engine) -> None:
    rows = engine.connection.execute(
        "SELECT function_name, parameters FROM duckdb_functions() WHERE NOT internal AND function_type LIKE '%macro'"
    ).fetchall()
    assert {name: tuple(params) for name, params in rows} == {d.name: d.params for d in MACROS}


_INTERVALS = "(VALUES (1, 0, 5, 0, 2, 'a')) i(track, start_ns, end_ns, level, value, name)"
GIVEN: dict[str, tuple[str, ...]] = {
    "step_coverage": ("marks",),
    "gpu_lengths": ("gpu_segments_span",),
    "gpu_lengths_without": ("gpu_segments_span", "gpu_cold_span"),
    "gap_launches": ("gpu_idle",),
    "hung_runs": ("hung",),
    "thread_activities": ("waits",),
    "interval_findings": ("waits", "held", "held"),
    "intervals_clip": ("gpu_timeline", "gpu_windows_span"),
    "matched_collectives": ("collective_kernels",),
    "kernel_findings": ("tracked_kernels",),
    "labelled_launches": ("kernel",),
    "launch_calls": ("kernels",),
    "limit_findings": ("gains",),
    "limit_sums": ("gains",),
    "launch_sums": ("kernel",),
    "points_in_intervals": ("points", "held"),
    "tree_paths": ("op",),
    "tree_work": ("op",),
}
"""What table macros are asked with: names of tables, or a text; the others with `held` for each parameter."""


@pytest.mark.parametrize("macro", [d for d in MACROS if d.columns], ids=lambda d: d.name)
def test_a_table_macros_columns_are_the_documented_ones(engine: Engine, macro: Definition) -> None:
    given = GIVEN.get(macro.name, ("held",) * len(macro.params or ()))
    tables = (
        f"held AS (SELECT * FROM {_INTERVALS}), points AS (SELECT 1 AS track, 3 AS at_ns),"
        " marks AS (SELECT track, start_ns, end_ns, 'data' AS what FROM step_track_windows),"
        " gains AS (SELECT *, dur_ns AS gain_ns FROM launch_limits),"
        " hung AS (SELECT *, '' AS process_group, 'missing' AS status, 0 AS called_ns FROM flight_records),"
        " waits AS (SELECT 1 AS window_id, 0 AS lane, run_id, rank, tid, start_ns, end_ns FROM thread_spans)"
    )
    arguments = ", ".join(f"'{g}'" for g in given)
    found = described(engine, f"WITH {tables} SELECT * FROM {macro.name}({arguments})")
    documented: list[tuple[str, str]] = []
    for column in columns_of(macro):
        if column.name == "*":
            source = given[(macro.params or ()).index(column.doc)]
            documented += [(name, "") for name, _ in described(engine, f"WITH {tables} SELECT * FROM {source}")]
        else:
            documented.append((column.name, column.unit))
    # The values of `held` are small numbers.
    assert_documented([(n, "BIGINT" if k == "INTEGER" else k) for n, k in found], documented)


def test_every_table_macro_documents_its_columns(engine: Engine) -> None:
    rows = engine.connection.execute(
        "SELECT function_name FROM duckdb_functions() WHERE NOT internal AND function_type = 'table_macro'"
    ).fetchall()
    assert {name for (name,) in rows} == {d.name for d in MACROS if d.columns}


def nodes(select: str) -> Iterator[dict[str, Any]]:
    """All nodes of DuckDB's parse tree of a SELECT."""
    [[tree]] = DUCKDB.execute("SELECT json_serialize_sql($1)", [select]).fetchall()
    found: list[dict[str, Any]] = []
    json.loads(tree, object_hook=lambda node: found.append(node) or node)
    return iter(found)


def ctes(select: str) -> set[str]:
    """The names of all CTEs of a SELECT."""
    return {entry["key"] for node in nodes(select) for entry in node.get("cte_map", {}).get("map", ())}


def selects(module: Module) -> Iterator[tuple[bool, str]]:
    """The SELECT of each view, table and macro of a module, and whether it is a table macro's."""
    for part in module.parts:
        kind, is_table, body = re.fullmatch(
            r"CREATE (VIEW|TABLE|MACRO) .*? AS\s+(TABLE\s+)?(.*);\s*", part.sql, re.S
        ).groups()
        yield bool(is_table), body if kind != "MACRO" or is_table else f"SELECT {body}"


def test_ctes_are_named_by_the_convention() -> None:
    """Plain names in queries, of no table or view; with _ in modules, and of no table that they name to a macro."""
    tables = {*TABLES, *(d.name for d in VIEWS)}
    for query in QUERIES:
        names = set().union(*(ctes(sql) for sql, _ in variants(query)))
        assert not {n for n in names if n.startswith("_")}, query.name
        assert not names & tables, query.name
    of_macros: set[str] = set()
    given: set[str] = set()
    for module in OF_SQL:
        for is_macro, select in selects(module):
            names = ctes(select)
            assert all(n.startswith("_") for n in names), module.name
            of_macros |= names if is_macro else set()
            for node in nodes(select):
                if node.get("type") == "TABLE_FUNCTION":
                    literals = [a["expression"].get("literal") for a in node["function"].get("arguments", ())]
                    given |= {a["text"] for a in literals if a and a["kind"] == "STRING"}
    assert given & {"_ops", "_marks"}, "what modules give to macros is found"
    # Of macros that name their own CTE to another one, both are known to differ.
    known = {"_counted", "_run_covered", "_run_outside", "_run_windows", "_run_within", "_some", "_extended_windows"}
    known |= {"_asked_times", "_late", "_own_times"}
    known |= {f"_thread_{name}" for name in ("calls", "runs", "samples", "windows")}
    known |= {f"_window_{name}" for name in ("calls", "pieces", "runs", "samples")}
    assert not given & of_macros - {"_overhead", "_overhead_gaps", *known}


def test_no_window_function_uses_a_filter() -> None:
    """DuckDB counts anew for each row, so that twice the rows take four times as long; `count(CASE …)` does not. Where
    a window is a walk over all rows, as they come, it does not either."""

    def slow(sql: str) -> bool:
        counts = [n for n in nodes(sql) if n.get("class") == "WINDOW" and n["function_name"].startswith("count")]
        return any(n["filter_expr"] and (n["partitions"] or n["orders"]) for n in counts)

    assert slow("SELECT count(*) FILTER (a) OVER w FROM t WINDOW w AS (PARTITION BY b)")
    assert slow("SELECT 1 + count(a) FILTER (a) OVER (ORDER BY b) FROM t")
    assert not slow("SELECT count(*) FILTER (a) OVER (ROWS UNBOUNDED PRECEDING), count(*) OVER (ORDER BY b) FROM t")
    for query in QUERIES:
        assert not any(slow(sql) for sql, _ in variants(query)), query.name
    for module in OF_SQL:
        assert not any(slow(select) for _, select in selects(module)), module.name


HEADER = (
    "param",
    "column",
    "main",
    "order",
    "use",
    "by",
    "answer",
    "needs",
    "rows",
    "pass",
    "full",
    "disturbed",
    "plot",
    "drill",
)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_a_header_has_its_lines_in_order(query: Query) -> None:
    lines = query.path.read_text().splitlines()
    tags = [m[1] for line in lines if (m := re.match(r"-- @(\w+)", line))]
    assert tags == sorted(tags, key=HEADER.index)
    first = next(i for i, line in enumerate(lines) if line.startswith("-- @"))
    head = lines[first : next(i for i, line in enumerate(lines) if not line.startswith("--"))]
    assert all(re.match(r"-- ( |@)", line) for line in head), "the prose comes first"
    assert list(query.uses) == sorted(query.uses) and len(set(query.uses)) == len(query.uses)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_query_declares_its_needs(query: Query) -> None:
    assert query.needs


@pytest.mark.parametrize("module", OF_SQL, ids=lambda b: b.name)
def test_module_comment_comes_first(module: Module) -> None:
    assert module.description
    assert list(module.uses) == sorted(module.uses)
    tags = [line for line in module.sql.splitlines() if line.startswith("-- @")]
    assert not module.uses or tags[0].startswith("-- @use ")


def test_main_and_plot_are_read(tmp_path: Path) -> None:
    path = tmp_path / "q.sql"
    columns = "-- @column a count  A.\n-- @column b ns  B.\n"
    text = f"-- What?\n{columns}-- @main b, a\n-- @plot bars x=b\nSELECT 1 AS a, 2 AS b\n"
    path.write_text(text)
    query = parse(path)
    assert (query.main, query.plot) == (("b", "a"), "bars x=b")
    path.write_text(text.replace("@main b, a", "@main b, c"))
    with pytest.raises(InputError, match="@main c: there is no such @column"):
        parse(path)


BUILT = "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() AND table_name = 'device_peaks'"


@pytest.fixture
def one_kernel(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "t.json", [kernel("k", 10, 5)])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 -- FROM device_peaks",
        "/* device_peaks */ SELECT 'device_peaks', \"n\" FROM (SELECT 'known_devices' AS n)",
        "WITH device_peaks AS (SELECT 1 AS n) SELECT n FROM device_peaks",
        "SELECT count(*) AS device_peaks FROM kernels",
    ],
)
def test_names_in_strings_and_comments_create_no_view(one_kernel: Path, statement: str) -> None:
    engine = Engine(analyze.open(one_kernel).stores, read_only=True)
    engine.sql(statement).rows()
    assert engine.created - TABLES.keys() == set()
    assert engine.connection.execute(BUILT).fetchall() == [(0,)]


def test_used_views_are_created(one_kernel: Path) -> None:
    engine = Engine(analyze.open(one_kernel).stores, read_only=True)
    assert engine.sql("SELECT count(*) FROM (SELECT * FROM main.Work_Origins)").rows() == [(1,)]
    assert {"work_origins", "gpu_work"} <= engine.created
    # A view that a macro is given by its name.
    assert engine.sql("SELECT count(*) FROM intervals_union('gpu_timeline')").rows() == [(1,)]
    # The view behind a CTE of its name.
    assert engine.sql(
        "WITH gpu_lengths_span AS (FROM gpu_lengths_span) SELECT busy_ns FROM gpu_lengths_span"
    ).rows() == [(5000,)]


def test_only_used_parts_of_a_module_are_created(one_kernel: Path) -> None:
    """A view of three, each of another module or the second of its module, and of 17 macros one and what it reads."""
    engine = Engine(analyze.open(one_kernel).stores, read_only=True)
    assert engine.sql("SELECT start_ns, end_ns FROM Intervals_Union('gpu_timeline')").rows() == [(10_000, 15_000)]
    macros = {"intervals_union", "intervals_with_previous_end", "track_ns", "ns_on_track"}
    assert engine.created - TABLES.keys() == {"rank_starts", "gpu_tracks", "gpu_timeline", *macros}


def own_query(folder: Path, use: str, sql: str, param: str = "") -> Path:
    (folder / "mine").mkdir(parents=True, exist_ok=True)
    path = folder / "mine" / "own.sql"
    path.write_text(f"-- Mine?\n{param}-- @column n count  A number.\n{use}{sql}\n")
    return folder


def test_a_users_query_declares_what_it_reads(tmp_path: Path, one_kernel: Path) -> None:

    def answer(use: str, sql: str, param: str = "", **params: str) -> list[dict[str, Any]]:
        folder = own_query(tmp_path / "q", use, sql, param)
        return analyze.open(one_kernel, queries=[folder]).query("own", params=params).dicts()

    counted = "SELECT NULL AS run_group, count(*) AS n FROM "
    assert answer("-- @use gpu_timeline\n", counted + "gpu_tracks") == [{"n": 1}]
    with pytest.raises(InputError, match=r"query own: .* needs -- @use gpu_timeline"):
        answer("", counted + "gpu_tracks")
    with pytest.raises(InputError, match=r"@use gpu_timelin: there is no such module .* did you mean gpu_timeline"):
        answer("-- @use gpu_timelin\n", counted + "kernels")
    with pytest.raises(InputError, match=r"@use gpu_work: gpu_work is a stored table, which needs no @use"):
        answer("-- @use gpu_work\n", counted + "gpu_work")
    choice = "-- @param what gaps|timeline = timeline  Which.\n"
    for what, view in (("gaps", "device_gaps"), ("timeline", "gpu_tracks")):
        found = answer("-- @use gpu_{what}\n", counted + view, choice, what=what)
        assert found == [{"n": int(what == "timeline")}]
    (tmp_path / "q" / "modules").mkdir()
    module = tmp_path / "q" / "modules" / "mine.sql"
    module.write_text("-- Mine.\n-- @use gpu_timeline\nCREATE VIEW my_work AS FROM gpu_tracks;\n")
    assert answer("-- @use mine\n", counted + "my_work") == [{"n": 1}]
    module.write_text("-- Mine.\nCREATE VIEW my_work AS FROM gpu_tracks;\n")
    with pytest.raises(InputError, match=r"module mine: .* needs -- @use gpu_timeline"):
        answer("-- @use mine\n", counted + "my_work")


def test_a_module_does_not_use_itself(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    for name, used in (("a", "b"), ("b", "a")):
        (tmp_path / "modules" / f"{name}.sql").write_text(
            f"-- What.\n-- @use {used}\nCREATE VIEW {name} AS SELECT 1;\n"
        )
    with pytest.raises(InputError, match=r"@use a: the module uses itself \(a > b > a\)"):
        modules(["a"], [tmp_path])


def test_deeply_nested_sql_is_parsed(one_kernel: Path) -> None:
    """As deep as DuckDB takes it, which is deeper than Python calls itself."""
    engine = Engine(analyze.open(one_kernel).stores)
    assert engine.sql(f"SELECT {'(' * 150}1{' + 1)' * 150} AS n").rows() == [(151,)]


@pytest.mark.parametrize(
    "line",
    [
        "-- @view v",
        "-- @table t is a row",
        "-- @column n count  N.",
        "-- @macro m  what",
        "-- @colum n count  N.",
        "-- @view v  a row is one.\n-- @columns run_id, unknown",
    ],
)
def test_a_modules_comment_lines_are_checked(line: str) -> None:
    with pytest.raises(InputError, match=r"modules/b\.sql: not a well-formed comment line"):
        parse_module("b", f"-- What.\n{line}\nCREATE VIEW v AS SELECT 1;\n", "modules/b.sql")


def test_columns_names_standard_columns() -> None:
    columns = "-- @columns run_id, rank\n-- @column n count  N.\n"
    text = f"-- What.\n\n-- @view v  a row is one.\n{columns}CREATE VIEW v AS SELECT 1;\n"
    [view] = parse_module("b", text, "modules/b.sql").definitions
    assert [(c.name, c.unit) for c in view.columns] == [("run_id", "id"), ("rank", "index"), ("n", "count")]


def test_tables_documents_blocks() -> None:
    listed = run_cli("tables", "--modules").stdout
    assert all(name in listed for name in ("gpu_tracks", "device_peaks", "intervals_clip(t, windows)"))
    of_view = run_cli("tables", "gpu_segments_step").stdout
    assert "Module gpu_timeline" in of_view and "a row is a busy segment of a GPU" in of_view
    assert "gpu_windows_span" not in of_view.partition("a row is")[2].partition("window_id")[0]
    assert "FROM" not in of_view
    assert run_cli("tables", "kernels").stdout.startswith("kernels: a row is")
    wrong = run_cli("tables", "gpu_wrok")
    assert wrong.returncode == 2 and "did you mean gpu_work" in wrong.stderr
    assert run_cli("tables", "gpu_tracks", "--modules").returncode == 2
