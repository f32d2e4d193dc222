"""What Nsight Compute prints -> the ncu_metrics table.

Three forms, each alone or inside a log with `==PROF==` lines and the program's own output around it, several times over
where a log holds several reports:

- wide CSV (`--csv --page raw`): a launch is a line, a metric a column, the second line holds the units;
- long CSV (`--csv`, with `--metrics` or the details page): a line is one metric of one launch, or what a rule says;
- text (no `--csv`): a heading for each launch, then tables of metric, unit and value.

Values are scaled to the base units of `schemas.ncu_units`. What ncu could not measure (`n/a`, `nan`) is NULL.
"""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from schemas.ncu_units import Scale, scale
from schemas.tables import arrow_schema

_BATCH_ROWS = 64 << 10
_LAUNCH_COLUMNS = ("ID", "Process ID", "Kernel Name")
_DESCRIBE_LAUNCH = frozenset(
    (*_LAUNCH_COLUMNS, "Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size")
) | {"Device", "CC", "Device Name", "Section Name"}
"""Columns of the wide form that are no metrics."""
_DEVICE_NAME = "device__attribute_display_name"

_BEGINS_ROW = frozenset('",0123456789')

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_VALUE = re.compile(rf"({_NUMBER})(?:\s*[({{].*)?\Z", re.DOTALL)
"""A number; with --print-metric-instances the values of the instances follow in brackets."""
_MISSING = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "no data"))

_ERROR = re.compile(r"^==ERROR== ?(.+)")
_TEXT_LAUNCH = re.compile(
    r"^\s+(?P<kernel>\S.*?)"
    r"(?: \((?P<grid>\d+, \d+, \d+)\)x\((?P<block>\d+, \d+, \d+)\)|, \d{4}-\w{3}-\d{2} [\d:]+)"
    r", Context \d+, Stream (?P<stream>\d+)(?:, Device (?P<device>\d+), CC (?P<cc>\d+\.\d+))?\s*\Z"
)
_TEXT_PROCESS = re.compile(r"^\s*\[(\d+)\] \S+@\S+\s*\Z")
_TEXT_SECTION = re.compile(r"^\s*Section: (.+?)\s*\Z")
_TEXT_RULE = re.compile(r"^\s*-{3,}(?: -{3,})+\s*\Z")


class _Launch(NamedTuple):
    """What is said of a launch itself, in the columns of ncu_metrics."""

    launch_id: int
    pid: int | None
    kernel: str
    device: int | None
    stream: int | None
    grid: str | None
    block: str | None


class _Rows:
    """Rows of ncu_metrics, taken out as batches."""

    def __init__(self) -> None:
        self._fields = [f for f in arrow_schema("ncu_metrics") if f.name not in ("run_id", "rank")]
        self._rows: list[tuple[Any, ...]] = []
        self.launches = 0

    def add(self, launch: _Launch, section: str | None, metric: str, unit: Scale, text: str) -> None:
        """Add a metric as printed."""
        value, words = parse_value(text, unit.factor)
        self._rows.append((*launch, section, metric, unit.unit or None, value, words))

    def add_rule(self, launch: _Launch, section: str | None, rule: str, said: str, speedup: str) -> None:
        """Add what a rule says: its text, and the estimated speed-up in % where it gives one."""
        value = parse_value(speedup, Decimal(1))[0]
        self._rows.append((*launch, section, f"rule:{rule}", None if value is None else "%", value, said or None))

    def full(self) -> Iterator[TableBatch]:
        """The rows, if there are enough for a batch."""
        if len(self._rows) >= _BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[TableBatch]:
        """All rows that are left."""
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(values, pa.string()).dictionary_encode()
            if pa.types.is_dictionary(f.type)
            else pa.array(values, f.type)
            for f, values in zip(self._fields, columns, strict=True)
        ]
        self._rows = []
        yield "ncu_metrics", None, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(self._fields))


