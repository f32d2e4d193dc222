"""Answers as text: tables for people (units, right-aligned), CSV, JSON, Markdown and Parquet for machines."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from analyze.errors import InputError
from analyze.whole_file import write_whole

if TYPE_CHECKING:
    from analyze.query.answer import Answer
    from analyze.query.query_files import ResultColumn

FORMATS = ("table", "csv", "json", "parquet", "markdown")

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1, "FLOP/s")),
}
_ENDINGS = {"ns": "_ns", "s": "_s", "B": "_bytes", "FLOP": "_flops", "FLOP/s": "_flops_per_s"}
"""What the heading need not say, by unit."""
_MIN_TEXT_WIDTH = 8
_TEXT_UNITS = ("text", "id", "time")
_PLAIN_UNITS = ("text", "id", "time", "index", "count", "number", "bool")


# C0 and C1 controls, what turns the direction of text or breaks its line, and halves of surrogate pairs: they stand for
# bytes that were not UTF-8.
_UNSEEN = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ESCAPED = re.compile(f"[{_UNSEEN}]")
_ESCAPED_CSV = re.compile(f"(?![\t\r\n])[{_UNSEEN}]")


def visible(text: str, pattern: re.Pattern[str] = _ESCAPED) -> str:
    """Text of a recording as it may be shown: what a terminal would obey, or no one would see, is spelled out."""
    return text if text.isascii() and text.isprintable() else pattern.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: r"\t", 10: r"\n", 13: r"\r"}.get(code, f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _finite(value: Any) -> Any:
    """A value without NaN and infinity, which JSON and tables have no number for: None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    return value


def _csv_cell(value: Any) -> Any:
    if isinstance(value, float):
        return _finite(value)
    return visible(str(value), _ESCAPED_CSV) if isinstance(value, str | list | dict) else value


def write(answer: Answer, kind: str, output: Path | None, stdout: TextIO) -> None:
    """Write an answer in one of FORMATS to a file, whole or not at all, or to stdout.

    Raises InputError if the file cannot be written.
    """
    if kind == "parquet":
        if output is None:
            raise InputError("--format parquet needs -o FILE")
        write_whole(output, lambda part: _write_parquet(answer, part))
    elif output is None:
        to_stdout(lambda: _write_text(answer, kind, stdout, colour=True), stdout)
    else:
        write_whole(output, lambda part: _write_text_file(answer, kind, part))


def write_with(write_text: Callable[[TextIO], None], output: Path | None, stdout: TextIO) -> None:
    """Let a function write text of its own to a file, whole or not at all, or to stdout; InputError as in `write`."""

    def write_part(part: Path) -> None:
        with part.open("w", encoding="utf-8") as f:
            write_text(f)

    if output is None:
        to_stdout(lambda: write_text(stdout), stdout)
    else:
        write_whole(output, write_part)


def to_stdout(write: Callable[[], None], stdout: TextIO | None) -> None:
    """Let a function write to stdout. A reader that goes away early (`| head`) has what it wanted: no error.

    Raises InputError where stdout is closed, or what it leads to is full.
    """
    if stdout is None:
        raise InputError("stdout is closed; write to a file with -o")
    try:
        write()
        stdout.flush()
    except OSError as e:
        # Python writes what is left in its buffer once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            raise InputError(f"stdout: cannot be written: {e.strerror or e}") from e


def _write_parquet(answer: Answer, path: Path) -> None:
    import pyarrow.parquet as pq

    # Not by its path: what fails, pyarrow removes, be it a device.
    with path.open("wb") as file:
        pq.write_table(answer.arrow(), file, compression="zstd")


