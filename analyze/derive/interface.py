"""The declaration of a derived table: `DERIVED` of a module here has one for each table that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from schemas.table_declaration import Table

if TYPE_CHECKING:
    import pyarrow as pa

Tables = Mapping[str, "pa.Table"]
"""Tables of one rank by name, without run_id and rank."""

FULL = "full."
"""Before the name of a table of the full block."""


class Derived(NamedTuple):
    """A derived table."""

    table: Table
    version: int
    """Raise it when other rows are computed: stores are derived again."""
    reads: Mapping[str, tuple[str, ...]]
    """Columns that it is computed from, by recorded or derived table.
    FULL before the name: the table of the same rank in the full block."""
    compute: Callable[[Tables], pa.Table]
    """Returns the rows. A table that the rank does not have is given without rows."""
    of_gpu_block: bool = False
    """Only a GPU-only block with a full one has rows."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name
