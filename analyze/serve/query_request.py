"""Read a query and its options from the address of a page, and write its answer to a file for download."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import mkstemp

from analyze.errors import InputError
from analyze.query.query_declaration import Query
from analyze.query.result import Result
from analyze.render import write
from analyze.serve.addresses import ONLY, PageSelection

SHOWN_ROWS = 200
"""Default number of rows of a table."""
MOST_SHOWN_ROWS = 5_000
MOST_SAVED_ROWS = 200_000
MOST_SAVED_BYTES = 256_000_000
"""Limit of an answer as a file."""
FORMS = {"csv": "text/csv", "json": "application/json", "parquet": "application/vnd.apache.parquet"}

_OPTIONS = ("run", "where", "profiler", "by", "filter", "sort", "rows", "part")
"""Parameters of addresses that are not parameters of the query."""


@dataclass(frozen=True)
class QueryRequest:
    """A query with its parameters and options."""

    query: Query
    selection: PageSelection
    params: dict[str, str]
    by: tuple[str, ...]
    filter: str
    sort: str
    rows: int
    only: dict[str, str]
    """Show only rows with these values, by column."""

    @classmethod
    def of(cls, query: Query, given: Mapping[str, str]) -> QueryRequest:
        """Read the parameters of an address. Raises InputError for unknown or invalid ones."""
        defaults = {p.name: p for p in query.params}
        params = {k: v for k, v in given.items() if k not in _OPTIONS and not k.startswith(ONLY)}
        # A form sends every field: drop those with default values.
        params = {
            k: v
            for k, v in params.items()
            if k not in defaults or (v != defaults[k].default and (v or defaults[k].type in ("text", "regex")))
        }
        names = [name.strip() for name in given.get("by", "").split(",") if name.strip()]
        by, params = query.move_by_to_per(names, params)
        query.bind(params)
        rows = given.get("rows") or str(SHOWN_ROWS)
        if not rows.isdecimal() or not 1 <= int(rows) <= MOST_SHOWN_ROWS:
            raise InputError(f"rows must be from 1 to {MOST_SHOWN_ROWS:,}, not {rows!r}")
        only = {k.removeprefix(ONLY): v for k, v in given.items() if k.startswith(ONLY)}
        filter, sort = given.get("filter", "").strip(), given.get("sort", "").strip()
        return cls(query, PageSelection.of(given), params, by, filter, sort, int(rows), only)

    def value(self, name: str) -> str:
        """Return the value of a parameter."""
        return self.params.get(name, next(p.default for p in self.query.params if p.name == name))


def saved(answer: Result, form: str, folder: str, otherwise: str) -> Path:
    """Write the answer to a file in the folder. Raises InputError if too large; `otherwise`: what to do instead."""
    answer.cut(MOST_SAVED_ROWS + 1)
    handle, name = mkstemp(suffix=f".{form}", dir=folder)
    os.close(handle)
    path = Path(name)
    try:
        write(answer, form, path, StringIO())
        if (answer.count or 0) > MOST_SAVED_ROWS or path.stat().st_size > MOST_SAVED_BYTES:
            most = f"{MOST_SAVED_ROWS:,} rows or {MOST_SAVED_BYTES // 1_000_000} MB"
            raise InputError(f"the answer has more than {most}: {otherwise}")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
