"""User SQL only reads: no files, no writes, no changes of the store."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from commands import run_cli
from fsspec.implementations.local import LocalFileSystem
from traces import kernel, write_trace

import analyze
from analyze.errors import InputError, MachineError
from analyze.finding_files import findings
from analyze.query.engine import Engine
from analyze.query.modules import built_in, home
from analyze.query.query_files import catalog, find
from analyze.query.selection import Selection
from analyze.query.sql_checks import check_expression, check_select, module_statements
from analyze.query.stored_files import StoredFiles
from analyze.store.store import Store

SECRET = "the-secret-of-another-file"


class Place:
    """A store with one run, a secret beside it, and the folder that nothing may be written to."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.secret = folder / "secret.csv"
        self.secret.write_text(f"{SECRET}\n1\n")
        write_trace(folder / "raw" / "t.json", [kernel("k", 0, 5)])
        assert run_cli("ingest", folder / "raw", "--store", folder / "store").returncode == 0
        self.store = folder / "store"
        [self.parquet] = (self.store / "kernels").rglob("*.parquet")
        self.before = self.content()

    def content(self) -> dict[str, str]:
        """Every file and its bytes, as a digest."""
        files = [p for p in sorted(self.folder.rglob("*")) if p.is_file()]
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(made.folder)
    yield made
    assert made.content() == made.before


def writers(place: Place) -> list[str]:
    """Statements that write into the folder or over a file of the store, or read what is not the store's."""
    out, secret = place.folder / "out.csv", place.secret
    return [
        "SELECT 1; SELECT 2",
        "SET enable_external_access = true",
        f"COPY (SELECT 42) TO '{out}'",
        f"copy/**/(SELECT 42)/**/TO '{out}'",
        f"COPY (SELECT 42 a) TO '{place.parquet}' (USE_TMP_FILE false)",
        f"COPY (SELECT 42 a) TO '{place.store}/store.json' (FORMAT csv)",
        f"ATTACH '{place.folder}/made.db'",
        f"ATTACH '{place.folder}/made.db' AS z; CREATE TABLE z.t AS SELECT 1",
        f"EXPORT DATABASE '{place.folder}/export'",
        f"CREATE TABLE x AS FROM read_text('{secret}')",
        # What a pattern takes for a comment or the end of one, and DuckDB does not.
        f"/* /* */ EXPLAIN SELECT 1 -- */ COPY (SELECT 42 a) TO '{place.parquet}' (USE_TMP_FILE false)",
        f"SELECT 1 --\rFROM kernels; COPY (SELECT 42 a) TO '{place.parquet}' (USE_TMP_FILE false)",
        f"--\rCOPY (SELECT 42 a) TO '{place.parquet}' (USE_TMP_FILE false)",
        "SELECT 1 --\r; COPY (SELECT 42 a) TO (getvariable('p'))",
        f"EXPLAIN ANALYZE COPY (SELECT 42 a) TO '{place.parquet}' (USE_TMP_FILE false)",
        "EXPLAIN SELECT 1",
        "CREATE OR REPLACE VIEW runs AS SELECT 1",
        "PIVOT kernels ON name USING sum(dur_ns)",
        f"SET temp_directory = '{place.folder}'",
        f"PRAGMA profiling_output = '{place.folder}/profile.json'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CALL enable_logging(storage = 'file')",
        "PREPARE x AS SELECT 1",
    ]


