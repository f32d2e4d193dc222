"""Trace analysis over raw profiler outputs: raw files in, Parquet in the middle, SQL out.

The Python API mirrors the command line, command by command and option by option::

    import analyze

    with analyze.open("runs/") as traces:                # stores, run folders or raw files
        traces.query("kernel-share", by=["model"])       # an Arrow table
        traces.answer("gpu-busy").df(units=True)         # pandas; .pl() polars, .plot() the figure; a notebook shows it
        traces.queries.kernel_share(group="family")      # the same as answer(...), completed by an editor
        traces.sql("SELECT count(*) FROM kernels")
        traces.pivot("nccl-share", rows=["model"], columns=["gpus"], value="kernel_time_pct", agg="sum")
        traces.advise(min_pct=5)
        traces.plot("roofline", "roofline.html").note
        traces.report("report.html")
        traces.serve()                                   # the same live, with questions and SQL
        traces.study("nvprof-imagenet", "study.html")
        traces.trace("trace.json.gz")
        traces.warnings                                  # what the raw files lost
        traces.answer("kernel-share").notes              # what is left out of an answer

    analyze.compare("before/", "after/", fail_if=["kernel_time > 5%"]).failures
    analyze.ingest("runs/", store="study/")
    analyze.ingest("runs/", store="s3://traces/study", shard="0/32")   # one of many machines; then
    analyze.commit("s3://traces/study"), analyze.compact("s3://traces/study")
    analyze.catalog(), analyze.tables(), analyze.studies(), analyze.cache()

Whatever the user can mend is an `analyze.InputError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from analyze.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from analyze.comparison import Comparison
    from analyze.flame import Drawn
    from analyze.info import Info
    from analyze.notebook import Answer
    from analyze.query.blocks import Block
    from analyze.query.query_files import Query
    from analyze.questions import Queries
    from analyze.report.build import Progress as ReportProgress
    from analyze.report.files import Drawing
    from analyze.report.page import Claim
    from analyze.store.cache import Contents
    from analyze.store.compact import Compacted
    from analyze.store.ingest import IngestResult, Progress
    from analyze.trace.export import Exported
    from analyze.trace.moments import Moment
    from schemas.tables import Table

__all__ = [
    "InputError",
    "Traces",
    "cache",
    "catalog",
    "commit",
    "compact",
    "compare",
    "ingest",
    "open",
    "studies",
    "tables",
]

Paths = str | PathLike[str]


class Traces:
    """Stores, run folders or raw files, opened for questions. Made by `open`.

    What one question computes (the call tree, building blocks) is there for the next ones with the same `by`, `where`
    and `profiler`. Several threads may ask. Closed at the end of a `with`, by `close`, or when nothing refers to it.

    Options of several methods: `where`: SQL over the columns of `runs` and `rank`: what to look at. `profiler`: torch,
    nsys, nvprof, ncu or none: only what was recorded under it; all; by default one timing pass of each workload that
    has several. Methods that return an Arrow table have a twin that returns the `Answer`, which has the documented
    columns with their units, and `notes`. All raise InputError for what the user can mend.
    """

    def __init__(self, paths: Sequence[Path], queries: Sequence[Path] = (), progress: Progress | None = None):
        from analyze.query.engines import Engines
        from analyze.store.cache import open_stores
        from analyze.store.urls import url_of

        self._given = [url_of(p) or str(p) for p in paths]
        self.read_as: list[str] = []
        """Which runs and ranks the raw files were taken for that had to be ingested now, in sentences."""
        self.stores, self.warnings = open_stores(paths, progress, self.read_as.append)
        self.query_folders = tuple(queries)
        self.engines = Engines(self.stores)

    def close(self) -> None:
        """Close the stores; there are no questions any more, and rows that were not taken are gone."""
        self.engines.close()
        for store in self.stores:
            store.release()

    def __enter__(self) -> Traces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"analyze.open({', '.join(map(repr, self._given))})"

    def _repr_html_(self) -> str:
        return self.info()._repr_html_()

    def query(
        self,
        name: str,
        by: Sequence[str] = (),
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
        profiler: str | None = None,
    ) -> pa.Table:
        """Answer a query by name (`catalog` lists them) as an Arrow table.

        `by`: columns of `runs` (or `rank`) to group by, and what a query's own parameter `per` can tell apart
        (dimension, group). `params`: parameters of the query. `sort`: column names, `-` in
        front for descending. `limit`: at most so many rows. `select`: only these columns, in this order.
        """
        return self.answer(name, by, where, params, sort, limit, select, profiler).arrow()

    def answer(
        self,
        name: str,
        by: Sequence[str] = (),
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        select: Sequence[str] = (),
        profiler: str | None = None,
    ) -> Answer:
        """As `query`, with the documented columns, and notes; the rows are computed when they are taken."""
        from analyze.notebook import Answer
        from analyze.query.needs import why_empty

        query, given = self._find(name), self._given
        by, texts = query.own_by(by, _texts(params))
        engine = self.engines.get(by, where, profiler, query)

        def draw(answer: Answer, figure: str | None, title: str | None) -> Drawing:
            from analyze.report.files import draw

            return draw(
                answer, engine, given, query, texts,
                by=by, where=where, profiler=profiler, figure=figure, title=title,
            )  # fmt: skip

        answer = Answer(engine.query(query, texts, sort, limit, select), draw)
        if limit != 0:
            answer.why = lambda: why_empty(engine, query, texts)
        runs = len(engine.run_ids)
        if query.mixes(by, runs, [c.name for c in answer.columns]):
            answer.hint = f"{runs} runs taken together; --by run_id (or model, ...) tells them apart"
        return answer

    @property
    def queries(self) -> Queries:
        """The queries as functions that an editor completes: `traces.queries.kernel_share(group="family")`.

        Called, `traces.queries()`, it lists them with what these recordings lack for each.
        """
        from analyze.questions import Queries

        return Queries(self)

    def info(self) -> Info:
        """What was found: how the runs were recorded, what they lack, which queries they can answer."""
        from analyze.info import inspect

        return inspect(self.engines, self.query_folders)

    def sql(self, statement: str, where: str | None = None, profiler: str | None = None) -> pa.Table:
        """Answer one SELECT over the tables (`tables` documents them) as an Arrow table."""
        return self.sql_answer(statement, where, profiler).arrow()

    def sql_answer(self, statement: str, where: str | None = None, profiler: str | None = None) -> Answer:
        """As `sql`, with notes; the rows are computed when they are taken."""
        from analyze.notebook import Answer

        return Answer(self.engines.get(where=where, profiler=profiler).sql(statement))

    def flame(
        self,
        output: Paths,
        tree: str = "op",
        time: str = "gpu",
        where: str | None = None,
        profiler: str | None = None,
    ) -> Drawn:
        """Write the call trees as a flame graph, as `analyze flame`; see `analyze.flame.flame`."""
        from analyze.flame import flame

        return flame(self.engines.get(where=where, profiler=profiler), Path(output), tree=tree, time=time)

    def moment(self, at: str, where: str | None = None, profiler: str | None = None) -> Moment:
        """The place in time that `analyze trace --at` names: gap:3, a finding of `advise`, or ms from the start."""
        from analyze.trace.moments import find_moment

        return find_moment(self.engines.get(where=where, profiler=profiler), at)

    def plot(
        self,
        name: str,
        output: Paths | None = None,
        by: Sequence[str] = (),
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        profiler: str | None = None,
        figure: str | None = None,
        title: str | None = None,
    ) -> Drawing:
        """Draw the answer to a query, which a notebook shows; `output`: write it, too, to a .svg, .png or .html file.

        `figure`: another one than the query declares. The result's `note` says what of the recordings is left out.
        Needs the extra `plot`.
        """
        from analyze.plots.drawing import output_format

        if output is not None:
            output_format(Path(output))
        drawing = self.answer(name, by, where, params, profiler=profiler).plot(figure, title)
        if output is not None:
            drawing.save(output)
        return drawing

    def report(
        self,
        output: Paths,
        compare: Traces | None = None,
        by: Sequence[str] = (),
        where: str | None = None,
        profiler: str | None = None,
        title: str | None = None,
        progress: ReportProgress | None = None,
    ) -> None:
        """Write one HTML page about the recordings; with `compare`, about what changed from them to those.

        `by`: columns of `runs` that tell several runs apart. Needs the extra `plot`.
        """
        from analyze.report.files import write_report

        after = (compare.stores, compare._given) if compare else None
        write_report(
            self.stores, self._given, Path(output), after=after, by=by, where=where, profiler=profiler, title=title,
            progress=progress,
        )  # fmt: skip

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: bool = False,
        time_limit: float = 60.0,
        where: str | None = None,
        profiler: str | None = None,
        show: Callable[[str], object] = print,
    ) -> None:
        """Serve the report, the questions and a box for SQL as pages, until the process is interrupted.

        `host`, `port`: where to listen; 0 is a free port, by default 8321 or else a free one. `token`: ask who opens a
        page for one, as is always done where other machines reach it. `time_limit`: seconds after which a question is
        ended. `show` is given the address to open. Needs the extra `serve`.
        """
        from analyze.serve.server import serve

        serve(
            self.stores, self._given, show, folders=self.query_folders, host=host, port=port, token=token,
            time_limit=time_limit, where=where, profiler=profiler,
        )  # fmt: skip

    def study(
        self, name: Paths, output: Paths, where: str | None = None, progress: ReportProgress | None = None
    ) -> list[Claim]:
        """Write the report of a study as one HTML page: its tables and figures, what it printed, which claims hold.

        `name`: one of `studies`, or a folder with a `report.toml`. Returns the claims with their verdicts. Needs the
        extra `plot`.
        """
        from analyze.report.study import write_study

        return write_study(str(name), self.stores, self._given, Path(output), where=where, progress=progress)

    def pivot(
        self,
        name: str,
        rows: Sequence[str],
        value: str,
        columns: Sequence[str] = (),
        agg: str | None = None,
        filter: str | None = None,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        profiler: str | None = None,
    ) -> pa.Table:
        """One measure of a query as rows x columns of runs, an Arrow table.

        `rows`, `columns`: columns of `runs` (or `rank`) or of the query. `value`: the query's column in the cells.
        `agg`: sum, avg, min or max, where a cell has several values. `filter`: SQL over the query's result: which rows.
        """
        return self.pivot_answer(name, rows, value, columns, agg, filter, where, params, profiler).arrow()

    def pivot_answer(
        self,
        name: str,
        rows: Sequence[str],
        value: str,
        columns: Sequence[str] = (),
        agg: str | None = None,
        filter: str | None = None,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        profiler: str | None = None,
    ) -> Answer:
        """As `pivot`, with the units of the columns, and notes."""
        from analyze.notebook import Answer
        from analyze.pivot import pivot

        options = {"agg": agg, "filter": filter, "where": where, "profiler": profiler}
        return Answer(pivot(self.engines, self._find(name), rows, columns, value, _texts(params), **options))

    def advise(self, where: str | None = None, min_pct: float = 1.0, profiler: str | None = None) -> pa.Table:
        """What costs each run time, the largest saving first, as an Arrow table (`analyze.advise.COLUMNS`).

        `min_pct`: leave out what could save less of the run's time. Savings are upper bounds, in ns and in % of the
        mean span of the run's GPUs.
        """
        return self.advise_answer(where, min_pct, profiler).arrow()

    def advise_answer(self, where: str | None = None, min_pct: float = 1.0, profiler: str | None = None) -> Answer:
        """As `advise`, with notes; a row holds the fields of an `analyze.advise.Advice`."""
        from analyze import advise, health
        from analyze.notebook import Answer

        engine = self.engines.get(where=where, profiler=profiler)
        found = Answer(advise.answer(advise.advise(engine, min_pct), engine.note))
        found.cautions = tuple(f.text for f in health.cautions(health.read(engine)))
        return found

    def trace(
        self,
        output: Paths,
        where: str | None = None,
        from_ms: float | None = None,
        to_ms: float | None = None,
        counters: bool = True,
        critical_path: bool = False,
        profiler: str | None = None,
    ) -> Exported:
        """Write one run as a Chrome trace for the Perfetto UI, gzip-compressed if the name ends in .gz.

        `where` must leave one run. `from_ms`, `to_ms`: a window, in ms from the first event. `counters`: add tracks of
        queue depth, copy bandwidth, GPU busy and memory. `critical_path`: draw the critical path over it. Returns what
        was written, with a note of what was left out.
        """
        from analyze.trace.export import export

        return export(
            self.engines.get(where=where, profiler=profiler),
            Path(output),
            from_ms=from_ms,
            to_ms=to_ms,
            counters=counters,
            critical_path=critical_path,
        )

    def _find(self, name: str) -> Query:
        from analyze.query.query_files import find

        return find(name, self.query_folders)


def open(*paths: Paths, queries: Sequence[Paths] = (), progress: Progress | None = None) -> Traces:
    """Open stores, run folders, folders of them, or raw files; raw ones are ingested into the cache first.

    `queries`: further folders of query files. `progress`: is told how the ingest gets on. Raises InputError for what
    cannot be read; `Traces.warnings` say what was lost of the rest.
    """
    return Traces([Path(p) for p in paths], [Path(q) for q in queries], progress)


def ingest(
    *paths: Paths,
    store: Paths,
    jobs: int | None = None,
    as_one_run: bool = False,
    again: bool = False,
    shard: str | None = None,
    launcher: str | None = None,
    shards: int | None = None,
    launcher_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Read run folders, folders of them, or raw trace files into a Parquet store: a folder or URL, made if need be.

    `jobs`: processes; by default one per CPU. `as_one_run`: the bare files are the ranks of one run; their names say
    which. `again`: read unchanged files, too. `shard`: as "3/8", only that share of the raw files (from 0 on), without
    a lock: `commit` makes what all shards wrote visible. `launcher`: slurm, local, dask or dask:ADDRESS does all
    `shards` (by default one for each file, 256 at most) and the commit, under `launcher_options` of submitit or dask.
    Returns the runs ingested and unchanged, rows, bytes, what the files were read as, and warnings. Raises InputError.
    """
    from analyze.store.discover import discover
    from analyze.store.ingest import ingest as run_ingest
    from analyze.store.remote import store_at
    from analyze.store.shards import ingest_shard, parse_share

    _checked_jobs(jobs)
    share = parse_share(shard) if shard is not None else None
    target = store_at(store)
    found = discover([Path(p) for p in paths], target.digests(), as_one_run)
    if launcher is not None:
        from analyze.store.launchers import launch

        if share is not None:
            raise InputError("ingest: either --shard or --launcher")
        result = launch(found, target, launcher, shards, _texts(launcher_options), jobs, again)
    elif shards is not None or launcher_options:
        raise InputError("ingest: --shards and --launcher-option go with --launcher")
    elif share is None:
        result = run_ingest(found, target, jobs, progress, again)
    else:
        result = ingest_shard(found, target, share, jobs, progress, again)
    result.warnings[:0] = found.warnings
    return result


