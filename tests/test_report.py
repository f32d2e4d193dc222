"""The report: its contents, and how a browser shows it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import portalocker
import pytest
from chromium import CHROMIUM, QUIET
from commands import run_cli
from support import SAMPLES
from test_communication import collective
from test_parallel import gpipe
from traces import event, kernel, launch, op, write_ranks, write_trace

import analyze
from analyze.errors import InputError
from analyze.plots import declared
from analyze.plots.figure import Rows
from analyze.plots.theme import LIGHT
from analyze.query.query_declaration import ResultColumn
from analyze.query.query_files import catalog, find
from analyze.report.html_table import table
from analyze.report.parts import page_toml

RUNTIME = 1_000_000
"""Bytes of the library in a page, at most; the rest is ours."""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>';-- \x1b[31m\u202egnp.exe =cmd"


def page(output: Path, *paths: Path, where: str | None = None, **options: Any) -> str:
    analyze.open(*paths, where=where).report(output, **options)
    return output.read_text()


def words(text: str) -> str:
    """The text of a page without its scripts and tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S)))


class Pages:
    """Pages, each written once for all processes of the tests."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, name: str) -> Path:
        """A page of BROWSED, or of a sample."""
        target = self.folder / f"{name}.html"
        with (self.folder / f"{name}.lock").open("w") as lock:
            portalocker.lock(lock, portalocker.LockFlags.EXCLUSIVE)
            if not target.exists():
                self._write(name, target)
        return target

    def _write(self, name: str, target: Path) -> None:
        page(target, *([SAMPLES / n for n in BROWSED.get(name, [name])] or [hostile_run(self.folder)]))


def test_report_page_uses_existing_queries() -> None:
    declaration = page_toml()
    queries = catalog()
    parts = [p for s in declaration["section"] for p in s["part"]]
    assert {s["when"] for s in declaration["section"]} == {"one", "several", "any"}
    evidence = {"counters", "hang", "memory-fragmentation", "memory-oom", "nccl-log", "recompiles"}
    assert evidence <= {p["query"] for p in parts}
    for p in parts:
        query = queries[p["query"]]
        _, _, choices = query.bind(dict(p.get("params", {})))
        columns = {c.name for c in query.result_columns(choices)}
        assert {*p.get("columns", ()), *p.get("keep", ())} <= columns, p["query"]
        figure = p.get("figure", query.plot)
        if figure not in ("", "none"):
            by = ("run_id",) if "BY" in figure else ()
            declared.of_query(query, p.get("params", {}), figure.replace("BY", "run_id"), by)
    for name, place in declaration["place"].items():
        query = queries[place["query"]]
        columns = {c.name for c in query.columns}
        assert set(re.findall(r"\{(\w+)\}", place["text"])) <= columns, name


def test_locations_belong_to_findings() -> None:
    from analyze.finding_files import findings

    assert set(page_toml()["place"]) <= {f.name for f in findings()}


def test_report_of_one_run(pages: Pages) -> None:
    text = words(pages("late-rank").read_text())
    # sample_traces/README.md: rank 3 is late; advise has 49.673 ms, 71.5 %.
    assert "Ranks wait for the slowest rank in collectives" in text and "up to 49.7 ms (71.5 %)" in text
    assert "rank 3 is last in 3 of 3; others wait 66.289 ms for it" in text
    # Of the data-quality checks, only those that are not ok are listed.
    assert "Data quality : 3 notes: profiler overhead per step" in text and "ranks 4 of 4" not in text
    assert not re.search(r"(?<!\d)1\. ", text)
    for title in ("Steps", "GPUs", "Communication", "Kernels", "Operators and modules", "Launches and queues"):
        assert f" {title} " in text
    assert "Not recorded; needs FLOP and memory counters: collect run --profiler ncu" in text
    assert "Not recorded; needs allocator events: torch.profiler with profile_memory=True" in text


@pytest.mark.parametrize(
    ("sample", "asked"),
    [
        ("cuda-graph", {"graph-replays", "kernel-pace"}),
        ("generate", {"serving", "throughput", "token-latency", "mfu", "kernel-pace", "op-roofline"}),
        ("lm-compiled", {"compiled", "mfu", "kernel-pace", "op-roofline"}),
        ("resnet18-checkpoint", {"recompute", "kernel-pace"}),
        ("late-rank", {"comm-exposed", "collectives", "kernel-pace"}),
    ],
)
def test_sections_match_the_recording(pages: Pages, sample: str, asked: set[str]) -> None:
    """What the program does (sample_traces/README.md) is shown, what it does not is not, and how to record that is."""
    with_hint = {"graph-replays", "serving", "compiled", "pipeline-bubbles", "moe-balance"}
    special = with_hint | {"throughput", "token-latency", "recompute", "comm-exposed"}
    text = pages(sample).read_text()
    shown = {m for m in re.findall(r"<code>analyze query ([a-z-]+)", text)}
    assert asked <= shown and shown & special == asked & special
    lacking = words(text[text.index('id="lacking"') :])
    for query in with_hint:
        assert (find(query).question in lacking) == (query not in asked), query


def test_sections_of_a_pipeline_and_of_experts(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path / "experts", *[[collective("all_to_all", 0, 5, 40), kernel("gemm", 9, 5)]] * 2)
    for path, query, other in (
        (gpipe(tmp_path / "stages"), "pipeline-bubbles", "moe-balance"),
        (ranks, "moe-balance", "pipeline-bubbles"),
    ):
        text = page(tmp_path / f"{query}.html", path)
        assert f"analyze query {query} " in text and f"analyze query {other} " not in text
        assert find(other).question in words(text[text.index('id="lacking"') :])


def test_recording_of_the_cpu_alone_does_not_ask_for_what_it_has(tmp_path: Path) -> None:
    """Operators and allocator events of the CPU are shown, and nothing about GPUs but that there is no work."""
    args = {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 64, "Total Allocated": 4096}
    memory = [event("cpu_instant_event", "[memory]", ts, 0, **args) | {"ph": "i"} for ts in (12, 40)]
    trace = write_trace(tmp_path / "t.json", [op("aten::mm", 10, 90, 1), op("aten::add", 110, 30, 2), *memory])
    text = page(tmp_path / "a.html", trace)
    lacking = words(text[text.index('id="lacking"') :])
    assert "GPU work: torch.profiler with ProfilerActivity.CUDA" in lacking
    assert "allocator events" not in lacking and "ProfilerActivity.CPU" not in lacking
    assert "analyze query memory-timeline" in text and "GPU time" not in words(text[: text.index('id="lacking"')])
    # 90 us of 120 us; the recording ends 130 us after its start.
    assert "recording 130 µs no training steps" in words(text) and "90 µs" in text


def test_commands_of_the_report_run(pages: Pages) -> None:
    """Each as it stands there, pasted; the queries' answers have rows."""
    text, traces = pages("two-ranks").read_text(), analyze.open(SAMPLES / "resnet18-ddp2")
    from html import unescape

    commands = {unescape(c) for c in re.findall(r'<div class="command"><code>(.*?)</code>', text)}
    commands = {c for c in commands if c.startswith("analyze query")}
    assert len(commands) > 20
    for command in sorted(commands):
        _, _, name, path, *options = shlex.split(command)
        assert Path(path) == SAMPLES / "resnet18-ddp2"
        params = dict(o.split("=", 1) for o in options[1::2]) if "-p" in options else {}
        assert traces.query(name, params=params).arrow().num_rows, command


