"""Numbers as text: one unit for a measure over the whole of a table, said once, in the heading."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.render.texts import visible

if TYPE_CHECKING:
    from analyze.query.answer import Answer
    from analyze.query.query_files import ResultColumn

SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1, "FLOP/s")),
}
_ENDINGS = {
    "ns": "ns", "s": "s", "B": "bytes", "FLOP": "flops", "FLOP/s": "flops_per_s", "FLOP/B": "flops_per_byte",
    "GB/s": "gb_per_s", "images/s": "images_per_s", "%": "pct",
}  # fmt: skip
"""What the heading need not say, by unit."""
_TEXT_UNITS = ("text", "id", "time")
PLAIN_UNITS = ("text", "id", "time", "index", "count", "number", "bool")

# Of one call, image or step, against sums over them.
_OF_ONE = re.compile(r"(?:^|_)(?:avg|mean|min|max|median|p\d+|std)(?=_|$)")
_PER = re.compile(r"_per_(?:image|step|call)$")
_MOMENT = re.compile(r"(?:^|_)(?:start|end)(?=_|$)")
_MOST = 1e7
"""A number in the unit of its table stays below it, ..."""
_LEAST = 1e-3
"""... and the largest of a column above, if a unit does both."""


_MOST_DIGITS = 6


class Heading(NamedTuple):
    """What a column is called, and the unit of its numbers; one of the two may be empty."""

    label: str
    unit: str

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.label and self.unit else self.label or self.unit


def finite(value: Any) -> Any:
    """A value without NaN and infinity, which JSON and tables have no number for: None. Decimals of SQL are floats."""
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
    """Whether a column is aligned to the left."""
    return column.unit in _TEXT_UNITS


def formatted(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Headings with units, and cells as text in those units."""
    headings, columns = format_columns(answer.columns, answer.rows())
    return [str(h) for h in headings], [list(cells) for cells in zip(*columns, strict=True)]


def format_columns(
    columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]]
) -> tuple[list[Heading], list[list[str]]]:
    """Headings, and the cells of each column as text."""
    values = [[finite(row[i]) for row in rows] for i in range(len(columns))]
    scales = _scales(columns, values)
    shown = [_format(column, values[i], scales.get(i)) for i, column in enumerate(columns)]
    return [heading for heading, _ in shown], [cells for _, cells in shown]


def readable(columns: Sequence[ResultColumn], values: Sequence[Sequence[Any]]) -> list[tuple[str, float]]:
    """What each of these columns is called in a table, with the unit, and what its numbers are to be divided by."""
    scales = _scales(columns, [list(map(finite, column)) for column in values])
    return [(str(_heading(c, scales.get(i))), scales.get(i, (1, ""))[0]) for i, c in enumerate(columns)]


def _scales(columns: Sequence[ResultColumn], values: Sequence[Sequence[Any]]) -> dict[int, tuple[float, str]]:
    """Factor and unit of the columns that have several units, by their place."""
    measures: dict[tuple[str, ...], list[int]] = {}
    for i, column in enumerate(columns):
        if column.unit in SCALES:
            measures.setdefault(_measure(column), []).append(i)
    return {i: _scale(measure, [values[m] for m in members]) for measure, members in measures.items() for i in members}


def _measure(column: ResultColumn) -> tuple[str, ...]:
    """What a column measures: those of one measure are shown in one unit.

    That is all sums of a unit, so that they can be compared; the moments; and the mean, shortest and longest of a kind.
    """
    if _OF_ONE.search(column.name):
        return column.unit, "one", _OF_ONE.sub("", column.name).strip("_")
    if of := _PER.search(column.name):
        return column.unit, "one", of[0]
    return column.unit, "moment" if _MOMENT.search(column.name) else "sum"


def _scale(measure: tuple[str, ...], columns: Sequence[Sequence[Any]]) -> tuple[float, str]:
    """The unit in which the columns of a measure are shown: the largest in which none shows only zeros.

    It is such that the largest sum is one or more; of bytes, and of what is of one call, half of the values.
    """
    scales = SCALES[measure[0]]
    numbers = [[abs(v) for v in column if v] for column in columns]
    largest = [max(column) for column in numbers if column]
    if not largest:
        return scales[-1]
    typical = measure[0] == "B" or measure[1] == "one"
    wanted = median([v for column in numbers for v in column]) if typical else max(largest)
    # A moment beyond all units is one of a clock, of which the last digits are what counts.
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
        # As it is in steps of 1: a moment of a clock has more digits than a float.
        shown = values if factor == 1 else [None if v is None else v / factor for v in values]
        return heading, _numbers(shown, decimals(column.unit, factor))
    if column.unit == "%":
        return heading, _numbers(values, 2)
    return heading, [_plain(v, column.unit) for v in values]


def decimals(unit: str, factor: float) -> int:
    """Decimals of numbers of a unit of SCALES, shown in steps of `factor`."""
    return 0 if factor == 1 and unit in ("ns", "B", "FLOP") else 3 if unit in ("ns", "s") else 2


def _numbers(values: Sequence[Any], digits: int) -> list[str]:
    """Numbers with so many decimals, or as many as the largest needs for two digits of its own.

    "0" is nothing at all: a number too small for the decimals of its column is printed with two digits.
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
