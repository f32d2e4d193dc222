"""Common parts of figures: rows, units and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from analyze.errors import InputError
from analyze.query.query_declaration import ResultColumn
from analyze.render import visible
from analyze.render.texts import balanced
from analyze.render.units import PLAIN_UNITS, SCALES, finite
from schemas.kernel_rules import classify

if TYPE_CHECKING:
    from analyze.query.result import Result

LONGEST = 300
"""Most characters shown of a name."""

_ENDINGS = ("_flops_per_s", "_per_s", "_flops", "_bytes", "_pct", "_ns", "_s")
_WORDS = {"comm": "communication", "memcpy": "copies", "avg": "mean", "wait": "waiting", "gpu": "GPU", "cpu": "CPU",
          "gpus": "GPUs", "sm": "SM", "mfu": "MFU", "hfu": "HFU"}  # fmt: skip
_NAMES = {
    "run_id": "run", "a_ns": "time in A", "b_ns": "time in B", "change_ns": "change", "total_ns": "total time",
    "gpu_ns": "GPU time", "cpu_ns": "CPU time", "dur_ns": "time", "span_ns": "span",
    "self_device_ns": "self GPU time", "self_gpu_ns": "self GPU time", "self_cpu_ns": "self CPU time",
    "total_device_ns": "GPU time", "total_cpu_ns": "CPU time", "device": "GPU", "algbw_gb_per_s": "algorithm bandwidth",
    "busbw_gb_per_s": "bus bandwidth", "gb_per_s": "bandwidth", "flops_per_s": "FLOP rate", "images_per_s": "images",
    "flops": "FLOPs", "total_flops": "FLOPs", "bytes": "bytes", "flops_per_byte": "arithmetic intensity",
}  # fmt: skip


class Rows(NamedTuple):
    """The answer to a query: its documented columns and its rows."""

    columns: tuple[ResultColumn, ...]
    rows: list[tuple[Any, ...]]
    per: str = ""
    """What its times are means over, to append to their title: ` per step and GPU`."""
    said: tuple[str, ...] = ()
    """Sentences about that."""

    @classmethod
    def of(cls, answer: Result) -> Rows:
        """Return the rows of an answer, with NaN and infinity as None."""
        return cls(answer.columns, [tuple(map(finite, row)) for row in answer.rows()])

    def at(self, name: str) -> int:
        """Return the index of a column. Raises KeyError."""
        for i, column in enumerate(self.columns):
            if column.name == name:
                return i
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether the column exists."""
        return any(c.name == name for c in self.columns)

    def unit(self, name: str) -> str:
        """Return the unit of a column."""
        return self.columns[self.at(name)].unit

    def values(self, name: str) -> list[Any]:
        """Return the values of a column."""
        at = self.at(name)
        return [row[at] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column name."""
        names = [c.name for c in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def numbers(self, name: str) -> list[float]:
        """Return a column of numbers, with 0 for NULL. Raises InputError if it has other values."""
        try:
            return [float(v or 0) for v in self.values(name)]
        except (TypeError, ValueError):
            raise InputError(f"cannot draw {name}: not a column of numbers") from None


RunQuery = Callable[..., Rows]
"""Run another query on the same recordings: name and parameters. For figures that need two answers."""


@dataclass(frozen=True)
class Figure:
    """A figure: its Vega-Lite specification and alternative text."""

    spec: dict[str, Any]
    """With data, without theme and `width`."""
    alt: str
    notes: tuple[str, ...] = ()
    """A caption: how to read the figure, and what it leaves out."""
    listed: tuple[str, ...] = ()
    """Meaning of the numbers 1, 2, ... in it."""


@dataclass(frozen=True)
class Scale:
    """A unit for all numbers of a figure."""

    factor: float
    unit: str

    @classmethod
    def of(cls, values: Iterable[float | None], unit: str) -> Scale:
        """Return the unit that fits the largest number."""
        largest = max((abs(v) for v in values if v is not None), default=0.0)
        steps = SCALES.get(unit)
        if steps is None:
            return cls(1, "" if unit in PLAIN_UNITS else unit)
        return cls(*next((s for s in steps if largest >= s[0]), steps[-1]))

    def __call__(self, value: float | None) -> float | None:
        """Return a number in the unit with six digits; None for None."""
        return None if value is None else float(f"{value / self.factor:.6g}")

    def title(self, label: str) -> str:
        """Return the title of an axis."""
        return f"{label} ({self.unit})" if self.unit else label


def quantity(value: Any, unit: str) -> str:
    """Return a value as text in a fitting unit: 5.13 ms, 42.1 %, 1,204."""
    if value is None:
        return "\N{EN DASH}"
    if unit in SCALES:
        scale = Scale.of([value], unit)
        return f"{_digits(value / scale.factor)} {scale.unit}"
    if unit == "time":
        return str(value)[:19].replace("T", " ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        text = f"{value:.1f}" if unit == "%" else f"{value:.12g}" if unit in ("index", "id") else _digits(value)
        return f"{text} {unit}" if unit not in PLAIN_UNITS else text
    return cut(str(value))


def _digits(value: float) -> str:
    """Return a number with three significant digits, and all digits of its integer part."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def si(value: float, unit: str) -> str:
    """Return a rate with three digits and a decimal prefix: 66.3 TFLOP/s."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            number = value / factor
            return f"{number:.3g} {prefix}{unit}" if number < 1000 else f"{number:.0f} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def label(column: str) -> str:
    """Return the name of a column in words without its unit: exposed_comm_pct is exposed communication."""
    if column in _NAMES:
        return _NAMES[column]
    for ending in _ENDINGS:
        if column.endswith(ending) and column != ending:
            column = column.removesuffix(ending)
            break
    return " ".join(_WORDS.get(word, word) for word in column.split("_"))


def cut(text: str, length: int = LONGEST) -> str:
    """Return text with control characters escaped, and its middle removed if it is too long."""
    shown = visible(text[: 2 * length] + text[-2 * length :] if len(text) > 4 * length else text)
    if len(shown) <= length:
        return shown
    head = (length - 1) * 2 // 3
    return f"{shown[:head]}\N{HORIZONTAL ELLIPSIS}{shown[head + 1 - length :]}"


def short(name: str, length: int = 52) -> str:
    """Return a kernel or operator name for an axis: its short name if it is long, without its middle if needed."""
    if len(name) > length and "(" in name + "<":
        name = classify(name[:4096]).short_name if "(" in name or "<" in name else name
    return balanced(cut(name, length), name)


def family(name: str) -> str:
    """Return the family of a kernel."""
    return classify(name[:4096]).family


def distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels, with numbers on repeated ones."""
    seen: dict[str, int] = {}
    shown = []
    for text in labels:
        seen[text] = seen.get(text, 0) + 1
        shown.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return shown


def places(rows: Rows, names: Sequence[str]) -> list[str]:
    """Return the location of each row in words: rank 0, GPU 1."""
    names = [n for n in names if rows.has(n)]
    # Leave out constant columns, unless there are no others.
    telling = [n for n in names if len(set(rows.values(n))) > 1] or [n for n in names if n != "run_id"]
    columns = [rows.values(n) for n in telling]
    return [
        ", ".join(place(n, c[i]) for n, c in zip(telling, columns, strict=True) if c[i] is not None) or "all"
        for i in range(len(rows.rows))
    ]


def place(name: str, value: Any) -> str:
    """Return the value of a location column in words: rank 0, GPU 1, 2 GPUs, batch 64."""
    words = {"device": "GPU {}", "rank": "rank {}", "stage": "stage {}", "stream": "stream {}", "step": "step {}",
             "batch_size": "batch {}", "gpus": "{} GPU", "requests": "{} request"}  # fmt: skip
    text = words.get(name, "{}").format(quantity(value, "index") if isinstance(value, float) else short(str(value), 36))
    if (name, value) == ("device", -1):
        return "CPU"
    return text + "s" if name in ("gpus", "requests") and value != 1 else text


def legend(title: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a legend above the figure."""
    return {"title": title, "orient": "top", "labelLimit": 240, "columns": {"expr": "legend_columns"}} | more


_NARROW = 150
"""Width of an axis of names in px below which the font is small."""
_MIDDLE = "lastindexof(slice(datum.label, 0, ceil(length(datum.label) / 2) + 3), ', ')"
_IN_TWO_LINES = (
    f"name_width < {_NARROW} && length(datum.label) > 20 && {_MIDDLE} > 0 ? "
    f"[slice(datum.label, 0, {_MIDDLE}), slice(datum.label, {_MIDDLE} + 2)] : datum.label"
)


def names_axis(title: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an axis of names. On a narrow page names get less room, and those with several parts two lines."""
    return {
        "title": title,
        "labelLimit": {"expr": "name_width"},
        "labelExpr": _IN_TWO_LINES,
        "labelFontSize": {"expr": f"name_width < {_NARROW} ? 10 : 12"},
        "labelLineHeight": 10,
        "labelSeparation": 1,
        "labelPadding": 5,
        "ticks": False,
        "domain": False,
    } | more
