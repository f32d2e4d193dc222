"""Tables that are neither stored nor a view: Python computes them once a query names them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import duckdb


def _call_tree(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import call_tree

    call_tree.create(connection, table)


def _critical_path(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import critical_path

    critical_path.create(connection, table, steps=table.endswith("_step"))


def _api_roles(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import api_roles

    api_roles.create(connection, table)


def _device_peaks(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import device_peaks

    device_peaks.create(connection, table)


def _workload_keys(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import workload_keys

    workload_keys.create(connection, table)


class Computed(NamedTuple):
    """What makes a table of a name in a connection, and the blocks that it reads."""

    create: Callable[[duckdb.DuckDBPyConnection, str], None]
    uses: tuple[str, ...] = ()


_TREE = Computed(_call_tree, ("cpu_events", "gpu_work", "op_links"))
_PATH = Computed(
    _critical_path, ("gpu_work", "launch_calls", "op_links", "outer_ops", "profiler_overhead", "step_ranges")
)

COMPUTED = {
    "api_roles": Computed(_api_roles),
    "call_tree_module": _TREE,
    "call_tree_no": _TREE,
    "call_tree_stack": _TREE,
    "critical_path_span": _PATH,
    "critical_path_step": _PATH,
    "device_peaks": Computed(_device_peaks),
    "torch_tree_no": _TREE,
    "torch_tree_yes": _TREE,
    "workload_keys": Computed(_workload_keys),
}
"""By name. The names end in what a query's parameter chooses."""


def named_in(sql: str) -> list[str]:
    """The computed tables that SQL text names."""
    return [name for name in COMPUTED if re.search(rf"\b{name}\b", sql)]
