"""Write an answer as an Excel workbook, with numbers in the units of the columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyze.errors import InputError
from analyze.render.texts import visible
from analyze.render.units import finite
from schemas.extras import missing

if TYPE_CHECKING:
    from analyze.query.result import Result

_MOST_ROWS = 1 << 20
_MOST_COLUMNS = 1 << 14
_MOST_TEXT = (1 << 15) - 1
_EXACT = 2**53


def write_excel(answer: Result, path: Path) -> None:
    """Write the rows to a workbook with one sheet, with column names in the first row.

    Text never becomes a formula or a link. Integers that a double cannot represent become text. Raises InputError if
    XlsxWriter is not installed, or if the answer exceeds the limits of a sheet.
    """
    try:
        import xlsxwriter
    except ImportError as e:
        raise missing(f"{path}", "xlsx", e) from e
    rows = answer.rows()
    if len(rows) >= _MOST_ROWS or len(answer.columns) > _MOST_COLUMNS:
        raise InputError(f"a sheet of Excel holds {_MOST_ROWS:,} rows and {_MOST_COLUMNS:,} columns; write .parquet")
    # in_memory: without temporary files.
    book = xlsxwriter.Workbook(buffer := io.BytesIO(), {"in_memory": True})
    sheet = book.add_worksheet()
    bold = book.add_format({"bold": True})
    for at, column in enumerate(answer.columns):
        sheet.write_string(0, at, visible(column.name), bold)
    sheet.freeze_panes(1, 0)
    for line, row in enumerate(rows, 1):
        for at, value in enumerate(map(finite, row)):
            _write_cell(sheet, line, at, value)
    book.close()
    # Write the file here: XlsxWriter would hide the OSError.
    path.write_bytes(buffer.getbuffer())


def _write_cell(sheet: Any, line: int, at: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        sheet.write_boolean(line, at, value)
    elif isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT):
        sheet.write_number(line, at, value)
    else:
        text = visible(str(value))
        if len(text) > _MOST_TEXT:
            raise InputError(f"a cell of Excel holds {_MOST_TEXT:,} characters, and one has {len(text):,}; write .csv")
        sheet.write_string(line, at, text)