def test_report_of_several_runs(pages: Pages) -> None:
    text = words(pages("sweep").read_text())
    assert "6 runs: " in text and "Kernel time of each run, by family" in text and "One run in detail" in text
    # alexnet-dp2 was recorded twice: once under Nsight Systems.
    assert "recorded with torch and nsys; using torch only" in text
    assert "Steps" not in text.split("Which runs are there?")[0]


def test_report_of_a_comparison(tmp_path: Path) -> None:
    a, b = SAMPLES / "resnet18-1gpu", SAMPLES / "resnet18-ddp2"
    result = run_cli("report", a, "--compare", b, "-o", tmp_path / "a.html")
    assert result.returncode == 0, result.stderr
    text = words((tmp_path / "a.html").read_text())
    assert "differs: gpus: A 1, B 2" in text and "batch size A: 32; B: 16" in text
    # The steps of `summary`: 27.171 / 14.886 ms. One run a side cannot tell.
    assert "step time 14.9 ms 27.2 ms +82.5 % cannot tell" in text
    [(change,)] = [
        (r["change_ns"],)
        for r in analyze.compare(a, b, level="family").answer.dicts()
        if r["name"] == "communication"
    ]  # fmt: skip
    specs = re.findall(r'class="spec">(.*?)</script>', (tmp_path / "a.html").read_text())
    values = [v for d in json.loads(specs[0])["data"] for v in d.get("values", ())]
    drawn = {v["name"]: v["value"] for v in values}
    assert drawn["communication"] == pytest.approx(change / 1e6, rel=1e-5) and len(specs) == 6