def selects(place: Place) -> list[str]:
    """The same inside a SELECT."""
    out, secret, parquet = place.folder / "out.csv", place.secret, place.parquet
    copy = f"COPY (SELECT 42 a) TO '{out}'"
    over = f"COPY (SELECT 42 a) TO '{parquet}' (USE_TMP_FILE false)"
    return [
        f"WITH x AS ({copy}) SELECT 1",
        f"WITH x AS ({over}) SELECT 1",
        f"WITH x AS (COPY (SELECT 1 a) TO '{place.store}/store.json') SELECT 1",
        f"WITH x AS MATERIALIZED ({over}) SELECT 1",
        f"WITH y AS (WITH x AS ({over}) SELECT 1) SELECT * FROM y",
        f"SELECT (WITH x AS ({over}) SELECT 1)",
        f"SELECT 1 WHERE EXISTS (WITH x AS ({over}) SELECT 1)",
        f"SELECT 1 UNION ALL (WITH x AS ({over}) SELECT 1)",
        f"SELECT 1 ORDER BY (WITH x AS ({over}) SELECT 1)",
        f"WITH RECURSIVE x AS ({over}) SELECT 1",
        f"EXPLAIN ANALYZE {over}",
        f"explain/**/analyze {over}",
        f"-- a comment\nEXPLAIN ANALYZE {copy}",
        f"EXPLAIN ANALYZE WITH x AS ({over}) SELECT 1",
        "WITH x AS (DELETE FROM run_groups RETURNING *) SELECT * FROM x",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f'SELECT * FROM "{secret}"',
        f'SELECT * FROM main."{secret}"',
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM read_blob('{secret}')",
        f"SELECT * FROM system.main.read_text('{secret}')",
        f"SELECT * FROM sniff_csv('{secret}')",
        f"SELECT * FROM parquet_metadata('{parquet}')",
        f"SELECT * FROM read_parquet('{parquet}')",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT * FROM 'https://example.org/x.csv'",
        "SELECT * FROM glob('*')",
        f"SELECT (SELECT content FROM read_text('{secret}'))",
        f"SELECT * FROM query('WITH x AS ({over.replace(chr(39), chr(39) * 2)}) SELECT 1')",
        f"SELECT * FROM query_table('{secret}')",
        f"SELECT * FROM query_table(['{secret}'])",
        f"SELECT * FROM intervals_union('{secret}')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM pg_catalog.pg_settings",
        "SHOW allowed_paths",
        "SHOW temp_directory",
        "FROM (SHOW allowed_directories)",
        "SHOW DATABASES",
        "SHOW VARIABLES",
        "SELECT * FROM duckdb_secrets()",
        "SELECT current_setting('temp_directory')",
        "SELECT getenv('HOME')",
        "SELECT sleep_ms(1)",
        f"DESCRIBE FROM '{secret}'",
        f"SUMMARIZE FROM '{secret}'",
        "SELECT * FROM python_variable",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "SELECT 1 \0",
        "SELECT '\udcff'",
    ]


def refused(ask: Callable[[], object], what: object = "") -> None:
    """The question is an InputError of one line that shows nothing of the secret."""
    try:
        answer = ask()
    except InputError as e:
        assert SECRET not in str(e) and len(str(e).splitlines()) == 1
    else:
        pytest.fail(f"{what} was answered: {answer}")


def test_sql_only_reads_the_tables(place: Place) -> None:
    python_variable = analyze.open(place.store).query("kernel-share").arrow()
    assert python_variable.num_rows == 1
    engine = Engine([Store(place.store)], read_only=True)
    for statement in [*writers(place), *selects(place)]:
        refused(lambda s=statement: engine.sql(s).rows(), statement)  # type: ignore[misc]
        assert place.content() == place.before, statement
    for statement in writers(place)[-3:]:
        refused(lambda s=statement: analyze.open(place.store).sql(s).arrow(), statement)  # type: ignore[misc]


def test_where_filter_and_compare_take_one_expression(place: Place) -> None:
    traces = analyze.open(place.store)
    parser = Engine(traces.stores).connection
    attacks = [
        *(f"1=1); {s}; --" for s in writers(place)),
        *(f"1=1)\n; {s} --" for s in writers(place)),
        *(f"1 = ({s})" for s in selects(place) if "SELECT" in s or "FROM" in s),
        *(f"1=1) AND EXISTS ({s}" for s in selects(place)),
        f"(SELECT content FROM read_text('{place.secret}')) = ''",
        f"run_id IN (SELECT * FROM '{place.secret}')",
        "1=1) OR (1=1",
        "1=1 /*",
        "1=1, 2",
        "1=1 FROM runs",
        "1=1 UNION SELECT true",
        "1=1 ORDER BY 1",
        "1=1 LIMIT 1",
        "DISTINCT true",
        "true AS x",
        "*",
        "nextval('x') = 1",
    ]
    for attack in attacks:
        refused(lambda a=attack: check_expression(parser, a, "here"), attack)  # type: ignore[misc]
    for attack in attacks[::24]:
        refused(lambda a=attack: traces.where(a).sql("SELECT 1").arrow(), attack)  # type: ignore[misc]
        refused(lambda a=attack: traces.where(a).query("kernel-share").arrow(), attack)  # type: ignore[misc]
        refused(lambda a=attack: traces.pivot("kernel-share", ["name"], "calls", filter=a).arrow(), attack)  # type: ignore[misc]
        refused(lambda a=attack: traces.query("kernel-share", filter=a).arrow(), attack)  # type: ignore[misc]
        refused(lambda a=attack: analyze.compare(traces, traces, where_a=a), attack)  # type: ignore[misc]
        assert place.content() == place.before, attack


