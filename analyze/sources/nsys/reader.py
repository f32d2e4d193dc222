"""Read Nsight Systems reports: exports to SQLite, parquetdir and arrowdir, and .nsys-rep through `nsys export`.

Ranks:
- A process with GPU work is a rank (kernels, copies or fills; if these are lost, a CUDA context and launch calls).
- The rank of a single process is that of the file (run.json), else that of the environment (`capture.Capture`).
- Several processes are numbered in the order of their MPI ranks (`nsys profile --trace=mpi`). Without these,
  they are numbered by process id, the order in which launchers start them, and a warning says so.
- Processes that share one GPU are one rank.
- Processes without GPU work (torchrun's agent, data loaders, a parent with only a CUDA context) have no rank. Their
  rows are left out, with a count. In a report without GPU work, every process with rows is a rank.

Times are ns since the session began, exact. Kernel names are those of nsys (`demangledName`), which spells some parts
differently from torch.profiler: `<unnamed>` for `(anonymous namespace)`, `(int)4` for `4`, `T1` for a repeated template
argument. Their `short_name` is the same. `cuda_version` is left to run.json: the report has the driver's version, not
the runtime's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyze.sources.interface import FileReport, TableBatch
from analyze.sources.nsys.capture import Capture
from analyze.sources.nsys.counters import FAULT_TABLES, metric_batches, network_batches
from analyze.sources.nsys.memory import memory_batches
from analyze.sources.nsys.names import Names
from analyze.sources.nsys.nccl_calls import NcclCalls
from analyze.sources.nsys.open_export import Tables, open_tables, rows
from analyze.sources.nsys.problems import problems_of
from analyze.sources.nsys.rank_processes import RankProcesses, Work, ranks_of
from analyze.sources.nsys.rows import EVENT_TABLES, Owners, Skipped, event_batches, rows_by_process
from analyze.sources.nsys.thread_states import THREAD_TABLES
from analyze.sources.rank_hint import RankHint

_JOB_VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "PALS_APID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_GPU_OF_2021 = ("deviceId", "name", "computeCapabilityMajor", "computeCapabilityMinor")
"""Columns of TARGET_INFO_CUDA_GPU, the table of exports until 2021 in place of TARGET_INFO_GPU."""

_LATEST_NS = 1 << 62
"""Limit of times since 1970: the year 2116."""


def read(path: Path, report: FileReport) -> Iterator[TableBatch]:
    """Yield the rows of a report; facts of the run and losses go to `report`.

    Raises InputError if it is damaged or not of Nsight Systems, or if there is no nsys to export a report.
    """
    with open_tables(path) as tables:
        names = Names(tables)
        work = {e: rows_by_process(tables, e) for e in EVENT_TABLES if tables.columns(e.source)}
        more = (*THREAD_TABLES, *FAULT_TABLES)
        threads = {e: rows_by_process(tables, e) for e in more if tables.columns(e.source)}
        capture = Capture(tables)
        processes = ranks_of(tables, work if any(work.values()) else threads, capture)
        owners = Owners(processes.ranks, processes.shared)
        skipped = Skipped()
        nccl = NcclCalls(tables, names, owners)
        for event in (*work, *threads):
            for rank, batch in event_batches(tables, event, names, owners, skipped):
                yield event.table, rank, nccl.add(rank, batch) if event.table == "kernels" else batch
        for rank, batch in memory_batches(tables, names, owners, skipped):
            yield "memory_events", rank, batch
        for rank, batch in metric_batches(tables, capture, owners, skipped):
            yield "counters", rank, batch
        for rank, batch in network_batches(tables, owners, skipped):
            yield "counters", rank, batch
        report.info = _run_columns(tables, work, capture, processes)
        report.lost = skipped.total
        problems = list(problems_of(tables, work | threads, processes, skipped))
        if nccl.unknown:
            problems.append(f"{nccl.unknown} kernels of groups of several NCCL calls have no sizes of messages")
        if problems:
            report.warnings.append(f"{path.name}: {'; '.join(problems)}")


def read_rank_hint(path: Path) -> RankHint:
    """Read what an export says of its rank. Reports of one job name the same job. Raises InputError as `read`."""
    with open_tables(path) as tables:
        capture = Capture(tables)
        clock = next((r["utcEpochNs"] for r in rows(tables, "TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])), None)
        if clock is not None and not 0 < clock < _LATEST_NS:
            clock = None
        rank, world_size = capture.rank_and_world_size()
        if rank is None and capture.nodes() is None:
            return RankHint(clock_ns=clock)
        work = {e: rows_by_process(tables, e) for e in EVENT_TABLES if tables.columns(e.source)}
        processes = max(1, len(set(ranks_of(tables, work, capture).ranks.values())))
        if processes > 1 or rank is None:
            rank, world_size = capture.nodes() or (rank, world_size)
        job = [capture.environment.get(v, "") for v in _JOB_VARIABLES]
        return RankHint(rank, world_size, " ".join(job) if any(job) else None, processes, clock)


def _run_columns(tables: Tables, work: Work, capture: Capture, processes: RankProcesses) -> dict[str, Any]:
    system = {r["name"]: r["value"] for r in rows(tables, "TARGET_INFO_SYSTEM_ENV", ["name", "value"])}
    columns: dict[str, Any] = {
        "host": system.get("Hostname"),
        "driver_version": system.get("NvDriverVersion"),
        "command": capture.command,
        "device_type": "cuda" if any(event.on_gpu and counts for event, counts in work.items()) else None,
    }
    rank, world_size = capture.rank_and_world_size()
    if rank is not None and len(set(processes.ranks.values())) == 1:
        columns["world_size"] = world_size
    for start in rows(tables, "TARGET_INFO_SESSION_START_TIME", ["utcTime"]):
        columns["start_time"] = f"{start['utcTime']}+00:00" if start["utcTime"] else None
    gpus = list(rows(tables, "TARGET_INFO_GPU", ["id", "name", "cuDevice", "computeMajor", "computeMinor"]))
    if not gpus:
        gpus = [
            {"id": g["deviceId"], "name": g["name"], "cuDevice": g["deviceId"]}
            | {"computeMajor": g["computeCapabilityMajor"], "computeMinor": g["computeCapabilityMinor"]}
            for g in rows(tables, "TARGET_INFO_CUDA_GPU", _GPU_OF_2021)
        ]
    cuda = [r for r in rows(tables, "TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId"]) if r["cudaId"] is not None]
    if gpus:
        # The process's own device 0 where the export says which GPU that is.
        visible = capture.visible_gpus(tables)
        first_id = min(cuda, key=lambda r: r["cudaId"])["gpuId"] if cuda else visible[0] if visible else None
        order = [(g["id"] != first_id, g["cuDevice"] or 0, g["id"] or 0) for g in gpus]
        gpu = gpus[order.index(min(order))]
        columns["gpu_name"] = gpu["name"]
        if gpu["computeMajor"] is not None and gpu["computeMinor"] is not None:
            columns["compute_capability"] = f"{gpu['computeMajor']}.{gpu['computeMinor']}"
    return {k: v for k, v in columns.items() if v}
