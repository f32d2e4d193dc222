"""Trace analysis over raw profiler outputs: raw files in, Parquet in the middle, SQL out.

The Python API mirrors the command line::

    import analyze
    traces = analyze.open("runs/")
    traces.query("kernel-share", by=["model"])           # Arrow table
    traces.query("gpu-busy").to_pandas()
    traces.sql("SELECT count(*) FROM kernels")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from analyze.engine import Answer

__all__ = ["Traces", "open"]


class Traces:
    """Stores, run folders or raw files, opened for questions. Made by `open`."""

    def __init__(self, paths: Sequence[Path], queries: Sequence[Path] = ()):
        from analyze.cache import open_stores

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
    ) -> pa.Table:
        """Answer a query by name (`analyze query` lists them) as an Arrow table.

        `by`: columns of `runs` (or `rank`) to group by. `where`: SQL over the columns of `runs` and `rank`.
        `params`: parameters of the query. `sort`: column names, `-` in front for descending. Raises InputError.
        """
        return self.answer(name, by, where, params, sort, limit).arrow()

    def answer(
        self,
        name: str,
        by: Sequence[str] = (),
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> Answer:
        """As `query`, with the documented columns and without a conversion of the rows."""
        from analyze.engine import Engine
        from analyze.query_files import find

        query = find(name, self.query_folders)
        return Engine(self.stores, by, where).query(query, {k: str(v) for k, v in (params or {}).items()}, sort, limit)

    def sql(self, sql: str, where: str | None = None) -> pa.Table:
        """Answer one SELECT over the tables (`analyze tables`) as an Arrow table. Raises InputError."""
        from analyze.engine import Engine

        return Engine(self.stores, where=where).sql(sql).arrow()


def open(*paths: str | PathLike[str], queries: Sequence[str | PathLike[str]] = ()) -> Traces:
    """Open stores, run folders, folders of them, or raw files; raw ones are ingested into the cache first.

    `queries`: further folders of query files. Raises analyze.errors.InputError for what cannot be read.
    """
    return Traces([Path(p) for p in paths], [Path(q) for q in queries])