def test_report_with_where_and_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run matched --where, --profiler or --block"):
        page(tmp_path / "a.html", SAMPLES / "late-rank", where="model = 'none'")
    for arguments, sentence in (
        ([SAMPLES / "late-rank", "-o", tmp_path / "a.pdf"], "the name of a report must end in .html"),
        ([SAMPLES / "late-rank", "-o", tmp_path / "no" / "a.html"], "cannot be written"),
        (
            [SAMPLES / "late-rank", "-o", tmp_path / "a.html", "--by", "bogus"],
            "--by bogus: runs has no such column; it has batch_size,",
        ),
        (
            [SAMPLES / "late-rank", "--compare", SAMPLES / "late-rank", "-o", tmp_path / "a.html", "--by", "bogus"],
            "--by bogus: runs has no such column",
        ),
    ):
        result = run_cli("report", *arguments)
        assert result.returncode == 2 and sentence in result.stderr and "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_tables_have_one_unit_and_exact_values() -> None:
    columns = {"run_id": "id", "name": "text", "total_ns": "ns", "reason": "text", "calls": "count"}
    rows = Rows(
        tuple(ResultColumn(n, u, "") for n, u in columns.items()),
        [("r", "a", 2_500_000, None, 1204), ("r", "b", 10, "", None)],
    )
    shown = table(rows)
    # The one run, and what nothing is in, are left out.
    assert [h.title for h in shown.heads] == ["name", "total time (ms)", "calls"]
    assert [[c.text for c in r] for r in shown.rows] == [["a", "2.500", "1,204"], ["b", "0.000", ""]]
    assert [[c.value for c in r] for r in shown.rows] == [["", "2500000", "1204"], ["", "10", ""]]
    assert table(rows, most=1).left_out == 1


def hostile_run(folder: Path) -> Path:
    """Every name a page shows, as bad as names can be; one of them 100 KB long."""
    events = []
    for i, name in enumerate((HOSTILE, HOSTILE + "y" * 100_000, "kernel<</script>>(int)")):
        at = 100.0 * i
        op = event("cpu_op", name, at, 50, **{"External id": i + 1})
        events += [op, launch(at + 1, i + 1, 2, **{"External id": i + 1})]
        events.append(kernel(name, at + 10, 20, correlation=i + 1, **{"External id": i + 1}))
    events.append(event("user_annotation", "ProfilerStep#1", 0, 400))
    return write_trace(folder / "hostile" / (HOSTILE.replace("/", "_")[:60] + ".json"), events)


