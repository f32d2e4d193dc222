"""Answers and recordings in a notebook: tables, data frames, Arrow, figures, completion."""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from commands import run_cli
from support import SAMPLES
from traces import event, kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.query_files import catalog
from analyze.render.units import readable

ONE, DDP2, DP2 = (SAMPLES / name for name in ("resnet18-1gpu", "resnet18-ddp2", "alexnet-dp2"))


class Page(HTMLParser):
    """What a browser would see of a piece of HTML: its tags, and the texts of each row of a table."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.styles: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
            self.styles.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.styles[-1].append(dict(attrs).get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


def numbers(tmp_path: Path, rows: int) -> analyze.Traces:
    """A kernel k0, k1, ... of 1, 2, ... us."""
    return analyze.open(write_trace(tmp_path / "t.json", [kernel(f"k{n}", 1000 * n, n + 1) for n in range(rows)]))


# --- Tables ---


def test_a_table_has_units_and_numbers_on_the_right(tmp_path: Path) -> None:
    page = Page(numbers(tmp_path, 3).query("kernel-share", select=["name", "calls", "total_ns"])._repr_html_())
    # 1, 2, 3 us, the longest first.
    assert page.rows == [
        ["name", "calls", "total (µs)"], ["k2", "1", "3.000"], ["k1", "1", "2.000"], ["k0", "1", "1.000"]
    ]  # fmt: skip
    assert [["right" in style for style in row] for row in page.styles] == [[False, True, True]] * 4
    assert page.text.endswith("3 rows")
    # The colours are the page's own: readable on light and on dark.
    assert set(page.tags) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "bdi"}
    assert page.attributes == {"style", "scope", "title"}
    assert "color" not in str(page.styles) and "background" not in str(page.styles)


def test_a_long_table_is_bounded(tmp_path: Path) -> None:
    answer = numbers(tmp_path, 300).query("kernel-share")
    html = answer._repr_html_()
    page = Page(html)
    names = [row[0] for row in page.rows[1:]]
    # k299 takes the longest: 15 from the top, a gap, and the last 5.
    assert names == [*(f"k{n}" for n in range(299, 284, -1)), "⋮", "k4", "k3", "k2", "k1", "k0"]
    assert "the first 15 and the last 5 of 300 rows" in page.text and len(html) < 40_000
    assert repr(answer).count("\n") < 30 and "... of 300 rows" in repr(answer)
    twenty = numbers(tmp_path / "20", 20).query("kernel-share")
    assert "⋮" not in twenty._repr_html_() and "... of" not in repr(twenty)
    wide = analyze.open(ONE).sql("SELECT " + ", ".join(f"{n} AS c{n}" for n in range(40)))._repr_html_()
    assert len(Page(wide).rows[0]) == 30 and "10 more columns, from c30 on" in wide


def test_empty_columns_are_named_below(tmp_path: Path) -> None:
    traces = numbers(tmp_path, 2)
    page = Page(traces.sql("SELECT run_id, name, NULL::BIGINT AS nothing_ns FROM kernels")._repr_html_())
    assert page.rows == [["name"], ["k0"], ["k1"]]
    [(run,)] = traces.sql("SELECT run_id FROM runs").rows()
    assert page.text.endswith(f"run {run}; 2 rows; no data: nothing_ns")
    none = traces.query("collectives")._repr_html_()
    assert repr(traces.query("collectives")).startswith("no rows")
    assert "0 rows" in none and "no rows: the recording has no communication kernels" in none


HOSTILE = [
    "<script>alert(1)</script>", "';--", "\x1b[31mred", "\u202eright to left", "&lt;b&gt;", "a\nb", "]]>", "x" * 100_000
]  # fmt: skip


def test_html_in_names_is_escaped(tmp_path: Path) -> None:
    traces = analyze.open(write_trace(tmp_path / "t.json", [kernel(n, 9 * i, 1) for i, n in enumerate(HOSTILE)]))
    html = traces.query("kernel-share")._repr_html_()
    page = Page(html)
    assert "script" not in page.tags and "b" not in page.tags
    names = {row[0] for row in page.rows[1:]}
    # Controls are spelled out; the long name is cut in the middle.
    assert {*HOSTILE[:2], r"\x1b[31mred", r"\u202eright to left", "&lt;b&gt;", r"a\nb", "]]>"} < names
    assert len(names) == 8 and max(map(len, names)) <= 72
    assert not {"\x1b", "\u202e"} & set(html) and len(html) < 10_000
    assert "\x1b" not in repr(traces.query("kernel-share")) and "\u202e" not in repr(traces.query("kernel-share"))
    column = Page(traces.sql("""SELECT 1 AS "<img src=x onerror='f()'>" """)._repr_html_())
    assert "img" not in column.tags and column.rows[0] == ["<img src=x onerror='f()'>"]
    # The same of the names of a run, which stand in what was found.
    run = tmp_path / "<script>run.json"
    write_trace(run, [kernel("k", 0, 1)])
    assert "script" not in Page(analyze.open(run)._repr_html_()).tags


def test_values_of_every_type_are_shown() -> None:
    statement = (
        "SELECT 170141183460469231731687303715884105727 AS huge, 1.5::DECIMAL(5, 2) AS d, [1, 2] AS l, {'x': 1} AS s,"
        " DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS t, true AS b, 'nan'::DOUBLE AS nan, 1 AS one"
    )
    answer = analyze.open(ONE).sql(statement)
    [head, row] = Page(answer._repr_html_()).rows
    shown = dict(zip(head, row, strict=True))
    assert shown["d"] == "1.5" and shown["l"] == "[1, 2]" and shown["day"] == "2026-01-02" and shown["b"] == "yes"
    assert shown["t"] == "2026-01-02 03:04:05" and shown["nan"] == "" and shown["one"] == "1" and shown["huge"]
    assert "2026-01-02" in repr(answer)
    assert [str(t) for t in answer.df()[["huge", "d"]].dtypes] == ["float64", "float64"]


def test_columns_of_one_name_stay_apart() -> None:
    answer = analyze.open(ONE).sql("SELECT 1 AS a_ns, 2000 AS a_ns, NULL AS a")
    [head, row] = Page(answer._repr_html_()).rows
    assert head == ["a (µs)", "a_ns_1 (µs)"] and row == ["0.0010", "2.000"]  # two digits of its own
    assert answer.df(units=True).values.tolist()[0][:2] == [0.001, 2.0]


def test_only_numbers_get_a_unit() -> None:
    """Of a SELECT of one's own: names that end in _ns or _pct, of values that are no numbers; and decimals."""
    statement = "SELECT TIMESTAMP '2026-01-02' AS t_ns, INTERVAL 1 DAY AS i_s, true AS b_pct, 1500.5 AS d_ns"
    answer = analyze.open(ONE).sql(statement)
    assert [c.unit for c in answer.columns] == ["time", "text", "bool", "ns"]
    assert "1.500" in repr(answer) and "2026-01-02" in repr(answer)
    assert answer.df(units=True)["d (µs)"].tolist() == [1.5005]
    done = run_cli("sql", statement, ONE)
    assert done.returncode == 0 and "1.50" in done.stdout


