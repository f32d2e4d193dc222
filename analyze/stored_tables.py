"""All tables of a store: the recorded ones (`schemas.tables`) and the derived ones (`analyze.derive`)."""

from __future__ import annotations

from analyze.derive import DERIVED
from schemas.table_declaration import Table
from schemas.tables import RECORDED_TABLES

DERIVED_TABLES: dict[str, Table] = {one.name: one.table for one in sorted(DERIVED, key=lambda one: one.name)}
TABLES: dict[str, Table] = RECORDED_TABLES | DERIVED_TABLES
"""Every table by name, in the order in which they are listed."""
