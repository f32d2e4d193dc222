"""Nsight Systems reports: SQLite exports, parquetdir and arrowdir exports, and .nsys-rep itself through `nsys export`.

Ranks: a process that worked on a GPU is a rank (kernels, copies or fills; or a CUDA context and calls that launch such
work, if the report lost the work itself). If there is only one, its rank is that of the file (run.json), or the one in
the environment of the profiled command (`_LAUNCHERS`). Several are numbered by process id, the order in which launchers
start them, and the report says that this is a guess. Processes that use one and the same GPU are one rank. Processes
that only worked on the host (torchrun's agent, data loaders, a parent that only opened a CUDA context) have no rank and
their rows are left out, with a count; in a report without GPU work every process with rows is a rank.

Times are the report's own: ns since the session began, exact. Names of kernels are those of nsys (`demangledName`): the
same kernels as torch.profiler's in NVIDIA's spelling, `<unnamed>` for `(anonymous namespace)`, `(int)4` for `4`, `T1`
for a repeated template argument. The `short_name` of both is the same. `cuda_version` is left to run.json: the
report knows the driver's, not the runtime's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from analyze.sources.lines import whole
from analyze.sources.nsys.memory import memory_batches
from analyze.sources.nsys.names import Names
from analyze.sources.nsys.rows import EVENT_TABLES, EventTable, Owners, Skipped, event_batches, rows_by_process
from analyze.sources.nsys.tables import PROCESS_BITS, Tables, open_tables, rows
from analyze.sources.nsys.unread import unread_tables

_LAUNCHERS = (
    (("RANK",), ("WORLD_SIZE",)),  # torchrun, deepspeed, accelerate
    (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    (("MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"), ("MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE")),  # MVAPICH
    (("PALS_RANKID",), ("PALS_SIZE",)),
    (("PMIX_RANK",), ()),
    (("PMI_RANK",), ("PMI_SIZE",)),  # Hydra (MPICH, Intel MPI), Cray
    (("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
)
"""Variables with the rank and the number of ranks, by launcher. torchrun and mpirun may run within srun."""

_JOB_VARIABLES = (
    "SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "PALS_APID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_NODE_OPTION = re.compile(r"--(nnodes|node[-_]rank)(?:=|\s+)([0-9]{1,6})(?=\s|$)")
"""torchrun's number of nodes and which of them this is; a range of nodes (1:4) is no number."""
_LAUNCH = re.compile(r"(cuda|cu)(Launch|Memcpy|Memset|GraphLaunch)")
"""Calls that put work on a GPU."""
_ENVIRONMENT = re.compile(r'(\w+)="?(.*?)"?$', re.DOTALL)
_ARGUMENT = re.compile(r"ARGUMENT_([0-9]{1,6})")
_GPU_OF_2021 = ("deviceId", "name", "computeCapabilityMajor", "computeCapabilityMinor")
"""Columns of TARGET_INFO_CUDA_GPU, which exports until 2021 have instead of TARGET_INFO_GPU."""
_STALE_S = 60
"""An export and its report that were copied together may have times in any order, so many seconds apart at most."""
_SHOWN = 8
"""So many processes are listed in a sentence."""
_LATEST_NS = 1 << 62
"""More than the time since 1970 can be: the year 2116."""
_SCHEMA_MAJOR = 3
"""EXPORT_SCHEMA_VERSION_MAJOR of the exports from 2021 to 2026."""

_MOST_RANKS = 1024
"""Each rank becomes files of its own. A report is of one node, which has 16 GPUs and seldom more processes on each."""

_LOSS = re.compile(r"^Error when|^Not all .* collected|dropped|\blost\b|incomplete", re.IGNORECASE)
"""What a diagnostic says that is a warning by rank and a loss of events by content."""


def read(path: Path, report: FileReport, mapper: Mapper = inline_map) -> Iterator[TableBatch]:
    """Yield the rows of a report; what it says of the run, and what is missing from it, goes to `report`.

    Raises InputError if it is damaged, is not Nsight Systems', or is a report and there is no nsys to export it.
    """
    with open_tables(path) as tables:
        names = Names(tables)
        work = {e: rows_by_process(tables, e) for e in EVENT_TABLES if tables.columns(e.source)}
        capture = Capture(tables)
        processes = _ranks(tables, work, capture)
        owners = Owners(*processes)
        skipped = Skipped()
        for event in work:
            for rank, batch in event_batches(tables, event, names, owners, skipped):
                yield event.table, rank, batch
        for rank, batch in memory_batches(tables, names, owners, skipped):
            yield "memory_events", rank, batch
        report.info = _run_columns(tables, work, capture, processes)
        report.lost = skipped.total
        problems = list(_problems(tables, work, processes, skipped))
        if problems:
            report.warnings.append(f"{path.name}: {'; '.join(problems)}")


