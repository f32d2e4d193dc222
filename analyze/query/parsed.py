"""SQL of this package's own, parsed once a process: a third of a question about a small recording is to parse it."""

from __future__ import annotations

from functools import cache, lru_cache

import duckdb


@lru_cache(512)
def parsed(sql: str) -> duckdb.Statement:
    """One statement, which any connection can execute, any number of times. Raises duckdb.Error.

    Not for texts with values in them, which come once. Those of all built-in queries and blocks take 13 MB.
    """
    [statement] = _parser().cursor().extract_statements(sql)
    return statement


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"enable_external_access": "false"})
