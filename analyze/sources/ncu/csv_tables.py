"""CSV tables of Nsight Compute.

- wide (`--csv --page raw`): a row per launch, a column per metric, units in the second line;
- long (`--csv`, with `--metrics` or the details page): a row per metric of a launch, or per message of a rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from analyze.sources.interface import FileReport
from analyze.sources.ncu.metric_rows import Launch, MetricRows
from analyze.sources.text_lines import INCOMPLETE, NO_UNITS, optional_whole, whole
from schemas.ncu_units import UnitScale, scale

LAUNCH_COLUMNS = ("ID", "Process ID", "Kernel Name")
_DESCRIBE_LAUNCH = frozenset(
    (*LAUNCH_COLUMNS, "Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size")
) | {"Device", "CC", "Device Name", "Section Name"}
"""Columns of the wide form that are not metrics."""

_DEVICE_NAME = "device__attribute_display_name"
_NO_ID = "it has no launch ID"
_NO_METRIC = "it has neither a metric nor a rule"
_BAD_NUMBER = "a number of its launch cannot be read"
_AGAIN = "its launch already has a row"


class _Table(ABC):
    """A CSV table with its launches. `bare`: fields are not quoted."""

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
        """Read a row; return the reason if it cannot be read."""
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
        """Read a row that has an ID. Raises ValueError before anything is added."""


class WideTable(_Table):
    """A row per launch; units are in the line below the header."""

    def __init__(self, header: list[str], rows: MetricRows, report: FileReport, bare: bool):
        super().__init__(header, rows, report, bare)
        self._metrics = [(i, name) for i, name in enumerate(header) if name not in _DESCRIBE_LAUNCH]
        self._units: list[UnitScale] | None = None

    def is_units(self, cells: list[str]) -> bool:
        """Return whether a line is a line of units."""
        return not any(self._key(cells))

    def take_units(self, cells: list[str]) -> bool:
        """Read a line of units; return False if there was one before."""
        if self._units is not None:
            return False
        if len(cells) == self.fields:
            self._units = [scale(u) for u in cells]
        return True

    def _take(self, cells: list[str]) -> str | None:
        if len(cells) != self.fields:
            return INCOMPLETE
        if self._units is None:
            return NO_UNITS
        if self._key(cells) in self._launches:
            return _AGAIN
        launch = self._launch(cells)
        for i, name in self._metrics:
            self._rows.add(launch, None, name, self._units[i], cells[i])
        return None


class LongTable(_Table):
    """A row per metric of a launch."""

    def _take(self, cells: list[str]) -> str | None:
        # A row of a metric may end before the columns of rules.
        end = 1 + self._at.get("Metric Value", self.fields)
        metric, section = self._cell(cells, "Metric Name"), self._cell(cells, "Section Name") or None
        if "Metric Unit" not in self._at or not (
            len(cells) == self.fields or (metric and (len(cells) == end or cells[end:] == [""]))
        ):
            return INCOMPLETE
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
