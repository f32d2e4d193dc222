"""Which processes of an Nsight Systems report are ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError
from analyze.sources.nsys.capture import Capture
from analyze.sources.nsys.names import Names
from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.rows import EVENT_TABLES, EventTable
from analyze.sources.nsys.stacks import CALL_TABLES
from analyze.sources.nsys.values import PROCESS_BITS

_LAUNCH = re.compile(r"(cuda|cu)(Launch|Memcpy|Memset|GraphLaunch)")
"""CUDA calls that launch GPU work."""

_MOST_RANKS = 1024
"""Limit, because each rank gets its own files. A report is of one node: 16 GPUs, seldom many processes on each."""

Work = dict[EventTable, dict[int, int]]
"""Number of rows by process, for each event table of the export."""


def pid_of(process: int) -> int:
    """Return the system's process id of a global id."""
    return (process >> 24) & 0xFFFFFF


class RankProcesses(NamedTuple):
    """The processes that have a rank."""

    ranks: dict[int, int | None]
    """Rank by process; None: that of the file."""
    shared: list[dict[int, int]]
    """Groups of processes that share one GPU and therefore one rank: the device index of each process."""
    mpi_ranks: list[int]
    """The MPI ranks by which the processes are ordered; empty: ordered by process id."""


def ranks_of(tables: Tables, work: Work, capture: Capture) -> RankProcesses:
    """Return the rank of each process that has one. Raises InputError for more processes than a node can have."""
    everyone = {p for counts in work.values() for p in counts}
    with_context = {r["processId"] for r in rows(tables, "TARGET_INFO_CUDA_CONTEXT_INFO", ["processId"])}
    workers = {p for event, counts in work.items() if event.on_gpu for p in counts}
    idle = {p for p in everyone - workers if pid_of(p) in with_context}
    if idle:
        # Without GPU work, a CUDA context is the only evidence.
        workers |= idle & _launching(tables) if workers - {0} else idle
    chosen = sorted((workers or everyone) - {0}, key=lambda p: (pid_of(p), p))
    if len(chosen) > _MOST_RANKS:
        what = "worked on a GPU" if workers else "have events"
        raise InputError(
            f"{tables.path}: {len(chosen):,} processes {what}; a report of at most {_MOST_RANKS:,} is read"
        )
    mpi_ranks = _mpi_ranks(tables, chosen)
    chosen.sort(key=lambda p: mpi_ranks.get(p, 0))
    sharing = _sharing(tables, chosen) if len(chosen) > 1 else []
    first = {p: next(iter(group)) for group in sharing for p in group}
    numbers = {p: n for n, p in enumerate(p for p in chosen if first.get(p, p) == p)}
    if len(numbers) > 1:
        return RankProcesses({p: numbers[first.get(p, p)] for p in chosen}, sharing, sorted(mpi_ranks.values()))
    # Rows without a process (0) belong to the only process.
    rank = capture.rank_and_world_size()[0]
    return RankProcesses(dict.fromkeys(chosen if sharing else (*chosen, 0), rank), sharing, [])


def _mpi_ranks(tables: Tables, processes: Sequence[int]) -> dict[int, int]:
    """Return the MPI rank of each process; empty unless all have one of their own."""
    own = set(processes)
    pairs = {
        (process, row["rank"])
        for row in rows(tables, "MPI_RANKS", ["globalTid", "rank"])
        if row["rank"] is not None and (process := (row["globalTid"] or 0) & PROCESS_BITS) in own
    }
    found = dict(pairs)
    return found if len(pairs) == len(processes) == len(found) == len(set(found.values())) else {}


def used_devices(tables: Tables) -> dict[int, set[int | None]]:
    """Return the device indices of the GPU work of each process."""
    used: dict[int, set[int | None]] = {}
    for event in EVENT_TABLES:
        for batch in tables.batches(event.source, [event.owner, "deviceId"]) if event.on_gpu else ():
            owners = pc.bit_wise_and(batch[event.owner], PROCESS_BITS)
            pairs = pa.table({"process": owners, "device": batch["deviceId"]}).group_by(["process", "device"])
            for pair in pairs.aggregate([]).to_pylist():
                used.setdefault(pair["process"], set()).add(pair["device"])
    return used


def _launching(tables: Tables) -> set[int]:
    """Return the processes with CUDA calls that launch GPU work."""
    names = Names(tables)
    found: set[int] = set()
    for table in CALL_TABLES:
        for batch in tables.batches(table, ["globalTid", "nameId"]):
            launches = pc.match_substring_regex(names.lookup(batch["nameId"]), f"^{_LAUNCH.pattern}").fill_null(False)
            found |= set(pc.bit_wise_and(batch["globalTid"].filter(launches), PROCESS_BITS).unique().to_pylist())
    return found


def _sharing(tables: Tables, processes: Sequence[int]) -> list[dict[int, int]]:
    """Return the groups of processes that share one GPU, as under MPS, with its device index in each process."""
    gpus: dict[tuple[int, int], object] = {}
    for row in rows(tables, "TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId", "uuid"]):
        if (gpu := row["uuid"] or row["gpuId"]) is not None:
            gpus[row["pid"], row["cudaId"]] = gpu
    if len(set(gpus.values())) == len(gpus):
        return []
    used = used_devices(tables)
    together: dict[object, dict[int, int]] = {}
    for process in processes:
        if len(devices := used.get(process, set())) == 1:
            [device] = devices
            if device is not None and (gpu := gpus.get((pid_of(process), device))) is not None:
                together.setdefault(gpu, {})[process] = device
    return [group for group in together.values() if len(group) > 1]
