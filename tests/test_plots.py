"""Figures: each query's figure shows its answer, and names stay text."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from commands import run_cli
from support import ROOT, SAMPLES, default_answer
from traces import event, kernel, launch, launched, op, write_trace

import analyze
from analyze.errors import InputError
from analyze.plots import declared, drawing
from analyze.plots.figure import Figure, Rows, Scale, cut, label, quantity
from analyze.plots.per import Counts
from analyze.plots.theme import FAMILIES, MEANINGS, colours
from analyze.query.query_declaration import ResultColumn
from analyze.query.query_files import catalog, find
from schemas.kernel_rules import families

DRAWN = [name for name, query in sorted(catalog().items()) if query.plot]
SHOWN = (
    "resnet18-1gpu", "alexnet-ncu", "pipeline-4gpu", "generate", "cuda-graph", "out-of-memory", "expert-4gpu",
    "fsdp-tp-4gpu", "recompile-ddp", "cpu-threads", "serving",
)  # fmt: skip
"""Samples that together have rows for all figures but NOT_SHOWN."""
NOT_SHOWN = {"epochs", "nccl-log", "scaling"}
"""Figures of several runs, and of a format that no sample has."""

HOSTILE = "<script>alert(1)</script>';-- \x1b[31m\u202egnp.exe"


def asked(*paths: Path) -> Any:
    traces = analyze.open(*paths)

    def ask(query: str, **params: str) -> Rows:
        return Rows.of(traces.query(query, params=params))

    return ask


def sample(name: str) -> Any:
    traces = asked(SAMPLES / name)

    def ask(query: str, **params: str) -> Rows:
        if params:
            return traces(query, **params)
        answer = default_answer(name, query)
        return Rows(answer.columns, answer.rows)

    return ask


def test_every_declaration_is_drawn() -> None:
    """As Vega, of the first sample with rows for it; as SVG, the first of each kind: to place texts takes longest."""
    left, kinds = set(DRAWN), set()
    for shown in SHOWN:
        ask = sample(shown)
        for name in sorted(left):
            query = find(name)
            declaration = declared.of_query(query, {})
            figure = declared.draw(declaration, ask(name), ask)
            if figure is not None:
                left.remove(name)
                assert figure.alt and drawing.vega(figure)["marks"], (shown, name)
                if declaration.kind not in kinds:
                    kinds.add(declaration.kind)
                    assert "<svg" in vl_convert.vegalite_to_svg(drawing.vega_lite(figure, query.question)), name
    assert left == NOT_SHOWN


def test_every_declaration_names_columns_of_its_query() -> None:
    """For every choice that a parameter of the query has."""
    for name in DRAWN:
        query = find(name)
        for params in [{}, *({p.name: c} for p in query.params for c in p.choices)]:
            assert declared.of_query(query, params).kind in declared.KINDS


def bars(figure: Figure | None) -> dict[str, float]:
    assert figure is not None
    return {v["name"]: v["value"] for v in figure.spec["data"]["values"]}


def rows(columns: dict[str, str], *values: tuple[Any, ...]) -> Rows:
    return Rows(tuple(ResultColumn(n, u, "") for n, u in columns.items()), list(values))


def draw(declaration: str, of: Rows) -> Figure | None:
    return declared.draw(declared.parse(declaration, "test"), of, lambda name: of)


def test_bars_have_one_unit_and_count_omitted_rows() -> None:
    of = rows({"name": "text", "total_ns": "ns"}, ("a", 2_500_000), ("b", 1_000), ("c", 5_000_000))
    figure = draw("bars x=total_ns y=name top=2", of)
    # In the order of the query, in ms: 2.5 and 5.
    assert bars(figure) == {"a": 2.5, "c": 5.0}
    assert figure and figure.notes == ("Showing the 2 longest of 3.",)
    assert figure.alt == "Bars of total time, 2 of them; the longest is c with 5 ms"
    # Of bars of one length, the first.
    of = rows({"name": "text", "total_ns": "ns"}, *((name, 1_000_000) for name in "hgfedcba"))
    same = draw("bars x=total_ns y=name", of)
    assert same and same.alt == "Bars of total time, 8 of them; the longest is h with 1 ms"


def test_sums_are_drawn_per_step_and_gpu() -> None:
    of = rows({"name": "text", "total_ns": "ns", "calls": "count"}, ("a", 48_000_000, 8), ("b", 16_000_000, 8))
    declaration = declared.parse("bars x=total_ns y=name per=step,gpu", "test")
    # 2 steps on 4 GPUs: 48 and 16 ms / 8.
    figure = declared.draw(declaration, of, lambda name: of, Counts(step=2, gpu=4, rank=4))
    assert bars(figure) == {"a": 6.0, "b": 2.0}
    assert figure and figure.spec["encoding"]["x"]["axis"]["title"] == "total time per step and GPU (ms)"
    assert figure.notes == ("Means over 2 steps and 4 GPUs; tables have the sums.",)
    # Without steps, or of several runs, the figure says what it sums over.
    figure = declared.draw(declaration, of, lambda name: of, Counts(gpu=4, rank=4))
    assert bars(figure) == {"a": 12.0, "b": 4.0}
    assert figure and figure.notes == ("Means over 4 GPUs; tables have the sums.", "Sums over the recording.")
    figure = declared.draw(declaration, of, lambda name: of)
    assert bars(figure) == {"a": 48.0, "b": 16.0}
    assert figure and figure.notes == ("Sums over the recording and its GPUs.",)
    # A row of one step is divided by the GPUs alone.
    of = rows({"step": "index", "total_ns": "ns"}, (7, 8_000_000))
    figure = declared.draw(
        declared.parse("bars x=total_ns y=step per=step,gpu", "test"), of, lambda name: of, Counts(2, 4, 4)
    )
    assert bars(figure) == {"7": 2.0}
    with pytest.raises(InputError, match="per=steps: expected some of step, gpu, rank"):
        declared.parse("bars x=a y=b per=steps", "test")
    with pytest.raises(InputError, match="lines has no option 'per=step'"):
        declared.parse("lines x=a y=b per=step", "test")


def test_strip_of_many_steps_shows_means() -> None:
    of = rows({"step": "index", "step_ns": "ns"}, *((i, 1000 * i) for i in range(300)))
    figure = draw("strip x=step y=step_ns", of)
    values = figure.spec["data"]["values"] if figure else []
    # 150 columns of 2 steps: 0 and 1 us, 2 and 3 us, ...
    assert [v["y"] for v in values[:3]] == [0.5, 2.5, 4.5] and len(values) == 150
    assert figure and figure.notes == ("Each column is the mean of 2 consecutive steps.",)


def test_strip_with_unknown_parts_shows_the_total() -> None:
    of = rows({"step": "index", "train_ns": "ns", "step_ns": "ns"}, (1, None, 2_000), (2, None, 5_000))
    figure = draw("strip x=step y=train_ns whole=step_ns", of)
    assert figure and [(v["x"], v["y"]) for v in figure.spec["data"]["values"]] == [(1, 2), (2, 5)]


def test_tree_follows_the_call_order() -> None:
    of = rows(
        {"tree": "text", "depth": "index", "total_device_ns": "ns", "kind": "text"},
        ("a", 0, 60, "op"), ("  b", 1, 40, "op"), ("  c", 1, 20, "op"), ("d", 0, 40, "op"), ("  e", 1, 10, "op"),
    )  # fmt: skip
    figure = draw("icicle name=tree depth=depth value=total_device_ns kind=kind", of)
    values = figure.spec["data"]["values"] if figure else []
    # a from 0 to 60 with b and c below it, d from 60 to 100 with e below.
    assert {v["name"]: (v["a"], v["b"], v["top"]) for v in values} == {
        "a": (0, 60, 0), "b": (0, 40, 1), "c": (40, 60, 1), "d": (60, 100, 0), "e": (60, 70, 1),
    }  # fmt: skip


def test_a_tree_of_two_recordings_has_room_for_both() -> None:
    of = rows(
        {"path": "text", "a_ns": "ns", "b_ns": "ns"},
        ("x", 10, 10), ("x > y", 30, 0), ("x > z", 0, 50), ("w", 5, 5),
    )  # fmt: skip
    figure = draw("icicle path=path value=b_ns before=a_ns", of)
    values = {v["name"]: v for v in figure.spec["data"]["values"]} if figure else {}
    # y is only in A, z only in B: x is as wide as both. Changes: 60 - 40, 0 - 30, 50 - 0, 0.
    assert {n: v["b"] - v["a"] for n, v in values.items()} == {"x": 80, "z": 50, "y": 30, "w": 5}
    assert {n: v["change"] for n, v in values.items()} == {"x": 20, "z": 50, "y": -30, "w": 0}
    # The widths add up to 85 ns, which neither side has: no axis says so.
    assert figure and figure.spec["layer"][0]["encoding"]["x"]["axis"] is None
    assert figure.notes[-1].endswith("45 ns before and 65 ns now in total.")


def test_heat_map_lanes() -> None:
    of = rows(
        {"rank": "index", "start_ns": "ns", "span_ns": "ns", "busy_pct": "%", "comm_pct": "%"},
        (0, 0, 1000, 50.0, 0.0), (0, 1000, 1000, 100.0, 0.0), (1, 0, 1000, 0.0, 0.0),
    )  # fmt: skip
    figure = draw("heatmap x=start_ns width=span_ns y=rank value=busy_pct,comm_pct", of)
    values = figure.spec["data"]["values"] if figure else []
    assert [(v["lane"], v["a"], v["b"], v["v"]) for v in values] == [
        ("busy_pct rank 0", 0, 1, 50), ("busy_pct rank 0", 1, 2, 100),
    ]  # fmt: skip
    assert figure and figure.alt == "Share of time per lane. busy: rank 0 75.0 %, rank 1 0.0 %"


def test_line_labels_are_distinct() -> None:
    of = rows(
        {"gpus": "index", "rank": "index", "batch_size": "index", "cpu_ns": "ns"},
        (1, 0, 128, 30), (2, 0, 128, 20), (2, 1, 128, 10),
    )  # fmt: skip
    figure = draw("lines x=batch_size y=cpu_ns color=gpus,rank", of)
    values = figure.spec["data"]["values"] if figure else []
    assert {v["series"]: v["y"] for v in values} == {"1 GPU, rank 0": 30, "2 GPUs, rank 0": 20, "2 GPUs, rank 1": 10}
    # A single rank has no other name than its own; of one rank, rows differ by the number of requests.
    columns = {"run_id": "id", "rank": "index", "requests": "number", "p50_ns": "ns", "p99_ns": "ns"}
    for found, names in (((None,), ["rank 0"]), ((1.0, 4.0), ["1 request", "4 requests"])):
        of = rows(columns, *(("a", 0, n, 1000, 2000) for n in found))
        figure = draw(find("token-latency").plot or "", of)
        assert figure and [v["name"] for v in figure.spec["data"]["values"]] == names


@pytest.mark.parametrize("query", ["ops", "kernel-share", "kernel-durations", "op-tree", "timeline", "op-totals"])
def test_names_of_javascript_object_members(tmp_path: Path, query: str) -> None:
    def marks(*names: str) -> int:
        events = []
        for i, name in enumerate(names):
            events += [op(name, 100 * i, 90, i + 1), *launched(100 * i + 10, i + 1, 100 * i + 30, 50, name)]
        output = tmp_path / "figure.svg"
        analyze.open(write_trace(tmp_path / f"{names[0]}.json", events)).plot(query, output)
        svg = output.read_text()
        return len(re.findall("<path|<text|<rect", svg))

    plain = [f"kernel_{i}" for i in range(5)]
    assert marks("constructor", "toString", "__proto__", "hasOwnProperty", "valueOf") == marks(*plain)


def test_labels_of_emoji_are_drawn(tmp_path: Path) -> None:
    names = ["\N{GRINNING FACE}" * n + "op" + "\N{GRINNING FACE}" * 30 for n in range(1, 60, 20)]
    events = []
    for i, name in enumerate(names):
        events += [op(name, 100 * i, 90, i + 1), *launched(100 * i + 10, i + 1, 100 * i + 30, 50, name)]
    trace = write_trace(tmp_path / "emoji.json", events)
    for suffix in ("svg", "png", "html"):
        result = run_cli("plot", "op-tree", trace, "-o", tmp_path / f"tree.{suffix}")
        assert result.returncode == 0, result.stderr
    assert "U0001f600" in (tmp_path / "tree.svg").read_text()


def test_no_figure_without_rows() -> None:
    empty = rows({"name": "text", "total_ns": "ns", "gpus": "index", "speedup": "x"})
    assert draw("bars x=total_ns y=name", empty) is None
    assert draw("ring value=total_ns color=name", rows({"name": "text", "total_ns": "ns"}, ("a", 0))) is None
    assert draw("lines x=gpus y=speedup", rows({"gpus": "index", "speedup": "x"}, (1, None))) is None


def test_a_bad_declaration_is_a_sentence() -> None:
    for text, sentence in (
        ("pie x=a", "unknown figure 'pie'"),
        ("bars z=a", "bars has no option 'z=a'"),
        ("bars x", "bars has no option 'x'"),
    ):
        with pytest.raises(InputError, match=sentence):
            declared.parse(text, "query q")
    with pytest.raises(InputError, match="the figure uses nothing, which is not a column"):
        declared.of_query(find("memcpy"), {}, "bars x=nothing y=kind")
    with pytest.raises(InputError, match="query runs has no figure"):
        declared.of_query(find("runs"), {})


def test_a_new_kind_of_figure_is_one_module(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import analyze.plots.kinds as kinds\n"
        f"kinds.__path__.append({str(tmp_path)!r})\n"
        "from analyze.plots import declared; print(declared.parse('dots x=a', 'test'))"
    )
    (tmp_path / "dots.py").write_text('OPTIONS = {"x": "column"}\ndef draw(rows, options, ask): ...\n')
    import subprocess

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout == "Declaration(kind='dots', options={'x': 'a'}, per=())\n", result.stderr


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_plot_writes_each_form(tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"a.{suffix}"
    analyze.open(SAMPLES / "late-rank").plot("kernel-share", output, params={"group": "family"})
    assert output.read_bytes()[: 4 if suffix == "png" else 1] in (b"\x89PNG", b"<")


def test_names_stay_text(tmp_path: Path) -> None:
    name = HOSTILE + "x" * 100_000
    called = {"External id": 1}
    events = [
        event("cpu_op", name, 0, 20, **called),
        launch(1, 1, **called),
        kernel(name, 5, 10, correlation=1, **called),
    ]
    trace = write_trace(tmp_path / "t.json", events)
    for query in ("kernel-share", "module-tree", "ops"):
        for suffix in ("svg", "html"):
            output = tmp_path / f"{query}.{suffix}"
            analyze.open(trace).plot(query, output)
            text = output.read_text()
            if suffix == "html":
                # What the page has of its own, without the library, which is known.
                text = text.replace(drawing.runtime(), "")
            assert "<script>alert" not in text and "\x1b" not in text and "\u202e" not in text
            assert "x" * 5000 not in text and (suffix == "svg" or "alert(1)" in text)


def test_parallel_requests_share_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEQUARRY_CACHE", str(tmp_path))
    with ThreadPoolExecutor(3) as several:
        first, *others = several.map(lambda _: drawing.runtime(), range(3))
    assert others == [first] * 2 and "vega" in first
    [built] = tmp_path.glob("*.js")
    assert built.read_text() == first


def test_colours() -> None:
    """Each family has one, of its own, with at least 2.8 to 1 against white and near-black (WCAG 2 asks 3 of marks)."""
    assert set(FAMILIES) == set(families()) and len(set(FAMILIES.values())) == len(FAMILIES)

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in FAMILIES.values():
        assert 1.05 / (luminance(colour) + 0.05) > 2.8
        assert (luminance(colour) + 0.05) / (luminance("#14181d") + 0.05) > 2.8
    # Copies and what ran on the CPU are in one figure with families.
    assert {MEANINGS[n] for n in ("memcpy", "copies", "module", "op", "range")}.isdisjoint(FAMILIES.values())
    assert 2.8 < 1.05 / (luminance(MEANINGS["memcpy"]) + 0.05) < 6
    scale = colours(["gemm", "mine", "idle"])
    assert scale["range"][0] == FAMILIES["gemm"] and scale["range"][1] not in (FAMILIES["gemm"], scale["range"][2])


def test_words_and_units() -> None:
    assert [label(n) for n in ("exposed_comm_pct", "total_ns", "avg_queue_delay_ns", "busbw_gb_per_s")] == [
        "exposed communication", "total time", "mean queue delay", "bus bandwidth",
    ]  # fmt: skip
    values = ((5_130_000, "ns"), (42.123, "%"), (1204, "count"), (3, "index"), (None, "ns"))
    assert [quantity(v, u) for v, u in values] == [
        "5.13 ms", "42.1 %", "1,204", "3", "–",
    ]  # fmt: skip
    scale = Scale.of([1_500, 2_500_000], "ns")
    assert (scale.title("time"), scale(2_500_000), scale(None)) == ("time (ms)", 2.5, None)
    assert cut("a\x1bb") == "a\\x1bb" and len(cut("x" * 100_000)) == 300


def test_plot_is_a_command(tmp_path: Path) -> None:
    result = run_cli("plot", "runs", SAMPLES / "late-rank", "-o", tmp_path / "a.svg")
    assert result.returncode == 2 and "query runs has no figure" in result.stderr
    drawn = run_cli(
        "plot", "memcpy", SAMPLES / "resnet18-ddp2", "-o", tmp_path / "b.svg", "--figure", "bars x=bytes y=kind"
    )
    assert drawn.returncode == 0 and "MiB" in (tmp_path / "b.svg").read_text()
    assert json.dumps(drawing.vega_lite(Figure({"mark": "bar"}, "x")))


def test_nan_is_drawn_as_missing(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "odd.sql").write_text(
        "-- Odd?\n-- @column name text   Name.\n-- @column total_ns ns   Time.\n-- @plot bars x=total_ns y=name\n"
        "SELECT NULL::INTEGER AS run_group, * FROM (VALUES ('a', 'nan'::DOUBLE), ('b', 'inf'::DOUBLE), ('c', 2.0))"
        " t (name, total_ns)\n"
    )
    analyze.open(SAMPLES / "late-rank", queries=[tmp_path]).plot("odd", tmp_path / "a.html")
    [spec] = re.findall(r'class="spec">(.*?)</script>', (tmp_path / "a.html").read_text())

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    values = [v for d in json.loads(spec, parse_constant=refuse)["data"] for v in d.get("values", ())]
    assert {v["name"]: v["value"] for v in values} == {"a": 0, "b": 0, "c": 2}