def test_where_accepts_computations(place: Place) -> None:
    traces = analyze.open(place.store)
    for where, n in (
        ("rank = 0", 1),
        ("rank IN (1, 2) OR run_id LIKE '%' AND len(run_id) > 0", 1),
        ("model IS NULL -- the rest is a comment", 1),
        ("coalesce(batch_size, 0) BETWEEN 1 AND 4", 0),
        ("batch_size = 3", 0),
        ("regexp_matches(lower(run_id), 't$|.') AND CASE WHEN rank = 0 THEN true END", 1),
    ):
        engine = Engine(traces.stores, Selection(where=(where,)), read_only=True)
        assert engine.sql("SELECT count(*) AS n FROM kernels").rows() == [(n,)], where
    assert traces.where(where).sql("SELECT count(*) AS n FROM kernels").dicts() == [{"n": n}]


def test_sql_accepts_computations(place: Place) -> None:
    engine = Engine([Store(place.store)], read_only=True)
    for statement in (
        "WITH a AS (SELECT 1 AS x), b AS (FROM a) SELECT * FROM b JOIN a USING (x)",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT max(n) FROM t",
        "SELECT i FROM range(3) r(i), unnest([1, 2])",
        "FROM main.kernels SELECT count(*)",
        "SELECT * FROM intervals_union('gpu_timeline')",
        "DESCRIBE kernels",
        "SUMMARIZE kernels",
        "SHOW TABLES",
        "VALUES (1), (2)",
        "SELECT * FROM (VALUES (1, 'a'), (1, 'b')) v(k, c) PIVOT (count(*) FOR c IN ('a', 'b'))",
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'kernels'",
        "SELECT list_transform([1, 2], lambda x: x + 1), strftime(now(), '%Y')",
        "SELECT 1 -- done;",
        "SELECT 1;",
    ):
        assert engine.sql(statement).arrow().num_rows > 0, statement


def test_query_files_and_blocks_only_read_the_tables(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "group").mkdir(parents=True)
    (folder / "modules").mkdir()
    head = "-- What is it?\n-- @column x number   It.\n"

    def ask(query: str, block: str = "", order: str = "") -> None:
        used = "-- @use own\n" if block else ""
        ordered = f"-- @order {order}\n" if order else ""
        (folder / "group" / "own.sql").write_text(f"{head}{used}{ordered}{query}", errors="surrogateescape")
        (folder / "modules" / "own.sql").write_text(f"-- A module.\n{block}")
        Engine([Store(place.store)], read_only=True).query(find("own", [folder])).rows()

    plain = "SELECT run_group, 1 AS x FROM runs"
    ask(plain)
    ask(
        "SELECT run_group, twice(y) AS x FROM own_view WHERE y IN (SELECT y FROM own_table('own_view'))",
        "CREATE VIEW own_view AS SELECT run_group, 1 AS y FROM runs;\n-- A macro.\n"
        "CREATE MACRO twice(a) AS 2 * a;\nCREATE MACRO own_table(t) AS TABLE SELECT y FROM query_table(t);\n",
        "x DESC NULLS LAST, -x",
    )
    for statement in writers(place)[::3]:
        refused(lambda s=statement: ask(s))  # type: ignore[misc]
        refused(lambda s=statement: ask(plain, s))  # type: ignore[misc]
        refused(lambda s=statement: ask(plain, f"CREATE VIEW v AS SELECT 1; {s}"))  # type: ignore[misc]
    for statement in selects(place)[::4]:
        if "\0" in statement or "\udcff" in statement or "SELECT" not in statement:
            continue
        one_line = " ".join(line for line in statement.splitlines() if not line.startswith("--"))
        refused(lambda s=statement: ask(f"SELECT NULL AS run_group, 1 AS x FROM ({s})"))  # type: ignore[misc]
        refused(lambda s=one_line: ask(plain, order=f"x, ({s})"))  # type: ignore[misc]
        refused(lambda s=statement: ask(plain, f"CREATE VIEW v AS {s}"))  # type: ignore[misc]
        refused(lambda s=statement: ask(plain, f"CREATE MACRO m(a) AS TABLE {s}"))  # type: ignore[misc]
        refused(lambda s=statement: ask(plain, f"CREATE MACRO m(a) AS ({s})"))  # type: ignore[misc]
    refused(lambda: ask(plain, order=f"x; COPY (SELECT 1) TO '{place.folder}/out.csv'"))
    refused(lambda: ask("-- @use ../../../etc/own\n" + plain))
    ask(plain)
    assert analyze.open(place.store, queries=[folder]).query("own").dicts() == [{"x": 1}]
    assert place.content() == place.before


