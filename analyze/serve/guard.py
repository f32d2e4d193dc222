"""Access control: checks Host, origin and token of requests, and sets security headers of responses.

Any page in a browser can send requests to a server on loopback. Origin and Sec-Fetch-Site identify requests from pages
of other sites. Host identifies names that somebody else resolves to this machine (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_STARTS = ("/", "/queries", "/sql", "/compare")
"""Pages that links on other sites may open."""


class Guard:
    """ASGI middleware that accepts requests of the user and of this server's own pages.

    `hosts`: allowed host names; `any_address`: allow any IP address, too, which cannot be rebound. `token`: required
    secret, or None.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], any_address: bool, token: str | None, cookie: str):
        self._app = app
        self._hosts = {h.lower() for h in hosts}
        self._any_address = any_address
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._answer(scope)
        await (refused or self._app)(scope, receive, send_guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the response to a refused request; None if it is allowed."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._known(hosts[0]):
            return PlainTextResponse("Host header not allowed\n", 421)
        if scope["method"] == "POST":
            _, _, origin = headers.get("origin", "").partition("://")
            if origin.lower() != hosts[0].lower():
                return PlainTextResponse("requests from other sites are not allowed\n", 403)
        elif headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not _is_plain_link(
            scope, headers
        ):
            return PlainTextResponse(
                "links on other sites open only start pages; copy the address into the browser\n", 403
            )
        return self._untrusted(scope, headers) if self._token is not None else None

    def _untrusted(self, scope: Scope, headers: Headers) -> Response | None:
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens and scope["method"] == "GET" and self._right(tokens[0]):
            # Remove it from the address, which is visible, in the history and may be shared.
            rest = urlencode([pair for pair in given if pair[0] != "token"])
            path = "/" + quote(scope["path"].lstrip("/"))  # never an address of another server
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._cookie, tokens[0], httponly=True, samesite="strict", path="/")
            return answer
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            cookies.clear()
        known = cookies.get(self._cookie)
        if known is not None and self._right(known.value):
            return None
        return PlainTextResponse("open the address with the token that `analyze serve` printed\n", 403)

    def _right(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), (self._token or "").encode())

    def _known(self, host: str) -> bool:
        """Return whether a Host header names this server. The port may be that of a tunnel."""
        name, port = host, ""
        if host.startswith("["):
            name, _, port = host[1:].partition("]")
            port = port.removeprefix(":")
        elif ":" in host:
            name, _, port = host.rpartition(":")
        if port and not port.isdecimal():
            return False
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address


def _is_plain_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a request from another site is a followed link to a start page without parameters.

    Images, scripts, frames and fetches are not. Parameters could start expensive queries.
    """
    followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return followed and scope["path"] in _STARTS and not scope["query_string"]
