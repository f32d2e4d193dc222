"""Data-quality checks: the rows of the query `health` as sentences for pages and the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from analyze.query.engine import Engine

_NUMBER = re.compile(r"[\d.]*\d")
_FEW = 3
"""Number of runs that are named."""


class Fact(NamedTuple):
    """A row of the query `health`."""

    run_id: str
    rank: int | None
    """The rank that it is about, of several; None where it is about the run."""
    fact: str
    verdict: str
    """ok, note, warning or unknown."""
    value: str
    impact: str | None
    """Which figures it affects, and how; None for none."""

    @property
    def text(self) -> str:
        """The fact as a sentence, without the run."""
        impact = "; " + "; ".join(self.impact.splitlines()) if self.impact else ""
        return f"{self.verdict}: {self.fact}: {self.shown}{impact}"

    @property
    def shown(self) -> str:
        """Its value, with the rank."""
        return self.value if self.rank is None else f"{self.value} (rank {self.rank})"


def read(engine: Engine) -> list[Fact]:
    """All facts about the runs of an engine, run by run; of the facts of ranks, the worst rank's. Raises InputError."""
    from analyze.query.query_files import find

    return of_rows(engine.query(find("health")).rows())


def of_rows(rows: Iterable[Sequence[Any]]) -> list[Fact]:
    """The rows of the query as facts. Of a run of one rank, no rank is named."""
    found = []
    for _, of_run in groupby(rows, key=lambda row: row[0]):
        facts = [Fact(*row) for row in of_run]
        alone = any(f.fact == "ranks" and f.value.startswith("1 ") for f in facts)
        found += [f._replace(rank=None) if alone else f for f in facts]
    return found


def cautions(facts: Sequence[Fact]) -> list[Fact]:
    """Return notes and warnings, warnings first; one that several runs share is returned once."""
    same: dict[tuple[str, str, str | None], list[Fact]] = {}
    for f in facts:
        if f.verdict in ("note", "warning"):
            same.setdefault((f.fact, f.verdict, f.impact), []).append(f)
    runs = {f.run_id for f in facts}
    found = []
    for of in same.values():
        first = of[0]
        if len(of) > 1:
            more = ", ..." if len(of) > _FEW else ""
            named = ", ".join(f.run_id for f in of[:_FEW])
            most = f", at most {_largest(of)}" if (first.impact or "").endswith(" by up to that") else ""
            first = first._replace(value=f"in {len(of)} runs ({named}{more}){most}", rank=None)
        elif len(runs) > 1:
            first = first._replace(value=f"{first.shown} in {first.run_id}", rank=None)
        found.append(first)
    return sorted(found, key=lambda f: f.verdict != "warning")


def _largest(facts: Iterable[Fact]) -> str:
    """The value of the largest number, without its sign: what `that` stands for where runs share a sentence."""

    def number(value: str) -> float:
        found = _NUMBER.match(value)
        return float(found[0]) if found else 0.0

    return max((f.value.lstrip("+-") for f in facts), key=number)
