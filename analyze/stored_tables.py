"""All tables of a store: the recorded ones (`schemas.recorded_tables`) and the derived ones (`analyze.derive`)."""

from __future__ import annotations

from analyze.derive import DERIVED
from schemas.recorded_tables import RECORDED_TABLES
from schemas.table_declaration import Table

DERIVED_TABLES: dict[str, Table] = {one.name: one.table for one in sorted(DERIVED, key=lambda one: one.name)}
TABLES: dict[str, Table] = RECORDED_TABLES | DERIVED_TABLES
"""Every table by name, in the order in which they are listed."""
