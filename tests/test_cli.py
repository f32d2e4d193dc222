"""The `analyze` command as a process: output on stdout, everything else on stderr, exit codes, light start-up."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import bash, complaints, in_terminal, run_cli, start_cli
from rich.cells import cell_len
from support import ROOT, SAMPLES, children
from traces import kernel, write_trace

import analyze
from analyze.query.query_files import catalog

ONE = SAMPLES / "resnet18-1gpu"
TYPED = shlex.quote(str(ONE))
"""As it stands in a command line."""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the time that a process took is read from /proc")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
)
def test_signal_ends_a_running_query(number: signal.Signals, tmp_path: Path) -> None:
    """DuckDB raises an error of its own for what Ctrl-C raises."""
    forever = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range * b.range = 17"
    with start_cli("sql", forever, ONE, TRACEQUARRY_CACHE=str(tmp_path)) as asked:

        def seconds() -> float:
            """Of CPU, of the process that runs the statement."""
            ticks = 0
            for process in children(asked.pid):
                with suppress(OSError):  # it has just ended
                    ticks += int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])
            return ticks / os.sysconf("SC_CLK_TCK")

        try:
            # Said when it has been read, before the statement.
            assert asked.stderr and asked.stderr.readline() == "read as: 1 run, one process\n"
            before = seconds()
            while asked.poll() is None and seconds() < before + 1.5:  # a second of it to start
                time.sleep(0.05)
            asked.send_signal(number)
            assert asked.communicate(timeout=60) == ("", "")
        finally:
            asked.kill()
    assert asked.returncode == 128 + number


def test_help_starts_without_the_heavy_packages() -> None:
    code = (
        "import sys; sys.argv = ['analyze', '--help']\n"
        "from analyze.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = ('pandas', 'duckdb', 'pyarrow', 'numpy', 'torch', 'msgspec')\n"
        "print(*(m for m in heavy if m in sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "ingest" in result.stdout and "query" in result.stdout
    assert result.stderr.strip() == ""


def test_a_query_of_a_store_loads_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run_cli("ingest", ONE, "--store", store).returncode == 0
    code = (
        "import sys\nfrom analyze.cli.main import main\n"
        f"sys.argv = ['analyze', 'query', 'kernel-share', {str(store)!r}, '--limit', '2']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*(m for m in ('pandas', 'pyarrow', 'torch') if m in sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "dgrad_engine" in result.stdout
    assert result.stderr == "\n"


def test_query_list_names_every_query() -> None:
    result = run_cli("query")
    for query in catalog().values():
        assert query.name in result.stdout and query.question[:40] in result.stdout


def test_formats_hold_the_same_rows(tmp_path: Path) -> None:
    expected = analyze.open(ONE).query("cuda-api").dicts()
    as_csv = run_cli("query", "cuda-api", ONE, "--format", "csv")
    assert as_csv.stderr == ""
    rows = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert [(r["name"], int(r["total_ns"]), float(r["api_time_pct"])) for r in rows] == [
        (r["name"], r["total_ns"], r["api_time_pct"]) for r in expected
    ]
    assert json.loads(run_cli("query", "cuda-api", ONE, "-f", "json").stdout) == expected
    target = tmp_path / "out.parquet"
    assert run_cli("query", "cuda-api", ONE, "-f", "parquet", "-o", target).stdout == ""
    assert pq.read_table(target).to_pylist() == expected
    markdown = run_cli("query", "cuda-api", ONE, "-f", "markdown").stdout.splitlines()
    assert len(markdown) == len(expected) + 2 and markdown[1].startswith("| --- | ---:")
    table = run_cli("query", "cuda-api", ONE).stdout
    assert "api_time (%)" in table and "total (ms)" in table


def test_select_takes_columns_in_its_own_order() -> None:
    every = analyze.open(ONE).query("breakdown", by=["model"]).dicts()
    chosen = run_cli("query", "breakdown", ONE, "--by", "model", "--select", "idle_ns,model,rank", "--format", "csv")
    assert list(csv.DictReader(io.StringIO(chosen.stdout))) == [
        {name: str(row[name]) for name in ("idle_ns", "model", "rank")} for row in every
    ]
    # What is sorted by need not be shown.
    names = [row["name"] for row in analyze.open(ONE).query("kernel-share", select=["name"], sort="-max_ns").dicts()]
    longest = {row["name"]: row["max_ns"] for row in analyze.open(ONE).query("kernel-share").dicts()}
    assert [longest[name] for name in names] == sorted(longest.values(), reverse=True)


def test_single_run_is_shown_above_the_table() -> None:
    one = run_cli("query", "gpu-busy", ONE).stdout
    assert one.startswith("run 20261120-171855-resnet18-b32-g1-fp32-ffca, rank 0, device 0\n") and "run_id" not in one
    two = run_cli("query", "gpu-busy", ONE, SAMPLES / "vgg16-fp32").stdout
    assert two.count("20261120-") == 2 and "run_id" in two


def test_empty_answer_names_the_missing_data() -> None:
    empty = run_cli("query", "collectives", ONE, "--format", "csv")
    assert empty.returncode == 0 and len(empty.stdout.splitlines()) == 1
    assert complaints(empty) == ["note: no rows: the recording has no communication kernels (needs more than one GPU)"]
    assert "note" not in run_cli("query", "collectives", SAMPLES / "resnet18-ddp2").stderr


def test_note_when_several_runs_are_combined() -> None:
    result = run_cli("query", "kernel-share", SAMPLES, "-f", "csv")
    assert "runs combined" in result.stderr and "note" not in result.stdout
    assert complaints(run_cli("query", "kernel-share", SAMPLES, "-f", "csv", "--by", "run_id")) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "kernel-shares", "."], "did you mean kernel-share"),
        (["query", "zzz", "no/such/file"], "analyze: there is no query 'zzz' (`analyze query` lists them)"),
        (["query", str(ONE)], f"; if that is the path, the query's name is missing: analyze query QUERY {TYPED}"),
        (["query", "s3://b/x"], "the query's name is missing: analyze query QUERY s3://b/x"),
        (["plot", str(ONE), str(ONE), "-o", "x.svg"], f"name is missing: analyze plot QUERY {TYPED}"),
        (["pivot", str(ONE), str(ONE), "--rows", "a", "--value", "b"], f"name is missing: analyze pivot QUERY {TYPED}"),
        (["query", "kernel-share"], "no recording given"),
        (["query", "kernel-share", "no/such/file"], "no/such/file: no such file or folder"),
        (["query", "kernel-share", str(ONE), "--format", "xml"], "must be one of"),
        (["query", "kernel-share", str(ONE), "--format", "parquet"], "needs -o FILE"),
        (["query", "kernel-share", str(ONE), "--param", "group=colour"], "group must be one of"),
        (["query", "kernel-share", str(ONE), "--param", "group"], "must have the form name=value"),
        (["query", "kernel-share", str(ONE), "-o", "/no/such/folder/x.csv", "-f", "csv"], "cannot be written"),
        (["sql", "SELEC 1", str(ONE)], "SQL: Parser Error"),
        (["query", "timeline", str(ONE), "-p", "buckets=-5"], "buckets must be from 1 to 100000, not -5"),
        (["query", "launch", str(ONE), "-p", "call_us=nan"], "call_us must be a number, not 'nan'"),
        (["query", "ops", str(ONE), "--where", "1=1); COPY (SELECT 1) TO 'x.csv'; --"], "--where"),
        (["compare", str(ONE), str(ONE), "--tolerance", "inf"], "inf: not a percentage"),
        (["query", "ops", str(ONE), "--profiler", "vtune"], "--profiler vtune: must be one of"),
        (["trace", str(ONE), "-o", "/tmp/x.json", "--from-ms", "nan"], "--from-ms nan is not a time"),
        (
            ["query", "gpu-busy", str(ONE), "--select", "idle"],
            "--select idle: no such column; the result has run_id, rank",
        ),
        (["tables", "colours"], "no table, SQL module, view or macro has the name 'colours'"),
        (["ingest", str(ONE), "--store", "/proc/store"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], says: str) -> None:
    result = run_cli(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert len(complaints(result)) == 1 and says in complaints(result)[0]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("query", "How much work is queued on each GPU over time?"),
        ("query launch --explain", "Calls without recorded GPU work have no device."),
        ("tables", "GPU index as the process numbered it"),
        ("tables findings", "Start."),
        ("tables --modules", "Gaps in the work of a GPU or of a stream, and their causes."),
        ("cache", "MB"),
        ("--help", "ingest"),
        ("query --help", "Sort by these columns"),
        ("advise sample_traces/resnet18-1gpu", "rank 0, GPU 0, step"),
    ],
)
def test_listings_fit_the_terminal(arguments: str, words: str) -> None:
    for columns in (80, 50):
        lines = in_terminal(columns, *arguments.split())
        # The SQL of a query is set as its file has it.
        sql = next((n for n, line in enumerate(lines) if line.startswith("SQL (")), len(lines))
        # Commands to copy are not wrapped.
        wrapped = [line for line in lines[:sql] if not line.lstrip().startswith(("more: ", "look: "))]
        assert [line for line in wrapped if cell_len(line) > columns] == []
        # Nothing is cut: what does not fit goes on in the next line, of the same column or all of the row.
        assert set(words.split()) <= set(" ".join(lines).split())


def test_explain_shows_sql_that_runs(tmp_path: Path) -> None:
    text = run_cli("query", "kernel-by-phase", "--explain", "--param", "phase=forward").stdout
    assert "Which kernels take the time of each phase?" in text and "phase_time_pct" in text
    statement = text[text.index("WITH by_name") :]
    rows = analyze.open(ONE).sql(statement).dicts()
    expected = analyze.open(ONE).query("kernel-by-phase", params={"phase": "forward"}).dicts()
    assert [r["total_ns"] for r in rows] == [r["total_ns"] for r in expected]


def test_warnings_go_to_stderr_once(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(write_trace(path, [kernel("a", 0, 1), kernel("b", 1, 1)]).read_text()[:-60])
    first = run_cli("query", "kernel-share", path, "-f", "csv")
    assert first.returncode == 0 and "warning: t.json: the file is truncated" in first.stderr
    assert len(first.stdout.splitlines()) == 2
    assert run_cli("query", "runs", path, "-f", "csv").stdout.count("truncated") == 1


@pytest.mark.parametrize(
    ("command", "first"),
    [
        (f"query kernel-share {TYPED} -f csv", "name,"),
        (f"query kernel-share {TYPED}", ""),
        (f"query kernel-share {TYPED} -f json", "["),
        (f"sql 'SELECT range FROM range(300000)' {TYPED} -f csv", "range"),
        (f"sql 'SELECT range FROM range(30000)' {TYPED}", ""),
        (f"advise {TYPED}", "2026"),
        ("tables", "runs: a row is"),
        ("query", ""),
        ("query ops --explain", "ops (cpu)"),
    ],
)
def test_closed_pipe_is_no_error(command: str, first: str) -> None:
    result = bash(f"analyze {command} | head -n 1")
    assert result.stdout.startswith(first) and (complaints(result), result.returncode) == ([], 0)


def test_failed_condition_is_reported_when_the_reader_of_the_table_closes(tmp_path: Path) -> None:
    a, b = (write_trace(tmp_path / n / "t.json", [kernel("k", 0, dur)]) for n, dur in (("a", 1), ("b", 9)))
    result = bash(
        f"analyze compare {shlex.quote(str(a))} {shlex.quote(str(b))} --naive --fail-if 'kernel_time > 5%' | head -n 1"
    )
    assert result.returncode == 1 and "failed: kernel_time" in result.stderr


def check_failed(result: subprocess.CompletedProcess[str], says: str, old: Path) -> None:
    """One sentence says why; the older file, alone in its folder, is as it was."""
    assert (result.returncode, result.stdout, len(complaints(result))) == (2, "", 1), result
    assert says in result.stderr, result.stderr
    assert [p.name for p in old.parent.iterdir()] == ["old.csv"] and old.read_text() == "old"


def test_failed_output_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    """A full device, a folder, no name; an older file stays as it was, and no part of the new one is left."""
    old = tmp_path / "old.csv"
    old.write_text("old")
    fresh = f"{shlex.quote(sys.executable)} -m analyze"  # what it inherits of the shell counts
    for command, says in (
        (
            f"analyze query kernel-share {TYPED} -f csv > /dev/full",
            "stdout: cannot be written: No space left on device",
        ),
        (f"{fresh} query kernel-share {TYPED} -f csv >&-", "stdout is closed"),
        (f"ulimit -f 1; trap '' XFSZ; {fresh} sql 'FROM range(100000)' {TYPED} -f csv -o {old}", "File too large"),
    ):
        check_failed(bash(command), says, old)
    asked, bad = ("query", "kernel-share", ONE, "-f"), ("sql", "SELECT error('x' || name) FROM kernels", ONE)
    for arguments, says in (
        ((*asked, "csv", "-o", ""), "not the name of a file"),
        ((*asked, "csv", "-o", f"{tmp_path}/"), "cannot be written: it is a folder"),
        ((*asked, "csv", "-o", "/dev/full"), "/dev/full: cannot be written: No space left on device"),
        ((*asked, "csv", "-o", f"{old}/x.csv"), "cannot be written: Not a directory"),
        ((*asked, "csv", "-o", tmp_path / f"{'x' * 300}.csv"), "cannot be written: File name too long"),
        ((*asked, "parquet", "-o", "/dev/full"), "/dev/full: cannot be written"),
        (("trace", ONE, "-o", "/dev/full"), "/dev/full: cannot be written: No space left on device"),
        ((*bad, "-f", "csv", "-o", old), "SQL: Invalid Input Error: x"),
        ((*bad, "-f", "json", "-o", tmp_path / "x.json"), "SQL: Invalid Input Error: x"),
        ((*bad, "-o", tmp_path / "x.parquet"), "SQL: Invalid Input Error: x"),
    ):
        check_failed(run_cli(*arguments), says, old)
    assert Path("/dev/full").is_char_device()


def test_symlinked_temporary_output_is_not_followed(tmp_path: Path) -> None:
    """A file that is written under a name beside its own does not end up where a link of such a name leads."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("x.csv", "x.json"):
        (tmp_path / f"{name}.part").symlink_to(victim)
    assert run_cli("query", "kernel-share", ONE, "-f", "csv", "-o", tmp_path / "x.csv").returncode == 0
    assert run_cli("trace", ONE, "-o", tmp_path / "x.json").returncode == 0
    assert victim.read_text() == "precious" and (tmp_path / "x.csv").read_text().startswith("name,")
    # A link in place of the file itself is what the user named.
    (tmp_path / "latest.csv").symlink_to(tmp_path / "x.csv")
    assert run_cli("query", "gpu-busy", ONE, "-f", "csv", "-o", tmp_path / "latest.csv").returncode == 0
    assert (tmp_path / "latest.csv").is_symlink() and (tmp_path / "x.csv").read_text().startswith("run_id,")
    piped = bash(f"analyze query gpu-busy {TYPED} -f csv -o /dev/stdout | cat")
    assert piped.stdout.startswith("run_id,") and Path("/dev/stdout").is_symlink()


