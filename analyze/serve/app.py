"""The addresses of the server, and what answers each. What is asked for only reads; nothing is kept of it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import duckdb
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from analyze.errors import InputError
from analyze.query.plain_sql import sentence
from analyze.serve.asking import FORMS
from analyze.serve.site import Site
from analyze.serve.working import Desk, Job, Stopped

MOST_STATEMENT = 200_000
"""Bytes of what is sent."""
AT_ONCE = 4
"""Questions that are worked on at a time; the SQL of the box has places of its own, half as many."""


class App:
    """The pages as a Starlette application."""

    def __init__(self, site: Site, time_limit: float):
        self._site = site
        self._pages, self._statements = Desk(AT_ONCE, time_limit), Desk(AT_ONCE // 2, time_limit)
        self.routes = [
            Route("/", self.report),
            Route("/run", self.report),
            Route("/queries", self.questions),
            Route("/query/{name:str}.{form:str}", self.save),
            Route("/query/{name:str}", self.question),
            Route("/sql", self.box),
            Route("/sql", self.sql, methods=["POST"]),
            Route("/compare", self.compared),
            Route("/static/{name:str}", self.static),
        ]

    def end(self) -> None:
        """End what is worked on, once the server has ended."""
        self._pages.end()
        self._statements.end()

    def starlette(self) -> Starlette:
        """The application."""
        handlers = {
            InputError: self.mistaken, duckdb.Error: self.mistaken, MemoryError: self.mistaken,
            HTTPException: self.unknown, Exception: self.broken,
        }  # fmt: skip
        return Starlette(routes=self.routes, exception_handlers=handlers)

    async def report(self, request: Request) -> Response:
        """The report of a run or several, or a part of it."""
        given = _given(request)
        part = "part" in given
        return await self._html(
            request, lambda job: (self._site.report_part if part else self._site.report)(given, job), part
        )

    async def questions(self, request: Request) -> Response:
        """All questions."""
        return await self._html(request, lambda job: self._site.questions(), False)

    async def question(self, request: Request) -> Response:
        """A question, or the answer to it."""
        name, given = request.path_params["name"], _given(request)
        if "part" in given:
            return await self._html(request, lambda job: self._site.answer(name, given, job), True)
        return await self._html(request, lambda job: self._site.question(name, given), False)

    async def save(self, request: Request) -> Response:
        """An answer as a file."""
        name, form, given = request.path_params["name"], request.path_params["form"], _given(request)
        if form not in FORMS:
            raise InputError(f"an answer is saved as .{', .'.join(FORMS)}")
        return await self._file(
            request, lambda job: self._site.save(name, form, given, job), f"{name}.{form}", self._pages
        )

    async def box(self, request: Request) -> Response:
        """Where SQL is written."""
        return HTMLResponse(self._site.box(_given(request)))

    async def sql(self, request: Request) -> Response:
        """The answer to a SELECT."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_STATEMENT:
                raise HTTPException(413, f"a statement has at most {MOST_STATEMENT:,} bytes")
        given = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if form := given.get("form"):
            if form not in FORMS:
                raise InputError(f"an answer is saved as .{', .'.join(FORMS)}")
            return await self._file(
                request, lambda job: self._site.save_sql(form, given, job), f"rows.{form}", self._statements
            )
        answer = await self._statements.do(request, lambda job: self._site.sql(given, job))
        return HTMLResponse(answer if _by_script(request) else self._site.box(given, answer))

    async def compared(self, request: Request) -> Response:
        """What changed from one run to another, or a part of it."""
        given = _given(request)
        part = "part" in given
        return await self._html(
            request, lambda job: (self._site.compared_part if part else self._site.compared)(given, job), part
        )

    async def static(self, request: Request) -> Response:
        """A style sheet or script, by its name alone."""
        try:
            kind, text = await run_in_threadpool(self._site.asset, request.path_params["name"])
        except KeyError:
            raise HTTPException(404) from None
        return Response(text, media_type=kind, headers={"Cache-Control": "private, max-age=31536000, immutable"})

    def mistaken(self, request: Request, error: Exception) -> Response:
        """What the user can mend."""
        text = "out of memory" if isinstance(error, MemoryError) else sentence(error)
        return self._error(request, text, 503 if isinstance(error, Stopped | MemoryError) else 400)

    def unknown(self, request: Request, error: Any) -> Response:
        """An address that there is not, or a method that it does not take."""
        return self._error(request, error.detail, error.status_code)

    def broken(self, request: Request, error: Exception) -> Response:
        """A fault of the server's own."""
        traceback.print_exception(error, file=sys.stderr)
        return self._error(request, f"a fault of the server: {type(error).__name__}", 500)

    def _error(self, request: Request, text: str, status: int) -> Response:
        return HTMLResponse(self._site.error(text, not _by_script(request)), status)

    async def _html(self, request: Request, work: Callable[[Job], str], part: bool) -> Response:
        text = await self._pages.do(request, work)
        return HTMLResponse(text if not part or _by_script(request) else self._site.alone(text, "A part of a page"))

    async def _file(self, request: Request, work: Callable[[Job], Path], name: str, desk: Desk) -> Response:
        path = await desk.do(request, work)
        kind = FORMS[name.rpartition(".")[2]]
        return FileResponse(path, media_type=kind, filename=name, background=BackgroundTask(path.unlink))


def _given(request: Request) -> dict[str, str]:
    """The parameters of an address; of one that is there twice, the last."""
    return dict(request.query_params)


def _by_script(request: Request) -> bool:
    """Whether a page's own script asks, for a part alone: no other page can send such a header."""
    return "x-part" in request.headers