def slurm_script(
    *paths: Paths,
    store: Paths,
    jobs: int | None = None,
    as_one_run: bool = False,
    again: bool = False,
    shards: int | None = None,
    launcher_options: Mapping[str, object] | None = None,
) -> str:
    """The text of a script for `sbatch` that does what `ingest` does by launcher "slurm"; nothing is submitted."""
    from analyze.store.discover import discover
    from analyze.store.launchers import script

    given = [Path(p) for p in paths]
    flags = [*(["--jobs", str(jobs)] if jobs else []), *["--as-one-run"] * as_one_run, *["--again"] * again]
    return script(given, Path(store), discover(given, None, as_one_run), shards, _texts(launcher_options), flags)


def commit(store: Paths, allow_missing: bool = False) -> IngestResult:
    """Make what `ingest` with `shard` wrote into a store visible, all of it or nothing.

    `allow_missing`: without the raw files of shards that are not there, as a warning and `runs.warnings` then say.
    Returns what an ingest of the whole does. Raises InputError for shards that are missing or of other inputs.
    """
    from analyze.store.commit import commit as run_commit
    from analyze.store.remote import existing_store

    return run_commit(existing_store(store), allow_missing)


def compact(store: Paths, jobs: int | None = None) -> Compacted:
    """Put the small Parquet files of a store together, run by run; who reads it meanwhile keeps what was there.

    A table of a run then has files of 128 to 512 MB, or one, in which ranks and devices are sorted. `jobs`: processes;
    by default one per CPU. Returns which runs changed, and the number of files before and after. Raises InputError.
    """
    from analyze.store.compact import compact as run_compact
    from analyze.store.remote import existing_store

    return run_compact(existing_store(store), _checked_jobs(jobs))


