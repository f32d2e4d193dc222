"""Start and stop the server."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from analyze.browser import open_page
from analyze.errors import InputError
from analyze.query.selection import Selection
from analyze.store.store import Store
from schemas.extras import missing

PORT = 8321
"""Default port; if it is taken, a free one is used."""


def serve(
    stores: Sequence[Store],
    paths: Sequence[str],
    show: Callable[[str], object],
    *,
    folders: Sequence[Path] = (),
    host: str = "127.0.0.1",
    port: int | None = None,
    token: bool = False,
    time_limit: float = 60.0,
    selection: Selection,
) -> None:
    """Serve the pages until Ctrl-C. `show` gets the address to open.

    `token`: require a token, as addresses other than loopback always do. `port`: 0 for a free one. Raises InputError if
    it cannot listen there, or if recordings cannot be opened.
    """
    check()
    import uvicorn

    from analyze.serve.app import App
    from analyze.serve.connections import limited
    from analyze.serve.guard import LOOPBACK, Guard
    from analyze.serve.site import Site

    if not time_limit > 0:
        raise InputError(f"--time-limit {time_limit}: must be more than 0 s")
    site = Site(stores, paths, folders, selection)
    if not site.runs:
        raise InputError("serve: no run matched --where, --profiler or --block")
    listening = _listen(host, port)
    with listening:
        own = listening.getsockname()[1]
        loopback = host in LOOPBACK
        secret = secrets.token_urlsafe(32) if token or not loopback else None
        name = host if loopback or host not in ("", "0.0.0.0", "::") else socket.gethostname()
        hosts = LOOPBACK if loopback else (*LOOPBACK, host, socket.gethostname(), socket.getfqdn())
        app = Guard(App(site, time_limit).starlette(), hosts, not loopback, secret, f"tracequarry-{own}")
        config = uvicorn.Config(
            app, http=limited(), ws="none", lifespan="on", log_level="critical", access_log=False, server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=1, limit_concurrency=200,
        )  # fmt: skip
        address = f"http://{f'[{name}]' if ':' in name else name}:{own}/"
        show(address + (f"?token={secret}" if secret else ""))
        uvicorn.Server(config).run(sockets=[listening])


def check() -> None:
    """Raise InputError unless the libraries are installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as e:
        raise missing("serve", "serve", e) from e


def browse(address: str, wanted: bool) -> None:
    """Print the address, and open it in a browser if wanted and if there is a display."""
    print(f"{address}  (Ctrl-C stops)", file=sys.stderr, flush=True)
    if wanted:
        open_page(address)


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket. Raises InputError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, wanted), family=family, backlog=128)
        except (OSError, OverflowError, TypeError, UnicodeError) as e:  # the last two: invalid host names
            error = e
    raise InputError(f"cannot listen on {host}, port {wanted}: {error}")
