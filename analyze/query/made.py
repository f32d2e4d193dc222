"""What engines beside each other have made of stored tables and blocks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

COLUMNS: dict[str, str] = {}
"""Of what is @empty with another: names and types of its columns, by the key of its part. They are the same everywhere:
a table without rows is made of them faster than its SQL is planned, and without all that the SQL reads."""


def note_columns(connection: duckdb.DuckDBPyConnection, table: str, key: str) -> None:
    """Keep the columns of a table that was made of a part; of their types, run_key is each engine's own."""
    columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall()
    types = [(name, "run_key" if kind.startswith("ENUM(") else kind) for name, kind in columns]
    if not any("ENUM(" in kind for _, kind in types):
        COLUMNS[key] = ", ".join(f'"{name}" {kind}' for name, kind in types)


class Made:
    """The names of what is there."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.whole = True
        self.own = False
        """Whether a block of a user's own is among them."""
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def made_once(self, name: str) -> Iterator[bool]:
        """Whether it is to be made now; no other thread makes the same meanwhile."""
        with self._locks.setdefault(name, threading.Lock()):
            yield name not in self.made
            self.made.add(name)
