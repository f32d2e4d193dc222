"""Tables of Nsight Compute as text (without `--csv`): a heading for each launch, then metric, unit and value."""

from __future__ import annotations

import re

from analyze.sources.interface import FileReport
from analyze.sources.ncu.metric_rows import METRIC_NAME, Launch, MetricRows
from analyze.sources.text_lines import INCOMPLETE, LostRows, optional_whole, whole
from schemas.ncu_units import scale

_WIDE_TEXT = "its table has more columns than metric, unit and value"
_NO_LAUNCH = "it has no heading of a launch, or a damaged one"
# Lines of text may have any length: all patterns take linear time.
_TEXT_PROCESS = re.compile(r"\[([0-9]{1,18})\] [^@\s]+@\S+\Z")
_HEADING_PARTS = (", Context ", ", Stream ", ", CC ", ")x(")
_LAUNCH_SIZE = re.compile(r"(?: \((\d+, \d+, \d+)\)x\((\d+, \d+, \d+)\)|, \d{4}-\w{3}-\d{2} [\d:]+)\Z", re.ASCII)
_LAUNCH_PLACE = re.compile(r"\d+, Stream (\d+)(?:, Device (\d+), CC (\d+\.\d+))?\Z", re.ASCII)


class TextTables:
    """Reads tables line by line; a line of dashes marks their columns.

    A table follows the name of its section: dashes, (since 2022) a header and dashes, rows, dashes.
    """

    def __init__(self, rows: MetricRows, report: FileReport, lost: LostRows):
        self._rows, self._report, self._lost = rows, report, lost
        self._launch: Launch | None = None
        self._pid: int | None = None
        self._section: str | None = None
        self._sections: set[str] = set()
        self._columns: list[tuple[int, int]] = []
        self._begun = False
        """Whether any text output was seen."""
        self._open = self._any_row = False
        """Whether rows are expected, so that an unreadable one is lost; whether there was one."""

    def line(self, at: int, line: str) -> None:
        """Read a line."""
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        is_metric = indent == 4 and METRIC_NAME.match(text) is not None
        if match := _TEXT_PROCESS.match(text):
            self._pid, self._begun = int(match.group(1)), True
        elif (0 < indent < 4 or is_metric) and any(part in text for part in _HEADING_PARTS):
            self._begin_launch(None if is_metric else text)
            if is_metric:
                self._lost.add(at, INCOMPLETE)  # the end of its line is missing
        elif text.startswith("Section: "):
            self._begin_section(text.removeprefix("Section: "))
        elif text.startswith("---") and " " in text and not text.strip("- "):
            # Dashes after rows end the table; others begin it or follow its header.
            self._columns = [m.span() for m in re.finditer("-+", line)]
            self._open, self._any_row = not (self._open and self._any_row), False
        elif cells := self._cells(line):
            self._row(at, *cells)
        elif (is_metric and (self._begun or "  " in text)) or (self._open and _looks_like_row(indent, text)):
            self._any_row = True
            self._lost.add(at, _WIDE_TEXT if len(self._columns) > 3 else INCOMPLETE if self._open else _NO_LAUNCH)

    def _begin_launch(self, heading: str | None) -> None:
        """Begin a launch; it is unknown if its heading cannot be read."""
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
            self._launch = None  # a launch has each section once: the heading of the next launch is missing
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
        """Return metric, unit and value; None if the line is incomplete or not a row."""
        if len(self._columns) != 3 or not line.endswith(("\n", "\r")):
            return None
        (begin, name_end), (_, unit_end), _ = self._columns
        metric, unit, value = line[begin:name_end].strip(), line[name_end:unit_end].strip(), line[unit_end:].strip()
        begins_there = not line[:begin].strip() and bool(line[begin : begin + 1].strip())
        parted = not (line[name_end : name_end + 1] + line[unit_end : unit_end + 1]).strip()
        return (metric, unit, value) if begins_there and parted and value and "  " not in metric else None


def _looks_like_row(indent: int, text: str) -> bool:
    """Return whether a line in a table has gaps, and begins or ends like a row."""
    _, gap, value = text.rpartition("  ")
    return bool(gap) and "---" not in text and (indent > 1 or value == "n/a" or value[:1].isdigit())
