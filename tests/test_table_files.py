"""Parquet files of the store: row groups, memory, and writing in the background."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import ROOT

from analyze.ingestion.table_files import RowGroupWriter


def test_distinct_texts_take_bounded_memory(tmp_path: Path) -> None:
    """A file of 300,000 rows, 30 MB of names of one row each: some 60 MB at a time, where one row group took 200."""
    script = (
        "import pyarrow as pa\nfrom pathlib import Path\n"
        "from analyze.sources.interface import batch_schema\n"
        "from analyze.ingestion.table_files import TableWriter\n"
        "with TableWriter(Path('t.parquet'), 'kernel_names', 'run') as writer:\n"
        "    for first in range(0, 300_000, 10_000):\n"
        "        names = pa.array([f'{n:0100}' for n in range(first, first + 10_000)]).dictionary_encode()\n"
        "        empty = [pa.nulls(10_000, f.type) for f in list(batch_schema('kernel_names'))[1:]]\n"
        "        writer.write(pa.RecordBatch.from_arrays([names, *empty], schema=batch_schema('kernel_names')))\n"
        "print(pa.default_memory_pool().max_memory())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          check=True, capture_output=True, text=True)  # fmt: skip
    assert int(done.stdout) < 100e6
    assert pq.read_table(tmp_path / "t.parquet")["name"].to_pylist() == [f"{n:0100}" for n in range(300_000)]


def test_slices_sharing_a_dictionary_stay_one_row_group(tmp_path: Path) -> None:
    names = pa.array([f"{n:0100}" for n in range(30_000)]).dictionary_encode()
    with RowGroupWriter(tmp_path / "t.parquet", pa.schema({"name": names.type})) as writer:
        for first in range(0, 30_000, 1000):
            writer.write(pa.table({"name": names.slice(first, 1000)}))
    assert pq.read_metadata(writer.path).num_row_groups == 1


def test_write_error_is_raised(tmp_path: Path) -> None:
    taken, rows = tmp_path / "taken", pa.table({"n": [1]})
    taken.write_text("")
    with pytest.raises(OSError), RowGroupWriter(taken / "t.parquet", rows.schema) as writer:
        writer.write(rows)
    # An error of the reader is reported, not that the file could not be written either.
    with pytest.raises(ValueError, match="no trace"), RowGroupWriter(taken / "t.parquet", rows.schema) as writer:
        writer.write(rows)
        raise ValueError("no trace")
