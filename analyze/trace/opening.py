"""Open a trace in the Perfetto UI: serve it once on loopback.

The page https://ui.perfetto.dev runs in the browser and fetches the trace from this machine. Its Content Security
Policy allows http://127.0.0.1:9001 and no other port; Perfetto's own `open_trace_in_ui` uses it, too.
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from urllib.parse import quote

from analyze.errors import InputError

UI = "https://ui.perfetto.dev"
HOST, PORT = "127.0.0.1", 9001


class TraceView(NamedTuple):
    """The part of the trace that the UI shows first; ns from time 0 of the trace."""

    start_ns: int
    end_ns: int


def open_in_ui(trace: Path, show: Callable[[str], object], view: TraceView | None = None) -> None:
    """Serve a trace on loopback until the UI has fetched it. `show` gets the address to open in a browser.

    The address contains a secret, and only pages of the UI may read the answer. Raises InputError if the port is taken.
    """
    server = _serve(trace, f"/{secrets.token_urlsafe(16)}/{quote(trace.name)}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        show(server.address(view))
        # Short waits: on some systems Ctrl-C does not end a wait without timeout.
        while not server.fetched.wait(0.2):
            pass
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    # Browsers open connections that they do not use. Do not wait for the threads of those.
    daemon_threads = True
    block_on_close = False

    def __init__(self, trace: Path, path: str):
        self.trace = trace
        self.path = path
        self.fetched = Event()
        super().__init__((HOST, PORT), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections; the browser may try again."""

    def address(self, view: TraceView | None) -> str:
        window = f"&visStart={view.start_ns}&visEnd={view.end_ns}" if view else ""
        return f"{UI}/#!/?url=http://{HOST}:{PORT}{self.path}{window}"


def _serve(trace: Path, path: str) -> _Server:
    try:
        return _Server(trace, path)
    except OSError as e:
        raise InputError(
            f"cannot listen on {HOST}:{PORT}, the only address that the Perfetto UI fetches from: {e.strerror or e};"
            " write the trace with -o and open the file in the UI"
        ) from e


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        # Against DNS rebinding: another name may resolve to this machine.
        if self.path != self.server.path or self.headers.get("Host") != f"{HOST}:{PORT}":
            self._answer(404)
            return
        with self.server.trace.open("rb") as file:
            self._answer(200, self.server.trace.stat().st_size)
            shutil.copyfileobj(file, self.wfile)
        self.server.fetched.set()

    def do_POST(self) -> None:
        # The UI asks whether a trace processor listens here.
        self._answer(404)

    def do_OPTIONS(self) -> None:
        self._answer(204)

    def _answer(self, status: int, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", UI)
        # Chrome asks for permission before a public page may fetch from this machine.
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def browse(url: str, only_print: bool) -> None:
    """Open a page that fetches a file from this process, or print its address if there is no browser."""
    import webbrowser

    if only_print or not webbrowser.open(url):
        print(url, flush=True)
    print("waiting for the page to fetch it (allow it to, if the browser asks); Ctrl-C ends", file=sys.stderr)
