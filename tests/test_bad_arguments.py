"""Invalid arguments are rejected in one sentence that names the option, before DuckDB sees them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from support import SAMPLES, opened

import analyze
from analyze.query.query_files import catalog
from analyze.query.text_checks import check_regex

ONE = SAMPLES / "resnet18-ncu"
BYTE = os.fsdecode(b"\xff")
"""An argument that is not UTF-8, as Python has it."""
REGEXES = [(q.name, p.name) for q in catalog().values() for p in q.params if p.type == "regex"]
TEXTS = [(q.name, p.name) for q in catalog().values() for p in q.params if p.type in ("text", "regex")]


def test_every_regular_expression_is_declared_as_one() -> None:
    """What a query matches by a parameter is of the type that is checked."""
    matched = {
        (q.name, p.name) for q in catalog().values() for p in q.params
        if any("regexp_" in line and f"${p.name}" in line for line in q.sql.splitlines())
    }  # fmt: skip
    assert matched == set(REGEXES) == {("metrics", "metric"), ("metrics", "kernel"), ("step-parts", "modules")}


@pytest.mark.parametrize(("query", "name"), REGEXES)
@pytest.mark.parametrize("text", ["(", "a{5000}", "*", "(?=x)", "[z-a]"])
def test_invalid_regex_is_one_sentence(query: str, name: str, text: str) -> None:
    """Python takes (?=x), DuckDB does not."""
    with pytest.raises(analyze.InputError) as said:
        opened(ONE).query(query, params={name: text}).arrow()
    assert str(said.value).startswith(f"query {query}: {name} must be a regular expression, not {text!r}: ")
    assert "Error" not in str(said.value)


def test_invalid_regex_of_the_command_is_one_sentence() -> None:
    done = run_cli("query", "metrics", ONE, "-p", "metric=(")
    said = "analyze: query metrics: metric must be a regular expression, not '(': missing ): ("
    assert done.returncode == 2 and complaints(done) == [said]
    check_regex(r"^a(b|c)\.d$", "x")


@pytest.mark.parametrize(("query", "name"), TEXTS)
def test_parameter_that_is_not_utf8_is_one_sentence(query: str, name: str) -> None:
    with pytest.raises(analyze.InputError, match=f"query {query}: {name} must be valid UTF-8"):
        opened(ONE).query(query, params={name: BYTE}).arrow()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "metrics", "-p", f"metric={BYTE}"], "metric must be valid UTF-8"),
        (["query", "kernel-share", "--where", BYTE], r"--where '\udcff': not valid UTF-8"),
        (["query", "kernel-share", "--filter", BYTE], r"--filter '\udcff': not valid UTF-8"),
        (
            ["pivot", "kernel-share", "--rows", "name", "--value", "calls", "--filter", BYTE],
            r"'\udcff': not valid UTF-8",
        ),
        (["sql", f"SELECT '{BYTE}'"], "SQL: not valid UTF-8"),
        (["plot", "kernel-share", "-o", "x.svg", "--title", BYTE], "--title must be valid UTF-8"),
        (["report", "-o", "x.html", "--title", BYTE], "--title must be valid UTF-8"),
        (["serve", "--host", BYTE], "cannot listen on"),
    ],
)
def test_option_that_is_not_utf8_is_one_sentence(arguments: list[str], says: str) -> None:
    command, *rest = arguments
    at = 1 if command in ("query", "pivot", "sql", "plot") else 0
    done = run_cli(command, *rest[:at], ONE, *rest[at:])
    assert done.returncode == 2 and says in complaints(done)[0] and len(complaints(done)) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "ops", "no", "-o", "x.txx"], "-o x.txx: unknown format; use one of the endings .txt, "),
        (["plot", "ops", "no", "-o", "x.txt"], "x.txt: the name of a figure must end in .svg, .png, .html"),
        (["report", "no", "-o", "x.txt"], "x.txt: the name of a report must end in .html"),
        (["trace", "no", "-o", "x.txt"], "x.txt: the name of a trace must end in .json.gz or .json"),
        (["trace", "no", "-o", "x.gz"], "x.gz: the name of a trace must end in .json.gz or .json"),
        (["flame", "no", "-o", "x.html"], "x.html: a flame graph is .speedscope.json "),
        (["compare", "no", "no", "--flame", "x.json"], "x.json: the difference of two flame graphs is .folded "),
    ],
)
def test_unknown_output_suffix_is_rejected_before_reading(arguments: list[str], says: str) -> None:
    done = run_cli(*arguments)
    assert done.returncode == 2 and complaints(done)[0].startswith(f"analyze: {says}") and len(complaints(done)) == 1


def test_unknown_output_suffix_raises_in_python(tmp_path: Path) -> None:
    with pytest.raises(analyze.InputError, match="the name of a trace must end in"):
        opened(SAMPLES / "resnet18-1gpu").trace(tmp_path / "x.txt")
    with pytest.raises(analyze.InputError, match="the difference of two flame graphs is"):
        analyze.compare(SAMPLES / "resnet18-1gpu", SAMPLES / "resnet18-1gpu", flame=tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [-1, 2.5, "3", float("inf"), float("nan")])
def test_limit_must_be_a_row_count(limit: Any) -> None:
    traces = opened(ONE)
    for ask in (
        lambda: traces.query("kernel-share", limit=limit).arrow(),
        # It is checked first: a comparison of these would say that they differ.
        lambda: analyze.compare(traces, opened(SAMPLES / "vgg16-fp32"), limit=limit),
    ):
        with pytest.raises(analyze.InputError, match=f"--limit {limit}: must be a whole number, 0 or more"):
            ask()


def test_limit_beyond_64_bits() -> None:
    traces = opened(ONE)
    every = traces.query("kernel-share").arrow()
    assert traces.query("kernel-share", limit=10**20).arrow().equals(every) and every.num_rows > 3
    assert traces.query("kernel-share", limit=0).arrow().num_rows == 0
    assert analyze.compare(traces, traces, level="kernel", limit=10**20).answer.arrow().num_rows == every.num_rows
    done = run_cli("query", "kernel-share", ONE, "-n", str(10**20), "-f", "csv")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == every.num_rows + 1
