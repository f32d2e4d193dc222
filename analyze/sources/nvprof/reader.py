"""Read logs of nvprof, mixed with the program's own output.

`tables` reads the tables. Messages around them are about the run: the command, warnings, why nothing was recorded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from analyze.errors import InputError
from analyze.sources.interface import BATCH_ROWS, FileReport, Row, TableBatch, row_batches
from analyze.sources.nvprof.log_tables import DEVICE_INDEX, LogTable, NoUnit, PlainSummary, header_of
from analyze.sources.text_lines import INCOMPLETE, NO_HEADER, NO_UNITS, LostRows, csv_cells, numbered_lines

_PROCESS = re.compile(r"^==(\d{1,18})== ", re.ASCII)
_BANNER = re.compile(r"^==\d+== NVPROF is profiling process \d+[,\t]\s*command: (.*)")
_ERROR = re.compile(r"^==(?:\d+|=+)== Error: (.+)")
_WARNING = re.compile(r"^==(?:\d+|=+)== Warning: (.+)")
_TITLE = re.compile(r"^==(?:\d+|=+)== (?:Profiling result|API calls|Metric result|Event result)")
_UNIFIED_MEMORY = re.compile(r"^==(?:\d+|=+)== Unified Memory profiling result")
_PLAIN_TABLE = re.compile(r"\s*+(?:Start +Duration +\S|Invocations +(?:Metric|Event) Name\b)")
"""The header of a trace or of metrics that was printed without --csv."""
_NOTHING = re.compile(r"^(No (?:events/metrics|kernels|API activities) were profiled)")
_STOPPED = "Execution timeout"

_ARCH = re.compile(r"(?:^|\s)(?:--arch|-a)[ =](\S+)")
_BATCH_SIZE = re.compile(r"(?:^|\s)(?:--batch-size|-b)[ =](\d{1,18})(?!\S)", re.ASCII)

_BEGINS_ROW = frozenset('",0123456789')
_KINDS = ('"GPU activities"', '"API calls"')
"""Beginnings of rows of a summary with a column Type."""
_BAD_NUMBER = "a number in it cannot be read"


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the tables of a log.

    Drops rows that cannot be read, with a warning. Raises InputError for a log without tables, with nvprof's reason if
    there is one.
    """
    log = _Log(path, report)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as f:
        for at, line in numbered_lines(f):
            log.line(at, line)
            yield from row_batches(log.rows, BATCH_ROWS)
    log.finish()
    yield from row_batches(log.rows)


