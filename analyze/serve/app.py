"""The addresses of the server and their handlers. No request changes anything."""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from analyze.errors import InputError
from analyze.query.sql_checks import sentence
from analyze.serve.query_pool import Failed, QueryPool, Stopped
from analyze.serve.query_request import FORMS
from analyze.serve.site import Site

MOST_STATEMENT = 200_000
"""Limit of a posted statement, in bytes."""
AT_ONCE = 4
"""Queries that run at the same time; SQL from users has its own limit, half of this."""


class App:
    """The pages as a Starlette application."""

    def __init__(self, site: Site, time_limit: float):
        self._site = site
        served = site.served()
        self._pages = QueryPool(served, AT_ONCE, time_limit)
        self._statements = QueryPool(served, AT_ONCE // 2, time_limit)
        self.routes = [
            Route("/", self.report),
            Route("/run", self.report),
            Route("/queries", self.questions),
            Route("/query/{name:str}.{form:str}", self.save),
            Route("/query/{name:str}", self.question),
            Route("/sql", self.box),
            Route("/sql", self.sql, methods=["POST"]),
            Route("/compare", self.compared),
            Route("/timeline", self.timeline),
            Route("/static/{name:str}", self.static),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Stop the worker processes when the server ends."""
        yield
        await self._pages.end()
        await self._statements.end()

    def starlette(self) -> Starlette:
        """Return the application."""
        handlers = {
            InputError: self.mistaken, Failed: self.failed,
            HTTPException: self.unknown, Exception: self.broken,
        }  # fmt: skip
        return Starlette(routes=self.routes, exception_handlers=handlers, lifespan=self.lifespan)

    async def report(self, request: Request) -> Response:
        """Return the report of one run or several, or a part of it."""
        given = _given(request)
        part = "part" in given
        return await self._html(request, "report_part" if part else "report", given, part)

    async def questions(self, request: Request) -> Response:
        """Return the list of queries."""
        return HTMLResponse(await run_in_threadpool(self._site.questions))

    async def question(self, request: Request) -> Response:
        """Return the page of a query, or its answer."""
        name, given = request.path_params["name"], _given(request)
        if "part" in given:
            return await self._html(request, "answer", given, True, name)
        return HTMLResponse(await run_in_threadpool(self._site.question, name, given))

    async def save(self, request: Request) -> Response:
        """Return an answer as a file."""
        name, form, given = request.path_params["name"], request.path_params["form"], _given(request)
        if form not in FORMS:
            raise InputError(f"answers can be saved as .{', .'.join(FORMS)}")
        path = await self._pages.ask(request, "save", given, name, form)
        return _file(Path(path), f"{name}.{form}")

    async def box(self, request: Request) -> Response:
        """Return the page for SQL."""
        return HTMLResponse(self._site.box(_given(request)))

    async def sql(self, request: Request) -> Response:
        """Return the answer to a SELECT."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_STATEMENT:
                raise HTTPException(413, f"a statement has at most {MOST_STATEMENT:,} bytes")
        given = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if form := given.get("form"):
            if form not in FORMS:
                raise InputError(f"answers can be saved as .{', .'.join(FORMS)}")
            path = await self._statements.ask(request, "save_sql", given, form)
            return _file(Path(path), f"rows.{form}")
        answer = await self._statements.ask(request, "sql", given)
        return HTMLResponse(answer if _by_script(request) else self._site.box(given, answer))

    async def compared(self, request: Request) -> Response:
        """Return the comparison of the runs of two sides, or a part of it."""
        given = _given(request) | {side: "\n".join(request.query_params.getlist(side)) for side in ("a", "b")}
        part = "part" in given
        return await self._html(request, "compared_part" if part else "compared", given, part)

    async def timeline(self, request: Request) -> Response:
        """Return events of the timeline of a run, as JSON."""
        text = await self._pages.ask(request, "timeline", _given(request))
        return Response(text, media_type="application/json")

    async def static(self, request: Request) -> Response:
        """Return a style sheet or script."""
        try:
            kind, text = await run_in_threadpool(self._site.templates.asset, request.path_params["name"])
        except KeyError:
            raise HTTPException(404) from None
        return Response(text, media_type=kind, headers={"Cache-Control": "private, max-age=31536000, immutable"})

    def mistaken(self, request: Request, error: Exception) -> Response:
        """Answer bad input."""
        return self._error(request, sentence(error), 503 if isinstance(error, Stopped) else 400)

    def failed(self, request: Request, error: Any) -> Response:
        """Answer with the error of a worker process."""
        return self._error(request, str(error), error.status)

    def unknown(self, request: Request, error: Any) -> Response:
        """Answer an unknown address or method."""
        return self._error(request, error.detail, error.status_code)

    def broken(self, request: Request, error: Exception) -> Response:
        """Answer an unexpected exception."""
        traceback.print_exception(error, file=sys.stderr)
        return self._error(request, f"internal error: {type(error).__name__}", 500)

    def _error(self, request: Request, text: str, status: int) -> Response:
        return HTMLResponse(self._site.error(text, not _by_script(request)), status)

    async def _html(self, request: Request, do: str, given: Mapping[str, str], part: bool, *before: str) -> Response:
        text = await self._pages.ask(request, do, given, *before)
        return HTMLResponse(text if not part or _by_script(request) else self._site.alone(text, "A part of a page"))


def _file(path: Path, name: str) -> Response:
    """Return a file, and remove it when it is sent."""
    kind = FORMS[name.rpartition(".")[2]]
    return FileResponse(path, media_type=kind, filename=name, background=BackgroundTask(path.unlink))


def _given(request: Request) -> dict[str, str]:
    """Return the parameters of an address; the last of repeated ones."""
    return dict(request.query_params)


def _by_script(request: Request) -> bool:
    """Return whether the script of a page requests a part: other sites cannot send this header."""
    return "x-part" in request.headers
