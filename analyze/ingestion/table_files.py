"""Write rows to Parquet files of a store: zstd, strings dictionary-encoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from analyze.errors import InputError
from analyze.stored_tables import TABLES
from schemas.table_declaration import arrow_schema

ROW_GROUP = 256 << 10
"""Most rows of a row group."""
_TEXTS = 8 << 20
"""Bytes of texts from which a row group is written, as with a distinct name for each kernel: writing takes seven times
as much memory."""

_ENCODINGS = {
    **dict.fromkeys(
        ("start_ns", "op_id", "correlation_id", "seq", "node", "parent", "last_node"), "DELTA_BINARY_PACKED"
    ),
    **dict.fromkeys(("dur_ns", "self_ns", "allocated_bytes"), "BYTE_STREAM_SPLIT"),
}
"""For ascending numbers, and for numbers with equal upper bytes: operators and calls take a third less space and half
the time to read."""


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Raise InputError if a Parquet file cannot be read within, OSError if the system says why."""
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        if isinstance(e, OSError) and e.errno:
            raise
        raise InputError(f"{path}: cannot be read: {str(e).partition(chr(10))[0]}") from e


class RowGroupWriter:
    """Writes one Parquet file in row groups of at most `ROW_GROUP` rows. Raises OSError if it cannot be written.

    The file exists once the first row group is written.
    """

    def __init__(self, path: Path, schema: pa.Schema):
        self.rows = 0
        self.path = path
        self._schema = schema
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_texts: dict[int, int] = {}
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
        if self._writer is not None:
            # After an error the file is discarded, and closing it may fail for the same reason.
            with suppress(OSError) if kind else nullcontext():
                self._writer.close()

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        self.rows += rows.num_rows
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_texts |= _dictionaries(rows)
        if self._pending_rows >= ROW_GROUP or sum(self._pending_texts.values()) >= _TEXTS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that were added so far."""
        if self._pending_rows:
            self._writer = self._writer or _open_writer(self.path, self._schema)
            rows = pa.concat_tables(self._pending).unify_dictionaries()
            self._writer.write_table(rows, row_group_size=ROW_GROUP)
        self._pending, self._pending_rows, self._pending_texts = [], 0, {}


class TableWriter(RowGroupWriter):
    """Writes a table's rows of one rank and adds run_id and rank."""

    def __init__(self, path: Path, table: str, run_id: str, rank: int = 0):
        super().__init__(path, arrow_schema(TABLES[table]))
        self._run_id, self._rank = run_id, rank

    def write(self, rows: pa.RecordBatch) -> None:
        """Add a batch that has the table's columns without run_id and rank."""
        first, rank = (pa.repeat(pa.scalar(n, pa.int32()), rows.num_rows) for n in (0, self._rank))
        arrays = {"run_id": pa.DictionaryArray.from_arrays(first, pa.array([self._run_id])), "rank": rank}
        columns = [arrays[n] if n in arrays else rows.column(n) for n in self._schema.names]
        super().write(pa.Table.from_arrays(columns, schema=self._schema))


def _dictionaries(rows: pa.Table) -> dict[int, int]:
    """Return the bytes of each dictionary of some rows by address; parts of a batch may share a dictionary."""
    encoded = [column for column in rows.columns if pa.types.is_dictionary(column.type)]
    texts = [chunk.dictionary for column in encoded for chunk in column.chunks]
    return {letters.address: text.nbytes for text in texts if (letters := text.buffers()[-1]) is not None}


def _open_writer(path: Path, schema: pa.Schema) -> Any:
    """Open a ParquetWriter with the settings of a store's files. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Numbers seldom repeat: dictionaries of them would cost time and space.
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
        column_encoding={c: e for c, e in _ENCODINGS.items() if c in schema.names},
        write_page_checksum=True,
    )


def write_rows(table: str, rows: list[dict[str, Any]], path: Path) -> None:
    """Write a small table from dicts. Raises KeyError for keys that are no columns."""
    schema = arrow_schema(TABLES[table])
    unknown = {k for r in rows for k in r} - set(schema.names)
    if unknown:
        raise KeyError(f"{table} has no column {sorted(unknown)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd", write_page_checksum=True)
