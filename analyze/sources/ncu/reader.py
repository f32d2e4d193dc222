"""Read the output of Nsight Compute into the table ncu_metrics.

It is CSV (`csv_tables`) or text (`text_tables`), perhaps in a log with `==PROF==` lines and output of the program.
A log may have several reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from analyze.errors import InputError
from analyze.sources.interface import FileReport, TableBatch
from analyze.sources.ncu.csv_tables import LAUNCH_COLUMNS, LongTable, WideTable
from analyze.sources.ncu.metric_rows import MetricRows
from analyze.sources.ncu.text_tables import TextTables
from analyze.sources.text_lines import INCOMPLETE, LINE_LIMIT, NO_HEADER, LostRows, csv_cells, numbered_lines

_ERROR = re.compile(r"^==ERROR== ?(.+)")

# A header or a row may follow output of the program that did not end its line.
_HEADER = re.compile(r'"ID","Process ID",|^ID,Process ID,')
# A quoted text that continues in the next line never begins it with `"` and a digit.
_ROW = re.compile(r'"[0-9]{1,19}","[0-9]{1,19}",')
_BARE_ROW = re.compile(r"[0-9]{1,19},[0-9]{1,19},")
_COLUMN = re.compile(r'\b(?:Process ID|Process Name|Host Name|Kernel Name|Metric Name)"?,')
_SUMMARY_HEADER = re.compile(r'^"?Process ID"?,.*\bInvocations\b|\bMetric Unit\s+Minimum\s+Maximum\b')
_SUMMARY_LENGTH = 1000
_SUMMARY_ROW = re.compile(r'"?[0-9]{1,19}"?,')
_PART_OF_ROW = re.compile(r'\s*"(?:[0-9]|[^"]*(?:","|\Z))')
"""A damaged row, but not a quoted line of the program."""

_SUMMARY = "rows of --print-summary are not read"
_LINE_NOT_ENDED = "the last line has no line end; its last value may be truncated"


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the metrics of a file. Launches are numbered from 0 in the order of the file.

    Drops rows that cannot be read, with a warning. Raises InputError for a file without launches.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as f:
        yield from read_lines(f, str(path), report)


def read_lines(file: IO[str], path: str, report: FileReport) -> Iterator[TableBatch]:
    """Yield the metrics of ncu's output; messages name it `path`. Raises InputError."""
    log = _Log(path, report)
    for at, line in numbered_lines(file):
        log.line(at, line)
        yield from log.rows.full()
    log.finish()
    yield from log.rows.rest()


