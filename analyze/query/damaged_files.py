"""Name the damaged Parquet file in an error of DuckDB, which often names none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

from analyze.errors import InputError, ReportedError
from analyze.query.literals import text_literal
from analyze.query.sql_checks import GONE, sentence
from analyze.store.parquet_checksums import what_helps

_OF_DAMAGE = (duckdb.InvalidInputException, duckdb.IOException, duckdb.InternalException)


@contextmanager
def naming_files(read: Callable[[], tuple[duckdb.DuckDBPyConnection, Mapping[str, str]]]) -> Iterator[None]:
    """What fails within because a stored Parquet file cannot be read is an InputError that names the file.

    `read`: the connection, and the files that it reads by what it opens them by. They are looked up once something
    failed, and each is read up to the first that cannot be.
    """
    try:
        yield
    except (duckdb.Error, ReportedError) as e:
        cause = e.__cause__ if isinstance(e, ReportedError) else e
        if _may_be_damage(cause) and (said := _unreadable(*read(), str(e))):
            raise InputError(said) from cause
        raise


def _unreadable(connection: duckdb.DuckDBPyConnection, files: Mapping[str, str], error: str) -> str | None:
    """A sentence about the first of the files that cannot be read; None if all can be, or the error names one."""
    if any(file in error for file in files.values()):
        return None
    for name, file in files.items():
        try:
            source = f"read_parquet({text_literal(name)}, hive_partitioning = false)"
            connection.execute(f"SELECT bit_xor(hash(t)) FROM {source} t").fetchall()
        except duckdb.Error as e:
            if _may_be_damage(e):
                said = sentence(e)
                return f"{file}: {GONE}" if GONE in said else f"{file}: damaged: {said}; {what_helps(Path(file))}"
    return None


def _may_be_damage(error: BaseException | None) -> bool:
    """What the reader of Parquet finds wrong in the midst of a file is an error of no kind."""
    return type(error) is duckdb.Error or isinstance(error, _OF_DAMAGE)
