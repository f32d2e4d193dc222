"""The tables `device_peaks` and `known_devices`: what `schemas.devices` publishes of GPUs, of the runs or all."""

from __future__ import annotations

from dataclasses import fields

import duckdb

from schemas.devices import Device, devices, lookup

_TEXT = ("name", "source", "compute_capability")
_LEFT_OUT = ("match",)
DECLARATION = """What schemas/devices.toml publishes of the GPUs of the runs.
@table device_peaks  a row is a GPU name in the file.
@column gpu_name text  Name, as the driver prints it.
@column name text  Name in the file.
@column source text  Source of the figures.
@column compute_capability text  Compute capability.
@column memory_gb number  Device memory in GB.
@column dram_gb_per_s GB/s  Bandwidth of the device memory.
@column fp32_tflops number  Peak of single precision outside tensor cores, in TFLOP/s.
@column sm_count number  Streaming multiprocessors.
@column fp64_tflops number  Peak of double precision outside tensor cores, in TFLOP/s.
@column fp16_tflops number  Peak of half precision outside tensor cores, in TFLOP/s.
@column fp64_tensor_tflops number  Peak of tensor cores, dense matrices, double precision, in TFLOP/s.
@column tf32_tensor_tflops number  TF32, the same.
@column fp16_tensor_tflops number  Half precision, the same.
@column bf16_tensor_tflops number  bfloat16, the same.
@column fp8_tensor_tflops number  8 bits, the same.
@column int8_tensor_tops number  Integers of 8 bits, the same, in TOP/s.
@column fp4_tensor_tflops number  4 bits, the same, in TFLOP/s.
@column l2_mb number  L2 cache in MB.
@column pcie_gb_per_s GB/s  Bandwidth of the PCIe link, in one direction.
@column nvlink_gb_per_s GB/s  Bandwidth of NVLink, in one direction; NULL without.
"""
KNOWN_DECLARATION = """The GPUs whose figures schemas/devices.toml has.
@table known_devices  a row is a GPU.
@column name text  Name in the file.
"""


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
