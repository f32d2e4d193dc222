"""Rows of `kernel_names`: what the rules of `schemas` say of the kernel names of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import schemas

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""Where kernel names stand, by table."""
MOST = 256 << 10
"""Names that are kept in memory; more of them are read from the rows again."""
_FILES = ("kernel_rules.toml", "kernel_rules.py")
_MEMORY = "100MB"
"""For DuckDB, beside the 150 MB that it takes by itself; more than that spills."""


@cache
def rules_digest() -> str:
    """Digest of the rules: names classified under another one are classified again."""
    folder = Path(schemas.__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for name in _FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def distinct(columns: Sequence[tuple[Path, str]], folder: Path, size: int) -> Iterator[list[str]]:
    """The distinct texts of columns of Parquet files, in ascending order and at most so many at a time.

    What does not fit into memory is kept below `folder`.
    """
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("name", pa.string())])

    def texts() -> Iterator[pa.RecordBatch]:
        for path, column in columns:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=[column]):
                    yield pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string())], schema=schema)

    with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": str(folder), "threads": 2}) as con:
        con.register("texts", pa.RecordBatchReader.from_batches(schema, texts()))
        names = con.sql("SELECT DISTINCT name FROM texts WHERE name IS NOT NULL ORDER BY name")
        for batch in names.to_arrow_reader(size):
            yield batch.column(0).to_pylist()


def rows(run_id: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """One row for each name, in the columns of `kernel_names`."""
    from schemas.kernel_rules import classify

    return [{"run_id": run_id, "name": name, **classify(name)._asdict()} for name in names]


def batch(names: list[str]) -> pa.RecordBatch:
    """The same as a batch, without run_id (in a worker process: there may be a million names)."""
    import pyarrow as pa

    from analyze.sources.base import batch_schema

    return pa.RecordBatch.from_pylist(rows("", names), schema=batch_schema("kernel_names"))
