"""Facts of one rank, computed from its tables when they are ingested and stored as tables of their own.

To derive another table, write a module here with `DERIVED`: see `interface`.
"""

from __future__ import annotations

import importlib
from graphlib import TopologicalSorter
from pkgutil import iter_modules

from analyze.derive.interface import FULL, Derived


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
