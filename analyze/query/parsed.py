"""SQL of this package's own, parsed once a process: a third of a question about a small recording is to parse it."""

from __future__ import annotations

import threading

import duckdb

_MOST = 512
"""Texts that are kept: those of all built-in queries and blocks are 261, and take 13 MB."""

_known: dict[str, duckdb.Statement] = {}
_lock = threading.Lock()


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """One statement, which any connection can execute, any number of times. Raises duckdb.Error.

    Not for texts with values in them, which come once. The connection must not be at work.
    """
    statement = _known.get(sql)
    if statement is None:
        [statement] = connection.extract_statements(sql)
        with _lock:
            if len(_known) >= _MOST:
                del _known[next(iter(_known))]
            _known[sql] = statement
    return statement
