"""The `analyze` command as a process: output on stdout, everything else on stderr, exit codes, light start-up."""

from __future__ import annotations

import csv
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import ROOT, SAMPLES, kernel, run_cli, write_trace

import analyze
from analyze import cli
from analyze.query_files import catalog

ONE = SAMPLES / "resnet18-1gpu"


def test_help_starts_without_the_heavy_packages() -> None:
    code = (
        "import sys; sys.argv = ['analyze', '--help']\n"
        "from analyze.cli import main\n"
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
        f"import sys; sys.argv = ['analyze', 'query', 'kernel-share', {str(store)!r}, '--limit', '2']\n"
        "from analyze.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*(m for m in ('pandas', 'pyarrow', 'torch') if m in sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "kernel_time (%)" in result.stdout
    assert result.stderr.strip() == ""


def test_the_list_names_every_query() -> None:
    result = run_cli("query")
    for query in catalog().values():
        assert query.name in result.stdout and query.question[:40] in result.stdout


def test_formats_hold_the_same_rows(tmp_path: Path) -> None:
    expected = analyze.open(ONE).query("cuda-api").to_pylist()
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
    every = analyze.open(ONE).query("breakdown", by=["model"]).to_pylist()
    chosen = run_cli("query", "breakdown", ONE, "--by", "model", "--select", "idle_ns,model,rank", "--format", "csv")
    assert list(csv.DictReader(io.StringIO(chosen.stdout))) == [
        {name: str(row[name]) for name in ("idle_ns", "model", "rank")} for row in every
    ]
    # What is sorted by need not be shown.
    names = [
        row["name"] for row in analyze.open(ONE).query("kernel-share", select=["name"], sort="-max_ns").to_pylist()
    ]
    longest = {row["name"]: row["max_ns"] for row in analyze.open(ONE).query("kernel-share").to_pylist()}
    assert [longest[name] for name in names] == sorted(longest.values(), reverse=True)


def test_the_run_that_all_rows_are_of_stands_above_the_table() -> None:
    one = run_cli("query", "gpu-busy", ONE).stdout
    assert one.startswith("run 20261120-171855-resnet18-b32-g1-fp32-ffca\n") and "run_id" not in one
    two = run_cli("query", "gpu-busy", ONE, SAMPLES / "vgg16-fp32").stdout
    assert two.count("20261120-") == 2 and "run_id" in two


def test_no_rows_say_what_was_missing() -> None:
    empty = run_cli("query", "collectives", ONE, "--format", "csv")
    assert empty.returncode == 0 and len(empty.stdout.splitlines()) == 1
    assert empty.stderr == "note: no rows; query collectives needs kernels of NCCL collectives\n"
    assert run_cli("query", "collectives", SAMPLES / "resnet18-ddp2").stderr == ""


def test_a_table_never_cuts_numbers() -> None:
    lines = run_cli("query", "kernel-share", ONE).stdout.splitlines()
    widths = {len(line.rstrip()) for line in lines if line.strip()}
    assert max(widths) <= 160
    assert all("…" not in line[line.rindex("…") + 1 :] for line in lines if "…" in line)
    shares = [float(line.split()[-2]) for line in lines if line.split() and line.split()[-1].replace(".", "").isdigit()]
    # Rounded to two decimals each, so the sum may be off by half a hundredth per row.
    assert sum(shares) == pytest.approx(100, abs=0.005 * len(shares))


def test_several_runs_are_pointed_out() -> None:
    result = run_cli("query", "kernel-share", SAMPLES, "-f", "csv")
    assert "runs taken together" in result.stderr and "note" not in result.stdout
    assert run_cli("query", "kernel-share", SAMPLES, "-f", "csv", "--by", "run_id").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "kernel-shares", "."], "did you mean kernel-share"),
        (["query", "kernel-share"], "say what to look at"),
        (["query", "kernel-share", "no/such/file"], "no/such/file: no such file or folder"),
        (["query", "kernel-share", str(ONE), "--format", "xml"], "must be one of"),
        (["query", "kernel-share", str(ONE), "--format", "parquet"], "needs -o FILE"),
        (["query", "kernel-share", str(ONE), "--param", "group=colour"], "group must be one of"),
        (["query", "kernel-share", str(ONE), "--param", "group"], "must have the form name=value"),
        (["query", "kernel-share", str(ONE), "-o", "/no/such/folder/x.csv", "-f", "csv"], "cannot be written"),
        (["sql", "SELEC 1", str(ONE)], "SQL: Parser Error"),
        (
            ["query", "gpu-busy", str(ONE), "--select", "idle"],
            "--select idle: no such column; the result has run_id, rank",
        ),
        (["tables", "colours"], "there is no table 'colours'"),
        (["ingest", str(ONE), "--store", "/proc/store"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], says: str) -> None:
    result = run_cli(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert says in result.stderr and len(result.stderr.splitlines()) == 1


def test_explain_shows_sql_that_runs(tmp_path: Path) -> None:
    text = run_cli("query", "kernel-by-phase", "--explain", "--param", "phase=forward").stdout
    assert "Which kernels take the time of each phase?" in text and "phase_time_pct" in text
    statement = text[text.index("WITH by_name") :]
    rows = analyze.open(ONE).sql(statement).to_pylist()
    expected = analyze.open(ONE).query("kernel-by-phase", params={"phase": "forward"}).to_pylist()
    assert [r["total_ns"] for r in rows] == [r["total_ns"] for r in expected]


def test_warnings_go_to_stderr_once(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(write_trace(path, [kernel("a", 0, 1), kernel("b", 1, 1)]).read_text()[:-60])
    first = run_cli("query", "kernel-share", path, "-f", "csv")
    assert first.returncode == 0 and "warning: t.json: the file is truncated" in first.stderr
    assert len(first.stdout.splitlines()) == 2
    assert run_cli("query", "runs", path, "-f", "csv").stdout.count("truncated") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m analyze query kernel-share {ONE} -f csv | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.startswith("name,") and result.stderr == ""


def test_the_api_mirrors_the_command() -> None:
    """Every option of `analyze query` that says what to answer is an argument of `Traces.query`, and the reverse."""
    command = set(inspect.signature(cli.query).parameters) - {"format", "output", "explain", "queries", "paths"}
    api = {{"params": "param"}.get(p, p) for p in inspect.signature(analyze.Traces.query).parameters} - {"self"}
    assert command == api


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [kernel("k", 0, 1)])
    script = tmp_path / "script.py"
    script.write_text(f"import analyze\nprint(analyze.open({str(path)!r}).query('kernel-share').to_pandas().name[0])\n")
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )
    assert (result.stdout, result.stderr, result.returncode) == ("k\n", "", 0)


def test_tables_documents_every_column() -> None:
    text = run_cli("tables", "kernels").stdout
    assert "correlation_id" in text and "occupancy_pct" in text
