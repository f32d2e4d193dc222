"""The form of a table's declaration, and columns that several tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: Arrow type name, unit ('' for none) and meaning."""

    name: str
    type: str
    unit: str
    doc: str


class Table(NamedTuple):
    """A table: the meaning of a row, and its columns in order (run_id and rank included)."""

    name: str
    row: str
    columns: tuple[Column, ...]


def declare_table(name: str, row: str, *columns: tuple[str, str, str, str], ranked: bool = True) -> Table:
    """Declare a table: its columns behind run_id and (if it has rows of each rank) rank."""
    keys = [Column("run_id", "string", "", "the run (and profiler pass) the row belongs to")]
    if ranked:
        keys.append(Column("rank", "int32", "", "process rank in the job; 0 for one process"))
    return Table(name, row, (*keys, *(Column(*c) for c in columns)))


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table; strings are dictionary<int32, string>."""
    import pyarrow as pa

    types = {"string": pa.dictionary(pa.int32(), pa.string()), "bool": pa.bool_(), "double": pa.float64()}
    return pa.schema([(c.name, types[c.type] if c.type in types else getattr(pa, c.type)()) for c in table.columns])


def row_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of the rows of one rank: without run_id and rank."""
    import pyarrow as pa

    return pa.schema([field for field in arrow_schema(table) if field.name not in ("run_id", "rank")])


INTERVAL = (
    ("start_ns", "int64", "ns", "start"),
    ("dur_ns", "int64", "ns", "duration; may be 0"),
)
GPU = (
    ("pid", "int64", "", "process that owns the work; NULL where the file only names the device"),
    ("device", "int32", "", "GPU index as the process numbered it"),
    ("stream", "int64", "", "CUDA stream"),
)
LINK = (
    ("correlation_id", "int64", "", "joins the GPU work to the CUDA call that launched it, within (run_id, rank, pid)"),
    ("op_id", "int64", "", "PyTorch's External id: joins to cpu_ops.op_id; NULL if the file has none"),
)
CPU = (
    ("pid", "int64", "", "process; NULL where the file has a label instead of a number"),
    ("tid", "int64", "", "thread; NULL where the file has a label instead of a number"),
)
COLLECTIVE = (
    ("collective", "string", "", "collective as NCCL named it to the profiler"),
    ("in_elems", "int64", "", "elements sent"),
    ("out_elems", "int64", "", "elements received"),
    ("dtype", "string", "", "element type of the collective"),
    ("group_size", "int32", "", "ranks in the process group"),
    ("group_name", "string", "", "process group"),
    ("group_ranks", "string", "", "ranks in the group, as a JSON list; the profiler truncates a long one"),
    ("group_desc", "string", "", "description of the process group in the program"),
    ("seq", "int64", "", "sequence number of the collective in its group"),
    ("peer", "int32", "", "destination of a send, source of a receive: a global rank in PyTorch"),
    ("in_splits", "string", "", "rows sent to each rank by an all_to_all, a JSON list; [] means equal splits"),
    ("out_splits", "string", "", "rows received from each rank; as in_splits"),
)
"""What PyTorch says of the collective of a kernel of NCCL."""
