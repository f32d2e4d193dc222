"""Questions that are answered ahead: what they compute is kept in the store, for whoever asks them later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from analyze.advise import advise
from analyze.errors import InputError, MachineError, StorageError
from analyze.query.engines import Engines
from analyze.query.query_files import Query, catalog, find
from analyze.report.build import page_toml
from analyze.store.progress import Counted
from analyze.store.store import Store


class Prepared(NamedTuple):
    """What was answered ahead."""

    queries: list[str]
    """Those that were answered; none where the recordings are small: to answer takes no longer than to read it."""
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
    """Ask built-in queries, and keep their answers, and what else of it serves further questions.

    By default all, and, unless by groups, what the report of a run asks, its advice too. It is kept in the store; where
    several are asked together, in the cache. Raises InputError for an unknown query, bad options, and a store that
    cannot be written.
    """
    asked: list[tuple[Query, Mapping[str, str]]] = [(find(name), {}) for name in names]
    asked = asked or [(query, {}) for query in catalog().values()]
    report = _of_reports() if not names and not by else []
    done = Prepared([], {})
    engines = Engines(stores, keep_in_stores=True)
    try:
        for at, (query, params) in enumerate([*asked, *report]):
            if progress:
                progress(at, len(asked) + len(report), query.name)
            own_by, texts = query.own_by(by, params)
            engine = engines.get(own_by, where, profiler, query)
            if engine.small:
                return done
            try:
                engine.query(query, texts).arrow()
                if at < len(asked):
                    done.queries.append(query.name)
            except (StorageError, MachineError):
                raise
            except InputError as e:
                done.failed[query.name] = str(e)
            engines.make_room()
        if report:
            with suppress(InputError):  # There may be no GPU work to advise on; a report says so.
                advise(engines.get((), where, profiler))
        return done
    finally:
        engines.close()


def _of_reports() -> list[tuple[Query, Mapping[str, str]]]:
    """What the report of one run asks otherwise than a query is asked by itself."""
    page = page_toml()
    parts = [part for section in page["section"] if section["when"] != "several" for part in section["part"]]
    return [(find(part["query"]), part["params"]) for part in (*parts, *page["place"].values()) if part.get("params")]
