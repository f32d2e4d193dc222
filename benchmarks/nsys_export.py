"""Reading a large Nsight Systems export: `analyze ingest`, and ways to get its rows out of SQLite.

    python benchmarks/nsys_export.py [--mb 500]

The export is grown from sample_traces/alexnet-dp2. Prints CPU seconds and MB/s of: SQLite's own check of the file, the
columns that the reader takes as Python tuples turned into Arrow arrays (what it does), the same through ADBC (pip
install adbc-driver-sqlite adbc-driver-manager) and through DuckDB's extension `sqlite`, where these are there, and the
whole ingest.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parent.parent
SAMPLE = next(ROOT.glob("sample_traces/alexnet-dp2/nsys/*.sqlite"))
TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API")


def grow(target: Path, size_bytes: int) -> list[str]:
    """Copies of the event tables' rows, later and with correlation ids of their own; returns the tables."""
    shutil.copy(SAMPLE, target)
    connection = sqlite3.connect(target)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    columns = {t: [c[1] for c in connection.execute(f"PRAGMA table_info({t})")] for t in TABLES}
    columns = {t: names for t, names in columns.items() if names}
    shifts = {"start": 10**10, "end": 10**10, "correlationId": 10**7}
    copies = 1
    while target.stat().st_size < size_bytes:
        for table, names in columns.items():
            new = ", ".join(f'"{n}" + {copies * shifts[n]}' if n in shifts else f'"{n}"' for n in names)
            connection.execute(f"INSERT INTO {table} SELECT {new} FROM {table}")
        connection.commit()
        copies *= 2
    connection.close()
    return list(columns)


def tuples(path: Path, tables: list[str]) -> int:
    """Rows as tuples, and columns of them as Arrow arrays."""
    connection, rows = sqlite3.connect(path), 0
    for table in tables:
        cursor = connection.execute(f"SELECT * FROM {table}")
        while found := cursor.fetchmany(1 << 16):
            rows += len(found)
            for column in zip(*found, strict=True):
                pa.array(column)
    return rows


def adbc(path: Path, tables: list[str]) -> int:
    """Arrow arrays straight from the driver."""
    from adbc_driver_sqlite import dbapi

    rows = 0
    with dbapi.connect(str(path)) as connection, connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            rows += sum(batch.num_rows for batch in cursor.fetch_record_batch())
    return rows


def scanner(path: Path, tables: list[str]) -> int:
    """Arrow tables by DuckDB's extension."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("INSTALL sqlite; LOAD sqlite; SET threads = 1")
    return sum(
        connection.execute(f"SELECT * FROM sqlite_scan('{path}', '{table}')").to_arrow_table().num_rows
        for table in tables
    )


def check(path: Path, tables: list[str]) -> int:
    """SQLite's check, which the reader makes first: a damaged page may read as fewer rows."""
    return len(sqlite3.connect(path).execute("PRAGMA quick_check(1)").fetchall())


def ingest(path: Path, tables: list[str]) -> int:
    """Into a store, by one process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "analyze", "ingest", str(path), "--store", f"{folder}/store", "--jobs", "1"]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return 0


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=500)
    size = parser.parse_args().mb
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "node-0.sqlite"
        tables = grow(export, size * 1_000_000)
        megabytes = export.stat().st_size / 1e6
        print(f"{megabytes:,.0f} MB: {', '.join(tables)}")
        ways: dict[str, Callable[[Path, list[str]], int]] = {
            "quick_check": check, "tuples": tuples, "ADBC": adbc, "DuckDB's sqlite": scanner, "analyze ingest": ingest,
        }  # fmt: skip
        for name, way in ways.items():
            before = sum(time_of_all())
            try:
                rows = way(export, tables)
            except Exception as e:  # a driver that is not there, or does not read it
                print(f"{name:16} {str(e).splitlines()[0]}")
                continue
            seconds = sum(time_of_all()) - before
            print(
                f"{name:16} {seconds:6.1f} s {megabytes / seconds:6.0f} MB/s" + (f" {rows:,} rows" if rows > 1 else "")
            )


def time_of_all() -> tuple[float, float]:
    """CPU seconds of this process and of those that it waited for."""
    import resource

    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


if __name__ == "__main__":
    main()
