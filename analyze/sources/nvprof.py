"""Logs of nvprof (`--csv`), wrapped in the program's own output -> the tables that its tables are of.

- summaries (`"Type","Time(%)","Time","Calls",...`): gpu_summary and api_summary;
- metrics and events (`"Device","Kernel","Invocations","Metric Name",...`): metric_summary;
- traces (`--print-gpu-trace`, `--print-api-trace`): kernels, memcpys, memsets and cuda_calls.

A table begins with its header, in summaries and traces followed by a line of units; fields are parted by commas, or by
tabs where a spreadsheet has saved the log again. nvprof's KB are 1024 bytes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from schemas.tables import arrow_schema

_BATCH_ROWS = 64 << 10

_PROCESS = re.compile(r"^==(\d+)== ")
_BANNER = re.compile(r"^==\d+== NVPROF is profiling process \d+[,\t]\s*command: (.*)")
_ERROR = re.compile(r"^==(?:\d+|=+)== Error: (.+)")
_WARNING = re.compile(r"^==(?:\d+|=+)== Warning: (.+)")
_NOTHING = re.compile(r"^(No (?:events/metrics|kernels|API activities) were profiled)")
_STOPPED = "Execution timeout"

_NS = {"ns": Decimal(1), "us": Decimal(1000), "ms": Decimal(10**6), "s": Decimal(10**9)}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_UNITS = frozenset((*_NS, *_BYTES, *(f"{b}/s" for b in _BYTES), "%", ""))

_DEVICE = re.compile(r"^(.*?)\s*\((\d+)\)\s*\Z")
_COPY = re.compile(r"^\[(?:CUDA|Unified Memory) [Mm]emcpy (HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoD|DtoA|AtoA)\]")
_KERNEL_INDEX = re.compile(r" \[\d+\]\Z")
_METRIC_VALUE = re.compile(r"^([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([^\d\s]\S*)?\Z")
_LEVEL = re.compile(r"^\w+ \((\d+)\)\Z")
_ARCH = re.compile(r"(?:^|\s)(?:--arch|-a)[ =](\S+)")
_BATCH_SIZE = re.compile(r"(?:^|\s)(?:--batch-size|-b)[ =](\d+)")

Row = dict[str, Any]


class _Rows:
    """Rows by table, taken out as batches."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Row]] = {}
        self.seen = 0

    def add(self, table: str, row: Row) -> None:
        """Add a row; columns that it lacks are NULL."""
        self._rows.setdefault(table, []).append(row)
        self.seen += 1

    def take(self, at_least: int) -> Iterator[TableBatch]:
        """The tables that have so many rows."""
        for table in [t for t, rows in self._rows.items() if len(rows) >= at_least]:
            fields = [f for f in arrow_schema(table) if f.name not in ("run_id", "rank")]
            rows = self._rows.pop(table)
            arrays = [
                pa.array(values, pa.string()).dictionary_encode()
                if pa.types.is_dictionary(f.type)
                else pa.array(values, f.type)
                for f, values in ((f, [r.get(f.name) for r in rows]) for f in fields)
            ]
            yield table, None, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the tables of a log.

    A line that is not whole is dropped, with a warning. Raises InputError for a log without a table: what nvprof said
    of it, if it said something.
    """
    log = _Log(path, report)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as f:
            for number, line in enumerate(f, 1):
                log.line(number, line.rstrip("\r\n"))
                yield from log.rows.take(_BATCH_ROWS)
    except OSError as e:
        raise InputError(f"{path}: cannot be read: {e.strerror}") from e
    log.finish()
    yield from log.rows.take(1)


class _Log:
    """The log, line by line: which table it is in, and what nvprof said around the tables."""

    def __init__(self, path: Path, report: FileReport):
        self.rows = _Rows()
        self._path, self._report = path, report
        self._table: _Table | None = None
        self._pid: int | None = None
        self._in_api_calls = False
        self._said: list[str] = []
        self._errors: list[str] = []
        self._is_nvprof = False
        self._devices: set[int] = set()

    def line(self, number: int, line: str) -> None:
        """Take a line."""
        if line.startswith("=="):
            self._table = None
            self._message(line.rstrip())
            return
        if match := _NOTHING.match(line):
            self._said.append(match.group(1))
            return
        delimiter = "\t" if "\t" in line else ","
        cells = next(csv.reader([line], delimiter=delimiter), []) if delimiter in line else []
        if header := _header(cells):
            self._is_nvprof = True
            self._table = _Table(header, self._in_api_calls)
        elif self._table is not None and not line.strip():
            if self._table.began:
                self._table = None
        elif self._table is not None:
            self._table_line(number, self._table, cells)

    def _message(self, line: str) -> None:
        if match := _PROCESS.match(line):
            self._pid = int(match.group(1))
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
        """Options of PyTorch's example programs, which say the model and the batch size."""
        info = self._report.info
        info.setdefault("command", command)
        if match := _ARCH.search(command):
            info.setdefault("model", match.group(1))
        if match := _BATCH_SIZE.search(command):
            info.setdefault("batch_size", int(match.group(1)))

    def _table_line(self, number: int, table: _Table, cells: list[str]) -> None:
        if not table.began and len(cells) > 1 and all(c.strip() in _UNITS for c in cells):
            table.units = dict(zip(table.header, (c.strip() for c in cells), strict=False))
            table.began = True
            return
        table.began = True
        if len(cells) < len(table.header):
            # The program's own output, or the last line of a killed run.
            if len(cells) > 1 or not cells:
                self._report.warnings.append(f"{self._path.name}: line {number} is not whole and is left out")
            return
        try:
            name, row = table.row(dict(zip(table.header, cells, strict=False)), self._pid)
        except (ValueError, InvalidOperation):
            self._report.warnings.append(f"{self._path.name}: line {number} is not whole and is left out")
            return
        if row is None:
            self._report.warnings.append(f"{self._path.name}: line {number} is of a kind that is not read: {name}")
            return
        self.rows.add(name, row)
        if row.get("device") is not None and row["device"] not in self._devices:
            self._devices.add(row["device"])
            self._report.info["gpus"] = len(self._devices)
        if device := table.device_name:
            self._report.info.setdefault("gpu_name", device)

    def finish(self) -> None:
        """Raise InputError if the log held no table; else keep nvprof's errors as warnings."""
        if not self.rows.seen:
            said = list(dict.fromkeys(self._errors + self._said))
            if said and (self._is_nvprof or self._errors):
                raise InputError(f"{self._path}: nvprof recorded nothing; it said: {'; '.join(said)}")
            if self._is_nvprof:
                raise InputError(
                    f"{self._path}: nvprof's log holds no whole table: it ends before one, or was cut there"
                )
            raise InputError(f"{self._path}: not a log of nvprof --csv: it holds none of its tables")
        self._report.warnings += [f"{self._path.name}: nvprof said: {e}" for e in dict.fromkeys(self._errors)]


