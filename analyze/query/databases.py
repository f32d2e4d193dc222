"""The DuckDB that an engine works in, one for each engine, and one for expressions over rows in memory.

Each can open the stores' files only, and its settings are locked. The one for SQL of unknown origin cannot write at
all: it has no folder to spill to and reads the stores' files through `StoredFiles`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb

from analyze.query import duckdb_memory
from analyze.query.thread_limit import threads

if TYPE_CHECKING:
    import pyarrow as pa

    from analyze.query.stored_files import StoredFiles


class Database:
    """A DuckDB in memory, dropped with the last reference to it.

    Raises duckdb.Error, and UnicodeError for a path that is not valid.
    """

    connection: duckdb.DuckDBPyConnection
    _at_end: Callable[[], object]

    def __init__(self, paths: Iterable[str], files: StoredFiles | None):
        """`files`: DuckDB opens these, and not the `paths`, where some are not local."""
        folder = duckdb_memory.spill_folder()
        self._at_end = weakref.finalize(self, duckdb_memory.remove, folder)
        self.connection = duckdb.connect(config=_settings() | duckdb_memory.settings(folder))
        if files is not None:
            _open_through(self.connection, files)
        else:
            self.connection.execute("SET allowed_paths = $1", [sorted(paths)])
        _lock(self.connection)

    def close(self) -> None:
        """Close the connection and drop the tables."""
        self.connection.close()
        self._at_end()


class ReadOnlyDatabase(Database):
    """A DuckDB for SQL of unknown origin: it reads the files of a `StoredFiles` and can write nowhere."""

    def __init__(self, files: StoredFiles):
        self._at_end = lambda: files
        self.connection = duckdb.connect(config=_settings() | duckdb_memory.memory_limit() | _NO_SPILL)
        _open_through(self.connection, files)
        self.connection.execute("SET enable_progress_bar = false")  # nobody sees it, and its text is no error
        _lock(self.connection)


_NO_SPILL = {"temp_directory": ""}


def empty_database() -> duckdb.DuckDBPyConnection:
    """Return a connection to a DuckDB that can open nothing, for temporary tables of rows that no one else sees.

    It runs expressions of unknown origin. All connections share one DuckDB of this process: to create another takes
    longer than most expressions. Raises InputError for settings that are not well-formed.
    """
    return _closed(os.getpid(), threads(), tuple(duckdb_memory.memory_limit().items())).cursor()


@contextmanager
def registered_tables(connection: duckdb.DuckDBPyConnection, **tables: pa.Table) -> Iterator[None]:
    """Let SQL read Arrow tables by these names within the block."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)


@cache
def _closed(pid: int, threads: int, limit: tuple[tuple[str, str], ...]) -> duckdb.DuckDBPyConnection:
    # One for each process: a fork has none of its parent's threads.
    connection = duckdb.connect(config=_settings() | {"threads": threads} | dict(limit) | _NO_SPILL)
    _lock(connection)
    return connection


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "threads": threads()}
    # DuckDB compares each row with each other where it expects few, and of what many joins leave it expects far too
    # few: billions of comparisons take a minute.
    loops = ("asof_loop_join_threshold", "merge_join_threshold", "nested_loop_join_threshold")
    return settings | dict.fromkeys(loops, 0)


def _open_through(connection: duckdb.DuckDBPyConnection, files: StoredFiles) -> None:
    """Let a DuckDB open files of a file system."""
    connection.register_filesystem(files)
    connection.execute("SET allowed_directories = $1", [[f"{files.protocol}://"]])


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Close a DuckDB to everything that it was not given."""
    for setting in ("autoload_known_extensions", "python_enable_replacements", "enable_external_access"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
