"""Facts of one rank, computed from its tables when they are ingested and stored as tables of their own.

To derive another table: declare it in `schemas/derived_tables.py` with `derived=True`, write a module here whose
function takes the Arrow tables of one rank and returns the rows, and add a line to `DERIVED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from analyze.derive import (
    call_sums,
    call_tree,
    critical_path,
    critical_path_cpu,
    gpu_segments,
    gpu_work,
    op_sums,
    phases,
    sized_calls,
    twins,
)
from analyze.derive.numpy_columns import row_schema
from analyze.derive.steps import steps

if TYPE_CHECKING:
    import pyarrow as pa

Tables = Mapping[str, "pa.Table"]
"""Tables of one rank by name, without run_id and rank."""


class Derived(NamedTuple):
    """A derived table."""

    table: str
    version: int
    """Raise it when other rows are computed: stores are derived again."""
    reads: Mapping[str, tuple[str, ...]]
    """Columns that it is computed from, by table: stored ones, and derived ones that stand before it in DERIVED.
    `full.` before the name: the table of the same rank in the full block."""
    compute: Callable[[Tables], pa.Table]
    """Returns the rows. A table that the rank does not have is given without rows."""
    of_gpu_block: bool = False
    """Only a GPU-only block with a full one has rows."""


DERIVED = (
    Derived("recorded_steps", 1, {"ranges": ("origin", "name", "start_ns", "dur_ns")}, steps),
    Derived("call_ops", 1, gpu_work.CALL_OPS_READS, gpu_work.call_ops),
    Derived("phase_calls", 1, phases.READS, phases.phase_calls),
    Derived("twins", 2, twins.READS, twins.twins, of_gpu_block=True),
    Derived("sized_calls", 1, sized_calls.READS, sized_calls.sized_calls),
    Derived("gpu_work", 4, gpu_work.READS, gpu_work.gpu_work),
    Derived("gpu_segments", 4, gpu_segments.READS, gpu_segments.gpu_segments),
    Derived("critical_path", 1, critical_path.READS, critical_path.critical_path),
    Derived("critical_path_cpu", 1, critical_path_cpu.READS, critical_path_cpu.critical_path_cpu),
    Derived("call_tree", 1, call_tree.READS, call_tree.call_tree),
    Derived("call_work", 2, call_sums.WORK_READS, call_sums.call_work),
    Derived("call_paths", 2, call_sums.PATHS_READS, call_sums.call_paths),
    Derived("op_sums", 2, op_sums.READS, op_sums.op_sums),
)
"""All derived tables."""

FULL = "full."
"""Before the name of a table of the full block."""
FULL_TABLES = sorted({table.removeprefix(FULL) for one in DERIVED for table in one.reads if table.startswith(FULL)})
"""Tables of the full block that derived tables of a GPU-only block read."""


def derive(
    read: Callable[[str, tuple[str, ...]], pa.Table], wanted: Callable[[str], bool], has_full: bool = False
) -> dict[str, pa.Table]:
    """Compute derived tables of one rank.

    `read` returns columns of a stored table. `wanted` says which derived tables to compute; those that they read are
    computed, too. `has_full`: the rank is of a GPU-only block with a full one.
    """
    needed: set[str] = set()
    for one in reversed(DERIVED):
        if one.table in needed or wanted(one.table):
            needed |= {one.table, *one.reads}
    found: dict[str, pa.Table] = {}
    for one in DERIVED:
        if one.of_gpu_block and not has_full:
            found[one.table] = row_schema(one.table).empty_table()
        elif one.table in needed:
            # Not a variable, which would hold them in memory while the next table is computed.
            found[one.table] = one.compute(
                {
                    table: found[table].select(columns) if table in found else read(table, columns)
                    for table, columns in one.reads.items()
                }
            )
    return found