def test_traces_repr_describes_the_recording() -> None:
    traces = analyze.open(ONE)
    page = Page(traces._repr_html_())
    said = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert said["read as"] == "torch.profiler, 1 rank of 1, 2 steps, shapes yes, stacks no, memory yes"
    assert "kernel-share" in said["gpu"]
    needed = {query: text for queries, text in said.items() for query in queries.split(", ")}
    assert needed["stragglers"] == "communication kernels (more than one GPU)"
    assert needed["roofline"] == "FLOP metrics (collect run --profiler ncu --ncu-metrics flops)"
    assert traces.info()._repr_html_() == traces._repr_html_()
    # Of the folders of sample_traces/README.md: 1gpu, ddp2, two passes of ncu, roofline.
    several = Page(analyze.open(SAMPLES)._repr_html_())
    assert "46 rows" in several.text and sum("resnet18" in str(row) for row in several.rows) == 5
    assert repr(traces) == f"analyze.open({str(ONE)!r})"


# --- Frames ---


def test_pandas_has_the_plain_numbers(tmp_path: Path) -> None:
    answer = numbers(tmp_path, 2).sql("SELECT name, dur_ns, sum(dur_ns) OVER () AS total_ns FROM kernels")
    frame = answer.df()
    # DuckDB sums in 128 bits, which pandas would take for objects.
    assert frame.to_dict("list") == {"name": ["k0", "k1"], "dur_ns": [1000, 2000], "total_ns": [3000, 3000]}
    assert [str(t) for t in frame.dtypes[1:]] == ["int64", "int64"]
    frame.loc[0, "dur_ns"] = 5  # it is the user's, who may write into it
    assert answer.df().loc[0, "dur_ns"] == 1000