def compare(
    a: Paths | Traces,
    b: Paths | Traces,
    level: str = "kernel",
    time: str = "gpu",
    where: str | None = None,
    where_a: str | None = None,
    where_b: str | None = None,
    per_step: bool | None = None,
    tolerance: float = 1.0,
    fail_if: Sequence[str] = (),
    sort: str | None = None,
    limit: int | None = None,
    profiler: str | None = None,
    flame: Paths | None = None,
) -> Comparison:
    """Compare two recordings: what was added, removed and changed, and whether that is too much.

    `where`: SQL over the columns of `runs` and `rank`, for both sides; `where_a`, `where_b` for one of them.
    `profiler`: which pass, as in `Traces`. The others: see `analyze.comparison.compare`. Returns the rows (`table` is
    an Arrow table, times in ns, shares in %), notes, and the conditions of `fail_if` that hold. Raises InputError.
    """
    from analyze.comparison import compare as run_compare
    from analyze.notebook import Answer

    with ExitStack() as stack:
        sides = [t if isinstance(t, Traces) else stack.enter_context(open(t)) for t in (a, b)]
        result = run_compare(
            sides[0].engines.get(where=[where, where_a], profiler=profiler),
            sides[1].engines.get(where=[where, where_b], profiler=profiler),
            level=level,
            time=time,
            per_step=per_step,
            tolerance=tolerance,
            fail_if=fail_if,
            sort=sort,
            limit=limit,
            flame=Path(flame) if flame is not None else None,
        )
        read_now = [t for t in sides if t not in (a, b)]
        warnings = tuple(w for t in read_now for w in t.warnings)
        return replace(result, answer=Answer(result.answer), warnings=warnings)