def test_a_page_of_many_runs_is_small(tmp_path: Path) -> None:
    for i in range(60):
        events = [kernel(f"gemm_{k}_{i}", 100 * k, 50 + i) for k in range(40)]
        write_trace(
            tmp_path / f"run-{i:03}" / "trace.json", [*events, event("user_annotation", "ProfilerStep#1", 0, 400)]
        )
    text = page(tmp_path / "a.html", *sorted(tmp_path.glob("run-*")))
    assert "60 runs" in words(text) and len(text.encode()) < 1_200_000


# --- in a browser -------------------------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium-headless-shell")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


class Opened:
    """A page in the browser, and what it did that it must not."""

    def __init__(self, browser: Any, file: Path, width: int = 1200, scheme: str = "light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("dialog", lambda d: (self.said.append(d.message), d.dismiss()))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.route(re.compile("^(?!file:)"), lambda route: route.abort())
        self.page.goto(file.as_uri())
        # As for printing: all of them, not only those in view.
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.wait_for_function(
            "[...document.querySelectorAll('.plot')].every(p => p.dataset.drawn)", timeout=60_000
        )

    def close(self) -> None:
        """Nothing was said on the console, and nothing asked for but the page itself."""
        assert self.said == [] and len(self.asked) == 1 and self.asked[0].startswith("file:"), (self.said, self.asked)
        self.context.close()


BROWSED = {
    "one": ["resnet18-1gpu"],
    "two-ranks": ["resnet18-ddp2"],
    "counters": ["alexnet-ncu"],
    "sweep": ["resnet18-1gpu", "resnet18-ddp2", "vgg16-fp32", "alexnet-dp2", "late-rank", "alexnet-ncu"],
    "hostile": [],
}


@pytest.fixture(scope="session")
def pages(own_cache: Path) -> Pages:
    """The pages of BROWSED, and of single samples by their names."""
    return Pages(own_cache.parent / "reports")


@pytest.fixture(params=BROWSED)
def written(request: pytest.FixtureRequest, pages: Pages) -> Path:
    return pages(request.param)


@needs_browser
def test_printed_report_is_light_with_whole_tables(browser: Any, pages: Pages) -> None:
    """A page that is read in dark colours, on the width of A4 paper between margins."""
    opened = Opened(browser, pages("two-ranks"), width=718, scheme="dark")
    colours = "[document.body, document.querySelector('.plot svg text')].map(e => getComputedStyle(e)).map("
    ink = f"{colours}(s, i) => i ? s.fill : s.color)"
    dark = opened.page.evaluate(ink)
    opened.page.emulate_media(media="print", color_scheme="dark")
    opened.page.wait_for_function(f"() => {ink}[1] !== {json.dumps(dark[1])}")
    body, figure = opened.page.evaluate(ink)
    light = [tuple(int(LIGHT[name][i : i + 2], 16) for i in (1, 3, 5)) for name in ("ink", "soft")]
    assert [body, figure] == [f"rgb{colour}" for colour in light]
    assert opened.page.evaluate("[...document.querySelectorAll('details:not([open])')].every(d => !d.offsetHeight)")
    # What to try is printed, and closed again on the screen.
    assert opened.page.locator(".findings p", has_text="Try").first.is_visible()
    wide = "[...document.querySelectorAll('.scroll')].filter(s => s.offsetHeight && s.scrollWidth > s.clientWidth)"
    assert opened.page.evaluate(f"{wide}.map(s => s.innerText.slice(0, 80))") == []
    opened.close()


@needs_browser
@pytest.mark.parametrize("name", ["one", "two-ranks", "late-rank"])
def test_figures_and_findings_are_on_the_first_screen(browser: Any, pages: Pages, name: str) -> None:
    opened = Opened(browser, pages(name), width=1280)
    ends = opened.page.evaluate(
        "['.strip', '.quality', '.findings'].map(s => document.querySelector(s).getBoundingClientRect().bottom)"
    )
    # In this order, and a third of the 900 px is left for what each GPU did.
    assert ends == sorted(ends) and ends[-1] < 600
    assert opened.page.locator("#advice > .findings > li").count() <= 3
    # A finding opens to its numbers, what to try and its command.
    first = opened.page.locator(".findings > li").first
    assert not first.locator(".command").is_visible()
    first.locator("summary").first.click()
    assert first.locator(".command").first.is_visible()
    opened.close()


@needs_browser
def test_figures_are_drawn_without_network(browser: Any, written: Path) -> None:
    opened = Opened(browser, written)
    marks = opened.page.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll("
        "'.mark-rect path, .mark-line path, .mark-symbol path, .mark-arc path').length)"
    )
    assert len(marks) >= 3 and min(marks) >= 1, marks
    # A figure has a text for who cannot see it, and lies within its place.
    assert opened.page.evaluate("[...document.querySelectorAll('.plot')].every(p => p.ariaLabel.length > 20)")
    assert opened.page.evaluate(
        "[...document.querySelectorAll('.plot')].every(p => p.querySelector('svg').clientWidth <= p.clientWidth + 1)"
    )
    if screenshots := os.environ.get("TRACEQUARRY_SCREENSHOTS"):
        opened.page.screenshot(path=f"{screenshots}/{written.stem}.png", full_page=True)
    opened.page.evaluate(UNFOLD)
    assert serious(opened.page) == []
    opened.close()


@needs_browser
@pytest.mark.parametrize("name", ["counters", "sweep", "hostile"])
def test_report_in_dark_mode_on_a_phone(browser: Any, pages: Pages, name: str) -> None:
    opened = Opened(browser, pages(name), width=375, scheme="dark")
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 375, "nothing is wider than the screen"
    sizes = opened.page.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => [p.clientWidth, p.querySelector('svg').clientWidth])"
    )
    assert all(svg <= place + 1 for place, svg in sizes), sizes
    if name == "sweep":  # one line is too narrow for the names of its bars
        lines = opened.page.locator(".plot svg .role-axis-label text tspan").all_text_contents()
        assert {"alexnet, batch 16", "2 GPUs, dp, fp32"} <= set(lines)
    opened.page.evaluate(UNFOLD)
    assert serious(opened.page) == []
    opened.close()


