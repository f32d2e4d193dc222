"""Guess the units of columns of `analyze sql` from their names."""

from __future__ import annotations

import re

_NUMERIC = re.compile(r"(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\))$")

_UNITS = {
    "images_per_s": "images/s", "flops_per_s": "FLOP/s", "gb_per_s": "GB/s", "bytes_per_s": "B/s",
    "_per_s": "number", "_ns": "ns", "_pct": "%", "_bytes": "B", "_flops": "FLOP", "_s": "s",
}  # fmt: skip
"""Units of columns of free SQL by the ends of their names; the first that fits counts."""


def guess_unit(name: str, sql_type: str) -> str:
    """Unit of a column of free SQL, from the endings that the tables use."""
    if not _NUMERIC.match(sql_type):
        return {"BOOLEAN": "bool", "TIMESTAMP": "time"}.get(sql_type, "text")
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return unit
    return "B" if name == "bytes" else "number"
