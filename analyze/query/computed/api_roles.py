"""The table `api_roles`: what `schemas.api_roles` says of the runtime and driver calls that the runs made."""

from __future__ import annotations

import duckdb

from schemas.api_roles import matching_rule

DECLARATION = """What schemas/api_roles.toml says of the runtime and driver calls that the runs made.
@table api_roles  a row is the name of a call with a role.
@column name text  Runtime or driver function.
@column role text  What it does: launch, copy, copy_async, sync, stream_wait ...
@column waits_for text  device, stream, event or copy; NULL if it never blocks.
"""


def create(connection: duckdb.DuckDBPyConnection, table: str = "api_roles") -> None:
    """Make the table, unless it is there: `name` of a call with a role, `role`, `waits_for` (NULL if it never blocks).

    Calls that no rule knows have no row.
    """
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (name VARCHAR, role VARCHAR, waits_for VARCHAR)")
    names = connection.execute(
        f"SELECT DISTINCT name FROM cuda_calls WHERE api <> 'sync' AND name IS NOT NULL EXCEPT SELECT name FROM {table}"
    ).fetchall()
    rows = [(name, rule.role, rule.waits_for) for (name,) in names if (rule := matching_rule(name)) is not None]
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
