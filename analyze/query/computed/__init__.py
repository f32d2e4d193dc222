"""Tables that are neither stored nor a view: blocks that Python computes once something uses them.

Each is declared by comment lines like those of a block's file (`analyze.query.blocks`), without the dashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import duckdb

Create: TypeAlias = "Callable[[duckdb.DuckDBPyConnection, str], None]"
"""Creates the table of a name in a connection."""


class Computed(NamedTuple):
    """A table's name and declaration, and what makes it."""

    name: str
    header: str
    create: Create
    tables: tuple[str, ...] = ()
    """Stored tables that it reads itself; `runs` is always there."""


def _api_roles(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import api_roles

    api_roles.create(connection, table)


def _device_peaks(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import device_peaks

    device_peaks.create(connection, table)


def _known_devices(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import device_peaks

    device_peaks.create_known(connection, table)


def _source_times(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import source_times

    source_times.create(connection, table)


def _workload_keys(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import workload_keys

    workload_keys.create(connection, table)


_API_ROLES = """What schemas/api_roles.toml says of the runtime and driver calls that the runs made.
@view api_roles  a row is the name of a call with a role.
@column name text  Runtime or driver function.
@column role text  What it does: launch, copy, copy_async, sync, stream_wait ...
@column waits_for text  device, stream, event or copy; NULL if it never blocks.
"""
_KNOWN_DEVICES = """The GPUs whose figures schemas/devices.toml has.
@view known_devices  a row is a GPU.
@column name text  As the file has it.
"""
_DEVICE_PEAKS = """What schemas/devices.toml publishes of the GPUs of the runs.
@view device_peaks  a row is a GPU name that the file knows.
@column gpu_name text  As the driver prints it.
@column name text  As the file has it.
@column source text  Where the figures are from.
@column compute_capability text  Compute capability.
@column memory_gb number  Device memory in GB.
@column dram_gb_per_s GB/s  Bandwidth of the device memory.
@column fp32_tflops number  Peak outside tensor cores, in TFLOP/s.
@column sm_count number  Streaming multiprocessors.
@column fp64_tflops number  Likewise, double precision.
@column fp16_tflops number  Likewise, half precision.
@column fp64_tensor_tflops number  Peak of tensor cores, dense matrices, in TFLOP/s.
@column tf32_tensor_tflops number  Likewise, TF32.
@column fp16_tensor_tflops number  Likewise, half precision.
@column bf16_tensor_tflops number  Likewise, bfloat16.
@column fp8_tensor_tflops number  Likewise, 8 bits.
@column l2_mb number  L2 cache in MB.
@column pcie_gb_per_s GB/s  Of the PCIe link, in one direction.
@column nvlink_gb_per_s GB/s  Of NVLink, in one direction; NULL without.
"""
_SOURCE_TIMES = """Which line of the program the time of a GPU comes from, where Python stacks were recorded.

The innermost function of the program itself that its main thread was in when it launched what the GPU runs; where the
GPU runs nothing, that it is in meanwhile. Work that runs side by side has a row each.
@use gpu_tracks, innermost, intervals
@view source_times  a row is a stretch of time of a GPU.
@column track index  The track that it stands on.
@column source text  File, line on which the function begins, and its name: train.py:42 in train_step.
@column start_ns ns  Start.
@column end_ns ns  End.
"""
_WORKLOAD_KEYS = """Which runs do the same work, apart from what a study varies (schemas/workload.py).
@view workload_keys  a row is a run.
@column run_id id  The run.
@column options text  The options that such runs have in common.
"""

COMPUTED = (
    Computed("api_roles", _API_ROLES, _api_roles, ("cuda_calls",)),
    Computed("device_peaks", _DEVICE_PEAKS, _device_peaks),
    Computed("known_devices", _KNOWN_DEVICES, _known_devices),
    Computed("source_times", _SOURCE_TIMES, _source_times, ("gpu_work", "ranges")),
    Computed("workload_keys", _WORKLOAD_KEYS, _workload_keys),
)
"""All of them."""
