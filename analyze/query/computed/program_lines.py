"""The table `program_lines`: the Python functions of the program itself, among all that Python stacks have."""

from __future__ import annotations

import duckdb

from schemas.python_files import program_function

DECLARATION = """The functions of the program in Python stacks.

Those of installed packages, of the standard library and of the collector are none.
@table program_lines  a row is a function of the program; of a GPU-only block, one of its full block.
@column name text  Its name in `ranges`.
@column line text  File, line on which the function begins, and its name: train.py:42 in train_step.
"""
_NAMES = """
SELECT DISTINCT name
FROM (SELECT origin, name FROM ranges UNION ALL SELECT origin, name FROM full_ranges)
WHERE origin = 'python_function' AND name IS NOT NULL
"""


def create(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Create the table: `name`, `line`."""
    names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    found = [(name, known[0]) for name in names if (known := program_function(name)) is not None and not known[1]]
    connection.execute(f"CREATE OR REPLACE TABLE {table} (name VARCHAR, line VARCHAR)")
    if found:
        columns = [list(column) for column in zip(*found, strict=True)]
        connection.execute(f"INSERT INTO {table} SELECT unnest($1), unnest($2)", columns)
