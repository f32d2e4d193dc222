"""Check texts of query parameters: valid UTF-8, and regular expressions that DuckDB accepts."""

from __future__ import annotations

from functools import lru_cache

import duckdb

from analyze.errors import InputError
from analyze.query.databases import empty_database
from analyze.query.sql_checks import sentence


def check_text(text: str, what: str) -> None:
    """Raise InputError, which begins with `what`, for bytes of an argument that were not UTF-8."""
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise InputError(f"{what} must be valid UTF-8, not {text!r}")


@lru_cache(64)
def check_regex(text: str, what: str) -> None:
    """Raise InputError unless the text is a regular expression of DuckDB's: its library takes others than Python's."""
    check_text(text, what)
    try:
        empty_database().execute("SELECT regexp_matches('', $1)", [text]).fetchall()
    except duckdb.Error as e:
        why = sentence(e).partition(": ")[2]
        raise InputError(f"{what} must be a regular expression, not {text!r}: {why}") from e
