"""The timeline: the rectangles of a window, and how a browser shows them in the report and on the server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support import SAMPLES, ask, opened
from test_report import Opened, Pages, browser, needs_browser, pages, serious
from test_serve import Server, serving
from traces import event, kernel, launch, op, step, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.report.timeline import Moment, Timeline
from analyze.report.timeline_window import MOST, window
from analyze.report.timelines import Timelines

assert browser and pages  # fixtures


def timeline(path: Path) -> Timeline:
    engine = Engine(opened(path).stores)
    return Timeline(engine, engine.run_ids[0])


def timelines(*paths: Path) -> Timelines:
    """The timelines of some runs, called A, B."""
    return Timelines([(label, timeline(path)) for label, path in zip("AB", paths, strict=False)])


def drawn(data: dict[str, Any]) -> list[tuple[str, int, str, int, int]]:
    """Lane, depth, name, start and length of each rectangle of streams and threads."""
    return [
        (data["lanes"][row["lane"]]["label"], row["depth"], data["names"][n][1], start, dur)
        for row in data["rows"]
        for start, dur, n in zip(accumulate(row["t"]), row["d"], row["n"], strict=True)
    ]


def rectangles(data: dict[str, Any]) -> int:
    return sum(len(lane["t"]) for lane in (*data["rows"], *data["states"]))


def linear(work: int) -> list[dict[str, Any]]:
    """Per 10 us, an operator of 8 us with a launch and a kernel of 5 us; a step for each half."""
    events = []
    for i in range(work):
        at = 10 * i
        events += [op(f"op{i % 7}", at, 8, i + 1), launch(at + 1, i + 1, 2, **{"External id": i + 1})]
        events.append(kernel("gemm", at + 4, 5, correlation=i + 1, **{"External id": i + 1}))
    return [*events, step(1, 0, 5 * work), step(2, 5 * work, 5 * work)]


def test_every_event_of_a_small_recording_is_drawn(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.json", [
        op("aten::mm", 100, 50, 1), launch(110, 9, 5, **{"External id": 1}),
        kernel("gemm", 120, 20, correlation=9, **{"External id": 1}), kernel("other", 160, 10),
    ])  # fmt: skip
    data = window(timeline(trace))
    # The first event begins at 100 us, which is time 0.
    assert data["span"] == (0, 70_000) and data["cell"] == 0
    assert drawn(data) == [
        ("stream 7", 0, "gemm", 20_000, 20_000),
        ("stream 7", 0, "other", 60_000, 10_000),
        ("thread 1 (main)", 0, "aten::mm", 0, 50_000),
        ("thread 1 (main)", 1, "cudaLaunchKernel", 10_000, 5_000),
    ]
    [stream, *_] = data["rows"]
    names = [name for _, name, *_ in data["names"]]
    assert names[stream["op"][0]] == "aten::mm" and stream["op"][1] == -1
    assert (stream["before"], stream["length"]) == ([10_000, None], [5_000, None])
    [gpu] = data["states"]
    assert list(zip(accumulate(gpu["t"]), gpu["d"], gpu["compute"], strict=True)) == [
        (20_000, 20_000, 100), (40_000, 20_000, 0), (60_000, 10_000, 100)
    ]  # fmt: skip
    assert data["gaps"] == [(gpu["lane"], 40_000, 20_000)]


def test_ranks_have_one_zero(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path, [kernel("first", 100, 5)], [kernel("late", 40_100, 5)])
    assert [(name, start) for _, _, name, start, _ in drawn(window(timeline(ranks)))] == [
        ("first", 0), ("late", 40_000_000)
    ]  # fmt: skip


def test_work_of_the_profiler_has_a_lane_of_its_own(tmp_path: Path) -> None:
    flush = event("overhead", "Buffer Flush", 30, 5, pid=1, tid=0)
    data = window(timeline(write_trace(tmp_path / "a.json", [op("aten::mm", 0, 20, 1), flush])))
    assert [lane["label"] for lane in data["lanes"]] == ["thread 1 (main)", "profiler"]
    assert ("profiler", 0, "Buffer Flush", 30_000, 5_000) in drawn(data)


def test_windows_of_a_long_recording_have_few_rectangles(tmp_path: Path) -> None:
    many = timeline(write_trace(tmp_path / "a.json", linear(20_000)))
    window(many)
    begin = time.process_time()
    whole = window(many)
    # 40,002 operators, launches and steps of threads and 60,000 pieces of GPU time take less than a second.
    assert time.process_time() - begin < 1
    assert rectangles(whole) <= MOST and whole["cell"] > 0
    counted = {row["lane"]: row.get("count", [1]) for row in whole["rows"] if row["depth"] == 0}
    kernels, _ = (sum(counts) for _, counts in sorted(counted.items()))
    assert kernels == 20_000
    [gpu] = whole["states"]
    # A kernel runs for 5 of every 10 us.
    assert set(gpu["compute"][1:-1]) <= {49, 50, 51}
    part = window(many, 1_000_000, 1_100_000)
    assert part["cell"] == 0 and [d for d in drawn(part) if d[0] == "stream 7"] == [
        ("stream 7", 0, "gemm", start, 5_000) for start in range(1_004_000, 1_100_000, 10_000)
    ]
    one = window(many, 1_004_000, 1_004_001)
    assert {name for _, _, name, *_ in drawn(one)} == {"gemm", "op2", "ProfilerStep*"}
    assert rectangles(Timelines([("", many)]).in_file()) <= MOST


def test_a_report_has_the_steps_around_a_moment(tmp_path: Path) -> None:
    steps = [step(n, 100_000 * n, 100_000) for n in range(9)]
    ops = [op(f"op{i % 7}", 45 * i, 40, i + 1) for i in range(20_000)]
    # A kernel of the sixth step ends 7 ms after it.
    late = [launch(590_000, 7), kernel("late", 606_000, 1_000, correlation=7)]
    of_a = timelines(write_trace(tmp_path / "a.json", [*steps, *ops, *late]))
    data = of_a.in_file(Moment(0, 550_000_000, 1))
    assert (data["from"], data["to"]) == (400_000_000, 607_000_000)
    # An operator begins every 45 us.
    operators = sum(name.startswith("op") for _, _, name, *_ in drawn(data))
    assert data["cell"] == 0 and operators == 207_000 // 45


def test_first_steps_of_two_runs_start_together(tmp_path: Path) -> None:
    """The first step is 50 us after the first event of A, and 300 us after that of B."""
    a = write_trace(tmp_path / "a.json", [op("load", 100, 20, 1), step(1, 150, 50), kernel("gemm", 160, 10)])
    b = write_trace(
        tmp_path / "b.json",
        [
            op("load", 0, 20, 1),
            step(1, 300, 90),
            kernel("gemm", 320, 10),
            kernel("gemm", 340, 5),
            kernel("mul", 370, 5),
        ],
    )
    both = timelines(a, b)
    data = both.window()
    assert [(lane["run"], lane["label"], lane["shift"]) for lane in data["lanes"]] == [
        ("A", "GPU 0", 0), ("A", "stream 7", 0), ("A", "thread 1 (main)", 0),
        ("B", "GPU 0", -250_000), ("B", "stream 7", -250_000), ("B", "thread 1 (main)", -250_000),
    ]  # fmt: skip
    assert data["span"] == (-250_000, 140_000)
    steps = [(number, start, dur, run) for number, start, dur, _, run in data["steps"]]
    assert steps == [(1, 50_000, 50_000, "A"), (1, 50_000, 90_000, "B")]
    assert [(name, start) for lane, _, name, start, _ in drawn(data) if lane == "stream 7"] == [
        ("gemm", 60_000), ("gemm", 70_000), ("gemm", 90_000), ("mul", 120_000)
    ]  # fmt: skip
    # The longest gap of B, from 345 to 370 us.
    assert (3, 95_000, 25_000) in data["gaps"]
    # Hits are those of A, then of B, on the clock of their run; so is a moment.
    assert [(hit["lane"], hit["start"], hit["hits"]) for hit in (both.find("gemm", n) for n in (1, 2, 3))] == [
        (1, 60_000, 3), (4, 320_000, 3), (4, 340_000, 3)
    ]  # fmt: skip
    of_b = both.runs[1][1]
    assert both.moment(of_b, 0, 0, 320_000, 330_000) == Moment(3, 320_000, 10_000)
    assert both.moment(of_b, 0, None, 0, 20_000) == Moment(5, 0, 20_000)
    assert both.moment("another run", 0, 0, 0, 1) is None


def test_ranks_of_two_runs_are_near_each_other(tmp_path: Path) -> None:
    runs = [write_ranks(tmp_path / name, [kernel("gemm", 0, 5)], [kernel("gemm", 0, 5)]) for name in "ab"]
    found = [(lane["rank"], lane["run"]) for lane in timelines(*runs).window()["lanes"] if lane["kind"] == "gpu"]
    assert found == [(0, "A"), (0, "B"), (1, "A"), (1, "B")]


def test_steps_in_a_file_start_together(tmp_path: Path) -> None:
    """Of runs with more events than a page can hold, the same steps are shown: the last of four, and the one before."""

    def run(name: str, length: int) -> Path:
        steps = [step(n, length * n, length) for n in range(4)]
        return write_trace(tmp_path / name, [*steps, *(op("op", 40 * i, 20, i + 1) for i in range(length // 10))])

    data = timelines(run("a.json", 100_000), run("b.json", 150_000)).in_file(Moment(0, 350_000_000, 1))
    shown = [s for s in data["steps"] if data["from"] <= s[1] < data["to"]]
    assert [(number, start, run) for number, start, _, _, run in shown] == [
        (2, 200_000_000, "A"), (3, 300_000_000, "A"), (2, 200_000_000, "B"), (3, 350_000_000, "B")
    ]  # fmt: skip
    assert data["to"] == 500_000_000 and rectangles(data) <= MOST


def test_find_counts_and_orders_hits(tmp_path: Path) -> None:
    found = timeline(write_trace(tmp_path / "a.json", linear(50)))
    # op3 is every seventh of 50 operators, from the fourth: 3, 10, ..., 45.
    assert [found.find("OP3", n)["start"] for n in (1, 2, 7)] == [30_000, 100_000, 450_000]
    assert found.find("op3", 1)["hits"] == 7
    assert found.find("{run}' OR 1=1 --", 1) == {"hits": 0}
    # C++ names have braces.
    named = timeline(write_trace(tmp_path / "b.json", [kernel("gemm<{lambda(int)#1}>", 0, 5)]))
    assert named.find("{lambda(int)#1}", 1)["hits"] == 1


def test_find_by_kernel_family() -> None:
    [gemms] = [r for r in ask(SAMPLES / "lm-compiled", "kernel-share", params={"group": "family"})
               if r["family"] == "gemm"]  # fmt: skip
    assert not any("gemm" in r["name"].lower() for r in ask(SAMPLES / "lm-compiled", "kernel-share"))
    assert timeline(SAMPLES / "lm-compiled").find("GEMM", 1)["hits"] == gemms["calls"] > 0


def test_empty_windows_and_recordings(tmp_path: Path) -> None:
    some = timeline(write_trace(tmp_path / "a.json", linear(3)))
    for times in ((5, 5), (9, 3), (0, 1 << 63)):
        with pytest.raises(InputError, match="is not a window"):
            window(some, *times)
    assert drawn(window(some, 10**9, 10**9 + 1)) == []
    assert not timeline(SAMPLES / "matmuls")  # Nsight Compute times no work


# --- served ---


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    trace = write_trace(tmp_path_factory.mktemp("long") / "a.json", linear(20_000))
    with serving(trace) as made:
        yield made


def test_server_sends_windows(served: Server) -> None:
    said = served.ask("/timeline?from_ns=1000000&to_ns=1100000&width=900")
    assert said.headers["content-type"] == "application/json"
    assert sum(name == "gemm" for _, _, name, *_ in drawn(json.loads(said.body))) == 10
    assert json.loads(served.ask("/timeline?find=op3&place=2").body)["start"] == 100_000
    for query, sentence in (
        ("from_ns=1.5", "from_ns: expected a whole number"), ("from_ns=9&to_ns=3", "is not a window"),
        ("width=" + "9" * 30, "width: expected a whole number"),
    ):  # fmt: skip
        said = served.ask(f"/timeline?{query}")
        assert said.status == 400 and sentence in said.text, query


# --- in a browser ---


@needs_browser
def test_timeline_of_a_report_zooms_finds_and_leads_to_rows(browser: Any, pages: Pages) -> None:
    shown = Opened(browser, pages("lm-compiled"), width=1280)
    at = shown.page.locator(".timeline")
    shown.page.wait_for_selector(".timeline[data-drawn]")

    def window() -> tuple[float, float]:
        shown.page.wait_for_timeout(60)
        low, high = map(float, (at.get_attribute("data-drawn") or "").split())
        return low, high

    # The ruler and the first lanes are on the first screen.
    canvas = at.locator("canvas").bounding_box()
    assert canvas["y"] + 150 < 900
    whole = window()
    lanes = at.locator(".lanes")
    lanes.focus()
    shown.page.keyboard.press("w")
    assert window()[1] - window()[0] == pytest.approx(0.6 * (whole[1] - whole[0]))
    middle = window()
    shown.page.keyboard.press("ArrowRight")
    assert window()[0] > middle[0] and window()[1] - window()[0] == pytest.approx(middle[1] - middle[0])
    canvas = at.locator("canvas").bounding_box()
    before = window()
    shown.page.mouse.move(canvas["x"] + 500, canvas["y"] + 60)
    shown.page.mouse.down()
    shown.page.mouse.move(canvas["x"] + 600, canvas["y"] + 60, steps=3)
    shown.page.mouse.up()
    dragged = window()
    assert dragged[0] < before[0] and dragged[1] - dragged[0] == pytest.approx(before[1] - before[0])
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -50)
    shown.page.keyboard.up("Control")
    assert window()[1] - window()[0] < dragged[1] - dragged[0]
    # Below the ruler, the first lane is that of the GPU.
    shown.page.mouse.click(canvas["x"] + 500, canvas["y"] + 60)
    assert re.match(r"GPU\n(idle|compute)", at.locator(".event").inner_text())
    for _ in range(60):
        shown.page.keyboard.press("+")
    assert window()[1] - window()[0] == pytest.approx(20)  # ns
    lanes.press("0")
    assert window() == pytest.approx(whole)

    [advice, *_] = analyze.open(SAMPLES / "lm-compiled").advise().dicts()
    link = shown.page.locator("a.moment").first
    shown.page.locator("#finding-1 summary").click()
    link.click()
    low, high = window()
    start, dur = (int(link.get_attribute(f"data-{name}") or 0) for name in ("start", "dur"))
    assert low < start < start + dur < high and dur == advice["end_ns"] - advice["start_ns"]
    assert at.locator("optgroup[label=findings] option").count() == shown.page.locator("a.moment").count()

    # Operators of compiled code have the names of their kernels.
    calls = [r["name"] for r in ask(SAMPLES / "lm-compiled", "ops") if r["place"] == "cpu"]
    names = [r["name"] for r in ask(SAMPLES / "lm-compiled", "kernel-share")]
    wanted = next(n for n in names if not any(n in call for call in calls) and len(n) < 200)
    at.locator("input[type=search]").fill(wanted)
    at.locator("input[type=search]").press("Enter")
    at.get_by_text(re.compile(r"^1 of \d+$")).wait_for()
    details = at.locator(".event")
    details.get_by_text("launch", exact=True).wait_for()
    assert wanted in details.inner_text() and window()[1] - window()[0] < whole[1] - whole[0]
    shown.page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    details.get_by_role("button", name="copy the command").first.click()
    assert shown.page.evaluate("window.copied").endswith(f"""--filter 'name = '\\''{wanted}'\\'''""")
    details.get_by_role("button", name="row in kernel-share").click()
    assert wanted in shown.page.evaluate("document.activeElement.innerText")
    assert serious(shown.page) == []
    shown.close()


@needs_browser
def test_timeline_of_hostile_names_is_text(browser: Any, pages: Pages) -> None:
    shown = Opened(browser, pages("hostile"), width=375, scheme="dark")
    at = shown.page.locator(".timeline")
    at.locator("input[type=search]").fill("alert(1)")
    at.locator("input[type=search]").press("Enter")
    at.locator(".event dd").first.wait_for()
    said = at.locator(".event").inner_text()
    assert "<script>alert(1)</script>" in said and "\x1b" not in said and "\u202e" not in said
    assert at.locator("img, .event script").count() == 0
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 375
    shown.close()


@needs_browser
def test_timeline_of_the_server_loads_what_is_in_view(browser: Any, served: Server) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    shown.on("console", lambda m: said.append(m.text))
    shown.on("pageerror", lambda e: said.append(str(e)))
    shown.on("request", lambda r: asked.append(r.url))
    shown.goto(served.address)
    shown.locator("#timeline .wait").scroll_into_view_if_needed()
    shown.wait_for_selector(".timeline[data-drawn]", timeout=60_000)
    shown.locator(".lanes").focus()
    for _ in range(12):
        shown.keyboard.press("w")
    shown.wait_for_function("() => performance.getEntriesByType('resource').some(r => r.name.includes('from_ns='))")
    shown.locator(".timeline .state").get_by_text(re.compile("^$")).wait_for(state="attached")
    shown.keyboard.press(".")
    link = shown.locator(".event a").first
    link.wait_for()
    assert (link.get_attribute("href") or "").startswith("/query/kernel-share?" + urlencode({"is.name": "gemm"}))
    assert serious(shown) == [] and said == [] and all(url.startswith(served.address) for url in asked)
    context.close()
