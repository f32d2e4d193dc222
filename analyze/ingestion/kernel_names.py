"""Rows of the table `kernel_names`: kernel names classified by the rules of `schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.kernel_rules import KernelClass, classify

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""The column with kernel names, by table."""


def batch(names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows without run_id as a batch."""
    import pyarrow as pa

    from analyze.sources.interface import batch_schema

    columns = {"name": names} | dict(zip(KernelClass._fields, zip(*map(classify, names), strict=True), strict=False))
    schema = batch_schema("kernel_names")
    arrays = [pa.array(columns.get(f.name, ()), pa.string()).dictionary_encode() for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