ESC, CSI, BELL, RLO = "\x1b", "\x9b", "\x07", "\u202e"


def test_names_are_escaped_for_the_terminal(tmp_path: Path) -> None:
    """Escapes, controls, turned text and markup of a name are shown, in every form and on stderr, and not obeyed.

    CSV in a pipe or a file is for programs, which get the name.
    """
    name = f"{ESC}]0;t{BELL}{ESC}[31m{CSI}2J{RLO}a\nb|[bold]c[/bold][link=http://x]d[/link]:smile:\\"
    spelled = r"\x1b]0;t\x07\x1b[31m\x9b2J\u202ea\nb|[bold]c[/bold][link=http://x]d[/link]:smile:" + "\\"
    path = write_trace(tmp_path / f"t{ESC}[31m.json", [kernel(name, 0, 5)])
    shown = {}
    for form in ("table", "csv", "markdown", "json"):
        result = run_cli("query", "kernel-share", path, "-f", form)
        shown[form] = result.stdout
        assert not {ESC, CSI, BELL, RLO} & set(result.stderr if form == "csv" else result.stdout + result.stderr), form
    assert spelled[:30] in shown["table"]  # The table cuts long names in their middle.
    assert re.sub(r"[\\|\[\]]", r"\\\g<0>", spelled) in shown["markdown"]
    [row] = csv.DictReader(io.StringIO(shown["csv"]))
    assert row["name"] == name
    if os.name == "posix":
        _, *lines = in_terminal(160, "query", "kernel-share", path, "-f", "csv")
        assert "".join(lines).startswith('"' + spelled.replace(r"\n", ""))
    assert json.loads(shown["json"])[0]["name"] == name
    path.write_text(path.read_text()[:-1])
    for arguments in (["ingest", path, "-s", tmp_path / "s"], ["query", "ops", path], ["query", f"x{ESC}[31m", path]):
        assert ESC not in run_cli(*arguments).stderr
    assert r"\x1b[31m" in run_cli("query", "kernel-share", tmp_path / f"no{ESC}[31m").stderr


