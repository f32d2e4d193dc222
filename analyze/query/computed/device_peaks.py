"""The tables `device_peaks` and `known_devices`: what `schemas.devices` publishes of GPUs, of the runs or all."""

from __future__ import annotations

from dataclasses import fields

import duckdb

from schemas.devices import Device, devices, lookup

_TEXT = ("name", "source", "compute_capability")
_LEFT_OUT = ("match",)


def create(connection: duckdb.DuckDBPyConnection, table: str = "device_peaks") -> None:
    """Make the table, unless it is there: `gpu_name` as the driver prints it, and the fields of `Device`.

    A GPU that the file does not know has no row.
    """
    names = [f.name for f in fields(Device) if f.name not in _LEFT_OUT]
    columns = ", ".join(f'"{n}" {"VARCHAR" if n in _TEXT else "DOUBLE"}' for n in names)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (gpu_name VARCHAR, {columns})")
    known = f"SELECT gpu_name FROM {table} UNION SELECT NULL"
    new = f"SELECT DISTINCT gpu_name FROM runs EXCEPT ({known})"
    for (gpu_name,) in connection.execute(new).fetchall():
        if (device := lookup(gpu_name)) is not None:
            values = [gpu_name, *(getattr(device, n) for n in names)]
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)


def create_known(connection: duckdb.DuckDBPyConnection, table: str = "known_devices") -> None:
    """Make the table of all names that the file knows, unless it is there."""
    names = ", ".join(f"('{d.name}')" for d in devices())
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM (VALUES {names}) t(name)")