class _Log:
    """Reads the output line by line.

    A CSV table continues until the next header; blank lines, ncu's messages and the program's output may interrupt it.
    """

    def __init__(self, path: str, report: FileReport):
        self.rows = MetricRows(path)
        self._path, self._report = path, report
        self._lost = LostRows(path, report)
        self._text = TextTables(self.rows, report, self._lost)
        self._table: WideTable | LongTable | None = None
        self._record: list[tuple[int, str]] = []
        """Lines of an unfinished record (its quotes are open), with their numbers."""
        self._characters = 0
        self._errors: list[str] = []
        self._profiled_none = self._header_seen = False
        self._summary_seen = self._in_summary = False

    def line(self, at: int, line: str) -> None:
        """Read a line."""
        begin = self._begin(line)
        if self._record and (begin is not None or line.startswith("==")):
            self._drop_record()
        if not self._record:
            if error := _ERROR.match(line):
                self._errors.append(error.group(1).strip())
            self._profiled_none = self._profiled_none or "No kernels were profiled" in line
            if begin is None:
                self._other(at, line)
                return
            line, self._characters = line[begin:], 0
        goes_on = bool(self._record) ^ bool(line.count('"') % 2)
        self._record.append((at, line))
        self._characters += len(line)
        if self._characters > LINE_LIMIT:
            self._drop_record()
        elif not goes_on:
            began = self._record[0][0]
            record = "".join(part for _, part in self._record)
            self._record = []
            self._take_record(began, record)

    def _begin(self, line: str) -> int | None:
        """Return where a header, a row or a line of units begins in a line; None if there is none."""
        if found := _HEADER.search(line):
            return found.start()
        bare = self._table is not None and (self._table.bare or self._is_bare_row(line))
        if found := _BARE_ROW.match(line) if bare else _ROW.search(line):
            return found.start()
        # The line of units, or a row without its first fields.
        return 0 if self._table and not self._record and line.startswith("," if bare else '"",') else None

    def _is_bare_row(self, line: str) -> bool:
        """Return whether a line is an unquoted row of a quoted table."""
        table = self._table
        if table is None or self._record or '"' in line or not _BARE_ROW.match(line):
            return False
        return line.count(",") == table.fields - 1

    def _drop_record(self) -> None:
        """Drop a record whose quotes are never closed; its other lines do not belong to it."""
        (began, _), *others = self._record
        self._record = []
        self._lost.add(began, INCOMPLETE)
        for at, line in others:
            self._other(at, line)

    def _take_record(self, began: int, record: str) -> None:
        cells = csv_cells(record)
        is_header = _HEADER.match(record) is not None
        if is_header:
            self._table, self._in_summary = None, False
        # The file may end after a comma.
        if cells is None or record.endswith(","):
            if not is_header:
                self._lost.add(began, INCOMPLETE)
        elif is_header:
            if set(LAUNCH_COLUMNS) <= set(cells):
                form = LongTable if "Metric Name" in cells else WideTable
                self._table = form(cells, self.rows, self._report, bare=not record.startswith('"'))
                self._header_seen = True
        elif self._table is None:
            self._lost.add(began, NO_HEADER)
        elif isinstance(self._table, WideTable) and self._table.is_units(cells):
            # A second line of units belongs to a table whose header is missing.
            self._table = self._table if self._table.take_units(cells) else None
        elif why := self._table.row(cells):
            self._lost.add(began, why)
        elif not record.endswith(("\n", "\r", '"')):
            self._report.warnings.append(f"{Path(self._path).name}: {_LINE_NOT_ENDED}")

    def _other(self, at: int, line: str) -> None:
        """Read a line that does not begin a record: a part of one, ncu's text output, or output of the program."""
        table = self._table
        if _SUMMARY_HEADER.search(line[:_SUMMARY_LENGTH]):
            self._table, self._in_summary, self._summary_seen = None, True, True
        elif self._in_summary and _SUMMARY_ROW.match(line):
            self._lost.add(at, _SUMMARY)
        elif table is not None and len(_COLUMN.findall(line)) > 1:
            self._table = None  # a damaged header
        elif table is not None and (
            (_PART_OF_ROW.match(line) and not table.bare)
            or line.count("," if table.bare else '","') >= max(2, table.fields // 2)
        ):
            self._lost.add(at, INCOMPLETE)
        else:
            self._text.line(at, line)

    def finish(self) -> None:
        """Report losses and ncu's errors. Raises InputError if there was no launch."""
        if self._record:
            self._drop_record()
        if not self.rows.launches:
            raise InputError(f"{self._path}: {self._nothing()}")
        self._lost.warn()
        if unread := self.rows.finish():
            self._report.lost += self.rows.lost
            self._report.warnings.append(f"{Path(self._path).name}: {unread}")
        self._report.warnings += [f"{Path(self._path).name}: ncu said: {e}" for e in dict.fromkeys(self._errors)]

    def _nothing(self) -> str:
        if self._errors:
            return f"ncu recorded nothing: it said: {'; '.join(dict.fromkeys(self._errors))}"
        if self._profiled_none:
            return "ncu says that no kernels were profiled; its kernel filter or capture range left none"
        if self._summary_seen:
            return "has a summary of launches (--print-summary), which is not read; print it without --print-summary"
        if self._header_seen:
            lost = self._lost.first()
            return f"has no complete launch: {lost or 'it ends after its header'}"
        return 'not output of ncu: no line begins "ID","Process ID" and no table of metrics; record with ncu --csv'