UNFOLD = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
ONE_OF_A_KIND = """() => {
    const apart = ['href', 'title', 'aria-label', 'd', 'transform', 'clip-path'];
    const differs = name => apart.includes(name) || name.startsWith('data-');
    const ofMarks = ['fill', 'stroke', 'stroke-width', 'opacity'];
    const seen = e => [...e.attributes].filter(a => !(e.matches('path, rect, line') && ofMarks.includes(a.name)));
    const attributes = e => seen(e).map(a => [a.name, differs(a.name) ? a.value !== '' : a.value]);
    const form = e => [e.tagName, attributes(e), e.textContent.trim() !== ''];
    const kind = e => JSON.stringify([e, ...e.querySelectorAll('*')].map(form));
    const leaveOne = (alike) => {
        const kinds = new Set();
        for (const elements of alike) {
            const found = elements.map(kind).join();
            if (kinds.has(found)) { elements.forEach(e => e.remove()); }
            kinds.add(found);
        }
    };
    document.querySelectorAll('tbody').forEach(body => leaveOne([...body.rows].map(row => [row])));
    document.querySelectorAll('table').forEach(table => {
        const rows = [...table.rows].map(row => [...row.cells]);
        if (rows.every(cells => cells.length === rows[0].length)) {
            leaveOne(rows[0].map((_, column) => rows.map(cells => cells[column])));
        }
    });
    [...document.querySelectorAll('svg g')].reverse().forEach(g => leaveOne([...g.children].map(e => [e])));
}"""
"""Rows and columns are of a kind if one line of a template wrote them: the same elements with the same attributes, but
for where links go and what is for scripts, all with a text or all without one. So are parts of a figure (bars, points,
ticks, labels of an axis, entries of a legend) that differ in nothing but their place, their form, the colours of marks
without text, and what they are called."""


