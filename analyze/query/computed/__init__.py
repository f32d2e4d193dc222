"""Tables that are neither stored nor a view: blocks that Python computes once something uses them.

Each is declared by comment lines like those of a block's file (`analyze.query.blocks`), without the dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _call_tree(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    from analyze.query.computed import call_tree

    call_tree.create(connection, table)


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


_EVENT = """@column run_id id  The run.
@column rank index  Process rank.
@column run_group index  Group of runs (--by); NULL without.
@column kind text  {kinds}.
@column name text  Name.
@column tid id  Thread.
@column op_id id  PyTorch's External id.
@column start_ns ns  Start.
@column dur_ns ns  Length.
@column node index  Its number in pre-order.
@column parent index  That of its parent; NULL for a root.
@column last_node index  That of the last event below it; its own if there is none.
@column depth index  Its level, from 0.
@column self_ns ns  Its time without that of its children.
@column folded bool  Whether it is its parent's only child and has its name: one event of the two, for torch.profiler.
@column gpu_ns ns  GPU work that it launched by External id; 0 for what something folded into brings along.
@column total_gpu_ns ns  The same with all below it.
"""
_CALL_TREE = (
    """Which operator or range lies inside which: {what}.

Each event on its own thread. What overlaps in part is not nested.
@use cpu_events, op_links
@view {name}  a row is an operator, range or Python function.
"""
    + _EVENT.replace("{kinds}", "op, range, async or python")
    + """@column path index  Its path in call_paths_{choice}; NULL of async.
"""
)
# (Sorted by name it stands behind the tree: where both are used, the sums are those of its rows.)
_CALL_TREE_SUMS = """What has one path in the call tree: {what}.

`call_tree_{choice}` added up, without a row for each event.
@use cpu_events, gpu_named_work, op_links, work_nodes
@view call_paths_{choice}  a row is a path of names from the root of a thread down, on a rank.
@column run_id id  The run.
@column rank index  Process rank.
@column run_group index  Group of runs (--by); NULL without.
@column kind text  op, range or python: of the last on it.
@column name text  Its name.
@column path index  Its number in pre-order.
@column parent index  That of the path without its last name; NULL for a root.
@column last_path index  That of the last path below it; its own if there is none.
@column depth index  Its level, from 0.
@column calls count  Calls.
@column total_ns ns  Sum of their durations.
@column self_ns ns  The same without that of their children.
@column first_ns ns  First start.
@view call_work_{choice}  a row is a name of GPU work that the calls of a path launched themselves.
@column run_id id  The run.
@column rank index  Process rank.
@column run_group index  Group of runs (--by); NULL without.
@column path index  The path, as `work_nodes` finds the calls; NULL where the trace links it to none.
@column kind text  kernel, memcpy or memset.
@column name text  As in gpu_named_work.
@column calls count  Pieces of work.
@column total_ns ns  Sum of their durations.
@column first_ns ns  First start.
@column last_ns ns  Last start.
"""
_TORCH_TREE = """Which operator, range or CUDA call lies inside which, as torch.profiler has it: {what}.

CUDA calls that no operator made, and the profiler's overhead, are filed under the main thread.
@use cpu_events, op_links
@view {name}  a row is an operator, range, CUDA call or Python function.
""" + _EVENT.replace("{kinds}", "op, range, async, call, overhead or python")
_MEMORY_TREE = """`torch_tree_{choice}` of the ranks that have allocator events, of which there may be none.

@use cpu_events, op_links
@view {name}  a row is an operator, range, CUDA call or Python function.
@column * of torch_tree_{choice}
"""
_TORCH_SUMS = """The time of what has one name in torch.profiler's call tree: {what}.

`torch_tree_{choice}` added up, without a row for each event.
@use cpu_events, op_links
@view {name}  a row is a name of operators, ranges, CUDA calls or Python functions, folded ones apart.
@column run_id id  The run.
@column rank index  Process rank.
@column run_group index  Group of runs (--by); NULL without.
@column kind text  op, range, async, call, overhead or python.
@column name text  Name.
@column folded bool  Whether each is its parent's only child and has its name.
@column calls count  Calls.
@column total_ns ns  Sum of their durations.
@column self_ns ns  The same without that of their children.
@column gpu_ns ns  GPU work that they launched by External id; 0 for what something folded into brings along.
@column total_gpu_ns ns  The same with all below each.
"""
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

_FUNCTIONS = {
    "no": "without Python functions",
    "yes": "with Python functions",
    "module": "with the Python functions of nn.Modules",
    "stack": "with all Python functions",
}


def _of_each(stem: str, header: str, what: dict[str, str], create: Create, *tables: str) -> Iterator[Computed]:
    """A table for each choice of a query's parameter, in which its name ends."""
    for choice, words in what.items():
        name = f"{stem}_{choice}"
        yield Computed(name, header.format(name=name, what=words, choice=choice), create, tables)


COMPUTED = (
    Computed("api_roles", _API_ROLES, _api_roles, ("cuda_calls",)),
    *_of_each("call_tree", _CALL_TREE, {k: _FUNCTIONS[k] for k in ("module", "no", "stack")}, _call_tree, "gpu_work"),
    *_of_each(
        "call_tree_sums", _CALL_TREE_SUMS, {k: _FUNCTIONS[k] for k in ("module", "no", "stack")}, _call_tree, "gpu_work"
    ),
    Computed("device_peaks", _DEVICE_PEAKS, _device_peaks),
    Computed("known_devices", _KNOWN_DEVICES, _known_devices),
    Computed("source_times", _SOURCE_TIMES, _source_times, ("gpu_work", "ranges")),
    *_of_each(
        "memory_tree", _MEMORY_TREE, {k: _FUNCTIONS[k] for k in ("no", "yes")}, _call_tree, "gpu_work", "memory_events"
    ),
    *_of_each("torch_sums", _TORCH_SUMS, {k: _FUNCTIONS[k] for k in ("no", "yes")}, _call_tree, "gpu_work"),
    *_of_each("torch_tree", _TORCH_TREE, {k: _FUNCTIONS[k] for k in ("no", "yes")}, _call_tree, "gpu_work"),
    Computed("workload_keys", _WORKLOAD_KEYS, _workload_keys),
)
"""All of them."""
