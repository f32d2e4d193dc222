"""Rows of ncu_metrics from printed values: base units, NULL for values that ncu could not measure (`n/a`, `nan`).

Numbers are printed in the language of the system. Its decimal mark is found for the file as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.interface import BATCH_ROWS, TableBatch, batch_schema
from analyze.sources.ncu.numbers import decimal_mark, digits
from schemas.ncu_units import UnitScale, scale

_ROLLUP = re.compile(r"\.(?:sum|avg|min|max|pct|ratio|max_rate)(?:\.|\Z)")
_COUNTED = frozenset(map(scale, ("byte", "inst", "sector", "request", "wavefront", "warp", "thread", "block", "ns")))
_COUNT = re.compile(r"launch__(?:grid|block|thread)\w{0,40}|device__attribute_\w{1,80}|(?:Grid|Block) Size")
"""Metrics without a unit that are integers."""

_FRACTION = re.compile(r"\.(?:avg|pct|ratio|per_)|\b(?:avg|average|mean)\b", re.IGNORECASE)
_OTHER_MARK = {".": ",", ",": "."}
_MARK_NAMES = {".": "point", ",": "comma"}
_MISSING = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "no data"))
METRIC_NAME = re.compile(r"[a-z][a-z0-9]*__")


class Launch(NamedTuple):
    """A launch, in the columns of ncu_metrics."""

    launch_id: int
    pid: int | None
    kernel: str
    device: int | None
    stream: int | None
    grid: str | None
    block: str | None


class _Printed(NamedTuple):
    """A row whose value is still text."""

    launch: Launch
    section: str | None
    metric: str
    unit: UnitScale
    text: str
    said: str | None
    """The message of a rule; None for a metric."""


class MetricRows:
    """Collects rows of ncu_metrics and returns them as batches.

    Numbers such as 1.234 are ambiguous; the first unambiguous number decides for the file. Until then, rows are held
    back.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self.launches = 0
        self._decimal: str | None = None
        self._decided_by = ""
        self._held: list[tuple[int, _Printed]] = []
        """Rows that depend on the decimal mark, and their indices in `_rows`."""
        self.lost = 0
        """Number of values that should be numbers but are not."""
        self._first_lost = ""

    def add(self, launch: Launch, section: str | None, metric: str, unit: UnitScale, text: str) -> None:
        """Add a metric as printed. Raises InputError if the file has numbers with both decimal marks."""
        self._add(_Printed(launch, section, metric, unit, text.strip(), None))

    def add_rule(self, launch: Launch, section: str | None, rule: str, said: str, speedup: str) -> None:
        """Add the message of a rule, and its estimated speed-up in % if there is one."""
        self._add(_Printed(launch, section, f"rule:{rule}", scale("%"), speedup.strip(), said))

    def _add(self, printed: _Printed) -> None:
        if self._decimal is None and (mark := decimal_mark(printed.text)):
            if mark != "?" and _is_number(printed):
                self._decide(mark, printed)
            else:
                self._held.append((len(self._rows), printed))
        self._rows.append(self._row(printed))

    def _decide(self, decimal: str, printed: _Printed) -> None:
        self._decimal, self._decided_by = decimal, _example(printed)
        held, self._held = self._held, []
        for at, earlier in held:
            self._rows[at] = self._row(earlier)

    def _row(self, printed: _Printed) -> tuple[Any, ...]:
        launch, section, metric, unit, text, said = printed
        value, words = parse_value(text, unit.factor, self._decimal or ".")
        if words is not None and _is_number(printed):
            if self._decimal and decimal_mark(words) == _OTHER_MARK[self._decimal]:
                raise InputError(
                    f"{self._path}: has numbers with both decimal marks, a {_MARK_NAMES[self._decimal]} in "
                    f"{self._decided_by} and the other one in {_example(printed)}; export the report again"
                )
            self.lost += 1
            self._first_lost = self._first_lost or _example(printed)
        if said is not None:
            return (*launch, section, metric, None if value is None else "%", value, said or None)
        return (*launch, section, metric, unit.unit or None, value, words)

    def finish(self) -> str | None:
        """Decide ambiguous numbers; return a warning about values that are not numbers, or None.

        Raises InputError if nothing in the file shows its decimal mark.
        """
        if open_ones := [printed for _, printed in self._held if decimal_mark(printed.text) == "?"]:
            # Counts are integers: the mark in 27,595 bytes is a group mark.
            whole = [printed for printed in open_ones if _is_count(printed)]
            marks = {"," if "." in printed.text else "." for printed in whole}
            if len(marks) != 1:
                first = open_ones[0]
                raise InputError(
                    f"{self._path}: no number in it shows whether {_example(first)} has a decimal mark or a "
                    "group mark; export the report again under LC_ALL=C, or with --print-units base"
                )
            self._decide(marks.pop(), whole[0])
        if not self.lost:
            return None
        many = f"{self.lost} values are not numbers, the first is" if self.lost > 1 else "a value is not a number:"
        return f"{many} {self._first_lost}"

    def full(self) -> Iterator[TableBatch]:
        """Yield the rows if there are enough for a batch."""
        if len(self._rows) >= BATCH_ROWS and not self._held:
            yield from self.rest()

    def rest(self) -> Iterator[TableBatch]:
        """Yield the remaining rows."""
        if not self._rows:
            return
        schema, columns = batch_schema("ncu_metrics"), zip(*self._rows, strict=True)
        arrays = [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)]
        self._rows = []
        yield "ncu_metrics", None, pa.RecordBatch.from_arrays(arrays, schema=schema)


def parse_value(text: str, factor: Decimal, decimal: str = ".") -> tuple[float | None, str | None]:
    """Return the value in the base unit and None, or None and the text; both None if ncu could not measure it."""
    text = text.strip()
    if (number := digits(text, decimal)) is not None:
        value = float(number) if factor == 1 else float(Decimal(number) * factor)
        return (value, None) if isfinite(value) else (None, text)
    if text.removeprefix("(!)").strip().lower() in _MISSING:
        return None, None
    return None, text


def _is_number(printed: _Printed) -> bool:
    """Return whether a value should be a number: it has a unit or the name of a counter."""
    return printed.unit.unit != "" or (
        METRIC_NAME.match(printed.metric) is not None and _ROLLUP.search(printed.metric) is not None
    )


def _is_count(printed: _Printed) -> bool:
    """Return whether a value is a count and therefore an integer."""
    if printed.unit.unit == "":
        return _COUNT.fullmatch(printed.metric) is not None
    return printed.unit in _COUNTED and not _FRACTION.search(printed.metric)


def _example(printed: _Printed) -> str:
    return f"{printed.text[:40]!r} ({printed.metric[:100]} of launch {printed.launch.launch_id})"
