"""Tables that are neither stored nor a view: Python computes them once a query names them."""

from __future__ import annotations

import re
from collections.abc import Callable

import duckdb


def _call_tree(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze import call_tree

    call_tree.create(connection, table, python=table.endswith("_yes"))


def _critical_path(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze import critical_path

    critical_path.create(connection, table, steps=table.endswith("_step"))


def _device_peaks(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze import device_peaks

    device_peaks.create(connection, table)


COMPUTED: dict[str, Callable[[duckdb.DuckDBPyConnection, str], None]] = {
    "call_tree_no": _call_tree,
    "call_tree_yes": _call_tree,
    "critical_path_span": _critical_path,
    "critical_path_step": _critical_path,
    "device_peaks": _device_peaks,
}
"""Name of a table -> what makes it. The names end in what a query's parameter chooses."""


def named_in(sql: str) -> list[str]:
    """The computed tables that SQL text names."""
    return [name for name in COMPUTED if re.search(rf"\b{name}\b", sql)]