def test_integers_with_nulls_stay_integers() -> None:
    at = 2**53 + 1  # ns since 1970 are above it; no floating-point number is this one
    frame = analyze.open(ONE).sql(f"SELECT unnest([{at}, NULL]) AS at, unnest([true, NULL]) AS b").df()
    assert frame["at"].dtype == pd.Int64Dtype() and frame["at"][0] == at and frame["at"].isna()[1]
    assert frame["b"].dtype == pd.BooleanDtype()


def test_pandas_with_units(tmp_path: Path) -> None:
    answer = numbers(tmp_path, 2).query("kernel-share", select=["name", "calls", "total_ns", "kernel_time_pct"])
    frame = answer.df(units=True)
    assert list(frame.columns) == ["name", "calls", "total (µs)", "kernel_time (%)"]
    # 2 and 1 us; two thirds and one.
    assert frame["total (µs)"].tolist() == [2.0, 1.0]
    assert frame["kernel_time (%)"].tolist() == pytest.approx([200 / 3, 100 / 3])
    assert list(answer.df().columns) == ["name", "calls", "total_ns", "kernel_time_pct"]
    assert analyze.open(tmp_path / "t.json").query("collectives").df(units=True).empty


@pytest.mark.parametrize("query", catalog().values(), ids=lambda q: q.name)
def test_column_names_with_units_are_unique(query: Any) -> None:
    _, _, choices = query.bind({})
    columns = query.result_columns(choices)
    names = [name for name, _ in readable(columns, [[1] for _ in columns])]
    assert len(set(names)) == len(names)


def test_arrow_is_not_copied() -> None:
    polars = pytest.importorskip("polars", reason="needs the package polars (the dev extra has it)")
    answer = analyze.open(ONE).query("kernel-share", params={"group": "family"})
    address = answer.arrow()["calls"].chunk(0).buffers()[1].address
    for frame in (answer.pl(), polars.DataFrame(answer)):
        assert frame["calls"].to_arrow().buffers()[1].address == address
    assert pa.table(answer)["calls"].chunk(0).buffers()[1].address == address
    assert frame.height == len(answer.df()) == answer.arrow().num_rows
    if hasattr(pd.DataFrame, "from_arrow"):  # since pandas 3
        assert pd.DataFrame.from_arrow(answer)["calls"].sum() == frame["calls"].sum()
    assert duckdb.sql("SELECT sum(calls) FROM answer").fetchall() == [(frame["calls"].sum(),)]


def test_without_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)  # as if it were not installed
    answer = analyze.open(ONE).query("runs")
    with pytest.raises(InputError, match=r"^polars is not installed: pip install polars$"):
        answer.pl()


def test_answer_is_computed_once() -> None:
    with analyze.open(ONE) as traces:
        answer = traces.query("kernel-share")
        shown = answer._repr_html_()
    # Nothing can be computed after the recordings are closed.
    assert answer._repr_html_() == shown and repr(answer)
    assert answer.df()["calls"].sum() == answer.arrow()["calls"].to_pandas().sum()


def test_every_kind_of_answer_has_a_repr() -> None:
    traces = analyze.open(DP2)
    for answer in (
        traces.query("runs"),
        traces.sql("SELECT 1 AS one"),
        traces.pivot("nccl-share", ["model"], "kernel_time_pct", agg="sum"),
        traces.advise(),
        traces.queries(),
        analyze.compare(ONE, DDP2, level="kernel").answer,
    ):
        assert len(Page(answer._repr_html_()).rows) > 1 and len(answer.df()) > 0
    assert traces.query("breakdown").note in traces.query("breakdown")._repr_html_()


def test_timestamps_do_not_choose_the_unit_of_durations() -> None:
    """Savings of 50 and 19 ms (docs/tutorial.md) beside moments of seconds on the clock of the recording."""
    frame = analyze.open(SAMPLES / "late-rank").advise().df(units=True)
    assert frame["saving (ms)"].tolist() == pytest.approx([49.673, 19.211], abs=5e-4)


# --- Figures ---


def test_plots_equal_those_of_the_command(tmp_path: Path) -> None:
    traces = analyze.open(ONE)
    drawn = traces.queries.kernel_share(group="family").plot()
    svg = drawn._repr_svg_()
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg" and "<script" not in svg
    by_name = traces.plot("kernel-share", tmp_path / "k.svg", params={"group": "family"}).svg()
    # Parts of it are numbered on through a process.
    assert {re.sub(r"clip\d+", "", text) for text in (by_name, (tmp_path / "k.svg").read_text("utf-8"))} == {
        re.sub(r"clip\d+", "", svg)
    }
    drawn.save(str(tmp_path / "k.html"))
    assert "analyze query kernel-share" in (tmp_path / "k.html").read_text("utf-8")
    drawn.save(tmp_path / "k.png")
    assert (tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"k\.pdf: the name of a figure must end in"):
        drawn.save(tmp_path / "k.pdf")


