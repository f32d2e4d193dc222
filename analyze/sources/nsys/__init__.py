"""Nsight Systems: SQLite, Parquet and Arrow exports, and reports through nsys itself."""

import re

from analyze.sources.interface import Source

_READER = f"{__name__}.reader"
SOURCES = (
    Source(
        "nsys_sqlite", _READER, "nsys", re.compile(r".*\.sqlite$", re.I), beside=("-journal", "-wal"), says_rank=True
    ),
    Source("nsys_report", _READER, "nsys", re.compile(r".*\.(nsys-rep|qdrep)$", re.I), exported=(".sqlite",)),
    Source(
        "nsys_tables", _READER, "nsys", re.compile(r"META_DATA_EXPORT\.(parquet|arrow)$"), folder=True, says_rank=True
    ),
)