def test_names_are_not_rich_markup(tmp_path: Path) -> None:
    names = ["[red]x[/red]", "[/]", "a\\[b]", "[link=file:///etc]y[/link]", ":warning:", "c\\"]
    path = write_trace(tmp_path / "t.json", [kernel(n, 10 * i, 5) for i, n in enumerate(names)])
    lines = run_cli("query", "kernel-share", path).stdout.splitlines()
    assert sorted(names) == sorted(line.split()[0] for line in lines[2 : 2 + len(names)])


def test_nan_and_infinity_are_null(tmp_path: Path) -> None:
    statement = (
        "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b_ns, -'inf'::FLOAT AS c_pct, ['nan'::DOUBLE, 1] AS d,"
        " {'e': 'inf'::DOUBLE} AS e, 2.5::DOUBLE AS f"
    )
    as_json = run_cli("sql", statement, ONE, "-f", "json").stdout

    def refuse(token: str) -> None:
        pytest.fail(f"JSON has no {token}")

    [row] = json.loads(as_json, parse_constant=refuse)
    assert row == {"a": None, "b_ns": None, "c_pct": None, "d": [None, 1], "e": {"e": None}, "f": 2.5}
    [cells] = csv.DictReader(io.StringIO(run_cli("sql", statement, ONE, "-f", "csv").stdout))
    assert (cells["a"], cells["b_ns"], cells["c_pct"], cells["f"]) == ("", "", "", "2.5")
    for form in ("table", "markdown"):
        text = run_cli("sql", "SELECT 'nan'::DOUBLE AS a, -'inf'::DOUBLE AS b_ns, 7 AS c", ONE, "-f", form).stdout
        assert "nan" not in text and "inf" not in text and "7" in text
    target = tmp_path / "x.parquet"
    assert run_cli("sql", "SELECT 'inf'::DOUBLE AS a", ONE, "-f", "parquet", "-o", target).returncode == 0
    assert pq.read_table(target).to_pylist() == [{"a": float("inf")}]


