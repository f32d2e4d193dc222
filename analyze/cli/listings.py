"""Listings of queries, tables and modules as rows, for --format and -o."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyze.cli.shared_options import print_answer

if TYPE_CHECKING:
    from analyze.query.modules import Module
    from analyze.query.query_declaration import Query
    from analyze.query.result import Result
    from schemas.table_declaration import Table


def queries(catalog: Mapping[str, Query]) -> Result:
    """Return a row for each query, in the order of the list."""
    known = sorted(catalog.values(), key=lambda q: (q.group, q.name))
    rows = [(q.name, q.group, q.question, q.defaults, q.needs) for q in known]
    return _answer("query", ("query", "group", "question", "parameters", "needs"), rows)


def query(asked: Query, params: Mapping[str, str]) -> Result:
    """Return the documentation of a query as rows. Raises InputError for bad parameters."""
    sql, _, choices = asked.bind(dict(params))
    rows: list[tuple[Any, ...]] = [("question", asked.name, None, None, None, asked.question)]
    texts = (("description", asked.description), ("needs", asked.needs))
    rows += [(kind, None, None, None, None, text) for kind, text in texts if text]
    rows += [("parameter", p.name, None, p.default, p.takes, p.doc) for p in asked.params]
    rows += [("column", c.name, c.unit, None, None, c.doc) for c in asked.result_columns(choices)]
    rows.append(("sql", asked.path.name, None, None, None, sql))
    return _answer("query", ("kind", "name", "unit", "default", "takes", "doc"), rows)


def tables(shown: Mapping[str, Table | Module]) -> Result:
    """Return a row for each column of tables, views and table macros; a scalar macro has one row."""
    from analyze.query.modules import Module, columns_of

    rows: list[tuple[Any, ...]] = []
    for one in shown.values():
        if not isinstance(one, Module):
            rows += [(None, one.name, c.name, c.type, c.unit, c.doc) for c in one.columns]
            continue
        for d in one.definitions:
            rows += [(one.name, d.shown, c.name, None, c.unit, c.doc) for c in columns_of(d)] or [
                (one.name, d.shown, None, None, None, d.doc)
            ]
    return _answer("tables", ("module", "table", "column", "type", "unit", "doc"), rows)


def modules(shown: Mapping[str, Table | Module]) -> Result:
    """Return a row for each view and macro of the modules."""
    from analyze.query.modules import Module

    found = [one for one in shown.values() if isinstance(one, Module)]
    rows = [(b.name, d.shown, d.doc) for b in found for d in b.definitions]
    return _answer("tables", ("module", "defines", "doc"), rows)


def show(
    print_text: Callable[[], None], rows: Callable[[], Result], form: str, output: Path | None, wide: bool
) -> None:
    """Print a listing, or write it as rows."""
    from analyze.render import to_stdout

    if form == "table" and output is None:
        to_stdout(print_text, sys.stdout)
    else:
        print_answer(rows(), form, output, wide)


def _answer(command: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Result:
    from analyze.query.query_declaration import ResultColumn
    from analyze.query.result import row_result

    return row_result([ResultColumn(name, "text", "") for name in names], rows, command)
