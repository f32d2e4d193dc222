"""Numbers as text: one unit per measure in a table, shown in the heading."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.render.texts import visible

if TYPE_CHECKING:
    from analyze.query.query_declaration import ResultColumn
    from analyze.query.result import Result

SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1, "FLOP/s")),
}
_ENDINGS = {
    "ns": "ns", "s": "s", "B": "bytes", "FLOP": "flops", "FLOP/s": "flops_per_s", "FLOP/B": "flops_per_byte",
    "GB/s": "gb_per_s", "images/s": "images_per_s", "%": "pct", "B/s": "bytes_per_s", "MHz": "mhz", "W": "w", "°C": "c",
}  # fmt: skip
"""Ending of column names that a heading omits, by unit."""
_TEXT_UNITS = ("text", "id", "time")
PLAIN_UNITS = ("text", "id", "time", "index", "count", "number", "bool")

# Statistics of single calls, images or steps, as opposed to sums.
_OF_ONE = re.compile(r"(?:^|_)(?:avg|mean|min|max|median|p\d+|std)(?=_|$)")
_PER = re.compile(r"_per_(?:image|step|call)$")
_MOMENT = re.compile(r"(?:^|_)(?:start|end)(?=_|$)")
_MOST = 1e7
"""A number is smaller than this in its unit, ..."""
_LEAST = 1e-3
"""... and the largest of a column is larger than this, if one unit fulfils both."""


_MOST_DIGITS = 6


class Heading(NamedTuple):
    """Name and unit of a column; one of them may be empty."""

    label: str
    unit: str

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.label and self.unit else self.label or self.unit


def finite(value: Any) -> Any:
    """Return a value with NaN and infinity as None, and decimals as floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    return value


def is_text(column: ResultColumn) -> bool:
    """Return whether a column is left-aligned."""
    return column.unit in _TEXT_UNITS


def formatted(answer: Result) -> tuple[list[str], list[list[str]]]:
    """Return headings with units, and rows of cells as text."""
    headings, columns = format_columns(answer.columns, answer.rows())
    return [str(h) for h in headings], [list(cells) for cells in zip(*columns, strict=True)]


def format_columns(
    columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]]
) -> tuple[list[Heading], list[list[str]]]:
    """Return the headings, and the cells of each column as text."""
    values = [[finite(row[i]) for row in rows] for i in range(len(columns))]
    scales = _scales(columns, values)
    shown = [_format(column, values[i], scales.get(i)) for i, column in enumerate(columns)]
    return [heading for heading, _ in shown], [cells for _, cells in shown]


def readable(columns: Sequence[ResultColumn], values: Sequence[Sequence[Any]]) -> list[tuple[str, float]]:
    """Return the heading with unit of each column, and the divisor of its numbers."""
    scales = _scales(columns, [list(map(finite, column)) for column in values])
    return [(str(_heading(c, scales.get(i))), scales.get(i, (1, ""))[0]) for i, c in enumerate(columns)]


def _scales(columns: Sequence[ResultColumn], values: Sequence[Sequence[Any]]) -> dict[int, tuple[float, str]]:
    """Return divisor and unit of the columns that have a choice of units, by index."""
    measures: dict[tuple[str, ...], list[int]] = {}
    for i, column in enumerate(columns):
        if column.unit in SCALES:
            measures.setdefault(_measure(column), []).append(i)
    return {i: _scale(measure, [values[m] for m in members]) for measure, members in measures.items() for i in members}


def _measure(column: ResultColumn) -> tuple[str, ...]:
    """Return the measure of a column. Columns of one measure share a unit.

    Measures are: all sums of a unit, so that they can be compared; all points in time; mean, min and max of one kind.
    """
    if _OF_ONE.search(column.name):
        return column.unit, "one", _OF_ONE.sub("", column.name).strip("_")
    if of := _PER.search(column.name):
        return column.unit, "one", of[0]
    return column.unit, "moment" if _MOMENT.search(column.name) else "sum"


def _scale(measure: tuple[str, ...], columns: Sequence[Sequence[Any]]) -> tuple[float, str]:
    """Return divisor and unit of a measure: the largest unit in which no column has only zeros.

    The largest sum is at least 1 in it; for bytes and for statistics of single calls, half of the values are.
    """
    scales = SCALES[measure[0]]
    numbers = [[abs(v) for v in column if v] for column in columns]
    largest = [max(column) for column in numbers if column]
    if not largest:
        return scales[-1]
    typical = measure[0] == "B" or measure[1] == "one"
    wanted = median([v for column in numbers for v in column]) if typical else max(largest)
    # A time too large for all units is a clock value: its last digits matter.
    bounded = [s for s in scales if max(largest) / s[0] < _MOST] or [scales[-1 if measure[1] == "moment" else 0]]
    fitting = [s for s in bounded if s[0] <= wanted] or bounded[-1:]
    return next((s for s in fitting if min(largest) / s[0] >= _LEAST), fitting[0])


def _heading(column: ResultColumn, scale: tuple[float, str] | None) -> Heading:
    name = visible(column.name)
    label = re.sub(rf"(?:^|_){_ENDINGS[column.unit]}$", "", name) if column.unit in _ENDINGS else name
    if scale is not None:
        return Heading(label, scale[1])
    return Heading(label, "" if column.unit in PLAIN_UNITS else column.unit)


def _format(column: ResultColumn, values: list[Any], scale: tuple[float, str] | None) -> tuple[Heading, list[str]]:
    heading = _heading(column, scale)
    if scale is not None:
        factor, _ = scale
        # Do not divide by 1: clock values have more digits than a float.
        shown = values if factor == 1 else [None if v is None else v / factor for v in values]
        return heading, _numbers(shown, decimals(column.unit, factor))
    if column.unit == "%":
        return heading, _numbers(values, 2)
    return heading, [_plain(v, column.unit) for v in values]


def decimals(unit: str, factor: float) -> int:
    """Return the number of decimals in a unit of SCALES with this divisor."""
    return 0 if factor == 1 and unit in ("ns", "B", "FLOP") else 3 if unit in ("ns", "s") else 2


def _numbers(values: Sequence[Any], digits: int) -> list[str]:
    """Return numbers with these decimals, or more if the largest number needs them for two significant digits.

    "0" is exactly 0: a number too small for the decimals of its column has two significant digits.
    """
    largest = max((abs(v) for v in values if v), default=0)
    if digits and largest:
        digits = max(digits, min(1 - math.floor(math.log10(largest)), _MOST_DIGITS))
    return ["" if v is None else _number(v, digits) for v in values]


def _number(value: float, digits: int) -> str:
    if not value:
        return "0"
    if isinstance(value, int) and not digits:
        return f"{value:,}"
    text = f"{value:,.{digits}f}"
    return text if text.strip("-0.") else f"{value:.2g}"


def _plain(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if unit == "time":
        return visible(str(value)[:19])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    if isinstance(value, int) and unit not in ("id", "index"):
        return f"{value:,}"
    return visible(str(value))