def serious(page: Any) -> list[Any]:
    """What axe finds that keeps people from using the page.

    Of the rows and columns of a table, and of the parts of a figure, that are of a kind it sees one: with all, it takes
    about six times as long.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.evaluate(ONE_OF_A_KIND)
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [v for v in found if v["impact"] in ("serious", "critical")]
    return [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in bad]


@needs_browser
def test_tables_sort_filter_and_copy(browser: Any, pages: Pages) -> None:
    opened = Opened(browser, pages("one"))
    shown = opened.page
    article = shown.locator("article", has=shown.locator("h3", has_text=find("kernel-share").question)).first
    article.locator("details.table summary").click()
    first = "td:first-child"

    def column(name: str) -> list[str]:
        at = shown_heads.index(name) + 1
        return [t for t in article.locator(f"tbody tr:not([hidden]) td:nth-child({at})").all_text_contents()]

    shown_heads = [h.get_attribute("data-name") for h in article.locator("th").all()]
    expected = analyze.open(SAMPLES / "resnet18-1gpu").query("kernel-share").dicts()
    article.locator("th[data-name=calls] button").click()
    calls = [int(t.replace(",", "")) for t in column("calls")]
    assert calls == sorted((r["calls"] for r in expected), reverse=True)
    assert article.locator("th[data-name=calls]").get_attribute("aria-sort") == "descending"
    # By the keyboard, too: ascending now.
    article.locator("th[data-name=calls] button").press("Enter")
    assert [int(t.replace(",", "")) for t in column("calls")] == calls[::-1]
    article.locator("input[type=search]").fill("nchw")
    names = article.locator(f"tbody tr:not([hidden]) {first}").all_text_contents()
    assert names and all("nchw" in n.lower() for n in names) and len(names) < len(expected)
    shown.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    article.locator("button.csv").click()
    lines = shown.evaluate("window.copied").splitlines()
    assert lines[0] == ",".join(str(h) for h in shown_heads) and len(lines) == 1 + len(names)
    by_name = {r["name"]: r for r in expected}
    copied = next(line for line in lines[1:] if line.split(",")[0] in by_name)
    assert int(copied.split(",")[shown_heads.index("total_ns")]) == by_name[copied.split(",")[0]]["total_ns"]
    opened.close()


@needs_browser
def test_a_tree_is_enlarged_by_a_click_and_themes_change(browser: Any, pages: Pages) -> None:
    opened = Opened(browser, pages("one"))
    shown = opened.page
    article = shown.locator("article", has=shown.locator("h3", has_text="GPU time down the call tree"))
    node = article.locator(".mark-rect path").nth(1)
    node.scroll_into_view_if_needed()
    before = node.bounding_box()
    shown.mouse.click(before["x"] + before["width"] / 2, before["y"] + before["height"] / 2)
    whole = article.locator("button.whole")
    whole.wait_for(state="visible")
    shown.wait_for_timeout(200)
    assert node.bounding_box()["width"] > before["width"] * 1.5
    whole.click()
    shown.wait_for_timeout(200)
    assert node.bounding_box()["width"] == pytest.approx(before["width"], abs=1)
    ink = "getComputedStyle(document.querySelector('.plot .role-axis-label text')).fill"
    light = shown.evaluate(ink)
    for _ in range(2):  # system, light, dark
        shown.locator("#theme").click()
    shown.wait_for_timeout(300)
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert shown.evaluate(ink) != light
    opened.close()


@needs_browser
def test_html_in_names_is_escaped_in_the_report(browser: Any, pages: Pages) -> None:
    text = pages("hostile").read_text()
    assert "\x1b" not in text and "\u202e" not in text and "y" * 5000 not in text
    opened = Opened(browser, pages("hostile"))
    shown = opened.page
    assert shown.locator("main img, main script:not(.spec):not(.given)").count() == 0
    assert "<script>alert(1)</script>" in shown.evaluate("document.querySelector('main').textContent")
    # The tip that follows the pointer is text as well.
    bar = shown.locator("article", has=shown.locator("h3", has_text=find("kernel-share").question)).first
    bar.locator(".mark-rect path").first.hover()
    shown.wait_for_timeout(200)
    assert "<script>alert(1)" in shown.locator("#tip").text_content() and shown.locator("#tip *:not(div)").count() == 0
    # What is copied: a spreadsheet takes a leading = for a formula.
    assert shown.evaluate("document.querySelectorAll('td').length") > 3
    opened.close()


# --- the queries that it brought ----------------------------------------------------------------------------------


def test_facts_of_a_recording(tmp_path: Path) -> None:
    """One rank of two; 10 us of overhead in a span of 100; one of two pieces of GPU work without its launch."""
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 120), event("overhead", "Buffer Flush", 0, 10),
        event("cpu_op", "aten::mm", 0, 20, **{"External id": 1, "Input Dims": [[2, 2]]}),
        launch(5, 1), kernel("gemm", 10, 20, correlation=1), kernel("strange", 90, 20, correlation=2),
    ]  # fmt: skip
    path = write_trace(tmp_path / "t.json", events, distributedInfo={"rank": 0, "world_size": 2})
    facts = {r["fact"]: (r["verdict"], r["value"]) for r in analyze.open(path).query("health").dicts()}
    assert facts == {
        "reading": ("ok", "without losses"),
        "ranks": ("warning", "1 of 2"),
        "training steps": ("ok", "1"),
        "profiler overhead per step": (
            "note",
            "not timed; estimate: likely large (the queue is empty at 100 % of the launches, 10.0 operators per ms)",
        ),
        "time in the profiler": ("note", "10.0 % of the span: Buffer Flush 0.010 ms on aten::mm"),
        "Python stacks": ("ok", "not recorded"),
        "GPU work without a launch call": ("note", "1 of 2 kernels, copies and fills"),
        "launches without a kernel": ("ok", "0 of 1 launches"),
        "ranges without an end": ("ok", "0"),
        "operators": ("ok", "1, with shapes"),
        "kernels of unknown family": ("note", "50.0 % of kernel time"),
    }


def test_phases_on_the_clock_of_the_memory(tmp_path: Path) -> None:
    """Both are since the first event, at 10 us: forward begins there, the allocator events 10 and 20 us later."""

    def allocated(ts: float, device_type: int) -> dict[str, Any]:
        args = {"Device Type": device_type, "Device Id": 0, "Addr": 1, "Bytes": 8, "Total Allocated": 8}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}

    events = [event("user_annotation", "forward", 10, 40), allocated(20, 0), allocated(30, 1)]
    traces = analyze.open(write_trace(tmp_path / "t.json", events))
    rows = traces.query("phase-ranges").dicts()
    assert [(r["phase"], r["start_ns"], r["dur_ns"]) for r in rows] == [("forward", 0, 40_000)]
    rows = traces.query("memory-timeline", params={"buckets": 0}).dicts()
    assert [(r["device_type"], r["start_ns"]) for r in rows] == [("cuda", 20_000), ("cpu", 10_000)]


def test_integers_have_no_decimal_point() -> None:
    # 38,595,840 bytes, which the file wrote as a fraction; 0.5 needs its digits, and so does what stands beside it.
    columns = [ResultColumn("whole", "number", ""), ResultColumn("part", "number", "")]
    shown = table(Rows(columns, [(38_595_840.0, 0.5), (None, 2.0)]))
    assert [[c.text for c in row] for row in shown.rows] == [["38,595,840", "0.5"], ["", "2"]]
