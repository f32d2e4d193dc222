"""Rows of the table `kernel_names`: kernel names classified by the rules of `schemas`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from schemas.kernel_rules import KernelClass, classify

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"kernels": "name", "ncu_metrics": "kernel", "gpu_summary": "name", "metric_summary": "kernel"}
"""The column with kernel names, by table."""

Read = Callable[[str, Sequence[str]], "pa.Table"]
"""Reads columns of a table of one rank."""


def rows(run_id: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row of `kernel_names` for each name."""
    return [{"run_id": run_id, "name": name, **classify(name)._asdict()} for name in names]


def batch(names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows without run_id as a batch."""
    import pyarrow as pa

    from analyze.sources.interface import batch_schema

    columns = {"name": names} | dict(zip(KernelClass._fields, zip(*map(classify, names), strict=True), strict=False))
    schema = batch_schema("kernel_names")
    arrays = [pa.array(columns.get(f.name, ()), pa.string()).dictionary_encode() for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_kernel_names(read: Read) -> Read:
    """Return a reader that also has `kernel_names`, a table of the run: rows for the names of the rank's kernels."""

    def read_any(table: str, columns: Sequence[str]) -> pa.Table:
        import pyarrow as pa

        from analyze.derive.numpy_columns import text_codes

        if table != "kernel_names":
            return read(table, columns)
        names = text_codes([read("kernels", ["name"])["name"]])[1].to_pylist()
        return pa.Table.from_batches([batch(names)]).select([*columns])

    return read_any
