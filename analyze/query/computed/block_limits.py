"""The table `block_limits`: when a GPU-only block is read, as `analyze.query.selected_runs` decides it."""

from __future__ import annotations

import duckdb

from analyze.query.selected_runs import SLOWER, TWINS_PCT

DECLARATION = """When a GPU-only block answers questions about time; else its full block does.
@table block_limits  a row is the limits of all blocks.
@column twins_pct %  Share of its kernels, copies and fills that must have a twin.
@column slower x  Longest step / step of the full block.
"""


def create(connection: duckdb.DuckDBPyConnection, table: str = "block_limits") -> None:
    """Make the table."""
    connection.execute(f"CREATE TABLE {table} AS SELECT {TWINS_PCT} AS twins_pct, {SLOWER}::DOUBLE AS slower")
