"""Facts of one rank, computed from its tables when they are ingested and stored as tables of their own.

To derive another table, write a module here with `DERIVED`: see `interface`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from graphlib import TopologicalSorter
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from analyze.derive.interface import FULL, Derived
from schemas.table_declaration import row_schema

if TYPE_CHECKING:
    import pyarrow as pa


def _declared() -> tuple[Derived, ...]:
    """Return the derived tables of all modules here, each after those that it reads."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    known = {one.name: one for module in modules for one in getattr(module, "DERIVED", ())}
    order = TopologicalSorter({name: sorted(one.reads.keys() & known.keys()) for name, one in known.items()})
    return tuple(known[name] for name in order.static_order())


DERIVED = _declared()
"""All derived tables."""
FULL_TABLES = sorted({table.removeprefix(FULL) for one in DERIVED for table in one.reads if table.startswith(FULL)})
"""Tables of the full block that derived tables of a GPU-only block read."""


def derive(
    read: Callable[[str, tuple[str, ...]], pa.Table], wanted: Callable[[str], bool], has_full: bool = False
) -> dict[str, pa.Table]:
    """Compute derived tables of one rank.

    `read` returns columns of a stored table. `wanted` says which derived tables to compute; those that they read are
    computed, too. `has_full`: the rank is of a GPU-only block with a full one.
    """
    needed: set[str] = set()
    for one in reversed(DERIVED):
        if one.name in needed or wanted(one.name):
            needed |= {one.name, *one.reads}
    found: dict[str, pa.Table] = {}
    for one in DERIVED:
        if one.of_gpu_block and not has_full:
            found[one.name] = row_schema(one.table).empty_table()
        elif one.name in needed:
            # Not a variable, which would hold them in memory while the next table is computed.
            found[one.name] = one.compute(
                {
                    table: found[table].select(columns) if table in found else read(table, columns)
                    for table, columns in one.reads.items()
                }
            )
    return found
