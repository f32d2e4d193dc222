"""The tables that Nsight Compute prints, in three forms, as rows of ncu_metrics.

- wide CSV (`--csv --page raw`): a launch is a line, a metric a column, the second line holds the units;
- long CSV (`--csv`, with `--metrics` or the details page): a line is one metric of one launch, or what a rule says;
- text (no `--csv`): a heading for each launch, then tables of metric, unit and value.

Values are scaled to the base units of `schemas.ncu_units`. What ncu could not measure (`n/a`, `nan`) is NULL. Numbers
are in the language of the system; its decimal mark is found out for the file as a whole (`MetricRows`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.base import FileReport, TableBatch, batch_schema
from analyze.sources.lines import NOT_WHOLE, LostRows, optional_whole, whole
from analyze.sources.ncu.numbers import decimal_mark, digits
from schemas.ncu_units import Scale, scale

_BATCH_ROWS = 64 << 10
LAUNCH_COLUMNS = ("ID", "Process ID", "Kernel Name")
_DESCRIBE_LAUNCH = frozenset(
    (*LAUNCH_COLUMNS, "Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size")
) | {"Device", "CC", "Device Name", "Section Name"}
"""Columns of the wide form that are no metrics."""
_DEVICE_NAME = "device__attribute_display_name"

_NO_UNITS = "a row of a table whose line of units is missing or damaged"
_NO_ID = "a row without the number of its launch"
_NO_METRIC = "a row with neither a metric nor a rule"
_BAD_NUMBER = "a number that tells its launch cannot be read"
_AGAIN = "a second row of a launch"
_WIDE_TEXT = "a line of a table of more than metric, unit and value"
_NO_LAUNCH = "a metric under no launch, or under a damaged heading"

_ROLLUP = re.compile(r"\.(?:sum|avg|min|max|pct|ratio|max_rate)(?:\.|\Z)")
_COUNTED = frozenset(map(scale, ("byte", "inst", "sector", "request", "wavefront", "warp", "thread", "block", "ns")))
_COUNT = re.compile(r"launch__(?:grid|block|thread)\w{0,40}|device__attribute_\w{1,80}|(?:Grid|Block) Size")
"""Metrics without a unit that are whole numbers."""
_FRACTION = re.compile(r"\.(?:avg|pct|ratio|per_)|\b(?:avg|average|mean)\b", re.IGNORECASE)
_OTHER_MARK = {".": ",", ",": "."}
_MARK_NAMES = {".": "point", ",": "comma"}
_MISSING = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "no data"))

# Lines of text may be of any length: no pattern here tries a part of one again and again.
_TEXT_PROCESS = re.compile(r"\[([0-9]{1,18})\] [^@\s]+@\S+\Z")
_HEADING_PARTS = (", Context ", ", Stream ", ", CC ", ")x(")
_LAUNCH_SIZE = re.compile(r"(?: \((\d+, \d+, \d+)\)x\((\d+, \d+, \d+)\)|, \d{4}-\w{3}-\d{2} [\d:]+)\Z", re.ASCII)
_LAUNCH_PLACE = re.compile(r"\d+, Stream (\d+)(?:, Device (\d+), CC (\d+\.\d+))?\Z", re.ASCII)
_METRIC_NAME = re.compile(r"[a-z][a-z0-9]*__")


class Launch(NamedTuple):
    """What is said of a launch itself, in the columns of ncu_metrics."""

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
    unit: Scale
    text: str
    said: str | None
    """What a rule says; None of a metric."""


class MetricRows:
    """Rows of ncu_metrics, taken out as batches.

    A number such as 1.234 can be read in two ways; the numbers that can be read in one way only decide for the file.
    Until one has come, rows are held back.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self.launches = 0
        self._decimal: str | None = None
        self._decided_by = ""
        self._held: list[tuple[int, _Printed]] = []
        """Rows whose reading depends on the decimal mark, and their places in `_rows`."""
        self.lost = 0
        """Values that should be numbers and are none."""
        self._first_lost = ""

    def add(self, launch: Launch, section: str | None, metric: str, unit: Scale, text: str) -> None:
        """Add a metric as printed. Raises InputError if the file writes numbers in two ways."""
        self._add(_Printed(launch, section, metric, unit, text.strip(), None))

    def add_rule(self, launch: Launch, section: str | None, rule: str, said: str, speedup: str) -> None:
        """Add what a rule says: its text, and the estimated speed-up in % where it gives one."""
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
                    f"{self._path}: writes numbers in two ways, with a decimal {_MARK_NAMES[self._decimal]} in "
                    f"{self._decided_by} and with the other mark in {_example(printed)}; export the report again"
                )
            self.lost += 1
            self._first_lost = self._first_lost or _example(printed)
        if said is not None:
            return (*launch, section, metric, None if value is None else "%", value, said or None)
        return (*launch, section, metric, unit.unit or None, value, words)

    def finish(self) -> str | None:
        """Read what can be read in two ways; a warning about values that are no numbers.

        Raises InputError if nothing in the file decides how it is read.
        """
        if open_ones := [printed for _, printed in self._held if decimal_mark(printed.text) == "?"]:
            # Counts are whole: the mark in 27,595 bytes parts groups.
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
        many = f"{self.lost} values are no numbers, the first of them" if self.lost > 1 else "a value is no number:"
        return f"{many} {self._first_lost}"

    def full(self) -> Iterator[TableBatch]:
        """The rows, if there are enough for a batch."""
        if len(self._rows) >= _BATCH_ROWS and not self._held:
            yield from self.rest()

    def rest(self) -> Iterator[TableBatch]:
        """All rows that are left."""
        if not self._rows:
            return
        schema, columns = batch_schema("ncu_metrics"), zip(*self._rows, strict=True)
        arrays = [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)]
        self._rows = []
        yield "ncu_metrics", None, pa.RecordBatch.from_arrays(arrays, schema=schema)


