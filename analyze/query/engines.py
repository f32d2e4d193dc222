"""The engines of opened stores, each made once: what one question computed is there for the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from analyze.query.engine import Engine
from analyze.query.query_files import BLOCKS, BUILT_IN, Query
from analyze.store.file_digest import FileState, file_state
from analyze.store.store import Store

MOST = 4
"""Engines that are kept."""
MOST_BYTES = 1 << 30
"""Memory of what was computed in them, beyond which they go before another is made: it may need all there is."""


class _Choice(NamedTuple):
    """What tells engines apart."""

    by: tuple[str, ...]
    wheres: tuple[str, ...]
    profiler: str | None
    own_blocks: tuple[FileState, ...]
    """Blocks beside a user's query: they may hide built-in ones, and change between questions."""


class Engines:
    """Engines over some stores by what they are asked for; those that were used last are kept. `keep`: see
    `Engine`."""

    def __init__(self, stores: Sequence[Store], keep: bool = False, most_bytes: int = MOST_BYTES):
        self._stores = list(stores)
        self._most_bytes = most_bytes
        self._keep = keep
        self._kept: dict[tuple[_Choice, str | None], Engine] = {}
        """The one that was used last comes last."""
        self._lock = threading.Lock()
        self._closed = False
        self._first: Engines | None = None
        self._others: list[Engines] = []

    def beside(self) -> Engines:
        """The same for another thread: what is computed in an engine of either is there for both."""
        other = Engines(self._stores, self._keep)
        other._first = self
        self._others.append(other)
        return other

    def get(
        self,
        by: Sequence[str] = (),
        where: str | Sequence[str | None] | None = None,
        profiler: str | None = None,
        query: Query | None = None,
    ) -> Engine:
        """The engine of these options (see `Engine`), with the passes that a query prefers.

        Several threads may ask. Raises InputError as `Engine` does, ValueError once closed.
        """
        wheres = tuple(filter(None, [where] if isinstance(where, str) else where or ()))
        choice = _Choice(tuple(by), wheres, profiler, _own_blocks(query) if query else ())
        prefer = query.prefer if query else None
        with self._lock:
            if self._closed:
                raise ValueError("the traces are closed")
            key = self._find(choice, prefer) or (choice, prefer)
            engine = self._kept.pop(key, None)
            if engine is None or not engine.whole:
                self._make_room()
                key = choice, prefer
                if self._first:
                    engine = self._first.get(by, wheres, profiler, query).beside()
                else:
                    engine = Engine(self._stores, by, wheres, profiler, prefer, self._keep)
            self._kept[key] = engine
            return engine

    def _find(self, choice: _Choice, prefer: str | None) -> tuple[_Choice, str | None] | None:
        """The key of a kept engine with the same runs: where no pass is left out, whatever a query prefers."""
        for known, preferred in reversed(self._kept):
            every_pass = preferred != "all" and not self._kept[known, preferred].note
            if known == choice and (preferred == prefer or every_pass):
                return known, preferred
        return None

    def make_room(self) -> None:
        """Let go of engines that hold much, before more is asked of those that are left."""
        with self._lock:
            self._make_room()

    def _make_room(self) -> None:
        """Let go of those that were not used for longest; an answer that is still open keeps its own."""
        while len(self._kept) >= MOST or sum(e.held_bytes for e in self._kept.values()) > self._most_bytes:
            del self._kept[next(iter(self._kept))]

    def close(self) -> None:
        """Close them; there are no further ones."""
        for other in self._others:
            other.close()
        with self._lock:
            self._closed = True
            for engine in self._kept.values():
                engine.close()
            self._kept.clear()


def _own_blocks(query: Query) -> tuple[FileState, ...]:
    folder = query.path.parent.parent
    if folder == BUILT_IN:
        return ()
    return tuple(file_state(path) for path in sorted((folder / BLOCKS).glob("*.sql")) if path.is_file())