def test_a_figure_is_of_the_rows_of_its_answer() -> None:
    questions = analyze.open(ONE).queries
    assert "3 of them" in questions.kernel_share(group="family", limit=3).plot().figure.alt
    other = questions.kernel_share(group="family", limit=3).plot(figure="bars x=calls y=family", title="Calls").svg()
    assert "Calls" in other and "convolution" in other


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.sql("SELECT 1"), "plot: only the answer of a query can be drawn"),
        (lambda t: t.query("kernel-share", select=["calls"]), "plot kernel-share: the figure needs the column"),
        (lambda t: t.query("collectives"), "plot collectives: no data for a figure; it needs"),
        (lambda t: t.query("runs"), "query runs has no figure"),
    ],
)
def test_answer_without_a_figure_is_one_sentence(ask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(analyze.open(ONE)).plot()


# --- Completion ---


def test_every_query_is_a_function() -> None:
    questions = analyze.open(ONE).queries
    assert dir(questions) == sorted(name.replace("-", "_") for name in catalog())
    assert set(questions._ipython_key_completions_()) == set(catalog())
    for name, query in catalog().items():
        function = questions[name]
        assert getattr(questions, name.replace("-", "_")).__doc__ == function.__doc__
        signature = inspect.signature(function)
        own = {p.name: p for p in query.params}
        assert set(signature.parameters) == {*own, "by", "sort", "limit", "select", "filter"}
        assert inspect.getdoc(function).startswith(query.question)
        for p in own.values():
            made = signature.parameters[p.name]
            # What is completed is what the query takes.
            assert p.parse(str(made.default), name) == made.default and f"{p.name} : " in inspect.getdoc(function)
            if p.choices:
                assert typing.get_args(made.annotation) == p.choices


def test_query_functions_equal_answer() -> None:
    traces = analyze.open(ONE)
    asked = traces.queries.kernel_share(group="family", by=["model"], limit=2, sort="calls")
    same = traces.query("kernel-share", ["model"], params={"group": "family"}, limit=2, sort="calls")
    assert asked.rows() == same.rows() and asked.columns == same.columns
    with pytest.raises(InputError, match=r"query kernel-share has no parameter 'colour' \(it has group\)"):
        traces.queries.kernel_share(colour="red")
    with pytest.raises(AttributeError, match="there is no query 'kernel-colour'"):
        traces.queries.kernel_colour()
    with pytest.raises(InputError, match="there is no query 'kernel-shar'; did you mean kernel-share"):
        traces.queries["kernel-shar"]
    # What IPython asks of every object.
    assert not hasattr(traces.queries, "_ipython_canary_method_should_not_exist_")


def test_query_list_names_missing_data() -> None:
    traces = analyze.open(ONE)
    answer = traces.queries()
    listed = answer.df().set_index("query")
    assert set(listed.index) == set(catalog())
    assert listed.loc["kernel-share"].tolist() == ["gpu", "Which kernels take the time?", "group=name", ""]
    assert listed.loc["stragglers", "lacking"] == "communication kernels"
    assert traces.queries._repr_html_() == answer._repr_html_() and "stragglers" in repr(traces.queries)


def test_query_list_has_user_queries(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "group" / "own-question.sql"
    own.parent.mkdir(parents=True)
    # Its parameter is called as an option is: it is the parameter.
    own.write_text(
        "-- What?\n-- @param limit int[0..9] = 7  Any.\n-- @column n count  Number.\n"
        "SELECT NULL AS run_group, $limit AS n\n"
    )
    trace = write_trace(tmp_path / "t.json", [kernel("k", 0, 1), event("cpu_op", "f", 0, 1)])
    traces = analyze.open(trace, queries=[tmp_path / "mine"])
    assert "own_question" in dir(traces.queries) and "own-question" in set(traces.queries().df()["query"])
    assert traces.queries.own_question().rows() == [(7,)] and traces.queries.own_question(limit=3).rows() == [(3,)]
    assert json.loads(traces.queries.own_question().df().to_json(orient="records")) == [{"n": 7}]
