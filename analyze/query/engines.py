"""The engines of opened stores, each made once: what one question computed is there for the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from analyze.query.engine import Engine
from analyze.query.query_files import BLOCKS, BUILT_IN, Query
from analyze.query.selection import DEFAULT, Selection
from analyze.store.file_digest import FileState, file_state
from analyze.store.store import Store

MOST = 4
"""Engines that are kept."""
MOST_BYTES = 1 << 30
"""Memory of what was computed in them, beyond which they go before another is made: it may need all there is."""


_Key = tuple[Selection, tuple[FileState, ...]]
"""What tells engines apart: a selection, and the blocks beside a user's query, which may hide built-in ones and change
between questions."""


class Engines:
    """Engines over some stores by what they are asked for; those that were used last are kept."""

    def __init__(self, stores: Sequence[Store], most_bytes: int = MOST_BYTES):
        self._stores = list(stores)
        self._most_bytes = most_bytes
        self._kept: dict[_Key, Engine] = {}
        """The one that was used last comes last."""
        self._lock = threading.Lock()
        self._closed = False

    def get(self, selection: Selection = DEFAULT, query: Query | None = None) -> Engine:
        """The engine of a selection, with the passes that a query prefers.

        Several threads may ask. Raises InputError as `Engine` does, ValueError once closed.
        """
        if query:
            selection = replace(selection, prefer=query.prefer)
        new = selection, _own_blocks(query) if query else ()
        with self._lock:
            if self._closed:
                raise ValueError("the traces are closed")
            key = self._find(new) or new
            engine = self._kept.pop(key, None)
            if engine is None or not engine.whole:
                self._make_room()
                key = new
                engine = Engine(self._stores, selection)
            self._kept[key] = engine
            return engine

    def _find(self, key: _Key) -> _Key | None:
        """Return the key of a cached engine of the same runs. If no pass is excluded, `prefer` makes no difference."""
        if key in self._kept:
            return key
        selection, blocks = key
        for known in reversed(self._kept):
            every_pass = known[0].prefer != "all" and not self._kept[known].note
            if every_pass and known == (replace(selection, prefer=known[0].prefer), blocks):
                return known
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
