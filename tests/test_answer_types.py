"""Answers to SQL in every format: duplicate column names, and all types of DuckDB."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_cli
from support import SAMPLES

import analyze
from analyze.query.portable_types import distinct
from analyze.render import FORMATS, write

ONE = SAMPLES / "resnet18-1gpu"

VALUES = {
    "time with time zone": ("'12:00:00+01'::TIMETZ", "12:00:00+01"),
    "time_ns": ("'12:00:00.123456789'::TIME_NS", "12:00:00.123456789"),
    "interval": ("INTERVAL 1 MONTH + INTERVAL 2 DAY", "1 month 2 days"),
    "union": ("union_value(a := 1)", "1"),
    "variant": ("'a'::VARIANT", "a"),
    "bignum": ("'123456789012345678901234567890123456789012'::BIGNUM", "123456789012345678901234567890123456789012"),
    "bit": ("'101'::BIT", "101"),
    "geometry": ("'POINT(1 2)'::GEOMETRY", "POINT (1 2)"),
    "enum": ("'a'::ENUM('a', 'b')", "a"),
    "list": ("[INTERVAL 1 DAY]", ["1 day"]),
    "array": ("array_value(INTERVAL 1 DAY, NULL)", ["1 day", None]),
    "map": ("MAP {'a': INTERVAL 1 DAY}", {"a": "1 day"}),
    "struct": ("""{'a "b"': [{'c': union_value(d := 1)}], 'e': 2}""", {'a "b"': [{"c": "1"}], "e": 2}),
    "tuple": ("row(1, INTERVAL 1 DAY)", "(1, 1 day)"),
    "empty": ("CAST('{}' AS STRUCT)", "{}"),
    "timestamp with time zone": ("TIMESTAMPTZ '2026-11-21 12:00:00+03'", "2026-11-21 09:00:00"),
}
"""A value of each type that not all forms have, and what it is in JSON."""


def test_duplicate_column_names_are_renamed(tmp_path: Path) -> None:
    """A second column `a` is `a_1`, as where DuckDB itself writes a file."""
    statement = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS A, 5 AS a"
    expected = {"a": 1, "a_2": 2, "a_1": 3, "A": 4, "a_3": 5}
    traces = analyze.open(ONE)
    assert traces.sql(statement).dicts() == [expected]
    answer = traces.sql(statement)
    assert [c.name for c in answer.columns] == list(answer.df().columns) == answer.pl().columns == list(expected)
    assert json.loads(run_cli("sql", statement, ONE, "-f", "json").stdout) == [expected]
    text = run_cli("sql", statement, ONE, "-f", "csv").stdout
    assert list(csv.DictReader(io.StringIO(text))) == [{name: str(value) for name, value in expected.items()}]
    assert run_cli("sql", statement, ONE).stdout.split()[:5] == list(expected)
    assert run_cli("sql", statement, ONE, "-o", tmp_path / "a.parquet").returncode == 0
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [expected]
    assert distinct(["a", "a", "a"]) == ["a", "a_1", "a_2"]


def test_join_keeps_columns_of_equal_name(tmp_path: Path) -> None:
    statement = "SELECT k.*, c.* FROM kernels k JOIN cuda_calls c USING (correlation_id)"
    row = analyze.open(ONE).sql(statement).dicts()[0]
    assert json.loads(run_cli("sql", statement, ONE, "-f", "json").stdout)[0].keys() == row.keys()
    assert run_cli("sql", statement, ONE, "-o", tmp_path / "a.parquet").returncode == 0
    assert pq.read_table(tmp_path / "a.parquet").to_pylist()[0] == row
    assert row["name"].startswith("void") or row["name"] != row["name_1"]


def test_every_type_in_every_format(tmp_path: Path) -> None:
    connection = duckdb.connect()
    every = connection.sql("FROM test_all_types()")
    texts = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM test_all_types() LIMIT 1").fetchall()[0]
    plain = {
        name: f"'{text}'::{kind}"
        for name, kind, text in zip(every.columns, every.types, texts, strict=True)
        if text.isprintable() and "BC" not in text and kind.id not in VALUES and "-" not in text[:1]
    }
    assert {kind.id for kind in every.types} <= {*VALUES, *(k.id for k in every.types if k.id not in VALUES)}
    shown = {**plain, **{f"of {kind}": sql for kind, (sql, _) in VALUES.items()}}
    columns = ", ".join(f'{sql} AS "{name}"' for name, sql in shown.items())
    traces = analyze.open(ONE)
    answer = traces.sql(f"SELECT {columns}")
    for form in FORMATS:
        write(answer, form, tmp_path / f"x.{form}", io.StringIO())
    [row] = json.loads((tmp_path / "x.json").read_text())
    assert {kind: row[f"of {kind}"] for kind in VALUES} == {kind: value for kind, (_, value) in VALUES.items()}
    assert pq.read_table(tmp_path / "x.parquet").to_pylist()[0].keys() == row.keys()
    assert [*answer.pl().columns] == [*answer.df().columns] == [*row]
    assert not [c.name for c in answer.arrow().schema if pa.types.is_dictionary(c.type)]
    assert answer.df(units=True).shape == (1, len(row)) and repr(answer) and "<td" in answer._repr_html_()


@pytest.mark.parametrize(
    "value", ["'infinity'::DATE", "'-infinity'::TIMESTAMP", "'99999-01-01'::DATE", "['0044-03-15 (BC)'::DATE]"]
)
def test_date_outside_pythons_range_is_one_sentence(value: str) -> None:
    answer = analyze.open(ONE).sql(f"SELECT 1 AS a, {value} AS x")
    for take in (lambda: answer.df(units=True), lambda: repr(answer), answer._repr_html_):
        with pytest.raises(analyze.InputError, match="column x: Python has no such date or time"):
            take()
