"""Read rows of a large SQLite file as Arrow arrays with the ADBC driver, without a Python object for each value."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set
from contextlib import closing
from typing import Any

import pyarrow as pa

_TRIES = 3
"""Attempts: the driver takes types from the first batch, in which a column of text may be all NULL."""


def arrow_batches(
    uri: str, table: str, columns: Mapping[str, str], text: Set[str], rows: int
) -> Generator[dict[str, pa.Array], None, int | None]:
    """Yield batches of `rows` rows of a table in the order of the file.

    `columns`: SQL by name, int64 or (if in `text`) string. Returns None at the end of the table. Stops before rows with
    values of another type, text that is not UTF-8 or unreadable rows, and returns the number of rows before them;
    another reader reads the rest and reports what is wrong.
    """
    from adbc_driver_manager import Error
    from adbc_driver_sqlite import dbapi

    types = {name: pa.string() if name in text else pa.int64() for name in columns}
    named = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(columns.values()))
    done = 0
    for _ in range(_TRIES):
        try:
            with (
                closing(dbapi.connect(uri)) as connection,
                closing(connection.cursor()) as cursor,
            ):
                if _odd_text(cursor, table, [sql for name, sql in columns.items() if name in text]):
                    return done
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
                cursor.execute(f'SELECT {named} FROM "{table}" LIMIT -1 OFFSET {done}')
                for batch in cursor.fetch_record_batch():
                    batch.validate(full=True)
                    arrays = [_of_type(a, t) for a, t in zip(batch.columns, types.values(), strict=True)]
                    if any(a is None for a in arrays):
                        return done
                    yield dict(zip(columns, arrays, strict=True))
                    done += batch.num_rows
                return None
        except (Error, pa.ArrowException, OSError, UnicodeDecodeError):
            continue
    return done


def _odd_text(cursor: Any, table: str, columns: Sequence[str]) -> bool:
    """Return whether columns of text have numbers, which the driver would print in its own way."""
    if not columns:
        return False
    found = " OR ".join(f"typeof({sql}) NOT IN ('text', 'null')" for sql in columns)
    cursor.execute(f'SELECT count(*) FROM (SELECT 1 FROM "{table}" WHERE {found} LIMIT 1)')
    return bool(cursor.fetchone()[0])


def _of_type(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return the array, or None if it has another type. The driver gives NULLs the type int64."""
    if array.type == type_:
        return array
    return pa.nulls(len(array), type_) if array.null_count == len(array) else None
