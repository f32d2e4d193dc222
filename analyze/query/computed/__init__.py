"""Tables computed in Python when a query first reads them: constants of `schemas`, and what SQL cannot express.

Each has a declaration of comment lines like those of a module's file (`analyze.query.modules`), without the dashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from analyze.query.computed import api_roles, block_limits, device_peaks, program_lines, source_times, workload_keys

if TYPE_CHECKING:
    import duckdb

Create: TypeAlias = "Callable[[duckdb.DuckDBPyConnection, str], None]"
"""Creates the table of a name in a connection."""


class Computed(NamedTuple):
    """A table's name, declaration and function."""

    name: str
    header: str
    create: Create
    tables: tuple[str, ...] = ()
    """Stored tables that it reads besides `runs`."""


COMPUTED = (
    Computed("api_roles", api_roles.DECLARATION, api_roles.create, ("cuda_calls",)),
    Computed("block_limits", block_limits.DECLARATION, block_limits.create),
    Computed("device_peaks", device_peaks.DECLARATION, device_peaks.create),
    Computed("known_devices", device_peaks.KNOWN_DECLARATION, device_peaks.create_known),
    Computed("program_lines", program_lines.DECLARATION, program_lines.create, ("ranges", "full_ranges")),
    Computed("source_times", source_times.DECLARATION, source_times.create, ("gpu_work", "ranges")),
    Computed("workload_keys", workload_keys.DECLARATION, workload_keys.create),
)