def parse_value(text: str, factor: Decimal) -> tuple[float | None, str | None]:
    """Value in the base unit; or the text, where it is not a number; or neither, where ncu could not measure."""
    text = text.strip()
    match = _VALUE.match(text)
    if match:
        digits = match.group(1).replace(",", "")
        return (float(digits) if factor == 1 else float(Decimal(digits) * factor)), None
    if text.removeprefix("(!)").strip().lower() in _MISSING:
        return None, None
    return None, text


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the metrics of a file. Launches are numbered from 0 in the order of the file.

    A line that a killed run left half-written is dropped, with a warning. Raises InputError for a file with no launch.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as f:
            yield from read_lines(f, str(path), report)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e


def read_lines(lines: Iterable[str], path: str, report: FileReport) -> Iterator[TableBatch]:
    """Yield the metrics of ncu's output, line by line; `path` is what messages call it. Raises InputError."""
    rows = _Rows()
    parser: _Wide | _Long | None = None
    text = _Text(rows, report)
    errors: list[str] = []
    profiled_none = header_seen = False
    record, began = "", 0
    for number, line in enumerate(lines, 1):
        if record and (line.startswith("==") or _begins_header(line)):
            report.warnings.append(f"{Path(path).name}: line {began} is not whole and is left out")
            record = ""
        if not record:
            began = number
            if (error := _ERROR.match(line)) is not None:
                errors.append(error.group(1).strip())
            profiled_none = profiled_none or "No kernels were profiled" in line
            if not (_begins_header(line) if parser is None else line[:1] in _BEGINS_ROW):
                parser = None
                text.line(line)
                continue
        record += line
        if record.count('"') % 2:
            # Inside quotes: a rule's text runs on in the next line.
            continue
        if record.endswith(","):
            # The file ends here, behind a comma.
            break
        cells = _cells(record)
        record = ""
        if set(_LAUNCH_COLUMNS) <= set(cells):
            parser, header_seen = (_Long if "Metric Name" in cells else _Wide)(cells, rows, report), True
        elif parser is not None:
            took = parser.row(cells)
            if took is None:
                parser = None
            elif not took:
                report.warnings.append(f"{Path(path).name}: line {began} is not whole and is left out")
            yield from rows.full()
    if record:
        report.warnings.append(f"{Path(path).name}: line {began} is not whole and is left out")
    if not rows.launches:
        raise InputError(f"{path}: {_nothing(errors, profiled_none, header_seen)}")
    report.warnings += [f"{Path(path).name}: ncu said: {e}" for e in dict.fromkeys(errors)]
    yield from rows.rest()


def _begins_header(line: str) -> bool:
    return line.startswith(('"ID",', "ID,")) and all(c in line for c in _LAUNCH_COLUMNS)


def _cells(record: str) -> list[str]:
    try:
        return next(csv.reader([record.rstrip("\r\n")]), [])
    except csv.Error:
        return []


def _nothing(errors: list[str], profiled_none: bool, header_seen: bool) -> str:
    if errors:
        return f"ncu recorded nothing: it said: {'; '.join(dict.fromkeys(errors))}"
    if profiled_none:
        return "ncu says that no kernels were profiled; its kernel filter or capture range left none"
    if header_seen:
        return "holds no whole launch: it ends behind its header, or was cut there"
    return 'not output of ncu: no line begins "ID","Process ID" and no table of metrics; record with ncu --csv'


