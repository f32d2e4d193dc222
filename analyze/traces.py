"""The Python API of opened recordings: a method for each command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from analyze.flame import Drawn
    from analyze.info import Info
    from analyze.ingestion.progress import Counted, Progress
    from analyze.notebook import Answer
    from analyze.query.engine import Engine
    from analyze.query.query_declaration import Query
    from analyze.query.selection import Selection
    from analyze.query_functions import Queries
    from analyze.report.output_files import Drawing
    from analyze.report.page import Claim
    from analyze.store.store import Store
    from analyze.trace.export import Exported
    from analyze.trace.moments import Moment


Paths = str | PathLike[str]


class Traces:
    """Stores, run folders or raw files, opened for questions. Made by `open`; `where` returns a part of them.

    Each query opens a DuckDB of its own, so several threads may query. Closed at the end of a `with`, by `close`, or
    when nothing refers to it. Methods return an `Answer`: documented columns with their units, notes, and the rows as
    Arrow, pandas, polars, Python values or a figure. All raise InputError for bad input.
    """

    def __init__(
        self,
        paths: Paths | Sequence[Paths],
        queries: Paths | Sequence[Paths] = (),
        progress: Progress | None = None,
        where: str | None = None,
        profiler: str | None = None,
        block: str | None = None,
    ):
        from analyze.ingestion.opening import open_stores
        from analyze.query.selection import DEFAULT
        from schemas.urls import as_given

        places = as_paths(paths)
        self._given = list(map(as_given, places))
        self.read_as: list[str] = []
        """Which runs and ranks the raw files were taken for that had to be ingested now, in sentences."""
        self._stores, self.warnings = open_stores(places, progress, self.read_as.append)
        self.query_folders = tuple(as_paths(queries))
        self.selection = DEFAULT.narrowed(where, profiler, block)

    def where(self, condition: str | None = None, profiler: str | None = None, block: str | None = None) -> Traces:
        """Return the part for which `condition` holds: `traces.where("gpus = 2").advise()`.

        `condition`: SQL over the columns of `runs`, `rank` and `node`. `profiler`: gpu, torch, nsys, nvprof, ncu or
        none reads only what was recorded under it, all reads every pass; by default one timing pass of each workload is
        read. `block`, of a program recorded as GPU only and in full: gpu or full reads one of them, both reads both
        apart. Both parts stay open together.
        """
        part = copy(self)
        part.selection = self.selection.narrowed(condition, profiler, block)
        return part

    @property
    def stores(self) -> list[Store]:
        """The open stores. Raises ValueError once they are closed."""
        if not self._stores:
            raise ValueError("the traces are closed")
        return self._stores

    def close(self) -> None:
        """Close the stores, also for the parts that `where` returned."""
        for store in self._stores:
            store.release()
        self._stores.clear()

    def __enter__(self) -> Traces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        given = map(repr, self._given)
        selected = (f"{k}={v!r}" for k in ("condition", "profiler", "block") if (v := getattr(self.selection, k)))
        return f"analyze.open({', '.join([*given, *selected])})".replace("condition=", "where=")

    def _repr_html_(self) -> str:
        return self.info()._repr_html_()

    def query(
        self,
        name: str,
        by: str | Sequence[str] = (),
        params: Mapping[str, object] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: str | Sequence[str] = (),
        filter: str | None = None,
    ) -> Answer:
        """Answer a query by name (`catalog` lists them); the rows are computed when they are first read.

        `by`: columns of `runs` (or `rank`) to group by, as a list or "model,gpus", and what a query's own parameter
        `per` can tell apart (dimension, group). `params`: parameters of the query. `sort`: column names, `-` in
        front for descending. `limit`: at most this many rows. `select`: only these columns, in this order. `filter`:
        only rows for which this SQL expression over the columns of the result holds.
        """
        from analyze.notebook import Answer
        from analyze.query.data_needs import combined_runs, why_empty

        query, given = self._find(name), self._given
        by, texts = query.move_by_to_per(as_names(by), as_texts(params))
        engine = self._engine(replace(self.selection.grouped(by), prefer=query.prefer))

        def draw(answer: Answer, figure: str | None, title: str | None) -> Drawing:
            from analyze.report.output_files import draw

            return draw(answer, engine, given, query, texts, figure=figure, title=title)

        answer = Answer(engine.query(query, texts, sort, limit, as_names(select), filter=filter), draw)
        if limit != 0:
            answer.why = lambda: why_empty(engine, query, texts, filter)
        if runs := combined_runs(engine, query, texts, by, [c.name for c in answer.columns]):
            answer.hint = f"{runs} runs combined; --by run_id (or model, ...) separates them"
        return answer

    @property
    def queries(self) -> Queries:
        """The queries as functions that an editor completes: `traces.queries.kernel_share(group="family")`.

        Called, `traces.queries()`, it lists them with what these recordings lack for each.
        """
        from analyze.query_functions import Queries

        return Queries(self)

    def info(self) -> Info:
        """What was found: how the runs were recorded, what they lack, which queries they can answer."""
        from analyze.info import inspect

        return inspect(self.stores, self.selection, self.query_folders)

    def sql(self, statement: str) -> Answer:
        """Answer one SELECT over the tables (`tables` documents them)."""
        from analyze.notebook import Answer
        from analyze.query.data_needs import NO_RUN

        engine = self._engine(self.selection)
        answer = Answer(engine.sql(statement))
        if not engine.run_ids:  # A row may be there, as of count(*).
            answer.note = NO_RUN
        return answer

    def flame(
        self,
        output: Paths,
        tree: str = "op",
        time: str = "gpu",
    ) -> Drawn:
        """Write the call trees as a flame graph, as `analyze flame`; see `analyze.flame.flame`."""
        from analyze.flame import flame

        return flame(self._engine(self.selection), Path(output), tree=tree, time=time)

    def moment(self, at: str) -> Moment:
        """The place in time that `analyze trace --at` names: gap:3, a finding of `advise`, or ms from the start."""
        from analyze.trace.moments import find_moment

        return find_moment(self._engine(self.selection), at)

    def plot(
        self,
        name: str,
        output: Paths | None = None,
        by: str | Sequence[str] = (),
        params: Mapping[str, object] | None = None,
        figure: str | None = None,
        title: str | None = None,
    ) -> Drawing:
        """Draw the answer to a query, which a notebook shows; `output`: write it, too, to a .svg, .png or .html file.

        `figure`: another one than the query declares. The result's `note` says what of the recordings is left out.
        """
        from analyze.plots.drawing import output_format

        if output is not None:
            output_format(Path(output))
        drawing = self.query(name, by, params).plot(figure, title)
        if output is not None:
            drawing.save(output)
        return drawing

    def report(
        self,
        output: Paths,
        compare: Traces | None = None,
        by: str | Sequence[str] = (),
        title: str | None = None,
        progress: Counted | None = None,
    ) -> None:
        """Write one HTML page about the recordings; with `compare`, about what changed from them to those.

        `by`: columns of `runs` that tell several runs apart.
        """
        from analyze.report.output_files import write_report

        groups = tuple(as_names(by))
        after = (compare.stores, compare._given, replace(compare.selection, by=groups)) if compare else None
        write_report(
            self.stores, self._given, Path(output), selection=replace(self.selection, by=groups), after=after,
            title=title, progress=progress,
        )  # fmt: skip

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: bool = False,
        time_limit: float = 60.0,
        show: Callable[[str], object] = print,
    ) -> None:
        """Serve the report, the queries and SQL as pages in a browser, until the process is interrupted.

        `host`, `port`: where to listen; port 0 is any free one; by default 8321, or a free one if it is taken.
        `token`: require a token, as addresses other than loopback always do. `time_limit`: seconds after which a query
        is stopped. `show` receives the address to open. Needs the extra `serve`.
        """
        from analyze.serve.server import serve

        serve(
            self.stores, self._given, show, folders=self.query_folders, host=host, port=port, token=token,
            time_limit=time_limit, selection=self.selection,
        )  # fmt: skip

    def study(self, name: Paths, output: Paths, progress: Counted | None = None) -> list[Claim]:
        """Write the report of a study as one HTML page: its tables and figures, what it printed, which claims hold.

        `name`: one of `studies`, or a folder with a `report.toml`. Returns the claims with their verdicts.
        """
        from analyze.report.study import write_study

        return write_study(
            str(name), self.stores, self._given, Path(output), selection=self.selection, progress=progress
        )

    def pivot(
        self,
        name: str,
        rows: str | Sequence[str],
        value: str,
        columns: str | Sequence[str] = (),
        agg: str | None = None,
        filter: str | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Answer:
        """Show one column of a query as a pivot table: rows x columns of runs.

        `rows`, `columns`: columns of `runs` (or `rank`) or of the query. `value`: the query's column in the cells.
        `agg`: sum, avg, min or max, where a cell has several values. `filter`: SQL condition for the query's rows.
        """
        from analyze.notebook import Answer
        from analyze.pivot import pivot

        found = pivot(
            self.stores, self._find(name), as_names(rows), as_names(columns), value, as_texts(params),
            agg=agg, filter=filter, selection=self.selection,
        )  # fmt: skip
        return Answer(found)

    def advise(self, min_pct: float = 1.0) -> Answer:
        """Rank what costs each run time, the largest saving first. A row has the fields of an `analyze.advise.Advice`.

        `min_pct`: hide findings below this share of the run time (%). Savings are upper bounds, in ns and in % of the
        mean span of the run's GPUs.
        """
        from analyze import advise, health
        from analyze.notebook import Answer

        engine = self._engine(self.selection)
        try:
            rows, note = advise.advise(engine, min_pct), advise.blocks_note(engine)
        except advise.WithoutTimesError as e:
            rows, note = [], str(e).removeprefix("advise: ")
        found = Answer(advise.answer(rows, note))
        found.cautions = tuple(f.text for f in health.cautions(health.read(engine)))
        return found

    def trace(
        self,
        output: Paths,
        from_ms: float | None = None,
        to_ms: float | None = None,
        counters: bool = True,
        critical_path: bool = False,
    ) -> Exported:
        """Write a run as a Chrome trace for the Perfetto UI, gzip-compressed if the name ends in .gz; one run only.

        `from_ms`, `to_ms`: a window, in ms from the first event. `counters`: add tracks of
        queue depth, copy bandwidth, GPU busy and memory. `critical_path`: draw the critical path over it. Returns what
        was written, with a note of what was left out.
        """
        from analyze.trace.export import export

        return export(
            self._engine(self.selection),
            Path(output),
            from_ms=from_ms,
            to_ms=to_ms,
            counters=counters,
            critical_path=critical_path,
        )

    def _engine(self, selection: Selection) -> Engine:
        """Open an engine for one query."""
        from analyze.query.engine import Engine

        return Engine(self.stores, selection)

    def _find(self, name: str) -> Query:
        from analyze.query.query_files import find

        return find(name, self.query_folders)


def as_texts(params: Mapping[str, object] | None) -> dict[str, str]:
    """Parameters as the command line would have them."""
    return {name: str(value) for name, value in (params or {}).items()}


def as_names(given: str | Sequence[str]) -> list[str]:
    """Return names as a list. A text may hold several, as on the command line: "model,gpus"."""
    return [n.strip() for n in given.split(",") if n.strip()] if isinstance(given, str) else list(given)


def as_paths(given: Paths | Sequence[Paths]) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(given)] if isinstance(given, str | PathLike) else [Path(p) for p in given]