def test_arguments_that_are_not_utf8_are_one_sentence(tmp_path: Path) -> None:
    for arguments in (
        [b"query", b"k\xff", bytes(ONE)],
        [b"query", b"kernel-share", b"/no/such/\xff"],
        [b"query", b"kernel-share", bytes(ONE), b"--where", b"model = '\xff'"],
        [b"query", b"kernel-share", bytes(ONE), b"--sort", b"\xff"],
        [b"query", b"kernel-by-phase", bytes(ONE), b"-p", b"phase=\xff"],
        [b"sql", b"SELECT '\xff'", bytes(ONE)],
        [
            b"pivot",
            b"kernel-share",
            bytes(ONE),
            b"--rows",
            b"name",
            b"--value",
            b"calls",
            b"--filter",
            b"name = '\xff'",
        ],
    ):
        # As Python decodes them.
        result = run_cli(*map(os.fsdecode, arguments))
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
        assert result.stderr.startswith("analyze: ")


def test_out_of_memory_is_one_sentence() -> None:
    """DuckDB's own error where its memory does not suffice, and Python's."""
    code = (
        "import sys; from analyze.cli.main import main; from analyze.query import engine\n"
        "def fail(*a, **k): raise {}\n"
        "engine.Engine.query = fail\n"
        f"sys.argv = ['analyze', 'query', 'kernel-share', {str(ONE)!r}]\n"
        "main()"
    )
    for error in ("MemoryError()", "engine.duckdb.OutOfMemoryException('Out of Memory Error: none left')"):
        result = subprocess.run([sys.executable, "-c", code.format(error)], capture_output=True, text=True, cwd=ROOT)
        assert (result.returncode, len(complaints(result))) == (2, 1)
        assert "out of memory" in result.stderr.lower()


