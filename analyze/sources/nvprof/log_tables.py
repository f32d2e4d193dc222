"""Tables of nvprof (`--csv`), as rows of the tables.

- summaries (`"Type","Time(%)","Time","Calls",...`): gpu_summary and api_summary;
- metrics and events (`"Device","Kernel","Invocations","Metric Name",...`): metric_summary;
- traces (`--print-gpu-trace`, `--print-api-trace`): kernels, memcpys, memsets and cuda_calls.

Without `--csv`, only summaries are read (`PlainSummary`): each time has its unit.

A table begins with its header; in summaries and traces a line of units follows. Fields are separated by commas, or by
tabs if a spreadsheet saved the log. nvprof's KB are 1024 bytes.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite

from analyze.sources.interface import Row
from analyze.sources.text_lines import count, number, optional_whole, scaled, whole

_NS = {"ns": Decimal(1), "us": Decimal(1000), "ms": Decimal(10**6), "s": Decimal(10**9)}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_UNITS = frozenset((*_NS, *_BYTES, *(f"{b}/s" for b in _BYTES), "%", ""))

DEVICE_INDEX = re.compile(r"\(([0-9]{1,19})\)\Z")
"""The end of a device name."""
_COPY = re.compile(r"^\[(?:CUDA|(Unified) Memory) [Mm]emcpy (HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoD|DtoA|AtoA)\]")
_KERNEL_INDEX = re.compile(r" \[\d+\]\Z")
_METRIC_VALUE = re.compile(r"^([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([^\d\s]\S*)?\Z", re.ASCII)
_LEVEL = re.compile(r"^\w+ \((\d+)\)\Z", re.ASCII)
_NOT_MEASURED = re.compile(r"<[A-Z ]+>|n/a|", re.IGNORECASE)
"""Values such as `<OVERFLOW>`."""

_SUMMARIES = {"API calls": "api_summary", "GPU activities": "gpu_summary"}


def header_of(cells: list[str]) -> list[str] | None:
    """Return the columns if a line is the header of a table, else None."""
    names = [c.strip().strip('"') for c in cells]
    while names and not names[-1]:
        names.pop()
    known = (
        {"Time(%)", "Time", "Calls", "Name"},
        {"Device", "Kernel", "Invocations", "Metric Name"},
        {"Device", "Kernel", "Invocations", "Event Name"},
        {"Start", "Duration", "Name"},
    )
    return names if any(k <= set(names) for k in known) else None


class NoUnit(Exception):
    """The unit of a column is unknown."""


class LogTable:
    """A table of the log."""

    def __init__(self, header: list[str], in_api_calls: bool):
        self.header = header
        self.device_name: str | None = None
        self._units: dict[str, str] | None = None
        self._in_api_calls = in_api_calls

    def is_units(self, cells: list[str]) -> bool:
        """Return whether a line is a line of units."""
        words = [c.strip() for c in cells]
        return any(words) and all(w in _UNITS for w in words)

    def take_units(self, cells: list[str]) -> bool:
        """Read a line of units; return False if there was one before."""
        if self._units is not None:
            return False
        words = [c.strip() for c in cells]
        if len(words) >= len(self.header) and not any(words[len(self.header) :]):
            self._units = dict(zip(self.header, words, strict=False))
        return True

    def row(self, cells: dict[str, str], pid: int | None) -> tuple[str, Row | None]:
        """Return table and row of a line; name and None for a kind of rows that is not read.

        Raises ValueError for a bad number, NoUnit for an unknown unit and KeyError for a missing column.
        """
        if "Invocations" in cells:
            return "metric_summary", self._metric(cells)
        if "Time(%)" in cells:
            return self._summary(cells)
        if "Device" in cells:
            return self._gpu(cells, pid)
        return "cuda_calls", self._call(cells, pid)

    def _ns(self, cells: dict[str, str], column: str) -> int:
        text, unit = cells[column], (self._units or {}).get(column, "")
        if unit not in _NS:
            raise NoUnit
        return scaled(text, _NS[unit])

    def _bytes(self, cells: dict[str, str], column: str) -> int | None:
        text, unit = cells.get(column, ""), (self._units or {}).get(column, "")
        if text and unit not in _BYTES:
            raise NoUnit
        return scaled(text, Decimal(_BYTES[unit])) if text else None

    def _summary(self, cells: dict[str, str]) -> tuple[str, Row | None]:
        kind = cells.get("Type", "API calls" if self._in_api_calls else "GPU activities")
        table = _SUMMARIES.get(kind)
        if table is None:
            return kind, None
        times = [self._ns(cells, column) for column in ("Time", "Avg", "Min", "Max")]
        return table, _summary_row(cells["Name"], cells["Calls"], times, cells["Time(%)"])

    def _metric(self, cells: dict[str, str]) -> Row:
        device_name, device = self._device(cells["Device"])
        values, unit = _metric_values([cells[c] for c in ("Min", "Max", "Avg")])
        return {
            "device_name": device_name,
            "device": device,
            "kernel": cells["Kernel"],
            "invocations": count(cells["Invocations"]),
            "metric": cells["Metric Name"] if "Metric Name" in cells else cells["Event Name"],
            "description": cells.get("Metric Description"),
            "unit": unit,
            **dict(zip(("min", "max", "avg"), values, strict=True)),
        }

    def _gpu(self, cells: dict[str, str], pid: int | None) -> tuple[str, Row | None]:
        name = cells["Name"]
        copy = _COPY.match(name)
        kernel = bool(cells.get("Grid X"))
        if not kernel and not copy and not name.startswith("[CUDA memset"):
            return name, None
        row: Row = {
            "pid": pid,
            "device": self._device(cells["Device"])[1],
            "stream": optional_whole(cells.get("Stream")),
            "start_ns": self._ns(cells, "Start"),
            "dur_ns": self._ns(cells, "Duration"),
            "correlation_id": optional_whole(cells.get("Correlation_ID")),
        }
        if kernel:
            axes = {
                f"{kind.lower()}_{a.lower()}": optional_whole(cells[f"{kind} {a}"], 32)
                for kind in ("Grid", "Block")
                for a in "XYZ"
            }
            shared = [b for c in ("Static SMem", "Dynamic SMem") if (b := self._bytes(cells, c)) is not None]
            name = _KERNEL_INDEX.sub("", name)
            registers = optional_whole(cells.get("Registers Per Thread"), 32)
            more = {"registers": registers, "shared_mem_bytes": whole(str(sum(shared))) if shared else None}
            return "kernels", row | axes | more | {"name": name}
        # The bytes of managed memory have a column of their own.
        size = "Unified Memory" if copy and copy[1] and cells.get("Unified Memory") else "Size"
        row |= {"bytes": self._bytes(cells, size), "dst_memory": cells.get("DstMemType") or None}
        if not copy:
            # The log names the memory that a fill writes as its source.
            return "memsets", row | {"dst_memory": row["dst_memory"] or cells.get("SrcMemType") or None}
        ends = {f"{end.lower()}_device": self._device(cells.get(f"{end} Dev", ""))[1] for end in ("Src", "Dst")}
        return "memcpys", row | ends | {
            "kind": " ".join(filter(None, copy.groups())),
            "src_memory": cells.get("SrcMemType") or None,
        }

    def _call(self, cells: dict[str, str], pid: int | None) -> Row:
        name = re.sub(r"_v\d+\Z", "", cells["Name"])
        return {
            "pid": pid,
            "api": "runtime" if name.startswith("cuda") else "driver",
            "name": name,
            "start_ns": self._ns(cells, "Start"),
            "dur_ns": self._ns(cells, "Duration"),
            "correlation_id": optional_whole(cells.get("Correlation_ID")),
        }

    def _device(self, text: str) -> tuple[str | None, int | None]:
        text = text.strip()
        match = DEVICE_INDEX.search(text[-40:])
        if not match:
            return text or None, None
        name, device = text[: -len(match.group())].rstrip(), whole(match.group(1), 32)
        self.device_name = name
        return name, device


class PlainSummary:
    """A summary of a log that was recorded without `--csv`.

    Since 2017 a column says whether rows are of GPU activities or API calls, in the first row of each.
    """

    _HEADER = re.compile(r"\s*(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max +Name\s*\Z")
    _TIME = r" +([0-9.]{1,20})(ns|us|ms|s)"
    _BEGIN = r"\s*+(?:([A-Za-z ()]{1,20}):)?\s*+([0-9.]{1,8})%"
    _BEGINS_ROW = re.compile(_BEGIN)
    _ROW = re.compile(rf"{_BEGIN}{_TIME} +([0-9]{{1,19}}){_TIME * 3} {{2}}(\S.*)\Z")

    def __init__(self, in_api_calls: bool):
        self._kind = "API calls" if in_api_calls else "GPU activities"

    @classmethod
    def begins(cls, text: str) -> bool:
        """Return whether a line is the header of such a table."""
        return cls._HEADER.match(text) is not None

    def row(self, text: str) -> tuple[str, Row | None] | None:
        """Return table and row of a line, as `LogTable.row`; None if it has none. Raises ValueError for half a row."""
        match = self._ROW.match(text)
        if not match:
            if self._BEGINS_ROW.match(text):
                raise ValueError(text[:40])
            return None
        kind, share, total, unit, calls, *times, name = match.groups()
        self._kind = kind.strip() if kind else self._kind
        table = _SUMMARIES.get(self._kind)
        if table is None:
            return self._kind, None
        ns = [scaled(total, _NS[unit]), *(scaled(t, _NS[u]) for t, u in zip(times[::2], times[1::2], strict=True))]
        return table, _summary_row(name.strip(), calls, ns, share)


def _summary_row(name: str, calls: str, times: list[int], share: str) -> Row:
    times_by_column = dict(zip(("total_ns", "avg_ns", "min_ns", "max_ns"), times, strict=True))
    return {"name": name, "calls": count(calls), **times_by_column, "share_pct": number(share)}


def _metric_values(texts: list[str]) -> tuple[list[float | None], str | None]:
    """Convert values of a metric to one unit: `95.30%`, `12.3GB/s`, `High (9)`; NULL for `<OVERFLOW>`.

    nvprof chooses a prefix for each value; the result has the unit of the last value with a unit. Raises ValueError.
    """
    parsed = [_metric_value(t) for t in texts]
    unit = next((u for value, u in reversed(parsed) if value is not None and u), None)
    values = [None if v is None else v * _ratio(u, unit) for v, u in parsed]
    if not all(v is None or isfinite(v) for v in values):
        raise ValueError(f"{texts} have no common unit")
    return values, unit


def _metric_value(text: str) -> tuple[float | None, str | None]:
    text = text.strip()
    if match := _METRIC_VALUE.match(text):
        return number(match.group(1)), match.group(2)
    if match := _LEVEL.match(text):
        return number(match.group(1)), "level"
    if _NOT_MEASURED.fullmatch(text):
        return None, None
    raise ValueError(f"{text[:40]!r} is not a value of a metric")


def _ratio(unit: str | None, to: str | None) -> float:
    if unit == to:
        return 1
    (a, of_a), (b, of_b) = ((u or "").partition("/")[::2] for u in (unit, to))
    if a not in _BYTES or b not in _BYTES or of_a != of_b:
        raise ValueError(f"{unit} is not {to}")
    return _BYTES[a] / _BYTES[b]