def parse_value(text: str, factor: Decimal, decimal: str = ".") -> tuple[float | None, str | None]:
    """Value in the base unit; or the text, where it is no number; or neither, where ncu could not measure."""
    text = text.strip()
    if (number := digits(text, decimal)) is not None:
        value = float(number) if factor == 1 else float(Decimal(number) * factor)
        return (value, None) if isfinite(value) else (None, text)
    if text.removeprefix("(!)").strip().lower() in _MISSING:
        return None, None
    return None, text


def _is_number(printed: _Printed) -> bool:
    """Whether a value should be a number: it has a unit, or its name ends as those of counters do."""
    return printed.unit.unit != "" or (
        _METRIC_NAME.match(printed.metric) is not None and _ROLLUP.search(printed.metric) is not None
    )


def _is_count(printed: _Printed) -> bool:
    """Whether a value is a number of things, which has no fraction."""
    if printed.unit.unit == "":
        return _COUNT.fullmatch(printed.metric) is not None
    return printed.unit in _COUNTED and not _FRACTION.search(printed.metric)


def _example(printed: _Printed) -> str:
    return f"{printed.text[:40]!r} ({printed.metric[:100]} of launch {printed.launch.launch_id})"


class _Table(ABC):
    """A CSV table: its header, and the launches seen in it. `bare`: its fields are not in quotes."""

    def __init__(self, header: list[str], rows: MetricRows, report: FileReport, bare: bool):
        self.bare, self.fields = bare, len(header)
        self._at = {name: i for i, name in enumerate(header)}
        self._rows, self._report = rows, report
        self._launches: dict[tuple[str, ...], Launch] = {}

    def _cell(self, cells: list[str], name: str) -> str:
        at = self._at.get(name, len(cells))
        return cells[at] if at < len(cells) else ""

    def _key(self, cells: list[str]) -> tuple[str, ...]:
        return tuple(self._cell(cells, name) for name in LAUNCH_COLUMNS)

    def _launch(self, cells: list[str]) -> Launch:
        key = self._key(cells)
        launch = self._launches.get(key)
        if launch is None:
            launch = Launch(
                self._rows.launches,
                optional_whole(key[1]),
                key[2],
                optional_whole(self._cell(cells, "Device"), 32),
                optional_whole(self._cell(cells, "Stream")),
                self._cell(cells, "Grid Size") or None,
                self._cell(cells, "Block Size") or None,
            )
            self._launches[key] = launch
            self._rows.launches += 1
            if cc := self._cell(cells, "CC"):
                self._report.info.setdefault("compute_capability", cc)
            if name := self._cell(cells, "Device Name") or self._cell(cells, _DEVICE_NAME):
                self._report.info.setdefault("gpu_name", name)
        return launch

    def row(self, cells: list[str]) -> str | None:
        """Take a row; why it cannot be read, if so."""
        try:
            whole(self._key(cells)[0])
        except ValueError:
            return _NO_ID
        try:
            return self._take(cells)
        except ValueError:
            return _BAD_NUMBER

    @abstractmethod
    def _take(self, cells: list[str]) -> str | None:
        """Take a row that has an id. Raises ValueError before anything is added."""


