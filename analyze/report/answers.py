"""Answers to questions about recordings: each is asked once, by whichever thread needs it first."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from analyze.plots.figure import Rows
from analyze.query.engines import Engines
from analyze.query.literals import of_runs
from analyze.query.needs import lacks
from analyze.query.query_files import Query, find
from analyze.query.selection import Selection
from analyze.store.store import Store


class Answers:
    """Answers about the runs of a selection."""

    def __init__(self, stores: Sequence[Store], selection: Selection):
        self.engines = Engines(stores, keep=True)
        self._selection = selection
        self._known: dict[tuple[Any, ...], Future[Rows]] = {}
        self._held: dict[tuple[str, ...], dict[str, bool]] = {}
        self._lock = threading.Lock()
        self.engine = self.engines.get(selection)
        """The engine that tells no groups apart."""

    def close(self) -> None:
        """Let go of what was computed."""
        self.engines.close()

    def ask(
        self, name: str, params: Mapping[str, str], by: tuple[str, ...] = (), engines: Engines | None = None
    ) -> Rows:
        """The answer to a query; `engines`: of the thread that asks, those made here by default.

        Where another thread asks the same, waits for it. What the recordings hold nothing for is not asked, and has no
        rows.
        """
        key = (name, tuple(sorted(params.items())), by)
        with self._lock:
            first = key not in self._known
            answer = self._known.setdefault(key, Future())
        if first:
            try:
                answer.set_result(self._asked(find(name), dict(params), by, engines or self.engines))
            except BaseException as e:
                answer.set_exception(e)
        return answer.result()

    def _asked(self, query: Query, params: dict[str, str], by: tuple[str, ...], engines: Engines) -> Rows:
        # By run, every pass of a workload would count: only those that are asked about without groups.
        selection = self._selection
        if by and self.engine.run_ids:
            selection = replace(selection.narrowed(of_runs(self.engine.run_ids)), by=by)
        engine = engines.get(selection, query)
        if lacks(engine, query, params, self._held.setdefault(tuple(engine.run_ids), {})):
            return Rows(query.result_columns(query.bind(params)[2]), [])
        return Rows.of(engine.query(query, params))
