"""A pool of query processes. One is killed if its query takes too long or if the client disconnects.

A process runs one query at a time and is reused, because opening the recordings takes time. A process that ran an
expression of a visitor (`where`) is reused only for the same expression.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from analyze.errors import InputError
from schemas.isolation import python, python_variables

if TYPE_CHECKING:
    from starlette.requests import Request

_START = "from analyze.serve.query_process import main; main()"
_LOOK_S = 0.1
"""How often to check a running query for its time limit and its client."""
_MOST_LINE = 256 << 20
"""Limit of an answer, in bytes."""


class Stopped(InputError):
    """A query was stopped."""


class Failed(Exception):
    """The error of a worker process: a sentence and an HTTP status."""

    def __init__(self, sentence: str, status: int):
        super().__init__(sentence)
        self.status = status


class QueryProcess:
    """A process that runs one query at a time."""

    def __init__(self, process: asyncio.subprocess.Process, where: str):
        self.process, self.where = process, where
        self.run = ""
        """The run that it has open."""
        self._killed = False

    @classmethod
    async def start(cls, where: str) -> QueryProcess:
        """Start a process. Its first message says what is served."""
        pipe, variables = asyncio.subprocess.PIPE, os.environ | python_variables()
        process = await asyncio.create_subprocess_exec(
            *python("-c", _START), stdin=pipe, stdout=pipe, limit=_MOST_LINE, env=variables
        )
        return cls(process, where)

    async def ask(self, message: Mapping[str, Any]) -> str:
        """Return the answer to a message. Raises Failed."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            line = await self.process.stdout.readline()
        except OSError:
            line = b""
        except ValueError:  # longer than _MOST_LINE
            line = b""
            self.kill()
        if not line.endswith(b"\n"):
            code = await self.process.wait()
            raise Failed(f"the process of the query ended with status {code} (out of memory?)", 503)
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"], said["status"])
        answer: str = said["answer"]
        return answer

    def kill(self) -> None:
        """Kill the process. Processes that it started end, too, because their stdin ends.

        It is killed once: to signal a process that has just ended takes its status away from asyncio.
        """
        if self.process.returncode is None and not self._killed:
            self._killed = True
            self.process.kill()


class QueryPool:
    """A pool of processes: `at_once` run at the same time, each query at most `seconds`."""

    def __init__(self, served: Mapping[str, Any], at_once: int, seconds: float):
        self._served = served
        self._places = asyncio.Semaphore(at_once)
        self._most = at_once
        self._seconds = seconds
        self._idle: list[QueryProcess] = []
        self._alive: set[QueryProcess] = set()
        """Processes that may not have ended: idle, at work, or killed just now."""

    async def ask(self, request: Request, do: str, given: Mapping[str, str], *before: str) -> str:
        """Return the result of a method of `Site`. Raises Failed; Stopped if the query was stopped."""
        where = given.get("where", "").strip()
        async with self._places:
            run = given.get("run", "")
            worker = self._take(where, run) or await self._start(where)
            worker.run = run
            asked = asyncio.ensure_future(worker.ask({"do": do, "with": [*before, dict(given)]}))
            whole = False
            try:
                await self._wait(asked, request)
                whole = asked.exception() is None or getattr(asked.exception(), "status", 0) == 400
                return asked.result()
            finally:
                self._put_back(worker, whole)
                asked.cancel()

    async def _wait(self, asked: asyncio.Future[str], request: Request) -> None:
        until = monotonic() + self._seconds
        while not asked.done():
            await asyncio.wait({asked}, timeout=_LOOK_S)
            if not asked.done() and monotonic() > until:
                raise Stopped(f"stopped after {self._seconds:g} s (--time-limit)")
            if not asked.done() and await request.is_disconnected():
                raise Stopped("the client disconnected")

    async def _start(self, where: str) -> QueryProcess:
        """Start a process, and wait until it has opened the stores. Raises Failed."""
        self._alive = {w for w in self._alive if w.process.returncode is None}
        worker = await QueryProcess.start(where)
        self._alive.add(worker)
        try:
            await worker.ask(self._served)
        except BaseException:
            worker.kill()
            raise
        return worker

    def _take(self, where: str, run: str) -> QueryProcess | None:
        """Take an idle process for an expression, preferably one that has the run open."""
        fitting = [w for w in self._idle if w.where == where and w.process.returncode is None]
        worker = next((w for w in reversed(fitting) if w.run == run), fitting[-1] if fitting else None)
        if worker:
            self._idle.remove(worker)
        return worker

    def _put_back(self, worker: QueryProcess, whole: bool) -> None:
        """Keep a process for the next query, unless it failed or is still busy."""
        if whole:
            self._idle.append(worker)
        else:
            worker.kill()
        while len(self._idle) > self._most:
            self._idle.pop(0).kill()

    async def end(self) -> None:
        """Kill all processes, and wait for their end: the event loop may close afterwards."""
        for worker in self._alive:
            worker.kill()
        await asyncio.gather(*(worker.process.wait() for worker in self._alive))
