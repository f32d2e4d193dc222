"""Tables as they are printed: they fit, tell rows apart, cut no number, and say units once.

`python tests/test_render.py` rewrites the examples in tests/data/tables-WIDTH.txt: read what changed.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, in_terminal, run_cli, run_python
from rich.cells import cell_len
from support import ROOT, SAMPLES, default_answer, lines_run, sample_engine
from test_info import compare
from traces import kernel, write_trace

import analyze
from analyze.query.query_declaration import ResultColumn
from analyze.query.query_files import catalog
from analyze.query.result import Result
from analyze.query.selection import Selection
from analyze.render import formatted, output_format, write
from analyze.render.layout import table_lines
from analyze.render.texts import SENTENCES, fitted, middle
from analyze.render.units import format_columns, is_text

WIDTHS = (80, 120, 200)
ONE = SAMPLES / "resnet18-1gpu"
KINDS = ("alexnet-dp2", "resnet18-ncu", "hang-missing", "out-of-memory")
"""Samples of torch.profiler and Nsight Systems, Nsight Compute, dumps, allocator events."""
_NOTE = re.compile(r"^hidden columns: ")

EXAMPLES = (
    ("resnet18-1gpu", "kernel-share", {}, 6),
    ("resnet18-1gpu", "op-tree", {}, 6),
    ("resnet18-1gpu", "module-tree", {"root": "forward"}, 12),
    ("resnet18-1gpu", "steps", {}, 6),
    ("resnet18-1gpu", "gaps", {}, 4),
    ("resnet18-1gpu", "memory-by-phase", {}, 8),
    ("resnet18-ddp2", "collectives", {}, 6),
    ("resnet18-ddp2", "launch", {}, 4),
    ("alexnet-roofline", "roofline", {}, 5),
    ("late-rank", "stragglers", {}, 4),
    ("", "runs", {}, 20),
    ("", "gpu-busy", {}, 20),
)
"""Sample (none: all of them), query, parameters and rows of what is kept to be read."""


def render(columns: Any, rows: Any, width: int, main: Any = (), wide: bool = False) -> list[str]:
    return list(table_lines(columns, rows, main, width, wide))


def shown(lines: list[str]) -> tuple[set[str], set[str]]:
    """Names of the columns that a table says it does not show, and the first words of what stands above it."""
    notes = " ".join(lines[next((i for i, line in enumerate(lines) if _NOTE.match(line)), len(lines)) :])
    notes = notes.removeprefix("hidden columns: ").removesuffix(" (--wide shows them)")
    hidden = {n for part in notes.split("; ") if ": " in part for n in part.split(": ", 1)[1].split(", ")}
    above = " ".join(lines[: next((i for i, line in enumerate(lines) if line.startswith("─")), 0)])
    return hidden, {f"{place}_id" if place == "run" else place for place in re.findall(r"(run|rank|device) \S+", above)}


def check(columns: Any, rows: list[Any], main: Any, width: int, what: str) -> None:
    lines = render(columns, rows, width, main)
    assert [line for line in lines if cell_len(line) > width] == [], what
    if not rows:
        assert lines == ["no rows"]
        return
    _, cells = format_columns(columns, rows)
    assert not any(re.fullmatch(r"-?0\.0+", c) for column in cells for c in column), what
    rule = next(i for i, line in enumerate(lines) if line.startswith("─"))
    if lines[rule].startswith("── 1 "):
        text = "".join("".join(lines).split())
        assert all("".join(c.split()) in text for i, c in enumerate(x[0] for x in cells) if columns[i].name in main), (
            what
        )
        return
    if any(c.name in SENTENCES and is_text(c) for c in columns):
        return  # a row has as many lines as its sentence
    body = lines[rule + 1 : rule + 1 + len(rows)]
    hidden, places = shown(lines)
    for i, column in enumerate(columns):
        if column.name not in hidden and column.name not in places and not is_text(column):
            for line, cell in zip(body, cells[i], strict=True):
                assert cell in line.split() or cell == "", f"{what}: {column.name} {cell!r} is not in {line!r}"
    if "tree" not in {c.name for c in columns}:  # there a row is told by those above it
        seen: dict[str, Any] = {}
        for line, row in zip(body, rows, strict=True):
            # Of short kernels in a long recording, the starts look the same.
            told = [v for column, v in zip(columns, row, strict=True) if column.name not in ("start_ns", "dur_ns")]
            assert seen.setdefault(line, told) == told, f"{what}: two rows look the same: {line!r}"


@pytest.mark.parametrize("sample", KINDS)
def test_every_answer_has_rows_as_info_says_and_fits_the_terminal(sample: str) -> None:
    rendered = set()
    for query in catalog().values():
        columns, main, rows = default_answer(sample, query.name)
        if rows:
            rendered.add(query.name)
        for width in WIDTHS:
            check(columns, rows, main, width, f"{query.name} on {sample} at {width}")
    compare(analyze.open(SAMPLES / sample).info(), lambda query: default_answer(sample, query.name).rows)
    assert len(rendered) >= 4


def test_tables_equal_their_snapshots() -> None:
    for width in WIDTHS:
        kept = (ROOT / "tests" / "data" / f"tables-{width}.txt").read_text(encoding="utf-8")
        assert examples(width) == kept


@cache
def example(sample: str, name: str, limit: int, **params: str) -> tuple[Result, list[tuple[Any, ...]]]:
    query = catalog()[name]
    answer = sample_engine(sample, Selection(prefer=query.prefer)).query(query, params, limit=limit)
    return answer, answer.rows()


def examples(width: int) -> str:
    parts = []
    for sample, name, params, limit in EXAMPLES:
        answer, rows = example(sample, name, limit, **params)
        lines = render(answer.columns, rows, width, answer.main)
        given = "".join(f" --param {k}={v}" for k, v in params.items())
        asked = f"analyze query {name} sample_traces{sample and f'/{sample}'}{given} --limit {limit}"
        parts.append("\n".join([f"$ {asked}", *lines, ""]))
    return "\n".join(parts)


def columns(**units: str) -> list[ResultColumn]:
    return [ResultColumn(name, unit, "") for name, unit in units.items()]


def test_unit_is_in_the_header_once() -> None:
    """Headings without what the unit says; the cells of two columns of one measure in one unit."""
    asked = columns(gb_per_s="GB/s", algbw_gb_per_s="GB/s", bytes="B", images_per_s="images/s", total_flops="FLOP")
    headings, _ = format_columns(asked, [(1.5, 2.5, 3 << 20, 7.0, 2e9)])
    assert [str(h) for h in headings] == ["GB/s", "algbw (GB/s)", "MiB", "images/s", "total (GFLOP)"]
    # What `pivot` prints: 763.321 ms and 1.212 s are 0.763 and 1.212 s.
    pivoted = [ResultColumn(f"gpus={n}", "ns", "Time.") for n in (1, 2)]
    headings, cells = format_columns(pivoted, [(763_321_000, 1_212_000_000)])
    assert [str(h) for h in headings] == ["gpus=1 (s)", "gpus=2 (s)"] and cells == [["0.763"], ["1.212"]]
    # A mean and a sum are two measures; an end is none of its own.
    headings, cells = format_columns(columns(total_ns="ns", avg_ns="ns", max_ns="ns"), [(5_000_000, 2_500, 4_000)])
    assert [str(h) for h in headings] == ["total (ms)", "avg (µs)", "max (µs)"]
    assert cells == [["5.000"], ["2.500"], ["4.000"]]


def test_timestamps_are_shown_to_the_nanosecond() -> None:
    """The nearest float of the first is 1795206803338803456: there are 256 ns from one to the next."""
    moments = [1_795_206_803_338_803_478, 1_795_206_803_404_415_454, None, -(2**60) - 1]
    [heading], [cells] = format_columns(columns(start_ns="ns"), [(v,) for v in moments])
    assert str(heading) == "start (ns)"
    assert cells == ["1,795,206,803,338,803,478", "1,795,206,803,404,415,454", "", "-1,152,921,504,606,846,977"]


@pytest.mark.parametrize(
    ("unit", "values", "expected"),
    [
        ("ns", [12_000_000_000, 3], ["12.000", "3e-09"]),
        ("ns", [2_500_000, 400], ["2.500", "0.0004"]),
        ("ns", [0, 1_500], ["0", "1.500"]),
        ("%", [99.5, 0.0004, 0.0], ["99.50", "0.0004", "0"]),
        ("%", [0.012], ["0.012"]),
        ("B", [8, 3 << 30], ["7.5e-09", "3.00"]),
        ("s", [0.25, None], ["250.000", ""]),
        ("x", [1234.5678, 1.23456], ["1,234.6", "1.235"]),
    ],
)
def test_small_numbers_are_not_shown_as_zero(unit: str, values: list[Any], expected: list[str]) -> None:
    _, [cells] = format_columns(columns(x=unit), [(v,) for v in values])
    assert cells == expected


def test_empty_columns_are_named_below_the_table() -> None:
    asked = columns(name="text", calls="count", reason="text", lost="count", rank="index")
    lines = render(asked, [("a", 1, None, 0, 0), ("b", 2, None, 0, 0)], 80)
    assert (
        lines[0] == "rank 0"
        and lines[1].split() == ["name", "calls"]
        and lines[-1] == ("hidden columns: no data: reason; all zero: lost (--wide shows them)")
    )
    wide = render(asked, [("a", 1, None, 0, 0), ("b", 2, None, 0, 0)], 80, wide=True)
    assert wide[1].split() == ["name", "calls", "reason", "lost"]


def test_main_columns_come_first_and_others_as_they_fit() -> None:
    asked = columns(name="text", calls="count", first="number", second="number", third="number")
    row = ("kernel", 12, 1.0, 2.0, 3.0)
    assert render(asked, [row], 80, ("name", "third"))[0].split() == ["name", "calls", "first", "second", "third"]
    narrow = render(asked, [row], 24, ("name", "third"))
    assert (
        narrow[0].split() == ["name", "calls", "third"]
        and " ".join(narrow[3:]) == "hidden columns: no room: first, second (--wide shows them)"
    )


def test_wide_tables_become_records() -> None:
    asked = columns(**{f"measure_{i}": "number" for i in range(12)})
    lines = render(asked, [tuple(range(1, 13)), tuple(range(2, 14))], 40)
    assert lines[0] == "── 1 ──" and lines[1].split() == ["measure_0", "1"] and lines[13] == "── 2 ──"


def test_run_ids_drop_their_common_prefix_if_needed() -> None:
    ids = ["20261120-171855-resnet18-b32-g1-fp32-ffca", "20261120-172001-vgg16-b8-g1-fp32-693c"]
    asked, rows = columns(run_id="id", busy_ns="ns"), [(i, 5) for i in ids]
    assert all(i in " ".join(render(asked, rows, 80)) for i in ids)
    lines = render(asked, rows, 42)
    assert lines[0] == "run ids begin with 20261120-"
    assert [line.split()[0] for line in lines[-2:]] == [i.replace("20261120-", "…") for i in ids]


LONG = (
    "void at::native::vectorized_elementwise_kernel<{}, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>()"
)


def test_kernels_are_shown_by_their_short_name_and_stay_different() -> None:
    one, two = LONG.format(4), LONG.format(2)
    assert fitted([one], 60) == {one: "vectorized_elementwise_kernel[CUDAFunctor_add]"}
    both = fitted([one, two], 40)
    assert len(set(both.values())) == 2 and all("kernel<" in v for v in both.values())
    assert "4" in both[one] and "2" in both[two]
    names = [f"sm80_xmma_gemm_f32f32_tilesize{n}x64_stage3_warpsize2x2x1_execute_kernel__5x_cublas" for n in (32, 64)]
    cut = fitted(names, 30)
    assert "32x6" in cut[names[0]] and "64x6" in cut[names[1]]


@pytest.mark.parametrize("width", [8, 16, 40])
def test_texts_that_differ_are_shown_differently(width: int) -> None:
    names = [f"{'x' * a}{b}{'y' * c}" for a in (0, 5, 90) for b in ("", "1", "2", "-") for c in (0, 7, 80)]
    names += ["…", "x" * 50 + "…", "a > b > " + "c" * 60, "a > " + "d" * 30 + " > " + "c" * 60, "  " * 30 + "leaf"]
    shown = fitted(names, width)
    assert len(set(shown.values())) == len(set(names)) and all(cell_len(v) <= width for v in shown.values())


def test_thousands_of_similar_names_are_fast() -> None:
    """What differs is in the middle of the middle: nothing but a number tells these apart."""

    def shown(count: int) -> dict[str, str]:
        return fitted(["x" * 60 + f"{i % 7}" + "y" * 40 + f"{i:05d}" + "z" * 60 for i in range(count)], 20)

    assert len(set(shown(20_000).values())) == 20_000
    assert lines_run(lambda: shown(3000)) < 11 * lines_run(lambda: shown(300))


def test_widths_are_those_of_a_terminal() -> None:
    """A CJK character takes two cells, a combining accent none; controls are spelled out (see test_cli)."""
    wide, accents = "計" * 30, "e\u0301" * 40
    for text in (wide, accents, wide + "a" * 30, "👩‍👩‍👧" * 20):
        for cells in (10, 11, 21):
            assert cell_len(middle(text, cells)) <= cells
    lines = render(columns(name="text", calls="count"), [(wide, 1), (accents, 22), ("plain", 333)], 40)
    assert max(map(cell_len, lines)) <= 40 and {cell_len(line) for line in lines[2:5]} == {cell_len(lines[2])}
    assert middle(accents, 11)[-1] == "\u0301"


def test_names_in_square_brackets_stay_text() -> None:
    asked = columns(name="text", calls="count")
    lines = render(asked, [("[red]x[/red]", 1), ("tracequarry[collect]", 2), ("[/]", 3)], 80)
    assert [line.split()[0] for line in lines[2:]] == ["[red]x[/red]", "tracequarry[collect]", "[/]"]


def test_table_width_follows_the_terminal() -> None:
    query = ("query", "kernel-share", ONE)
    assert max(map(cell_len, in_terminal(80, *query))) <= 80 < max(map(cell_len, in_terminal(140, *query))) <= 140
    assert 60 < max(map(cell_len, run_cli(*query, COLUMNS="90").stdout.splitlines())) <= 90
    assert 120 < max(map(cell_len, run_cli(*query, COLUMNS="").stdout.splitlines())) <= 160


def test_format_from_the_file_name(tmp_path: Path) -> None:
    asked = ("query", "gpu-busy", ONE)
    for name, form in (("x.csv", "csv"), ("x.json", "json"), ("x.md", "markdown"), ("x.txt", "table")):
        assert run_cli(*asked, "-o", tmp_path / name).returncode == 0
        assert (tmp_path / name).read_text() == run_cli(*asked, "-f", form, COLUMNS="").stdout
    assert run_cli(*asked, "-o", tmp_path / "x.parquet").returncode == 0
    assert (tmp_path / "x.parquet").read_bytes()[:4] == b"PAR1"
    for arguments, says in (
        (("-o", "x.csv", "-f", "json"), "-o x.csv: the ending means csv, but --format is json"),
        (
            ("-o", "x.doc"),
            "-o x.doc: unknown format; use one of the endings .txt, .csv, .json, .parquet, .md, .xlsx, or --format",
        ),
        (("-o", "x"), "-o x: unknown format"),
        (("-f", "xlsx"), "--format xlsx needs -o FILE"),
    ):
        result = run_cli(*asked, *arguments, cwd=tmp_path)
        assert result.returncode == 2 and says in complaints(result)[0] and not (tmp_path / "x.doc").exists()
    assert output_format("csv", Path("/dev/stdout")) == "csv" and output_format("table", Path("x.dat")) == "table"


def test_excel_stores_text_as_text(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    path = write_trace(tmp_path / "t.json", [kernel("=1+2", 0, 5), kernel("http://x", 9, 2)])
    write(analyze.open(path).query("kernel-share"), "xlsx", tmp_path / "x.xlsx", sys.stdout)
    with zipfile.ZipFile(tmp_path / "x.xlsx") as book:
        sheet, strings = (book.read(f"xl/{n}").decode() for n in ("worksheets/sheet1.xml", "sharedStrings.xml"))
        assert not any("hyperlink" in book.read(n).decode(errors="replace") for n in book.namelist())
    assert "<t>=1+2</t>" in strings and "<t>http://x</t>" in strings and "<f>" not in sheet
    assert "<v>5000</v>" in sheet  # ns, as in CSV


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("kind", ["xlsx", "parquet", "csv", "json", "markdown", "table"])
def test_a_full_disk_is_one_sentence(kind: str) -> None:
    result = run_cli("query", "gpu-busy", ONE, "-o", "/dev/full", "--format", kind)
    assert result.returncode == 2
    assert complaints(result) == ["analyze: /dev/full: cannot be written: No space left on device"]


def test_excel_without_its_package_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "xlsxwriter.py").write_text("raise ImportError")
    result = run_python(
        "-m", "analyze", "query", "gpu-busy", ONE, "-o", tmp_path / "x.xlsx", PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    assert result.returncode == 2 and "pip install 'tracequarry[xlsx]'" in complaints(result)[0]


def test_csv_keeps_names_unchanged(tmp_path: Path) -> None:
    """Formulas of a spreadsheet, controls and ends of lines are written as they are (docs/basics.md says so)."""
    names = ["=1+2", "@x", "a\x1b[1m\x00\t\u202e", "b\rc", "d\r\ne", "f\ng", 'h",', "\r"]
    path = write_trace(tmp_path / "t.json", [kernel(n, 10 * i, 9 - i) for i, n in enumerate(names)])
    assert run_cli("query", "kernel-share", path, "--select", "name", "-o", tmp_path / "x.csv").returncode == 0
    text = (tmp_path / "x.csv").read_bytes().decode()
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["name", *names]
    # As RFC 4180 quotes, which csv itself does not need to read: no end of a line is outside of quotes but for \n.
    assert '\n"b\rc"\n"d\r\ne"\n"f\ng"\n"h"","\n"\r"\n' in text


def test_the_unit_is_at_the_end_of_a_name() -> None:
    """So a heading is the name up to there, and who reads `roof (%)` knows the column."""
    endings = {"ns": "_ns", "%": "_pct"}
    columns = [(q.name, c) for q in catalog().values() for c in q.columns if c.unit in endings]
    assert [(q, c.name) for q, c in columns if not c.name.endswith(endings[c.unit])] == []
    headings, _ = format_columns([c for _, c in columns], [tuple(1.0 for _ in columns)])
    assert [h.label for h in headings] == [c.name.removesuffix(endings[c.unit]) for _, c in columns]


def test_markdown_has_the_units_of_the_table() -> None:
    query = catalog()["phases"]
    headings, rows = formatted(sample_engine("resnet18-1gpu").query(query))
    assert "cpu (ms)" in headings and len(rows) == 6


def test_names_are_not_markup_of_a_markdown_table(tmp_path: Path) -> None:
    """They render as they were recorded, by a renderer of CommonMark with tables and strikethrough."""
    markdown_it = pytest.importorskip("markdown_it")
    names = [
        "void f<float>(T*, T const*)", "*md*", "__init__", "a_b_c", "`code`", "[text](http://x)", "![i](x)", "&lt;",
        "<b>x</b>", "a|b", "c\\", "d\\|e", "~~gone~~", "<http://x>", "operator&&", "1. x", "# h",
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", [kernel(n, 10 * i, 5) for i, n in enumerate(names)])
    text = run_cli(
        "query", "kernel-share", path, "-f", "markdown", "--select", "name,total_ns", "--sort", "name"
    ).stdout
    page = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    cells = [token.children for token in page if token.type == "inline"]
    assert all([part.type for part in parts] == ["text"] for parts in cells)
    assert [parts[0].content for parts in cells][::2] == ["name", *sorted(names)]


if __name__ == "__main__":
    for rewritten in WIDTHS:
        target = ROOT / "tests" / "data" / f"tables-{rewritten}.txt"
        target.write_text(examples(rewritten), encoding="utf-8")
