"""The tables of a store: every column with its type, unit and meaning.

Types are Arrow's names; `string` columns are dictionary-encoded in memory and on disk. Times are int64 nanoseconds:
`start_ns` on the clock of its file (one clock per file), `dur_ns` a duration. NULL means that the file does not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.workload import COLUMNS as WORKLOAD_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: Arrow type name, unit ('' for none) and meaning."""

    name: str
    type: str
    unit: str
    doc: str


class Table(NamedTuple):
    """One table: what a row is, and its columns in order (run_id and rank included)."""

    name: str
    row: str
    columns: tuple[Column, ...]
    derived: bool = False
    """Whether the ingest computes it from the other tables of the rank."""


def _table(
    name: str, row: str, *columns: tuple[str, str, str, str], ranked: bool = True, derived: bool = False
) -> Table:
    keys = [Column("run_id", "string", "", "the run (and profiler pass) the row belongs to")]
    if ranked:
        keys.append(Column("rank", "int32", "", "process rank in the job; 0 for one process"))
    return Table(name, row, (*keys, *(Column(*c) for c in columns)), derived)


_INTERVAL = (
    ("start_ns", "int64", "ns", "start"),
    ("dur_ns", "int64", "ns", "duration; may be 0"),
)
_GPU = (
    ("pid", "int64", "", "process that owns the work; NULL where the file only names the device"),
    ("device", "int32", "", "GPU index as the process numbered it"),
    ("stream", "int64", "", "CUDA stream"),
)
_LINK = (
    ("correlation_id", "int64", "", "joins the GPU work to the CUDA call that launched it, within (run_id, rank, pid)"),
    ("op_id", "int64", "", "PyTorch's External id: joins to cpu_ops.op_id; NULL if the file has none"),
)
_CPU = (
    ("pid", "int64", "", "process; NULL where the file has a label instead of a number"),
    ("tid", "int64", "", "thread; NULL where the file has a label instead of a number"),
)
_TREE = (
    "tree",
    "string",
    "",
    "which Python functions are part of the tree: op (none), module (those of nn.Modules) or stack (all)",
)
_SUMMARY = (
    ("name", "string", "", "call, kernel or copy, as the log prints it"),
    ("calls", "int64", "", "number of calls"),
    ("total_ns", "int64", "ns", "sum of durations as printed, rounded to 1 ns"),
    ("avg_ns", "int64", "ns", "mean"),
    ("min_ns", "int64", "ns", "shortest"),
    ("max_ns", "int64", "ns", "longest"),
    ("share_pct", "double", "%", "share of the log's own total, as printed"),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        _table(
            "runs",
            "a run: one workload under one profiler",
            ("workload_id", "string", "", "the collect run; passes under several profilers share it"),
            ("profiler", "string", "", "torch, nsys, ncu, nvprof or none"),
            *((c.name, c.type, c.unit, c.doc) for c in WORKLOAD_COLUMNS),
            ("gpu_name", "string", "", "GPU name"),
            ("compute_capability", "string", "", "of the GPU, e.g. 9.0"),
            ("driver_version", "string", "", "NVIDIA driver"),
            ("cuda_version", "string", "", "CUDA runtime"),
            ("cudnn_version", "string", "", "cuDNN"),
            ("nccl_version", "string", "", "NCCL"),
            ("torch_version", "string", "", "PyTorch"),
            ("host", "string", "", "host name"),
            ("command", "string", "", "command line"),
            ("git_commit", "string", "", "commit of the working directory"),
            ("start_time", "string", "", "ISO 8601, UTC"),
            ("status", "string", "", "running, done or failed; NULL for bare files"),
            ("reason", "string", "", "reason of a failure"),
            ("ranks", "int32", "", "ranks that were ingested"),
            ("world_size", "int32", "", "ranks of the job; NULL where neither the files nor run.json say so"),
            ("source", "string", "", "folder or file that was read"),
            ("warnings", "string", "", "what was lost or unusual while reading, one line each"),
            ranked=False,
        ),
        _table(
            "kernels",
            "a kernel launch that ran",
            *_GPU,
            ("name", "string", "", "kernel name as the profiler wrote it (demangled)"),
            *_INTERVAL,
            *_LINK,
            ("grid_x", "int32", "blocks", "grid size"),
            ("grid_y", "int32", "blocks", "grid size"),
            ("grid_z", "int32", "blocks", "grid size"),
            ("block_x", "int32", "threads", "block size"),
            ("block_y", "int32", "threads", "block size"),
            ("block_z", "int32", "threads", "block size"),
            ("registers", "int32", "", "registers per thread"),
            ("shared_mem_bytes", "int64", "B", "shared memory per block, static and dynamic"),
            ("blocks_per_sm", "double", "", "blocks / SMs"),
            ("occupancy_pct", "double", "%", "estimated achieved occupancy"),
            ("graph_id", "int64", "", "CUDA graph the kernel ran in; NULL or 0 outside graphs"),
            ("collective", "string", "", "collective as NCCL named it to the profiler"),
            ("in_elems", "int64", "", "elements sent"),
            ("out_elems", "int64", "", "elements received"),
            ("dtype", "string", "", "element type of the collective"),
            ("group_size", "int32", "", "ranks in the process group"),
            ("group_name", "string", "", "process group"),
            ("group_ranks", "string", "", "ranks in the group, as a JSON list; the profiler truncates a long one"),
            ("group_desc", "string", "", "description of the process group in the program"),
            ("seq", "int64", "", "sequence number of the collective in its group"),
            ("peer", "int32", "", "destination of a send, source of a receive: a global rank in PyTorch"),
            ("in_splits", "string", "", "rows sent to each rank by an all_to_all, a JSON list; [] means equal splits"),
            ("out_splits", "string", "", "rows received from each rank; as in_splits"),
        ),
        _table(
            "process_groups",
            "a process group that a rank is in, as its trace lists them",
            ("group_name", "string", "", "name; different groups of different ranks may share one"),
            ("description", "string", "", "description in the program: default_pg, mesh_tp ..."),
            ("ranks", "string", "", "its ranks in the job, a JSON list; NULL if the file does not list them"),
            ("size", "int32", "", "number of ranks"),
            ("backend", "string", "", "backend by device type: cuda:nccl"),
        ),
        _table(
            "rank_hosts",
            "a rank whose host is known",
            ("host", "string", "", "name of the host, from the recording or from collect"),
        ),
        _table(
            "memcpys",
            "a copy on or between devices",
            *_GPU,
            ("kind", "string", "", "HtoD, DtoH, DtoD, PtoP, HtoH or Unknown; of managed memory: Unified HtoD ..."),
            ("src_device", "int32", "", "device copied from (peer-to-peer)"),
            ("dst_device", "int32", "", "device copied to (peer-to-peer)"),
            ("src_memory", "string", "", "Pageable, Pinned, Device, Managed ..."),
            ("dst_memory", "string", "", "Pageable, Pinned, Device, Managed ..."),
            ("bytes", "int64", "B", "size"),
            *_INTERVAL,
            *_LINK,
            ("graph_id", "int64", "", "CUDA graph it ran in"),
        ),
        _table(
            "memsets",
            "a fill of device memory",
            *_GPU,
            ("dst_memory", "string", "", "Device, Managed ..."),
            ("bytes", "int64", "B", "size"),
            *_INTERVAL,
            *_LINK,
            ("graph_id", "int64", "", "CUDA graph it ran in"),
        ),
        _table(
            "cuda_calls",
            "a call of the CUDA runtime or driver",
            *_CPU,
            ("api", "string", "", "runtime, driver, or sync for the GPU side of a synchronisation"),
            ("name", "string", "", "function, without version suffix (_v7000) where the profiler adds one"),
            *_INTERVAL,
            *_LINK,
        ),
        _table(
            "cpu_ops",
            "a PyTorch operator call",
            *_CPU,
            ("name", "string", "", "operator"),
            *_INTERVAL,
            ("op_id", "int64", "", "External id: GPU work and CUDA calls point to it"),
            ("sequence_number", "int64", "", "joins a forward operator to its backward"),
            ("fwd_thread", "int64", "", "forward thread id of a backward operator"),
            ("record_function_id", "int64", "", "Record function id"),
            ("input_dims", "string", "", "shapes of the inputs, JSON"),
            ("input_types", "string", "", "element types of the inputs, JSON"),
            ("concrete_inputs", "string", "", "scalar inputs, JSON"),
            ("collective", "string", "", "collective that the operator (record_param_comms) launches, as in kernels"),
            ("peer", "int32", "", "destination of a send, source of a receive"),
            ("in_elems", "int64", "", "elements sent"),
            ("out_elems", "int64", "", "elements received"),
            ("dtype", "string", "", "element type"),
            ("group_name", "string", "", "process group"),
            ("group_ranks", "string", "", "ranks in the group, as a JSON list"),
        ),
        _table(
            "ranges",
            "a range that a user, a library or the profiler opened",
            (
                "origin",
                "string",
                "",
                "nvtx, record_function, profiler_step, gpu_annotation, python_function or overhead",
            ),
            ("domain", "string", "", "NVTX domain; NULL for the default one"),
            ("style", "string", "", "PushPop or StartEnd, of NVTX ranges"),
            ("name", "string", "", "range name"),
            *_CPU,
            ("end_tid", "int64", "", "thread that ended it, if another than the one that began it"),
            ("device", "int32", "", "GPU of a gpu_annotation"),
            ("stream", "int64", "", "stream of a gpu_annotation"),
            *_INTERVAL,
            ("op_id", "int64", "", "External id"),
            ("python_id", "int64", "", "Python id of a python_function"),
            ("python_parent_id", "int64", "", "Python id of its caller"),
        ),
        _table(
            "recorded_steps",
            "a training step, as a range of the profiler or an NVTX range `step` says",
            ("turn", "int32", "", "place among the steps of the rank, from 0"),
            ("number", "int32", "", "the number in the range's name; NULL where it has none"),
            *_INTERVAL,
            ("next_ns", "int64", "ns", "start of the step that follows; NULL for the last"),
            derived=True,
        ),
        _table(
            "critical_path",
            "a piece of the critical path of a rank's recording or a step of it (docs/critical-path.md)",
            ("turn", "int32", "", "the step, as in recorded_steps; NULL for the path of the whole recording"),
            ("seq", "int64", "", "place in the path, from 0"),
            ("kind", "string", "", "cpu, launch, kernel, communication, copy, gap, stream_wait, sync, profiler, other"),
            ("name", "string", "", "kernel (short), launch call, call that waited, or profiler overhead; NULL of cpu"),
            ("tid", "int64", "", "thread, of a piece on the CPU"),
            ("device", "int32", "", "GPU, of GPU work and its launch"),
            ("stream", "int64", "", "CUDA stream, of these"),
            ("correlation_id", "int64", "", "joins these to the CUDA call that launched them"),
            ("op_id", "int64", "", "the operator that launched them"),
            *_INTERVAL,
            derived=True,
        ),
        _table(
            "critical_path_cpu",
            "a name of operators, ranges or CUDA calls in a piece of the critical path on the CPU",
            ("turn", "int32", "", "the step, as in critical_path"),
            ("seq", "int64", "", "the piece, as in critical_path"),
            ("name", "string", "", "name of what was innermost on the thread; NULL for time without an event"),
            ("dur_ns", "int64", "ns", "for how long; the rows of a piece add up to its length"),
            derived=True,
        ),
        _table(
            "gpu_work",
            "a kernel, memcpy or memset, with what launched it",
            ("kind", "string", "", "kernel, memcpy or memset"),
            (
                "name",
                "string",
                "",
                "kernel name; of a memcpy or memset, as torch.profiler calls it: Memcpy HtoD (Pinned -> Device)",
            ),
            *_GPU[1:],
            *_INTERVAL,
            _LINK[0],
            (
                "op_id",
                "int64",
                "",
                "External id of the operator that launched it: kernels.op_id, or as call_ops has it",
            ),
            (
                "call_name",
                "string",
                "",
                "its launch call: the runtime call with its correlation id, else the driver call; NULL if unknown",
            ),
            ("call_tid", "int64", "", "thread of the launch call"),
            ("call_start_ns", "int64", "ns", "start of the launch call"),
            ("call_dur_ns", "int64", "ns", "length of the launch call"),
            (
                "op_name",
                "string",
                "",
                "operator or range with its op_id; without op_id the innermost one around the start of the launch call",
            ),
            ("op_tid", "int64", "", "thread of the operator"),
            ("op_start_ns", "int64", "ns", "start of the operator"),
            ("op_dur_ns", "int64", "ns", "length of the operator"),
            (
                "outer_name",
                "string",
                "",
                "outermost operator around the start of the operator (or of the launch call); without one the range",
            ),
            ("outer_start_ns", "int64", "ns", "start of that operator or range"),
            ("phase", "string", "", "innermost phase that the launch call begins in: on its thread, else on any"),
            ("phase_start_ns", "int64", "ns", "start of the call of that phase"),
            derived=True,
        ),
        _table(
            "phase_calls",
            "a range of a phase on a thread: of the collector's names, else of torch's, with inferred phases",
            ("tid", "int64", "", "thread"),
            ("phase", "string", "", "data, h2d, forward, loss, backward or optimizer"),
            *_INTERVAL,
            ("inferred", "bool", "", "inferred from autograd's nodes: no range says it"),
            ("begins", "bool", "", "first of the ranges of one phase that overlap on a thread: they are one call"),
            ("call_start_ns", "int64", "ns", "start of that one"),
            derived=True,
        ),
        _table(
            "call_ops",
            "a correlation id of a rank whose External ids are correlation ids (torch 1.12 to 2.2)",
            ("correlation_id", "int64", "", "of a CUDA call or GPU work"),
            (
                "op_id",
                "int64",
                "",
                "External id of the innermost operator or range on the thread when the call begins; NULL without one",
            ),
            derived=True,
        ),
        _table(
            "call_tree",
            "an operator, range, Python function or CUDA call, with its place in the call tree of its thread",
            ("kind", "string", "", "op, range, python (a Python function), call (CUDA), overhead or async"),
            ("name", "string", "", "name; that of a profiler step is ProfilerStep*"),
            *_CPU,
            ("correlation_id", "int64", "", "of CUDA calls, as in cuda_calls"),
            ("op_id", "int64", "", "External id, as the file says it"),
            *_INTERVAL,
            (
                "node",
                "int32",
                "",
                "number of the event in the rank, in pre-order: its subtree ends at last_node",
            ),
            ("parent", "int32", "", "node of the parent; NULL for a root. Of calls and overhead, where they begin"),
            ("last_node", "int32", "", "node of the last event below it; its own if there is none"),
            ("depth", "int32", "", "level in the tree, from 0"),
            ("self_ns", "int64", "ns", "length without that of its children; CUDA calls and overhead stay part of it"),
            (
                "path",
                "int32",
                "",
                "path in call_paths (tree stack); of calls and overhead the parent's; NULL of async",
            ),
            derived=True,
        ),
        _table(
            "call_paths",
            "a path of names in a call tree, from the root of a thread down to an operator, range or Python function",
            _TREE,
            ("path", "int32", "", "number in the rank and tree, in pre-order"),
            ("parent", "int32", "", "path without its last name; NULL for a root"),
            ("last_path", "int32", "", "last path below it; its own if there is none"),
            ("depth", "int32", "", "level in the tree, from 0"),
            ("kind", "string", "", "of the last name: op, range or python"),
            ("name", "string", "", "last name of the path"),
            ("calls", "int64", "", "number of calls"),
            ("total_ns", "int64", "ns", "sum of their durations; NULL if 64 bits may not hold it"),
            ("self_ns", "int64", "ns", "sum of their self times, likewise"),
            ("first_ns", "int64", "ns", "first start"),
            derived=True,
        ),
        _table(
            "call_work",
            "a name of GPU work that the calls of a path launched themselves",
            _TREE,
            (
                "path",
                "int32",
                "",
                "path in call_paths; NULL for work that no operator or range launched",
            ),
            ("kind", "string", "", "kernel, memcpy or memset"),
            ("name", "string", "", "kernel name as in kernels; of a copy or fill, what torch.profiler calls it"),
            ("calls", "int64", "", "kernels, copies or fills"),
            ("total_ns", "int64", "ns", "sum of their durations; NULL if 64 bits may not hold it"),
            ("first_ns", "int64", "ns", "first start"),
            ("last_ns", "int64", "ns", "last start"),
            derived=True,
        ),
        _table(
            "op_sums",
            "a name of operators, ranges, CUDA calls or Python functions, added up as torch.profiler's key_averages()",
            ("python", "bool", "", "whether Python functions take self time from what is below them: filter on it"),
            ("kind", "string", "", "op, range, python (a Python function), call (CUDA), overhead or async"),
            ("name", "string", "", "name; that of a profiler step is ProfilerStep*"),
            ("calls", "int64", "", "calls; one that is the only child of its parent and has its name is one with it"),
            ("total_ns", "int64", "ns", "sum of durations; NULL if 64 bits may not hold it, as all that follow"),
            ("self_ns", "int64", "ns", "sum of durations without those of children, CUDA calls included; 0 of async"),
            ("gpu_ns", "int64", "ns", "GPU work with their External ids"),
            ("total_gpu_ns", "int64", "ns", "GPU work with their External ids or those of events below them"),
            ("self_device_bytes", "int64", "B", "allocated less freed on GPUs, without children; NULL if not recorded"),
            ("total_device_bytes", "int64", "B", "allocated less freed on GPUs while they ran; NULL if not recorded"),
            ("self_cpu_bytes", "int64", "B", "allocated less freed in the CPU's memory, without children"),
            ("total_cpu_bytes", "int64", "B", "allocated less freed in the CPU's memory while they ran"),
            derived=True,
        ),
        _table(
            "memory_events",
            "an allocator event",
            ("pid", "int64", "", "process"),
            ("device_type", "string", "", "cpu, cuda, hip (torch on AMD), xpu ..."),
            ("device", "int32", "", "device index; -1 for the CPU"),
            ("start_ns", "int64", "ns", "when"),
            ("addr", "int64", "", "address"),
            ("bytes", "int64", "B", "allocated, negative when freed"),
            ("allocated_bytes", "int64", "B", "allocated after the event"),
            ("reserved_bytes", "int64", "B", "reserved after the event"),
        ),
        _table(
            "step_metrics",
            "a training step as timed by collect",
            ("step", "int32", "", "from 0, over warm-up and profiled steps"),
            ("warmup", "bool", "", "a step before the profiled ones"),
            ("undisturbed", "bool", "", "a step before the profiler started, the baseline for its overhead"),
            ("data_s", "double", "s", "waiting for the next batch"),
            ("h2d_s", "double", "s", "host-to-device copies"),
            ("forward_s", "double", "s", "forward"),
            ("loss_s", "double", "s", "loss function"),
            ("backward_s", "double", "s", "backward"),
            ("optimizer_s", "double", "s", "optimizer step and zero_grad"),
            ("step_s", "double", "s", "whole step, data included"),
            ("images", "int64", "images", "images this process trained on"),
            ("loss", "double", "", "loss"),
            (
                "max_allocated_bytes",
                "int64",
                "B",
                "peak allocated since the start of the run, over the process's devices",
            ),
            (
                "max_reserved_bytes",
                "int64",
                "B",
                "peak reserved since the start of the run, over the process's devices",
            ),
        ),
        _table(
            "ncu_metrics",
            "one metric of one profiled launch",
            ("launch_id", "int64", "", "launch, in order of execution"),
            ("pid", "int64", "", "process"),
            ("kernel", "string", "", "kernel name"),
            ("device", "int32", "", "GPU"),
            ("stream", "int64", "", "stream"),
            ("grid", "string", "blocks", "grid size, as printed"),
            ("block", "string", "threads", "block size, as printed"),
            ("section", "string", "", "section or rule set of the metric"),
            ("metric", "string", "", "metric name"),
            ("unit", "string", "", "base unit: prefixes are scaled away"),
            ("value", "double", "", "value in the base unit; NULL where not available"),
            ("text", "string", "", "value where it is not a number"),
        ),
        _table("api_summary", "one API line of a summary-only log (nvprof)", *_SUMMARY),
        _table("gpu_summary", "one kernel or copy line of a summary-only log (nvprof)", *_SUMMARY),
        _table(
            "metric_summary",
            "one metric of one kernel in a summary-only log (nvprof)",
            ("device_name", "string", "", "device as printed"),
            ("device", "int32", "", "device index"),
            ("kernel", "string", "", "kernel"),
            ("invocations", "int64", "", "launches"),
            ("metric", "string", "", "metric name"),
            ("description", "string", "", "metric description"),
            ("unit", "string", "", "unit of the values"),
            ("min", "double", "", "smallest over the launches"),
            ("max", "double", "", "largest over the launches"),
            ("avg", "double", "", "mean over the launches"),
        ),
        _table(
            "kernel_names",
            "a distinct kernel name of a run",
            ("name", "string", "", "kernel name"),
            ("short_name", "string", "", "without namespaces, template and call arguments"),
            ("family", "string", "", "kind of work (schemas/kernel_rules.toml)"),
            ("algorithm", "string", "", "convolution algorithm; NULL for other families"),
            ("collective", "string", "", "NCCL collective; NULL for other families"),
            ranked=False,
        ),
        _table(
            "gpu_segments",
            "a stretch of time in which a GPU runs the same number of kernels, copies and fills",
            ("device", "int32", "", "GPU index as the process numbered it"),
            ("start_ns", "int64", "ns", "start; the segments of a device follow each other, first start to last end"),
            ("dur_ns", "int64", "ns", "length; 0 only where all work of the device has length 0"),
            ("compute_kernels", "int32", "", "kernels that run and are not communication"),
            ("comm_kernels", "int32", "", "kernels of the family communication that run"),
            ("memcpys", "int32", "", "copies that run"),
            ("memsets", "int32", "", "fills that run"),
            (
                "next_correlation_id",
                "int64",
                "",
                "while the GPU is idle, correlation_id of the work that ends it; of several, of the one launched first",
            ),
            derived=True,
        ),
    )
}

STEP_METRICS_CSV = tuple(c.name for c in TABLES["step_metrics"].columns if c.name != "run_id")
"""Header of the collector's step_metrics CSV."""


def arrow_schema(table: str) -> pa.Schema:
    """Arrow schema of a table; strings are dictionary<int32, string>."""
    import pyarrow as pa

    types = {"string": pa.dictionary(pa.int32(), pa.string()), "bool": pa.bool_(), "double": pa.float64()}
    return pa.schema(
        [(c.name, types[c.type] if c.type in types else getattr(pa, c.type)()) for c in TABLES[table].columns]
    )
