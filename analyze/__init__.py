"""Trace analysis over raw profiler outputs: raw files in, Parquet in the middle, SQL out.

The Python API mirrors the command line::

    import analyze
    traces = analyze.open("runs/")
    traces.query("kernel-share", by=["model"])           # Arrow table
    traces.query("gpu-busy").to_pandas()
    traces.sql("SELECT count(*) FROM kernels")
    traces.pivot("nccl-share", rows=["model"], columns=["gpus"], value="kernel_time_pct", agg="sum")
    analyze.compare("before/", "after/", level="family") # Arrow table
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from analyze.query.answer import Answer

__all__ = ["Traces", "compare", "open"]


class Traces:
    """Stores, run folders or raw files, opened for questions. Made by `open`."""

    def __init__(self, paths: Sequence[Path], queries: Sequence[Path] = ()):
        from analyze.store.cache import open_stores

        self.stores, self.ingested = open_stores(paths)
        self.query_folders = tuple(queries)

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
        """Answer a query by name (`analyze query` lists them) as an Arrow table.

        `by`: columns of `runs` (or `rank`) to group by. `where`: SQL over the columns of `runs` and `rank`.
        `params`: parameters of the query. `sort`: column names, `-` in front for descending. `select`: only these
        columns, in this order. `profiler`: torch, nsys, nvprof, ncu or none: only what was recorded under it; all; by
        default one timing pass of each workload that has several (`Answer.note` says which). Raises InputError.
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
        """As `query`, with the documented columns and without a conversion of the rows."""
        from analyze.query.engine import Engine
        from analyze.query.query_files import find

        query = find(name, self.query_folders)
        parameters = {k: str(v) for k, v in (params or {}).items()}
        engine = Engine(self.stores, by, where, profiler, query.prefer)
        return engine.query(query, parameters, sort, limit, select)

    def sql(self, sql: str, where: str | None = None, profiler: str | None = None) -> pa.Table:
        """Answer one SELECT over the tables (`analyze tables`) as an Arrow table. Raises InputError."""
        from analyze.query.engine import Engine

        return Engine(self.stores, where=where, profiler=profiler).sql(sql).arrow()

    def advise(self, where: str | None = None, min_pct: float = 1.0, profiler: str | None = None) -> pa.Table:
        """What costs each run time, the largest saving first, as an Arrow table; see `analyze.advise.advise`."""
        from analyze import advise

        return advise.answer(advise.advise(self.stores, where, min_pct, profiler)).arrow()

    def write_trace(
        self,
        output: str | PathLike[str],
        where: str | None = None,
        from_ms: float | None = None,
        to_ms: float | None = None,
        counters: bool = True,
        critical_path: bool = False,
        profiler: str | None = None,
    ) -> None:
        """Write one run as a Chrome trace, as `analyze trace`; see `analyze.trace.export.export`."""
        from analyze.trace.export import export

        export(
            self.stores,
            Path(output),
            where=where,
            from_ms=from_ms,
            to_ms=to_ms,
            counters=counters,
            critical_path=critical_path,
            profiler=profiler,
        )

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
        """One measure of a query as rows x columns of runs, an Arrow table; see `analyze.pivot.pivot`."""
        from analyze.pivot import pivot
        from analyze.query.query_files import find

        query = find(name, self.query_folders)
        parameters = {k: str(v) for k, v in (params or {}).items()}
        options = {"agg": agg, "filter": filter, "where": where, "profiler": profiler}
        return pivot(self.stores, query, rows, columns, value, parameters, **options).arrow()


def open(*paths: str | PathLike[str], queries: Sequence[str | PathLike[str]] = ()) -> Traces:
    """Open stores, run folders, folders of them, or raw files; raw ones are ingested into the cache first.

    `queries`: further folders of query files. Raises analyze.errors.InputError for what cannot be read.
    """
    return Traces([Path(p) for p in paths], [Path(q) for q in queries])


def compare(
    a: str | PathLike[str] | Traces,
    b: str | PathLike[str] | Traces,
    level: str = "kernel",
    time: str = "gpu",
    where: str | None = None,
    where_a: str | None = None,
    where_b: str | None = None,
    per_step: bool | None = None,
    tolerance: float = 1.0,
    sort: str | None = None,
    limit: int | None = None,
    profiler: str | None = None,
) -> pa.Table:
    """Compare two recordings, as `analyze compare` does: an Arrow table; see `analyze.comparison.compare`.

    Times are in ns, shares in %. Raises analyze.errors.InputError.
    """
    from analyze.comparison import compare as run_compare

    sides = [(t if isinstance(t, Traces) else open(t)).stores for t in (a, b)]
    return run_compare(
        *sides,
        level=level,
        time=time,
        where=where,
        where_a=where_a,
        where_b=where_b,
        per_step=per_step,
        tolerance=tolerance,
        sort=sort,
        limit=limit,
        profiler=profiler,
    ).answer.arrow()