def test_script_needs_no_main_guard(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    script = tmp_path / "script.py"
    script.write_text(f"import analyze\nprint(analyze.open({str(path)!r}).query('kernel-share').df().name[0])\n")
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )
    assert (result.stdout, result.stderr, result.returncode) == ("k\n", "", 0)


def completions(line: str) -> list[str]:
    """What bash is offered at the end of a line."""
    words = line.split(" ")
    code = "import sys; sys.argv = ['analyze']; from analyze.cli.main import main; main()"
    environment = {"_ANALYZE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("analyze query kernel-", ["kernel-by-phase", "kernel-durations", "kernel-pace", "kernel-share"]),
        ("analyze pivot winog", ["winograd-share"]),
        ("analyze query kernel-share x --by model,ba", ["model,batch_size"]),
        ("analyze query kernel-share x --param gr", ["group="]),
        ("analyze query kernel-share x --param group=s", ["group=short_name", "group=stream"]),
        ("analyze query kernel-share x --sort calls,-tot", ["calls,-total_ns"]),
        ("analyze query gpu-busy x --select span_ns,busy", ["span_ns,busy_ns", "span_ns,busy_pct"]),
        ("analyze tables mems", ["memsets"]),
    ],
)
def test_shell_completion(line: str, offered: list[str]) -> None:
    assert completions(line) == offered