def _header(cells: list[str]) -> list[str] | None:
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


class _Table:
    """A table of the log, by its header."""

    def __init__(self, header: list[str], in_api_calls: bool):
        self.header = header
        self.units: dict[str, str] = {}
        self.began = False
        self.device_name: str | None = None
        self._in_api_calls = in_api_calls

    def row(self, cells: dict[str, str], pid: int | None) -> tuple[str, Row | None]:
        """Table and row of a line; the line's name and None for a kind that has no table. Raises ValueError."""
        if "Invocations" in cells:
            return "metric_summary", self._metric(cells)
        if "Time(%)" in cells:
            return self._summary(cells)
        if "Device" in cells:
            return self._gpu(cells, pid)
        return "cuda_calls", self._call(cells, pid)

    def _ns(self, cells: dict[str, str], column: str) -> int:
        unit = self.units.get(column, "")
        if unit not in _NS:
            raise ValueError(f"{column} without a unit of time")
        return round(Decimal(cells[column]) * _NS[unit])

    def _bytes(self, cells: dict[str, str], column: str) -> int | None:
        text = cells.get(column, "")
        unit = self.units.get(column) or "B"
        if unit not in _BYTES:
            raise ValueError(f"{column} in {unit}")
        return round(Decimal(text) * _BYTES[unit]) if text else None

    def _summary(self, cells: dict[str, str]) -> tuple[str, Row | None]:
        kind = cells.get("Type", "API calls" if self._in_api_calls else "GPU activities")
        table = {"API calls": "api_summary", "GPU activities": "gpu_summary"}.get(kind)
        if table is None:
            return kind, None
        return table, {
            "name": cells["Name"],
            "calls": int(cells["Calls"]),
            "total_ns": self._ns(cells, "Time"),
            "avg_ns": self._ns(cells, "Avg"),
            "min_ns": self._ns(cells, "Min"),
            "max_ns": self._ns(cells, "Max"),
            "share_pct": float(cells["Time(%)"]),
        }

    def _metric(self, cells: dict[str, str]) -> Row:
        device_name, device = self._device(cells["Device"])
        numbers = {c: _metric_value(cells[c]) for c in ("Min", "Max", "Avg")}
        return {
            "device_name": device_name,
            "device": device,
            "kernel": cells["Kernel"],
            "invocations": int(cells["Invocations"]),
            "metric": cells["Metric Name"] if "Metric Name" in cells else cells["Event Name"],
            "description": cells.get("Metric Description"),
            "unit": next((unit for _, unit in numbers.values() if unit), None),
            **{c.lower(): value for c, (value, _) in numbers.items()},
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
            "stream": _int(cells.get("Stream")),
            "start_ns": self._ns(cells, "Start"),
            "dur_ns": self._ns(cells, "Duration"),
            "correlation_id": _int(cells.get("Correlation_ID")),
        }
        if kernel:
            axes = {
                f"{kind.lower()}_{a.lower()}": _int(cells[f"{kind} {a}"]) for kind in ("Grid", "Block") for a in "XYZ"
            }
            shared = [b for c in ("Static SMem", "Dynamic SMem") if (b := self._bytes(cells, c)) is not None]
            name = _KERNEL_INDEX.sub("", name)
            registers = _int(cells.get("Registers Per Thread"))
            more = {"registers": registers, "shared_mem_bytes": sum(shared) if shared else None}
            return "kernels", row | axes | more | {"name": name}
        row |= {"bytes": self._bytes(cells, "Size"), "dst_memory": cells.get("DstMemType") or None}
        if not copy:
            # A fill writes what the log calls its source.
            return "memsets", row | {"dst_memory": row["dst_memory"] or cells.get("SrcMemType") or None}
        ends = {f"{end.lower()}_device": self._device(cells.get(f"{end} Dev", ""))[1] for end in ("Src", "Dst")}
        return "memcpys", row | ends | {"kind": copy.group(1), "src_memory": cells.get("SrcMemType") or None}

    def _call(self, cells: dict[str, str], pid: int | None) -> Row:
        name = re.sub(r"_v\d+\Z", "", cells["Name"])
        return {
            "pid": pid,
            "api": "runtime" if name.startswith("cuda") else "driver",
            "name": name,
            "start_ns": self._ns(cells, "Start"),
            "dur_ns": self._ns(cells, "Duration"),
            "correlation_id": _int(cells.get("Correlation_ID")),
        }

    def _device(self, text: str) -> tuple[str | None, int | None]:
        match = _DEVICE.match(text)
        if not match:
            return text or None, None
        self.device_name = match.group(1)
        return match.group(1), int(match.group(2))


def _metric_value(text: str) -> tuple[float | None, str | None]:
    """Value and unit of a metric: `95.30%`, `12.3GB/s`, `High (9)`; NULL for `<OVERFLOW>` and the like."""
    text = text.strip()
    if match := _METRIC_VALUE.match(text):
        return float(match.group(1)), match.group(2)
    if match := _LEVEL.match(text):
        return float(match.group(1)), "level"
    return None, None


def _int(text: str | None) -> int | None:
    return int(text) if text else None
