"""The first screen of each kind of page at 1280 x 900: figures, findings and timeline without scrolling.

`TRACEQUARRY_ALL_SAMPLES=1` opens the report and the page of `serve` of each sample, and unfolds all in them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, SAMPLES
from test_report import UNFOLD, Opened, Pages, browser, needs_browser, pages, serious
from test_serve import Opened as Served
from test_serve import serving

import analyze
from analyze.errors import InputError

assert browser and pages  # fixtures

HEIGHT = 900
TIMED = (".strip", ".findings", "#timeline canvas")
FIRST = {
    "resnet18-1gpu": TIMED,
    "generate": TIMED,
    "matmuls": (".strip", ".findings", "#flops h3"),
    "hang-missing": (".strip", "article[data-query=hang] table"),
    "hang-size": (".strip", "article[data-query=hang] table"),
}
"""What the first screen has, from top to bottom: of training, of inference, of counters, of a hang."""
ALL = {p.name for p in SAMPLES.iterdir() if p.is_dir()} if os.environ.get("TRACEQUARRY_ALL_SAMPLES") else set()
STUDIES = sorted((ROOT / "docs" / "studies").glob("*/report.html"))
LEAST = 150
"""Pixels of the last of them that are seen."""


def parts_of(sample: str) -> tuple[str, ...]:
    """What the first screen of a sample has: findings if there is advice, the timeline if a trace has times."""
    if sample in FIRST:
        return FIRST[sample]
    path = SAMPLES / sample
    try:
        findings = (".findings",) if analyze.open(path).advise().dicts() else ()
    except InputError:  # neither GPU work nor operators nor counters
        findings = ()
    traces = [f for pattern in ("*/*.trace.json.gz", "*/*.sqlite") for f in path.glob(pattern)]
    return (".strip", *findings, "#timeline canvas" if traces else "article h3")


def check_first_screen(page: Any, parts: tuple[str, ...]) -> None:
    """All parts but the last end on the first screen, in this order; the last one begins there."""
    boxes = [page.locator(part).first.bounding_box() for part in parts]
    ends = [box["y"] + box["height"] for box in boxes]
    assert ends == sorted(ends) and ends[-2] <= HEIGHT, dict(zip(parts, ends, strict=True))
    assert boxes[-1]["y"] + min(boxes[-1]["height"], LEAST) <= HEIGHT, (parts[-1], boxes[-1])


@needs_browser
@pytest.mark.parametrize("sample", sorted(ALL | set(FIRST)))
def test_first_screen_of_a_report(browser: Any, pages: Pages, sample: str) -> None:
    opened = Opened(browser, pages(sample), width=1280)
    opened.page.evaluate("scrollTo(0, 0)")
    check_first_screen(opened.page, parts_of(sample))
    if ALL:
        opened.page.evaluate(UNFOLD)
    assert serious(opened.page) == []
    opened.close()


@needs_browser
@pytest.mark.parametrize("study", STUDIES, ids=lambda p: p.parent.name)
def test_first_screen_of_a_study(browser: Any, study: Path) -> None:
    opened = Opened(browser, study, width=1280)
    opened.page.evaluate("scrollTo(0, 0)")
    check_first_screen(opened.page, (".strip", ".verdicts"))
    # A figure leads to its part of the page.
    target = opened.page.locator(".strip a").first.get_attribute("href")
    assert opened.page.locator(target).count() == 1
    if ALL:
        opened.page.evaluate(UNFOLD)
        assert serious(opened.page) == []
    opened.close()


@needs_browser
@pytest.mark.parametrize("sample", sorted(ALL | {"resnet18-1gpu", "matmuls"}))
def test_first_screen_of_serve(browser: Any, sample: str) -> None:
    parts = parts_of(sample)
    with serving(SAMPLES / sample) as server:
        opened = Served(browser, server, "", width=1280)
        # Once all sections have loaded, those with rows come first.
        for part in parts:
            opened.page.locator(part).first.wait_for()
        begins_there = "([part, most]) => document.querySelector(part).getBoundingClientRect().top <= most"
        opened.page.wait_for_function(begins_there, arg=[parts[-1], HEIGHT - LEAST])
        check_first_screen(opened.page, parts)
        if ALL:
            opened.whole()
            opened.page.evaluate(UNFOLD)
        opened.close(f"first-screen-{sample}")


@needs_browser
def test_findings_of_counters_lead_to_their_kernels(browser: Any, pages: Pages) -> None:
    """A finding without a time has no moment in a timeline: its link leads to the roofline of the page."""
    opened = Opened(browser, pages("matmuls"), width=1280)
    finding = opened.page.locator(".findings > li").first
    finding.locator("summary").first.click()
    finding.get_by_role("link", name="roofline").click()
    box = opened.page.locator("article[data-query=roofline]").bounding_box()
    assert 0 <= box["y"] < HEIGHT
    # The launch whose kernel could gain most (test_advice_of_workloads.py).
    assert finding.locator(".place").text_content().startswith("rank 0, GPU 0, launch ")
    opened.close()