class _Table(ABC):
    """A CSV table: its header, and the launches seen in it."""

    def __init__(self, header: list[str], rows: _Rows, report: FileReport):
        self._at = {name: i for i, name in enumerate(header)}
        self._header = header
        self._rows, self._report = rows, report
        self._launches: dict[tuple[str, ...], _Launch] = {}

    def _cell(self, cells: list[str], name: str) -> str:
        at = self._at.get(name, len(cells))
        return cells[at] if at < len(cells) else ""

    def _launch(self, cells: list[str]) -> _Launch:
        key = tuple(self._cell(cells, name) for name in _LAUNCH_COLUMNS)
        launch = self._launches.get(key)
        if launch is None:
            launch = _Launch(
                self._rows.launches,
                _int(key[1]),
                key[2],
                _int(self._cell(cells, "Device")),
                _int(self._cell(cells, "Stream")),
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

    @abstractmethod
    def row(self, cells: list[str]) -> bool | None:
        """Take a line: True; False if it is not whole; None if the table ended before it."""


class _Wide(_Table):
    """One line for each launch, units in the line below the header."""

    def __init__(self, header: list[str], rows: _Rows, report: FileReport):
        super().__init__(header, rows, report)
        self._metrics = [(i, name) for i, name in enumerate(header) if name not in _DESCRIBE_LAUNCH]
        self._units = [scale("")] * len(header)
        self._first = True

    def row(self, cells: list[str]) -> bool | None:
        """Take a line."""
        first, self._first = self._first, False
        if first and cells and not cells[0] and len(cells) == len(self._header):
            self._units = [scale(u) for u in cells]
            return True
        if not cells or not cells[0].isdigit():
            return None
        if len(cells) != len(self._header):
            return False
        launch = self._launch(cells)
        for i, name in self._metrics:
            self._rows.add(launch, None, name, self._units[i], cells[i])
        return True


class _Long(_Table):
    """One line for each metric of each launch."""

    def row(self, cells: list[str]) -> bool | None:
        """Take a line."""
        if not cells or not cells[0].isdigit():
            return None
        if len(cells) <= self._at.get("Metric Value", 0):
            return False
        metric, section = self._cell(cells, "Metric Name"), self._cell(cells, "Section Name") or None
        launch = self._launch(cells)
        if metric:
            unit = scale(self._cell(cells, "Metric Unit"))
            self._rows.add(launch, section, metric, unit, self._cell(cells, "Metric Value"))
        elif rule := self._cell(cells, "Rule Name"):
            said = ": ".join(filter(None, (self._cell(cells, "Rule Type"), self._cell(cells, "Rule Description"))))
            self._rows.add_rule(launch, section, rule, said, self._cell(cells, "Estimated Speedup"))
        return True


class _Text:
    """Tables of the text output: a line of dashes shows where their columns are."""

    def __init__(self, rows: _Rows, report: FileReport):
        self._rows, self._report = rows, report
        self._launch: _Launch | None = None
        self._pid: int | None = None
        self._section: str | None = None
        self._columns: list[tuple[int, int]] = []

    def line(self, line: str) -> None:
        """Take a line, whatever it is."""
        if match := _TEXT_PROCESS.match(line):
            self._pid = int(match.group(1))
        elif match := _TEXT_LAUNCH.match(line):
            grid, block = (f"({match[g]})" if match[g] else None for g in ("grid", "block"))
            device, stream = _int(match["device"] or ""), int(match["stream"])
            self._launch = _Launch(self._rows.launches, self._pid, match["kernel"], device, stream, grid, block)
            self._rows.launches += 1
            self._section, self._columns = None, []
            if match["cc"]:
                self._report.info.setdefault("compute_capability", match["cc"])
        elif match := _TEXT_SECTION.match(line):
            self._section, self._columns = match.group(1), []
        elif _TEXT_RULE.match(line):
            self._columns = [m.span() for m in re.finditer("-+", line)]
        elif not line.strip():
            self._columns = []
        elif self._launch and len(self._columns) == 3:
            (begin, name_end), (_, unit_end), _ = self._columns
            metric, unit, value = line[begin:name_end].strip(), line[name_end:unit_end], line[unit_end:]
            if metric and metric != "Metric Name" and not line[:begin].strip():
                self._rows.add(self._launch, self._section, metric, scale(unit), value)


def _int(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else None