def test_misspelled_names_get_suggestions() -> None:
    """DuckDB's candidates for a column, and ours for a table and a query."""
    for arguments, says in (
        (("query", "ops", ONE, "--where", "modl = 'x'"), 'Candidate bindings: "model"'),
        (("sql", "SELECT nam FROM kernels", ONE), 'Candidate bindings: "name"'),
        (("sql", "SELECT name FROM kernel", ONE), "did you mean kernels"),
        (("query", "ops", ONE, "--sort", "self_cpu"), "the result has name, place, kind, calls, self_cpu_ns"),
    ):
        [said] = complaints(run_cli(*arguments))
        assert says in said


def test_tables_documents_every_column() -> None:
    text = run_cli("tables", "kernels").stdout
    assert "correlation_id" in text and "occupancy_pct" in text


def test_version() -> None:
    """What the installed package's metadata says, which the build takes from pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for command in ("analyze", "collect"):
        result = subprocess.run([sys.executable, "-m", command, "--version"], capture_output=True, text=True, cwd=ROOT)
        assert (result.stdout, result.stderr, result.returncode) == (f"{command} {declared}\n", "", 0)


@pytest.mark.parametrize("arguments", [(), ("kernel-share",), ("kernel-share", SAMPLES / "late-rank")])
def test_missing_query_folder_is_named(tmp_path: Path, arguments: tuple[str | Path, ...]) -> None:
    done = run_cli("query", *arguments, "--queries", tmp_path / "mine")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"analyze: {tmp_path / 'mine'}: no such folder of query files\n"


@pytest.mark.parametrize("option", ["--buckets", "--buckts", "--buckets=9"])
def test_option_that_is_a_parameter_is_suggested(option: str) -> None:
    done = run_cli("query", "timeline", SAMPLES / "resnet18-1gpu", option, "9")
    said = (
        f"analyze: no such option: {option.partition('=')[0]}; timeline has the parameter buckets: --param buckets=50"
    )
    assert done.returncode == 2 and complaints(done) == [f"{said} (int 1..100000)"]


def test_option_that_is_nearly_an_option_is_not_a_parameter() -> None:
    done = run_cli("query", "timeline", SAMPLES / "resnet18-1gpu", "--limt", "9")
    assert done.returncode == 2 and "--limit" in done.stderr and "parameter" not in done.stderr


def test_help_shows_whole_descriptions() -> None:
    shown = run_cli("--help", COLUMNS="80", TERMINAL_WIDTH="80").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert "which parts changed; --fail-if for CI." in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_runs_show_their_commands() -> None:
    [row] = json.loads(run_cli("query", "runs", SAMPLES / "matmuls", "-f", "json").stdout)
    assert row["command"].endswith("-- python3 matmuls.py")
    assert f"command   {row['command']}" in run_cli("info", SAMPLES / "matmuls").stdout
