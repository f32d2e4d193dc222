"""Nsight Systems reports: SQLite exports, parquetdir and arrowdir exports, and .nsys-rep itself through `nsys export`.

Ranks: a process that worked on a GPU is a rank (kernels, copies or fills; or a CUDA context and any CUDA call or NVTX
range, as a rank has whose GPU part was lost), in order of process id, which is the order in which launchers start
them. If there is only one, its rank is that of the file (run.json), or what the launcher told the profiled command
($RANK, $OMPI_COMM_WORLD_RANK, $PMIX_RANK, $PMI_RANK). Processes that only worked on the host (torchrun's agent,
data loaders) have no rank and their rows are left out, with a count; in a report without GPU work every process with
rows is a rank.

Times are the report's own: ns since the session began, exact. Names of kernels are those of nsys (`demangledName`): the
same kernels as torch.profiler's in NVIDIA's spelling, `<unnamed>` for `(anonymous namespace)`, `(int)4` for `4`, `T1`
for a repeated template argument. The `short_name` of both is the same. `cuda_version` is left to run.json: the
report knows the driver's, not the runtime's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analyze.errors import InputError
from analyze.sources.base import FileReport, Mapper, TableBatch, inline_map
from analyze.sources.lines import whole
from analyze.sources.nsys.memory import memory_batches
from analyze.sources.nsys.names import Names
from analyze.sources.nsys.rows import EVENT_TABLES, EventTable, Skipped, event_batches, rows_by_process
from analyze.sources.nsys.tables import Tables, open_tables, rows

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOB_VARIABLES = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
_ENVIRONMENT = re.compile(r'(\w+)="?(.*?)"?$', re.DOTALL)
_ARGUMENT = re.compile(r"ARGUMENT_([0-9]{1,6})")
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
        ranks = _ranks(tables, work, capture)
        skipped = Skipped()
        for event in work:
            for rank, batch in event_batches(tables, event, names, ranks, skipped):
                yield event.table, rank, batch
        for rank, batch in memory_batches(tables, names, ranks, skipped):
            yield "memory_events", rank, batch
        report.info = _run_columns(tables, work, capture)
        report.lost = skipped.total
        problems = list(_problems(tables, work, ranks, skipped))
        if problems:
            report.warnings.append(f"{path.name}: {'; '.join(problems)}")


def read_job(path: Path) -> tuple[int | None, int | None, str | None]:
    """Rank, world size and job of the one process that an export is of, as its launcher told it; None where unsaid.

    Reports of the ranks of one job say the same job. Raises InputError as `read` does.
    """
    with open_tables(path) as tables:
        capture = Capture(tables)
        contexts = {r["processId"] for r in rows(tables, "TARGET_INFO_CUDA_CONTEXT_INFO", ["processId"])}
    job = [capture.environment.get(v, "") for v in _JOB_VARIABLES]
    if len(contexts) > 1 or not any(job):
        return None, None, None
    return capture.number(*_RANK_VARIABLES), capture.number(*_SIZE_VARIABLES), " ".join(job)


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


def _ranks(tables: Tables, work: Work, capture: Capture) -> dict[int, int | None]:
    """Rank of each process that has one; None: that of the file."""
    everyone = {p for counts in work.values() for p in counts}
    with_context = {r["processId"] for r in rows(tables, "TARGET_INFO_CUDA_CONTEXT_INFO", ["processId"])}
    workers = {p for event, counts in work.items() if event.on_gpu for p in counts}
    workers |= {p for p in everyone if _pid(p) in with_context}
    chosen = sorted((workers or everyone) - {0}, key=lambda p: (_pid(p), p))
    if len(chosen) > _MOST_RANKS:
        what = "worked on a GPU" if workers else "have events"
        raise InputError(
            f"{tables.path}: {len(chosen):,} processes {what}; a report of at most {_MOST_RANKS:,} is read"
        )
    if len(chosen) > 1:
        return {process: rank for rank, process in enumerate(chosen)}
    # Rows that do not say whose they are (process 0) belong to the only process there is.
    return dict.fromkeys((*chosen, 0), capture.number(*_RANK_VARIABLES))


def _run_columns(tables: Tables, work: Work, capture: Capture) -> dict[str, Any]:
    system = {r["name"]: r["value"] for r in rows(tables, "TARGET_INFO_SYSTEM_ENV", ["name", "value"])}
    columns: dict[str, Any] = {
        "host": system.get("Hostname"),
        "driver_version": system.get("NvDriverVersion"),
        "command": capture.command,
        "device_type": "cuda" if any(event.on_gpu and counts for event, counts in work.items()) else None,
    }
    if capture.number(*_RANK_VARIABLES) is not None:
        columns["world_size"] = capture.number(*_SIZE_VARIABLES)
    for start in rows(tables, "TARGET_INFO_SESSION_START_TIME", ["utcTime"]):
        columns["start_time"] = f"{start['utcTime']}+00:00" if start["utcTime"] else None
    gpus = list(rows(tables, "TARGET_INFO_GPU", ["id", "name", "cuDevice", "computeMajor", "computeMinor"]))
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


def _problems(tables: Tables, work: Work, ranks: dict[int, int | None], skipped: Skipped) -> Iterator[str]:
    version = _export_version(tables)
    if version and version > _SCHEMA_MAJOR:
        yield f"its export schema {version} is newer than what is known ({_SCHEMA_MAJOR}), read by the names of columns"
    if losses := list(_recorded_losses(tables)):
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        yield f"the report itself says: {losses[0]}{more}"
    yield from _missing_kernels(work, ranks)
    if graphs := sum(n for e, counts in work.items() if "GRAPH_TRACE" in e.source for n in counts.values()):
        yield f"{_count(graphs, 'CUDA graph')} traced as a whole, without kernels (--cuda-graph-trace=node traces them)"
    yield from skipped.sentences()
    for (source, column), values in tables.unreadable.items():
        yield f"{_count(values, 'value')} of {source}.{column} not a whole number, read as NULL"
    for view in sorted({e.source for e in EVENT_TABLES} & tables.views):
        yield f"{view} is a view, not a table: not read"
    left: Counter[int] = Counter()
    for counts in work.values():
        left.update({p: n for p, n in counts.items() if p and p not in ranks})
    if left:
        others = _count(len(left), "process", "es")
        yield f"{_count(left.total(), 'host event')} of {others} without GPU work left out"


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
