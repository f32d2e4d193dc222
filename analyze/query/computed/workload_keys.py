"""The table `workload_keys`: what runs of one workload have in common, however large each is."""

from __future__ import annotations

import duckdb

from schemas.workload import COLUMNS

DECLARATION = """Which runs do the same work, apart from what a study varies (schemas/workload.py).
@table workload_keys  a row is a run.
@columns run_id
@column options text  The options that such runs have in common.
"""


def create(connection: duckdb.DuckDBPyConnection, table: str = "workload_keys") -> None:
    """Create the table: `run_id`, and in `options` the options that runs must share to be compared, as text.

    These are the options of `schemas.workload` that do not vary. An unknown switch is off.
    """
    shared = (c for c in COLUMNS if not c.varies)
    values = {c.name: f'coalesce("{c.name}", false)' if c.type == "bool" else f'"{c.name}"' for c in shared}
    parts = ", ".join(f'"{name}" := {value}' for name, value in values.items())
    connection.execute(f"CREATE TABLE {table} AS SELECT run_id, struct_pack({parts})::VARCHAR AS options FROM runs")