class _Log:
    """Reads the log line by line.

    A table continues until the next title or header; blank lines, other messages of nvprof and the program's output may
    interrupt it.
    """

    def __init__(self, path: Path, report: FileReport):
        self.rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._path, self._report = path, report
        self._lost = LostRows(path, report)
        self._table: LogTable | None = None
        self._summary: PlainSummary | None = None
        """The current table if it was printed without --csv."""
        self._plain = self._unified_memory = False
        """Whether there was a table without --csv, or of unified memory, which are not read."""
        self._titled = False
        """Whether a table must have begun."""
        self._pid: int | None = None
        self._in_api_calls = False
        self._said: list[str] = []
        self._errors: list[str] = []
        self._is_nvprof = False
        self._devices: set[int] = set()

    def line(self, at: int, line: str) -> None:
        """Read a line."""
        text = line.rstrip("\r\n")
        if text.startswith("=="):
            self._message(text.rstrip())
            return
        if match := _NOTHING.match(text):
            self._said.append(match.group(1))
            return
        if PlainSummary.begins(text):
            self._is_nvprof = True
            self._table, self._summary = None, PlainSummary(self._in_api_calls)
            return
        self._plain = self._plain or _PLAIN_TABLE.match(text) is not None
        if self._summary is not None and self._plain_row(self._summary, at, text, cut=text == line):
            return
        delimiter = "\t" if "\t" in text else ","
        fields = text.count(delimiter)
        if not fields:
            if self._table is not None and re.fullmatch('"[^"]*"?', text):
                self._lost.add(at, INCOMPLETE)
            return
        cells = csv_cells(text, delimiter)
        if cells is not None and (header := header_of(cells)):
            self._is_nvprof = True
            self._table, self._summary = LogTable(header, self._in_api_calls), None
        elif self._table is not None and cells is not None and self._table.is_units(cells):
            # A second line of units belongs to a table whose header is missing.
            self._table = self._table if self._table.take_units(cells) else None
        elif why := self._row(cells, text, fields, cut=text == line and text[-1:] != '"'):
            self._lost.add(at, why)

    def _plain_row(self, summary: PlainSummary, at: int, text: str, cut: bool) -> bool:
        """Read a line of a summary without --csv; return whether it was a row, read or lost."""
        try:
            found = summary.row(text)
        except ValueError:
            self._lost.add(at, INCOMPLETE)
            return True
        if found is None:
            return False
        table, row = found
        if row is None:
            self._lost.add(at, f"rows of this kind are not read: {table[:100]}")
        elif cut:
            self._lost.add(at, INCOMPLETE)
        else:
            self.rows[table].append(row)
        return True

    def _row(self, cells: list[str] | None, text: str, fields: int, cut: bool) -> str | None:
        """Read a line with fields, in a table or not; return the reason if it is a row that cannot be read."""
        table = self._table
        if not re.search("[0-9]", text) and not text.startswith(_KINDS):
            return None  # a damaged header or line of units
        if table is None:
            return NO_HEADER if self._titled and (fields > 3 or (fields > 1 and text[0] in _BEGINS_ROW)) else None
        if cells is not None and len(cells) > len(table.header) and not any(cells[len(table.header) :]):
            cells = cells[: len(table.header)]  # a spreadsheet pads all lines to the longest one
        if cells is None or len(cells) != len(table.header) or cut:
            # Lines of the program have few commas and begin with a word.
            begins = text[0] in _BEGINS_ROW or DEVICE_INDEX.search(re.split("[,\t]", text[:200])[0].strip())
            return INCOMPLETE if begins or 4 * fields >= 3 * len(table.header) else None
        try:
            name, row = table.row(dict(zip(table.header, cells, strict=True)), self._pid)
        except KeyError as e:
            return f"its table has no column {e.args[0]}"
        except NoUnit:
            return NO_UNITS
        except ValueError:
            return _BAD_NUMBER
        if row is None:
            return f"rows of this kind are not read: {name[:100]}"
        self.rows[name].append(row)
        if row.get("device") is not None and row["device"] not in self._devices:
            self._devices.add(row["device"])
            self._report.info["gpus"] = len(self._devices)
        if device := table.device_name:
            self._report.info.setdefault("gpu_name", device)
        return None

    def _message(self, line: str) -> None:
        if match := _PROCESS.match(line):
            self._pid = int(match.group(1))
        if _TITLE.match(line):
            # The table above ends, whether the header of the next one can be read or not.
            self._table, self._summary, self._titled = None, None, True
        elif _UNIFIED_MEMORY.match(line):
            self._table, self._summary, self._titled, self._unified_memory = None, None, False, True
        if match := _BANNER.match(line):
            self._is_nvprof = True
            self._take_command(match.group(1).strip())
        elif match := _ERROR.match(line):
            self._errors.append(match.group(1).strip().rstrip("."))
        elif match := _WARNING.match(line):
            self._report.warnings.append(f"{self._path.name}: nvprof said: {match.group(1).strip()}")
        elif _STOPPED in line:
            self._said.append("Execution timeout, stopping the application")
        self._in_api_calls = "API calls:" in line

    def _take_command(self, command: str) -> None:
        """Note the command, and model and batch size from options of PyTorch's example programs."""
        info = self._report.info
        info.setdefault("command", command)
        if match := _ARCH.search(command):
            info.setdefault("model", match.group(1))
        if match := _BATCH_SIZE.search(command):
            info.setdefault("batch_size", int(match.group(1)))

    def finish(self) -> None:
        """Report losses and nvprof's errors as warnings. Raises InputError if the log has no table."""
        if not self.rows:
            said = list(dict.fromkeys(self._errors + self._said))
            if said and (self._is_nvprof or self._errors):
                raise InputError(f"{self._path}: nvprof recorded nothing; it said: {'; '.join(said)}")
            if self._plain:
                raise InputError(
                    f"{self._path}: nvprof printed its tables without --csv, which can be read for summaries only; "
                    "record with nvprof --csv"
                )
            if self._is_nvprof:
                lost = self._lost.first()
                raise InputError(f"{self._path}: nvprof's log has no complete table: {lost or 'it ends before one'}")
            raise InputError(f"{self._path}: not a log of nvprof --csv: it has none of its tables")
        self._lost.warn()
        if self._plain:
            self._report.warnings.append(f"{self._path.name}: a table that was printed without --csv is not read")
        if self._unified_memory:
            self._report.warnings.append(f"{self._path.name}: nvprof's summary of unified memory is not read")
        self._report.warnings += [f"{self._path.name}: nvprof said: {e}" for e in dict.fromkeys(self._errors)]
