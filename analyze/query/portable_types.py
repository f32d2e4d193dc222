"""Cast DuckDB's own types to types that Python, Arrow, Parquet and data frames have, and make column names distinct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from analyze.query.literals import identifier

_OTHERS = {"timestamp with time zone": "TIMESTAMP", "timestamptz_ns": "TIMESTAMP_NS"} | dict.fromkeys(
    ("time with time zone", "time_ns", "interval", "union", "variant", "bignum", "bit", "geometry", "enum"), "VARCHAR"
)
"""Types that Python, Arrow, Parquet or data frames do not all have, and what stands for them. Times are UTC.

An ENUM, as `run_id` is one, would be a dictionary with indices without a sign, which pyarrow before 23 cannot make a
data frame of.
"""


def distinct(names: Sequence[str], same: Callable[[str], str] = str) -> list[str]:
    """Return distinct names: a repeated one gets a number at its end (a, a_1), as in files that DuckDB writes.

    `same`: names with equal values of it count as repeated.
    """
    found: dict[str, str] = {}
    given = set(map(same, names))
    for name in names:
        shown, number = name, 0
        while same(shown) in found or (number and same(shown) in given):
            number += 1
            shown = f"{name}_{number}"
        found[same(shown)] = shown
    return list(found.values())


def plain(result: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The relation with other types in the place of those that only DuckDB has."""
    casts = list(map(_plain, result.types))
    if not any(casts):
        return result
    shown = [
        f"#{at}{f'::{cast}' if cast else ''} AS {identifier(name)}"
        for at, (name, cast) in enumerate(zip(result.columns, casts, strict=True), 1)
    ]
    return result.project(", ".join(shown))


def _plain(kind: Any) -> str | None:
    """The type that stands for another; None for one that may stay."""
    if kind.id in _OTHERS:
        return _OTHERS[kind.id]
    if kind.id not in ("list", "array", "map", "struct", "tuple"):
        return None
    parts = kind.children
    if not parts:  # a STRUCT without fields
        return "VARCHAR"
    size = parts.pop()[1] if kind.id == "array" else ""
    inner = [_plain(part) for _, part in parts]
    if not any(inner):
        return None
    kinds = [cast or str(part) for cast, (_, part) in zip(inner, parts, strict=True)]
    if kind.id == "struct":
        fields = zip((name for name, _ in parts), kinds, strict=True)
        return f"STRUCT({', '.join(f'{identifier(name)} {part}' for name, part in fields)})"
    return {"tuple": "VARCHAR", "map": f"MAP({', '.join(kinds)})"}.get(kind.id, f"{kinds[0]}[{size}]")
