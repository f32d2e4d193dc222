"""Lists that commands print, as text and as rows."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from commands import complaints, run_cli

from analyze.query.modules import built_in
from analyze.query.query_files import catalog
from analyze.stored_tables import TABLES


def test_query_list() -> None:
    rows = json.loads(run_cli("query", "--format", "json").stdout)
    known = sorted(catalog().values(), key=lambda q: (q.group, q.name))
    assert [(r["query"], r["group"], r["question"]) for r in rows] == [(q.name, q.group, q.question) for q in known]
    [share] = [r for r in rows if r["query"] == "kernel-share"]
    assert share["parameters"] == "group=name" and share["needs"] == "kernels, or sums of kernels (nvprof)"


def test_user_queries_are_listed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.sql").write_text(
        "-- One?\n--\n-- @column n count   One.\nSELECT run_group, 1 AS n FROM runs"
    )
    rows = csv.DictReader(io.StringIO(run_cli("query", "--queries", tmp_path, "-f", "csv").stdout))
    assert [r["question"] for r in rows if r["query"] == "one"] == ["One?"]


def test_listing_to_a_file(tmp_path: Path) -> None:
    done = run_cli("query", "-o", tmp_path / "list.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list(csv.DictReader((tmp_path / "list.csv").open(newline="")))) == len(catalog())
    assert run_cli("tables", "-o", tmp_path / "tables.txt").stdout == ""
    assert (tmp_path / "tables.txt").read_text().startswith("table ")


def test_description_of_one_query() -> None:
    rows = json.loads(run_cli("query", "breakdown", "--explain", "-f", "json", "-p", "window=step").stdout)
    query = catalog()["breakdown"]
    found = {kind: [r for r in rows if r["kind"] == kind] for kind in {r["kind"] for r in rows}}
    assert [r["doc"] for r in found["question"]] == [query.question]
    assert [r["doc"] for r in found["needs"]] == [query.needs] and len(found["description"]) == 1
    assert [(r["name"], r["default"]) for r in found["parameter"]] == [(p.name, p.default) for p in query.params]
    assert [(r["name"], r["unit"]) for r in found["column"]] == [
        (c.name, c.unit) for c in query.result_columns({"window": "step"})
    ]
    assert "SELECT" in found["sql"][0]["doc"]


def test_tables_and_blocks() -> None:
    rows = json.loads(run_cli("tables", "-f", "json").stdout)
    assert [(r["table"], r["column"], r["unit"]) for r in rows] == [
        (t.name, c.name, c.unit) for t in TABLES.values() for c in t.columns
    ]
    listed = json.loads(run_cli("tables", "--modules", "-f", "json").stdout)
    assert [(r["module"], r["defines"]) for r in listed] == [
        (b.name, d.shown) for b in built_in().values() for d in b.definitions
    ]
    [share] = json.loads(run_cli("tables", "pct", "-f", "json").stdout)
    assert (share["module"], share["table"], share["column"]) == ("arithmetic", "pct(part, whole)", None)
    columns = json.loads(run_cli("tables", "gpu_work", "-f", "json").stdout)
    assert {r["table"] for r in columns} == {"gpu_work"} and "run_id" in {r["column"] for r in columns}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "-f", "yaml"], "--format yaml: must be one of"),
        (["query", "-f", "parquet"], "--format parquet needs -o FILE"),
        (["query", "breakdown", "--explain", "-o", "x.y"], "-o x.y: unknown format; use one of the endings"),
        (["tables", "-o", "x.y"], "-o x.y: unknown format; use one of the endings"),
        (["query", "--by", "model"], "query: --by needs the name of a query"),
        (["query", "--limit", "0"], "query: --limit needs the name of a query"),
        (["query", "--explain"], "query: --explain needs the name of a query"),
    ],
)
def test_options_that_need_a_query_name_or_a_file(arguments: list[str], says: str) -> None:
    done = run_cli(*arguments)
    assert done.returncode == 2 and complaints(done)[0].startswith(f"analyze: {says}") and done.stdout == ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("kind", ["pipe", "link to a device", "long"])
def test_device_file_as_query_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.sql"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "long":
        with path.open("wb") as f:
            f.truncate((4 << 20) + 1)
    else:
        path.symlink_to("/dev/zero")
    why = "longer than 4 MiB" if kind == "long" else "not a regular file"
    for arguments in (["query"], ["query", "mine", tmp_path]):
        result = run_cli(*arguments, "--queries", tmp_path)
        assert (result.returncode, result.stderr) == (2, f"analyze: {path}: cannot be read: {why}\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", ["run.json", "report.toml", "store.json"])
def test_pipe_as_input_is_one_sentence(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    command = ["study", tmp_path] if name == "report.toml" else ["query", "runs", tmp_path]
    result = run_cli(*command)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
