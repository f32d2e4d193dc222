"""Questions that are answered ahead: what they compute is kept in the store, for whoever asks them later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analyze.errors import InputError, MachineError, StorageError
from analyze.query.engines import MOST_BYTES, Engines
from analyze.query.query_files import catalog, find
from analyze.store.progress import Counted
from analyze.store.store import Store


class Prepared(NamedTuple):
    """What was answered ahead."""

    queries: list[str]
    """Whose answers are kept now; none where the recordings are small: to answer takes no longer than to read it."""
    failed: dict[str, str]
    """Why others could not be answered, in a sentence each."""


def prepare(
    stores: Sequence[Store],
    names: Sequence[str] = (),
    by: Sequence[str] = (),
    where: str | None = None,
    profiler: str | None = None,
    progress: Counted | None = None,
) -> Prepared:
    """Ask built-in queries, all by default, and keep their answers, and what else of it serves further questions.

    That is kept in the store; where several are asked together, in the cache. Raises InputError for an unknown query,
    bad options, and a store that cannot be written.
    """
    queries = [find(name) for name in names] or list(catalog().values())
    done = Prepared([], {})
    engines = Engines(stores, keep_in_stores=True)
    try:
        for at, query in enumerate(queries):
            if progress:
                progress(at, len(queries), query.name)
            own_by, params = query.own_by(by, {})
            engine = engines.get(own_by, where, profiler, query)
            if engine.small:
                return done
            try:
                engine.query(query, params).arrow()
                done.queries.append(query.name)
            except (StorageError, MachineError):
                raise
            except InputError as e:
                done.failed[query.name] = str(e)
            if engine.held_bytes > MOST_BYTES:
                # What one question needs may be all the memory that there is.
                engines.close()
                engines = Engines(stores, keep_in_stores=True)
        return done
    finally:
        engines.close()
