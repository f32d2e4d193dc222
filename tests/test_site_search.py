"""The documentation site builds, and its search finds what a stranger asks, at first try: in the browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from chromium import CHROMIUM, QUIET
from support import ROOT

QUESTIONS = {
    "why is my training step slow": "why-slow",
    "is it slower than yesterday": "slower",
    "CUDA out of memory": "out-of-memory",
    "NCCL timeout hangs": "hangs",
    "which layer takes the time": "which-layer",
    "straggler rank several nodes": "several-nodes",
    "read a JAX trace": "profilers",
    "alternative to tensorboard profiler": "coming-from",
    "fail pull request if slower github": "ci",
    "memory leak snapshot": "memory",
}
"""What a stranger types, and the page that answers it."""
FIRST = 3
"""Results that a visitor sees without scrolling."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, without the reports of its gallery. A broken link fails the build."""
    pytest.importorskip("mkdocs", reason="needs mkdocs (the dev extra has it)")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site)]
    variables = {**os.environ, "GALLERY": "false"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert built.returncode == 0, built.stderr
    return site


@pytest.fixture(scope="module")
def search(site: Path) -> Iterator[Callable[[str], list[str]]]:
    """A function that types a text into the search of the site, and returns the pages that it finds."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (the dev extra has it)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)

        def pages_found(text: str) -> list[str]:
            page.goto(f"{address}?q={text.replace(' ', '+')}")
            page.wait_for_selector("li.md-search-result__item", timeout=30_000)
            links = page.eval_on_selector_all(
                "li.md-search-result__item > a, li.md-search-result__item > article > a, li.md-search-result__item a",
                "links => links.map(link => new URL(link.href).pathname)",
            )
            return list(dict.fromkeys(str(Path(link)).strip("/") for link in links))

        yield pages_found
        browser.close()
    server.shutdown()
    server.server_close()


def test_every_expected_page_exists(site: Path) -> None:
    assert [page for page in QUESTIONS.values() if not (site / page / "index.html").is_file()] == []


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items())
def test_search_finds_the_page_for_a_question(search: Callable[[str], list[str]], question: str, page: str) -> None:
    found = search(question)
    assert page in found[:FIRST], found[:10]
