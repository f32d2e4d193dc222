"""Shell completion of query names, parameters and their values, columns and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from analyze.query.query_declaration import Query

Completions = Iterator[tuple[str, str]]
"""Completions, each with a description for shells that show one."""


def queries(incomplete: str) -> Completions:
    """Complete names of queries."""
    from analyze.query.query_files import catalog

    for name, query in sorted(catalog().items()):
        if name.startswith(incomplete):
            yield name, query.question


def params(ctx: typer.Context, incomplete: str) -> Completions:
    """Complete the parameters of the query in the command line: first `name=`, then `name=value`."""
    query = _query(ctx)
    name, equals, value = incomplete.partition("=")
    for p in query.params if query else ():
        if equals and p.name == name:
            yield from ((f"{name}={choice}", p.doc) for choice in p.choices or (p.default,) if choice.startswith(value))
        elif not equals and p.name.startswith(name):
            yield f"{p.name}=", p.doc


def run_columns(incomplete: str) -> Completions:
    """Complete a comma-separated list of columns of runs, ranks and GPU work."""
    from analyze.query.selection import GPU_COLUMNS, RANK_COLUMNS
    from analyze.stored_tables import TABLES

    others = [(name, doc) for name, (_, doc) in (RANK_COLUMNS | GPU_COLUMNS).items()]
    yield from _more([(c.name, c.doc) for c in TABLES["runs"].columns] + others, incomplete)


def result_columns(ctx: typer.Context, incomplete: str) -> Completions:
    """Complete a comma-separated list of columns of the query in the command line; `-` may precede a column."""
    if query := _query(ctx):
        choices = {p.name: p.default for p in query.params if p.choices}
        yield from _more([(c.name, c.doc) for c in query.result_columns(choices)], incomplete)


def tables(incomplete: str) -> Completions:
    """Complete names of tables."""
    from analyze.stored_tables import TABLES

    yield from ((name, f"a row is {t.row}") for name, t in TABLES.items() if name.startswith(incomplete))


def launchers(incomplete: str) -> Completions:
    """Complete names of launchers."""
    known = {"slurm": "an array of tasks, by submitit", "local": "the same here", "dask": "workers of dask.distributed"}
    yield from ((name, doc) for name, doc in known.items() if name.startswith(incomplete))


def named_query(words: Iterable[str]) -> Query | None:
    """Return the first built-in query that a word names."""
    from analyze.query.query_files import catalog

    known = catalog()
    return next((known[word] for word in words if word in known), None)


def _query(ctx: typer.Context) -> Query | None:
    # During completion, typer may not have assigned the arguments to their names yet.
    return named_query([ctx.params.get("name") or "", *ctx.args])


def _more(names: Iterable[tuple[str, str]], incomplete: str) -> Completions:
    before, comma, last = incomplete.rpartition(",")
    sign = "-" if last.startswith("-") else ""
    there = {n.lstrip("-") for n in before.split(",")}
    for name, doc in names:
        if name.startswith(last.removeprefix("-")) and name not in there:
            yield f"{before}{comma}{sign}{name}", doc
