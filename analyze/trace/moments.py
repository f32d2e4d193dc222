"""The moment at which --at opens a trace: a time, a row of `gaps`, or the longest stretch of a finding."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from analyze.errors import InputError
from analyze.finding_files import findings
from analyze.query.query_files import find
from analyze.trace.opening import TraceView

if TYPE_CHECKING:
    from analyze.query.engine import Engine
    from analyze.trace.export import Exported

_AROUND_NS = 10_000
"""Least time shown before and after a moment; a longer moment has its own duration shown around it."""


class Moment(NamedTuple):
    """A half-open interval in ns, on the clock of the recording; `from_zero`: from the first event of the trace."""

    start_ns: int
    end_ns: int
    from_zero: bool = False

    def within(self, trace: Exported) -> TraceView:
        """Return the part of a trace to show: the moment with time before and after it."""
        zero = 0 if self.from_zero else trace.base_ns
        margin = max(self.end_ns - self.start_ns, _AROUND_NS)
        first, last = trace.first_ns - trace.base_ns, trace.last_ns - trace.base_ns
        start = min(max(self.start_ns - zero - margin, first), last)
        return TraceView(start, max(start, min(self.end_ns - zero + margin, last)))


def find_moment(engine: Engine, text: str) -> Moment:
    """Return the moment that --at names: `gap:3` (row 3 of `gaps`), a finding of `advise`, or ms from the first event.

    Raises InputError if there is none.
    """
    if gap := re.fullmatch(r"gap:([1-9]\d{0,5})", text):
        return _gap(engine, int(gap[1]))
    names = [f.name for f in findings()]
    if text in names:
        return _finding(engine, text)
    try:
        at = float(text)
    except ValueError:
        at = float("nan")
    if not isfinite(at) or abs(at) > 1e12:
        raise InputError(f"--at {text}: expected gap:N, a time in ms, or a finding of advise: {', '.join(names)}")
    return Moment(round(at * 1e6), round(at * 1e6), from_zero=True)


def _gap(engine: Engine, number: int) -> Moment:
    answer = engine.query(find("gaps"), {"top": str(number)})
    names = [c.name for c in answer.columns]
    rows = [dict(zip(names, row, strict=True)) for row in answer.rows()]
    if number > len(rows):
        known = f"`analyze query gaps` has rows 1 to {len(rows)}" if rows else "the recording has no gaps"
        raise InputError(f"--at gap:{number}: no such gap; {known}")
    row = rows[number - 1]
    return Moment(row["start_ns"], row["start_ns"] + row["gap_ns"], from_zero=True)


def _finding(engine: Engine, name: str) -> Moment:
    [query] = [f.query for f in findings() if f.name == name]
    rows = engine.query(query, select=("start_ns", "end_ns")).rows()
    rows = [row for row in rows if row[0] is not None]
    if not rows:
        raise InputError(f"--at {name}: not a finding of this recording (`analyze advise` lists them)")
    return Moment(*rows[0])