class WideTable(_Table):
    """One line for each launch, units in the line below the header."""

    def __init__(self, header: list[str], rows: MetricRows, report: FileReport, bare: bool):
        super().__init__(header, rows, report, bare)
        self._metrics = [(i, name) for i, name in enumerate(header) if name not in _DESCRIBE_LAUNCH]
        self._units: list[Scale] | None = None

    def is_units(self, cells: list[str]) -> bool:
        """Whether a line is one of units."""
        return not any(self._key(cells))

    def take_units(self, cells: list[str]) -> bool:
        """Take a line of units; False if there was one before."""
        if self._units is not None:
            return False
        if len(cells) == self.fields:
            self._units = [scale(u) for u in cells]
        return True

    def _take(self, cells: list[str]) -> str | None:
        if len(cells) != self.fields:
            return NOT_WHOLE
        if self._units is None:
            return _NO_UNITS
        if self._key(cells) in self._launches:
            return _AGAIN
        launch = self._launch(cells)
        for i, name in self._metrics:
            self._rows.add(launch, None, name, self._units[i], cells[i])
        return None


class LongTable(_Table):
    """One line for each metric of each launch."""

    def _take(self, cells: list[str]) -> str | None:
        # Behind the value of a metric, the columns of rules may be left away.
        end = 1 + self._at.get("Metric Value", self.fields)
        metric, section = self._cell(cells, "Metric Name"), self._cell(cells, "Section Name") or None
        if "Metric Unit" not in self._at or not (
            len(cells) == self.fields or (metric and (len(cells) == end or cells[end:] == [""]))
        ):
            return NOT_WHOLE
        rule = self._cell(cells, "Rule Name")
        if not metric and not rule:
            return _NO_METRIC
        launch = self._launch(cells)
        if metric:
            unit = scale(self._cell(cells, "Metric Unit"))
            self._rows.add(launch, section, metric, unit, self._cell(cells, "Metric Value"))
        else:
            said = ": ".join(filter(None, (self._cell(cells, "Rule Type"), self._cell(cells, "Rule Description"))))
            self._rows.add_rule(launch, section, rule, said, self._cell(cells, "Estimated Speedup"))
        return None


