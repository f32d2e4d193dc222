"""The answers that a page is built from: engines over recordings, and queries that are computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from analyze.errors import InputError
from analyze.ingestion.progress import Counted
from analyze.plots.figure import Rows
from analyze.query.data_needs import lacks
from analyze.query.engine import Engine
from analyze.query.literals import of_runs
from analyze.query.query_declaration import Query
from analyze.query.query_files import find
from analyze.query.selection import Selection, check_by
from analyze.render import visible
from analyze.report.page import Links, command_line
from analyze.report.timeline import Timeline
from analyze.report.timelines import Timelines
from analyze.shell import command
from analyze.store.store import Store
from analyze.verdict.sides import Sides, open_sides

_LABELS = (
    "model", "batch_size", "gpus", "parallelism", "precision", "dataset", "image_size", "optimizer", "compiled",
    "channels_last", "profiler", "gpu_name",
)  # fmt: skip
"""Columns that may label runs, the most usual first."""


class Report:
    """What a page says about recordings: the answers to its queries, each computed once."""

    def __init__(
        self,
        stores: Sequence[Store],
        paths: Sequence[str],
        selection: Selection,
        progress: Counted | None = None,
        links: Links | None = None,
    ):
        check_by(selection.by)  # The queries of a single run have no groups.
        self.stores, self.paths = stores, list(paths)
        self.selection = replace(selection, by=())
        self.progress: Counted = progress or (lambda done, total, name: None)
        self.links = links
        self.engine = Engine(stores, self.selection)
        """The engine without groups."""
        self._engines = {self.selection: self.engine}
        self._sides: WeakKeyDictionary[Report, Sides] = WeakKeyDictionary()
        self._answers: dict[tuple[Any, ...], Rows] = {}
        self._held: dict[tuple[str, ...], dict[str, bool]] = {}
        if not self.engine.run_ids:
            raise InputError("report: no run matched --where, --profiler or --block")
        self.runs = self.run_query("runs").dicts()
        chosen = set(self.engine.run_ids)
        self.timed = [r for r in self.runs if r["run_id"] in chosen and r["profiler"] != "ncu"]
        self.several = len(self.timed or self.runs) > 1
        self.by = selection.by or self._label_columns()

    def engine_of(self, selection: Selection) -> Engine:
        """Return the engine of a selection, opened once."""
        if selection not in self._engines:
            self._engines[selection] = Engine(self.stores, selection)
        return self._engines[selection]

    def compared_with(self, other: Report) -> Sides:
        """Return both sides of a comparison, opened once."""
        if other not in self._sides:
            self._sides[other] = open_sides(self.engine, other.engine)
        return self._sides[other]

    def close(self) -> None:
        """Close the engines."""
        for engine in self._engines.values():
            engine.close()

    def run_query(
        self, name: str, params: Mapping[str, str] | None = None, by: tuple[str, ...] = (), **more: str
    ) -> Rows:
        """Return the answer to a query, computed once. A query whose data was not recorded is not run."""
        given = {**(params or {}), **more}
        key = (name, tuple(sorted(given.items())), by)
        if key not in self._answers:
            self._answers[key] = self._run(find(name), given, by)
        return self._answers[key]

    def engine_for(self, query: Query, by: tuple[str, ...]) -> Engine:
        """Return the engine that answers a query, with groups `by`."""
        selection = self.selection
        if by:
            # With groups by run, an engine has every pass of a workload: use only those of the engine without groups.
            selection = replace(selection.narrowed(of_runs(self.engine.run_ids)), by=by)
        if self.engine.note:  # otherwise no pass is excluded, whichever a query prefers
            selection = replace(selection, prefer=query.prefer)
        return self.engine_of(selection)

    def _run(self, query: Query, params: dict[str, str], by: tuple[str, ...]) -> Rows:
        engine = self.engine_for(query, by)
        if self.lacks(engine, query, params):
            return Rows(query.result_columns(query.bind(params)[2]), [])
        return Rows.of(engine.query(query, params))

    def lacks(self, engine: Engine, query: Query, params: Mapping[str, str]) -> bool:
        """Return whether the recordings of an engine lack what a query needs."""
        return lacks(engine, query, params, self._held.setdefault(tuple(engine.run_ids), {}))

    def _label_columns(self) -> tuple[str, ...]:
        """Return the columns that label runs: those that differ if they identify each run, else run_id."""
        columns = [c.name for c in find("runs").columns]
        differing = [c for c in _LABELS if c in columns and len({r[c] for r in self.timed}) > 1]
        keys = {tuple(r[c] for c in differing) for r in self.timed}
        return tuple(differing) if differing and len(keys) == len(self.timed) else ("run_id",)

    @cached_property
    def on_gpu(self) -> bool:
        """Whether there is GPU work, in time or as counters."""
        return bool(
            {"kernels", "memcpys", "memsets", "gpu_summary", "ncu_metrics", "metric_summary"} & self.engine.tables
        )

    @cached_property
    def timelines(self) -> Timelines | None:
        """The timeline of the one run that was timed, below that of its GPU-only block."""
        if len(self.timed) != 1:
            return None
        full = Timeline(self.engine, self.timed[0]["run_id"])
        if (timing := self.engine.of_gpu_blocks) and len(others := set(timing.run_ids) - {full.run_id}) == 1:
            return Timelines([("GPU only", Timeline(timing, others.pop())), ("full", full)])
        return Timelines([("", full)]) or None

    def command(self, name: str, params: Mapping[str, str], selection: Selection) -> str:
        """Return the command line of a query."""
        return command_line("query", name, self.paths, params, selection)

    def page_command(self, verb: Sequence[str] = ("report",)) -> str:
        """Return the command line that writes the page."""
        words = ["analyze", *verb, *self.paths, "-o", "report.html"]
        words += ["--where", self.selection.condition] if self.selection.condition else []
        return visible(command(words))