def catalog(queries: Sequence[Paths] = ()) -> dict[str, Query]:
    """All queries by name, built-in ones and those of further folders, with their documentation, parameters and SQL."""
    from analyze.query.query_files import catalog as all_queries

    return all_queries([Path(q) for q in queries])


def studies() -> dict[str, str]:
    """The studies that `Traces.study` knows by name, with their titles: in `./studies`, and those of the package."""
    from analyze.report import study_files

    return {name: study_files.load(path).title for name, path in study_files.by_name().items()}


def tables(name: str | None = None, blocks: bool = False) -> dict[str, Table | Block]:
    """The tables and their columns by name; with `blocks`, the building blocks of queries and what they define instead.

    With `name`, that table or block alone, or the block of that view or macro without the others. Raises InputError if
    there is none.
    """
    from analyze.query.blocks import built_in, home
    from schemas.tables import TABLES

    if blocks and name is not None:
        raise InputError("tables: either a name or --blocks")
    if name is None:
        return dict(built_in()) if blocks else dict(TABLES)
    if name in TABLES:
        return {name: TABLES[name]}
    if name in built_in():
        return {name: built_in()[name]}
    if name.lower() in home():
        block, definition = home()[name.lower()]
        return {block.name: replace(block, definitions=(definition,))}
    from difflib import get_close_matches

    near = get_close_matches(name, [*TABLES, *built_in(), *home()], 3)
    instead = f"did you mean {', '.join(dict.fromkeys(near))}?" if near else f"there are {', '.join(TABLES)}"
    raise InputError(f"there is no table {name!r}, nor a block or anything that one defines; {instead}")


def cache(clear: bool = False, max_size: str | int | None = None) -> Contents:
    """What was made of raw files that were opened directly.

    `clear`: first remove all that is not in use. `max_size`: first remove what was not used for longest, down to so
    many bytes, or a text such as "5GB". Raises InputError.
    """
    from analyze.store.cache import contents

    return contents(clear, max_size)


def _checked_jobs(jobs: int | None) -> int | None:
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: must be 1 at least")
    return jobs


def _texts(params: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (params or {}).items()}
