"""The communication kernels of a rank, with their launch calls: few of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyze.derive.gpu_segments import is_communication
from analyze.derive.interface import Derived
from analyze.derive.twins import COLLECTIVE
from schemas import table_declaration
from schemas.table_declaration import GPU, INTERVAL, LINK, declare_table

if TYPE_CHECKING:
    import pyarrow as pa

_KERNEL = ("name", "device", "stream", "start_ns", "dur_ns", "correlation_id", "op_id")
_CALL = ("call_tid", "call_start_ns")
READS = {"kernels": (*_KERNEL, *COLLECTIVE), "kernel_names": ("name", "family"), "gpu_work": _CALL, "twins": COLLECTIVE}
"""Columns that comm_kernels is computed from."""


def comm_kernels(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of comm_kernels, from the columns READS of a rank's tables.

    gpu_work begins with the kernels, in their order; twins has the rows of gpu_work.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kernels, twins = tables["kernels"], tables["twins"]
    found = pa.array(is_communication(kernels, tables["kernel_names"]))
    parts = [kernels, twins.slice(0, kernels.num_rows)] if twins.num_rows else [kernels]
    for part in parts:
        for column in ("collective", "group_name", "group_ranks"):
            found = pc.or_(found, part[column].is_valid().combine_chunks())
    rows = kernels.filter(found)
    for column in COLLECTIVE if twins.num_rows else ():
        field = rows.schema.field(column)
        plain = pa.string() if pa.types.is_dictionary(field.type) else field.type
        said = pc.coalesce(*(part[column].filter(found).cast(plain) for part in parts))
        rows = rows.set_column(rows.schema.get_field_index(column), field, said.cast(field.type))
    for column in _CALL:
        rows = rows.append_column(column, tables["gpu_work"][column].slice(0, kernels.num_rows).filter(found))
    return rows


DERIVED = (
    Derived(
        declare_table(
            "comm_kernels",
            "a communication kernel, or another one of a collective of PyTorch",
            ("name", "string", "", "kernel name"),
            *GPU[1:],
            *INTERVAL,
            *LINK,
            *table_declaration.COLLECTIVE,
            ("call_tid", "int64", "", "thread of the launch call, as in gpu_work"),
            ("call_start_ns", "int64", "ns", "start of the launch call, as in gpu_work"),
        ),
        version=1,
        reads=READS,
        compute=comm_kernels,
    ),
)
