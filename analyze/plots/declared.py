"""Read the figure that the header of a query declares: `-- @plot bars x=total_ns y=name color=family`.

The first word is the kind, a module of `analyze.plots.kinds`. The others are its options, `name=value`, with commas
between several values. A kind defines `OPTIONS`, which documents them, and `draw(rows, options, run_query)`. A kind
with `SUMS` also has the option `per=step,gpu` or `per=step,rank`: its times are sums over steps and GPUs or ranks, and
are drawn as means over them.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

from analyze.errors import InputError
from analyze.plots import kinds, per
from analyze.plots.figure import Figure, Rows, RunQuery
from analyze.query.query_declaration import Query

KINDS = tuple(m.name for m in pkgutil.iter_modules(kinds.__path__))
"""Kinds of figures."""


class Declaration(NamedTuple):
    """A kind of figure and its options."""

    kind: str
    options: dict[str, str]
    per: tuple[str, ...] = ()
    """What its sums are drawn as means over."""

    @property
    def columns(self) -> list[str]:
        """Return the columns of the answer that the options name."""
        known = import_module(f"{kinds.__name__}.{self.kind}").OPTIONS
        return [n for k, v in self.options.items() if known[k].startswith("column") for n in v.split(",")]


def parse(text: str, where: str) -> Declaration:
    """Read a declaration. Raises InputError that starts with `where`."""
    kind, *options = text.split()
    if kind not in KINDS:
        raise InputError(f"{where}: unknown figure {kind!r}; expected one of {', '.join(KINDS)}")
    module = import_module(f"{kinds.__name__}.{kind}")
    known = module.OPTIONS
    found: dict[str, str] = {}
    parts: tuple[str, ...] = ()
    for option in options:
        name, equals, value = option.partition("=")
        if name == "per" and hasattr(module, "SUMS"):
            parts = per.parts(value, where)
            continue
        if not equals or not value or name not in known:
            raise InputError(f"{where}: {kind} has no option {option!r}; it has {', '.join(f'{n}=' for n in known)}")
        found[name] = value
    return Declaration(kind, found, parts)


def of_query(query: Query, params: Mapping[str, str], figure: str | None = None, by: Sequence[str] = ()) -> Declaration:
    """Return the figure of a query with its parameters, or `figure` instead. Raises InputError if there is none.

    `by`: columns of runs that the answer has in addition.
    """
    text = figure or query.plot
    if not text.strip():
        raise InputError(f"query {query.name} has no figure; choose one: --figure 'bars x=COLUMN y=COLUMN'")
    _, _, choices = query.bind(dict(params))
    declaration = parse(query.fill(text, choices), f"query {query.name}")
    known = {c.name for c in query.result_columns(choices)} | set(by)
    for name in declaration.columns:
        if name not in known and not re.fullmatch(r"run_id|family", name):
            raise InputError(
                f"query {query.name}: the figure uses {name}, which is not a column; it has {', '.join(sorted(known))}"
            )
    return declaration


def draw(declaration: Declaration, rows: Rows, run_query: RunQuery, counts: per.Counts | None = None) -> Figure | None:
    """Return the figure of an answer; None without data. `counts`: what its sums are over; None: unknown."""
    if not rows.rows:
        return None
    kind = import_module(f"{kinds.__name__}.{declaration.kind}")
    if declaration.per:
        sums = declaration.options[kind.SUMS].split(",")
        rows = per.divided(rows, sums, declaration.per, counts or per.Counts())
    figure: Figure | None = kind.draw(rows, declaration.options, run_query)
    return figure and replace(figure, notes=(*figure.notes, *rows.said))
