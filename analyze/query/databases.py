"""Where an engine makes its tables: a DuckDB of its own, or a place in one that engines of small recordings share."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Self

import duckdb

from analyze.query import spill
from analyze.query.open_files import threads


class Database(ABC):
    """Tables that no other engine sees; gone with the last who holds this."""

    connection: duckdb.DuckDBPyConnection
    _at_end: Callable[[], object]

    def beside(self) -> Self:
        """Another connection to the same tables, for another thread."""
        other = copy.copy(self)
        other.connection = self._cursor()
        other._at_end = lambda: self  # which is there as long as the other
        return other

    @abstractmethod
    def _cursor(self) -> duckdb.DuckDBPyConnection:
        pass

    def close(self) -> None:
        """Close the connection and, unless this is one beside another, let go of the tables."""
        self.connection.close()
        self._at_end()


class Own(Database):
    """A DuckDB that can read some files and nothing else, for SQL of whoever asks.

    DuckDB cannot be told that what it may read it must not write; `plain_sql` lets nothing through that would.

    `systems`: of fsspec, where the files are not local. `small`: these are, and small.

    Raises duckdb.Error, and UnicodeError for a path that is no text.
    """

    def __init__(self, files: Iterable[str], systems: Iterable[Any], small: bool):
        folder = spill.spill_folder()
        self._at_end = weakref.finalize(self, spill.remove, folder)
        self.connection = duckdb.connect(config=_settings(str(folder), threads(), spill.memory_limit(), small))
        for system in systems:
            self.connection.register_filesystem(system)
        self.connection.execute("SET allowed_paths = $1", [sorted(files)])
        self.connection.execute("SET enable_external_access = false")
        _lock(self.connection)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        return self.connection.cursor()


class Shared(Database):
    """Tables in the one DuckDB of this process that runs only SQL of this package's own: to make another DuckDB, and to
    close it, takes as long as a question about a small recording."""

    def __init__(self) -> None:
        self._process = _of_process()
        self._process.let_go()
        self._name = f"engine_{next(_numbers)}"
        self._process.connection.cursor().execute(f"ATTACH ':memory:' AS {self._name}")
        self._at_end = weakref.finalize(self, self._process.left.append, self._name)
        self.connection = self._cursor()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        return self._process.connection.cursor().execute(f"USE {self._name}")

    def close(self) -> None:
        """As `Database.close`."""
        super().close()
        self._process.let_go()


def empty_database() -> duckdb.DuckDBPyConnection:
    """A connection to a DuckDB that can open nothing, for temporary tables of rows: no one else sees them.

    It runs expressions of whoever asks. To make another takes longer than most of what is asked of it. Raises
    InputError for settings that are not well-formed.
    """
    return _of_process(closed=True).connection.cursor()


class _OfProcess:
    """A DuckDB that is shared. It lives as long as the process."""

    def __init__(self, threads: int, limit: Mapping[str, str], closed: bool):
        folder = spill.spill_folder()
        self._at_end = weakref.finalize(self, spill.remove, folder)
        self.connection = duckdb.connect(config=_settings(str(folder), threads, limit, small=True))
        if closed:
            self.connection.execute("SET enable_external_access = false")
        _lock(self.connection)
        self.left: deque[str] = deque()
        """Names of what nobody holds any more: that is noted in the midst of anything, when garbage is collected, and
        seen to by the next who comes."""

    def let_go(self) -> None:
        """Drop the tables that nobody holds any more."""
        with suppress(IndexError):
            while name := self.left.popleft():
                self.connection.cursor().execute(f"DETACH {name}")


_numbers = itertools.count(1)
_making = threading.Lock()


def _of_process(closed: bool = False) -> _OfProcess:
    choice = os.getpid(), threads(), tuple(spill.memory_limit().items()), closed
    with _making:
        return _made(*choice)


@cache
def _made(pid: int, threads: int, limit: tuple[tuple[str, str], ...], closed: bool) -> _OfProcess:
    # (By the process: one that is forked from it has none of its threads.)
    return _OfProcess(threads, dict(limit), closed)


def _settings(folder: str, threads: int, limit: Mapping[str, str], small: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "temp_directory": folder, "threads": threads}
    if small:
        # Eight threads that fetch what will be read are not worth their start, and each view reads the same few files.
        settings |= {"async_threads": 0, "parquet_metadata_cache": True}
    else:
        # DuckDB compares each row with each other where it expects few, and of what many joins leave it expects far too
        # few: billions of comparisons take a minute.
        settings |= dict.fromkeys(("asof_loop_join_threshold", "merge_join_threshold", "nested_loop_join_threshold"), 0)
    return {**settings, **limit}


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    for setting in ("autoload_known_extensions", "python_enable_replacements"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
