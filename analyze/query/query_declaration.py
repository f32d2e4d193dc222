"""What a query file declares: parameters, columns and other parts of its header (`analyze.query.query_files`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyze.errors import InputError
from analyze.query.literals import text_literal
from analyze.query.selection import RUN_COLUMNS

UNITS = {
    "text", "id", "count", "ns", "s", "%", "B", "B/s", "GB/s", "FLOP", "FLOP/s", "FLOP/B", "images/s", "MHz", "W",
    "°C", "x", "index", "number", "bool", "time",
}  # fmt: skip
"""Units that a @column may have; `text` and `id` are not numbers, `x` is a ratio."""

MOST = 2.0**53
"""Larger numbers are not exact as DOUBLE; no count or time comes near it."""


def finite_number(text: str) -> int | float | None:
    """Return the finite number that a text is; None for other texts."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if -math.inf < value < math.inf else None
    return None


@dataclass(frozen=True)
class Param:
    """A parameter of a query: its choices, or the type and the range of its value, and its default."""

    name: str
    type: str
    """choice, text, regex, number or int."""
    choices: tuple[str, ...]
    default: str
    doc: str
    low: float = -MOST
    high: float = MOST

    @property
    def takes(self) -> str:
        """Its valid values, in words."""
        low = "" if self.low == -MOST else f"{self.low:g}"
        high = "" if self.high == MOST else f"{self.high:g}"
        return "|".join(self.choices) or self.type + (f" {low}..{high}" if low or high else "")

    def parse(self, text: str, query: str) -> str | float | int:
        """Return the value of a user's text. Raises InputError."""
        if self.choices:
            if text not in self.choices:
                raise InputError(f"query {query}: {self.name} must be one of {', '.join(self.choices)}, not {text!r}")
            return text
        if self.type in ("number", "int"):
            value = finite_number(text)
            if value is None or (self.type == "int" and not isinstance(value, int)):
                kind = "a whole number" if self.type == "int" else "a number"
                raise InputError(f"query {query}: {self.name} must be {kind}, not {text!r}")
            if not self.low <= value <= self.high:
                low, high = (f"{int(v)}" if v == int(v) else f"{v:g}" for v in (self.low, self.high))
                raise InputError(f"query {query}: {self.name} must be from {low} to {high}, not {text}")
            return value
        if text != self.default:
            from analyze.query import text_checks

            check = text_checks.check_regex if self.type == "regex" else text_checks.check_text
            check(text, f"query {query}: {self.name}")
        return text


@dataclass(frozen=True)
class ResultColumn:
    """A documented column of a query's result."""

    name: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Drill:
    """The query that a click on a cell opens, with its parameters."""

    column: str
    query: str
    values: tuple[tuple[str, str], ...]
    """Parameters of the query, as the header has them."""


@dataclass(frozen=True)
class OtherAnswer:
    """The answer of another built-in query, which a query reads as a table."""

    name: str
    """Of the table."""
    query: Query
    params: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Query:
    """A query, as its file declares it."""

    name: str
    group: str
    path: Path
    question: str
    description: str
    params: tuple[Param, ...]
    columns: tuple[ResultColumn, ...]
    order: str
    sql: str
    uses: tuple[str, ...] = ()
    gpu_columns: tuple[str, ...] = ()
    """Columns of GPU work that `--by` and `--where` may name."""
    needs: str = ""
    rows_if: str = ""
    """When it has rows, if `needs` is there; empty for always."""
    prefer: str | None = None
    """The profiler whose pass it reads if there are several, or all."""
    disturbed: str = ""
    """Times in its answer that the profiler makes longer; empty for none."""
    full: str = ""
    """Data that it needs and only the full block has; empty if its times may be those of the GPU-only block."""
    main: tuple[str, ...] = ()
    """Columns that a table shows first if not all fit; empty for all."""
    plot: str = ""
    """Its default figure, as the header declares it; empty for none."""
    drills: tuple[Drill, ...] = ()
    answers: tuple[OtherAnswer, ...] = ()

    @property
    def defaults(self) -> str:
        """Its parameters with their defaults."""
        return ", ".join(f"{p.name}={p.default}" for p in self.params)

    def aggregates_runs(self, by: Sequence[str], runs: int, columns: Iterable[str]) -> bool:
        """Return whether a row aggregates several runs, and no column (of `columns`) shows it."""
        return not by and runs > 1 and self.group != "compare" and "run_id" not in columns

    def bind(self, values: dict[str, str]) -> tuple[str, dict[str, str | float | int], dict[str, str]]:
        """Return SQL with the choices filled in, the values to bind, and the choices. Raises InputError."""
        known = {p.name: p for p in self.params}
        for name in values:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise InputError(f"query {self.name} has no parameter {name!r} ({has})")
        parsed = {p.name: p.parse(values.get(p.name, p.default), self.name) for p in self.params}
        choices = {n: str(v) for n, v in parsed.items() if known[n].choices}
        sql = self._with_answers(self.fill(self.sql, choices))
        return sql, {n: v for n, v in parsed.items() if not known[n].choices}, choices

    def _with_answers(self, sql: str) -> str:
        """Put the answers of other queries in front of SQL, as CTEs."""
        ctes = [f"{a.name} AS (\n{a.query.filled(dict(a.params))}\n)" for a in self.answers]
        if not ctes:
            return sql
        own = sql.removeprefix("WITH ")
        return f"WITH {', '.join(ctes)}{',' if own != sql else ''}\n{own}"

    def filled(self, values: Mapping[str, str]) -> str:
        """Return SQL with the values of its parameters filled in. Raises InputError."""
        sql, bound, _ = self.bind(dict(values))
        for name, value in bound.items():
            literal = str(value) if isinstance(value, int | float) else text_literal(value)
            sql = re.sub(rf"\${name}\b", literal.replace("\\", r"\\"), sql)
        return sql

    def move_by_to_per(self, by: Sequence[str], params: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Move the name in `by` that is a choice of the query's parameter `per` to `params`; return both.

        Columns of runs stay in `by`. Raises InputError for two such names.
        """
        per = next((p.choices for p in self.params if p.name == "per"), ())
        own = [b for b in by if b in per and b not in RUN_COLUMNS]
        groups = next((p.choices for p in self.params if p.name == "group"), ())
        for name in by:
            if name in groups and name not in (*own, *RUN_COLUMNS, *self.gpu_columns):
                raise InputError(f"--by groups runs and ranks; use --group {name} to group the rows")
        if len(own) > 1:
            raise InputError(f"--by {','.join(own)}: {self.name} can group by one of them only")
        return tuple(b for b in by if b not in own), {**params, **({"per": own[0]} if own else {})}

    def fill(self, text: str, choices: dict[str, str]) -> str:
        """Replace {param} in a text by the choice."""
        for name, value in choices.items():
            text = text.replace("{" + name + "}", value)
        return text

    def used(self, choices: dict[str, str]) -> tuple[str, ...]:
        """Return the modules that it uses with these choices, and those of the queries whose answers it reads."""
        others = (name for a in self.answers for name in a.query.used(a.query.bind({})[2]))
        return tuple(dict.fromkeys([*(self.fill(name, choices) for name in self.uses), *others]))

    def result_columns(self, choices: dict[str, str]) -> tuple[ResultColumn, ...]:
        """Return the documented columns, with their names for these choices."""
        return tuple(ResultColumn(self.fill(c.name, choices), c.unit, c.doc) for c in self.columns)
