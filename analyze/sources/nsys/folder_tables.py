"""Read an Nsight Systems export to a folder of Parquet or Arrow files (parquetdir, arrowdir)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analyze.sources.interface import BATCH_ROWS
from analyze.sources.nsys.values import (
    BINARY_COLUMN,
    TEXT_COLUMNS,
    UNSIGNED_COLUMNS,
    Columns,
    note_unreadable,
    readable,
    typed,
)


class FolderTables:
    """The tables of a parquetdir or arrowdir export."""

    views: frozenset[str] = frozenset()

    def __init__(self, path: Path, suffix: str):
        self.path = path
        self.unreadable: dict[tuple[str, str], int] = {}
        self._suffix = suffix

    def names(self) -> set[str]:
        """Return the names of its tables."""
        with readable(self.path, "the folder"):
            return {file.stem for file in self.path.iterdir() if file.suffix == self._suffix and file.is_file()}

    def _file(self, table: str) -> Path:
        return self.path / (table + self._suffix)

    def columns(self, table: str) -> frozenset[str]:
        """Return the column names of a table; none if there is no such table."""
        file = self._file(table)
        if not file.is_file():
            return frozenset()
        with readable(self.path, table):
            if self._suffix == ".parquet":
                return frozenset(pq.read_schema(file).names)
            with pa.memory_map(str(file)) as f, pa.ipc.open_stream(f) as reader:
                return frozenset(reader.schema.names)

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a table in the order of the file; missing columns are NULL. Raises InputError."""
        there = [c for c in columns if c in self.columns(table)]
        unreadable: Counter[str] = Counter()
        with readable(self.path, table):
            for batch in self._record_batches(table, there) if there else ():
                missing = pa.nulls(batch.num_rows, pa.int64())
                yield {c: _plain(c, batch.column(c), unreadable) if c in there else missing for c in columns}
        note_unreadable(self.unreadable, table, unreadable)

    def _record_batches(self, table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self._suffix == ".parquet":
            with pq.ParquetFile(self._file(table)) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        else:
            with pa.memory_map(str(self._file(table))) as f, pa.ipc.open_stream(f) as reader:
                yield from reader


def _plain(column: str, array: pa.Array, unreadable: Counter[str]) -> pa.Array:
    """Return a column as text or int64. Raises ArrowException for an inconsistent array."""
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if is_text:  # perhaps not in UTF-8
        array = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
    array.validate(full=True)
    if is_text or column == BINARY_COLUMN:
        as_text = bytes.hex if column == BINARY_COLUMN else partial(bytes.decode, errors="replace")
        texts = [as_text(v) if isinstance(v, bytes) else None for v in array.to_pylist()]
        return typed(column, texts, unreadable)
    if pa.types.is_dictionary(array.type):
        return _plain(column, array.dictionary_decode(), unreadable)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())  # 0 and 1, as in SQLite
    if pa.types.is_integer(array.type) and column not in TEXT_COLUMNS:
        if column in UNSIGNED_COLUMNS or array.type != pa.uint64():
            return array.cast(pa.int64(), safe=False)
        fits = pc.less(array, pa.scalar(1 << 63, pa.uint64()))
        unreadable[column] += pc.sum(pc.invert(fits)).as_py() or 0
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(pa.int64())
    return typed(column, array.to_pylist(), unreadable)