class TextTables:
    """Tables of the text output: a line of dashes shows where their columns are.

    A table stands below its section's name: dashes, from 2022 on a header and dashes, rows, dashes.
    """

    def __init__(self, rows: MetricRows, report: FileReport, lost: LostRows):
        self._rows, self._report, self._lost = rows, report, lost
        self._launch: Launch | None = None
        self._pid: int | None = None
        self._section: str | None = None
        self._sections: set[str] = set()
        self._columns: list[tuple[int, int]] = []
        self._begun = False
        """Whether anything of the text form was there."""
        self._open = self._any_row = False
        """Whether rows are due, so that one that cannot be read is lost, and whether one came."""

    def line(self, at: int, line: str) -> None:
        """Take a line, whatever it is."""
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        is_metric = indent == 4 and _METRIC_NAME.match(text) is not None
        if match := _TEXT_PROCESS.match(text):
            self._pid, self._begun = int(match.group(1)), True
        elif (0 < indent < 4 or is_metric) and any(part in text for part in _HEADING_PARTS):
            self._begin_launch(None if is_metric else text)
            if is_metric:
                self._lost.add(at, NOT_WHOLE)  # the end of its line is gone
        elif text.startswith("Section: "):
            self._begin_section(text.removeprefix("Section: "))
        elif text.startswith("---") and " " in text and not text.strip("- "):
            # Dashes behind rows end the table; others begin it, or stand below its header.
            self._columns = [m.span() for m in re.finditer("-+", line)]
            self._open, self._any_row = not (self._open and self._any_row), False
        elif cells := self._cells(line):
            self._row(at, *cells)
        elif (is_metric and (self._begun or "  " in text)) or (self._open and _looks_like_row(indent, text)):
            self._any_row = True
            self._lost.add(at, _WIDE_TEXT if len(self._columns) > 3 else NOT_WHOLE if self._open else _NO_LAUNCH)

    def _begin_launch(self, heading: str | None) -> None:
        """A launch begins; which, is not known if its heading cannot be read."""
        self._section, self._sections, self._columns, self._open = None, set(), [], False
        self._launch, self._begun = None, True
        name, _, place = (heading or "").rpartition(", Context ")
        where, size = _LAUNCH_PLACE.match(place), _LAUNCH_SIZE.search(name[-200:])
        if not where or not size:
            return
        grid, block = (f"({axes})" if axes else None for axes in size.groups())
        try:
            stream, device = whole(where[1]), optional_whole(where[2], 32)
        except ValueError:
            return
        kernel = name[: len(name) - len(size[0])]
        self._launch = Launch(self._rows.launches, self._pid, kernel, device, stream, grid, block)
        self._rows.launches += 1
        if where[3]:
            self._report.info.setdefault("compute_capability", where[3])

    def _begin_section(self, name: str) -> None:
        if name in self._sections:
            self._launch = None  # a launch has each section once: the heading of the next one is not there
        self._sections.add(name)
        self._section, self._columns, self._open, self._any_row, self._begun = name, [], True, False, True

    def _row(self, at: int, metric: str, unit: str, value: str) -> None:
        if metric == "Metric Name":
            return
        self._any_row = True
        if self._launch is None:
            self._lost.add(at, _NO_LAUNCH)
        else:
            self._rows.add(self._launch, self._section, metric, scale(unit), value)

    def _cells(self, line: str) -> tuple[str, str, str] | None:
        """Metric, unit and value; None if the line is not whole, or no row."""
        if len(self._columns) != 3 or not line.endswith(("\n", "\r")):
            return None
        (begin, name_end), (_, unit_end), _ = self._columns
        metric, unit, value = line[begin:name_end].strip(), line[name_end:unit_end].strip(), line[unit_end:].strip()
        begins_there = not line[:begin].strip() and bool(line[begin : begin + 1].strip())
        parted = not (line[name_end : name_end + 1] + line[unit_end : unit_end + 1]).strip()
        return (metric, unit, value) if begins_there and parted and value and "  " not in metric else None


def _looks_like_row(indent: int, text: str) -> bool:
    """Whether a line in a table has parts with gaps between, and begins or ends as a row does."""
    _, gap, value = text.rpartition("  ")
    return bool(gap) and "---" not in text and (indent > 1 or value == "n/a" or value[:1].isdigit())
