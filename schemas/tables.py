"""The tables of a store: every column with its type, unit and meaning.

Types are Arrow's names; `string` columns are dictionary-encoded in memory and on disk. Times are int64 nanoseconds:
`start_ns` on the clock of its file (one clock per file), `dur_ns` a duration. NULL means that the file does not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.derived_tables import DERIVED_TABLES, GPU_SEGMENTS
from schemas.recorded_tables import EVENT_TABLES, METRIC_TABLES
from schemas.table_declaration import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STEP_METRICS_CSV", "TABLES", "Column", "Table", "arrow_schema"]

TABLES: dict[str, Table] = {
    table.name: table for table in (*EVENT_TABLES, *DERIVED_TABLES, *METRIC_TABLES, GPU_SEGMENTS)
}
"""Every table by name, in the order in which they are listed."""

STEP_METRICS_CSV = tuple(c.name for c in TABLES["step_metrics"].columns if c.name != "run_id")
"""Header of the collector's step_metrics CSV."""


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table; strings are dictionary<int32, string>."""
    import pyarrow as pa

    types = {"string": pa.dictionary(pa.int32(), pa.string()), "bool": pa.bool_(), "double": pa.float64()}
    return pa.schema(
        [(c.name, types[c.type] if c.type in types else getattr(pa, c.type)()) for c in TABLES[table].columns]
    )
