"""Rows -> Parquet files of the store: zstd, strings dictionary-encoded."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 256 << 10
"""Most rows of a row group."""

_ENCODINGS = {
    **dict.fromkeys(("start_ns", "op_id", "correlation_id"), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("dur_ns", "allocated_bytes"), "BYTE_STREAM_SPLIT"),
}
"""Of numbers that grow from row to row, and of those whose upper bytes are alike: a third less space for operators and
calls, and half the time to read, than as they are."""


class TableWriter:
    """Writes one Parquet file of a table; run_id and rank are added here. Raises OSError if it cannot be written."""

    def __init__(self, path: Path, table: str, run_id: str, rank: int = 0):
        from schemas.tables import arrow_schema

        self.rows = 0
        self.path = path
        self._schema = arrow_schema(table)
        self._run_id, self._rank = run_id, rank
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._writer: Any = None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            # After an error the file is thrown away, and to close it may fail of the same.
            with suppress(OSError) if kind else nullcontext():
                self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch that has the table's columns without run_id and rank."""
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._pending_rows:
            return
        rows = pa.Table.from_batches(self._pending).unify_dictionaries()
        arrays = {
            "run_id": pa.DictionaryArray.from_arrays(
                pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows), pa.repeat(pa.scalar(self._run_id), 1)
            ),
            "rank": pa.repeat(pa.scalar(self._rank, pa.int32()), rows.num_rows),
        }
        table = pa.table(
            [arrays[n] if n in arrays else rows.column(n) for n in self._schema.names], schema=self._schema
        )
        if self._writer is None:
            self._writer = open_writer(self.path, self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._pending, self._pending_rows = [], 0


def open_writer(path: Path, schema: pa.Schema) -> Any:
    """A pyarrow ParquetWriter that writes as all files of a store are written. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    # Numbers seldom repeat: a dictionary of them costs time and space.
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
        column_encoding={c: e for c, e in _ENCODINGS.items() if c in schema.names},
    )


def write_rows(table: str, rows: list[dict[str, Any]], path: Path) -> None:
    """Write a small table from dicts; keys that the table does not have raise KeyError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from schemas.tables import arrow_schema

    schema = arrow_schema(table)
    unknown = {k for r in rows for k in r} - set(schema.names)
    if unknown:
        raise KeyError(f"{table} has no column {sorted(unknown)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