class Place(NamedTuple):
    """What an export says of its place in a job; None where it does not.

    `rank` and `world_size` are in units of reports: if the report is of several `processes` with GPU work, these are
    the number of the node and how many nodes there are. `clock_ns` is when its time 0 was, since 1970.
    """

    rank: int | None
    world_size: int | None
    job: str | None
    processes: int
    clock_ns: int | None


def read_place(path: Path) -> Place:
    """Read the place of an export in its job. Reports of one job name the same job. Raises InputError as `read`."""
    with open_tables(path) as tables:
        capture = Capture(tables)
        clock = next((r["utcEpochNs"] for r in rows(tables, "TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])), None)
        if clock is not None and not 0 < clock < _LATEST_NS:
            clock = None
        rank, world_size = capture.place()
        if rank is None and capture.nodes() is None:
            return Place(None, None, None, 1, clock)
        work = {e: rows_by_process(tables, e) for e in EVENT_TABLES if tables.columns(e.source)}
        processes = max(1, len(set(_ranks(tables, work, capture).ranks.values())))
        if processes > 1 or rank is None:
            rank, world_size = capture.nodes() or (rank, world_size)
        job = [capture.environment.get(v, "") for v in _JOB_VARIABLES]
        return Place(rank, world_size, " ".join(job) if any(job) else None, processes, clock)


Work = dict[EventTable, dict[int, int]]
"""Rows by process, of each event table that the export has."""


class Capture:
    """What META_DATA_CAPTURE says of the profiled command."""

    def __init__(self, tables: Tables):
        arguments: dict[int, str] = {}
        self.environment: dict[str, str] = {}
        program = None
        for row in rows(tables, "META_DATA_CAPTURE", ["name", "value"]):
            key, value = (row["name"] or "").partition(":")[2], row["value"] or ""
            if key == "ENVIRONMENT_VARIABLE" and (match := _ENVIRONMENT.match(value)):
                self.environment[match.group(1)] = match.group(2)
            elif key == "COMMAND":
                program = program or value
            elif match := _ARGUMENT.fullmatch(key):
                arguments[int(match.group(1))] = value
        self.command = " ".join([program, *(arguments[i] for i in sorted(arguments))]) if program else None

    def place(self) -> tuple[int | None, int | None]:
        """Rank and number of ranks by the variables of a launcher; None where they do not say."""
        places = [(self.number(*ranks), self.number(*sizes)) for ranks, sizes in _LAUNCHERS]
        rank = next((r for r, _ in places if r is not None), None)
        # The size may be another launcher's, if that agrees on the rank: PALS with PMI_SIZE, PMIX_RANK within srun.
        return rank, next((size for r, size in places if r == rank is not None and size is not None), None)

    def nodes(self) -> tuple[int, int] | None:
        """Number of the node and how many there are, by the options of torchrun."""
        options = dict(_NODE_OPTION.findall((self.command or "").replace("--node_rank", "--node-rank")))
        if len(options) < 2:
            return None
        return int(options["node-rank"]), int(options["nnodes"])

    def number(self, *variables: str) -> int | None:
        """Value of the first of some environment variables that is a number."""
        numbers = (_number(self.environment.get(v, "")) for v in variables)
        return next((n for n in numbers if n is not None), None)


def _number(text: str) -> int | None:
    try:
        number = whole(text, 32)
    except ValueError:
        return None
    return number if number >= 0 else None


def _pid(process: int) -> int:
    return (process >> 24) & 0xFFFFFF


class Processes(NamedTuple):
    """The processes that have a rank."""

    ranks: dict[int, int | None]
    """Rank by process; None: that of the file."""
    shared: list[dict[int, int]]
    """Processes that have one rank, because they use one GPU, and what each calls its device."""


def _ranks(tables: Tables, work: Work, capture: Capture) -> Processes:
    """Rank of each process that has one. Raises InputError for more processes than a node can have."""
    everyone = {p for counts in work.values() for p in counts}
    with_context = {r["processId"] for r in rows(tables, "TARGET_INFO_CUDA_CONTEXT_INFO", ["processId"])}
    workers = {p for event, counts in work.items() if event.on_gpu for p in counts}
    idle = {p for p in everyone - workers if _pid(p) in with_context}
    if idle:
        # Without any work on a GPU, a context is all there is to go by.
        workers |= idle & _launching(tables) if workers - {0} else idle
    chosen = sorted((workers or everyone) - {0}, key=lambda p: (_pid(p), p))
    if len(chosen) > _MOST_RANKS:
        what = "worked on a GPU" if workers else "have events"
        raise InputError(
            f"{tables.path}: {len(chosen):,} processes {what}; a report of at most {_MOST_RANKS:,} is read"
        )
    sharing = _sharing(tables, chosen) if len(chosen) > 1 else []
    first = {p: next(iter(group)) for group in sharing for p in group}
    numbers = {p: n for n, p in enumerate(p for p in chosen if first.get(p, p) == p)}
    if len(numbers) > 1:
        return Processes({p: numbers[first.get(p, p)] for p in chosen}, sharing)
    # Rows that do not say whose they are (process 0) belong to the only process there is.
    rank = capture.place()[0]
    return Processes(dict.fromkeys(chosen if sharing else (*chosen, 0), rank), sharing)


def _launching(tables: Tables) -> set[int]:
    """Processes with calls that put work on a GPU."""
    names = Names(tables)
    found: set[int] = set()
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
        for batch in tables.batches(table, ["globalTid", "nameId"]):
            launches = pc.match_substring_regex(names.lookup(batch["nameId"]), f"^{_LAUNCH.pattern}").fill_null(False)
            found |= set(pc.bit_wise_and(batch["globalTid"].filter(launches), PROCESS_BITS).unique().to_pylist())
    return found


def _sharing(tables: Tables, processes: Sequence[int]) -> list[dict[int, int]]:
    """Processes that do all their work on one GPU together, as under MPS, with its device number in each."""
    gpus: dict[tuple[int, int], object] = {}
    for row in rows(tables, "TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId", "uuid"]):
        if (gpu := row["uuid"] or row["gpuId"]) is not None:
            gpus[row["pid"], row["cudaId"]] = gpu
    if len(set(gpus.values())) == len(gpus):
        return []
    used: dict[int, set[int | None]] = {}
    for event in EVENT_TABLES:
        for batch in tables.batches(event.source, [event.owner, "deviceId"]) if event.on_gpu else ():
            owners = pc.bit_wise_and(batch[event.owner], PROCESS_BITS)
            pairs = pa.table({"process": owners, "device": batch["deviceId"]}).group_by(["process", "device"])
            for pair in pairs.aggregate([]).to_pylist():
                used.setdefault(pair["process"], set()).add(pair["device"])
    together: dict[object, dict[int, int]] = {}
    for process in processes:
        if len(devices := used.get(process, set())) == 1:
            [device] = devices
            if device is not None and (gpu := gpus.get((_pid(process), device))) is not None:
                together.setdefault(gpu, {})[process] = device
    return [group for group in together.values() if len(group) > 1]


def _run_columns(tables: Tables, work: Work, capture: Capture, processes: Processes) -> dict[str, Any]:
    system = {r["name"]: r["value"] for r in rows(tables, "TARGET_INFO_SYSTEM_ENV", ["name", "value"])}
    columns: dict[str, Any] = {
        "host": system.get("Hostname"),
        "driver_version": system.get("NvDriverVersion"),
        "command": capture.command,
        "device_type": "cuda" if any(event.on_gpu and counts for event, counts in work.items()) else None,
    }
    rank, world_size = capture.place()
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
        first_id = min(cuda, key=lambda r: r["cudaId"])["gpuId"] if cuda else None
        order = [(g["id"] != first_id, g["cuDevice"] or 0, g["id"] or 0) for g in gpus]
        gpu = gpus[order.index(min(order))]
        columns["gpu_name"] = gpu["name"]
        if gpu["computeMajor"] is not None and gpu["computeMinor"] is not None:
            columns["compute_capability"] = f"{gpu['computeMajor']}.{gpu['computeMinor']}"
    return {k: v for k, v in columns.items() if v}


def _problems(tables: Tables, work: Work, processes: Processes, skipped: Skipped) -> Iterator[str]:
    if stale := _stale(tables.path):
        yield stale
    version = _export_version(tables)
    if version and version > _SCHEMA_MAJOR:
        yield f"its export schema {version} is newer than what is known ({_SCHEMA_MAJOR}), read by the names of columns"
    if losses := list(_recorded_losses(tables)):
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        yield f"the report itself says: {losses[0]}{more}"
    yield from _missing_kernels(work, processes.ranks)
    if len(set(processes.ranks.values())) > 1:
        pids = ", ".join(str(_pid(p)) for p in list(processes.ranks)[:_SHOWN])
        more = ", ..." if len(processes.ranks) > _SHOWN else ""
        yield f"which process has which rank is guessed from the order of the process ids ({pids}{more})"
    for group in processes.shared:
        pids = ", ".join(str(_pid(p)) for p in list(group)[:_SHOWN]) + (", ..." if len(group) > _SHOWN else "")
        yield f"{len(group)} processes ({pids}) share one GPU and are read as one rank"
    if graphs := sum(n for e, counts in work.items() if "GRAPH_TRACE" in e.source for n in counts.values()):
        yield f"{_count(graphs, 'CUDA graph')} traced as a whole, without kernels (--cuda-graph-trace=node traces them)"
    yield from skipped.sentences()
    if unread := unread_tables(tables):
        yield f"recorded and not read: {', '.join(unread)}"
    for (source, column), values in tables.unreadable.items():
        yield f"{_count(values, 'value')} of {source}.{column} not a whole number, read as NULL"
    for view in sorted({e.source for e in EVENT_TABLES} & tables.views):
        yield f"{view} is a view, not a table: not read"
    left: Counter[int] = Counter()
    for counts in work.values():
        left.update({p: n for p, n in counts.items() if p and p not in processes.ranks})
    if left:
        others = _count(len(left), "process", "es")
        yield f"{_count(left.total(), 'host event')} of {others} without GPU work left out"


def _stale(path: Path) -> str | None:
    """That an export is older than the report next to it, which was recorded again since."""
    for report in (path.with_suffix(".nsys-rep"), path.with_suffix(".qdrep")):
        try:
            if report != path and (seconds := report.stat().st_mtime - path.stat().st_mtime) > _STALE_S:
                return f"it is {_duration(seconds)} older than {report.name} next to it: export that report anew"
        except OSError:
            continue
    return None


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds / 60:.0f} min"


def _count(n: int, noun: str, plural: str = "s") -> str:
    return f"{n} {noun}{plural if n != 1 else ''}"


def _export_version(tables: Tables) -> int | None:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for row in rows(tables, table, ["name", "value"]):
            if row["name"] == "EXPORT_SCHEMA_VERSION_MAJOR":
                return _number(row["value"] or "")
    return None


def _recorded_losses(tables: Tables) -> Iterator[str]:
    """First lines of the diagnostics (exports of 2024 on) that say that events are missing."""
    levels = {r["id"]: r["label"] for r in rows(tables, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL", ["id", "label"])}
    for row in rows(tables, "DIAGNOSTIC_EVENT", ["severity", "text"]):
        text = (row["text"] or "").strip()
        level = levels.get(row["severity"], "")
        if level in ("Error", "Fatal") or (level != "Info" and _LOSS.search(text)):
            yield text.partition("\n")[0][:200]


def _missing_kernels(work: Work, ranks: dict[int, int | None]) -> Iterator[str]:
    """Ranks whose kernels are not there although they used CUDA: what a partial import or a crash leaves."""
    with_kernels = {p for e, counts in work.items() if e.table == "kernels" for p in counts}
    used = {p for e, counts in work.items() if e.on_gpu or e.table == "cuda_calls" for p in counts}
    if not used:
        return
    lacking = [p for p in ranks if p and p not in with_kernels]
    if lacking:
        pids = ", ".join(str(_pid(p)) for p in sorted(lacking))
        yield f"no kernel of {len(lacking)} of {len(ranks)} ranks is in it (process {pids}): the report is partial"
