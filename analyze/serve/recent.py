"""A cache of open reports and engines."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.report.build import Report

A = TypeVar("A", Report, Engine)


class Recent(Generic[A]):
    """Reports or engines, cached by key; the least recently used is closed beyond `most`."""

    def __init__(self, make: Callable[..., A], most: int):
        self._make: Callable[..., A] = make
        self._most = most
        self._open: dict[tuple[Hashable, ...], A] = {}

    @contextmanager
    def lend(self, *key: Hashable) -> Iterator[A]:
        """Lend the one for a key, made if it is not cached. After an error that is not the user's it is closed."""
        lent = self._open.pop(key, None) or self._make(*key)
        whole = False
        try:
            yield lent
            whole = True
        except InputError:
            whole = getattr(lent, "whole", True)
            raise
        finally:
            if whole:
                self._open[key] = lent
            else:
                lent.close()
            while len(self._open) > self._most:
                self._open.pop(next(iter(self._open))).close()
