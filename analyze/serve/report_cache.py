"""A cache of open reports, which closes the least recently used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from analyze.report.report import Report

Key = TypeVar("Key", bound=Hashable)


class ReportCache(Generic[Key]):
    """Reports, cached by key; the least recently used is closed beyond `most`."""

    def __init__(self, make: Callable[[Key], Report], most: int):
        self._make = make
        self._most = most
        self._open: dict[Key, Report] = {}

    @contextmanager
    def lend(self, key: Key) -> Iterator[Report]:
        """Lend the report for a key, built if it is not cached. After an error it is closed."""
        report = self._open.pop(key, None) or self._make(key)
        try:
            yield report
        except BaseException:
            report.close()
            raise
        self._open[key] = report
        while len(self._open) > self._most:
            self._open.pop(next(iter(self._open))).close()
