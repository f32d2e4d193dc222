"""Questions in threads of their own: one that nobody waits for, or that takes too long, is ended; no page waits for
another."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from analyze.errors import InputError

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")
_LOOK_S = 0.1
"""How often it is looked whether somebody still waits."""
_ENDING_S = 5.0
"""How long jobs have to end with the server."""


class Stopped(InputError):
    """A question was ended before it had an answer."""


class Asked(Protocol):
    """What questions are asked of: an engine, a report."""

    def interrupt(self) -> None:
        """End the question that it works on, from another thread."""

    def close(self) -> None:
        """Let go of what it holds."""


class Job:
    """A question at work."""

    def __init__(self) -> None:
        self.stopped = ""
        """Why it is to end, in a sentence; empty while it is not."""
        self._asked: list[Asked] = []

    @contextmanager
    def using(self, asked: Asked) -> Iterator[None]:
        """While something is asked for this job: it can be ended."""
        if self.stopped:
            raise Stopped(self.stopped)
        self._asked.append(asked)
        try:
            yield
        finally:
            self._asked.remove(asked)
        if self.stopped:
            raise Stopped(self.stopped)

    def interrupt(self) -> None:
        """End what is asked now."""
        for asked in list(self._asked):
            asked.interrupt()


A = TypeVar("A", bound=Asked)


class Pool(Generic[A]):
    """What questions are asked of, lent to one job at a time: where all that there are have work, another is made.

    `make` makes one for a key; `most` are kept that have no work, those that were used last.
    """

    def __init__(self, make: Callable[..., A], most: int):
        self._make = make
        self._most = most
        self._idle: deque[tuple[Hashable, A]] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, job: Job, *key: Hashable) -> Iterator[A]:
        """One for a key. After an error that is not the user's it is not used again, nor after it was interrupted."""
        lent = self._taken(key)
        if lent is None:
            lent = self._make(*key)
        whole = False
        try:
            with job.using(lent):
                yield lent
            whole = True
        except InputError:
            whole = not job.stopped and getattr(lent, "whole", True)
            raise
        finally:
            self._give_back(key, lent, whole)

    def _taken(self, key: Hashable) -> A | None:
        with self._lock:
            for entry in reversed(self._idle):
                if entry[0] == key:
                    self._idle.remove(entry)
                    return entry[1]
        return None

    def _give_back(self, key: Hashable, lent: A, whole: bool) -> None:
        unused = [] if whole else [lent]
        with self._lock:
            if whole:
                self._idle.append((key, lent))
            while len(self._idle) > self._most:
                unused.append(self._idle.popleft()[1])
        for one in unused:
            one.close()


class Desk:
    """Where jobs are done, `at_once` of them together; one that takes more than so many seconds is ended."""

    def __init__(self, at_once: int, seconds: float):
        self._places = asyncio.Semaphore(at_once)
        self._seconds = seconds
        self._ending: set[asyncio.Task[None]] = set()
        self._threads: dict[threading.Thread, Job] = {}

    async def do(self, request: Request, work: Callable[[Job], T]) -> T:
        """What `work` returns or raises. Raises Stopped when it is ended: too long, or nobody waits any more."""
        await self._places.acquire()
        job, loop = Job(), asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def ended(result: T | None, error: BaseException | None) -> None:
            self._places.release()
            del self._threads[thread]
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]
            else:
                done.set_exception(error)
                done.exception()  # Where nobody waits any more, that is no fault.

        def run() -> None:
            result, error = None, None
            try:
                result = work(job)
            except BaseException as e:
                error = e
            try:
                loop.call_soon_threadsafe(ended, result, error)
            except RuntimeError:  # the server has ended
                return

        thread = threading.Thread(target=run, daemon=True)
        self._threads[thread] = job
        thread.start()
        until = monotonic() + self._seconds
        try:
            while not done.done():
                await asyncio.wait({done}, timeout=_LOOK_S)
                if not done.done() and monotonic() > until:
                    job.stopped = f"stopped after {self._seconds:g} s (--time-limit)"
                elif not done.done() and await request.is_disconnected():
                    job.stopped = "nobody waits for it any more"
                if job.stopped:
                    raise Stopped(job.stopped)
        except BaseException:
            job.stopped = job.stopped or "the server ends"
            ending = loop.create_task(_end(job, done))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise
        return done.result()

    def end(self) -> None:
        """End all jobs, once the server has ended: a thread within DuckDB must not outlive the interpreter."""
        until = monotonic() + _ENDING_S
        for thread, job in self._threads.items():
            job.stopped = "the server ends"
            while thread.is_alive() and monotonic() < until:
                job.interrupt()
                thread.join(_LOOK_S / 2)


async def _end(job: Job, done: asyncio.Future[T]) -> None:
    """Interrupt a job until it has ended: between two statements there is nothing to interrupt."""
    while not done.done():
        job.interrupt()
        await asyncio.wait({done}, timeout=_LOOK_S)
