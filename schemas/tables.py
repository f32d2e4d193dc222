"""The recorded tables of a store: every column with its type, unit and meaning.

Types are Arrow's names; `string` columns are dictionary-encoded in memory and on disk. Times are int64 nanoseconds:
`start_ns` on the clock of its file (one clock per file), `dur_ns` a duration. NULL means that the file does not say.
"""

from __future__ import annotations

from schemas.recorded_tables import EVENT_TABLES, METRIC_TABLES
from schemas.table_declaration import Table

RECORDED_TABLES: dict[str, Table] = {table.name: table for table in (*EVENT_TABLES, *METRIC_TABLES)}
"""Every table that is read from raw files, by name."""

STEP_METRICS_CSV = tuple(c.name for c in RECORDED_TABLES["step_metrics"].columns if c.name != "run_id")
"""Header of the collector's step_metrics CSV."""