def _write_text_file(answer: Answer, kind: str, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as f:
        _write_text(answer, kind, f, colour=False)


def _write_text(answer: Answer, kind: str, file: TextIO, colour: bool) -> None:
    names = [c.name for c in answer.columns]
    if kind == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([_csv_cell(n) for n in names])
        writer.writerows(map(_csv_cell, row) for row in answer.rows())
    elif kind == "json":
        rows = [dict(zip(names, map(_finite, r), strict=True)) for r in answer.rows()]
        json.dump(rows, file, indent=1, default=str, allow_nan=False)
        file.write("\n")
    elif kind == "markdown":
        _write_markdown(answer, file)
    else:
        _write_table(answer, file, colour)


def formatted(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Headings with units, and cells as text in those units: one unit for the whole of a column."""
    rows = answer.rows()
    headings, columns = [], []
    for i, column in enumerate(answer.columns):
        heading, cells = _format_column(column, [r[i] for r in rows])
        headings.append(heading)
        columns.append(cells)
    return headings, [list(cells) for cells in zip(*columns, strict=True)]


def _format_column(column: ResultColumn, values: list[Any]) -> tuple[str, list[str]]:
    label = visible(column.name)
    values = [_finite(v) for v in values]
    if column.unit in _SCALES:
        numbers = [abs(v) for v in values if v is not None]
        largest = max(numbers, default=0)
        factor, unit = next((s for s in _SCALES[column.unit] if largest >= s[0]), _SCALES[column.unit][-1])
        label = label.removesuffix(_ENDINGS[column.unit])
        digits = 0 if factor == 1 and column.unit in ("ns", "B", "FLOP") else 3 if column.unit in ("ns", "s") else 2
        return f"{label} ({unit})", ["" if v is None else f"{v / factor:,.{digits}f}" for v in values]
    if column.unit == "%":
        return f"{label.removesuffix('_pct')} (%)", ["" if v is None else f"{v:.2f}" for v in values]
    if column.unit not in _PLAIN_UNITS:
        label = f"{label} ({column.unit})"
    return label, [_plain(v, column.unit) for v in values]


def _plain(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if unit == "time":
        return str(value)[:19]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    if isinstance(value, int) and unit not in ("id", "index"):
        return f"{value:,}"
    return visible(str(value))


def is_text(column: ResultColumn) -> bool:
    """Whether a column is aligned to the left."""
    return column.unit in _TEXT_UNITS


def _write_table(answer: Answer, file: TextIO, colour: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings, rows = formatted(answer)
    # Texts that no row has (reason, warnings) would only take room, and so would the one run that all rows are of.
    one_run = [i for i, c in enumerate(answer.columns) if c.name == "run_id" and len({r[i] for r in rows}) == 1]
    one_run = one_run if len(answer.columns) > 1 else []
    empty = [i for i, c in enumerate(answer.columns) if is_text(c) and rows and not any(r[i] for r in rows)]
    shown = [i for i in range(len(answer.columns)) if i not in one_run and i not in empty]
    caption = "".join(f"run {rows[0][i]}" for i in one_run)
    columns = [answer.columns[i] for i in shown]
    headings, rows = [headings[i] for i in shown], [[r[i] for i in shown] for r in rows]
    console = Console(file=file, highlight=False, no_color=not colour)
    if not (colour and console.is_terminal):
        console.width = 160
    widths = _widths(columns, headings, rows, console.width)
    # A table of many numbers is wider than the terminal rather than cut.
    console.width = max(console.width, sum(widths) + 3 * len(widths))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, heading, width in zip(columns, headings, widths, strict=True):
        side: Literal["left", "right"] = "left" if is_text(column) else "right"
        table.add_column(Text(heading), justify=side, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        # As Text: nothing in a name is markup.
        table.add_row(*map(Text, row))
    # Captured: rich ends the program where nobody reads on.
    with console.capture() as capture:
        if caption:
            console.print(Text(caption))
        console.print(table)
        if not rows:
            console.print("no rows")
    file.write(capture.get())


def _widths(columns: list[ResultColumn], headings: list[str], rows: list[list[str]], total: int) -> list[int]:
    """Widths of the columns: numbers are never cut, the widest texts give way until the table fits."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    excess = sum(widths) + 3 * len(widths) - total
    while excess > 0:
        texts = [i for i, c in enumerate(columns) if is_text(c) and widths[i] > _MIN_TEXT_WIDTH]
        # An id that is cut cannot be asked for: it gives way last.
        texts = [i for i in texts if columns[i].unit != "id"] or texts
        if not texts:
            break
        widest = max(texts, key=lambda i: widths[i])
        second = max((widths[i] for i in texts if i != widest), default=_MIN_TEXT_WIDTH)
        cut = min(excess, max(1, widths[widest] - max(second, _MIN_TEXT_WIDTH)))
        widths[widest] -= cut
        excess -= cut
    return widths


def _write_markdown(answer: Answer, file: TextIO) -> None:
    headings, rows = formatted(answer)
    file.write("| " + " | ".join(headings) + " |\n")
    file.write("|" + "|".join(" --- " if is_text(c) else " ---: " for c in answer.columns) + "|\n")
    for row in rows:
        file.write("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n")