def test_names_are_names(place: Place) -> None:
    """--by, --sort and --select name columns; nothing of them is SQL."""
    traces = analyze.open(place.store)
    for text in ("name\"; COPY (SELECT 1) TO 'out.csv", "1) --", "dur_ns + 1", 'name" DESC', "(SELECT 1)"):
        for option in ({"sort": text}, {"select": [text]}, {"by": [text]}):
            refused(lambda o=option: traces.query("kernel-share", **o).arrow())  # type: ignore[misc, arg-type]
    refused(lambda: analyze.compare(traces, traces, sort="(SELECT 1)"))
    refused(lambda: traces.pivot("kernel-share", rows=["(SELECT 1)"], value="calls").arrow())


def test_a_parameter_is_a_value(place: Place) -> None:
    traces = analyze.open(place.store)
    text = "' OR 1=1; COPY (SELECT 1) TO 'out.csv'; --"
    assert (
        traces.query("collectives").arrow().num_rows
        == traces.query("stragglers", params={"collective": text}).arrow().num_rows
        == 0
    )


def test_the_connection_cannot_write_without_the_parser(place: Place) -> None:
    """The second wall: a DuckDB for SQL of unknown origin, whatever is asked of it without the first one."""
    engine = Engine([Store(place.store)], read_only=True)
    assert engine.sql("SELECT count(*) FROM kernels").rows() == [(1,)]
    connection = engine.connection
    [[view]] = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'kernels'").fetchall()
    [name] = re.findall(r"stored://\d+\.parquet", view)
    out = place.folder / "out.csv"
    for statement in (
        *writers(place),
        *selects(place),
        f"COPY (SELECT 1 a) TO '{name}' (FORMAT parquet, USE_TMP_FILE false)",
        f"COPY (SELECT 1 a) TO '{name}'",
        "COPY (SELECT 1 a) TO 'stored://new.parquet'",
        f"COPY (SELECT 1 a) TO '{place.parquet.parent}/new.parquet'",
        f"SELECT * FROM read_text('{place.store}/store.json')",
        f"COPY (SELECT 42) TO '{out}' (USE_TMP_FILE false)",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        f"SET allowed_paths = ['{place.secret}']",
    ):
        with suppress(duckdb.Error, UnicodeError, TypeError):
            done = connection.execute(statement)
            shown = str(done.fetchall()) if done else ""
            assert SECRET not in shown and str(place.folder) not in shown, statement
        assert place.content() == place.before, statement
    settings = connection.execute("SELECT value FROM duckdb_settings()").fetchall()
    assert not [value for (value,) in settings if value and str(place.folder) in value]
    assert connection.execute("SELECT current_setting('temp_directory')").fetchall() == [("",)]


def test_stored_files_are_read_only(place: Place) -> None:
    """Also through the methods that DuckDB calls to create, move and remove files."""
    files = StoredFiles()
    name = files.add(str(place.parquet))
    assert files.open(name).read(4) == b"PAR1" and files.info(name)["size"] == place.parquet.stat().st_size
    for mode in ("wb", "ab", "r+b", "xb", "w"):
        with pytest.raises(PermissionError, match="read-only"):
            files.open(name, mode)
    for path in ("stored://1.parquet", str(place.secret), f"stored://{place.secret}", "stored://../0.parquet", ""):
        with pytest.raises(FileNotFoundError):
            files.open(path)
    for change in ("rm", "rm_file", "mv", "mkdir", "touch", "makedirs", "rmdir", "cp_file", "pipe_file"):
        with suppress(Exception):
            getattr(files, change)(*([name, name] if change in ("mv", "cp_file") else [name]))
    link = place.folder / "link.parquet"
    link.symlink_to(place.parquet)
    try:
        with pytest.raises(OSError, match=r"symbolic links|symlink"):
            files.open(files.add(str(link)))
    finally:
        link.unlink()


