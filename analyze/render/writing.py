"""Write answers to files and stdout, in one of FORMATS."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from analyze.atomic_output import write_atomically
from analyze.errors import InputError, os_failure
from analyze.render.excel import write_excel
from analyze.render.layout import table_lines, terminal_width
from analyze.render.texts import UNSEEN, visible
from analyze.render.units import finite, formatted, is_text

if TYPE_CHECKING:
    from analyze.query.result import Result

FORMATS = ("table", "csv", "json", "parquet", "markdown", "xlsx")
_SUFFIXES = {
    ".txt": "table", ".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "markdown", ".xlsx": "xlsx",
}  # fmt: skip
_FILES_ONLY = ("parquet", "xlsx")

_MARKUP = re.compile(r"[\\|*_`<>\[\]&~]")
_OBEYED = re.compile(f"(?![\t\n])[{UNSEEN}]")
"""Characters that CSV on a terminal escapes."""


def output_format(kind: str | None, output: Path | None) -> str:
    """Return the format of an answer: --format, else by the name of the file.

    Raises InputError for an unknown format, a file name of another or no format, and a format that needs a file.
    """
    if kind is not None and kind not in FORMATS:
        raise InputError(f"--format {kind}: must be one of {', '.join(FORMATS)}")
    if output is None:
        if kind in _FILES_ONLY:
            raise InputError(f"--format {kind} needs -o FILE")
        return kind or "table"
    said = _SUFFIXES.get(output.suffix.lower())
    if kind is None and said is None:
        raise InputError(f"-o {output}: unknown format; use one of the endings {', '.join(_SUFFIXES)}, or --format")
    if kind is not None and said not in (None, kind):
        raise InputError(f"-o {output}: the ending means {said}, but --format is {kind}")
    return kind or said or "table"


def write(answer: Result, kind: str, output: Path | None, stdout: TextIO, wide: bool = False) -> None:
    """Write an answer to a file, completely or not at all, or to stdout. `wide`: tables with all columns.

    Raises InputError if the file cannot be written.
    """
    if kind in _FILES_ONLY:
        if output is None:
            raise InputError(f"--format {kind} needs -o FILE")
        write_file = _write_parquet if kind == "parquet" else write_excel
        write_atomically(output, lambda part: write_file(answer, part))
    elif output is None:
        to_stdout(lambda: _write_text(answer, kind, stdout, wide), stdout)
    else:
        write_atomically(output, lambda part: _write_text_file(answer, kind, part, wide))


def write_with(write_text: Callable[[TextIO], None], output: Path | None, stdout: TextIO) -> None:
    """Let a function write text to a file, completely or not at all, or to stdout. Raises InputError as `write`."""

    def write_part(part: Path) -> None:
        with part.open("w", encoding="utf-8") as f:
            write_text(f)

    if output is None:
        to_stdout(lambda: write_text(stdout), stdout)
    else:
        write_atomically(output, write_part)


def print_lines(lines: Iterable[str], stdout: TextIO) -> None:
    """Print lines to stdout; errors as in `to_stdout`."""
    to_stdout(lambda: stdout.writelines(f"{line}\n" for line in lines), stdout)


def to_stdout(write: Callable[[], None], stdout: TextIO | None) -> None:
    """Let a function write to stdout. A reader that closes early (`| head`) is not an error.

    Raises InputError if stdout is closed, MachineError if its disk is full.
    """
    if stdout is None:
        raise InputError("stdout is closed; write to a file with -o")
    try:
        write()
        stdout.flush()
    except OSError as e:
        # Python flushes its buffer again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            raise os_failure(e, f"stdout: cannot be written: {e.strerror or e}") from e


def _write_parquet(answer: Result, path: Path) -> None:
    import pyarrow.parquet as pq

    # Not by path: after a failure, pyarrow would remove it, even a device.
    with path.open("wb") as file:
        pq.write_table(answer.arrow(), file, compression="zstd")


def _write_text_file(answer: Result, kind: str, path: Path, wide: bool) -> None:
    with path.open("w", encoding="utf-8", newline="") as f:
        _write_text(answer, kind, f, wide)


def _write_text(answer: Result, kind: str, file: TextIO, wide: bool) -> None:
    names = [c.name for c in answer.columns]
    if kind == "csv":
        # csv quotes only characters of its line end: with \n, a name with \r would be read as two lines.
        writer = csv.writer(_CsvLines(file), lineterminator="\r\n")
        writer.writerow(names)
        writer.writerows(map(_csv_cell, row) for row in answer.rows())
    elif kind == "json":
        rows = [dict(zip(names, map(finite, r), strict=True)) for r in answer.rows()]
        json.dump(rows, file, indent=1, default=str, allow_nan=False)
        file.write("\n")
    elif kind == "markdown":
        _write_markdown(answer, file)
    else:
        _write_table(answer, file, wide)


class _CsvLines:
    """Writes lines that end with \\n; to a terminal with control characters escaped."""

    def __init__(self, file: TextIO):
        self._file = file
        self._seen = file.isatty()

    def write(self, line: str) -> None:
        line = line.removesuffix("\r\n") + "\n"
        self._file.write(visible(line, _OBEYED) if self._seen else line)


def _csv_cell(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value


def _write_table(answer: Result, file: TextIO, wide: bool) -> None:
    room, bold = terminal_width(file), bold_for(file)
    file.writelines(f"{line}\n" for line in table_lines(answer.columns, answer.rows(), answer.main, room, wide, bold))


def bold_for(file: TextIO) -> Callable[[str], str]:
    """Return the function that makes a line bold on a terminal with colours; elsewhere it changes nothing."""
    coloured = file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return (lambda line: f"\x1b[1m{line}\x1b[0m") if coloured else str


def _write_markdown(answer: Result, file: TextIO) -> None:
    headings, rows = formatted(answer)
    file.write(_markdown_row(headings))
    file.write("|" + "|".join(" --- " if is_text(c) else " ---: " for c in answer.columns) + "|\n")
    file.writelines(map(_markdown_row, rows))


def _markdown_row(cells: Iterable[str]) -> str:
    """Return a row with Markdown and HTML escaped."""
    return "| " + " | ".join(_MARKUP.sub(r"\\\g<0>", cell) for cell in cells) + " |\n"