def test_threads_that_share_a_file_read_what_they_seek(place: Place) -> None:
    """DuckDB's threads share an open file. Another one seeks between this one's seek() and read()."""
    content = place.parquet.read_bytes()
    files = StoredFiles()
    stored = files.open(files.add(str(place.parquet)))
    files = StoredFiles()
    remote = files.open(files.add(str(place.parquet), LocalFileSystem()))
    for file in (stored, remote):
        file.seek(4)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lambda file=file: (file.seek(9), file.read(3))[1]).result() == content[9:12]
        assert (file.read(2), file.tell(), file.read()) == (content[4:6], 6, content[6:])
        file.close()


def test_the_process_cannot_write_or_outgrow_its_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walls around the process: no file, and what DuckDB does not count against its own limit."""
    monkeypatch.setenv("TRACEQUARRY_MEMORY", "1GB")
    traces = analyze.open(place.store)
    for statement in (
        "SELECT range(1_000_000_000)",
        "SELECT len(repeat('x', 2_000_000_000))",
        "SELECT * FROM generate_series(1, 1_000_000_000)",
        "SELECT count(DISTINCT i) FROM generate_series(1, 300_000_000) t(i)",
    ):
        with pytest.raises(MachineError, match=r"[Oo]ut of [Mm]emory"):
            traces.sql(statement).arrow()
    code = (
        "from analyze.query.process_limits import forbid_files\n"
        "forbid_files()\n"
        "with open('out.txt', 'w') as out: out.write('x')\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True)
    (place.folder / "out.txt").unlink()
    assert result.returncode == 1 and "File too large" in result.stderr


def test_store_path_with_glob_characters(tmp_path: Path) -> None:
    """Each store answers with its own rows: DuckDB would take `a*` and `[ab]` for patterns."""
    names = ("a*", "ab", "a[bc]", "a?", "it's")
    for i, name in enumerate(names, 1):
        raw = write_trace(tmp_path / f"raw{i}" / "t.json", [kernel(f"k{n}", n * 10, 5) for n in range(i)])
        assert run_cli("ingest", raw, "--store", tmp_path / name).returncode == 0
    for i, name in enumerate(names, 1):
        rows = analyze.open(tmp_path / name).sql("SELECT count(*) AS n FROM kernels").dicts()
        assert rows == [{"n": i}], name


def test_built_in_modules_and_queries_pass_the_check(place: Place) -> None:
    """What a file of the user's own is held to each time it is asked, those that come with this hold to."""
    engine = Engine([Store(place.store)])
    engine.execute(f"SELECT 1 -- {' '.join(home())}", built_in())
    own = {name: block.sql for name, block in built_in().items() if block.sql}
    assert len(own) > 20
    for name, text in own.items():
        assert module_statements(engine.connection, text, name)
    questions = [*catalog().values(), *(f.query for f in findings())]
    for query in questions:
        sql, _, choices = query.bind({})
        engine.execute(f"SELECT 1 /* {sql} */", query.used(choices))
        check_select(engine.connection, sql, query.name)
    assert len(questions) > 50


def test_errors_say_what_was_wrong(place: Place) -> None:
    traces = analyze.open(place.store)
    for statement, says in (
        ("SELECT * FROM kernel", "did you mean kernels"),
        ("SELECT durns FROM kernels", "Candidate bindings"),
        ("SELECT * FROM read_csv('x')", "the table function 'read_csv' is not allowed"),
        ("DROP TABLE kernels", "only one SELECT"),
        ("SELEC 1", "Parser Error"),
    ):
        with pytest.raises(InputError, match=says):
            traces.sql(statement).arrow()
    with pytest.raises(InputError, match=r"--where 'colour = 1': .*colour.*not found"):
        traces.where("colour = 1").query("runs").arrow()
    with pytest.raises(InputError, match="without a SELECT of its own"):
        traces.where("rank = (SELECT 0)").query("runs").arrow()


def test_expression_is_not_a_select() -> None:
    connection = duckdb.connect()
    check_expression(connection, "a > 1 AND b LIKE 'x%'", "here")
    check_select(connection, "SELECT 1", "here")
    with pytest.raises(InputError, match=r"^here: must be one SQL expression"):
        check_expression(connection, "a, b", "here")
